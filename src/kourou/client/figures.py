"""How fast a consumer is with a topic: what administrators see in its running info.

Sums are kept for slices of time, and what is asked for is the sum over the last minute or hour: so counting
is an addition, and a rate needs no timer. A consumer that is younger says what it has.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from kourou.doors.clock import Clock
from kourou.protocol.bodies import TopicConsumption

MINUTE = 60.0
HOUR = 3600.0


class Sums(NamedTuple):
    times: int
    total: float
    seconds: float
    """The time they are over."""

    @property
    def per_second(self) -> float:
        return self.total / self.seconds

    @property
    def average(self) -> float:
        return self.total / self.times if self.times else 0.0


class Window:
    """How often something happened in the last `seconds`, and how much it was in all."""

    __slots__ = ("_seconds", "_slices", "_started_at", "_step")

    def __init__(self, seconds: float, started_at: float, slices: int = 6) -> None:
        self._seconds = seconds
        self._step = seconds / slices
        self._started_at = started_at
        self._slices: deque[list[float]] = deque(maxlen=slices + 1)  # number, times, total

    def add(self, now: float, total: float, times: int = 1) -> None:
        number = now // self._step
        if self._slices and self._slices[-1][0] == number:
            last = self._slices[-1]
            last[1] += times
            last[2] += total
        else:
            self._slices.append([number, times, total])

    def sums(self, now: float) -> Sums:
        since = now // self._step - self._seconds / self._step
        counted = [each for each in self._slices if each[0] > since]
        # The last slice is still growing: the window is as long as what is in it.
        seconds = min(now - self._started_at, self._seconds - self._step + now % self._step)
        return Sums(
            int(sum(each[1] for each in counted)), sum(each[2] for each in counted), max(seconds, 1.0)
        )


class TopicFigures:
    """What became of one topic's messages. Belongs to the event loop."""

    __slots__ = (
        "_clock",
        "_failed",
        "_failed_in_hour",
        "_handled_ms",
        "_handled_ms_in_hour",
        "_ok",
        "_pull_ms",
        "_pulled",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        now = clock.monotonic()
        self._pull_ms = Window(MINUTE, now)
        self._pulled = Window(MINUTE, now)
        self._handled_ms = Window(MINUTE, now)
        self._handled_ms_in_hour = Window(HOUR, now)
        self._ok = Window(MINUTE, now)
        self._failed = Window(MINUTE, now)
        self._failed_in_hour = Window(HOUR, now)

    def pulled(self, messages: int, seconds: float) -> None:
        """A pull brought messages, and took so long."""
        now = self._clock.monotonic()
        self._pull_ms.add(now, seconds * 1000)
        self._pulled.add(now, messages)

    def called(self, times: int, seconds: float, done: int = 0) -> None:
        """Handlers were called, and took so long in all; so many messages are done with that."""
        now = self._clock.monotonic()
        self._handled_ms.add(now, seconds * 1000, times)
        self._handled_ms_in_hour.add(now, seconds * 1000, times)
        if done:
            self._ok.add(now, done)

    def done(self, messages: int) -> None:
        self._ok.add(self._clock.monotonic(), messages)

    def failed(self, messages: int) -> None:
        now = self._clock.monotonic()
        self._failed.add(now, messages)
        self._failed_in_hour.add(now, messages)

    def told(self) -> TopicConsumption:
        now = self._clock.monotonic()
        handled = self._handled_ms.sums(now)
        if not handled.times:
            handled = self._handled_ms_in_hour.sums(now)
        return TopicConsumption(
            pull_rt=self._pull_ms.sums(now).average,
            pull_tps=self._pulled.sums(now).per_second,
            consume_rt=handled.average,
            consume_ok_tps=self._ok.sums(now).per_second,
            consume_failed_tps=self._failed.sums(now).per_second,
            consume_failed_msgs=int(self._failed_in_hour.sums(now).total),
        )


class Figures:
    """Those of all topics of a consumer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics: dict[str, TopicFigures] = {}

    def of(self, topic: str) -> TopicFigures:
        figures = self._topics.get(topic)
        if figures is None:
            figures = self._topics[topic] = TopicFigures(self._clock)
        return figures

    def told(self) -> dict[str, TopicConsumption]:
        return {topic: figures.told() for topic, figures in sorted(self._topics.items())}
