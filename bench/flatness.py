"""Does a message cost the same when there is much of everything? CPU of our broker for a send.

    messages stored            10,000 -> 10,000,000   64 connections x 16 in flight, as below
    topics, 8 queues each           1 -> 1,000        sends go round all of them
    timers pending                  0 -> 1,000,000    due tomorrow
    connections, 1 in flight        1 -> 1,000        one alone pays for each turn of the broker's loop,
    connections, 1 in flight       64 -> 1,000        so that the second row says more

Opening connections is part of what they cost. Both sides take turns, and a round's cost is compared with that
of the same round.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import generator
from bench.folders import stored_folder
from bench.process import cpu_seconds, let_disk_rest
from bench.servers import OUR_SETTINGS, OURS, Server, make_topic
from tests.kourou_process import serving_broker

TOPIC, QUEUES, BODY_BYTES = "BenchFlat", 8, 1024
MANY_TOPICS, TIMER_TOPIC = "BenchFlat-", "BenchTimers"
WARM_UP_MESSAGES = 10_000
DAY_MS = 24 * 3600 * 1000
TRIES_MAX = 5


@dataclass(frozen=True)
class Sizes:
    stored: tuple[int, int] = (10_000, 10_000_000)
    topics: int = 1_000
    timers: int = 1_000_000
    connections: tuple[tuple[int, int], ...] = ((1, 1_000), (64, 1_000))


USUAL = Sizes()
QUICK = Sizes((1_000, 20_000), 10, 1_000, ((1, 20),))


@dataclass(frozen=True)
class Figures:
    """Of one axis: CPU microseconds of a send, medians; and many to few, round by round."""

    axis: str
    few: int
    many: int
    few_us: float
    many_us: float
    ratios: list[float]

    @property
    def ratio(self) -> float:
        return median(self.ratios)


@dataclass(frozen=True)
class Side:
    """A load on a broker."""

    server: Server
    connections: int = 64
    depth: int = 16
    topic: str = TOPIC
    topics: int | None = None


def measure(
    folder: Path, sizes: Sizes, *, rounds: int, seconds: float, tell: Callable[[str], None]
) -> list[Figures]:
    """`folder` may have stores of these sizes already."""
    figures: list[Figures] = []

    def compare(axis: str, few: int, many: int, sides: tuple[Side, Side]) -> None:
        figures.append(_compared(axis, few, many, sides, rounds, seconds))
        tell(shown(figures[-1]))

    with ExitStack() as stack:
        few_stored, many_stored = sizes.stored
        plain = _broker(stack, stored_folder(folder, few_stored, tell))
        full = _broker(stack, stored_folder(folder, many_stored, tell))
        compare("messages stored", few_stored, many_stored, (Side(plain), Side(full)))
        for few, many in sizes.connections:
            compare("connections, 1 in flight", few, many, (Side(plain, few, 1), Side(plain, many, 1)))
        tell(f"{sizes.timers:,} timers")
        waiting = _broker(stack, folder / "timers")
        make_topic(waiting, TIMER_TOPIC, QUEUES)
        due_ms = int(time.time() * 1000) + DAY_MS
        generator.fill_timers(waiting.address, sizes.timers, TIMER_TOPIC, QUEUES, 128, due_ms)
        compare("timers pending", 0, sizes.timers, (Side(plain), Side(waiting)))
        tell(f"{sizes.topics:,} topics")
        for number in range(sizes.topics):
            make_topic(plain, f"{MANY_TOPICS}{number}", QUEUES)
        everywhere = Side(plain, topic=MANY_TOPICS, topics=sizes.topics)
        compare("topics, 8 queues each", 1, sizes.topics, (Side(plain), everywhere))
    return figures


def _broker(stack: ExitStack, folder: Path) -> Server:
    folder.mkdir(parents=True, exist_ok=True)
    running = stack.enter_context(serving_broker(folder, settings=OUR_SETTINGS))
    server = Server(OURS, running.address("listens on"), running.pid)
    make_topic(server, TOPIC, QUEUES)
    return server


def _compared(
    axis: str, few: int, many: int, sides: tuple[Side, Side], rounds: int, seconds: float
) -> Figures:
    costs: tuple[list[float], list[float]] = ([], [])
    for side in sides:
        _warm_up(side)
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            costs[which].append(_cost_us(sides[which], seconds))
    ratios = [cost / base for base, cost in zip(*costs, strict=True)]
    return Figures(axis, few, many, median(costs[0]), median(costs[1]), ratios)


def _warm_up(side: Side) -> None:
    """A queue's first message makes its file: two for each of them."""
    count = max(WARM_UP_MESSAGES, 2 * QUEUES * (side.topics or 1))
    generator.fill(side.server.address, count, side.topic, QUEUES, BODY_BYTES, 1, topics=side.topics)


def _cost_us(side: Side, seconds: float) -> float:
    for _ in range(TRIES_MAX):
        let_disk_rest()
        before = cpu_seconds(side.server.pid)
        run = _sent(side, seconds)
        if run.handled:
            # The kernel counts in hundredths of a second; a quick run may see none.
            return max(cpu_seconds(side.server.pid) - before, 0.01) / run.handled * 1e6
    raise generator.GeneratorFailed(f"no send was answered in {seconds:g} s, {TRIES_MAX} times")


def _sent(side: Side, seconds: float) -> generator.Run:
    return generator.send(
        side.server.address,
        side.connections,
        side.depth,
        seconds,
        side.topic,
        QUEUES,
        BODY_BYTES,
        topics=side.topics,
    )


def shown(row: Figures) -> str:
    return (
        f"{row.few:,} -> {row.many:,} {row.axis}: {row.few_us:.1f} -> {row.many_us:.1f} CPU µs a send, "
        f"{row.ratio:.2f}x"
    )


def as_json(figures: list[Figures]) -> list[dict[str, Any]]:
    return [asdict(row) for row in figures]


def from_json(rows: list[dict[str, Any]]) -> list[Figures]:
    return [Figures(**row) for row in rows]
