"""A topic copied into another under fire: driver, Python workers and broker are killed at random, and each
row is there once.

`KILLS=100 make chaos` kills more often. `SEED=…` repeats an order of kills.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import kourou
from kourou.local.published import Published, make_topic
from tests.kourou_process import free_pair
from tests.spark.test_pipeline_kills import broker_on, command_of, descendants

KILLS = int(os.environ.get("KILLS", "5"))
SEED = int(os.environ.get("SEED", "0")) or random.randrange(1 << 32)
SOURCE, TARGET, QUEUES = "from", "to", 3
ROWS_A_BATCH, ROWS_A_KILL = 200, 600
PATIENCE_SECONDS = 180.0


class Copier:
    """The program that is shot at. Started again when it is dead."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self.lines: list[str] = []
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.sink_program", *self._arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        return process

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as said:
            for line in said:
                self.lines.append(line)

    def batches(self) -> int:
        return sum(line.startswith("batch") for line in self.lines)

    def wait_for_a_batch(self) -> None:
        wanted, deadline = self.batches() + 1, time.monotonic() + PATIENCE_SECONDS
        while self.batches() < wanted:
            assert time.monotonic() < deadline, f"seed {SEED}: no batch:\n{''.join(self.lines[-20:])}"
            self.start_if_dead()
            time.sleep(0.02)

    def start_if_dead(self) -> None:
        if self._process.poll() is not None:
            self._process = self._start()

    def kill_a_worker(self, chance: random.Random) -> bool:
        workers = [pid for pid in descendants(self._process.pid) if b"pyspark" in command_of(pid)]
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(chance.choice(workers), signal.SIGKILL)
        return bool(workers)

    def kill_all(self) -> None:
        """The driver, its Java and its Python workers."""
        for pid in [self._process.pid, *descendants(self._process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


@pytest.mark.slow
@pytest.mark.timeout(240 + 30 * KILLS)
def test_whatever_is_killed_each_row_is_written_once(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    victims = (["worker", "broker", "worker", "driver", "broker", "worker", "worker"] * KILLS)[:KILLS]
    if KILLS > 5:
        chance.shuffle(victims)
    ports = (free_pair(), free_pair())
    name_server = f"127.0.0.1:{ports[0]}"
    sent = 0
    with contextlib.ExitStack() as brokers:
        running = brokers.enter_context(broker_on(tmp_path, ports))
        for topic in (SOURCE, TARGET):
            make_topic(f"127.0.0.1:{ports[1]}", topic, QUEUES)
        sent = send(name_server, sent)
        copier = Copier(name_server, SOURCE, TARGET, str(tmp_path / "checkpoint"), str(ROWS_A_BATCH))
        try:
            for victim in victims:
                copier.wait_for_a_batch()
                sent = send(name_server, sent)
                time.sleep(chance.random() * 0.3)  # anywhere in the batch that follows
                if victim == "driver":
                    copier.kill_all()
                elif victim == "worker":
                    copier.kill_a_worker(chance)
                else:
                    running.kill()
                    running = brokers.enter_context(broker_on(tmp_path, ports))
            wait_until_copied(name_server, copier)
        finally:
            copier.kill_all()
        written = Counter(message.body for message in Published(name_server).messages(TARGET))
        expected = {b"%d:%d" % place for place in places(name_server)}
        assert set(written) == expected, f"seed {SEED}: {len(expected - set(written))} rows are missing"
        twice = {row: count for row, count in written.items() if count > 1}
        assert not twice, f"seed {SEED}: written more than once: {twice}"
        assert len(expected) >= sent
    print(f"\n{KILLS} kills, {len(expected)} rows, each there once (seed {SEED})")


def send(name_server: str, first: int) -> int:
    """Some more messages; how many were sent by now. One whose answer was lost may be there twice."""
    messages = [kourou.Message(SOURCE, b"%d" % number) for number in range(first, first + ROWS_A_KILL)]
    with kourou.Producer("sink-kills", name_server) as producer:
        producer.send_all(messages)
    return first + ROWS_A_KILL


def places(name_server: str) -> set[tuple[int, int]]:
    """Where the messages of the source are: queue and offset of each."""
    return {(message.queue_id, message.queue_offset) for message in Published(name_server).messages(SOURCE)}


def wait_until_copied(name_server: str, copier: Copier) -> None:
    wanted, deadline = len(places(name_server)), time.monotonic() + PATIENCE_SECONDS
    while len(Published(name_server).messages(TARGET)) < wanted:
        assert time.monotonic() < deadline, f"seed {SEED}: not copied:\n{''.join(copier.lines[-20:])}"
        copier.start_if_dead()
        time.sleep(0.2)
