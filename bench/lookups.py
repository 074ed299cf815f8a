"""Name servers: route lookups, what a large registration does to others, memory, time to the first answer."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from struct import unpack
from typing import Any

from bench import generator
from bench.process import cpu_seconds, resident_mib
from bench.servers import Server, name_servers, registration
from tests.interop import apache, ours

TOPICS, QUEUES = 1000, 8
LARGE_REGISTRATION_TOPICS = 5000


@dataclass(frozen=True)
class Figures:
    """Of one name server."""

    lookups: float
    lookup_p99_us: float
    lookup_cpu_us: float
    registration_blocks_ms: float
    idle_mib: float


def measure(
    folder: Path, *, rounds: int, seconds: float, with_apache: bool, tell: Callable[[str], None]
) -> dict[str, Figures]:
    with name_servers(folder, with_apache) as systems:
        time.sleep(1.0)  # what a start leaves behind has been collected
        idle = {system.system: resident_mib(system.pid) for system in systems}
        connections = {system.system: Registrar(system.address) for system in systems}
        for registrar in connections.values():
            registrar.register(registration("Topic", TOPICS, QUEUES, counter=1))
        for system in systems:
            _look_up(system, seconds)  # warm up
        runs: dict[str, list[tuple[generator.Run, float]]] = {system.system: [] for system in systems}
        blocks: dict[str, list[float]] = {system.system: [] for system in systems}
        for number in range(rounds):
            for system in systems if number % 2 == 0 else reversed(systems):
                runs[system.system].append(_look_up(system, seconds))
                blocks[system.system].append(
                    _worst_wait_ms(system, connections[system.system], number, seconds)
                )
        figures = {
            name: Figures(
                lookups=median(run.rate for run, _ in taken),
                lookup_p99_us=median(run.p99 for run, _ in taken),
                lookup_cpu_us=median(cpu for _, cpu in taken),
                registration_blocks_ms=median(blocks[name]),
                idle_mib=idle[name],
            )
            for name, taken in runs.items()
        }
        for name, row in figures.items():
            tell(
                f"{name}: {row.lookups:,.0f} route lookups/s, a large registration holds others "
                f"for {row.registration_blocks_ms:.0f} ms, {row.idle_mib:.0f} MiB idle"
            )
        return figures


def _look_up(system: Server, seconds: float) -> tuple[generator.Run, float]:
    before = cpu_seconds(system.pid)
    run = generator.look_up(system.address, 16, 16, seconds, "Topic", TOPICS)
    return run, (cpu_seconds(system.pid) - before) / run.handled * 1e6


def _worst_wait_ms(system: Server, registrar: Registrar, number: int, seconds: float) -> float:
    """The longest that a client, asking route after route, waited while 5,000 topics were registered."""
    frame = registration("Many", LARGE_REGISTRATION_TOPICS, QUEUES, counter=number + 1)
    waited: list[float] = []
    asking = threading.Thread(
        target=lambda: waited.append(generator.look_up(system.address, 1, 1, seconds, "Topic", TOPICS).max)
    )
    asking.start()
    time.sleep(seconds / 2)
    registrar.register(frame)
    asking.join()
    return waited[0] / 1000


class Registrar:
    """A broker's connection: it must stay open, or the name server forgets the broker."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._stream = self._socket.makefile("rb")

    def register(self, frame: bytes) -> None:
        self._socket.sendall(frame)
        (length,) = unpack(">I", self._stream.read(4))
        answer = self._stream.read(length)
        assert b'"code":0' in answer, answer


def start_ms(folder: Path, rounds: int) -> float:
    """From starting the process to its first answer, median."""
    return median(_start_once(folder / f"start-{number}") for number in range(rounds))


def _start_once(folder: Path) -> float:
    folder.mkdir(parents=True)
    began = time.perf_counter()
    with ours.name_server(folder) as part:
        apache.ask(part.address, apache.GET_BROKER_CLUSTER_INFO)
        return (time.perf_counter() - began) * 1000


def as_json(figures: dict[str, Figures]) -> dict[str, Any]:
    return {system: vars(values) for system, values in figures.items()}
