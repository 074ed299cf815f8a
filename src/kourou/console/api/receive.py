"""Receiving over HTTP: a long poll or a stream of events, each message with a receipt; and watching a topic.

    POST /topics/{topic}/receive    up to `max` messages for a group; waits up to `wait` seconds for the first
    GET  /topics/{topic}/stream     the same as events (text/event-stream), for as long as one listens
    POST /receipts/{receipt}        done with it ({"outcome": "done"}), or to come again ("retry")
    GET  /topics/{topic}/tail       what comes from now on, as events; for looking only, nothing is taken

Who was handed a message has `hold` seconds to settle it; then it comes again, to whoever asks next.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

import msgspec

from kourou.admin import topics
from kourou.admin.messages import TOOLS_GROUP
from kourou.client.pull_consumer import AsyncPullConsumer
from kourou.console.api.plain import plain, received
from kourou.console.deeds.deed import Field
from kourou.console.given import Given
from kourou.console.receivers import Handed, Wish
from kourou.console.visit import Visit
from kourou.errors import Busy, MQError
from kourou.protocol.codes import ResponseCode

WAIT_SECONDS_MAX = 30
HOLD_SECONDS_MAX = 600
MESSAGES_MAX = 64
STREAMS_MAX = 50
KEEP_ALIVE_SECONDS = 15.0
TAIL_POLL_SECONDS = 5.0

RECEIVE_FIELDS = (
    Field("topic", "The topic.", needed=True),
    Field("group", "The consumer group; its members share the messages.", needed=True),
    Field("tags", "Only with one of these tags: new || paid."),
    Field("start", "Where a group begins that was never here.", choices=("earliest", "latest")),
    Field("max", f"Up to {MESSAGES_MAX} messages.", "integer"),
    Field("wait", f"Seconds to wait for the first one, up to {WAIT_SECONDS_MAX}.", "integer"),
    Field("hold", f"Seconds until an unsettled one comes again, up to {HOLD_SECONDS_MAX}.", "integer"),
)
TAIL_FIELDS = (
    Field("topic", "The topic.", needed=True),
    Field("tags", "Only with one of these tags: new || paid."),
)

_streams: set[object] = set()
"""Those that are open."""


def wish_of(visit: Visit, given: Given) -> Wish:
    return Wish(
        visit.user,
        given.text("group"),
        given.text("topic"),
        given.text("tags", "") or None,
        given.choice("start", ("earliest", "latest"), "earliest") == "earliest",
    )


async def receive(visit: Visit, given: Given) -> object:
    """One long poll."""
    await _check_topic(visit, given)
    handed = await visit.desk.ending.before_it(
        visit.desk.receivers.receive(
            wish_of(visit, given),
            at_most=given.number("max", 16, least=1, most=MESSAGES_MAX),
            wait_seconds=given.number("wait", 10, most=WAIT_SECONDS_MAX),
            hold_seconds=given.number("hold", 60, least=1, most=HOLD_SECONDS_MAX),
        )
    )
    return {"messages": [received(each.message, each.receipt) for each in handed]}


async def settle(visit: Visit, given: Given) -> object:
    outcome = given.choice("outcome", ("done", "retry"), "done")
    visit.desk.receivers.settle(visit.user, given.text("receipt"), is_done=outcome == "done")
    return {"receipt": given.text("receipt"), "outcome": outcome}


async def events(visit: Visit, given: Given) -> AsyncIterator[bytes]:
    """Messages for a group, each to be settled by its receipt, until the listener goes."""
    wish, hold = wish_of(visit, given), given.number("hold", 60, least=1, most=HOLD_SECONDS_MAX)
    receivers = visit.desk.receivers

    async def some() -> list[Handed]:
        return await receivers.receive(
            wish, at_most=MESSAGES_MAX, wait_seconds=KEEP_ALIVE_SECONDS, hold_seconds=hold
        )

    _check_room()
    await _check_topic(visit, given)
    first = await _first(visit, wish)
    return _stream(visit, _handed_events(some, first))


async def _check_topic(visit: Visit, given: Given) -> None:
    """Raises NotFound. A member of a group who wants a topic that is not there takes queues from others."""
    await asyncio.to_thread(topics.route, visit.desk.connection, given.text("topic"))


async def _first(visit: Visit, wish: Wish) -> list[Handed]:
    """Join now, so that what is wrong with the wish is told as an error and not in the stream."""
    return await visit.desk.receivers.receive(wish, at_most=1, wait_seconds=0.0, hold_seconds=60)


async def _handed_events(
    some: Callable[[], Awaitable[list[Handed]]], handed: list[Handed]
) -> AsyncGenerator[bytes, None]:
    while True:
        for each in handed:
            yield _event(received(each.message, each.receipt), each.receipt)
        handed = await some()
        if not handed:
            yield b": still here\n\n"


async def tail(visit: Visit, given: Given) -> AsyncIterator[bytes]:
    """What comes from now on."""
    _check_room()
    desk = visit.desk
    consumer = AsyncPullConsumer(
        TOOLS_GROUP,
        given.text("topic"),
        desk.config.name_server,
        tags=given.text("tags", "*"),
        start="latest",
        announce=False,
        access=desk.config.access,
        tls=desk.config.tls,
    )
    try:
        await consumer.seek("latest")
    except BaseException:
        await consumer.close()
        raise
    return _stream(visit, _tail_events(consumer))


async def _tail_events(consumer: AsyncPullConsumer) -> AsyncGenerator[bytes, None]:
    try:
        yield b": here\n\n"
        while True:
            for message in await consumer.receive(32, TAIL_POLL_SECONDS):
                yield _event(received(message), message.offset_id)
            yield b": still here\n\n"
    finally:
        await asyncio.shield(consumer.close())


def _check_room() -> None:
    if len(_streams) >= STREAMS_MAX:
        raise Busy(ResponseCode.SYSTEM_BUSY, f"{STREAMS_MAX} streams are open; try again later")


async def _stream(visit: Visit, parts: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """An error in the middle is told as the last event."""
    mine = object()
    _streams.add(mine)
    try:
        async for part in visit.desk.ending.parts_before_it(parts):
            yield part
    except MQError as error:
        yield b"event: failed\ndata: " + msgspec.json.encode({"message": str(error)}) + b"\n\n"
    finally:
        _streams.discard(mine)


def _event(value: object, number: str) -> bytes:
    return b"id: " + number.encode() + b"\ndata: " + msgspec.json.encode(plain(value)) + b"\n\n"
