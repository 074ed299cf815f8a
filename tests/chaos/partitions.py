"""Brokers on machines of their own (`namespaces.py`), and the wire between them really cut, under traffic.

    a replica set   the master of three is cut off from both others: they elect another within seconds, the
                    old one confirms nothing once its lease has run out, and comes back as a slave
    a pair          a sync master and its slave are cut apart: senders are told that no slave has it

In the end everything that was acknowledged is there, and the logs are the same bytes.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import kourou
from kourou.admin import Connection, switching
from kourou.errors import MQError
from kourou.protocol.codes import ResponseCode
from kourou.remoting.blocking import BlockingClient
from tests.chaos.clients import _send_request
from tests.chaos.namespaces import Machine, Wires
from tests.chaos.oracle import Sent
from tests.chaos.replica_faults import log_of
from tests.kourou_process import PROGRAM, Serving, serving

TOPIC, PORT = "parted", 10911
STEADY_SECONDS_MAX = 40.0
LEASE_SECONDS = 1.0
SETTINGS = (
    "brokerName=parted\nlistenPort={port}\nbindAddress={host}\ninsecure=true\nnamesrvAddr={name_server}\n"
    "haSecret=they know each other\nslaveTimeout=1500\nhaMetadataInterval=300\n"
    "mappedFileSizeCommitLog=4194304\ndefaultTopicQueueNums=4\n"
)


class Set:
    """Brokers that replicate, and somebody who sends to them."""

    def __init__(self, folder: Path, wires: Wires, stack: ExitStack) -> None:
        self.wires = wires
        self.counters: Counter[str] = Counter()
        self.acknowledged: set[bytes] = set()
        self.last_acknowledged = 0.0
        self.is_over = False
        self._folder = folder
        self._stack = stack
        self._machines: dict[str, Machine] = {}
        self._serving: dict[str, Serving] = {}
        config = folder / "namesrv.conf"
        config.write_text(f"bindAddress={wires.test_host}\ninsecure=true\nkvConfigPath={folder}/kv.json\n")
        name_server = stack.enter_context(
            serving("nameserver", "-c", config, "--port", "0", folder=folder, until="listens on")
        )
        self.name_server = name_server.address("listens on")
        self.connection = stack.enter_context(Connection(self.name_server, timeout=1.0))

    def machines(self, count: int) -> list[Machine]:
        return [self.wires.machine() for _ in range(count)]

    def start(self, machine: Machine, settings: str) -> None:
        folder = self._folder / machine.host
        folder.mkdir()
        config = folder / "broker.conf"
        usual = SETTINGS.format(port=PORT, host=machine.host, name_server=self.name_server)
        config.write_text(usual + settings)
        arguments = ("broker", "-c", config, "--data", folder / "store")
        program = machine.entrance + PROGRAM
        server = serving(*arguments, folder=folder, until="listens on", program=program)
        address = f"{machine.host}:{PORT}"
        self._serving[address] = self._stack.enter_context(server)
        self._machines[address] = machine

    # Looking.

    def states(self) -> list[switching.State]:
        try:
            return switching.states(self.connection)
        except MQError:
            return []

    def master(self, other_than: str = "") -> str | None:
        """Whoever leads, and may acknowledge."""
        for each in self.states():
            detail = each.detail
            if detail is None or not each.node.is_master or each.node.address == other_than:
                continue
            if not detail.is_elected or detail.may_acknowledge:
                return each.node.address
        return None

    def in_sync(self) -> int:
        found = [len(each.detail.in_sync) for each in self.states() if each.detail and each.node.is_master]
        return max(found, default=0)

    def until(self, is_so: Callable[[], object], what: str) -> float:
        began = time.monotonic()
        while not is_so():
            assert time.monotonic() - began < STEADY_SECONDS_MAX, f"{what}: {self.states()}"
            time.sleep(0.05)
        return time.monotonic() - began

    def machine_of(self, address: str) -> Machine:
        return self._machines[address]

    # Traffic.

    def send_all_the_time(self) -> threading.Thread:
        thread = threading.Thread(target=self._send, daemon=True)
        thread.start()
        return thread

    def _send(self) -> None:
        with kourou.Producer("senders", self.name_server) as producer:
            while not self.is_over:
                self.counters["sent"] += 1
                body = b"%d" % self.counters["sent"]
                try:
                    sent = producer.send(kourou.Message(TOPIC, body))
                    self.counters[sent.status.name] += 1
                    if sent.status is kourou.SendStatus.SEND_OK:
                        self.acknowledged.add(body)
                        self.last_acknowledged = time.monotonic()
                except MQError as error:
                    self.counters[type(error).__name__] += 1
                time.sleep(0.005)

    def more_is_acknowledged(self, count: int = 20) -> float:
        wanted = len(self.acknowledged) + count
        return self.until(lambda: len(self.acknowledged) >= wanted, f"no sends go through: {self.counters}")

    def confirmed_by(self, address: str, seconds: float) -> int:
        """How many sends a certain broker confirms, within so many seconds."""
        deadline, confirmed, number = time.monotonic() + seconds, 0, 0
        with BlockingClient() as client:
            while time.monotonic() < deadline:
                number += 1
                message = Sent("x", number, (TOPIC, 0), b"x/%d" % number, {"UNIQ_KEY": "x".rjust(32, "0")})
                try:
                    reply = client.call(address, _send_request((TOPIC, 0), [message], False), 2.0)
                    confirmed += reply.code == ResponseCode.SUCCESS
                except MQError:
                    pass  # which confirms nothing, too
                time.sleep(0.02)
        return confirmed

    # The end.

    def examine(self, sending: threading.Thread) -> None:
        self.is_over = True
        sending.join(10.0)
        found: set[bytes] = set()
        with kourou.PullConsumer("readers", TOPIC, self.name_server) as consumer:
            while received := consumer.receive(1000, timeout=1.5):
                found |= {message.body for message in received}
        lost = self.acknowledged - found
        self.counters["acknowledged"], self.counters["lost"] = len(self.acknowledged), len(lost)
        assert not lost, f"{len(lost)} acknowledged messages are lost: {sorted(lost)[:3]}"
        time.sleep(0.5)  # the last of it is on its way to the slaves
        for server in self._serving.values():
            server.kill()
        logs = [log_of(self._folder / machine.host) for machine in self._machines.values()]
        assert all(log == logs[0] for log in logs), "the logs differ (I8)"


def master_cut_off(folder: Path, wires: Wires, rounds: int) -> tuple[Counter[str], list[float]]:
    """Of a set that elects; the seconds from each cut to the next acknowledgement."""
    with ExitStack() as stack:
        parted = Set(folder, wires, stack)
        machines = parted.machines(3)
        members = ";".join(f"{machine.host}:{PORT}" for machine in machines)
        for machine in machines:
            parted.start(machine, f"brokerRole=SYNC_MASTER\nelectionMembers={members}\n")
        parted.until(lambda: parted.in_sync() == 3, "not all are in sync")
        sending = parted.send_all_the_time()
        parted.more_is_acknowledged()
        seconds = []
        for _ in range(rounds):
            before = parted.master()
            assert before is not None
            cut_at = time.monotonic()
            wires.isolate(parted.machine_of(before))
            parted.until(lambda before=before: parted.master(before), "nobody leads on the other side")  # type: ignore[misc]
            parted.until(lambda at=cut_at: parted.last_acknowledged > at + LEASE_SECONDS, "no sends")  # type: ignore[misc]
            seconds.append(parted.last_acknowledged - cut_at)
            parted.counters["confirmed by the one cut off"] += parted.confirmed_by(before, 0.5)
            parted.more_is_acknowledged()
            wires.join(parted.machine_of(before))
            parted.until(lambda: parted.in_sync() == 3, "the one that was cut off is not back")
            parted.more_is_acknowledged()
        parted.examine(sending)
        return parted.counters, seconds


def pair_cut_apart(folder: Path, wires: Wires, rounds: int) -> Counter[str]:
    """A sync master and its slave, for longer than the slave has to answer."""
    with ExitStack() as stack:
        pair = Set(folder, wires, stack)
        master, slave = pair.machines(2)
        pair.start(master, "brokerRole=SYNC_MASTER\n")
        pair.start(slave, "brokerRole=SLAVE\nbrokerId=1\n")
        sending = pair.send_all_the_time()
        pair.more_is_acknowledged()
        for _ in range(rounds):
            wires.isolate(slave)
            before = pair.counters["SLAVE_NOT_AVAILABLE"]
            pair.until(lambda at=before: pair.counters["SLAVE_NOT_AVAILABLE"] > at + 20, "nobody is told")  # type: ignore[misc]
            wires.join(slave)
            pair.more_is_acknowledged()
        pair.examine(sending)
        return pair.counters
