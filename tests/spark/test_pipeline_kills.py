"""An archive under fire: driver, Python workers and broker are killed at random, and every message is there
once.

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
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kourou
from kourou.local.published import make_topic
from kourou.spark.pipelines.archive import archive
from kourou.spark.pipelines.audit import audit_lake
from kourou.spark.pipelines.lake_frames import read_lake
from tests.kourou_process import Serving, free_pair, serving

KILLS = int(os.environ.get("KILLS", "5"))
SEED = int(os.environ.get("SEED", "0")) or random.randrange(1 << 32)
QUEUES, ROWS_A_BATCH, MORE = 3, 300, 3000
PATIENCE_SECONDS = 120.0


class Archiver:
    """The program that is shot at. Started again when it is dead."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._process: subprocess.Popen[str] | None = None
        self.lines: list[str] = []
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.archive_program", *self._arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.lines.append(line)

    def commits(self) -> int:
        return sum(line.startswith("archived") for line in self.lines)

    def wait_for_commits(self, number: int) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.commits() < number:
            assert time.monotonic() < deadline, (
                f"seed {SEED}: no commit for minutes:\n{''.join(self.lines[-20:])}"
            )
            if self._process is None or self._process.poll() is not None:
                self.start()
            time.sleep(0.02)

    def kill_all(self) -> None:
        """The driver, its Java and its Python workers."""
        assert self._process is not None
        for pid in [self._process.pid, *descendants(self._process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def kill_a_worker(self, chance: random.Random) -> bool:
        assert self._process is not None
        workers = [pid for pid in descendants(self._process.pid) if b"pyspark" in command_of(pid)]
        if not workers:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(workers), signal.SIGKILL)
        return True


def descendants(pid: int) -> list[int]:
    """Every process below this one."""
    parents: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    found, waiting = [], [pid]
    while waiting:
        parent = waiting.pop()
        children = [child for child, its in parents.items() if its == parent]
        found += children
        waiting += children
    return found


def command_of(pid: int) -> bytes:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
    return command if b"python" in command.partition(b"\0")[0] else b""


@contextlib.contextmanager
def broker_on(folder: Path, ports: tuple[int, int]) -> Iterator[Serving]:
    arguments = ("start", "--name-server-port", str(ports[0]), "--port", str(ports[1]))
    with serving(*arguments, folder=folder, until="Ctrl-C") as running:
        yield running


@pytest.mark.slow
@pytest.mark.timeout(240 + 30 * KILLS)
def test_whatever_is_killed_each_message_is_archived_once(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    victims = (["worker", "broker", "driver", "worker", "broker", "worker", "driver"] * KILLS)[:KILLS]
    if KILLS > 5:
        chance.shuffle(victims)
    ports, lake, topic = (free_pair(), free_pair()), tmp_path / "lake", "shot-at"
    name_server = f"127.0.0.1:{ports[0]}"
    with contextlib.ExitStack() as brokers:
        running = brokers.enter_context(broker_on(tmp_path, ports))
        make_topic(f"127.0.0.1:{ports[1]}", topic, QUEUES)
        sent, unsure = send(name_server, topic, 0)
        archiver = Archiver(name_server, str(lake), topic, str(ROWS_A_BATCH))
        try:
            for victim in victims:
                archiver.wait_for_commits(archiver.commits() + 1)
                time.sleep(chance.random() * 0.4)  # anywhere in the batch that follows
                if victim == "driver":
                    archiver.kill_all()
                elif victim == "worker":
                    assert archiver.kill_a_worker(chance), f"seed {SEED}: there was no worker to kill"
                else:
                    running.kill()
                    running = brokers.enter_context(broker_on(tmp_path, ports))
                sent, more = send(name_server, topic, sent)
                unsure += more
            archiver.wait_for_commits(archiver.commits() + 1)
        finally:
            archiver.kill_all()
        archive(spark, name_server, str(lake), topics=[topic])
        audited = audit_lake(spark, str(lake), name_server)
    assert audited.is_ok, f"seed {SEED}: {audited.report().tables[0].rows}"
    assert sum(queue.behind for queue in audited.queues) == 0
    counts = read_lake(spark, str(lake)).selectExpr("count(*)", "count(distinct body)").collect()[0]
    stored = sum(queue.read for queue in audited.queues)
    assert tuple(counts) == (stored, sent), f"seed {SEED}"
    assert sent <= stored <= sent + unsure, f"seed {SEED}: {unsure} were sent twice"
    print(f"seed {SEED}: {KILLS} kills, {archiver.commits()} commits, {sent} messages, each there once")


def send(name_server: str, topic: str, start: int) -> tuple[int, int]:
    """So many more messages, each different; returns how many there are, and how many may be there twice: a
    broker that has only just started may store what its sender gave up waiting for."""
    unsure = 0
    bodies = (b"%d" % number for number in range(start, start + MORE))
    with kourou.Producer("shooting", name_server, retries=0) as producer:
        for number in range(QUEUES):
            batch = [kourou.Message(topic, next(bodies)) for _ in range(MORE // QUEUES)]
            deadline = time.monotonic() + PATIENCE_SECONDS
            while True:
                try:
                    queue = next(each for each in producer.queues(topic) if each.queue_id == number)
                    producer.send_all(batch, queue=queue)
                    break
                except (kourou.Unreachable, kourou.NotFound) as error:  # it registers in a moment
                    if isinstance(error, kourou.TimedOut | kourou.ConnectionLost):
                        unsure += len(batch)
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
    return start + MORE, unsure
