"""What a start costs: with an empty folder, and with 10,000 topics of 8 queues, each with a message."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.folders import fill_with_topics
from bench.process import resident_mib
from bench.restart import send_one, send_request
from bench.servers import OUR_SETTINGS
from kourou.protocol.command import Command
from kourou.remoting.blocking import BlockingClient
from tests.kourou_process import Serving, serving_broker

TOPICS, QUEUES, STARTS = 10_000, 8, 3
TOPICS_QUICK, STARTS_QUICK = 100, 1
SETTLE_SECONDS = 1.0
IN_FLIGHT_MAX = 512


@dataclass(frozen=True)
class Figures:
    """Medians over the starts."""

    empty_start_ms: float
    """From starting the process to its first acknowledged send, into an empty folder."""
    idle_mib: float
    topics: int
    full_start_ms: float
    killed_start_ms: float
    """The same with all the topics, after a clean stop, and after `kill -9` just when each queue got a
    message."""
    full_mib: float
    """After a message was sent to each queue."""


def measure(folder: Path, *, quick: bool, tell: Callable[[str], None]) -> Figures:
    topics, starts = (TOPICS_QUICK, STARTS_QUICK) if quick else (TOPICS, STARTS)
    empty = [_start(folder / f"empty-{number}", "TBW102") for number in range(starts)]
    full = folder / "full"
    full.mkdir(parents=True)
    tell(f"a folder with {topics:,} topics of {QUEUES} queues")
    names = fill_with_topics(full / "store", topics, QUEUES)
    clean = [_start(full, names[0]) for _ in range(starts)]
    _start_and_kill(full, names)
    killed = [_start_and_kill(full, names) for _ in range(starts)]
    figures = Figures(
        empty_start_ms=median(ms for ms, _ in empty),
        idle_mib=median(mib for _, mib in empty),
        topics=topics,
        full_start_ms=median(ms for ms, _ in clean),
        killed_start_ms=median(ms for ms, _ in killed),
        full_mib=median(mib for _, mib in killed),
    )
    tell(shown(figures))
    return figures


def shown(row: Figures) -> str:
    return (
        f"start to first acknowledged send {row.empty_start_ms:.0f} ms, {row.idle_mib:.0f} MiB idle; with "
        f"{row.topics:,} topics of {QUEUES} queues {row.full_start_ms:,.0f} ms, after a kill "
        f"{row.killed_start_ms:,.0f} ms, {row.full_mib:.0f} MiB"
    )


def _start(folder: Path, topic: str) -> tuple[float, float]:
    """Milliseconds to the first acknowledged send, and the memory a second later; then a clean stop."""
    folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    with _broker(folder) as running:
        send_one(running.address("listens on"), topic)
        ms = (time.perf_counter() - began) * 1000
        time.sleep(SETTLE_SECONDS)
        mib = resident_mib(running.pid)
        code = running.stop()
        assert code == 0, running.log
    return ms, mib


def _start_and_kill(folder: Path, names: list[str]) -> tuple[float, float]:
    """As `_start`; then each queue gets a message, and the broker is killed."""
    began = time.perf_counter()
    with _broker(folder) as running:
        send_one(running.address("listens on"), names[0])
        ms = (time.perf_counter() - began) * 1000
        _send_everywhere(running, names)
        mib = resident_mib(running.pid)
        running.kill()
    return ms, mib


def _broker(folder: Path) -> AbstractContextManager[Serving]:
    return serving_broker(folder, settings=OUR_SETTINGS)


def _send_everywhere(running: Serving, names: list[str]) -> None:
    """One message to each queue of each topic, so that all of them are in use."""
    address = running.address("listens on")
    waiting = 0

    def answered(reply: Command | Exception) -> None:
        nonlocal waiting
        assert isinstance(reply, Command), reply
        assert reply.code == 0, reply
        waiting -= 1

    with BlockingClient() as client:
        for topic in names:
            for queue_id in range(QUEUES):
                client.call_soon(address, send_request(topic, queue_id), 60.0, answered)
                waiting += 1
            while waiting > IN_FLIGHT_MAX:
                client.poll(1.0)
        while waiting:
            client.poll(1.0)


def as_json(figures: Figures) -> dict[str, Any]:
    return asdict(figures)
