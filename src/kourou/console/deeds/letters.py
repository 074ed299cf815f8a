"""Deeds around dead letters: seen, sent again, let go."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from kourou.admin import dlq, groups, messages, topics
from kourou.admin.dlq import Filter
from kourou.admin.messages import Search, described
from kourou.client.settings import checked_group
from kourou.console.deeds.deed import Deed, Field, option, typed
from kourou.console.deeds.messages import milliseconds
from kourou.console.desk import Desk
from kourou.console.given import Given
from kourou.console.login import Role
from kourou.console.visit import Visit
from kourou.errors import ConfigError, NotFound
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.names import dead_letter_topic

GROUP = Field("group", "The consumer group.", needed=True)
LOOKED_AT_MAX = 10_000
EXPORTED_MAX = 100_000


def filter_from(given: Given) -> Filter:
    return Filter(
        ids=frozenset(given.texts("ids")),
        topic=given.text("topic", "") or None,
        key=given.text("key", "") or None,
        tags=given.text("tags", "") or None,
        begin_ms=milliseconds(given, "begin"),
        end_ms=milliseconds(given, "end"),
        contains=given.text("contains", "") or None,
    )


def newest(desk: Desk, group: str, wanted: Filter, count: int = LOOKED_AT_MAX) -> list[ReceivedMessage]:
    """The dead letters of a group that match, the newest first; so many are looked at, and no more."""
    if wanted.ids:
        return _by_ids(desk, group, wanted)
    search = Search(
        dead_letter_topic(checked_group(group)),
        begin_ms=wanted.begin_ms,
        end_ms=wanted.end_ms,
        count=LOOKED_AT_MAX,
        looked_at_max=LOOKED_AT_MAX,
    )
    try:
        found = messages.search(desk.connection, search)
    except NotFound:
        groups.show(desk.connection, group)  # raises when there is no such group, either
        return []
    return [letter for letter in found if wanted.takes(letter)][:count]


def _by_ids(desk: Desk, group: str, wanted: Filter) -> list[ReceivedMessage]:
    """By their places, as pages name them; by any other id they are looked for among all."""
    topic = dead_letter_topic(checked_group(group))
    try:
        found = [messages.by_id(desk.connection, each) for each in sorted(wanted.ids)]
    except (ConfigError, NotFound):
        return dlq.letters(desk.connection, group, wanted, LOOKED_AT_MAX)
    return [letter for letter in found if letter.topic == topic and wanted.takes(letter)]


def every(desk: Desk, group: str, wanted: Filter) -> Iterator[ReceivedMessage]:
    """All that match, one after the other as they are read; raises NotFound before the first."""
    topic = dead_letter_topic(checked_group(group))
    parts = topics.at_brokers(desk.connection, topic)

    def walk() -> Iterator[ReceivedMessage]:
        for part in parts:
            for queue_id in range(part.read_queues):
                queue = MessageQueue(broker_name=part.broker, queue_id=queue_id, topic=topic)
                read = messages.read_queue(desk.connection, part.address, queue)
                yield from (letter for letter in read if wanted.takes(letter))

    return islice(walk(), EXPORTED_MAX)


def _groups(desk: Desk, given: Given, visit: Visit) -> Any:
    return dlq.all_groups(desk.connection)


def _list(desk: Desk, given: Given, visit: Visit) -> Any:
    count = given.number("count", 100, least=1, most=LOOKED_AT_MAX)
    letters = newest(desk, given.text("group"), filter_from(given), count)
    return [
        {**described(letter), "first_topic": dlq.first_topic(letter), "first_id": dlq.first_id(letter)}
        for letter in letters
    ]


def _resend(desk: Desk, given: Given, visit: Visit) -> Any:
    wanted = filter_from(given)
    if wanted == dlq.EVERYTHING and not given.yes("everything"):
        raise ConfigError("nothing is chosen: name ids or a filter, or say everything=true")
    group = given.text("group")
    chosen = newest(desk, group, wanted)[::-1]
    to: dlq.To = "topic" if given.choice("to", ("group", "topic"), "group") == "topic" else "group"
    before = dlq.sent_before(desk.connection, group, chosen, to)
    if given.yes("skip_sent"):
        if before is None:
            raise ConfigError(f"choose up to {dlq.ASKED_ABOUT_MAX}: each is looked for, whether it was sent")
        chosen = [letter for letter in chosen if letter.offset_id not in before]
    return list(
        dlq.resend(desk.connection, group, chosen, to=to, dry_run=given.yes("dry_run"), before=before)
    )


def _resend_command(given: Given) -> str:
    return typed(
        *("kourou", "dlq", "resend", given.text("group", "GROUP")),
        *_filter_words(given),
        *option("--all", given.yes("everything")),
        *option("--to", given.text("to", "")),
        *option("--skip-sent", given.yes("skip_sent")),
        "--yes",
    )


def _filter_words(given: Given) -> list[str]:
    flags = (
        *(("--topic", "topic"), ("--key", "key"), ("--tags", "tags")),
        *(("--since", "begin"), ("--until", "end"), ("--contains", "contains")),
    )
    return [
        *[word for each in given.texts("ids") for word in ("--id", each)],
        *[word for flag, name in flags for word in option(flag, given.text(name, ""))],
    ]


def _purge(desk: Desk, given: Given, visit: Visit) -> Any:
    return {"purged": dlq.purge(desk.connection, given.text("group"))}


FILTER = (
    Field("ids", "Only these: offset ids, unique ids, or ids of the first message.", "array"),
    Field("topic", "Only those first sent to this topic."),
    Field("key", "Only with this key."),
    Field("tags", "Only with this tag."),
    Field("begin", "Given up at or after."),
    Field("end", "Given up at or before."),
    Field("contains", "Only bodies with this text in them."),
)

GROUPS = Deed(
    "dlq.groups",
    "Groups with dead letters",
    Role.VIEWER,
    "GET",
    "/dead-letters",
    _groups,
    command=lambda given: typed("kourou", "dlq", "ls"),
)
LIST = Deed(
    "dlq.list",
    "The dead letters of a group",
    Role.VIEWER,
    "GET",
    "/dead-letters/{group}",
    _list,
    (GROUP, *FILTER, Field("count", f"Up to {LOOKED_AT_MAX}.", "integer")),
    command=lambda given: typed("kourou", "dlq", "show", given.text("group", "GROUP"), *_filter_words(given)),
)
RESEND = Deed(
    "dlq.resend",
    "Send dead letters again",
    Role.OPERATOR,
    "POST",
    "/dead-letters/{group}/resend",
    _resend,
    (
        GROUP,
        *FILTER,
        Field("to", "To the group that gave them up, or to their first topic.", choices=("group", "topic")),
        Field("everything", "All of them.", "boolean"),
        Field("skip_sent", "Leave out those that were sent there before.", "boolean"),
        Field("dry_run", "Only say what would be sent.", "boolean"),
    ),
    on="group",
    command=_resend_command,
)
PURGE = Deed(
    "dlq.purge",
    "Let go of all dead letters of a group",
    Role.ADMIN,
    "DELETE",
    "/dead-letters/{group}",
    _purge,
    (GROUP,),
    on="group",
    command=lambda given: typed("kourou", "dlq", "purge", given.text("group", "GROUP"), "--yes"),
)

DEEDS = (GROUPS, LIST, RESEND, PURGE)
