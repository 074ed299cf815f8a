"""Where a group goes on reading: what a change would mean, per queue, and then the change itself.

    plan(…)  ──▶ [QueueMove(broker, queue_id, before, after, …)]   nothing has happened yet
    apply(…) ──▶ the same, done

The plan is made of places, not of a wish: what was shown is what is set, whether members are connected or
not. A broker that resets by itself (ours, Apache 5.2 and later) tells the members; an older one, and a group
without members, has its committed offset set, which is where the group goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from kourou.admin import groups, topics
from kourou.admin.connection import Connection
from kourou.admin.topics import TopicAt
from kourou.client import operations, settings
from kourou.errors import ConfigError, NotFound, Refused
from kourou.protocol.bodies import MessageQueue, QueueOffsets
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import request
from kourou.protocol.headers import ResetOffset

Where: TypeAlias = Literal["earliest", "latest"] | datetime | int
"""The first message there is, the end, the first one stored at a moment, or a queue offset."""


@dataclass(frozen=True)
class QueueMove:
    """One queue of a group: where it is, and where it would go on."""

    group: str
    topic: str
    broker: str
    queue_id: int
    before: int | None
    """None when it has never committed there."""
    after: int
    min_offset: int
    max_offset: int

    @property
    def again(self) -> int:
        """So many messages are read again."""
        return max(0, (self.before or 0) - self.after) if self.before is not None else 0

    @property
    def skipped(self) -> int:
        """So many are never read."""
        begin = self.min_offset if self.before is None else max(self.before, self.min_offset)
        return max(0, self.after - begin)

    @property
    def lag_after(self) -> int:
        return self.max_offset - self.after


def plan(
    connection: Connection,
    group: str,
    topic: str,
    where: Where,
    *,
    queues: Iterable[int] | None = None,
    broker: str | None = None,
) -> list[QueueMove]:
    """What `apply` would do; raises NotFound for a group, topic, broker or queue that does not exist."""
    settings.checked_group(group)
    parts = [part for part in topics.show(connection, topic) if broker in (None, part.broker, part.address)]
    if not parts:
        raise NotFound(ResponseCode.BROKER_NOT_EXIST, f"topic '{topic}' is not at broker '{broker}'")
    groups.show(connection, group)  # raises when nobody knows it
    wanted = None if queues is None else set(queues)
    moves = [
        move
        for _, found in connection.all(parts, lambda part: _moves(connection, group, part, where, wanted))
        for move in found
    ]
    missing = (wanted or set()) - {move.queue_id for move in moves}
    if missing:
        raise NotFound(
            ResponseCode.INVALID_PARAMETER,
            f"topic '{topic}' has no queue {', '.join(map(str, sorted(missing)))}",
        )
    return sorted(moves, key=lambda move: (move.broker, move.queue_id))


def _moves(
    connection: Connection, group: str, part: TopicAt, where: Where, wanted: set[int] | None
) -> list[QueueMove]:
    moves = []
    for queue_id in range(part.read_queues):
        if wanted is not None and queue_id not in wanted:
            continue
        queue = MessageQueue(broker_name=part.broker, queue_id=queue_id, topic=part.topic)
        least = connection.run(operations.min_offset(part.address, queue))
        most = connection.run(operations.max_offset(part.address, queue))
        moves.append(
            QueueMove(
                group=group,
                topic=part.topic,
                broker=part.broker,
                queue_id=queue_id,
                before=connection.run(operations.committed_offset(part.address, queue, group)),
                after=_place(connection, part.address, queue, where, least, most),
                min_offset=least,
                max_offset=most,
            )
        )
    return moves


def _place(
    connection: Connection, address: str, queue: MessageQueue, where: Where, least: int, most: int
) -> int:
    if where == "earliest":
        return least
    if where == "latest":
        return most
    if isinstance(where, int):
        if not least <= where <= most:
            raise ConfigError(
                f"queue {queue.queue_id} of '{queue.topic}' at {queue.broker_name} has no offset {where}: "
                f"it holds {least} to {most}"
            )
        return where
    moment_ms = round(where.timestamp() * 1000)
    return connection.run(operations.offset_at(address, queue, moment_ms))


def apply(
    connection: Connection, moves: list[QueueMove], told: Callable[[], None] = lambda: None
) -> list[QueueMove]:
    """Set the offsets of a plan, queue by queue, each `told`; raises at the first that fails."""
    if not moves:
        return []
    addresses = {part.broker: part.address for part in topics.at_brokers(connection, moves[0].topic)}
    done: list[QueueMove] = []
    for move in moves:
        address = addresses.get(move.broker)
        if address is None:
            raise NotFound(
                ResponseCode.BROKER_NOT_EXIST,
                f"broker '{move.broker}' has gone; {len(done)} of {len(moves)} queues were reset before",
            )
        _apply_one(connection, address, move)
        done.append(move)
        told()
    return done


def _apply_one(connection: Connection, address: str, move: QueueMove) -> None:
    """By the broker, who tells the members; by a plain commit where it cannot."""
    header = ResetOffset(
        move.topic, move.group, timestamp=-1, is_force=True, queue_id=move.queue_id, offset=move.after
    )
    what = f"asked to reset group '{move.group}' in queue {move.queue_id} of '{move.topic}' to {move.after}"
    try:
        reply = connection.ask(address, request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header), what)
        reset = QueueOffsets.decode(reply.body).offset_table if reply.body else {}
        queue = MessageQueue(broker_name=move.broker, queue_id=move.queue_id, topic=move.topic)
        if reset.get(queue) == move.after and len(reset) == 1:
            return
    except Refused as error:
        if error.code not in (
            ResponseCode.SYSTEM_ERROR,
            ResponseCode.CONSUMER_NOT_ONLINE,
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ):
            raise
    queue = MessageQueue(broker_name=move.broker, queue_id=move.queue_id, topic=move.topic)
    connection.run(operations.commit_offset([address], queue, move.group, move.after))


def skip(connection: Connection, group: str, topic: str) -> list[QueueMove]:
    """What it would mean to forget the backlog: a plan to the end of each queue."""
    return plan(connection, group, topic, "latest")


# ----------------------------------------------------------------------------------------------- cloning


def clone(connection: Connection, source: str, target: str, topic: str) -> list[QueueMove]:
    """A plan that puts `target` where `source` is in a topic; queues where `source` never was are left out.

    The original asks brokers to do it blindly (CLONE_GROUP_OFFSET); this shows what would happen first.
    """
    settings.checked_group(target)
    parts = topics.show(connection, topic)
    groups.show(connection, source)
    moves = []
    for part in parts:
        for queue_id in range(part.read_queues):
            queue = MessageQueue(broker_name=part.broker, queue_id=queue_id, topic=topic)
            place = connection.run(operations.committed_offset(part.address, queue, source))
            if place is None:
                continue
            moves.append(
                QueueMove(
                    group=target,
                    topic=topic,
                    broker=part.broker,
                    queue_id=queue_id,
                    before=connection.run(operations.committed_offset(part.address, queue, target)),
                    after=place,
                    min_offset=connection.run(operations.min_offset(part.address, queue)),
                    max_offset=connection.run(operations.max_offset(part.address, queue)),
                )
            )
    return moves


def topics_of(connection: Connection, group: str) -> list[str]:
    """The topics a group has committed offsets for, or subscribes to."""
    found = {queue.topic for queue in groups.lag(connection, group).queues}
    with suppress(NotFound):  # nobody is connected
        found |= {each.topic for each in groups.members(connection, group).subscriptions}
    return sorted(found)
