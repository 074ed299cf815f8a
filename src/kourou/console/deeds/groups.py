"""Deeds around consumer groups: how far they are, who is in them, and where they go on."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kourou.admin import groups, offsets, topics
from kourou.admin.offsets import QueueMove, Where
from kourou.console.deeds.deed import Deed, Field, option, typed
from kourou.console.deeds.topics import PAGING
from kourou.console.desk import Desk
from kourou.console.given import Given
from kourou.console.login import Role
from kourou.console.paging import page_of
from kourou.console.visit import Visit
from kourou.errors import ConfigError
from kourou.protocol.bodies import SubscriptionGroupConfig

GROUP = Field("group", "The consumer group.", needed=True)
TOPIC = Field("topic", "The topic.", needed=True)
WHERE = ("earliest", "latest", "time", "offset")


def _list(desk: Desk, given: Given, visit: Visit) -> Any:
    wanted = given.text("search", "").lower()
    found = groups.all_groups(desk.connection, everything=given.yes("everything"))
    page = page_of([group for group in found if wanted in group.name.lower()], given)
    return {"total": page.total, "page": page.number, "groups": page.rows}


def _state(desk: Desk, given: Given, visit: Visit) -> Any:
    return groups.state(desk.connection, given.text("group"))


def _lag(desk: Desk, given: Given, visit: Visit) -> Any:
    lag = groups.lag(desk.connection, given.text("group"), given.text("topic", "") or None)
    return {"total": lag.total, "tps": lag.tps, "queues": lag.queues, "missing": lag.missing}


def _members(desk: Desk, given: Given, visit: Visit) -> Any:
    return groups.members(desk.connection, given.text("group"))


def _running(desk: Desk, given: Given, visit: Visit) -> Any:
    return running_info(desk, given.text("group"), given.text("client"), given.yes("stacks"))


def running_info(desk: Desk, group: str, client_id: str, stacks: bool) -> Any:
    return groups.running_info(desk.connection, group, client_id, stacks=stacks)


def where_from(given: Given) -> Where:
    """Where a group shall go on, as it was filled in."""
    where = given.choice("where", WHERE)
    if where == "time":
        return moment_from(given.text("time"))
    if where == "offset":
        return given.number("offset")
    return "earliest" if where == "earliest" else "latest"


def moment_from(text: str) -> datetime:
    """ISO 8601, in the server's time unless it says otherwise; or milliseconds since 1970."""
    if text.isdecimal() and len(text) == 13:
        return datetime.fromtimestamp(int(text) / 1000).astimezone()
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        raise ConfigError(f"{text[:60]!r} is no moment; write 2026-11-16T07:47:18") from None


def plan(desk: Desk, given: Given) -> list[QueueMove]:
    """What a reset would do."""
    queues = given.texts("queues")
    if any(not queue.isdecimal() for queue in queues):
        raise ConfigError(f"queues is {', '.join(queues)[:80]!r}; numbers are wanted")
    return offsets.plan(
        desk.connection,
        given.text("group"),
        given.text("topic"),
        where_from(given),
        queues=[int(queue) for queue in queues] or None,
    )


def _plan(desk: Desk, given: Given, visit: Visit) -> Any:
    return [described(move) for move in plan(desk, given)]


def _reset(desk: Desk, given: Given, visit: Visit) -> Any:
    return [described(move) for move in offsets.apply(desk.connection, plan(desk, given))]


def described(move: QueueMove) -> dict[str, Any]:
    return {
        "topic": move.topic,
        "broker": move.broker,
        "queue_id": move.queue_id,
        "before": move.before,
        "after": move.after,
        "min_offset": move.min_offset,
        "max_offset": move.max_offset,
        "again": move.again,
        "skipped": move.skipped,
    }


def _reset_command(given: Given) -> str:
    to = {
        "time": ("--to-time", given.text("time", "TIME")),
        "offset": ("--to-offset", given.text("offset", "OFFSET")),
        "latest": ("--latest",),
    }.get(given.text("where", ""), ("--earliest",))
    return typed(
        *("kourou", "group", "reset", given.text("group", "GROUP"), "--topic", given.text("topic", "TOPIC")),
        *to,
        *[word for queue in given.texts("queues") for word in ("--queue", queue)],
        "--yes",
    )


def _skip(desk: Desk, given: Given, visit: Visit) -> Any:
    moves = offsets.skip(desk.connection, given.text("group"), given.text("topic"))
    return [described(move) for move in offsets.apply(desk.connection, moves)]


def _skip_command(given: Given) -> str:
    group, topic = given.text("group", "GROUP"), given.text("topic", "TOPIC")
    return typed("kourou", "group", "skip", group, "--topic", topic, "--yes")


def _save(desk: Desk, given: Given, visit: Visit) -> Any:
    name = given.text("group")
    config = SubscriptionGroupConfig(
        group_name=name,
        consume_enable=given.yes("enabled", True),
        consume_broadcast_enable=given.yes("broadcast", True),
        retry_max_times=given.number("retry_max", 16, least=-1, most=1000),
        retry_queue_nums=given.number("retry_queues", 1, least=1, most=64),
        consume_message_orderly=given.yes("ordered"),
    )
    targets = topics.targets(desk.connection, given.text("cluster", "") or None)
    outcomes = groups.save(desk.connection, config, targets)
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return {"group": name, "brokers": [outcome.of.broker for outcome in outcomes]}


