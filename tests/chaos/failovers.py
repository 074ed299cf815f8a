"""Masters that are killed or paused while they are written to, and how soon the next one acknowledges.

Three brokers elect their master (`kourou cluster up --layout 3n-auto`, real processes). Two producers of ours
send without a break, each with the usual three seconds for a send; the broker that leads is killed with -9,
or paused for longer than its lease, then comes back. Time runs from the kill to the first acknowledgement of
a send that began after it. Now and then the name server is killed, too: sends go on, for everybody knows
whom to ask, and it learns all anew when it is back. Before each fail-over the wall clock of one broker leaps.
A consumer of ours is pushed to all the while. In the end everything that was acknowledged must be there, and
have been handled.

`python -m tests.chaos.failovers 50` does so many; `make chaos FAILOVERS=…` does, too.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

import kourou
from kourou.admin import Connection, switching
from kourou.doors.files import Files, RealFiles
from kourou.local.machine_cluster import MachineCluster
from tests.chaos.clocks import WallClock

TOPIC = "failover"
SENDERS = 2
PAUSE_SECONDS = 4.0
FAILOVERS_A_NAME_SERVER = 5
STEADY_SECONDS_MAX = 40.0
SENDS_A_KILL_MIN = 20
THINK_SECONDS = 0.005


@dataclass
class Told:
    """What the senders were told, and when."""

    acknowledged: dict[str, float] = field(default_factory=dict)
    newest: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=50))
    """Of the last ones that were: when they were sent, and when acknowledged."""
    unknown: set[str] = field(default_factory=set)
    began: dict[str, float] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    longest_send: float = 0.0
    handled: Counter[str] = field(default_factory=Counter)
    handled_at: list[float] = field(default_factory=list)

    @property
    def longest_pause(self) -> float:
        """Of the consumer."""
        times = self.handled_at
        return max((later - at for at, later in pairwise(times)), default=0.0)


class Sender(threading.Thread):
    """Sends one after the other until told not to."""

    def __init__(self, name: str, name_server: str, told: Told) -> None:
        super().__init__(name=name, daemon=True)
        self._name_server = name_server
        self._told = told
        self.is_over = False

    def run(self) -> None:
        number = 0
        with kourou.Producer("failover", self._name_server) as producer:
            while not self.is_over:
                number += 1
                self._send(producer, f"{self.name}-{number}")
                time.sleep(THINK_SECONDS)

    def _send(self, producer: kourou.Producer, identity: str) -> None:
        told, began = self._told, time.monotonic()
        told.began[identity] = began
        try:
            sent = producer.send(kourou.Message(TOPIC, identity.encode()))
        except kourou.MQError as error:
            told.unknown.add(identity)
            told.failures[type(error).__name__] += 1
            return
        now = time.monotonic()
        told.longest_send = max(told.longest_send, now - began)
        if sent.status is kourou.SendStatus.SEND_OK:
            told.acknowledged[identity] = now
            told.newest.append((began, now))
        else:  # stored, but not where it should be: whether it stays is open
            told.unknown.add(identity)
            told.failures[sent.status.name] += 1


class Outcome(NamedTuple):
    seconds: list[float]
    """From each kill to the next acknowledgement."""
    told: Told
    lost: list[str]
    unhandled: list[str]
    twice: int
    kinds: Counter[str]
    name_servers_killed: int
    leaps: int
    """Of brokers' wall clocks."""

    @property
    def kills(self) -> list[float]:
        """Of `seconds`: a paused master's senders wait for their timeout first, a killed one's do not."""
        return self.seconds[self.kinds["paused"] :]

    def percentile(self, share: float) -> float:
        """Of the kills."""
        ordered = sorted(self.kills)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def report(self) -> str:
        told = self.told
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        twice = sum(count > 1 for count in told.handled.values())
        return (
            f"{len(self.seconds)} fail-overs ({kinds}), {self.name_servers_killed} kills of the name server, "
            f"{self.leaps} leaps of a clock; "
            "seconds from a kill to the next acknowledgement: p50 "
            f"{self.percentile(0.5):.2f}, p99 {self.percentile(0.99):.2f}, at most {max(self.kills):.2f}; "
            f"from any, at most {max(self.seconds):.2f}; "
            f"{len(told.began)} sent, {len(told.acknowledged)} acknowledged, {len(self.lost)} lost, "
            f"{self.twice} twice (sent again after no answer); longest send {told.longest_send:.2f} s; "
            f"not acknowledged: {dict(told.failures) or 'none'}; a consumer handled {len(told.handled)}, "
            f"{len(self.unhandled)} never {self.unhandled[:3] or ''}, {twice} twice, "
            f"and waited {told.longest_pause:.2f} s at most"
        )


class ClockedCluster(MachineCluster):
    """Every server has a wall clock of its own."""

    def __init__(self, folder: str, files: Files) -> None:
        super().__init__(folder, files)
        self._clocks: dict[str, WallClock] = {}

    def clock(self, name: str) -> WallClock:
        if name not in self._clocks:
            self._clocks[name] = WallClock(Path(self.folder) / f"{name}.clock")
        return self._clocks[name]

    def start(self, name: str) -> None:
        with pytest.MonkeyPatch.context() as patch:  # it hands its own environment on
            for variable, value in self.clock(name).environment.items():
                patch.setenv(variable, value)
            super().start(name)


