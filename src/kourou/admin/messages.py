"""Messages that are there: found by id, key, time and place; sent to try things out; followed by their trace.

Whatever is read here is read as the original's tools do, with a group that never commits anything.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kourou.admin import cluster as clusters
from kourou.admin import topics
from kourou.admin.connection import Connection
from kourou.admin.topics import TopicAt
from kourou.client import lookups, operations, settings
from kourou.client.delays import Delay
from kourou.errors import ConfigError, MQError, NotFound, ProtocolError
from kourou.message import Message, ReceivedMessage
from kourou.protocol import record
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import request
from kourou.protocol.headers import ViewMessage
from kourou.protocol.message_id import parse_offset_id
from kourou.protocol.names import TRACE_TOPIC
from kourou.remoting.address import format_address

if TYPE_CHECKING:
    from kourou.client import SendResult

TOOLS_GROUP = "TOOLS_CONSUMER"
"""The group RocketMQ's own tools read with; every broker knows it, and nobody commits for it."""

SENDER_GROUP = "kourou-admin"
PULL_COUNT = 32
KEY_MATCHES_MAX = 64
LATEST_MS = (1 << 63) - 1


# ----------------------------------------------------------------------------------------------- finding


def by_id(connection: Connection, message_id: str, topic: str | None = None) -> ReceivedMessage:
    """The message with this unique id or offset id. An offset id needs no topic: it names the place.

    Raises NotFound when there is none, ConfigError for a unique id without its topic.
    """
    if topic is not None:
        return connection.run(
            lookups.by_id(connection.routes, connection.clock, settings.checked_topic(topic), message_id)
        )
    found = _at_place(connection, message_id)
    if found is not None:
        return found
    raise ConfigError(
        f"'{message_id}' is no offset id of one of the cluster's brokers; a unique id is looked up in its "
        "topic: name it (--topic)"
    )


def _at_place(connection: Connection, message_id: str) -> ReceivedMessage | None:
    """None when it is no offset id, or names a broker that is not one of this cluster."""
    try:
        place = parse_offset_id(message_id)
        address = format_address(*record.unpack_host(place.store_host))
    except MQError:
        return None
    node = next((each for each in clusters.nodes(connection) if each.address == address), None)
    if node is None:
        return None
    reply = connection.ask(
        address,
        request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(place.physical_offset)),
        f"asked for message {message_id}",
        expected=(ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR),
    )
    if reply.code != ResponseCode.SUCCESS:
        raise NotFound(ResponseCode.NO_MESSAGE, f"no message {message_id}: {reply.remark}")
    try:
        return record.to_received(record.decode(reply.body), node.broker)
    except ProtocolError as error:
        raise NotFound(ResponseCode.NO_MESSAGE, f"no message {message_id}: {error}") from None


def by_key(
    connection: Connection,
    topic: str,
    key: str,
    *,
    count: int = KEY_MATCHES_MAX,
    begin_ms: int = 0,
    end_ms: int = LATEST_MS,
) -> list[ReceivedMessage]:
    """Messages of a topic with this key, the oldest first; up to `count` of each broker."""
    return connection.run(
        lookups.by_key(
            connection.routes,
            connection.clock,
            settings.checked_topic(topic),
            key,
            count=count,
            begin_ms=begin_ms,
            end_ms=end_ms,
        )
    )


def by_offset(
    connection: Connection, topic: str, broker: str, queue_id: int, queue_offset: int
) -> ReceivedMessage:
    """The message at one place of a queue; raises NotFound when there is none."""
    part = _part(connection, topic, broker)
    if not 0 <= queue_id < part.read_queues:
        raise NotFound(
            ResponseCode.INVALID_PARAMETER,
            f"topic '{topic}' has no queue {queue_id} at {part.broker}: 0 to {part.read_queues - 1}",
        )
    queue = MessageQueue(broker_name=part.broker, queue_id=queue_id, topic=topic)
    found = _pulled(connection, part.address, queue, queue_offset, 1)
    if not found or found[0].queue_offset != queue_offset:
        raise NotFound(
            ResponseCode.NO_MESSAGE,
            f"queue {queue_id} of '{topic}' at {part.broker} has no message at offset {queue_offset}",
        )
    return found[0]


def _part(connection: Connection, topic: str, broker: str) -> TopicAt:
    for part in topics.at_brokers(connection, topic):
        if broker in (part.broker, part.address):
            return part
    raise NotFound(ResponseCode.BROKER_NOT_EXIST, f"topic '{topic}' is not at broker '{broker}'")


