"""Send and pull: rates, latencies, the broker's CPU per message; ours and Apache's in alternating rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import generator
from bench.process import cpu_seconds
from bench.servers import APACHE, OURS, Server, brokers, make_topic

QUEUES = 8
PULL_MESSAGES = 32
PULL_TAGS = 10
SEND_TOPIC, PULL_TOPIC = "BenchSend", "BenchPull"


@dataclass(frozen=True)
class Case:
    """`connections` x `depth` requests in flight."""

    name: str
    kind: str
    connections: int
    depth: int
    body_bytes: int = 1024
    wanted: tuple[str, str] = ("TAG", "*")


CASES = (
    Case("send 64x16, 1 KiB", "send", 64, 16),
    Case("send 64x1, 1 KiB", "send", 64, 1),
    Case("send 4x64, 1 KiB", "send", 4, 64),
    Case("send 64x16, 128 B", "send", 64, 16, 128),
    Case("pull 16x1, 32 each", "pull", 16, 1),
    Case("pull 16x4, 32 each", "pull", 16, 4),
    Case("pull 16x1, 1 tag of 10", "pull", 16, 1, wanted=("TAG", "TagD")),
    Case("pull 16x1, SQL92, 1 of 10", "pull", 16, 1, wanted=("SQL92", "kind = 3")),
)


@dataclass(frozen=True)
class Figures:
    """Medians over the rounds. Rates are messages a second; latencies are of requests, in microseconds."""

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
    figures: dict[str, dict[str, Figures]] = {}
    ratios: dict[str, list[float]] = {}
    with brokers(folder, with_apache) as systems:
        for system in systems:
            tell(f"warming up {system.system}")
            _warm_up(system, seconds, stored)
        for case in cases:
            runs: dict[str, list[tuple[generator.Run, float]]] = {system.system: [] for system in systems}
            for number in range(rounds):
                # Whoever runs second finds a warmer or a dirtier machine: take turns.
                for system in systems if number % 2 == 0 else reversed(systems):
                    runs[system.system].append(_one(case, system, seconds))
            figures[case.name] = {name: _medians(taken) for name, taken in runs.items()}
            if APACHE in runs:
                ratios[case.name] = _ratios(runs[OURS], runs[APACHE])
            tell(f"{case.name}: " + ", ".join(f"{n} {f.rate:,.0f}/s" for n, f in figures[case.name].items()))
    return Measured(figures, ratios)


def _warm_up(system: Server, seconds: float, stored: int) -> None:
    """A JVM compiles what it runs often: let it, and fill what will be pulled."""
    make_topic(system, SEND_TOPIC, QUEUES)
    make_topic(system, PULL_TOPIC, QUEUES)
    generator.send(system.address, 64, 16, 2 * seconds, SEND_TOPIC, QUEUES, 1024)
    generator.fill(system.address, stored, PULL_TOPIC, QUEUES, 1024, PULL_TAGS)
    generator.pull(system.address, 16, 1, seconds, PULL_TOPIC, QUEUES, PULL_MESSAGES)


def _one(case: Case, system: Server, seconds: float) -> tuple[generator.Run, float]:
    before = cpu_seconds(system.pid)
    shape = (case.connections, case.depth, seconds)
    if case.kind == "send":
        run = generator.send(system.address, *shape, SEND_TOPIC, QUEUES, case.body_bytes)
    else:
        run = generator.pull(system.address, *shape, PULL_TOPIC, QUEUES, PULL_MESSAGES, case.wanted)
    return run, (cpu_seconds(system.pid) - before) / run.handled * 1e6


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


def ceiling(seconds: float) -> dict[str, float]:
    """What the generator itself reaches against a server that does nothing, by case."""
    with generator.null_server() as address:
        return {
            case.name: generator.send(
                address, case.connections, case.depth, seconds, SEND_TOPIC, QUEUES, case.body_bytes
            ).rate
            for case in CASES
            if case.kind == "send"
        }


def as_json(figures: dict[str, dict[str, Figures]]) -> dict[str, Any]:
    return {case: {system: asdict(values) for system, values in row.items()} for case, row in figures.items()}
