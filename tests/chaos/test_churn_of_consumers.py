"""Consumers join, leave and are killed every two seconds while brokers restart: no message is missed.

`make test` has a few of them for some seconds; `make chaos MEMBERS=20` twenty for a minute.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import kourou
from tests.chaos.clients import make_topics
from tests.interop import apache, ours

ROOT = Path(__file__).resolve().parents[2]
MEMBERS = int(os.environ.get("MEMBERS", "4"))
SECONDS = 60.0 if MEMBERS >= 20 else 10.0
TURN_SECONDS = 2.0
TOPIC, GROUP, QUEUES = "Churned", "churning", 8
SETTLE_SECONDS = 40.0


class Member:
    """A consumer in a process of its own."""

    def __init__(self, name_server: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.churn_member", name_server, GROUP, TOPIC],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.got: list[str] = []
        self.holds: set[tuple[str, int]] = set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        self._process.wait(30)
        self._reader.join(10)
        self.holds = set()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                told = json.loads(line) if line.endswith("\n") else {}  # else it was killed in the middle
                if "got" in told:
                    self.got.append(told["got"])
                elif "holds" in told:
                    self.holds = {(broker, number) for broker, number in told["holds"]}


class Sender(threading.Thread):
    """Sends until it is told to stop, and remembers what was acknowledged."""

    def __init__(self, name_server: str) -> None:
        super().__init__(daemon=True)
        self._name_server = name_server
        self.over = threading.Event()
        self.acknowledged: set[str] = set()
        self.failed = 0

    def run(self) -> None:
        with kourou.Producer("senders", self._name_server, send_timeout=5.0) as producer:
            number = 0
            while not self.over.wait(0.005):
                number += 1
                try:
                    producer.send(kourou.Message(TOPIC, str(number).encode()))
                except kourou.MQError:
                    self.failed += 1
                else:
                    self.acknowledged.add(str(number))


class Brokers:
    """Two of them, each restarted over its own folder and port."""

    NAMES = ("one", "two")

    def __init__(self, folder: Path, name_server: str, stack: ExitStack) -> None:
        self._folder = folder
        self._name_server = name_server
        self._stacks = {name: ExitStack() for name in self.NAMES}
        self._ports = {name: apache.free_ports_in_a_row() for name in self.NAMES}
        self._parts: dict[str, ours.Part] = {}
        for name in self.NAMES:
            self.start(name)
            stack.callback(self._stacks[name].close)

    def start(self, name: str) -> None:
        part = ours.broker(self._folder / name, self._name_server, name=name, port=self._ports[name])
        self._parts[name] = self._stacks[name].enter_context(part)

    def restart(self, name: str, number: signal.Signals) -> None:
        process = self._parts[name].process
        if number is signal.SIGKILL:
            process.kill()
        else:
            process.stop(number)
        self._stacks[name].close()
        self.start(name)

    def addresses(self) -> list[str]:
        return [part.address for part in self._parts.values()]


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, Brokers]]:
    with ExitStack() as stack:
        names = stack.enter_context(ours.name_server(folder))
        brokers = Brokers(folder, names.address, stack)
        for address in brokers.addresses():
            make_topics(address, [TOPIC], QUEUES)
        yield names.address, brokers


@pytest.mark.slow
@pytest.mark.timeout(600 + 3 * SECONDS)
def test_consumers_come_and_go_while_brokers_restart_and_nothing_is_lost_or_orphaned(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", time.time_ns() % 100_000))
    chance = random.Random(seed)
    with cluster(tmp_path) as (name_server, brokers):
        sender = Sender(name_server)
        sender.start()
        everybody = [Member(name_server) for _ in range(MEMBERS)]
        present = list(everybody)
        try:
            turns = _churn(name_server, brokers, everybody, present, chance)
            sender.over.set()
            sender.join(30)

            def handled() -> set[str]:
                return {text for member in everybody for text in member.got}

            _until(lambda: sender.acknowledged <= handled(), f"all was handled (SEED={seed})")
            every_queue = {(name, number) for name in Brokers.NAMES for number in range(QUEUES)}

            def shared_out() -> bool:
                held = [queue for member in present for queue in member.holds]
                return len(held) == len(every_queue) and set(held) == every_queue

            _until(shared_out, f"every queue is held by one member (SEED={seed})")
        finally:
            for member in present:
                member.end(signal.SIGKILL)
    times = sum(len(member.got) for member in everybody)
    print(
        f"\n{turns} turns with {MEMBERS} members (SEED={seed}): {len(sender.acknowledged)} messages "
        f"acknowledged ({sender.failed} sends failed), handled {times} times"
    )
    assert len(sender.acknowledged) > 100


def _churn(
    name_server: str, brokers: Brokers, everybody: list[Member], present: list[Member], chance: random.Random
) -> int:
    """Every two seconds a member goes and another comes; every third time a broker restarts as well."""
    deadline, turn = time.monotonic() + SECONDS, 0
    while time.monotonic() < deadline:
        turn += 1
        following = time.monotonic() + TURN_SECONDS
        leaving = present.pop(chance.randrange(len(present)))
        leaving.end(chance.choice((signal.SIGTERM, signal.SIGKILL)))
        if turn % 3 == 0:
            brokers.restart(chance.choice(Brokers.NAMES), chance.choice((signal.SIGTERM, signal.SIGKILL)))
        newcomer = Member(name_server)
        present.append(newcomer)
        everybody.append(newcomer)
        time.sleep(max(0.0, following - time.monotonic()))
    return turn


def _until(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS
    while not happened():
        assert time.monotonic() < deadline, f"{SETTLE_SECONDS} s passed before {what}"
        time.sleep(0.1)