@dataclass(frozen=True)
class Search:
    """Which messages of a topic to look at; the newest first unless told otherwise."""

    topic: str
    begin_ms: int | None = None
    end_ms: int | None = None
    count: int = 64
    oldest_first: bool = False
    broker: str | None = None
    queue_id: int | None = None
    tags: str = "*"
    contains: str | None = None
    """Only bodies with this text in them; at most `looked_at_max` are opened for it."""
    looked_at_max: int = 20_000


def search(connection: Connection, wanted: Search) -> list[ReceivedMessage]:
    """Messages by time and content, merged over all queues."""
    bounds = _bounds(connection, wanted)
    share = max(PULL_COUNT, wanted.looked_at_max // max(1, len(bounds)))
    found: list[ReceivedMessage] = []
    for _, messages in connection.all(bounds, lambda each: _search_queue(connection, wanted, each, share)):
        found += messages
    found.sort(key=lambda each: (each.stored_at_ms, each.physical_offset), reverse=not wanted.oldest_first)
    return found[: wanted.count]


@dataclass(frozen=True)
class _Bounds:
    address: str
    queue: MessageQueue
    begin: int
    end: int


def _bounds(connection: Connection, wanted: Search) -> list[_Bounds]:
    """The part of each queue that lies between the two times."""
    parts = [
        part
        for part in topics.at_brokers(connection, settings.checked_topic(wanted.topic))
        if wanted.broker in (None, part.broker, part.address)
    ]
    queues = [
        (part, MessageQueue(broker_name=part.broker, queue_id=queue_id, topic=wanted.topic))
        for part in parts
        for queue_id in range(part.read_queues)
        if wanted.queue_id in (None, queue_id)
    ]

    def bounds(each: tuple[TopicAt, MessageQueue]) -> _Bounds:
        part, queue = each
        if wanted.begin_ms is None:
            begin = connection.run(operations.min_offset(part.address, queue))
        else:
            begin = connection.run(operations.offset_at(part.address, queue, wanted.begin_ms))
        if wanted.end_ms is None:
            end = connection.run(operations.max_offset(part.address, queue))
        else:
            end = connection.run(operations.offset_at(part.address, queue, wanted.end_ms + 1))
        return _Bounds(part.address, queue, begin, end)

    found, _ = connection.some(queues, bounds)
    return [each for _, each in found if each.begin < each.end]


def _search_queue(
    connection: Connection, wanted: Search, bounds: _Bounds, looked_at_max: int
) -> list[ReceivedMessage]:
    walk = _forward if wanted.oldest_first else _backward
    found: list[ReceivedMessage] = []
    for looked_at, message in enumerate(walk(connection, bounds, wanted), 1):
        if _is_wanted(message, wanted):
            found.append(message)
        if len(found) >= wanted.count or looked_at >= looked_at_max:
            break
    return found


def _forward(connection: Connection, bounds: _Bounds, wanted: Search) -> Iterator[ReceivedMessage]:
    at = bounds.begin
    while at < bounds.end:
        pulled = _pull(connection, bounds.address, bounds.queue, at, PULL_COUNT, wanted.tags)
        for message in pulled.messages:
            if message.queue_offset < bounds.end:
                yield message
        if pulled.next_offset <= at:
            return
        at = pulled.next_offset


def _backward(connection: Connection, bounds: _Bounds, wanted: Search) -> Iterator[ReceivedMessage]:
    end = bounds.end
    while end > bounds.begin:
        begin = max(bounds.begin, end - PULL_COUNT)
        piece = list(_forward(connection, _Bounds(bounds.address, bounds.queue, begin, end), wanted))
        yield from reversed(piece)
        end = begin


def _is_wanted(message: ReceivedMessage, wanted: Search) -> bool:
    if wanted.begin_ms is not None and message.stored_at_ms < wanted.begin_ms:
        return False
    if wanted.end_ms is not None and message.stored_at_ms > wanted.end_ms:
        return False
    if wanted.contains is None:
        return True
    try:
        return wanted.contains.encode() in message.body
    except MQError:  # a body that cannot be inflated contains nothing we can see
        return False


def _pull(
    connection: Connection, address: str, queue: MessageQueue, at: int, count: int, tags: str = "*"
) -> operations.Pulled:
    subscription = operations.Subscription(queue.topic, tags, 0)
    return connection.run(
        operations.pull(
            address, queue, at, subscription, TOOLS_GROUP, count=count, timeout=connection.timeout
        )
    )


def _pulled(
    connection: Connection, address: str, queue: MessageQueue, at: int, count: int
) -> list[ReceivedMessage]:
    return _pull(connection, address, queue, at, count).messages


def read_queue(
    connection: Connection, address: str, queue: MessageQueue, begin: int = 0, end: int | None = None
) -> Iterator[ReceivedMessage]:
    """All messages of one queue from `begin` to `end`, or to where it ends now, in order."""
    least = connection.run(operations.min_offset(address, queue))
    most = connection.run(operations.max_offset(address, queue))
    bounds = _Bounds(address, queue, max(begin, least), most if end is None else min(end, most))
    return _forward(connection, bounds, Search(queue.topic))


# ----------------------------------------------------------------------------------------------- sending


def send(
    connection: Connection,
    message: Message,
    *,
    group: str = SENDER_GROUP,
    key: str | None = None,
    delay: Delay | None = None,
    queue: MessageQueue | None = None,
) -> SendResult:
    """Send one message, to try things out."""
    from kourou.client import Producer

    with Producer(
        group,
        connection.name_server,
        access=connection.access,
        tls=connection.tls,
        send_timeout=connection.timeout,
    ) as producer:
        options: dict[str, Any] = {}
        if key is not None:
            options["key"] = key
        if delay is not None:
            options["delay"] = delay
        if queue is not None:
            options["queue"] = queue
        return producer.send(message, **options)


# ------------------------------------------------------------------------------------------------ tracing


@dataclass(frozen=True)
class TraceStep:
    """One thing that happened to a message, as a client told it."""

    kind: str
    """Pub, SubBefore, SubAfter, EndTransaction; Recall."""
    time_ms: int
    group: str
    client: str
    topic: str
    message_id: str
    tags: str = ""
    keys: str = ""
    broker: str = ""
    spent_ms: int = 0
    is_success: bool = True
    retry_times: int = 0
    detail: str = ""
    request_id: str = ""


def trace(
    connection: Connection,
    message_id: str,
    *,
    trace_topic: str = TRACE_TOPIC,
    begin_ms: int = 0,
    end_ms: int = LATEST_MS,
) -> list[TraceStep]:
    """Everything clients told of one message, in the order it happened."""
    try:
        told = by_key(connection, trace_topic, message_id, begin_ms=begin_ms, end_ms=end_ms)
    except NotFound:
        return []
    steps = [step for message in told for step in trace_steps(message) if step.message_id == message_id]
    return _with_times(sorted(set(steps), key=lambda step: (step.time_ms, _ORDER.get(step.kind, 9))))


_ORDER = {"Pub": 0, "EndTransaction": 1, "SubBefore": 2, "SubAfter": 3}


def trace_steps(message: ReceivedMessage) -> Iterator[TraceStep]:
    """The lines of one trace message; a line that makes no sense is left out."""
    client = message.born_host[0]
    for line in message.body.decode("utf-8", "replace").split("\x02"):
        fields = line.split("\x01")
        step = _step(fields, client) if len(fields) > 1 else None
        if step is not None:
            yield step


def _step(fields: list[str], client: str) -> TraceStep | None:
    kind, *rest = [("" if each == "null" else each) for each in fields]
    at = dict(enumerate(rest))
    try:
        if kind == "Pub":
            return replace(
                _told_by_producer(kind, at, client),
                spent_ms=int(at[9]),
                is_success=at.get(12, at.get(11, "true")) != "false",
                detail=_PUB_KINDS.get(at[10], at[10]),
            )
        if kind == "SubBefore":
            return TraceStep(
                kind,
                int(at[0]),
                at[2],
                client,
                "",
                at[4],
                keys=at.get(6, ""),
                retry_times=int(at[5] or 0),
                request_id=at[3],
            )
        if kind == "SubAfter":
            return TraceStep(
                kind,
                int(at.get(6) or 0),
                at.get(7, ""),
                client,
                "",
                at[1],
                keys=at.get(4, ""),
                spent_ms=int(at[2]),
                is_success=at[3] == "true",
                detail=_OUTCOMES.get(at.get(5, ""), at.get(5, "")),
                request_id=at[0],
            )
        if kind == "EndTransaction":
            return replace(
                _told_by_producer(kind, at, client),
                detail=f"{at[10]}{', asked by the broker' if at.get(11) == 'true' else ''}",
            )
    except (KeyError, ValueError):
        return None
    return None


def _told_by_producer(kind: str, at: Mapping[int, str], client: str) -> TraceStep:
    """What a send and the end of a transaction tell alike, at the same places."""
    return TraceStep(kind, int(at[0]), at[2], client, at[3], at[4], tags=at[5], keys=at[6], broker=at[7])


_PUB_KINDS = {"0": "normal", "1": "half", "2": "committed", "3": "delayed"}
_OUTCOMES = {"0": "success", "1": "timed out", "2": "exception", "3": "returned null", "4": "failed"}


def _with_times(steps: list[TraceStep]) -> list[TraceStep]:
    """The end of a consumption without its own time or group, as 4.x tells it, takes those of its begin."""
    begins = {step.request_id: step for step in steps if step.kind == "SubBefore"}
    complete = []
    for step in steps:
        begin = begins.get(step.request_id) if step.kind == "SubAfter" else None
        if begin is not None:
            step = replace(
                step,
                time_ms=step.time_ms or begin.time_ms + step.spent_ms,
                group=step.group or begin.group,
                retry_times=begin.retry_times,
            )
        complete.append(step)
    return sorted(complete, key=lambda step: (step.time_ms, _ORDER.get(step.kind, 9)))


# ------------------------------------------------------------------------------------------------ showing


def described(message: ReceivedMessage) -> dict[str, object]:
    """A message as JSON can tell it; a body that is no text is told in base64."""
    row: dict[str, object] = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_id": message.offset_id,
        "born_at": moment(message.born_at_ms),
        "stored_at": moment(message.stored_at_ms),
        "born_host": format_address(*message.born_host),
        "store_host": format_address(*message.store_host),
        "reconsume_times": message.reconsume_times,
        "size": message.size,
        "tags": message.tags,
        "keys": message.keys,
        "properties": dict(message.properties),
    }
    try:
        row["body"] = message.body.decode()
    except UnicodeDecodeError:
        row["body_base64"] = b64encode(message.body).decode()
    except MQError as error:
        row["body_error"] = str(error)
    return row