class Failovers:
    """One cluster, and one master after the other."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.cluster = ClockedCluster(str(folder), RealFiles())
        self._chance = random.Random(seed)
        self.leaps = 0
        self.connection: Connection
        self.told = Told()
        self.kinds: Counter[str] = Counter()
        self.name_servers_killed = 0

    def run(self, times: int, *, pauses: int = 0) -> Outcome:
        self.cluster.up("3n-auto", settings={"deleteWhen": "04"})
        senders: list[Sender] = []
        consumer: kourou.PushConsumer | None = None
        try:
            with Connection(self.cluster.name_servers, timeout=1.0) as connection:
                self.connection = connection
                self._await_master(members=3)
                senders = [
                    Sender(f"s{number}", self.cluster.name_servers, self.told) for number in range(SENDERS)
                ]
                for sender in senders:
                    sender.start()
                self._await_sends(SENDS_A_KILL_MIN)
                consumer = self._consumer()
                seconds = []
                for number in range(times):
                    if number % FAILOVERS_A_NAME_SERVER == 0:
                        self._without_name_server()
                    self._set_a_clock()
                    seconds.append(self._once("paused" if number < pauses else "killed"))
                for sender in senders:
                    sender.is_over = True
                for sender in senders:
                    sender.join(10.0)
                self._await_master(members=3)
                found = self._everything()
                unhandled = self._unhandled()
        finally:
            for sender in senders:
                sender.is_over = True
            if consumer is not None:
                consumer.close()
            self.cluster.down()
        lost = sorted(set(self.told.acknowledged) - set(found))
        return Outcome(
            seconds,
            self.told,
            lost,
            unhandled,
            sum(count - 1 for count in found.values()),
            self.kinds,
            self.name_servers_killed,
            self.leaps,
        )

    def _consumer(self) -> kourou.PushConsumer:
        consumer = kourou.PushConsumer("failover-workers", self.cluster.name_servers)

        @consumer.on(TOPIC)
        def handle(message: kourou.ReceivedMessage) -> None:
            self.told.handled_at.append(time.monotonic())
            self.told.handled[message.body.decode()] += 1

        consumer.start()
        return consumer

    def _unhandled(self) -> list[str]:
        """What the consumer never got, even after a while."""
        deadline = time.monotonic() + STEADY_SECONDS_MAX
        while (missing := self.told.acknowledged.keys() - self.told.handled.keys()) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.1)
        return sorted(missing)

    def _once(self, kind: str) -> float:
        """The master goes; how long until the next acknowledgement. It is back when this returns."""
        name = self._await_master(members=3)
        began = time.monotonic()
        self.cluster.tell(name, signal.SIGSTOP if kind == "paused" else signal.SIGKILL)
        self.kinds[kind] += 1
        took = self._await_acknowledgement(began)
        if kind == "paused":
            time.sleep(max(0.0, began + PAUSE_SECONDS - time.monotonic()))
            self.cluster.tell(name, signal.SIGCONT)
        else:
            self.cluster.start(name)
        self._await_sends(SENDS_A_KILL_MIN)
        return took

    def _set_a_clock(self) -> None:
        brokers = [server.name for server in self.cluster.servers() if server.kind == "broker"]
        self.leaps += self.cluster.clock(self._chance.choice(brokers)).trouble(self._chance)

    def _without_name_server(self) -> None:
        name = next(server.name for server in self.cluster.servers() if server.kind == "nameserver")
        self.cluster.tell(name, signal.SIGKILL)
        self._await_sends(SENDS_A_KILL_MIN)
        self.cluster.start(name)
        self.name_servers_killed += 1

    def _await_acknowledgement(self, began: float) -> float:
        deadline = began + STEADY_SECONDS_MAX
        while time.monotonic() < deadline:
            for sent_at, at in list(self.told.newest):
                if sent_at > began:
                    return at - began
            time.sleep(0.01)
        raise AssertionError(f"nothing was acknowledged for {STEADY_SECONDS_MAX} s: {self._shown()}")

    def _await_sends(self, count: int) -> None:
        wanted = len(self.told.acknowledged) + count
        deadline = time.monotonic() + STEADY_SECONDS_MAX
        while len(self.told.acknowledged) < wanted:
            assert time.monotonic() < deadline, f"too few sends: {self._shown()}"
            time.sleep(0.02)

    def _await_master(self, members: int) -> str:
        """The name of the server that leads, once so many are in sync."""
        by_address = {server.address: server.name for server in self.cluster.servers()}
        deadline = time.monotonic() + STEADY_SECONDS_MAX
        while time.monotonic() < deadline:
            for each in self._states():
                detail = each.detail
                if detail is None or not (each.node.is_master and detail.may_acknowledge):
                    continue
                if len(detail.in_sync) >= members:
                    return by_address[each.node.address]
            time.sleep(0.05)
        raise AssertionError(f"no master with {members} in sync: {self._shown()}")

    def _states(self) -> list[switching.State]:
        try:
            return switching.states(self.connection)
        except kourou.MQError:
            return []

    def _shown(self) -> str:
        states = [
            (each.node.address, each.role, each.term, each.detail, each.error) for each in self._states()
        ]
        return f"{states}; failures {dict(self.told.failures)}"

    def _everything(self) -> Counter[str]:
        found: Counter[str] = Counter()
        with kourou.PullConsumer("failover-reader", TOPIC, self.cluster.name_servers) as consumer:
            while received := consumer.receive(1000, timeout=3.0):
                found.update(message.body.decode() for message in received)
        return found


def failed_over(times: int, *, pauses: int = 0) -> Outcome:
    """In a folder of its own."""
    seed = int(os.environ.get("SEED", time.time_ns() % 100_000))
    with tempfile.TemporaryDirectory(prefix="kourou-failover-") as folder:
        return Failovers(Path(folder), seed).run(times, pauses=pauses)


def main() -> None:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else int(os.environ.get("FAILOVERS", "50"))
    outcome = failed_over(times, pauses=times // 5)
    print(outcome.report())
    sys.exit(1 if outcome.lost or outcome.unhandled else 0)


if __name__ == "__main__":
    main()
