"""A day in the life of a broker that comes past every failpoint, and what must be true wherever it ends.

    story = Story(watch)    topics, sends, offsets, locks, delays, timers, retries, transactions, a
    story.tell()            restart, retention; every answer a client has got is a promise
    judge(ending)           a broker starts on the disk of that moment: all that was promised until then holds

A kill at a place leaves the disk as it is there, and promises what clients had heard until then: so both are
kept when the place is reached, and the story goes on. One telling has some hundred endings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kourou.doors import failpoints
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.failing_files import with_failpoints
from kourou.doors.simulated_files import SimulatedFiles
from kourou.doors.simulated_network import SimulatedNetwork
from kourou.protocol import message_id
from kourou.protocol.bodies import ConsumerData, HeartbeatData, LockQueues, MessageQueue, ProducerData
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import EndTransaction, SendBack, UpdateOffset
from kourou.protocol.record import Record, decode_all
from tests.unit.broker.broker_world import BrokerWorld, Peer, send

COMMIT, ROLLBACK, PREPARED = 8, 12, 4
SETTINGS: dict[str, Any] = {
    "segment_bytes": 8192,
    "consume_queue_bytes": 200,
    "flush_disk_type": "SYNC_FLUSH",
    "index_slots": 50,
    "index_entries": 200,
    "file_reserved_hours": 1,
    "offsets_save_interval_ms": 2_000,
    "delay_offsets_save_interval_ms": 2_000,
}
LATER_SECONDS = 30


@dataclass
class Promises:
    """What clients have been told."""

    sent: list[bytes] = field(default_factory=list)
    committed: list[bytes] = field(default_factory=list)
    rolled_back: list[bytes] = field(default_factory=list)
    later: list[bytes] = field(default_factory=list)
    given_back: list[bytes] = field(default_factory=list)
    dead: list[bytes] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.sent) + len(self.committed) + len(self.later) + len(self.given_back) + len(self.dead)


class Ending(NamedTuple):
    """The story ends here: at a place, with that disk."""

    place: str
    files: SimulatedFiles
    promises: Promises
    now_ms: int


class Story:
    def __init__(self, watch: Callable[[Story, str], None] | None = None) -> None:
        """`watch(story, place)` is called at every place the story comes past."""
        self.world = BrokerWorld()
        self.files = with_failpoints(SimulatedFiles)(clock_ms=self.world.clock.now_ms)
        self.world.files = self.files
        self.promises = Promises()
        self.reached: Counter[str] = Counter()
        self._watch = watch
        self._number = 0

    def ending(self, place: str, chance: Chance | None = None) -> Ending:
        """What is left if it ends now: by a kill, or (with `chance`) because the power fails."""
        files = self.files.crashed() if chance is None else self.files.power_cut(chance, garbage=0.2)
        return Ending(place, files, deepcopy(self.promises), self.world.clock.now_ms())

    @contextmanager
    def watched(self) -> Iterator[None]:
        for place in failpoints.POINTS:
            failpoints.arm(place, 1, self._reach, is_repeated=True)
        try:
            yield
        finally:
            failpoints.disarm()

    def _reach(self, place: str) -> None:
        self.reached[place] += 1
        if self._watch is not None:
            self._watch(self, place)

    def close(self) -> None:
        self.world.close()

    # The story.

    def tell(self) -> None:
        self.world.name_server()
        self.world.start("127.0.0.1:9876", **SETTINGS)
        peer = self._member()
        self._keep(peer.create_topic("orders"), self.promises.topics, "orders")
        self._send_some(peer, 25)
        self._commit_offset(peer, 5)
        self._lock(peer)
        self._end_transactions()
        self._send_later(peer)
        self._give_back(peer)
        self.world.pass_time(15)
        self._commit_offset(peer, 9)
        self._send_some(peer, 10)
        self.world.pass_time(12)
        self.world.stop()
        self.world.start("127.0.0.1:9876", **SETTINGS)
        peer = self._member()
        self._send_some(peer, 10)
        self._start_after_a_kill()
        self._let_expire()

    def _start_after_a_kill(self) -> None:
        """With a torn end: something to be cut off, and built again."""
        self.world.crash()
        self.world.files.__class__ = type(self.files)  # with failpoints, as before
        self.files = self.world.files
        self.world.start(**SETTINGS)

    def _let_expire(self) -> None:
        """What was sent so far may go after its time; nobody promised more."""
        self.world.pass_time(2 * 3600, step=120)
        self.promises = Promises(topics=self.promises.topics, offsets=self.promises.offsets)
        peer = self._member()
        peer.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
        self.world.pass_time(30)
        self._send_some(peer, 10)
        self.world.stop()

    def _member(self) -> Peer:
        peer = self.world.connect()
        body = HeartbeatData(
            client_id="one",
            consumer_data_set=[ConsumerData(group_name="readers"), ConsumerData(group_name="billing")],
            producer_data_set=[ProducerData(group_name="payers")],
        )
        peer.begin(request(RequestCode.HEART_BEAT, body=body.encode()))
        return peer

    def _body(self, what: str) -> bytes:
        self._number += 1
        return f"{what} {self._number} ".encode().ljust(200 + self._number * 13 % 300, b".")

    def _keep(self, reply: Command | None, promises: list[Any], what: Any) -> None:
        """What is answered with yes is a promise."""
        if reply is not None and reply.code == 0:
            promises.append(what)

    def _send_some(self, peer: Peer, count: int) -> None:
        for _ in range(count):
            body = self._body("sent")
            self._keep(_asked(peer, send(body=body, properties={"KEYS": "k"})), self.promises.sent, body)

    def _commit_offset(self, peer: Peer, queue_offset: int) -> None:
        self.promises.offsets.append(queue_offset)
        header = UpdateOffset(
            consumer_group="readers", topic="orders", queue_id=0, commit_offset=queue_offset
        )
        _asked(peer, request(RequestCode.UPDATE_CONSUMER_OFFSET, header))

    def _lock(self, peer: Peer) -> None:
        queues = [MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)]
        body = LockQueues(client_id="one", consumer_group="readers", mq_set=queues).encode()
        _asked(peer, request(RequestCode.LOCK_BATCH_MQ, body=body))

    def _end_transactions(self) -> None:
        peer = self._member()
        for outcome, promises in (
            (COMMIT, self.promises.committed),
            (ROLLBACK, self.promises.rolled_back),
        ) * 2:
            body = self._body("half")
            half = _asked(
                peer,
                send(
                    body=body,
                    properties={"TRAN_MSG": "true", "PGROUP": "payers"},
                    sys_flag=PREPARED,
                    producer_group="payers",
                    queue_id=1,
                    born_timestamp=self.world.clock.now_ms(),
                ),
            )
            if half is not None and half.code == 0:
                place = message_id.parse_offset_id(half.fields["msgId"]).physical_offset
                queue_offset = int(half.fields["queueOffset"])
                ending = EndTransaction("payers", queue_offset, place, outcome, unique_id="x")
                self._keep(_asked(peer, request(RequestCode.END_TRANSACTION, ending)), promises, body)

    def _send_later(self, peer: Peer) -> None:
        for properties in (
            {"DELAY": "1"},
            {"TIMER_DELAY_MS": "3000"},
            {"DELAY": "2"},
            {"TIMER_DELAY_SEC": "9"},
        ):
            body = self._body("later")
            self._keep(
                _asked(peer, send(body=body, properties=properties, queue_id=2)), self.promises.later, body
            )

    def _give_back(self, peer: Peer) -> None:
        for level, promises in ((1, self.promises.given_back), (-1, self.promises.dead)):
            body = self._body("back")
            reply = _asked(peer, send(body=body, queue_id=3))
            if reply is None or reply.code != 0:
                continue
            place = message_id.parse_offset_id(reply.fields["msgId"]).physical_offset
            back = request(
                RequestCode.CONSUMER_SEND_MSG_BACK,
                SendBack(physical_offset=place, group="billing", delay_level=level),
            )
            back.version = 409
            self._keep(_asked(peer, back), promises, body)


def _asked(peer: Peer, command: Command) -> Command | None:
    """The reply; None when the connection is gone, or nobody answers."""
    if peer.is_lost:
        return None
    waiting = peer.begin(command)
    return waiting.reply if waiting.is_answered else None


# What must be true.


def judge(ending: Ending) -> list[str]:
    """What does not hold of what was promised."""
    world = BrokerWorld()
    world.clock = SimulatedClock(ending.now_ms + 1000)
    world.network = SimulatedNetwork(world.clock)
    world.files = ending.files
    try:
        world.start(**SETTINGS)
        world.settle()
        faults = [*_now(world, ending.promises)]
        world.pass_time(LATER_SECONDS, step=1.0)
        faults += _later(world, ending.promises)
    finally:
        world.close()
    return [f"{ending.place}: {fault}" for fault in faults]


def _now(world: BrokerWorld, promises: Promises) -> Iterator[str]:
    for topic in promises.topics:
        if world.broker.topics.get(topic) is None:
            yield f"topic {topic} was created, and is gone"
    offset = world.broker.offsets.get("readers", "orders", 0)
    end = world.broker.store.max_offset("orders", 0)  # where a group goes on that was told to be beyond it
    if offset is not None and offset not in (*promises.offsets, end):
        yield f"the group goes on at {offset}, where it never was"
    if offset is not None and offset > world.broker.store.max_offset("orders", 0):
        yield f"the group is at {offset}, beyond the end"
    there = Counter(record.body for record in _records(world, "orders"))
    for body in (*promises.sent, *promises.committed):
        if there[body] != 1:
            yield f"{body[:20]!r} was acknowledged, and is there {there[body]} times"
    for body in promises.rolled_back:
        if there[body]:
            yield f"{body[:20]!r} was rolled back, and is there"
    if any(times > 1 for body, times in there.items() if body.startswith((b"sent", b"half"))):
        yield "a message is there twice"


def _later(world: BrokerWorld, promises: Promises) -> Iterator[str]:
    for topic, bodies in (
        ("orders", promises.later),
        ("%RETRY%billing", promises.given_back),
        ("%DLQ%billing", promises.dead),
    ):
        there = Counter(record.body for record in _records(world, topic))
        for body in bodies:
            if not there[body]:
                yield f"{body[:20]!r} was to come to {topic}, and did not"


def _records(world: BrokerWorld, topic: str) -> list[Record]:
    found: list[Record] = []
    store = world.broker.store
    for queue_id in store.topics().get(topic, []):
        at = store.min_offset(topic, queue_id)
        while at < store.max_offset(topic, queue_id):
            result = store.read(topic, queue_id, at, 32)
            found += decode_all(b"".join(result.messages))
            assert result.next_offset > at
            at = result.next_offset
    return found
