"""A master, its slave, and everything between the two that is a failpoint; what must be true wherever it
ends.

    story = PairStory(watch)    they meet, messages go over, the link breaks and is whole again, the master
    story.tell()                is killed, the slave leads in a new term, the old master follows it
    judge(ending)               both start again on the disks of that moment; and, where the slave followed,
                                it leads instead of its master, which then follows it

Both flush synchronously, so that an ending may be a power cut of both machines at once. A message counts as
acknowledged when its sender heard SEND_OK: then it is on both disks. The oracle judges (I1 to I4), the two
logs are the same bytes in the end (I8), sends are acknowledged again (I12), and no term is forgotten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kourou.broker.broker import Broker
from kourou.broker.role import KeptTerm
from kourou.broker.state_file import StateFile
from kourou.doors import failpoints
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import SimulatedFiles
from kourou.doors.simulated_network import SimulatedNetwork
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import SendReply
from kourou.protocol.properties import parse
from kourou.protocol.record import decode_all
from tests.chaos.oracle import History, Queue, Sent, Stored, faults
from tests.unit.broker.broker_world import Peer, send
from tests.unit.replication.replica_world import ReplicaWorld

TOPIC, QUEUES = "orders", 2
ONE, TWO = "one", "two"
SETTINGS: dict[str, Any] = {"flush_disk_type": "SYNC_FLUSH", "segment_bytes": 16 * 1024}


class Ending(NamedTuple):
    """The story ends here: at a place, with these disks."""

    place: str
    disks: dict[str, SimulatedFiles]
    history: History
    now_ms: int
    master: str
    """Who leads, or is about to."""
    slave_may_lead: bool
    """The other follows it, and is in its term."""
    terms: dict[str, int]
    """What each of those that live says its term is."""


class PairStory:
    def __init__(self, watch: Callable[[PairStory, str], None] | None = None) -> None:
        """`watch(story, place)` is called at every place the story comes past."""
        self.world = ReplicaWorld()
        self.reached: Counter[str] = Counter()
        self.master = ONE
        self.chapter = "they meet"
        self.slave_may_lead = False
        self._watch = watch
        self._number = 0
        self._sent: list[tuple[Sent, Command, Peer]] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        for place in failpoints.BETWEEN_BROKERS:
            failpoints.arm(place, 1, self._reach, is_repeated=True)
        try:
            yield
        finally:
            failpoints.disarm()

    def _reach(self, place: str) -> None:
        self.reached[place] += 1
        if self._watch is not None:
            self._watch(self, place)

    def ending(self, place: str, chance: Chance | None = None) -> Ending:
        """What is left if it ends now: by a kill, or (with `chance`) because the power fails."""
        disks = {
            name: files.crashed() if chance is None else files.power_cut(chance, garbage=0.2)
            for name, files in self.world.disks.items()
        }
        now_ms = self.world.clock.now_ms()
        terms = {name: broker.replicating.status().term for name, broker in self.world.brokers.items()}
        return Ending(place, disks, self._history(), now_ms, self.master, self.slave_may_lead, terms)

    def _history(self) -> History:
        """What clients have heard by now."""
        history = History(keeps_operations=False)
        for message, command, peer in self._sent:
            history.sends(message)
            reply = peer.reply_to(command)
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                history.was_acknowledged(message, reply.parse(SendReply).queue_offset)
            else:
                history.is_unknown(message, "not confirmed")
        return history

    def close(self) -> None:
        self.world.close()

    # The story.

    def tell(self) -> None:
        world = self.world
        one = lead(world, ONE)
        assert world.peer(one).create_topic(TOPIC, QUEUES).code == ResponseCode.SUCCESS
        self._send_some(one, 5)  # that its slave is to get later
        two = follow(world, TWO, one)
        self.slave_may_lead = True
        self._send_some(one, 15)
        self.chapter = "the slave's disk hangs"
        world.threads[TWO].hold()
        self._send_some(one, 9)
        world.threads[TWO].release()
        self.chapter = "the link breaks"
        world.part(ONE, TWO)
        self._send_some(one, 3)
        world.pass_time(8)
        world.join(ONE, TWO)
        world.until(lambda: two.replicating.replica.is_following)
        self._send_some(one, 15)
        self.chapter = "the slave leads"
        self._switch(two)
        self._send_some(two, 5)
        self.chapter = "the old master follows"
        one = follow(world, ONE, two)
        self.slave_may_lead = True
        self._send_some(two, 15)

    def _switch(self, heir: Broker) -> None:
        """The master is killed with a message that its slave does not have."""
        self.world.part(ONE, TWO)
        self._send_some(self.world.brokers[ONE], 1)
        self.world.kill(ONE)
        self.world.join(ONE, TWO)
        self.master, self.slave_may_lead = TWO, False
        self.world.run(heir.become_master(role="SYNC_MASTER"))

    def _send_some(self, broker: Broker, count: int) -> None:
        peer = self.world.peer(broker)
        for at in range(0, count, 3):  # some of them together
            begun = [self._message() for _ in range(min(3, count - at))]
            commands = [
                send(TOPIC, each.body, queue_id=each.queue[1], properties=each.properties) for each in begun
            ]
            self._sent += [(message, command, peer) for message, command in zip(begun, commands, strict=True)]
            peer.begin_all(commands)
            self.world.pass_time(0.2, 0.1)

    def _message(self) -> Sent:
        number = self._number = self._number + 1
        body = f"s/{number}/".encode().ljust(200 + number * 37 % 900, b".")
        return Sent("s", number, (TOPIC, number % QUEUES), body, {"KEYS": f"k{number}", "TAGS": "t"})


def lead(world: ReplicaWorld, name: str) -> Broker:
    return world.add(name, broker_role="SYNC_MASTER", **SETTINGS)


def follow(world: ReplicaWorld, name: str, master: Broker) -> Broker:
    slave = world.add(name, broker_role="SLAVE", broker_id=1, ha_master_address=master.ha_address, **SETTINGS)
    world.until(lambda: slave.replicating.replica.is_following)
    return slave


# What must be true.


def judge(ending: Ending) -> list[str]:
    """What does not hold of what was promised."""
    other = TWO if ending.master == ONE else ONE
    found = [*_terms_lost(ending), *_judged(ending, ending.master, other)]
    if ending.slave_may_lead:
        found += _judged(ending, other, ending.master)
    return found


def _terms_lost(ending: Ending) -> Iterator[str]:
    for name, term in ending.terms.items():
        kept = StateFile(ending.disks[name], "store/config/term.json").load(KeptTerm) or KeptTerm()
        if kept.term < term:
            yield f"{ending.place}: {name} is in term {term}, and its disk says {kept.term}"


def _judged(ending: Ending, master: str, slave: str) -> list[str]:
    world = ReplicaWorld()
    world.clock = SimulatedClock(ending.now_ms + 1000)
    world.network = SimulatedNetwork(world.clock)
    world.disks = {name: files.crashed() for name, files in ending.disks.items()}
    try:
        leading = lead(world, master)
        found = faults(ending.history, _stored(leading), {}, has_gaps=True)
        following = follow(world, slave, leading)
        world.until_same(leading, following)
        if not _is_acknowledged(world.peer(leading)):
            found.append("I12: nothing is acknowledged any more")
        world.until_same(leading, following)
        if world.log_of(master) != world.log_of(slave):
            found.append("I8: the logs differ")
    finally:
        world.close()
    return [f"{ending.place}, then {master} leads: {fault}" for fault in found]


def _is_acknowledged(peer: Peer) -> bool:
    peer.create_topic("afterwards", 1)
    return peer.send("afterwards", b"again").code == ResponseCode.SUCCESS


def _stored(broker: Broker) -> list[Stored]:
    store = broker.store
    queues: list[Queue] = [(TOPIC, queue_id) for queue_id in store.topics().get(TOPIC, [])]
    found = []
    for topic, queue_id in queues:
        at = store.min_offset(topic, queue_id)
        while at < store.max_offset(topic, queue_id):
            result = store.read(topic, queue_id, at, 32)
            for record in decode_all(b"".join(result.messages)):
                place = (topic, queue_id, record.queue_offset)
                found.append(Stored(place, record.body, parse(record.properties), record.store_ms))
            assert result.next_offset > at
            at = result.next_offset
    return found
