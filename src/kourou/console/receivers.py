"""Receiving over HTTP: members of consumer groups that this process keeps for those who have no client.

    receive   the next messages of a topic for a group, each with a receipt; waits for some to come
    settle    done with it, or to come again; without a word, a message comes again when its time is over

A receiver joins its group with the first request and shares the queues with every other member, wherever that
runs. It leaves when nobody has asked for a while; what was handed out and not settled comes again to others.
Everything here happens on the console's event loop.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from kourou.client.consumer import AsyncConsumer, Delivery
from kourou.console.config import ConsoleConfig
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock, Timer
from kourou.errors import Busy, MQError, NotFound
from kourou.protocol.codes import ResponseCode

IDLE_SECONDS_MAX = 60.0
RECEIVERS_MAX = 100
IN_FLIGHT_MAX = 1000
"""Handed out by one receiver and not settled."""
LOOK_SECONDS = 1.0

_log = logging.getLogger("kourou.console")


@dataclass
class Handed:
    """A message somebody has; `receipt` is what they settle it with."""

    receipt: str
    message: Delivery
    until: float


@dataclass
class Receiver:
    consumer: AsyncConsumer
    used: float
    waiting: int = 0
    handed: dict[str, Handed] = field(default_factory=dict)


@dataclass(frozen=True)
class Wish:
    """Who wants to receive what. The same wish is served by the same receiver."""

    user: str
    group: str
    topic: str
    tags: str | None = None
    from_beginning: bool = True
    """Where a group begins that was never here."""


class Receivers:
    """All of them."""

    def __init__(self, config: ConsoleConfig, *, clock: Clock, chance: Chance) -> None:
        self._config = config
        self._clock = clock
        self._chance = chance
        self._receivers: dict[Wish, Receiver] = {}
        self._joining = asyncio.Lock()
        self._timer: Timer | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    async def receive(
        self, wish: Wish, *, at_most: int, wait_seconds: float, hold_seconds: float
    ) -> list[Handed]:
        """Up to `at_most` messages; the first may take `wait_seconds`. Each is theirs for `hold_seconds`."""
        receiver = await self._joined(wish)
        receiver.waiting += 1
        try:
            handed: list[Handed] = []
            seconds = wait_seconds
            while len(handed) < at_most and (message := await receiver.consumer.receive(seconds)) is not None:
                until = self._clock.monotonic() + hold_seconds
                one = Handed(self._chance.secret_bytes(16).hex(), message, until)
                receiver.handed[one.receipt] = one
                handed.append(one)
                seconds = 0.0  # the others are taken when they are here already
            return handed
        finally:
            receiver.waiting -= 1
            receiver.used = self._clock.monotonic()

    def settle(self, user: str, receipt: str, *, is_done: bool) -> None:
        """Raises NotFound for a receipt that is unknown, too old, or somebody else's."""
        for wish, receiver in self._receivers.items():
            if wish.user == user and receipt in receiver.handed:
                one = receiver.handed.pop(receipt)
                receiver.used = self._clock.monotonic()
                if is_done:
                    one.message.done()
                else:
                    one.message.retry()
                return
        raise NotFound(
            ResponseCode.QUERY_NOT_FOUND,
            f"no message is held under the receipt {receipt[:40]!r}: it was settled, or its time was over",
        )

    async def close(self) -> None:
        """Leave all groups."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        receivers, self._receivers = list(self._receivers.values()), {}
        for receiver in receivers:
            await receiver.consumer.close(0.0)
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def _joined(self, wish: Wish) -> Receiver:
        async with self._joining:
            receiver = self._receivers.get(wish)
            if receiver is None:
                if len(self._receivers) >= RECEIVERS_MAX:
                    raise Busy(
                        ResponseCode.SYSTEM_BUSY, f"{RECEIVERS_MAX} receivers are at work; try again later"
                    )
                consumer = AsyncConsumer(
                    wish.group,
                    wish.topic,
                    self._config.name_server,
                    tags=wish.tags,
                    access=self._config.access,
                    tls=self._config.tls,
                    start="earliest" if wish.from_beginning else "latest",
                )
                await consumer.__aenter__()
                receiver = self._receivers[wish] = Receiver(consumer, self._clock.monotonic())
                if self._timer is None:
                    self._timer = self._clock.every(LOOK_SECONDS, self._look)
        if len(receiver.handed) >= IN_FLIGHT_MAX:
            raise Busy(
                ResponseCode.SYSTEM_BUSY,
                f"{IN_FLIGHT_MAX} messages are handed out and not settled; settle some first",
            )
        return receiver

    def _look(self) -> None:
        """What was held too long comes again; who is not asked any more leaves."""
        now = self._clock.monotonic()
        for wish, receiver in list(self._receivers.items()):
            for one in [one for one in receiver.handed.values() if one.until <= now]:
                del receiver.handed[one.receipt]
                one.message.retry()
            if not receiver.waiting and not receiver.handed and now - receiver.used > IDLE_SECONDS_MAX:
                del self._receivers[wish]
                leaving = asyncio.get_running_loop().create_task(_leave(receiver.consumer))
                self._leaving.add(leaving)
                leaving.add_done_callback(self._leaving.discard)


async def _leave(consumer: AsyncConsumer) -> None:
    try:
        await consumer.close()
    except MQError as error:
        _log.warning("leaving a group failed: %s", error)
