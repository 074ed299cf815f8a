"""Deeds around topics: looked at, made, changed, deleted."""

from __future__ import annotations

from typing import Any

from kourou.admin import topics
from kourou.admin.topics import Wanted
from kourou.console.deeds.deed import Deed, Field, option, typed
from kourou.console.desk import Desk
from kourou.console.given import Given
from kourou.console.login import Role
from kourou.console.paging import PAGE_SIZE_MAX, page_of
from kourou.console.visit import Visit

QUEUES_MAX = 1024
"""Of one broker, set here; more are for the command line."""

KINDS = ("NORMAL", "DELAY", "FIFO", "TRANSACTION", "MIXED")

TOPIC = Field("topic", "The topic's name.", needed=True)
CLUSTER = Field("cluster", "The cluster, where there are several.")


def _list(desk: Desk, given: Given, visit: Visit) -> Any:
    found = topics.all_topics(desk.connection, everything=given.yes("everything"))
    wanted = given.text("search", "").lower()
    page = page_of([topic for topic in found if wanted in topic.name.lower()], given)
    return {"total": page.total, "page": page.number, "topics": page.rows}


def _show(desk: Desk, given: Given, visit: Visit) -> Any:
    return topics.show(desk.connection, given.text("topic"))


def _route(desk: Desk, given: Given, visit: Visit) -> Any:
    return topics.at_brokers(desk.connection, given.text("topic"))


def _stats(desk: Desk, given: Given, visit: Visit) -> Any:
    return topics.stats(desk.connection, given.text("topic"))


def _groups(desk: Desk, given: Given, visit: Visit) -> Any:
    return topics.groups_of(desk.connection, given.text("topic"))


def _save(desk: Desk, given: Given, visit: Visit) -> Any:
    kind = given.text("kind", "").upper()
    wanted = Wanted(
        name=given.text("topic"),
        read_queues=given.number("read_queues", 8, least=1, most=QUEUES_MAX),
        write_queues=given.number("write_queues", 8, least=1, most=QUEUES_MAX),
        perm=given.number("perm", 6, least=0, most=6),
        order=given.yes("order"),
        attributes={topics.MESSAGE_TYPE: kind} if kind else {},
    )
    where = topics.targets(
        desk.connection, given.text("cluster", "") or None, given.text("broker", "") or None
    )
    outcomes = topics.save(desk.connection, wanted, where)
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    desk.connection.routes.doubt(wanted.name)
    return {"topic": wanted.name, "brokers": [outcome.of.broker for outcome in outcomes]}


def _save_command(given: Given) -> str:
    return typed(
        *("kourou", "topic", "create", given.text("topic", "TOPIC")),
        *("-r", given.text("read_queues", "8"), "-w", given.text("write_queues", "8")),
        *option("--perm", given.text("perm", "") if given.text("perm", "6") != "6" else ""),
        *option("--order", given.yes("order")),
        *option("--type", given.text("kind", "").upper()),
        *option("--cluster", given.text("cluster", "")),
        *option("--broker", given.text("broker", "")),
    )


def _delete(desk: Desk, given: Given, visit: Visit) -> Any:
    name = given.text("topic")
    topics.route(desk.connection, name)  # raises when there is none
    return {"topic": name, "brokers": topics.delete(desk.connection, name, given.text("cluster", "") or None)}


def _delete_command(given: Given) -> str:
    return typed("kourou", "topic", "rm", given.text("topic", "TOPIC"), "--yes")


PAGING = (
    Field("search", "Only names with this text in them."),
    Field("page", "Which page of them, from 1.", "integer"),
    Field("size", f"How many on a page, up to {PAGE_SIZE_MAX}.", "integer"),
)

LIST = Deed(
    "topic.list",
    "Topics, a page at a time",
    Role.VIEWER,
    "GET",
    "/topics",
    _list,
    (*PAGING, Field("everything", "Also retry, dead-letter and system topics.", "boolean")),
    command=lambda given: typed("kourou", "topic", "ls", *option("--all", given.yes("everything"))),
)
SHOW = Deed(
    "topic.show",
    "A topic's settings at each broker",
    Role.VIEWER,
    "GET",
    "/topics/{topic}",
    _show,
    (TOPIC,),
    command=lambda given: typed("kourou", "topic", "show", given.text("topic", "TOPIC")),
)
ROUTE = Deed("topic.route", "Where a topic is", Role.VIEWER, "GET", "/topics/{topic}/route", _route, (TOPIC,))
STATS = Deed(
    "topic.stats", "What is in each queue", Role.VIEWER, "GET", "/topics/{topic}/stats", _stats, (TOPIC,)
)
GROUPS = Deed(
    "topic.groups", "Who consumes it", Role.VIEWER, "GET", "/topics/{topic}/groups", _groups, (TOPIC,)
)
SAVE = Deed(
    "topic.save",
    "Make a topic, or change it",
    Role.OPERATOR,
    "PUT",
    "/topics/{topic}",
    _save,
    (
        TOPIC,
        Field("read_queues", "Queues that are read, at each broker.", "integer"),
        Field("write_queues", "Queues that are written, at each broker.", "integer"),
        Field("perm", "2 may be written, 4 may be read, 6 both.", "integer"),
        Field("order", "Whether it is an ordered topic.", "boolean"),
        Field("kind", "What messages it is for.", choices=KINDS),
        CLUSTER,
        Field("broker", "Only at this broker."),
    ),
    on="topic",
    command=_save_command,
)
DELETE = Deed(
    "topic.delete",
    "Delete a topic with all its messages",
    Role.OPERATOR,
    "DELETE",
    "/topics/{topic}",
    _delete,
    (TOPIC, CLUSTER),
    on="topic",
    command=_delete_command,
)

DEEDS = (LIST, SHOW, ROUTE, STATS, GROUPS, SAVE, DELETE)