def _save_command(given: Given) -> str:
    return typed(
        *("kourou", "group", "create", given.text("group", "GROUP")),
        *option("--retries", given.text("retry_max", "16")),
        *option("--retry-queues", given.text("retry_queues", "")),
        *option("--disable", "enabled" in given and not given.yes("enabled")),
        *option("--no-broadcast", "broadcast" in given and not given.yes("broadcast")),
        *option("--ordered", given.yes("ordered")),
    )


def _delete(desk: Desk, given: Given, visit: Visit) -> Any:
    name = given.text("group")
    groups.show(desk.connection, name)  # raises when there is none
    targets = topics.targets(desk.connection, given.text("cluster", "") or None)
    return {"group": name, "brokers": groups.delete(desk.connection, name, targets)}


RESET_FIELDS = (
    GROUP,
    TOPIC,
    Field("where", "Where to go on.", needed=True, choices=WHERE),
    Field("time", "For `time`: 2026-11-16T07:47:18, or milliseconds since 1970."),
    Field("offset", "For `offset`: the queue offset.", "integer"),
    Field("queues", "Only these queues.", "array"),
)

LIST = Deed(
    "group.list",
    "Consumer groups, a page at a time",
    Role.VIEWER,
    "GET",
    "/groups",
    _list,
    (*PAGING, Field("everything", "Also the system's own.", "boolean")),
    command=lambda given: typed("kourou", "group", "ls"),
)
STATE = Deed(
    "group.show",
    "A group in short",
    Role.VIEWER,
    "GET",
    "/groups/{group}",
    _state,
    (GROUP,),
    command=lambda given: typed("kourou", "group", "show", given.text("group", "GROUP")),
)
LAG = Deed(
    "group.lag",
    "How far a group is, per queue",
    Role.VIEWER,
    "GET",
    "/groups/{group}/lag",
    _lag,
    (GROUP, Field("topic", "Only this topic.")),
    command=lambda given: typed("kourou", "group", "lag", given.text("group", "GROUP")),
)
MEMBERS = Deed(
    "group.members",
    "Who is in a group, and what it wants",
    Role.VIEWER,
    "GET",
    "/groups/{group}/members",
    _members,
    (GROUP,),
)
RUNNING = Deed(
    "group.running",
    "What a member tells of itself, its stacks on request",
    Role.OPERATOR,
    "GET",
    "/groups/{group}/members/{client}",
    _running,
    (
        GROUP,
        Field("client", "The member's client id.", needed=True),
        Field("stacks", "Also the stack of every thread.", "boolean"),
    ),
    command=lambda given: typed(
        *("kourou", "group", "info", given.text("group", "GROUP"), given.text("client", "CLIENT")),
        *option("--stacks", given.yes("stacks")),
    ),
)
PLAN = Deed(
    "group.plan",
    "What a reset would do; nothing is changed",
    Role.VIEWER,
    "GET",
    "/groups/{group}/reset",
    _plan,
    RESET_FIELDS,
    command=lambda given: _reset_command(given).replace("--yes", "--dry-run"),
)
RESET = Deed(
    "group.reset",
    "Set where a group goes on in a topic",
    Role.OPERATOR,
    "POST",
    "/groups/{group}/reset",
    _reset,
    RESET_FIELDS,
    on="group",
    command=_reset_command,
)
SKIP = Deed(
    "group.skip",
    "Forget the backlog of a topic",
    Role.OPERATOR,
    "POST",
    "/groups/{group}/skip",
    _skip,
    (GROUP, TOPIC),
    on="group",
    command=_skip_command,
)
SAVE = Deed(
    "group.save",
    "Make a group, or change its settings",
    Role.OPERATOR,
    "PUT",
    "/groups/{group}",
    _save,
    (
        GROUP,
        Field("enabled", "Whether it may consume.", "boolean"),
        Field("broadcast", "Whether its members may broadcast.", "boolean"),
        Field("retry_max", "How often a message comes again.", "integer"),
        Field("retry_queues", "Queues of its retry topic.", "integer"),
        Field("ordered", "Whether it consumes in order.", "boolean"),
        Field("cluster", "The cluster, where there are several."),
    ),
    on="group",
    command=_save_command,
)
DELETE = Deed(
    "group.delete",
    "Delete a group with its offsets, retries and dead letters",
    Role.OPERATOR,
    "DELETE",
    "/groups/{group}",
    _delete,
    (GROUP, Field("cluster", "The cluster, where there are several.")),
    on="group",
    command=lambda given: typed("kourou", "group", "rm", given.text("group", "GROUP"), "--yes"),
)

DEEDS = (LIST, STATE, LAG, MEMBERS, RUNNING, PLAN, RESET, SKIP, SAVE, DELETE)
