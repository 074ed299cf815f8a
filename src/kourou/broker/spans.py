"""What went through in the last minute, hour and day, by the names admin tools ask for.

    minute   7 looks, one every 10 s        hour   7 looks, one every 10 min       day   25 looks, one an hour

as the original takes them. A look is a copy of the totals of `Stats`; a figure is the difference between now
and the oldest look of its span.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from kourou.broker.stats import Flow, Stats
from kourou.doors.clock import Clock, Timer
from kourou.protocol.admin_bodies import StatsSnapshot

_SPANS: Final = ((10.0, 7), (600.0, 7), (3600.0, 25))
"""Seconds between two looks, and how many are kept."""

NOTHING: Final = Flow(0, 0)


class _Look(NamedTuple):
    at: float
    put: Mapping[str, Flow]
    got: Mapping[tuple[str, str], Flow]


class Spans:
    """Figures over the last minute, hour and day."""

    def __init__(self, stats: Stats, clock: Clock, cluster: str) -> None:
        self._stats = stats
        self._clock = clock
        self._cluster = cluster
        self._looks: tuple[deque[_Look], ...] = tuple(deque(maxlen=kept) for _, kept in _SPANS)
        self._timers: list[Timer] = []

    def start(self) -> None:
        for index, (seconds, _) in enumerate(_SPANS):
            self.look(index)
            self._timers.append(self._clock.every(seconds, partial(self.look, index)))

    def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def look(self, index: int) -> None:
        """Remember how things stand, for one of the spans."""
        self._looks[index].append(self._now())

    def _now(self) -> _Look:
        return _Look(self._clock.monotonic(), self._stats.put_by_topic, self._stats.got_by_topic_and_group)

    def of(self, name: str, key: str) -> tuple[StatsSnapshot, StatsSnapshot, StatsSnapshot] | None:
        """Minute, hour, day of one figure; None when nothing of the kind was ever counted."""
        now = self._now()
        if self._total(now, name, key) is None:
            return None
        minute, hour, day = (self._since(looks, now, name, key) for looks in self._looks)
        return minute, hour, day

    def _since(self, looks: deque[_Look], now: _Look, name: str, key: str) -> StatsSnapshot:
        before = looks[0] if looks else now
        passed = max(1.0, now.at - before.at)
        count = (self._total(now, name, key) or 0) - (self._total(before, name, key) or 0)
        return StatsSnapshot(sum=count, tps=count / passed, avgpt=0.0)

    def _total(self, look: _Look, name: str, key: str) -> int | None:
        topic, _, group = key.rpartition("@")
        if name in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"):
            return _part(look.put.get(key), name)
        if name in ("GROUP_GET_NUMS", "GROUP_GET_SIZE"):
            return _part(look.got.get((topic, group)), name)
        if key != self._cluster:
            return None
        if name == "BROKER_PUT_NUMS":
            return sum(flow.messages for flow in look.put.values())
        if name == "BROKER_GET_NUMS":
            return sum(flow.messages for flow in look.got.values())
        return None


def _part(flow: Flow | None, name: str) -> int | None:
    if flow is None:
        return None
    return flow.size_bytes if name.endswith("_SIZE") else flow.messages
