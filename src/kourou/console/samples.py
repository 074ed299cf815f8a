"""What the charts show: how the cluster fared over the last hour, looked at every few seconds.

    every 5 s    each broker's own figures: one request a broker
    less often   how far all groups are: one request a broker, and never more than a twentieth of the time

It begins with the first page somebody opens, and rests when nobody has looked for a while.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass, field

from kourou.admin import Connection, brokers, cluster, groups
from kourou.admin.cluster import NodeState
from kourou.doors.clock import Clock
from kourou.errors import MQError
from kourou.protocol.names import RETRY_PREFIX

SAMPLE_SECONDS = 5.0
LAG_SECONDS = 15.0
LAG_SHARE_MAX = 0.05
KEPT = 720
"""An hour of them."""
REST_AFTER_SECONDS = 15 * 60.0

_log = logging.getLogger("kourou.console")


@dataclass(frozen=True)
class Sample:
    """The whole cluster at one moment: messages a second, and behind (None as long as that is not known)."""

    at_ms: int
    in_rate: float
    out_rate: float
    disk_ratio: float
    lag: int | None
    brokers_up: int
    brokers_known: int


@dataclass(frozen=True)
class Lags:
    """Messages behind, by group."""

    by_group: dict[str, int] = field(default_factory=dict)
    at_ms: int = 0

    @property
    def total(self) -> int:
        return sum(self.by_group.values())


class Sampler:
    """Looks by itself, in a thread of its own, while somebody is interested."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._samples: deque[Sample] = deque(maxlen=KEPT)
        self._states: list[NodeState] = []
        self._lags: Lags | None = None
        self._lag_due = 0.0
        self._totals: tuple[float, dict[str, tuple[int, int]]] = (0.0, {})
        self._wanted_at = clock.monotonic()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: str | None = None
        """Why the last look failed."""

    def samples(self) -> list[Sample]:
        """Those of the last hour, oldest first. Asking for them keeps the sampler awake."""
        self._want()
        return list(self._samples)

    def states(self) -> list[NodeState]:
        """All brokers as they were a moment ago; asked now when there was no look yet."""
        self._want()
        if not self._states:
            self.look()
        return self._states

    def lags(self) -> Lags | None:
        self._want()
        return self._lags

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(10.0)

    def _want(self) -> None:
        self._wanted_at = self._clock.monotonic()
        self._wake.set()
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="kourou-samples", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._clock.monotonic() - self._wanted_at > REST_AFTER_SECONDS:
                self._wake.clear()
                self._wake.wait()
                continue
            try:
                self.look()
            except Exception:  # the top of a loop: nothing may end it
                _log.exception("looking at the cluster failed")
            self._stop.wait(SAMPLE_SECONDS)

    def look(self) -> None:
        """Take one sample now."""
        try:
            states = cluster.state(self._connection)
        except MQError as error:
            self.error = str(error)
            return
        now = self._clock.monotonic()
        if now >= self._lag_due:
            self._look_at_lags(states, now)
        in_rate, out_rate = self._rates(states, now)
        known = [state.runtime for state in states if state.runtime is not None]
        self._samples.append(
            Sample(
                at_ms=self._clock.now_ms(),
                in_rate=in_rate,
                out_rate=out_rate,
                disk_ratio=max((runtime.disk_ratio for runtime in known), default=0.0),
                lag=self._lags.total if self._lags is not None else None,
                brokers_up=len(known),
                brokers_known=len(states),
            )
        )
        self._states = states
        self.error = None

    def _rates(self, states: list[NodeState], now: float) -> tuple[float, float]:
        """From the totals of this look and the last; a broker's own mean over ten seconds for the first."""
        totals = {
            state.node.address: (_total(state, "msgPutTotalTodayNow"), _total(state, "msgGetTotalTodayNow"))
            for state in states
            if state.runtime is not None and state.node.is_master
        }
        then, before = self._totals
        self._totals = now, totals
        common = totals.keys() & before.keys()
        if not common or now - then < 1.0:
            masters = [state.runtime for state in states if state.runtime and state.node.is_master]
            return sum(each.in_tps for each in masters), sum(each.out_tps for each in masters)
        seconds = now - then
        put, got = (sum(max(0, totals[at][n] - before[at][n]) for at in common) for n in (0, 1))
        return put / seconds, got / seconds

    def _look_at_lags(self, states: list[NodeState], now: float) -> None:
        by_group: dict[str, int] = {}
        for state in states:
            if state.runtime is None or not state.node.is_master:
                continue
            try:
                told = brokers.consume_stats(self._connection, state.node.address)
            except MQError as error:
                _log.info("how far groups are at %s is not known: %s", state.node.broker, error)
                continue
            for each in told.consume_stats_list:
                for group, topics in each.items():
                    if groups.is_system_group(group):
                        continue
                    for stats in topics:
                        for queue, progress in stats.offset_table.items():
                            if not queue.topic.startswith(RETRY_PREFIX):
                                behind = max(0, progress.broker_offset - progress.consumer_offset)
                                by_group[group] = by_group.get(group, 0) + behind
        self._lags = Lags(by_group, self._clock.now_ms())
        took = self._clock.monotonic() - now
        self._lag_due = now + max(LAG_SECONDS, took / LAG_SHARE_MAX)


def _total(state: NodeState, key: str) -> int:
    assert state.runtime is not None
    try:
        return int(state.runtime.table.get(key, "0"))
    except ValueError:
        return 0
