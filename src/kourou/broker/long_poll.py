"""Readers that wait for a message.

A pull that finds nothing new is parked here under its queue, and answered by whichever comes first: a
message it wants, or its time. While it waits it costs nothing but its place in a list. A filtered reader
that was woken for a message it does not want keeps waiting, from behind that message on, so that nobody is
answered with nothing.

One large message may wake hundreds, and all their answers at once would fill the server's memory. So nobody
is asked whose answer could not go out soon (`has_room`): those stay where they are, and are looked at again
in a moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kourou.doors.clock import Clock, Timer

SWEEP_SECONDS: Final = 0.5
"""How often deadlines are looked at; a reader's own time-out is many seconds behind its deadline."""

HOLD_SECONDS: Final = 0.02
"""How soon those are asked again whose answers had no room; what one tick may answer has then gone out."""

logger = logging.getLogger(__name__)


class Waiting:
    """One parked reader.

    `retry(last)` looks again and answers if it can; it returns True when it has answered. With `last` it
    answers in any case.
    """

    __slots__ = ("deadline", "has_room", "is_gone", "retry")

    def __init__(
        self,
        deadline: float,
        retry: Callable[[bool], bool],
        is_gone: Callable[[], bool],
        has_room: Callable[[], bool],
    ) -> None:
        self.deadline = deadline
        self.retry = retry
        self.is_gone = is_gone
        self.has_room = has_room


class LongPoll:
    """All parked readers of a broker, by queue."""

    def __init__(self, clock: Clock, parked_max: int = 100_000) -> None:
        self._clock = clock
        self._parked_max = parked_max
        self._parked: dict[tuple[str, int], list[Waiting]] = {}
        self._count = 0
        self._sweeper: Timer | None = None
        self._held: dict[tuple[str, int], None] = {}  # where somebody had no room, in this order
        self._holding: Timer | None = None
        self.why_not: Callable[[], str | None] = lambda: None
        """Why nobody may be told of a message now; None when all may."""

    def __len__(self) -> int:
        return self._count

    def start(self) -> None:
        self._sweeper = self._clock.every(SWEEP_SECONDS, self.sweep)

    def stop(self) -> None:
        """Answer everybody who still waits: the broker is going down."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None
        parked, self._parked, self._count = self._parked, {}, 0
        for readers in parked.values():
            for waiting in readers:
                if not waiting.is_gone() and self.why_not() is None:
                    _answered(waiting, True)

    def park(self, topic: str, queue_id: int, waiting: Waiting) -> bool:
        """Let `waiting` wait; False when there is no room for one more."""
        if self._count >= self._parked_max:
            return False
        self._parked.setdefault((topic, queue_id), []).append(waiting)
        self._count += 1
        return True

    def wake(self, topic: str, queue_id: int) -> None:
        """Something new is readable in this queue."""
        self._wake((topic, queue_id))

    def sweep(self) -> None:
        """Answer those whose time is up, forget those whose connection is gone."""
        now = self._clock.monotonic()
        for key in [key for key, readers in self._parked.items() if _any_ends(readers, now)]:
            readers = self._parked.pop(key)
            self._count -= len(readers)
            self._keep(key, [each for each in readers if not self._ended(each, now)])

    def _wake(self, key: tuple[str, int]) -> None:
        readers = self._parked.pop(key, None)
        if readers is not None:
            self._count -= len(readers)
            self._keep(key, [each for each in readers if not each.is_gone() and not self._told(key, each)])

    def _told(self, key: tuple[str, int], waiting: Waiting) -> bool:
        if waiting.has_room() and self.why_not() is None:
            return _answered(waiting, False)
        self._held[key] = None
        if self._holding is None:
            self._holding = self._clock.later(HOLD_SECONDS, self._go_on)
        return False

    def _go_on(self) -> None:
        """What was written has had a moment to go out."""
        self._holding = None
        held, self._held = self._held, {}
        for key in held:
            self._wake(key)

    def _ended(self, waiting: Waiting, now: float) -> bool:
        """Whose time is up has to wait for room all the same: what would be answered now would be dropped."""
        if waiting.is_gone():
            return True
        if waiting.deadline > now or not waiting.has_room() or self.why_not() is not None:
            return False
        return _answered(waiting, True)

    def _keep(self, key: tuple[str, int], readers: list[Waiting]) -> None:
        if readers:
            self._parked.setdefault(key, []).extend(readers)
            self._count += len(readers)


def _answered(waiting: Waiting, last: bool) -> bool:
    """Whether this reader waits no more; one that fails does not, and does not take the others along."""
    try:
        return waiting.retry(last)
    except Exception:
        logger.exception("a waiting pull could not be answered")
        return True


def _any_ends(readers: list[Waiting], now: float) -> bool:
    return any(each.deadline <= now or each.is_gone() for each in readers)
