"""Which brokers to avoid, and how long: what a producer learns from how its sends went.

Off by default, as in the original (`sendLatencyFaultEnable`). Each try leaves an item behind: how long it
took, and until when its broker is avoided. A failure counts as a very slow try.

    latency  < 50   50   100   550    1000    2000    3000    15000 ms
    4.9        0     0     0   30 s   60 s   120 s   180 s    600 s      a failure counts as 30 s
    latency  < 50   50   100   550    1800    3000    5000    15000 ms
    5.x        0     0     0    2 s    5 s     6 s    10 s     30 s      a failure counts as 10 s

A broker nobody has tried is available. When every broker is avoided one of the better half is taken all the
same, in turn: better is who is available again, then who was faster, then who is avoided for less long.
Nothing here waits or reads a clock: times are handed in, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from threading import Lock
from typing import NamedTuple

from kourou.client.queue_choice import Turns
from kourou.client.routes import Route
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock
from kourou.protocol.bodies import MessageQueue

PROBE_SECONDS = 2.0
"""How often a broker that could not be reached is asked whether it can be now (5.x, optional)."""
PROBE_TIMEOUT_SECONDS = 0.2


class FaultTable(NamedTuple):
    """How long a broker is avoided after a try of a certain latency; all in milliseconds."""

    latencies: tuple[int, ...]
    avoided: tuple[int, ...]
    failure: int
    """The latency a failed try counts as."""
    keeps_longest: bool
    """A later, faster try does not end the time a broker is avoided for."""


TABLE_4_9 = FaultTable(
    (50, 100, 550, 1000, 2000, 3000, 15000), (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000), 30_000, False
)
TABLE_5 = FaultTable(
    (50, 100, 550, 1800, 3000, 5000, 15000), (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000), 10_000, True
)
TABLES = {"4.9": TABLE_4_9, "5": TABLE_5}


def avoided_ms(table: FaultTable, latency_ms: float, failed: bool) -> int:
    """How long a broker is avoided after a try that took so long."""
    counted = table.failure if failed else latency_ms
    for least, avoided in zip(reversed(table.latencies), reversed(table.avoided), strict=True):
        if counted >= least:
            return avoided
    return 0


class FaultItem(NamedTuple):
    """What is known of a broker from its last try."""

    broker_name: str
    latency_ms: float
    available_from_ms: float
    is_reachable: bool = True

    def is_available(self, now_ms: float) -> bool:
        return now_ms >= self.available_from_ms


def after_try(
    before: FaultItem | None,
    table: FaultTable,
    broker_name: str,
    now_ms: float,
    latency_ms: float,
    failed: bool,
    is_reachable: bool = True,
) -> FaultItem:
    """What is known of a broker after one more try."""
    available_from_ms = now_ms + avoided_ms(table, latency_ms, failed)
    if table.keeps_longest and before is not None:
        available_from_ms = max(available_from_ms, before.available_from_ms)
    return FaultItem(broker_name, latency_ms, available_from_ms, is_reachable)


def better_half(items: Sequence[FaultItem], now_ms: float) -> list[FaultItem]:
    """The brokers to take when all are to be avoided: at least one, if there is any."""
    ranked = sorted(
        items, key=lambda item: (not item.is_available(now_ms), item.latency_ms, item.available_from_ms)
    )
    return ranked[: max(1, len(ranked) // 2)]


class Faults:
    """Chooses queues by what was learnt. Any number of threads may ask and tell."""

    def __init__(
        self, table: FaultTable, turns: Turns, clock: Clock, chance: Chance, probes: bool = False
    ) -> None:
        """With `probes`, a broker that could not be reached stays avoided until a probe has found it."""
        self._table = table
        self._probes = probes
        self._turns = turns
        self._clock = clock
        self._items: dict[str, FaultItem] = {}
        self._lock = Lock()
        self._worst = count(chance.randrange(1 << 31))
        self.first_unreachable: Callable[[], None] | None = None
        """Is told, once, that there is something to probe."""

    def tried(self, broker_name: str, seconds: float, failed: bool, unreachable: bool = False) -> None:
        """A try at this broker took so long, and may have failed, because it was not there."""
        now_ms, is_reachable = self._now_ms(), not (unreachable and self._probes)
        with self._lock:
            before = self._items.get(broker_name)
            self._items[broker_name] = after_try(
                before, self._table, broker_name, now_ms, seconds * 1000, failed, is_reachable
            )
            begin = None if is_reachable else self.first_unreachable
            if begin is not None:
                self.first_unreachable = None
        if begin is not None:
            begin()

    def choose(self, route: Route, failed: MessageQueue | None) -> MessageQueue:
        """The next queue in turn whose broker is available; one of the better half when there is none."""
        queues, now_ms = route.write_queues, self._now_ms()
        counter = self._turns.counter(route.topic)
        start = next(counter)
        for step in range(len(queues)):
            queue = queues[(start + step) % len(queues)]
            if self.is_available(queue.broker_name, now_ms):
                return queue
        return self._at_least_one(route, next(counter)) or self._turns.choose(queues)

    def is_available(self, broker_name: str, now_ms: float | None = None) -> bool:
        item = self._items.get(broker_name)
        if item is None:
            return True
        return item.is_reachable and item.is_available(self._now_ms() if now_ms is None else now_ms)

    def unreachable(self) -> list[str]:
        """The brokers to be probed."""
        return [item.broker_name for item in list(self._items.values()) if not item.is_reachable]

    def reached(self, broker_name: str) -> None:
        """A probe found this broker there."""
        with self._lock:
            item = self._items.get(broker_name)
            if item is not None:
                self._items[broker_name] = item._replace(is_reachable=True)

    def _at_least_one(self, route: Route, turn: int) -> MessageQueue | None:
        """A queue of a broker that is to be avoided; a broker that has none of this topic is forgotten."""
        better = better_half(list(self._items.values()), self._now_ms())
        if not better:
            return None
        name = better[next(self._worst) % len(better)].broker_name
        writable = [queue for queue in route.write_queues if queue.broker_name == name]
        if writable:
            return writable[turn % len(writable)]
        with self._lock:
            self._items.pop(name, None)
        return None

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000
