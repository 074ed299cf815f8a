"""Messages that wait for their time: by delay level, or for a moment of their own.

level   SCHEDULE_TOPIC_XXXX, queue = level - 1, from where the broker is there (GET_ALL_DELAY_OFFSET)
timer   rmq_sys_wheel_timer: everything that is not due yet and was not taken back
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Literal

from kourou.admin import brokers, messages
from kourou.admin import cluster as clusters
from kourou.admin.cluster import Node
from kourou.admin.connection import Connection
from kourou.client.delays import LEVEL_MAX
from kourou.errors import ConfigError, NotFound, Refused
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import DelayOffsets, MessageQueue, TimerMetrics
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import request
from kourou.protocol.headers import RecallMessage
from kourou.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from kourou.protocol.recall_handle import RecallHandle

LOOKED_AT_MAX = 100_000
"""So many messages of a broker's timer topic are looked at; a longer one is not listed to its end."""

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Waiting:
    """A message that is not due yet."""

    kind: Literal["level", "timer"]
    topic: str
    due_ms: int
    message_id: str
    offset_id: str
    broker: str
    address: str
    level: int | None
    tags: str | None
    keys: str | None
    stored_ms: int
    message: ReceivedMessage

    @property
    def recall_handle(self) -> str | None:
        """What takes it back; messages of a delay level cannot be taken back."""
        if self.kind == "level":
            return None
        return RecallHandle(self.topic, self.broker, self.due_ms - 1, self.message_id).encode()


def waiting(
    connection: Connection, *, topic: str | None = None, broker: str | None = None, count: int = 1000
) -> list[Waiting]:
    """What waits, the soonest first."""
    nodes = clusters.masters(connection) if broker is None else [clusters.node(connection, broker)]
    found, _ = connection.some(nodes, lambda node: _at(connection, node, topic))
    listed = sorted((each for _, some in found for each in some), key=lambda each: each.due_ms)
    return listed[:count]


def counts(connection: Connection) -> dict[str, int]:
    """GET_TIMER_METRICS: how many wait for a moment of their own, by topic."""
    totals: dict[str, int] = {}

    def asked(node: Node) -> TimerMetrics:
        reply = connection.ask(
            node.address, request(RequestCode.GET_TIMER_METRICS), "asked how many messages wait"
        )
        return TimerMetrics.decode(reply.body)

    found, _ = connection.some(clusters.masters(connection), asked)
    for _, metrics in found:
        for topic, count in metrics.timing_count.items():
            totals[topic] = totals.get(topic, 0) + count.count
    return dict(sorted(totals.items()))


def _at(connection: Connection, node: Node, topic: str | None) -> list[Waiting]:
    both = [*_of_levels(connection, node), *_of_timers(connection, node)]
    return [each for each in both if topic in (None, each.topic)]


def _of_levels(connection: Connection, node: Node) -> list[Waiting]:
    reply = connection.ask(
        node.address, request(RequestCode.GET_ALL_DELAY_OFFSET), "asked how far its delay levels are"
    )
    places = DelayOffsets.decode(reply.body).offset_table
    delays = _level_delays(connection, node)
    found = []
    for level in range(1, LEVEL_MAX + 1):
        queue = MessageQueue(broker_name=node.broker, queue_id=level - 1, topic=SCHEDULE_TOPIC)
        try:
            ahead = messages.read_queue(connection, node.address, queue, places.get(level, 0))
            for message in islice(ahead, LOOKED_AT_MAX):
                due_ms = message.stored_at_ms + delays.get(level, 0)
                found.append(_waiting("level", node, message, due_ms, level))
        except NotFound:
            break  # nobody ever used one
    return found


def _level_delays(connection: Connection, node: Node) -> dict[int, int]:
    try:
        text = brokers.configuration(connection, node.address).get("messageDelayLevel", DEFAULT_LEVELS)
    except Refused:
        text = DEFAULT_LEVELS
    delays = {}
    for level, word in enumerate(text.split(), 1):
        if word[:-1].isdecimal() and word[-1] in _UNITS:
            delays[level] = int(word[:-1]) * _UNITS[word[-1]]
    return delays


def _of_timers(connection: Connection, node: Node) -> list[Waiting]:
    queue = MessageQueue(broker_name=node.broker, queue_id=0, topic=TIMER_TOPIC)
    now_ms = connection.clock.now_ms()
    found: dict[tuple[str, str], Waiting] = {}
    try:
        for message in islice(messages.read_queue(connection, node.address, queue), LOOKED_AT_MAX):
            table = message.properties
            taken_back = table.get("TIMER_DEL_UNIQKEY")
            if taken_back is not None:
                topic, _, unique_id = taken_back.rpartition("+")
                found.pop((topic or table.get("REAL_TOPIC", ""), unique_id), None)
                continue
            due = table.get("TIMER_OUT_MS", "")
            if due.isdecimal() and int(due) > now_ms:
                each = _waiting("timer", node, message, int(due), None)
                found[each.topic, each.message_id] = each
    except NotFound:
        pass  # it has no timers
    return list(found.values())


def _waiting(
    kind: Literal["level", "timer"], node: Node, message: ReceivedMessage, due_ms: int, level: int | None
) -> Waiting:
    return Waiting(
        kind=kind,
        topic=message.properties.get("REAL_TOPIC", ""),
        due_ms=due_ms,
        message_id=message.message_id,
        offset_id=message.offset_id,
        broker=node.broker,
        address=node.address,
        level=level,
        tags=message.tags,
        keys=message.keys,
        stored_ms=message.stored_at_ms,
        message=message,
    )


def find(connection: Connection, message_id: str) -> Waiting:
    """A message that waits, by its unique id or offset id; raises NotFound."""
    for each in waiting(connection, count=LOOKED_AT_MAX):
        if message_id in (each.message_id, each.offset_id):
            return each
    raise NotFound(
        ResponseCode.NO_MESSAGE,
        f"no message {message_id} waits: it was delivered, taken back, or never there; see: kourou timer ls",
    )


def cancel(connection: Connection, chosen: Waiting) -> None:
    """RECALL_MESSAGE: nobody ever gets it. Raises ConfigError for one of a delay level."""
    handle = chosen.recall_handle
    if handle is None:
        raise ConfigError(
            f"message {chosen.message_id} waits for delay level {chosen.level}, which cannot be taken back; "
            "only messages with a delay in seconds or a moment of their own can"
        )
    connection.ask(
        chosen.address,
        request(RequestCode.RECALL_MESSAGE, RecallMessage(chosen.topic, handle, messages.SENDER_GROUP)),
        f"asked to take back {chosen.message_id}",
    )
