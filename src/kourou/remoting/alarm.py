"""One timer for many deadlines: it rings for the earliest, then asks which comes next.

Most requests are answered long before they are due, so a timer for each would be made and cancelled a
hundred thousand times a second for nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from kourou.doors.clock import Clock, Timer

SECONDS_BETWEEN_MIN = 0.01  # deadlines this close together are served by one ring


class Alarm:
    """Calls `ring` at or shortly after the earliest deadline; `ring` returns the next one, or None."""

    __slots__ = ("_at", "_clock", "_ring", "_timer")

    def __init__(self, clock: Clock, ring: Callable[[], float | None]) -> None:
        self._clock = clock
        self._ring = ring
        self._timer: Timer | None = None
        self._at = 0.0

    def ring_by(self, deadline: float) -> None:
        """There is a deadline at `deadline`, by the monotonic clock."""
        if self._timer is not None:
            if self._at <= deadline:
                return
            self._timer.cancel()
        self._set(deadline, deadline - self._clock.monotonic())

    def off(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, deadline: float, seconds: float) -> None:
        self._at = deadline
        self._timer = self._clock.later(max(0.0, seconds), self._rung)

    def _rung(self) -> None:
        self._timer = None
        next_deadline = self._ring()
        if next_deadline is not None and self._timer is None:
            seconds = next_deadline - self._clock.monotonic()
            self._set(next_deadline, max(seconds, SECONDS_BETWEEN_MIN))
