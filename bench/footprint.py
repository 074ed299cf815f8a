"""What it takes to be there: memory of a name server and a broker at rest, a start, a restart after a kill.

    idle      MiB resident of a name server and a broker, a while after the start: of ours as `kourou start`
              runs them, in one process, and apart; of Apache's two JVMs
    start     from starting the broker, its folder empty, to the first acknowledged send
    restart   the same after `kill -9` under load with 10,000,000 messages stored; both brokers over the same
              folder, one after the other, each killed by itself first

Apache's heaps: 512 MiB for the broker, 256 MiB for the name server; all else as the JVM has it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import generator
from bench.folders import STORED_QUEUES, STORED_TOPIC, stored_folder
from bench.process import resident_mib
from bench.restart import send_one
from bench.servers import (
    APACHE,
    APACHE_VERSION,
    OUR_SETTINGS,
    OURS,
    PATIENT,
    SEGMENT_BYTES,
    Server,
    make_topic,
)
from kourou.errors import MQError
from tests.interop import apache, ours
from tests.kourou_process import serving_broker

OURS_APART = f"{OURS} in two processes"
HEAP = "512m"
STARTS, STARTS_QUICK = 3, 1
STORED, STORED_QUICK = 10_000_000, 20_000
LOAD_SECONDS, LOAD_SECONDS_QUICK = 3.0, 0.3
SETTLE_SECONDS, SETTLE_SECONDS_QUICK = 10.0, 0.5
FIRST_SEND_SECONDS_MAX = 300.0
LOAD_BODY_BYTES = 128


@dataclass(frozen=True)
class Figures:
    """By system: MiB, and milliseconds of each start."""

    stored: int
    idle_mib: dict[str, float] = field(default_factory=dict)
    start_ms: dict[str, list[float]] = field(default_factory=dict)
    restart_ms: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, what: str) -> float | None:
        """Ours to Apache's; None when that was not measured."""
        row = getattr(self, what)
        return _middle(row[OURS]) / _middle(row[APACHE]) if APACHE in row else None


class Kind(NamedTuple):
    """How a system's broker is started over a folder, and how a name server and a broker are, both idle."""

    system: str
    broker: Callable[[Path], AbstractContextManager[Server]]
    idle: Callable[[Path], AbstractContextManager[list[int]]]


def measure(folder: Path, *, quick: bool, with_apache: bool, tell: Callable[[str], None]) -> Figures:
    """`folder` may have a store of that size already."""
    figures = Figures(STORED_QUICK if quick else STORED)
    kinds = [Kind(OURS, _our_broker, _our_process)]
    if with_apache:
        kinds.append(Kind(APACHE, _apache_broker, _apache_processes))
    idle = {kind.system: kind.idle for kind in kinds} | {OURS_APART: _our_processes}
    for system, running in idle.items():
        with running(folder / "idle" / system) as processes:
            time.sleep(SETTLE_SECONDS_QUICK if quick else SETTLE_SECONDS)
            figures.idle_mib[system] = sum(map(resident_mib, processes))
    for number in range(STARTS_QUICK if quick else STARTS):
        for kind in kinds:
            started = _started_ms(kind, folder / "empty" / f"{kind.system}-{number}", "BenchFirst")
            figures.start_ms.setdefault(kind.system, []).append(started)
    stored = stored_folder(folder, figures.stored, tell)
    for kind in kinds:
        tell(f"{kind.system}: killed and started with {figures.stored:,} messages")
        figures.restart_ms[kind.system] = _restarts_ms(kind, stored, quick)
    for line in shown(figures).splitlines():
        tell(line)
    return figures


