"""An event loop whose time passes only when nothing else can happen, and the clocks of machines on it.

    something is ready   it runs, and no time passes
    nothing is ready     time leaps to the next timer: an hour of waiting takes no longer than a moment

So `asyncio.sleep`, `asyncio.timeout` and our own clocks agree, and one run is as quick as its work is.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from kourou.doors.clock import Timer

START_MS = 1_700_000_000_000
TURNS_MAX = 3_000_000
"""A run that needs more turns of its loop goes round in circles."""


class StandStill(Exception):
    """Nothing is ready, and nothing ever will be."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Without sockets, threads or signals."""

    _scheduled: list[asyncio.TimerHandle]
    _clock_resolution: float

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._selector = self  # it is asked for what has happened: time has
        self._turns = itertools.count()
        self.set_exception_handler(_not_for_the_dead)

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise StandStill("everybody waits for somebody else")
        if timeout > 0:
            self._now += timeout
        elif self._scheduled and 0 < self._scheduled[0].when() - self._now < self._clock_resolution:
            # It rings now, and whoever looks at the clock must not find it too early, again and again.
            self._now = self._scheduled[0].when()
        if next(self._turns) > TURNS_MAX:
            raise StandStill(f"{TURNS_MAX} turns, and no end")
        return []

    def _process_events(self, events: object) -> None: ...

    def _write_to_self(self) -> None: ...


class Killed(BaseException):
    """The process that was running is no more, at this very point."""


def _not_for_the_dead(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    if not isinstance(context.get("exception"), Killed):
        loop.default_exception_handler(context)


class Wall:
    """What o'clock it is on one machine: may be set, and survives its processes."""

    def __init__(self) -> None:
        self.jumped_ms = 0


class VirtualClock:
    """The `Clock` of one process. Stopped, it calls nobody any more: the process is dead."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wall: Wall | None = None) -> None:
        self._loop = loop
        self._wall = wall or Wall()
        self.is_stopped = False

    def now_ms(self) -> int:
        return START_MS + self._wall.jumped_ms + round(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_later(max(0.0, seconds), self._call, callback)

    def every(self, seconds: float, callback: Callable[[], None], first: float | None = None) -> Timer:
        return _Repeating(self, seconds, callback, first)

    def _call(self, callback: Callable[[], None]) -> None:
        if not self.is_stopped:
            callback()


class _Repeating:
    def __init__(
        self, clock: VirtualClock, seconds: float, callback: Callable[[], None], first: float | None
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._callback = callback
        self._timer: Timer | None = clock.later(seconds if first is None else first, self._turn)

    def _turn(self) -> None:
        if self._timer is not None:
            self._timer = self._clock.later(self._seconds, self._turn)
            self._callback()

    def cancel(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
