"""The same on real clusters: a standalone master with two workers, `local-cluster`, Spark Connect."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pyspark
import pytest

import kourou
from kourou.doors.processes import free_port
from kourou.local.published import make_topic
from kourou.spark.spark_session import prepare_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
MESSAGES = 1500
STEP_SECONDS_MAX = 200
"""For each step of a program: where much else runs, a Spark takes minutes to start."""


@pytest.fixture
def topic(broker: kourou.LocalBroker, new_topic: Callable[..., str], fill: Callable[..., None]) -> str:
    """With messages in it; and there is one for a copy of them."""
    name = new_topic(2, name="cluster")
    make_topic(broker.address, f"{name}-copy", 2)
    fill(name, [b"%d" % number for number in range(MESSAGES)])
    return name


def test_a_standalone_cluster_archives_and_copies_each_message_once_though_executors_are_killed(
    broker: kourou.LocalBroker, topic: str, tmp_path: Path
) -> None:
    with standalone(tmp_path) as master:
        program = Program(master, broker.name_server, topic, str(tmp_path))
        try:
            for step in ("archived", "copied"):
                program.wait_for(step)
                assert kill_one("CoarseGrainedExecutorBackend")
            told = program.result()
        finally:
            program.end()
    check(told)


@pytest.mark.chaos  # a standalone cluster has executors in processes of their own, too
def test_local_cluster_does_the_same(broker: kourou.LocalBroker, topic: str, tmp_path: Path) -> None:
    program = Program("local-cluster[2,1,512]", broker.name_server, topic, str(tmp_path))
    try:
        for step in ("archived", "copied"):
            program.wait_for(step)
        told = program.result()
    finally:
        program.end()
    check(told)


def check(told: dict[str, int]) -> None:
    assert (told["rows"], told["distinct"]) == (MESSAGES, MESSAGES)
    assert (told["copied"], told["different"]) == (MESSAGES, MESSAGES)
    assert told["commits"] >= MESSAGES // 500


def test_spark_connect_reads_streams_and_writes(
    broker: kourou.LocalBroker, topic: str, tmp_path: Path
) -> None:
    with connect_server(tmp_path / "connect.log") as server:
        program = Program(server, broker.name_server, topic, str(tmp_path))
        try:
            for step in ("connected", "streamed", "counted"):
                program.wait_for(step)
            told = program.result()
        finally:
            program.end()
    assert told == {"copied": MESSAGES, "different": MESSAGES, "messages": MESSAGES}


class Program:
    """`cluster_program.py` in a process of its own: one process has one Spark."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.spark.cluster_program", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._errors: list[str] = []
        self._readers: list[threading.Thread] = []
        for stream, lines in ((self._process.stdout, self._lines), (self._process.stderr, self._errors)):
            assert stream is not None
            reader = threading.Thread(target=_read, args=(stream, lines), daemon=True)
            reader.start()
            self._readers.append(reader)

    def wait_for(self, beginning: str) -> str:
        deadline = time.monotonic() + STEP_SECONDS_MAX
        while True:
            found = [line for line in list(self._lines) if line.startswith(beginning)]
            if found:
                return found[0]
            assert self._process.poll() is None, "".join(self._errors[-30:])
            assert time.monotonic() < deadline, f"no {beginning!r}: {self._lines} {self._errors[-30:]}"
            time.sleep(0.05)

    def result(self) -> dict[str, int]:
        told: dict[str, int] = json.loads(self.wait_for("{"))
        return told

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for reader in self._readers:
            reader.join(10)


def _read(stream: TextIO, lines: list[str]) -> None:
    with stream:
        lines.extend(iter(stream.readline, ""))


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and two workers, as processes; the address of the master."""
    prepare_environment()
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with contextlib.ExitStack() as processes:
        ui = ("--webui-port", "0", "--host", "127.0.0.1")
        log = folder / "master.log"
        processes.enter_context(
            running("org.apache.spark.deploy.master.Master", *ui, "--port", str(port), log=log)
        )
        for number in (1, 2):
            options = ("--cores", "1", "--memory", "768m", "--work-dir", str(folder / f"work-{number}"))
            processes.enter_context(
                running(
                    "org.apache.spark.deploy.worker.Worker",
                    *ui,
                    *options,
                    master,
                    log=folder / f"{number}.log",
                )
            )
        deadline = time.monotonic() + STEP_SECONDS_MAX
        while len(re.findall("Registering worker", log.read_text(errors="replace"))) < 2:
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
            time.sleep(0.1)
        yield master


@contextlib.contextmanager
def connect_server(log: Path) -> Iterator[str]:
    """A Spark Connect server on a port of its own; its address, which it may not serve yet."""
    prepare_environment()
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    arguments = ["--master", "local[2]", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for name, value in settings.items():
        arguments += ["--conf", f"{name}={value}"]
    with running("org.apache.spark.deploy.SparkSubmit", *arguments, log=log):
        yield f"sc://127.0.0.1:{port}"


@contextlib.contextmanager
def running(*arguments: str, log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(SPARK_CLASS), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def kill_one(name: str) -> bool:
    """SIGKILL to one Java process of this name that descends from this test, and to no other."""
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if name.encode() in (path / "cmdline").read_bytes() and os.getpid() in ancestors(int(path.name)):
                os.kill(int(path.name), signal.SIGKILL)
                return True
    return False


def ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
        found.append(pid)
    return found
