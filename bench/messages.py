"""Send, pull, deliver: rates, latencies, the broker's CPU a message; ours and Apache's in alternating rounds.

Most cases have two brokers, ours and Apache's; the main ones have a third, a newer one of Apache's, which
runs only as long as it takes part: even an idle JVM takes its share of two cores. Those that wait for the
disk have a pair of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import generator
from bench.process import cpu_seconds, let_disk_rest
from bench.servers import APACHE, NEWER_VERSION, OURS, Server, apache_broker, brokers, make_topic

QUEUES = 8
PULL_MESSAGES = 32
PULL_TAGS = 10
SEND_TOPIC, PULL_TOPIC, DELIVER_TOPIC = "BenchSend", "BenchPull", "BenchDeliver"
ASYNC, SYNC = "ASYNC_FLUSH", "SYNC_FLUSH"
DELIVERED_A_SECOND = 1000


@dataclass(frozen=True)
class Case:
    """`connections` x `depth` requests in flight; a delivery has a sender and a reader, and a fixed rate."""

    name: str
    kind: str
    connections: int
    depth: int
    body_bytes: int = 1024
    wanted: tuple[str, str] = ("TAG", "*")
    flush: str = ASYNC
    is_main: bool = False
    """The newer of Apache's brokers is measured, too."""


CASES = (
    Case("send 64x16, 1 KiB", "send", 64, 16, is_main=True),
    Case("send 64x1, 1 KiB", "send", 64, 1, is_main=True),
    Case("send 4x64, 1 KiB", "send", 4, 64),
    Case("send 1x1, 1 KiB", "send", 1, 1),
    Case("send 64x16, 128 B", "send", 64, 16, 128),
    Case("send 64x1, 128 B", "send", 64, 1, 128),
    Case("send 64x16, 1 KiB, sync", "send", 64, 16, flush=SYNC),
    Case("send 64x1, 1 KiB, sync", "send", 64, 1, flush=SYNC),
    Case("pull 16x1, 32 each", "pull", 16, 1, is_main=True),
    Case("pull 16x4, 32 each", "pull", 16, 4, is_main=True),
    Case("pull 16x1, 1 tag of 10", "pull", 16, 1, wanted=("TAG", "TagD")),
    Case("pull 16x1, SQL92, 1 of 10", "pull", 16, 1, wanted=("SQL92", "kind = 3")),
    Case("deliver 1,000 a second", "deliver", 1, 1, is_main=True),
)


@dataclass(frozen=True)
class Figures:
    """Medians over the rounds. Rates are messages a second; latencies are of requests, in microseconds, or
    of deliveries: from the send to the message at its reader."""

    rate: float
    p50: float
    p99: float
    cpu_us: float


class Measured(NamedTuple):
    """Case -> system -> figures; and case -> our rate to Apache's, round by round, when it was there."""

    figures: dict[str, dict[str, Figures]]
    ratios: dict[str, list[float]]


def measure(
    folder: Path,
    *,
    cases: tuple[Case, ...],
    rounds: int,
    seconds: float,
    stored: int,
    with_apache: bool,
    tell: Callable[[str], None],
) -> Measured:
    """`stored` messages are there to be pulled."""
    measured = Measured({}, {})

    def compare(case: Case, systems: list[Server]) -> None:
        runs = _rounds(case, systems, rounds, seconds)
        figures = {name: _medians(taken) for name, taken in runs.items()}
        measured.figures[case.name] = figures
        if APACHE in runs:
            measured.ratios[case.name] = _ratios(runs[OURS], runs[APACHE])
        tell(f"{case.name}: " + ", ".join(f"{n} {f.rate:,.0f}/s" for n, f in figures.items()))

    usual = [case for case in cases if case.flush == ASYNC]
    if usual:
        main = [case for case in usual if case.is_main]
        with brokers(folder / "usual", with_apache) as systems:
            _warm_up(systems, seconds, stored, tell)
            with _newer(folder / "newer", wanted=bool(main) and with_apache) as newer:
                _warm_up(newer, seconds, stored, tell)
                for case in main:
                    compare(case, systems + newer)
            # What is pulled was stored first. Whoever takes more in until then has it further behind, and by
            # RocketMQ's rule gives 8 messages instead of 32 from behind 40 % of memory: so pulls come first.
            others = [case for case in usual if not case.is_main]
            for case in sorted(others, key=lambda case: case.kind != "pull"):
                compare(case, systems)
    synced = [case for case in cases if case.flush == SYNC]
    if synced:
        with brokers(folder / "synced", with_apache, flushDiskType=SYNC) as systems:
            _warm_up(systems, seconds, 0, tell)
            for case in synced:
                compare(case, systems)
    return Measured({case.name: measured.figures[case.name] for case in cases}, measured.ratios)


