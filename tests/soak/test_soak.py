"""A broker under mixed load keeps its memory, and everything that was sent arrives.

`make soak HOURS=24` watches one for a day, `make soak MINUTES=10` (and `make chaos`) for ten minutes, `make
test` for a few seconds. Printed: how steeply its memory grows, its descriptors, its tasks.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import pytest

import kourou
from bench.process import own_mib, resident_mib
from tests.kourou_process import PROGRAM, serving_all

HOURS = float(os.environ.get("HOURS") or 0)
SECONDS = HOURS * 3600 or float(os.environ.get("MINUTES", "0.1")) * 60
WARM_UP_SHARE = 0.3
MESSAGES_A_SECOND = 300
IS_SHORT = SECONDS < 300
MESSAGES_A_SECOND_MIN = MESSAGES_A_SECOND / 3 if IS_SHORT else MESSAGES_A_SECOND
"""With fewer a run proves nothing, and fails; a short one is among other tests."""
CACHES_MIB_MAX = 16.0 if IS_SHORT else 4.0
"""Caches fill for a while after the warm-up, too, and have an end; the more so when that was short."""
BYTES_A_MESSAGE_MAX = 40.0
"""On top of that: a kilobyte that is forgotten every ten messages is 102 of them."""
OWN_MIB_MAX = 256.0
SLOPES_MIB_MAX = ((3600.0, 4.0), (4 * 3600.0, 1.0))
"""Whoever looks for so long sees the memory grow by so much an hour at most."""
FEW = 2
"""Descriptors and tasks that happen to be there more at one end than at the other."""
BODY_SIZES = (20, 200, 1_000, 8_000)
TINY = 16
"""So many tiny messages more are in each batch."""
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
            samples.append(sample(server.pid, tmp_path, load))  # noqa: PERF401  (one at a time)
        code = server.stop()
    samples = [each for each in samples if SECONDS * WARM_UP_SHARE <= each.seconds <= SECONDS]
    first, last = samples[0], samples[-1]
    print(
        f"\n{load.received} messages in {SECONDS:.0f} s; after {first.seconds:.0f} s of warming up: "
        f"its own memory {first.own_mib:.1f} MiB, then {last.own_mib:.1f} MiB, "
        f"slope {slope_an_hour(samples):+.1f} MiB/h "
        f"(mapped pages of files {first.mapped_mib:.0f}, then {last.mapped_mib:.0f} MiB); "
        f"descriptors {first.descriptors}, then {last.descriptors}, tasks {first.tasks}, then {last.tasks}"
    )
    assert code == 0, server.log
    assert not load.on_the_way, f"{len(load.on_the_way)} messages never arrived"
    assert faults(samples, load.received / SECONDS) == []


class Sample(NamedTuple):
    """The broker's process at a moment."""

    seconds: float
    own_mib: float
    mapped_mib: float
    """Pages of the mapped log: the system's cache, which grows with what was read and ends with memory."""
    descriptors: int
    """But for one for each file of the store: a log that grows has more of them."""
    tasks: int
    messages: int
    """So many had gone through it."""


def sample(pid: int, folder: Path, load: Load) -> Sample:
    tasks = folder / "tasks"
    own = own_mib(pid)
    return Sample(
        load.elapsed,
        own,
        max(resident_mib(pid) - own, 0.0),
        descriptors(pid, folder),
        int(tasks.read_text() or 0) if tasks.exists() else 0,
        load.received,
    )


def descriptors(pid: int, folder: Path) -> int:
    targets = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            targets.append(os.readlink(path))
    return len(targets) - len({each for each in targets if each.startswith(f"{folder}/")})


def faults(samples: list[Sample], messages_a_second: float) -> list[str]:
    """What a broker that leaks nothing does not show."""
    return [*_too_little(messages_a_second), *_memory_faults(samples), *_other_faults(samples)]


def _too_little(messages_a_second: float) -> Iterator[str]:
    if messages_a_second < MESSAGES_A_SECOND_MIN:
        yield f"only {messages_a_second:.0f} messages a second: that proves nothing"


def _memory_faults(samples: list[Sample]) -> Iterator[str]:
    first, last = samples[0], samples[-1]
    if max(each.own_mib for each in samples) > OWN_MIB_MAX:
        yield f"it holds more than {OWN_MIB_MAX:.0f} MiB"
    messages = last.messages - first.messages
    growth = messages * _slope([each.messages for each in samples], samples)
    allowed = CACHES_MIB_MAX + messages * BYTES_A_MESSAGE_MAX / 2**20
    if growth > allowed:
        yield f"its memory grew by {growth:.1f} MiB with {messages} messages, and {allowed:.1f} are allowed"
    for seconds, slope_max in SLOPES_MIB_MAX:
        if last.seconds - first.seconds >= seconds and slope_an_hour(samples) > slope_max:
            yield f"its memory grows by {slope_an_hour(samples):.1f} MiB an hour"


def _other_faults(samples: list[Sample]) -> Iterator[str]:
    """By what is in the middle at either end: what comes and goes is no leak."""
    part = max(1, len(samples) // 5)
    for what in ("descriptors", "tasks"):
        before, after = (
            median(getattr(each, what) for each in some) for some in (samples[:part], samples[-part:])
        )
        if after - before > FEW:
            yield f"it had {before:.0f} {what}, and then {after:.0f}"


def slope_an_hour(samples: list[Sample]) -> float:
    """By how much the memory grows an hour, in MiB."""
    return 3600 * _slope([each.seconds for each in samples], samples)


def _slope(at: Sequence[float], samples: list[Sample]) -> float:
    """That of the straight line which lies closest to the memory of all samples."""
    mean_at = fmean(at)
    mean_memory = fmean(each.own_mib for each in samples)
    spread = sum((x - mean_at) ** 2 for x in at)
    together = sum((x - mean_at) * (y.own_mib - mean_memory) for x, y in zip(at, samples, strict=True))
    return together / spread if spread else 0.0


def _ten_minutes(mib_a_second: float = 0.005, leaked: float = 0.0, each_minute: int = 0) -> list[Sample]:
    """What is seen in the ten-minute form with as little traffic as may be, of a broker that forgets so many
    bytes a message, and a descriptor or a task so often."""
    return [
        Sample(
            float(second),
            73 + second * mib_a_second + second * MESSAGES_A_SECOND * leaked / 2**20,
            50,
            40 + each_minute * second // 60,
            20 + each_minute * second // 60,
            second * MESSAGES_A_SECOND,
        )
        for second in range(180, 600)
    ]


def test_a_slope_is_that_of_a_straight_line() -> None:
    assert abs(slope_an_hour(_ten_minutes(2 / 3600)) - 2) < 1e-6


def test_a_leak_of_a_kilobyte_every_ten_messages_is_seen_in_ten_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.soak.test_soak.CACHES_MIB_MAX", 4.0)
    assert faults(_ten_minutes(), MESSAGES_A_SECOND) == []
    (fault,) = faults(_ten_minutes(0.0, leaked=102.4), MESSAGES_A_SECOND)
    assert "its memory grew by 12.3 MiB with 125700 messages, and 8.8 are allowed" in fault


def test_descriptors_and_tasks_that_are_left_and_too_little_traffic_are_seen() -> None:
    found = faults(_ten_minutes(each_minute=1), MESSAGES_A_SECOND_MIN - 1)
    assert [fault.split()[0] for fault in found] == ["only", "it", "it"]


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
        batch += [f"tiny/{round_number}/{number}".encode() for number in range(TINY)]
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
