"""Three real brokers that elect their master, or two and a witness, in a simulated world from one integer.

Everything is as it runs (brokers, replication, election, name server, producers) but for the doors: network,
disks and clocks are simulated, so kills, power cuts and cut wires come at any moment and can be played again.
Messages are sent all the time, and whatever a broker shows is read from it at once, be it master or slave,
old or just started. In the end all that was acknowledged must be at the master, all logs must be the same
bytes, and what readers have seen must be where they saw it: else their group would pass over what took its
place.

    python -m tests.sim.elected_brokers --seeds 200
    python -m tests.sim.elected_brokers --seed 7 [--mutation acknowledged_by_one]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from contextlib import nullcontext
from typing import Any, NamedTuple
from unittest import mock

from kourou.broker.replicating import Replicating
from kourou.client.sends import SendStatus
from kourou.doors.simulated_network import SimulatedNetwork
from kourou.errors import MQError
from kourou.message import Message
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import request
from kourou.protocol.headers import PullMessage, PullReply
from kourou.protocol.record import decode_all
from kourou.remoting.client import Client
from kourou.replication.election import Election
from kourou.replication.primary import Primary
from kourou.store.store import Store
from tests.sim.actors import SimulatedProducer
from tests.sim.machines import BROKER_PORT, BrokerMachine, Machine, NameServerMachine, SeededChance
from tests.sim.simulation import _nothing_from_outside
from tests.sim.virtual_time import VirtualClock, VirtualLoop

TOPIC, QUEUES = "orders", 2
HOSTS = ("127.0.2.1", "127.0.2.2", "127.0.2.3")
SENDERS = 2
TROUBLE_SECONDS = 20.0
GOES_ON_SECONDS = 20.0
SETTLES_SECONDS = 60.0
ACKNOWLEDGED_MIN = 20
FAULTS = ("kill", "power_cut", "isolate", "one_way", "stop", "kill_name_server")

SETTINGS: dict[str, Any] = {
    "broker_role": "SYNC_MASTER",
    "flush_disk_type": "SYNC_FLUSH",
    "name_servers": ("127.0.1.1:9876",),
    "segment_bytes": 64 * 1024,
    "consume_queue_bytes": 2000,
    "index_slots": 32,
    "index_entries": 4096,
    "register_interval_ms": 10_000,
    "clean_forcibly": False,
    "delete_hours": frozenset(),
    "message_bytes_max": 6000,
}


class World:
    """Everything of one run."""

    def __init__(self, seed: int, tell: bool = False) -> None:
        self.chance = SeededChance(seed)
        loop = asyncio.get_running_loop()
        self.network = SimulatedNetwork(VirtualClock(loop))
        latency = self.chance.choice((0.0, 0.001, 0.02))
        if latency:
            self.network.latency = lambda: self.chance.uniform(0, latency)
        self.name_server = NameServerMachine(self.network, "127.0.1.1", self._own())
        with_witness = seed % 3 == 1
        hosts = HOSTS[:2] if with_witness else HOSTS
        settings = {**SETTINGS, "election_members": tuple(f"{host}:{BROKER_PORT}" for host in hosts)}
        if with_witness:
            settings["election_witnesses"] = (self.name_server.address,)
        self.brokers = [
            BrokerMachine(self.network, "shop", host, self._own(), dict(settings)) for host in hosts
        ]
        self.acknowledged: set[bytes] = set()
        self.seen: dict[tuple[int, int], set[bytes]] = {}
        """By queue and offset: what readers got there."""
        self.unknown = 0
        self.faults = 0
        self.found: list[str] = []
        self.is_busy = True
        self.kinds = tuple(fault for fault in FAULTS if self.chance.random() < 0.6) or ("kill",)
        self._tell = tell
        self._tasks: list[asyncio.Task[Any]] = []

    def _own(self) -> SeededChance:
        return SeededChance(self.chance.getrandbits(64))

    async def run(self) -> list[str]:
        self.name_server.start()
        for broker in self.brokers:
            await broker.start()
        await self._until(lambda: self.master() is not None, GOES_ON_SECONDS, "no master at the beginning")
        master = self.master()
        if master is None or master.broker is None:
            return self.found
        shape = TopicConfig(topic_name=TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        master.broker.topics.save({TOPIC: shape})
        await asyncio.sleep(1.0)
        for number in range(SENDERS):
            machine = Machine(self.network, f"127.0.3.{number + 1}", self._own())
            machine.boot()
            self._tasks.append(machine.spawn(self._send(machine, number)))
        for number, broker in enumerate(self.brokers):
            machine = Machine(self.network, f"127.0.4.{number + 1}", self._own())
            machine.boot()
            self._tasks += [machine.spawn(self._read(machine, broker, queue)) for queue in range(QUEUES)]
        await self._stir()
        await self._peace()
        await self._settle()
        self._judge()
        if not self.found and len(self.seen) < len(self.acknowledged) // 2:
            self.found.append(f"only {len(self.seen)} were read: nothing is proved")
        return self.found

    def master(self) -> BrokerMachine | None:
        for machine in self.brokers:
            broker = machine.broker
            if not machine.is_up or broker is None or broker.switching is None:
                continue
            if broker.role.is_master and broker.switching.why_not() is None:
                return machine
        return None

    async def _until(self, is_so: Any, seconds: float, what: str) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not is_so():
            if asyncio.get_running_loop().time() > deadline:
                self.found.append(f"{what} after {seconds:g} s: {self._shown()}")
                return
            await asyncio.sleep(0.05)

    async def _send(self, machine: Machine, number: int) -> None:
        producer = SimulatedProducer(machine, f"senders-{number}", None, self.name_server.address)
        count = 0
        while self.is_busy:
            count += 1
            body = b"%d-%d" % (number, count)
            try:
                sent = await producer.send(Message(TOPIC, body))
                if sent.status is SendStatus.SEND_OK:
                    self.acknowledged.add(body)
                else:
                    self.unknown += 1
            except MQError:
                self.unknown += 1
            await asyncio.sleep(self.chance.uniform(0.01, 0.1))

    async def _read(self, machine: Machine, broker: BrokerMachine, queue_id: int) -> None:
        """Whatever this broker shows of a queue, as soon as it does."""
        client = Client(
            network=machine.network, clock=machine.clock, chance=self._own(), retry_seconds_max=0.1
        )
        at = 0
        while True:
            pull = PullMessage(
                consumer_group="readers",
                topic=TOPIC,
                queue_id=queue_id,
                queue_offset=at,
                message_count_max=32,
                sys_flag=6,  # wait for what comes; the filter is in here
                subscription="*",
                expression_type="TAG",
                suspend_timeout_ms=1000,
            )
            try:
                reply = await client.call(
                    f"{broker.host}:{BROKER_PORT}", request(RequestCode.PULL_MESSAGE, pull), 3.0
                )
            except MQError:
                await asyncio.sleep(0.02)
                continue
            if reply.code == ResponseCode.SUCCESS:
                for each in decode_all(reply.body):
                    self.seen.setdefault((queue_id, each.queue_offset), set()).add(each.body)
                at = reply.parse(PullReply).next_begin_offset
            else:
                await asyncio.sleep(0.02)

    # ---------------------------------------------------------------------------------------------- trouble

    async def _stir(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + TROUBLE_SECONDS
        while loop.time() < end:
            await asyncio.sleep(self.chance.uniform(0.2, 4.0))
            self.faults += 1
            kind = self.chance.choice(self.kinds)
            machine = self._someone()
            self._say(f"{kind} {machine.host}")
            getattr(self, f"_{kind}")(machine)

    def _someone(self) -> BrokerMachine:
        master = self.master()
        return (
            master if master is not None and self.chance.random() < 0.6 else self.chance.choice(self.brokers)
        )

    def _kill(self, machine: BrokerMachine) -> None:
        machine.kill()
        self._back_later(machine)

    def _power_cut(self, machine: BrokerMachine) -> None:
        machine.cut_power()
        self._back_later(machine)

    def _stop(self, machine: BrokerMachine) -> None:
        if machine.is_up and machine.starting is not None and machine.starting.done():
            self._tasks.append(asyncio.get_running_loop().create_task(self._stop_and_start(machine)))

    async def _stop_and_start(self, machine: BrokerMachine) -> None:
        await machine.stop()
        self._back_later(machine)

    def _back_later(self, machine: BrokerMachine) -> None:
        seconds = self.chance.choice((0.05, 0.5, 2.0, 5.0))
        asyncio.get_running_loop().call_later(seconds, self._start, machine)

    def _start(self, machine: BrokerMachine) -> None:
        if not machine.is_up:
            self._say(f"start {machine.host}")
            self._tasks.append(asyncio.get_running_loop().create_task(machine.start()))

    def _kill_name_server(self, machine: BrokerMachine) -> None:
        self.name_server.kill()
        asyncio.get_running_loop().call_later(
            self.chance.choice((0.1, 3.0)),
            lambda: None if self.name_server.is_up else self.name_server.start(),
        )

    def _isolate(self, machine: BrokerMachine) -> None:
        for other in (*(each.host for each in self.brokers), self.name_server.host):
            self._cut(machine.host, other)
            self._cut(other, machine.host)

    def _one_way(self, machine: BrokerMachine) -> None:
        self._cut(machine.host, self.chance.choice(self.brokers).host)

    def _cut(self, source: str, target: str) -> None:
        if source != target:
            self.network.cut(source, target)
            seconds = self.chance.choice((0.3, 1.5, 3.0, 6.0))
            asyncio.get_running_loop().call_later(seconds, self.network.mend, source, target)

    async def _peace(self) -> None:
        await asyncio.sleep(7.0)  # every wire is mended, everybody is back
        for machine in self.brokers:
            self._start(machine)
        if not self.name_server.is_up:
            self.name_server.start()
        wanted = len(self.acknowledged) + 10
        await self._until(lambda: len(self.acknowledged) >= wanted, GOES_ON_SECONDS, "no sends go through")

    async def _settle(self) -> None:
        """Nobody sends; soon all three are in sync, and have the same."""
        self.is_busy = False
        await self._until(self._is_settled, SETTLES_SECONDS, "the logs are not the same")

    def _is_settled(self) -> bool:
        master = self.master()
        if master is None or master.broker is None or master.broker.switching is None:
            return False
        ends = {each.broker.store.wrote for each in self.brokers if each.broker is not None and each.is_up}
        in_sync = master.broker.switching.state.in_sync
        return len(in_sync) == len(self.brokers) and len(ends) == 1

    # --------------------------------------------------------------------------------------------- judgment

    def _judge(self) -> None:
        master = self.master()
        if self.found or master is None:
            return
        stored = self._stored(master)
        lost = self.acknowledged - set(stored.values())
        if lost:
            self.found.append(f"{len(lost)} acknowledged messages are lost: {sorted(lost)[:3]}")
        gone = {place: bodies for place, bodies in self.seen.items() if bodies != {stored.get(place)}}
        if gone:
            place = min(gone)
            self.found.append(
                f"readers saw at {len(gone)} places what is not there any more: {sorted(gone[place])} in "
                f"queue {place[0]} at {place[1]}, where {stored.get(place)!r} is"
            )
        if len(self.acknowledged) < ACKNOWLEDGED_MIN:
            self.found.append(f"only {len(self.acknowledged)} were acknowledged: nothing is proved")
        logs = {machine.host: _log_of(machine) for machine in self.brokers}
        if len(set(logs.values())) > 1:
            sizes = {host: len(log) for host, log in logs.items()}
            self.found.append(f"I8: the logs differ: {sizes}")

    def _stored(self, machine: BrokerMachine) -> dict[tuple[int, int], bytes]:
        """What is there in the end, by queue and offset."""
        assert machine.broker is not None
        store, found = machine.broker.store, {}
        for queue_id in range(QUEUES):
            at, end = store.min_offset(TOPIC, queue_id), store.max_offset(TOPIC, queue_id)
            while at < end:
                got = store.read(TOPIC, queue_id, at, 32)
                for each in decode_all(b"".join(got.messages)):
                    found[queue_id, each.queue_offset] = each.body
                at = max(got.next_offset, at + 1)
        return found

    def _shown(self) -> str:
        shown = []
        for machine in self.brokers:
            broker = machine.broker
            if broker is None or not machine.is_up or broker.switching is None:
                shown.append(f"{machine.host} {machine.ended or 'down'} {machine.refusals[-1:]}")
                continue
            try:
                state: Any = broker.switching.state
            except MQError as error:
                state = error
            following = broker.replicating.replica
            shown.append(f"{state} {broker.role.name} {following.state} {following.reason}")
        return "\n  ".join(shown)

    def _say(self, what: str) -> None:
        if self._tell:
            print(f"{asyncio.get_running_loop().time():8.3f} {what}")

    async def bury(self) -> None:
        self.is_busy = False
        for machine in (*self.brokers, self.name_server):
            machine.kill()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)


def _log_of(machine: BrokerMachine) -> bytes:
    """The bytes of its log, as far as it goes."""
    assert machine.broker is not None
    store, files = machine.broker.store, machine.files
    names = sorted(files.list("store/commitlog"))
    whole = b"".join(files.read(f"store/commitlog/{name}") for name in names)
    begin = int(names[0]) if names else 0
    return whole[: store.wrote - begin]


class Outcome(NamedTuple):
    seed: int
    found: list[str]
    acknowledged: int
    unknown: int
    faults: int
    terms: int

    @property
    def replay(self) -> str:
        return f"python -m tests.sim.elected_brokers --seed {self.seed}"


def acknowledged_by_one() -> Any:
    """a message is acknowledged before the replicas have it"""
    return mock.patch.object(Primary, "_enough_have", lambda self: self._store.wrote)


def not_in_sync_is_elected() -> Any:
    """a replica leads that is not in sync"""
    return mock.patch.object(Election, "_may_lead", return_value=True)


def shown_before_a_master_says_so() -> Any:
    """readers of a slave, or of one that leads no more, see all of its log"""
    return mock.patch.object(Store, "show_up_to", return_value=None)


def shown_after_a_start() -> Any:
    """readers of a member that has just started see all of its log"""
    return mock.patch.object(Replicating, "_show_nothing_unsure", return_value=None)


MUTATIONS = {
    each.__name__: each
    for each in (
        acknowledged_by_one,
        not_in_sync_is_elected,
        shown_before_a_master_says_so,
        shown_after_a_start,
    )
}


def simulate(seed: int, tell: bool = False, mutation: str | None = None) -> Outcome:
    """The world of this seed."""
    loop = VirtualLoop()
    with _nothing_from_outside(), MUTATIONS[mutation]() if mutation else nullcontext():
        try:
            return loop.run_until_complete(_run(seed, tell))
        finally:
            loop.close()


async def _run(seed: int, tell: bool) -> Outcome:
    world = World(seed, tell)
    try:
        found = await world.run()
    except Exception as error:
        found = [*world.found, f"{type(error).__name__}: {error}"]
    terms = max((each.broker.role.term for each in world.brokers if each.broker is not None), default=0)
    await world.bury()
    return Outcome(seed, found, len(world.acknowledged), world.unknown, world.faults, terms)


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.sim.elected_brokers", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    parser = argparse.ArgumentParser(prog="python -m tests.sim.elected_brokers")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--mutation", choices=MUTATIONS)
    options = parser.parse_args()
    if options.seed is not None:
        outcome = simulate(options.seed, tell=True, mutation=options.mutation)
        print(outcome)
        return 1 if outcome.found else 0
    began = time.perf_counter()
    failed = acknowledged = faults = terms = 0
    for seed in range(options.first, options.first + options.seeds):
        outcome = simulate(seed, mutation=options.mutation)
        acknowledged += outcome.acknowledged
        faults += outcome.faults
        terms += outcome.terms
        if outcome.found:
            failed += 1
            print(f"seed {seed} FAILED: {outcome.found[0]}\n    again: {outcome.replay}", flush=True)
            if options.mutation:
                break  # one that shows it is enough
    seconds = time.perf_counter() - began
    print(
        f"{options.seeds} seeds from {options.first}: {failed} failed; {acknowledged} messages acknowledged, "
        f"{faults} faults, {terms} terms; {options.seeds / seconds:.1f} seeds a second"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
