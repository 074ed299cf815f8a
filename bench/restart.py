"""How long a broker that was killed is away: `kill -9` under load, start, first acknowledged send.

The folder is filled first, once with few messages and once with many: the time must not grow with what is
stored, only with what the last checkpoint does not vouch for. After the start the broker still has keys to
put into its index; the longest that a send waits meanwhile is measured too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import generator
from bench.folders import STORED_QUEUES as QUEUES
from bench.folders import STORED_TOPIC as TOPIC
from bench.folders import stored_folder
from bench.process import resident_mib
from bench.servers import OUR_SETTINGS, OURS, Server, make_topic
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import SendMessageV2
from kourou.remoting.blocking import BlockingClient
from tests.kourou_process import Serving, serving_broker

LOAD_BODY_BYTES = 128
STORED, KILLS, SECONDS = (100_000, 10_000_000), 5, 3.0
STORED_QUICK, KILLS_QUICK, SECONDS_QUICK = (20_000,), 1, 0.3


@dataclass(frozen=True)
class Figures:
    """Of one size of the store; medians over the kills, but the worst wait."""

    stored: int
    start_ms: float
    worst_wait_ms: float
    resident_mib: float


def measure(folder: Path, *, quick: bool, tell: Callable[[str], None]) -> list[Figures]:
    kills, seconds = (KILLS_QUICK, SECONDS_QUICK) if quick else (KILLS, SECONDS)
    figures = []
    for count in STORED_QUICK if quick else STORED:
        place = stored_folder(folder, count, tell)
        figures.append(_killed_and_started(place, count, kills, seconds))
        tell(shown(figures[-1]))
    return figures


def shown(row: Figures) -> str:
    return (
        f"killed with {row.stored:,} stored: a send is acknowledged {row.start_ms:,.0f} ms after the start, "
        f"the longest of the next waits {row.worst_wait_ms:.0f} ms; {row.resident_mib:.0f} MiB"
    )


def _killed_and_started(folder: Path, count: int, kills: int, seconds: float) -> Figures:
    """`seconds`: how long a broker takes messages before it is killed, and how long it is watched after."""
    with _broker(folder) as running:
        make_topic(_server(running), TOPIC, QUEUES)
        _load_until_killed(running, seconds)
    starts, waits, resident = [], [], []
    for _ in range(kills):
        began = time.perf_counter()
        with _broker(folder) as running:
            send_one(running.address("listens on"), TOPIC)
            starts.append((time.perf_counter() - began) * 1000)
            waits.append(_worst_wait_ms(running, seconds))
            resident.append(resident_mib(running.pid))
            _load_until_killed(running, seconds)
    return Figures(count, median(starts), max(waits), median(resident))


def _broker(folder: Path) -> AbstractContextManager[Serving]:
    return serving_broker(folder, settings=OUR_SETTINGS)


def _server(running: Serving) -> Server:
    return Server(OURS, running.address("listens on"), running.pid)


def _load_until_killed(running: Serving, seconds: float) -> None:
    def load() -> None:
        with suppress(generator.GeneratorFailed):  # the broker goes away under it
            generator.send(running.address("listens on"), 16, 16, seconds + 5, TOPIC, QUEUES, LOAD_BODY_BYTES)

    sender = threading.Thread(target=load)
    sender.start()
    time.sleep(seconds)
    running.kill()
    sender.join()


def _worst_wait_ms(running: Serving, seconds: float) -> float:
    """The longest that a client waits who sends one message after the other."""
    run = generator.send(running.address("listens on"), 1, 1, seconds, TOPIC, QUEUES, LOAD_BODY_BYTES)
    return run.max / 1000


def send_one(address: str, topic: str, queue_id: int = 0) -> None:
    with BlockingClient() as client:
        answer = client.call(address, send_request(topic, queue_id), timeout=30)
    assert answer.code == 0, f"{answer.code}: {answer.remark}"


def send_request(topic: str, queue_id: int) -> Command:
    header = SendMessageV2(
        producer_group="bench",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=QUEUES,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=int(time.time() * 1000),
        flag=0,
        properties="",
    )
    return request(RequestCode.SEND_MESSAGE_V2, header, b"hello")


def as_json(figures: list[Figures]) -> list[dict[str, Any]]:
    return [asdict(row) for row in figures]
