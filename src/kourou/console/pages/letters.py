"""Dead letters: by group, filtered; sent again one by one or many at once; written to a file; let go."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import chain

import msgspec
from starlette.responses import Response, StreamingResponse

from kourou.admin import dlq
from kourou.admin.messages import described
from kourou.console.bodies import beginning
from kourou.console.charts import NOTHING
from kourou.console.deeds import letters as deeds
from kourou.console.deeds.deed import do
from kourou.console.given import Given
from kourou.console.login import Role
from kourou.console.page import get, post
from kourou.console.pages.carried import carry_out, command, done
from kourou.console.paging import page_of
from kourou.console.visit import Visit, link
from kourou.message import ReceivedMessage

FILTERS = ("topic", "key", "tags", "begin", "end", "contains")
COLUMNS = (
    *("offset_id", "message_id", "topic", "broker", "queue_id", "queue_offset", "stored_at"),
    *("reconsume_times", "tags", "keys", "body", "body_base64"),
)
FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\r")


def show_all(visit: Visit) -> Response:
    query = visit.query()
    wanted = query.text("search", "").lower()
    found = [each for each in dlq.all_groups(visit.desk.connection) if wanted in each.group.lower()]
    found.sort(key=lambda each: (-each.messages, each.group))
    return visit.show(
        "letters.html",
        section="/dead-letters",
        page=page_of(found, query),
        search=query.text("search", ""),
        command=command(visit, deeds.GROUPS),
    )


def show(visit: Visit) -> Response:
    query = visit.query()
    group = query.text("group")
    page = page_of(deeds.newest(visit.desk, group, deeds.filter_from(query)), query)
    chosen = {name: query.text(name) for name in FILTERS if name in query}
    all_of_them = {"group": group, "everything": not chosen, "skip_sent": True, **chosen}
    return visit.show(
        "letters_of.html",
        section="/dead-letters",
        group=group,
        page=page,
        letters=[(letter, dlq.first_topic(letter) or NOTHING, beginning(letter, 80)) for letter in page.rows],
        query={name: query.text(name, "") for name in FILTERS},
        is_filtered=bool(chosen),
        command=command(visit, deeds.LIST, Given({"group": group, **chosen})),
        resend_command=command(visit, deeds.RESEND, Given(all_of_them)),
    )


def resend(visit: Visit) -> Response:
    form = visit.form()
    resent = do(deeds.RESEND, form, visit)
    failed = [each for each in resent if each.error is not None]
    told = visit.say("{count} dead letters were sent again.", count=len(resent) - len(failed))
    twice = sum(each.sent_before is True for each in resent)
    if twice:
        visit.tell(visit.say("{count} of them had been sent there before: they come twice.", count=twice))
    if failed:
        visit.tell(visit.say("{count} failed: {why}", count=len(failed), why=failed[0].error), "bad")
    return done(visit, deeds.RESEND, form, told, link("dead-letters", form.text("group")))


def show_purge(visit: Visit) -> Response:
    group = visit.query().text("group")
    return visit.show(
        "letters_purge.html",
        section="/dead-letters",
        group=group,
        command=command(visit, deeds.PURGE, group=group),
    )


def purge(visit: Visit) -> Response:
    told = visit.say("The dead letters of {group} are gone.", group=visit.form().text("group"))
    return carry_out(visit, deeds.PURGE, told, "/dead-letters")


def export(visit: Visit) -> Response:
    """All that match, as a file; bounded, and sent as it is made."""
    query = visit.query()
    group = query.text("group")
    form = query.choice("format", ("jsonl", "csv"), "jsonl")
    found = deeds.every(visit.desk, group, deeds.filter_from(query))
    rows = _csv(found) if form == "csv" else _jsonl(found)
    name = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in group)
    return StreamingResponse(
        rows,
        media_type="text/csv" if form == "csv" else "application/x-ndjson",
        headers={"content-disposition": f'attachment; filename="dead-letters-{name}.{form}"'},
    )


def _jsonl(letters: Iterator[ReceivedMessage]) -> Iterator[bytes]:
    for letter in letters:
        yield msgspec.json.encode(described(letter)) + b"\n"


def _csv(letters: Iterator[ReceivedMessage]) -> Iterator[bytes]:
    for row in chain([COLUMNS], map(_cells, letters)):
        text = io.StringIO()
        csv.writer(text).writerow(row)
        yield text.getvalue().encode("utf-8", "replace")


def _cells(letter: ReceivedMessage) -> list[str]:
    """What a spreadsheet would take for a formula is made a text by an apostrophe."""
    told = described(letter)
    cells = ["" if told.get(column) is None else str(told[column]) for column in COLUMNS]
    return ["'" + cell if cell.startswith(FORMULA_BEGINS) else cell for cell in cells]


PAGES = [
    get("/dead-letters", show_all),
    get("/dead-letters/{group}", show),
    get("/dead-letters/{group}/export", export),
    get("/dead-letters/{group}/purge", show_purge, Role.ADMIN),
    post("/dead-letters/resend", resend),
    post("/dead-letters/purge", purge, Role.ADMIN),
]