def moment(moment_ms: int) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    try:
        return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # a record may say anything
        return str(moment_ms)


# ----------------------------------------------------------------------------------------------- tracking


@dataclass(frozen=True)
class Track:
    """What became of a message in one group: CONSUMED, CONSUMED_BUT_FILTERED, NOT_CONSUME_YET, NOT_ONLINE,
    PULL (its members keep their own counsel), CONSUME_BROADCASTING or UNKNOWN."""

    group: str
    state: str
    detail: str | None = None


def tracks(connection: Connection, message: ReceivedMessage) -> list[Track]:
    """What every group of its topic did with a message, by where the group is in the message's queue."""
    names = topics.groups_of(connection, message.topic)
    outcomes = connection.each(names, lambda name: _track(connection, message, name))
    return [
        outcome.result or Track(outcome.of, "UNKNOWN", None if outcome.error is None else str(outcome.error))
        for outcome in outcomes
    ]


def _track(connection: Connection, message: ReceivedMessage, name: str) -> Track:
    from kourou.admin import groups

    try:
        members = groups.members(connection, name)
    except NotFound as error:
        return Track(name, "NOT_ONLINE", f"CODE:{error.code} DESC:{error}")
    if members.consume_type == "CONSUME_ACTIVELY":
        return Track(name, "PULL")
    if members.is_broadcast:
        return Track(name, "CONSUME_BROADCASTING")
    place = next(
        (
            queue.consumer_offset
            for queue in groups.lag(connection, name, message.topic).queues
            if queue.queue_id == message.queue_id
            and (not message.broker_name or queue.broker == message.broker_name)
        ),
        0,
    )
    if place <= message.queue_offset:
        return Track(name, "NOT_CONSUME_YET")
    wanted = next((each for each in members.subscriptions if each.topic == message.topic), None)
    if wanted is not None and wanted.kind in ("TAG", ""):
        subscription = operations.Subscription(message.topic, wanted.expression, 0)
        if not subscription.wants(message):
            return Track(name, "CONSUMED_BUT_FILTERED")
    return Track(name, "CONSUMED")
