"""What waits: messages for their time, half messages for the end of their transaction."""

from __future__ import annotations

from starlette.responses import Response

from kourou.admin import timers, transactions
from kourou.console.bodies import beginning
from kourou.console.deeds import waiting as deeds
from kourou.console.page import get, post
from kourou.console.pages.carried import carry_out, command
from kourou.console.paging import page_of
from kourou.console.visit import Visit

OUTCOMES = {
    "commit": "The message is committed.",
    "rollback": "The message is rolled back.",
    "resume": "Its producers are asked again.",
}


def delayed(visit: Visit) -> Response:
    query = visit.query()
    topic = query.text("topic", "")
    found = timers.waiting(visit.desk.connection, topic=topic or None, count=deeds.COUNT_MAX)
    page = page_of(found, query)
    return visit.show(
        "delayed.html",
        section="/delayed",
        page=page,
        rows=[(each, beginning(each.message, 60)) for each in page.rows],
        topic=topic,
        command=command(visit, deeds.WAITING),
    )


def cancel(visit: Visit) -> Response:
    told = visit.say("The message is taken back: nobody gets it.")
    return carry_out(visit, deeds.CANCEL, told, "/delayed")


def halves(visit: Visit) -> Response:
    connection = visit.desk.connection
    found = [*transactions.open_halves(connection), *transactions.discarded(connection)]
    page = page_of(found, visit.query())
    return visit.show(
        "transactions.html",
        section="/transactions",
        page=page,
        rows=[(half, beginning(half.message, 60)) for half in page.rows],
        command=command(visit, deeds.HALVES),
    )


def end(visit: Visit) -> Response:
    outcome = visit.form().choice("outcome", tuple(OUTCOMES))
    return carry_out(visit, deeds.END, visit.say(OUTCOMES[outcome]), "/transactions")


PAGES = [
    get("/delayed", delayed),
    post("/delayed/cancel", cancel),
    get("/transactions", halves),
    post("/transactions/end", end),
]
