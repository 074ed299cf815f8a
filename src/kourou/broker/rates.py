"""How much a second: differences between what `Stats` says now and what it said a while ago.

Totals are looked at every ten seconds, so that counting stays one addition a message. A rate is over the time
that really passed between two looks; a broker younger than the time asked for says what it has.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from kourou.broker.stats import Flow, Look, Stats
from kourou.doors.clock import Clock, Timer

LOOK_SECONDS: Final = 10.0
MINUTE_LOOKS: Final = 6
KEPT_LOOKS: Final = 61
DAY_MS: Final = 24 * 3600 * 1000


class Pace:
    """How often something happens, over the last ten seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds: deque[list[int]] = deque(maxlen=int(LOOK_SECONDS))  # which one, and how often
        self.total = 0

    def note(self, times: int = 1) -> None:
        second = int(self._clock.monotonic())
        self.total += times
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1][1] += times
        else:
            self._seconds.append([second, times])

    def per_second(self) -> float:
        since = int(self._clock.monotonic()) - LOOK_SECONDS
        return sum(times for second, times in self._seconds if second > since) / LOOK_SECONDS


class _Look(NamedTuple):
    at: float
    put: int
    got: int


class _Tables(NamedTuple):
    at: float
    totals: Look


class DayTotals(NamedTuple):
    """Messages since the broker started, as they stood at the last two midnights (UTC)."""

    put_yesterday_morning: int = 0
    put_today_morning: int = 0
    got_yesterday_morning: int = 0
    got_today_morning: int = 0


class Rates:
    """Messages a second, put and got."""

    def __init__(self, stats: Stats, clock: Clock) -> None:
        self._stats = stats
        self._clock = clock
        self._timer: Timer | None = None
        self._looks: deque[_Look] = deque(maxlen=KEPT_LOOKS)
        self._tables: deque[_Tables] = deque(maxlen=MINUTE_LOOKS + 1)
        self.days = DayTotals()
        self._day = clock.now_ms() // DAY_MS
        self.look()  # somebody may ask before the first ten seconds are over

    def start(self) -> None:
        self._timer = self._clock.every(LOOK_SECONDS, self.look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Remember how things stand."""
        now = self._clock.monotonic()
        totals = self._stats.look()
        put, got = totals.put_messages, totals.got_messages
        self._looks.append(_Look(now, put, got))
        self._tables.append(_Tables(now, totals))
        day = self._clock.now_ms() // DAY_MS
        if day != self._day:
            self._day = day
            self.days = DayTotals(self.days.put_today_morning, put, self.days.got_today_morning, got)

    def put(self, seconds: float) -> float:
        """Messages stored a second, over about so long."""
        before, passed = self._before(seconds)
        return (self._stats.put_total.messages - before.put) / passed

    def got(self, seconds: float) -> float:
        before, passed = self._before(seconds)
        return (self._stats.got_total.messages - before.got) / passed

    def put_to(self, topic: str) -> float:
        """Messages stored a second in one topic, over about a minute."""
        before = self._tables[0]
        return self._rate(self._stats.put_to(topic), self._stats.put_to(topic, before.totals), before.at)

    def got_by(self, group: str, topic: str) -> float:
        before = self._tables[0]
        now = self._stats.got_from(topic, group)
        return self._rate(now, self._stats.got_from(topic, group, before.totals), before.at)

    def _rate(self, now: Flow | None, before: Flow | None, since: float) -> float:
        messages = (now.messages if now else 0) - (before.messages if before else 0)
        return messages / self._since(since)

    def _before(self, seconds: float) -> tuple[_Look, float]:
        """The last look that long ago, or the first of all; and how long ago it really was."""
        now = self._clock.monotonic()
        before = self._looks[0]
        for look in self._looks:
            if now - look.at < seconds:
                break
            before = look
        return before, self._since(before.at)

    def _since(self, at: float) -> float:
        return max(1.0, self._clock.monotonic() - at)
