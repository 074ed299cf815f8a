"""Requests and replies: a message that asks something, and the message that answers it.

    requester   CORRELATION_ID, REPLY_TO_CLIENT, TTL   --topic-->   whoever consumes it
                                                                          |  reply_to(message, body)
        `request` returns  <--326, on our own connection--  broker  <--325, MSG_TYPE=reply

The broker that gets the reply pushes it to the client named in it, so every broker of the topic has to know
us before we ask: the reply may come by any of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kourou.client import settings
from kourou.client.sending import MESSAGE_TYPE, REPLY_TYPE, Sending, Where, check_message
from kourou.client.steps import Arrival, Operation, Wait
from kourou.doors.chance import Chance
from kourou.errors import ConfigError, MQError, TimedOut
from kourou.message import Message, ReceivedMessage
from kourou.protocol import properties, record
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.headers import PushReply
from kourou.remoting.address import parse_address
from kourou.remoting.answer import Answer, Handler

CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TIME_TO_LIVE = "TTL"
CLUSTER = "CLUSTER"
REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"

_NOWHERE = bytes(8)
_log = logging.getLogger("kourou.client")


def reply_to(request: ReceivedMessage, body: bytes) -> Message:
    """The message that answers `request`; send it with any producer.

    for message in consumer.receive():
        producer.send(kourou.reply_to(message, b"the answer"))
    """
    _check_received(request)
    given = request.properties
    missing = [name for name in (CORRELATION_ID, REPLY_TO_CLIENT, CLUSTER) if not given.get(name)]
    if missing:
        raise ConfigError(
            f"message {request.message_id} is no request, so nobody waits for a reply to it: it lacks "
            f"{', '.join(missing)}; a request is sent with producer.request"
        )
    answer = {
        MESSAGE_TYPE: REPLY_TYPE,
        CORRELATION_ID: given[CORRELATION_ID],
        REPLY_TO_CLIENT: given[REPLY_TO_CLIENT],
    }
    if TIME_TO_LIVE in given:
        answer[TIME_TO_LIVE] = given[TIME_TO_LIVE]
    return Message(given[CLUSTER] + REPLY_TOPIC_SUFFIX, body, properties=answer)


def _check_received(request: object) -> None:
    if not isinstance(request, ReceivedMessage):
        raise ConfigError(f"{request!r} is no message that was received, so there is nobody to reply to")


class Asking:
    """The requests of one producer that wait for their reply."""

    def __init__(self, sending: Sending, chance: Chance) -> None:
        self._sending = sending
        self._chance = chance
        self._waiting: dict[str, Arrival] = {}
        self.handlers: Mapping[int, Handler] = {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._on_reply}

    def request(self, message: Message, where: Where, timeout: float) -> Operation[ReceivedMessage]:
        """Send `message`, and wait for what somebody replies; `timeout` seconds are for both."""
        self._sending.check_open()
        check_message(message)
        settings.checked_seconds("timeout", timeout)
        sending, clock = self._sending, self._sending.clock
        deadline = clock.monotonic() + timeout
        correlation = self._chance.secret_bytes(16).hex()
        marks = {
            CORRELATION_ID: correlation,
            REPLY_TO_CLIENT: sending.presence.client_id,
            TIME_TO_LIVE: str(round(timeout * 1000)),
        }
        outgoing = sending.outgoing(message, message.properties | marks)
        arrival = self._waiting[correlation] = Arrival()
        try:
            route = yield from sending.routes.to_publish(outgoing.topic, deadline)
            yield from sending.presence.beat(route.masters())
            plan = sending.plan(outgoing, message, where, max(deadline - clock.monotonic(), 0.001))
            yield from sending.sent(outgoing, plan)
            reply: ReceivedMessage | None = yield Wait(arrival, max(deadline - clock.monotonic(), 0.0))
        finally:
            del self._waiting[correlation]
        if reply is None:
            raise TimedOut(
                f"nobody replied to message {outgoing.message_id} on '{message.topic}' within {timeout:g} s; "
                "it was stored, and a consumer may still get it"
            )
        return reply

    def _on_reply(self, command: Command, answer: Answer) -> None:
        header = command.parse(PushReply)
        table = (header.properties or "").encode()
        correlation = properties.parse(table).get(CORRELATION_ID, "")
        arrival = self._waiting.get(correlation)
        if arrival is None:
            _log.warning("a reply came for request %r, which nobody waits for (any more)", correlation[:80])
        else:
            arrival.put(_received(header, table, command.body))
        answer(command.reply())


def _received(header: PushReply, table: bytes, body: bytes) -> ReceivedMessage:
    """The reply as if it had been pulled; it lies in no queue."""
    born_host, store_host = _packed(header.born_host), _packed(header.store_host)
    encoded = record.encode(
        topic=header.topic.encode(),
        queue_id=header.queue_id,
        flag=header.flag,
        queue_offset=0,
        physical_offset=0,
        sys_flag=header.sys_flag,
        born_ms=header.born_timestamp,
        born_host=born_host,
        store_ms=header.store_timestamp,
        store_host=store_host,
        reconsume_times=header.reconsume_times or 0,
        prepared_offset=0,
        body=body,
        properties=table,
    )
    return record.to_received(record.decode(encoded))


def _packed(host: str) -> bytes:
    try:
        return record.pack_host(*parse_address(host.lstrip("/")))
    except MQError:
        return _NOWHERE
