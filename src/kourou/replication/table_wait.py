"""Who waits until replicas have the newest topics and groups.

    a topic is made ─▶ change 7 ─▶ slaves copy the tables ─┬▶ enough have change 7    it is made
                                                           ├▶ too few are there       it is made, here alone
                                                           └▶ not within its time     nobody knows

Tables are not in the log, so they are waited for apart from it: a topic that was said to exist is there when
another broker takes over a moment later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from kourou.doors.clock import Clock, Timer
from kourou.store.flush import FLUSH_SLAVE_TIMEOUT, OK, SLAVE_NOT_AVAILABLE, StoreStatus, Then


class _Waiting(NamedTuple):
    change: int
    deadline: float
    then: Then


class TableWait:
    """Answers that are parked until a change of the tables has been copied; in the order of the changes."""

    def __init__(
        self,
        clock: Clock,
        timeout_ms: int,
        *,
        have: Callable[[int], bool],
        is_available: Callable[[], bool],
    ) -> None:
        """`have(change)`: whether enough replicas have it; `is_available()`: whether they are there."""
        self._clock = clock
        self._timeout = timeout_ms / 1000
        self._have = have
        self._is_available = is_available
        self._waiting: deque[_Waiting] = deque()
        self._timer: Timer | None = None
        self.newest = 0
        """The number of the last change."""
        self.told = 0
        """Somebody was told that everything up to this change is made; whoever leads next should have it."""

    def changed(self) -> int:
        self.newest += 1
        return self.newest

    def begin_term(self) -> None:
        """Of what is in the tables now another master may have told somebody."""
        self.told = self.changed()

    def when_copied(self, then: Then) -> None:
        """Call `then` when enough replicas have all that is in the tables now; with OK, or why not."""
        self._waiting.append(_Waiting(self.newest, self._clock.monotonic() + self._timeout, then))
        self.look()

    def look(self) -> None:
        """Replicas have copied something, came or went: whoever can be told now is."""
        waiting = self._waiting
        while waiting:
            if self._have(waiting[0].change):
                self._tell_first(OK)
            elif not self._is_available():
                self._tell_first(SLAVE_NOT_AVAILABLE)
            else:
                break
        if waiting and self._timer is None:
            self._timer = self._clock.later(waiting[0].deadline - self._clock.monotonic(), self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        while self._waiting and self._waiting[0].deadline <= now:
            self._tell_first(FLUSH_SLAVE_TIMEOUT)
        self.look()

    def _tell_first(self, status: StoreStatus) -> None:
        first = self._waiting.popleft()
        self.told = max(self.told, first.change)
        first.then(status)

    def release(self, status: StoreStatus = FLUSH_SLAVE_TIMEOUT) -> None:
        """This broker leads no more: it does not know."""
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.then(status)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