@contextmanager
def _newer(folder: Path, *, wanted: bool) -> Iterator[list[Server]]:
    """The newer of Apache's brokers, or none."""
    with apache_broker(NEWER_VERSION, folder) if wanted else nullcontext() as broker:
        yield [broker] if broker else []


Runs = dict[str, list[tuple[generator.Run, float]]]


def _rounds(case: Case, systems: list[Server], rounds: int, seconds: float) -> Runs:
    runs: Runs = {system.system: [] for system in systems}
    for number in range(rounds):
        # Whoever runs second finds a warmer or a dirtier machine: take turns.
        for system in systems if number % 2 == 0 else reversed(systems):
            runs[system.system].append(_one(case, system, seconds, number))
    return runs


def _warm_up(systems: list[Server], seconds: float, stored: int, tell: Callable[[str], None]) -> None:
    """A JVM compiles what it runs often: let it, and fill what will be pulled."""
    for system in systems:
        tell(f"warming up {system.system}")
        make_topic(system, SEND_TOPIC, QUEUES)
        generator.send(system.address, 64, 16, 2 * seconds, SEND_TOPIC, QUEUES, 1024)
        if stored:
            make_topic(system, PULL_TOPIC, QUEUES)
            generator.fill(system.address, stored, PULL_TOPIC, QUEUES, 1024, PULL_TAGS)
            generator.pull(system.address, 16, 1, seconds, PULL_TOPIC, QUEUES, PULL_MESSAGES)


def _one(case: Case, system: Server, seconds: float, number: int) -> tuple[generator.Run, float]:
    """One round; once more, and longer, when a machine that stalls let nothing happen in it."""
    if case.kind == "deliver":
        make_topic(system, f"{DELIVER_TOPIC}{number}", QUEUES)
    for longer in (1, 5, 25):
        run, cpu_us = _tried(case, system, seconds * longer, number)
        if run.handled:
            break
    return run, cpu_us


def _tried(case: Case, system: Server, seconds: float, number: int) -> tuple[generator.Run, float]:
    let_disk_rest()
    before = cpu_seconds(system.pid)
    shape = (case.connections, case.depth, seconds)
    if case.kind == "send":
        run = generator.send(system.address, *shape, SEND_TOPIC, QUEUES, case.body_bytes)
    elif case.kind == "pull":
        run = generator.pull(system.address, *shape, PULL_TOPIC, QUEUES, PULL_MESSAGES, case.wanted)
    else:
        topic = f"{DELIVER_TOPIC}{number}"
        run = generator.deliver(system.address, DELIVERED_A_SECOND, seconds, topic, QUEUES, case.body_bytes)
    return run, (cpu_seconds(system.pid) - before) / max(run.handled, 1) * 1e6


def _medians(taken: list[tuple[generator.Run, float]]) -> Figures:
    return Figures(
        rate=median(run.rate for run, _ in taken),
        p50=median(run.p50 for run, _ in taken),
        p99=median(run.p99 for run, _ in taken),
        cpu_us=median(cpu for _, cpu in taken),
    )


def _ratios(
    ours: list[tuple[generator.Run, float]], theirs: list[tuple[generator.Run, float]]
) -> list[float]:
    return [mine.rate / other.rate for (mine, _), (other, _) in zip(ours, theirs, strict=True)]


def ceiling(cases: tuple[Case, ...], seconds: float) -> dict[str, float]:
    """What the generator itself reaches against a server that does nothing, by case."""
    with generator.null_server() as address:
        return {
            case.name: generator.send(
                address, case.connections, case.depth, seconds, SEND_TOPIC, QUEUES, case.body_bytes
            ).rate
            for case in cases
            if case.kind == "send" and case.flush == ASYNC
        }


def as_json(figures: dict[str, dict[str, Figures]]) -> dict[str, Any]:
    return {case: {system: asdict(values) for system, values in row.items()} for case, row in figures.items()}
