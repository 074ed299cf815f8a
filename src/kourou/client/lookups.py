"""Finding messages that were sent: by a key, by the id their producer gave them, by their place."""

from __future__ import annotations

from kourou.client.refusals import accepted
from kourou.client.routes import LOOKUP_SECONDS, Route, Routes
from kourou.client.steps import Call, Operation
from kourou.doors.clock import Clock
from kourou.errors import MQError, NotFound, ProtocolError, Unreachable
from kourou.message import ReceivedMessage
from kourou.protocol import record
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import QueryMessage, ViewMessage
from kourou.protocol.message_id import parse_offset_id
from kourou.remoting.address import format_address

TIMEOUT_SECONDS = 6.0
LATEST_MS = (1 << 63) - 1
UNIQUE_MATCHES_MAX = 32


def by_key(
    routes: Routes, clock: Clock, topic: str, key: str, *, count: int, begin_ms: int, end_ms: int
) -> Operation[list[ReceivedMessage]]:
    """Messages of a topic that have this key, the oldest first; up to `count` of each broker.

    A broker that cannot be asked is left out; raises its error when none could.
    """
    route = yield from routes.to_read(topic, clock.monotonic() + LOOKUP_SECONDS)
    header = QueryMessage(topic, key, count, begin_ms, end_ms)
    found = yield from _asked_all(route, request(RequestCode.QUERY_MESSAGE, header))
    wanted = [message for message in found if key in (message.keys or "").split(" ")]
    return sorted(wanted, key=lambda message: (message.stored_at_ms, message.queue_id, message.queue_offset))


def by_id(routes: Routes, clock: Clock, topic: str, message_id: str) -> Operation[ReceivedMessage]:
    """The message with this unique id or offset id; raises NotFound when there is none (any more)."""
    route = yield from routes.to_read(topic, clock.monotonic() + LOOKUP_SECONDS)
    header = QueryMessage(topic, message_id, UNIQUE_MATCHES_MAX, 0, LATEST_MS, is_unique_key=True)
    found = yield from _asked_all(route, request(RequestCode.QUERY_MESSAGE, header))
    for message in found:
        if message.message_id == message_id:
            return message
    at_its_place = yield from _at_its_place(route, topic, message_id)
    if at_its_place is None:
        raise NotFound(
            ResponseCode.NO_MESSAGE,
            f"no message {message_id} in topic '{topic}': it was never there, is gone by age, or was stored "
            "a moment ago and is not indexed yet",
        )
    return at_its_place


def _at_its_place(route: Route, topic: str, message_id: str) -> Operation[ReceivedMessage | None]:
    """The message with this offset id, when one of the topic's own brokers is named in it."""
    try:
        place = parse_offset_id(message_id)
        address = format_address(*record.unpack_host(place.store_host))
    except MQError:
        return None
    if address not in route.addresses():
        return None
    command = request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(place.physical_offset, topic))
    reply: Command = yield Call(address, command, TIMEOUT_SECONDS)
    if reply.code != ResponseCode.SUCCESS:
        return None
    try:
        return record.to_received(record.decode(reply.body))
    except ProtocolError:
        return None


def _asked_all(route: Route, command: Command) -> Operation[list[ReceivedMessage]]:
    found: list[ReceivedMessage] = []
    failure: MQError | None = None
    answered = False
    for broker_name in route.broker_names():
        try:
            reply: Command = yield Call(route.reader(broker_name), command, TIMEOUT_SECONDS)
        except Unreachable as error:
            failure = error
            continue
        answered = True
        if reply.code in (ResponseCode.QUERY_NOT_FOUND, ResponseCode.NO_MESSAGE):
            continue
        accepted(reply, f"{broker_name}, looking for messages of '{route.topic}'")
        found += [record.to_received(each, broker_name) for each in record.decode_all(reply.body)]
    if not answered and failure is not None:
        raise failure
    return found
