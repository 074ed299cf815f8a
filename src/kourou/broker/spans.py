"""What went through in the last minute, hour and day, by the names admin tools ask for.

    minute   7 looks, one every 10 s        hour   7 looks, one every 10 min       day   25 looks, one an hour

as the original takes them. A look holds all totals of `Stats`; a figure is the difference between now and the
oldest look of its span.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Final, NamedTuple

from kourou.broker.stats import Flow, Look, Stats
from kourou.doors.clock import Clock, Timer
from kourou.protocol.admin_bodies import StatsSnapshot

_SPANS: Final = ((10.0, 7), (600.0, 7), (3600.0, 25))
"""Seconds between two looks, and how many are kept."""


class _Look(NamedTuple):
    at: float
    totals: Look


class Spans:
    """Figures over the last minute, hour and day."""

    def __init__(self, stats: Stats, clock: Clock, cluster: str) -> None:
        self._stats = stats
        self._clock = clock
        self._cluster = cluster
        self._looks: tuple[deque[_Look], ...] = tuple(deque(maxlen=kept) for _, kept in _SPANS)
        self._timers: list[Timer] = []
        for index in range(len(_SPANS)):
            self.look(index)  # somebody may ask before the first ten seconds are over

    def start(self) -> None:
        for index, (seconds, _) in enumerate(_SPANS):
            self._timers.append(self._clock.every(seconds, partial(self.look, index)))

    def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def look(self, index: int) -> None:
        """Remember how things stand, for one of the spans."""
        self._looks[index].append(_Look(self._clock.monotonic(), self._stats.look()))

    def of(self, name: str, key: str) -> tuple[StatsSnapshot, StatsSnapshot, StatsSnapshot] | None:
        """Minute, hour, day of one figure; None when nothing of the kind was ever counted."""
        total = self._total(None, name, key)
        if total is None:
            return None
        minute, hour, day = (self._since(looks[0], total, name, key) for looks in self._looks)
        return minute, hour, day

    def _since(self, before: _Look, total: int, name: str, key: str) -> StatsSnapshot:
        passed = max(1.0, self._clock.monotonic() - before.at)
        count = total - (self._total(before.totals, name, key) or 0)
        return StatsSnapshot(sum=count, tps=count / passed, avgpt=0.0)

    def _total(self, look: Look | None, name: str, key: str) -> int | None:
        """One figure as it stood at `look`, or as it stands now."""
        topic, _, group = key.rpartition("@")
        if name in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"):
            return _part(self._stats.put_to(key, look), name)
        if name in ("GROUP_GET_NUMS", "GROUP_GET_SIZE"):
            return _part(self._stats.got_from(topic, group, look), name)
        if key != self._cluster:
            return None
        if name == "BROKER_PUT_NUMS":
            return self._stats.put_total.messages if look is None else look.put_messages
        if name == "BROKER_GET_NUMS":
            return self._stats.got_total.messages if look is None else look.got_messages
        return None


def _part(flow: Flow | None, name: str) -> int | None:
    if flow is None:
        return None
    return flow.size_bytes if name.endswith("_SIZE") else flow.messages