def _restarts_ms(kind: Kind, folder: Path, quick: bool) -> list[float]:
    seconds = LOAD_SECONDS_QUICK if quick else LOAD_SECONDS
    with kind.broker(folder) as broker:
        _until_acknowledged(broker.address, STORED_TOPIC)
        _load_at_the_end(broker, seconds)
    taken = []
    for _ in range(STARTS_QUICK if quick else STARTS):
        began = time.perf_counter()
        with kind.broker(folder) as broker:
            _until_acknowledged(broker.address, STORED_TOPIC)
            taken.append((time.perf_counter() - began) * 1000)
            _load_at_the_end(broker, seconds)
    return taken


def _started_ms(kind: Kind, folder: Path, topic: str) -> float:
    folder.mkdir(parents=True)
    began = time.perf_counter()
    with kind.broker(folder) as broker:
        _until_acknowledged(broker.address, topic)
        return (time.perf_counter() - began) * 1000


def _until_acknowledged(address: str, topic: str) -> None:
    """A broker of Apache's listens some time before it takes a message."""
    deadline = time.perf_counter() + FIRST_SEND_SECONDS_MAX
    while True:
        try:
            send_one(address, topic)
        except (AssertionError, MQError):
            if time.perf_counter() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _load_at_the_end(broker: Server, seconds: float) -> None:
    """Leaves the broker under load: whoever leaves its block now kills it."""
    make_topic(broker, STORED_TOPIC, STORED_QUEUES)

    def load() -> None:
        with suppress(generator.GeneratorFailed):  # the broker goes away under it
            generator.send(broker.address, 16, 16, seconds + 1, STORED_TOPIC, STORED_QUEUES, LOAD_BODY_BYTES)

    threading.Thread(target=load, daemon=True).start()
    time.sleep(seconds)


@contextmanager
def _our_broker(folder: Path) -> Iterator[Server]:
    with serving_broker(folder, settings=OUR_SETTINGS) as running:
        yield Server(OURS, running.address("listens on"), running.pid)


@contextmanager
def _apache_broker(folder: Path) -> Iterator[Server]:
    """Over the same `store` as ours; it looks for no name server, as ours does not."""
    settings: dict[str, Any] = {
        "store": folder / "store",
        "registered_at": "",
        "quick": False,
        "heap": HEAP,
        "mappedFileSizeCommitLog": SEGMENT_BYTES,
        **PATIENT,
    }
    with apache.broker(APACHE_VERSION, folder, "127.0.0.1:1", **settings) as part:
        yield Server(APACHE, part.address, part.process.pid)


@contextmanager
def _our_process(folder: Path) -> Iterator[list[int]]:
    with ours.node(folder) as both:
        yield [both.process.pid]


@contextmanager
def _our_processes(folder: Path) -> Iterator[list[int]]:
    with ours.name_server(folder) as names, ours.broker(folder, names.address) as broker:
        yield [names.process.pid, broker.process.pid]


@contextmanager
def _apache_processes(folder: Path) -> Iterator[list[int]]:
    with (
        apache.name_server(APACHE_VERSION, folder, quick=False) as names,
        apache.broker(APACHE_VERSION, folder, names.address, quick=False, heap=HEAP) as broker,
    ):
        yield [names.process.pid, broker.process.pid]


def _middle(value: float | list[float]) -> float:
    return median(value) if isinstance(value, list) else value


def shown(figures: Figures) -> str:
    rows = (
        ("name server and broker, idle", "idle_mib", "MiB"),
        ("start to first acknowledged send", "start_ms", "ms"),
        (f"the same, killed with {figures.stored:,} stored", "restart_ms", "ms"),
    )
    lines = []
    for title, what, unit in rows:
        row = getattr(figures, what)
        values = ", ".join(f"{system} {_middle(value):,.0f} {unit}" for system, value in row.items())
        ratio = figures.ratio(what)
        lines.append(f"{title}: {values}" + (f" ({ratio:.2f}x)" if ratio is not None else ""))
    return "\n".join(lines)


def as_json(figures: Figures) -> dict[str, Any]:
    return asdict(figures)


def from_json(values: dict[str, Any]) -> Figures:
    return Figures(**values)
