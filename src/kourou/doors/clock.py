"""The way to time: what o'clock it is, and who is to be called later.

`now_ms` is the wall clock, which may jump; `monotonic` never goes back and is what deadlines are made of.
Timers run on the event loop of the thread that asked for them.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from itertools import count
from typing import Protocol


class Timer(Protocol):
    """A call that has been asked for."""

    def cancel(self) -> None:
        """It shall not happen (any more). Harmless when it already has."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970, by the wall."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""

    def later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call once, `seconds` from now."""

    def every(self, seconds: float, callback: Callable[[], None], first: float | None = None) -> Timer:
        """Call again and again, `first` (or `seconds`) from now for the first time."""


class RealClock:
    """The machine's clock and the running event loop's timers."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # read several times a tick: one call, not two

    def later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        from asyncio import get_running_loop  # not above: a blocking client reads the clock, and has no loop

        return get_running_loop().call_later(seconds, callback)

    def every(self, seconds: float, callback: Callable[[], None], first: float | None = None) -> Timer:
        return _Repeating(self, seconds, callback, first)


class SimulatedClock:
    """Stands still until it is told to `advance`; then calls what has become due, in order."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = now_ms
        self._elapsed = 0.0
        self._jumped_ms = 0
        self._numbers = count()
        self._due: list[tuple[float, int, _Once]] = []

    def now_ms(self) -> int:
        return self._start_ms + self._jumped_ms + round(self._elapsed * 1000)

    def monotonic(self) -> float:
        return self._elapsed

    def later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        once = _Once(callback)
        heapq.heappush(self._due, (self._elapsed + max(0.0, seconds), next(self._numbers), once))
        return once

    def every(self, seconds: float, callback: Callable[[], None], first: float | None = None) -> Timer:
        return _Repeating(self, seconds, callback, first)

    def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen that falls into it."""
        until = self._elapsed + seconds
        while self._due and self._due[0][0] <= until:
            due, _, once = heapq.heappop(self._due)
            self._elapsed = max(self._elapsed, due)
            once.run()
        self._elapsed = until

    def jump_ms(self, milliseconds: int) -> None:
        """Set the wall clock forward or back; monotonic time does not notice."""
        self._jumped_ms += milliseconds


class _Once:
    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def run(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def cancel(self) -> None:
        self._callback = None


class _Repeating:
    """Asks for the next turn before it takes this one, so that a failing callback is not the last."""

    def __init__(
        self, clock: Clock, seconds: float, callback: Callable[[], None], first: float | None
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
