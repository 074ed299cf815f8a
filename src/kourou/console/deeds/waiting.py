"""Deeds around messages that wait: for their time, or for the end of their transaction."""

from __future__ import annotations

from typing import Any

from kourou.admin import timers, transactions
from kourou.admin.timers import Waiting
from kourou.admin.transactions import Half
from kourou.console.deeds.deed import Deed, Field, typed
from kourou.console.desk import Desk
from kourou.console.given import Given
from kourou.console.login import Role
from kourou.console.visit import Visit

MESSAGE_ID = Field("message_id", "A unique id or an offset id.", needed=True)
COUNT_MAX = 1000


def _waiting(desk: Desk, given: Given, visit: Visit) -> Any:
    found = timers.waiting(
        desk.connection,
        topic=given.text("topic", "") or None,
        count=given.number("count", 200, least=1, most=COUNT_MAX),
    )
    return [_told(each) for each in found]


def _told(each: Waiting | Half) -> dict[str, Any]:
    return {name: value for name, value in vars(each).items() if name != "message"}


def _cancel(desk: Desk, given: Given, visit: Visit) -> Any:
    chosen = timers.find(desk.connection, given.text("message_id"))
    timers.cancel(desk.connection, chosen)
    return {"message_id": chosen.message_id, "topic": chosen.topic}


def _halves(desk: Desk, given: Given, visit: Visit) -> Any:
    state = given.choice("state", ("open", "discarded", "all"), "all")
    halves: list[Half] = []
    if state in ("open", "all"):
        halves += transactions.open_halves(desk.connection)
    if state in ("discarded", "all"):
        halves += transactions.discarded(desk.connection)
    return [_told(half) for half in halves[:COUNT_MAX]]


def _end(desk: Desk, given: Given, visit: Visit) -> Any:
    outcome = given.choice("outcome", ("commit", "rollback", "resume"))
    half = transactions.find(desk.connection, given.text("message_id"))
    if outcome == "resume":
        transactions.resume(desk.connection, half)
    else:
        transactions.end(desk.connection, half, commit=outcome == "commit")
    return {"message_id": half.message_id, "topic": half.topic, "outcome": outcome}


WAITING = Deed(
    "timer.list",
    "Messages that wait for their time, the soonest first",
    Role.VIEWER,
    "GET",
    "/timers",
    _waiting,
    (Field("topic", "Only for this topic."), Field("count", f"Up to {COUNT_MAX}.", "integer")),
    command=lambda given: typed("kourou", "timer", "ls"),
)
CANCEL = Deed(
    "timer.cancel",
    "Take a delayed message back",
    Role.OPERATOR,
    "DELETE",
    "/timers/{message_id}",
    _cancel,
    (MESSAGE_ID,),
    on="message_id",
    command=lambda given: typed("kourou", "timer", "cancel", given.text("message_id", "ID"), "--yes"),
)
HALVES = Deed(
    "transaction.list",
    "Half messages: open, and given up",
    Role.VIEWER,
    "GET",
    "/transactions",
    _halves,
    (Field("state", "Which of them.", choices=("open", "discarded", "all")),),
    command=lambda given: typed("kourou", "tx", "ls"),
)
END = Deed(
    "transaction.end",
    "Commit, roll back or resume a half message",
    Role.OPERATOR,
    "POST",
    "/transactions/{message_id}",
    _end,
    (
        MESSAGE_ID,
        Field("outcome", "What shall become of it.", needed=True, choices=("commit", "rollback", "resume")),
    ),
    on="message_id",
    command=lambda given: typed(
        *("kourou", "tx", given.text("outcome", "resume"), given.text("message_id", "ID"), "--yes")
    ),
)

DEEDS = (WAITING, CANCEL, HALVES, END)
