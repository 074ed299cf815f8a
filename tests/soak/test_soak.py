"""A broker under mixed load keeps its memory, and everything that was sent arrives.

`make soak HOURS=24` watches one for a day, `make soak MINUTES=10` (and `make chaos`) for ten minutes, `make
test` for a few seconds. Printed: how steeply its memory grows, its descriptors, its tasks.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pytest

import kourou
from bench.process import own_mib, resident_mib
from tests.kourou_process import PROGRAM, serving_all

HOURS = float(os.environ.get("HOURS") or 0)
SECONDS = HOURS * 3600 or float(os.environ.get("MINUTES", "0.1")) * 60
WARM_UP_SHARE = 0.3
GROWTH_MIB_MAX = 48.0
SLOPE_MIB_MAX, SLOPE_FROM_SECONDS = 4.0, 3600.0
"""MiB an hour; what grows within less than that is caches, and has an end."""
FEW = 10
BODY_SIZES = (20, 200, 1_000, 8_000)
ROUND_PAUSE_SECONDS = 0.02  # about a megabyte a second: an hour fits on a small disk

# The broker tells how many tasks its loop has, once a second.
COUNTING_TASKS = """
import asyncio, os
from kourou.cli import serving
serve = serving._serve
async def count():
    while True:
        with open('tasks.new', 'w') as file:
            file.write(str(len(asyncio.all_tasks())))
        os.replace('tasks.new', 'tasks')
        await asyncio.sleep(1)
async def serve_and_count(*arguments):
    counting = asyncio.ensure_future(count())
    try:
        return await serve(*arguments)
    finally:
        counting.cancel()
serving._serve = serve_and_count
"""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs /proc to read a process's memory: run it on Linux"
)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 600)
def test_memory_stays_and_every_message_arrives(tmp_path: Path) -> None:
    samples: list[Sample] = []
    with serving_all(tmp_path, program=COUNTING_TASKS + PROGRAM) as server:
        load = Load(server.name_server, SECONDS)
        for _ in load.while_running():
            samples.append(sample(server.pid, tmp_path, load.elapsed))  # noqa: PERF401  (one at a time)
        code = server.stop()
    samples = [each for each in samples if each.seconds >= SECONDS * WARM_UP_SHARE]
    first, last = samples[0], samples[-1]
    slope = slope_an_hour(samples)
    print(
        f"\n{load.received} messages in {SECONDS:.0f} s; after {first.seconds:.0f} s of warming up: "
        f"its own memory {first.own_mib:.1f} MiB, then {last.own_mib:.1f} MiB, slope {slope:+.1f} MiB/h "
        f"(mapped pages of files {first.mapped_mib:.0f}, then {last.mapped_mib:.0f} MiB); "
        f"descriptors {first.descriptors}, then {last.descriptors}, tasks {first.tasks}, then {last.tasks}"
    )
    assert code == 0, server.log
    assert load.received > 0
    assert not load.on_the_way, f"{len(load.on_the_way)} messages never arrived"
    assert last.own_mib - first.own_mib <= GROWTH_MIB_MAX
    assert last.descriptors - first.descriptors <= FEW
    assert last.tasks - first.tasks <= FEW
    if last.seconds - first.seconds >= SLOPE_FROM_SECONDS:
        assert slope <= SLOPE_MIB_MAX


class Sample(NamedTuple):
    """The broker's process at a moment."""

    seconds: float
    own_mib: float
    mapped_mib: float
    """Pages of the mapped log: the system's cache, which grows with what was read and ends with memory."""
    descriptors: int
    tasks: int


def sample(pid: int, folder: Path, seconds: float) -> Sample:
    tasks = folder / "tasks"
    own = own_mib(pid)
    return Sample(
        seconds,
        own,
        max(resident_mib(pid) - own, 0.0),
        len(os.listdir(f"/proc/{pid}/fd")),
        int(tasks.read_text() or 0) if tasks.exists() else 0,
    )


def slope_an_hour(samples: list[Sample]) -> float:
    """By how much the memory grows an hour, in MiB: the straight line that lies closest to all samples."""
    mean_time = fmean(each.seconds for each in samples)
    mean_memory = fmean(each.own_mib for each in samples)
    spread = sum((each.seconds - mean_time) ** 2 for each in samples)
    together = sum((each.seconds - mean_time) * (each.own_mib - mean_memory) for each in samples)
    return 3600 * together / spread if spread else 0.0


def test_a_slope_is_that_of_a_straight_line() -> None:
    samples = [Sample(second, 100 + second * 2 / 3600, 50 + second, 1, 1) for second in range(100)]
    assert abs(slope_an_hour(samples) - 2) < 1e-6


def digest(body: bytes) -> bytes:
    """What is remembered of a message, so that the test's own memory stays, too."""
    return hashlib.blake2b(body, digest_size=12).digest()


class Load:
    """Single and batched sends on one side, reading and committing on the other, at the same time."""

    def __init__(self, name_server: str, seconds: float) -> None:
        self._name_server = name_server
        self._start = time.monotonic()
        self._deadline = self._start + seconds
        self._sending_is_over = threading.Event()
        self._faults: list[BaseException] = []
        self.received = 0
        self.on_the_way: set[bytes] = set()
        with kourou.Producer("soak", name_server) as producer:
            self._send_some(producer, 0)  # so that the topic is there when the consumer asks for it

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._start

    def while_running(self) -> Iterator[None]:
        """Yields four times a second until all is sent and received; raises what a thread raised."""
        threads = [
            threading.Thread(target=self._keeping_faults, args=(work,), daemon=True)
            for work in (self._send, self._receive)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            yield
            time.sleep(0.25)
        if self._faults:
            raise self._faults[0]

    def _keeping_faults(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._faults.append(error)
            self._sending_is_over.set()

    def _send(self) -> None:
        with kourou.Producer("soak", self._name_server) as producer:
            round_number = 1
            while time.monotonic() < self._deadline and not self._faults:
                self._send_some(producer, round_number)
                round_number += 1
                time.sleep(ROUND_PAUSE_SECONDS)
        self._sending_is_over.set()

    def _send_some(self, producer: kourou.Producer, round_number: int) -> None:
        bodies = [f"{round_number}/{size}/".encode().ljust(size, b".") for size in BODY_SIZES]
        batch = [b"batch/" + body for body in bodies]
        self.on_the_way.update(map(digest, (*bodies, *batch)))
        for body in bodies:
            producer.send(kourou.Message("soak", body, tags="single"))
        producer.send_batch([kourou.Message("soak", body, tags="batch") for body in batch])

    def _receive(self) -> None:
        with kourou.PullConsumer("soak", "soak", self._name_server) as consumer:
            while True:
                was_over = self._sending_is_over.is_set()
                received = consumer.receive(64, timeout=1.0)
                self.received += len(received)
                self.on_the_way.difference_update(digest(message.body) for message in received)
                if received:
                    consumer.commit()
                elif was_over:
                    return
