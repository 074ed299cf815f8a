"""A broker under mixed load keeps its memory, and everything that was sent arrives.

`make soak MINUTES=10` watches one for ten minutes; `make test` for a few seconds.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kourou
from bench.process import resident_mib
from tests.kourou_process import serving_all

SECONDS = float(os.environ.get("MINUTES", "0.1")) * 60
WARM_UP_SHARE = 0.3
GROWTH_MIB_MAX = 48.0
BODY_SIZES = (20, 200, 1_000, 8_000)
ROUND_PAUSE_SECONDS = 0.02  # about a megabyte a second: an hour fits on a small disk

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs /proc to read a process's memory: run it on Linux"
)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 120)
def test_memory_stays_and_every_message_arrives(tmp_path: Path) -> None:
    with serving_all(tmp_path) as server:
        load = Load(server.name_server, SECONDS)
        before = 0.0
        for _ in load.while_running():
            if not before and load.elapsed >= SECONDS * WARM_UP_SHARE:
                before = resident_mib(server.pid)
        after = resident_mib(server.pid)
        code = server.stop()
    memory = f"resident {before:.0f} MiB, then {after:.0f} MiB"
    print(f"\n{load.received} messages in {SECONDS:.0f} s; {memory}")
    assert code == 0, server.log
    assert load.received > 0
    assert not load.on_the_way, f"{len(load.on_the_way)} messages never arrived"
    assert after - before <= GROWTH_MIB_MAX


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
