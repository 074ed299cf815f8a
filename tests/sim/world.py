"""A small world from one integer: brokers, name servers, clients, and what befalls them.

plan      what there is, how it is set, which faults there are: drawn from the seed, some kinds left out
          in each run, so that the others come in earnest (swarm testing)
trouble   for some seconds faults come and go while everybody works
peace     everything heals; soon all goes on, and in the end everything promised is there and handled
judgment  the oracle (tests/chaos/oracle.py); after every start of a broker, and at the end
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from kourou.doors.simulated_network import SimulatedNetwork
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.names import dead_letter_topic
from tests.chaos.oracle import History, Place, Queue, Stored, faults, unhandled
from tests.sim.actors import (
    FREE,
    LATER,
    ORDERED,
    READERS,
    READS,
    Actor,
    Member,
    Reader,
    Sender,
    SlowReader,
    stored_of,
)
from tests.sim.machines import BrokerMachine, Machine, NameServerMachine, SeededChance
from tests.sim.virtual_time import VirtualClock

TOPICS = (FREE, ORDERED, LATER)
GOES_ON_SECONDS = 15.0
"""A name server that came back knows its brokers after their next registration (10 s as set here), a client
that guessed a route in the meantime looks again after 3 s."""
SETTLES_SECONDS = 90.0
FLUSH_WINDOW_SECONDS = 4.0
"""What ASYNC_FLUSH may lose: its two intervals as set here, and the time a healthy disk takes."""

ACKNOWLEDGED_MIN, HANDLED_MIN = 12, 12
"""Fewer, and the run has proved nothing."""

TASKS_MAX = 250
DISK_SECONDS = ((0.0, 0.002), (0.0, 0.002), (0.005, 0.03))
"""How long half a sync takes on a healthy disk: the slower ones show who does not wait for it."""


@dataclass(frozen=True)
class Plan:
    """What one run is made of."""

    brokers: int
    name_servers: int
    senders: int
    members: int
    queues: int
    seconds: float
    settings: dict[str, Any]
    ways: dict[str, float]
    faults: tuple[str, ...]
    fault_seconds: float
    latency_seconds: float
    cuts_pieces: bool
    think_seconds: float
    handling_seconds: float
    failing_handlers: float
    reading_seconds: float
    delay_levels_ms: tuple[int, ...]


WAYS = ("anywhere", "by_key", "batch", "delayed", "transaction")
FAULTS = (
    "kill",
    "kill_at_work",
    "power_cut",
    "power_cut_at_work",
    "restart",
    "disk_full",
    "slow_disk",
    "sync_error",
    "reset",
    "partition",
    "one_way",
    "clock_jump",
    "kill_client",
    "kill_name_server",
    "deaf_client",
)


def drawn_plan(chance: SeededChance) -> Plan:
    ways = [way for way in WAYS if chance.random() < 0.7] or ["anywhere"]
    kinds = tuple(fault for fault in FAULTS if chance.random() < 0.5)
    levels = tuple(chance.choice((500, 1000, 2000)) for _ in range(18))
    settings: dict[str, Any] = {
        "flush_disk_type": chance.choice(("SYNC_FLUSH", "SYNC_FLUSH", "ASYNC_FLUSH")),
        "flush_interval_ms": 500,
        "flush_thorough_interval_ms": 2_000,
        "sync_flush_timeout_ms": 2_000,
        "segment_bytes": chance.choice((8, 16, 64, 1024)) * 1024,
        "consume_queue_bytes": chance.choice((16, 64, 1000)) * 20,
        "index_slots": 32,
        "index_entries": chance.choice((64, 4096)),
        "offsets_save_interval_ms": chance.choice((200, 1000, 5000)),
        "delay_offsets_save_interval_ms": chance.choice((500, 3000)),
        "delay_levels_ms": levels,
        "transaction_timeout_ms": 1_000,
        "transaction_check_interval_ms": chance.choice((700, 2_000)),
        "transaction_checks_max": 10_000,
        "register_interval_ms": 10_000,
        "clean_forcibly": False,
        "delete_hours": frozenset(),
        "message_bytes_max": 6000,
    }
    return Plan(
        brokers=chance.choice((1, 1, 2)),
        name_servers=chance.choice((1, 1, 2)),
        senders=chance.randint(1, 3),
        members=chance.randint(1, 2),
        queues=chance.randint(1, 3),
        seconds=chance.uniform(5, 12),
        settings=settings,
        ways={way: chance.uniform(0.2, 1.0) for way in ways},
        faults=kinds,
        fault_seconds=chance.choice((0.7, 1.5, 3.0)),
        latency_seconds=chance.choice((0.0, 0.001, 0.02, 0.1)),
        cuts_pieces=chance.random() < 0.2,
        think_seconds=chance.choice((0.1, 0.2, 0.4)),
        handling_seconds=chance.choice((0.0005, 0.01, 0.1)),
        failing_handlers=chance.choice((0.0, 0.0, 0.05, 0.2)),
        reading_seconds=chance.choice((0.1, 0.5, 2.0)),
        delay_levels_ms=levels,
    )


class World:
    """Everything in one run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = SeededChance(seed)
        self.plan = plan = drawn_plan(self.chance)
        loop = asyncio.get_running_loop()
        self.history = History(lambda: round(loop.time(), 6))
        self.network = SimulatedNetwork(
            VirtualClock(loop), SeededChance(seed + 1) if plan.cuts_pieces else None
        )
        if plan.latency_seconds:
            self.network.latency = lambda: self.chance.uniform(0, plan.latency_seconds)
        self.is_busy = True
        self.found: list[str] = []
        self.lost_by_async: set[str] = set()
        self.lost_power: set[str] = set()
        """Their queues may leave out offsets: of two messages not synced, perhaps the later is left."""
        self._seen: dict[tuple[str, str, int], int] = {}
        self.handed_back: set[str] = set()
        self._excused: set[str] = set()
        self._unsaved: set[tuple[str, str, int]] = set()
        self._restarting: list[asyncio.Task[Any]] = []
        self._due: dict[str, float] = {}
        self._frontier: dict[Queue, int] = {}
        self._jumps_ms = 0
        self._slow_until = 0.0
        self._hosts = iter(f"127.0.3.{number}" for number in range(1, 100))
        self.nameservers = [
            NameServerMachine(self.network, f"127.0.1.{number}", self._chance())
            for number in range(1, plan.name_servers + 1)
        ]
        self.name_servers = ";".join(machine.address for machine in self.nameservers)
        settings = {**plan.settings, "name_servers": tuple(self.name_servers.split(";"))}
        self.brokers = [
            BrokerMachine(self.network, f"b{number}", f"127.0.2.{number}", self._chance(), settings)
            for number in range(1, plan.brokers + 1)
        ]
        for broker in self.brokers:
            broker.usual_disk_delay = broker.disk_delay = DISK_SECONDS[seed % len(DISK_SECONDS)]
        self.senders = [Sender(self, self._machine(), f"s{number}") for number in range(plan.senders)]
        self.members = [Member(self, self._machine(), group) for group in READS for _ in range(plan.members)]
        self.readers: list[Actor] = [Reader(self, self._machine())]
        if "deaf_client" in plan.faults:
            self.readers.append(SlowReader(self, self._machine()))

    @property
    def is_sync(self) -> bool:
        """Whether nobody is shown what a power cut could take."""
        return self.plan.settings["flush_disk_type"] == "SYNC_FLUSH"

    def _chance(self) -> SeededChance:
        return SeededChance(self.chance.getrandbits(64))

    def _machine(self) -> Machine:
        return Machine(self.network, next(self._hosts), self._chance())

    @property
    def clients(self) -> list[Actor]:
        return [*self.senders, *self.members, *self.readers]

    # ------------------------------------------------------------------------------------------- one run

    async def run(self) -> list[str]:
        """What was wrong."""
        from tests.sim.trouble import Trouble

        for server in self.nameservers:
            server.start()
        for broker in self.brokers:
            await self._start_broker(broker)
            self._make_topics(broker)
        await asyncio.sleep(
            0.5
        )  # before the name servers know them, a client would believe in the default topic
        for client in self.clients:
            client.start()
        await asyncio.sleep(1.0)
        trouble = Trouble(self)
        await trouble.stir(self.plan.seconds)
        trouble.heal()
        self.is_busy = False
        await self._all_are_back()
        await self._all_goes_on()
        await self._settle()
        await self._judge()
        await self._last_power_cut()
        await self._bury()
        return self.found

    def _make_topics(self, machine: BrokerMachine) -> None:
        assert machine.broker is not None
        queues = self.plan.queues
        shapes = {
            name: TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
            for name in TOPICS
        }
        machine.broker.topics.save(shapes)
        machine.broker.registration.register_now()

    async def _start_broker(self, machine: BrokerMachine) -> None:
        machine.died = lambda how: self._bring_back(machine, how)
        if await machine.start() is not None:
            self._examine(machine)

    def _bring_back(self, machine: BrokerMachine, how: str) -> None:
        self.history.happened(f"{machine.name} {how}")
        for identity in self._due:
            # What was delivered and not noted as such comes again, as often as it may have been stored.
            self.history.repeats[identity] += 1 + self.history.unknown[identity]
        if not self._is_over:
            seconds = self.chance.choice((0.01, 0.2, 1.0, 3.0))
            self._restarting.append(asyncio.get_running_loop().create_task(self._later(seconds, machine)))

    _is_over = False

    async def _later(self, seconds: float, machine: BrokerMachine) -> None:
        await asyncio.sleep(seconds)
        if not machine.is_up:
            await self._start_broker(machine)

    # ------------------------------------------------------------------------------------------ judgment

    def stored_at(self, machine: BrokerMachine, topics: tuple[str, ...] = TOPICS) -> list[Stored]:
        """Every message of one broker, by its place."""
        assert machine.broker is not None
        store = machine.broker.store
        found: dict[Place, Stored] = {}
        for topic in topics:
            for queue_id in range(max(1, self.plan.queues)):
                at, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
                while at < end:
                    result = store.read(topic, queue_id, at, 32)
                    for each in stored_of(machine.name, b"".join(result.messages)):
                        found[each.place] = each
                    at = max(result.next_offset, at + 1)
        return list(found.values())

    def _examine(self, machine: BrokerMachine) -> None:
        """What a start made of the disk, before anything new comes in."""
        stored = self.stored_at(machine)
        assert machine.broker is not None
        ending = f"@{machine.name}"
        was_lost = ending in self.lost_by_async
        if machine.power_lost_at is not None:
            self.lost_power.add(ending)
        if machine.power_lost_at is not None and not machine.is_sync:
            down_since = machine.power_lost_at if machine.down_since is None else machine.down_since
            is_slow = down_since - self._slow_until < FLUSH_WINDOW_SECONDS
            since = 0.0 if is_slow else down_since - FLUSH_WINDOW_SECONDS
            self._note_ahead(machine)
            self.history.forgive(stored, since, ending)
            self.lost_by_async.add(ending)
            self._excused |= self.handed_back  # what was to come again may be among the lost
        if ending in self.lost_by_async:
            self._note_unsaved(machine, is_again=machine.power_lost_at is None or was_lost)
        machine.power_lost_at = machine.down_since = None
        self.found += faults(
            self.history,
            stored,
            self._offsets(machine),
            is_over=False,
            has_gaps=ending in self.lost_power,
            only=ending,
        )

    def may_have_lost(self, broker: str, since: float) -> bool:
        """Whether what `broker` acknowledged at `since` may be lost by now: its power failed, unflushed."""
        return any(
            machine.name == broker and not machine.is_sync and machine.last_power_cut >= since
            for machine in self.brokers
        )

    def _note_ahead(self, machine: BrokerMachine) -> None:
        """Members that were shown what is now lost stand beyond the end of its queue, and may miss what comes
        to the same offsets before they ask again."""
        assert machine.broker is not None
        self._seen |= {(READERS, *place[:2]): place[2] for place in sorted(self.history.given)}
        for (group, queue_of, queue_id), last in self._seen.items():
            topic, _, name = queue_of.partition("@")
            if name == machine.name and last >= machine.broker.store.max_offset(topic, queue_id):
                self._unsaved.add((group, queue_of, queue_id))

    def saw(self, group: str, place: Place) -> None:
        """A member of `group` was given the message at `place`."""
        queue = (group, *place[:2])
        self._seen[queue] = max(self._seen.get(queue, 0), place[2])

    def _note_unsaved(self, machine: BrokerMachine, *, is_again: bool) -> None:
        """A group that never had its place saved may be beyond the end of a queue and nobody knows: what
        comes there now it may miss. So may one that was away until the broker had been started twice."""
        assert machine.broker is not None
        for group, topics in (*READS.items(), (READERS, (FREE,))):
            for topic in topics:
                for queue_id in range(self.plan.queues):
                    is_saved = machine.broker.offsets.get(group, topic, queue_id) is not None
                    if is_again or not is_saved:
                        self._unsaved.add((group, f"{topic}@{machine.name}", queue_id))

    def _offsets(self, machine: BrokerMachine) -> dict[Queue, int]:
        """Where the readers' group is."""
        assert machine.broker is not None
        offsets: dict[Queue, int] = {}
        for queue_id in range(self.plan.queues):
            at = machine.broker.offsets.get(READERS, FREE, queue_id)
            queue = (f"{FREE}@{machine.name}", queue_id)
            if at is not None and (READERS, *queue) not in self._unsaved:
                offsets[queue] = at
                if f"@{machine.name}" in self.lost_by_async:
                    self.history.committed.setdefault(queue, set()).add(at)
        return offsets

    async def _all_are_back(self) -> None:
        for _ in range(100):
            await asyncio.sleep(0.1)
            brokers = [machine.broker if machine.is_up else None for machine in self.brokers]
            if all(broker is not None and broker.fault is None for broker in brokers):
                return
        refusals = [why for machine in self.brokers for why in machine.refusals[-1:]]
        raise AssertionError(f"I12: a broker does not come back: {refusals}")

    async def _all_goes_on(self) -> None:
        """I12: soon after the last fault everybody can send again."""
        deadline = asyncio.get_running_loop().time() + GOES_ON_SECONDS
        for sender in self.senders:
            while not await sender.proves_that_it_goes_on():
                if asyncio.get_running_loop().time() > deadline:
                    self.found.append(
                        f"I12: {sender.name} cannot send {GOES_ON_SECONDS} s after the last fault: "
                        f"{sender.last_error}"
                    )
                    return
                await asyncio.sleep(0.2)

    async def _settle(self) -> None:
        """Until everything promised is there and handled, or there has been time enough."""
        deadline = asyncio.get_running_loop().time() + SETTLES_SECONDS
        pause = 1.0
        while asyncio.get_running_loop().time() < deadline and self._unsettled():
            await asyncio.sleep(pause)
            pause = min(10.0, pause * 2)  # to look costs more than to wait

    def _unsettled(self) -> list[str]:
        stored = [each for machine in self.brokers for each in self.stored_at(machine)]
        there = {each.id for each in stored}
        missing = [
            f"{invariant}: {identity} was accepted and is not there"
            for identity, invariant in self.history.promised.items()
            if identity not in there and identity not in self.history.excused
        ]
        return missing + self._unhandled(stored)

    def _unhandled(self, stored: list[Stored]) -> list[str]:
        missing: list[str] = []
        for group, topics in READS.items():
            dead = {
                each.id
                for machine in self.brokers
                for each in self.stored_at(machine, (dead_letter_topic(group),))
            }
            dead |= self._excused
            mine = [
                each
                for each in stored
                if each.place[0].partition("@")[0] in topics
                and each.id not in dead
                and (group, *each.place[:2]) not in self._unsaved
            ]
            missing += unhandled(self.history, group, mine)
        return missing

    async def _judge(self) -> None:
        stored = [each for machine in self.brokers for each in self.stored_at(machine)]
        offsets: dict[Queue, int] = {}
        for machine in self.brokers:
            offsets.update(self._offsets(machine))
        self.found += faults(self.history, stored, offsets, has_gaps=bool(self.lost_power))
        self.found += self._unhandled(stored)
        self._check_figures(stored)
        handled = sum(len(each) for each in self.history.handled.values())
        acknowledged = len(self.history.acknowledged) + len(self.history.promised)
        if acknowledged < ACKNOWLEDGED_MIN or (handled < HANDLED_MIN and not self._unsaved):
            self.found.append(f"R8: {acknowledged} acknowledged and {handled} handled prove nothing")
        tasks = len(asyncio.all_tasks())
        if tasks > TASKS_MAX:
            self.found.append(f"I13: {tasks} tasks at the end")

    def _check_figures(self, stored: list[Stored]) -> None:
        """I14: what the brokers say of their queues is what is there."""
        ends: dict[Queue, int] = {}
        for each in stored:
            queue = each.place[:2]
            ends[queue] = max(ends.get(queue, 0), each.place[2] + 1)
        for machine in self.brokers:
            assert machine.broker is not None
            for topic in TOPICS:
                for queue_id in range(self.plan.queues):
                    said = machine.broker.store.max_offset(topic, queue_id)
                    true = ends.get((f"{topic}@{machine.name}", queue_id), 0)
                    if said != true:
                        self.found.append(
                            f"I14: {topic} {queue_id} at {machine.name} ends at {true}, not {said}"
                        )

    async def _last_power_cut(self) -> None:
        """What is there now stays, whatever happens: a quiet SYNC_FLUSH broker has everything on its disk."""
        self._is_over = True
        for machine in self.brokers:
            if machine.is_sync and machine.is_up:
                before = self.stored_at(machine)
                machine.cut_power()
                await self._start_broker(machine)
                gone = {each.place for each in before} - {each.place for each in self.stored_at(machine)}
                if gone:
                    self.found.append(f"I5: {sorted(gone)[:3]} went with the last power cut")

    async def _bury(self) -> None:
        for client in self.clients:
            client.kill()
        for machine in (*self.brokers, *self.nameservers):
            machine.kill()
        for _ in range(20):  # some clean up when they are cancelled, and wait for the dead
            everybody = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in everybody:
                task.cancel()
            await asyncio.sleep(0)

    # ---------------------------------------------------------------------------- what members tell of

    def due(self, identity: str, seconds: float) -> None:
        self._due[identity] = asyncio.get_running_loop().time() + seconds

    def handing_out(self, message: ReceivedMessage, identity: str) -> None:
        due = self._due.get(identity)
        if due is None or self._jumps_ms:
            return
        early = due - asyncio.get_running_loop().time()
        if early > 0.002:
            self.history.breaks(f"I10: {identity} was handed out {early:.3f} s before its time")

    def ordered(self, place: Place) -> None:
        """A handler is given this message, and must have been given all before it."""
        queue = place[:2]
        if queue[0][-3:] in self.lost_by_async:
            return  # some may be lost, and some passed over
        frontier = self._frontier.setdefault(queue, 0)
        if place[2] > frontier and queue[0][-3:] in self.lost_power:
            # What nobody was told of may be gone; of what was acknowledged, nothing is passed over.
            told = {at[2] for at in self.history.acknowledged.values() if at[:2] == queue}
            frontier = min((at for at in told if frontier <= at < place[2]), default=place[2])
            self._frontier[queue] = frontier
        if place[2] > frontier:
            self.history.breaks(f"I3: {place} was handled while {frontier} was not")

    def done_in_order(self, place: Place) -> None:
        queue = place[:2]
        if self._frontier.get(queue) == place[2]:
            self._frontier[queue] = place[2] + 1
