"""Programs that are shot at: driver, executors and Python workers of a Spark, and the broker behind it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.kourou_process import Serving, serving

KILLS = int(os.environ.get("KILLS", "5"))
SEED = int(os.environ.get("SEED", "0")) or random.randrange(1 << 32)
PATIENCE_SECONDS = 300.0
"""For one batch, be it that everything has to start anew before."""

TIMEOUT_SECONDS = 600 + 60 * KILLS

IN_ONE_PROCESS = "local[2,3]"
TWO_EXECUTORS = "local-cluster[2,1,512]"

SMALL = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),  # as the driver's
    "spark.log.level": "OFF",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.deploy.maxExecutorRetries": "-1",  # however often executors are killed, there are new ones
}
"""Settings of a Spark that is started often, and beside others."""


def victims(usual: Sequence[str], chance: random.Random) -> tuple[str, list[str]]:
    """Where the program runs, and who is killed in this order. In a short run as told, so that each has its
    turn; in a long one at random, executors among them (test_standalone_cluster.py always kills some)."""
    if len(usual) >= KILLS:
        return IN_ONE_PROCESS, list(usual[:KILLS])
    all_of_them = ("worker", "worker", "executor", "broker", "driver")
    return TWO_EXECUTORS, [chance.choice(all_of_them) for _ in range(KILLS)]


class Program:
    """A module of these tests that runs for ever, and tells by a line when a batch is done. Started again
    when it is dead."""

    def __init__(self, module: str, *arguments: str, done: str) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._done = done
        self.lines: list[str] = []
        self._process = self._started()

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self._command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        return process

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as said:
            self.lines.extend(iter(said.readline, ""))

    def batches(self) -> int:
        """How many are done by now."""
        return sum(line.startswith(self._done) for line in list(self.lines))

    def wait_for_a_batch(self) -> None:
        wanted, deadline = self.batches() + 1, time.monotonic() + PATIENCE_SECONDS
        while self.batches() < wanted:
            assert time.monotonic() < deadline, f"seed {SEED}: no batch:\n{''.join(self.lines[-20:])}"
            self.start_if_dead()
            time.sleep(0.02)

    def start_if_dead(self) -> None:
        if self._process.poll() is not None:
            self._process = self._started()

    def kill(self, victim: str, chance: random.Random) -> None:
        """SIGKILL to the driver with all that belongs to it, or to one executor, or to one Python worker."""
        if victim == "driver":
            self.kill_all()
            return
        name = b"pyspark" if victim == "worker" else b"CoarseGrainedExecutorBackend"
        program = b"python" if victim == "worker" else b"java"
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:  # the last one may have been killed a moment ago
            found = [pid for pid in descendants(self._process.pid) if is_running(pid, program, name)]
            if found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(found), signal.SIGKILL)
                return
            assert time.monotonic() < deadline, f"seed {SEED}: there is no {victim} to kill"
            self.start_if_dead()
            time.sleep(0.02)

    def kill_all(self) -> None:
        """The driver, its Java, its executors and its Python workers."""
        for pid in [self._process.pid, *descendants(self._process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


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


def is_running(pid: int, program: bytes, name: bytes) -> bool:
    """Whether this process is one of `program`, with `name` in its command line."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return program in command.partition(b"\0")[0] and name in command


@contextlib.contextmanager
def broker_on(folder: Path, ports: tuple[int, int]) -> Iterator[Serving]:
    arguments = ("start", "--name-server-port", str(ports[0]), "--port", str(ports[1]))
    with serving(*arguments, folder=folder, until="Ctrl-C") as running:
        yield running
