"""A broker's data folder with all that can be in one, for rot to be done to; and a broker that opens it.

made(is_closed)       the folder a broker left behind that has had topics, groups, offsets, delays, timers,
                      transactions, deleted topics, terms and users; stopped, or killed
OpenedBroker(files)   a real broker on such a folder: what it says of each small file, what it logged
"""

from __future__ import annotations

import logging
from functools import lru_cache
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

from kourou.broker.config import BrokerConfig
from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import SimulatedFiles
from kourou.doors.simulated_network import SimulatedNetwork
from kourou.protocol import message_id
from kourou.protocol.access_messages import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from kourou.protocol.bodies import ConsumerData, HeartbeatData, ProducerData
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers import EndTransaction, TopicNamed, UpdateOffset
from kourou.protocol.properties import find
from kourou.protocol.record import decode_all
from kourou.store.store import Store
from tests.unit.broker.broker_world import BrokerWorld, Peer
from tests.unit.store.folder import ROOT, at_once

MESSAGES = 90
SETTLED = 84
"""After that message everything comes to rest; what follows is only in the log."""
QUEUES = (("T", 0), ("T", 1), ("U", 0))
LATER = "later"
COMMIT, ROLLBACK, PREPARED = 8, 12, 4
SETTINGS: dict[str, Any] = {
    "store_path": ROOT,
    "segment_bytes": 4096,
    "consume_queue_bytes": 320,
    "message_bytes_max": 2048,
    "index_slots": 50,
    "index_entries": 400,
    "offsets_save_interval_ms": 2_000,
    "delay_offsets_save_interval_ms": 2_000,
}
GUARDED: dict[str, Any] = {
    **SETTINGS,
    "authentication_enabled": True,
    "first_user": '{"username":"root","password":"a password"}',
}
CONFIG = BrokerConfig(broker_name="broker-a", **SETTINGS).store()
SMALL_FILES = (
    *("config/topics.json", "config/subscriptionGroup.json", "config/consumerOffset.json"),
    *("config/delayOffset.json", "config/term.json", "config/users.json"),
    *("timers/progress.json", "deletedtopics.json"),
)
"""Those with a generation before them."""
ALONE = ("config/users.key", "timers/pending", "checkpoint")
UNREAD = ("lock", "abort")
"""Nobody reads what is in them."""


class Message(NamedTuple):
    queue: tuple[str, int]
    queue_offset: int
    place: int
    record: bytes
    key: str


class Made(NamedTuple):
    files: SimulatedFiles
    now_ms: int
    messages: list[Message]
    """All that any queue holds, in the order of the log."""
    later: set[bytes]
    """What is in the topic LATER when everything was delivered."""
    says: dict[str, Any]
    """What a broker says that opens it: of each small file."""
    said_before: dict[str, dict[str, Any]]
    """The same, with one of them in its previous generation."""


@lru_cache(maxsize=2)
def made(is_closed: bool) -> Made:
    world = BrokerWorld()
    try:
        _make_users(world)
        world.start(**SETTINGS)
        later = _live(world)
        now_ms = world.clock.now_ms()
        if is_closed:
            world.stop()
        files = world.files.crashed()
    finally:
        world.crash()
        world.close()
    _see_that_all_is_there(files)
    with OpenedBroker(files.crashed(), now_ms) as broker:
        messages, says = broker.messages(), broker.says
    said_before = {}
    for name in SMALL_FILES:
        older = files.crashed()
        older.write_atomically(f"{ROOT}/{name}", files.read(f"{ROOT}/{name}.bak"), keep_previous=False)
        with OpenedBroker(older, now_ms) as broker:
            said_before[name] = broker.says
        assert said_before[name] != says, f"{name} and {name}.bak say the same: they cannot be told apart"
    return Made(files, now_ms, messages, later, says, said_before)


def _make_users(world: BrokerWorld) -> None:
    users = world.start(**GUARDED).access.users
    assert users is not None
    users.create(UserInfo(username="shop", password="another password"))
    for actions in (["Pub"], ["Pub", "Sub"]):
        entry = PolicyEntryInfo(resource="Topic:order*", actions=actions, decision="Allow")
        users.create_acl(AclInfo(subject="User:shop", policies=[PolicyInfo(entries=[entry])]))
    world.stop()


def _live(world: BrokerWorld) -> set[bytes]:
    """Some 40 seconds of a broker's life, with a stop in between; returns what is sent to LATER."""
    peer = world.connect()
    later: set[bytes] = set()

    def send_later(**properties: str) -> None:
        body = f"later {len(later)} {properties}".encode()
        assert peer.send(LATER, body, properties=properties).code == 0
        later.add(body)

    for topic, queues in (("T", 2), ("U", 1), (LATER, 1), ("gone", 1), ("gone-too", 1)):
        peer.create_topic(topic, queues)
    _beat(peer, "readers")
    for number in range(MESSAGES):
        topic, queue_id = QUEUES[number % len(QUEUES)]
        body = b"%d " % number + bytes([65 + number % 26]) * (number * 37 % 500)
        properties = {"KEYS": f"k{number}", "TAGS": f"t{number % 3}"}
        assert peer.send(topic, body, queue_id=queue_id, properties=properties).code == 0
        if number in (10, 25, 78):
            send_later(DELAY="1")
            send_later(TIMER_DELAY_SEC="2")
        if number in (10, 25):
            peer.send("gone" if number == 10 else "gone-too", b"nobody's")
        if number == 60:
            for seconds in ("60", "65", "70"):
                send_later(TIMER_DELAY_SEC=seconds)
                send_later(DELAY="5")
        if number in (20, 82):
            _commit(peer, number // 4)
        if number in (20, 50):
            peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicNamed("gone" if number == 20 else "gone-too"))
            world.broker.role.adopt(number)
        if number == 40:
            _end_transactions(peer, world)
            _beat(peer, "billing")
        if number == 75:
            world.stop()
            world.start(**SETTINGS)
            peer = world.connect()
        world.pass_time(15 if number == SETTLED else 0.4, step=0.4)
    return later


def _beat(peer: Peer, group: str) -> None:
    body = HeartbeatData(
        client_id=group,
        consumer_data_set=[ConsumerData(group_name=group)],
        producer_data_set=[ProducerData(group_name="payers")],
    )
    peer.ask(RequestCode.HEART_BEAT, body=body.encode())


def _commit(peer: Peer, queue_offset: int) -> None:
    for queue_id in (0, 1):
        header = UpdateOffset(
            consumer_group="readers", topic="T", queue_id=queue_id, commit_offset=queue_offset + queue_id
        )
        assert peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header).code == 0


def _end_transactions(peer: Peer, world: BrokerWorld) -> None:
    for outcome in (COMMIT, ROLLBACK):
        half = peer.send(
            "U",
            b"half %d" % outcome,
            properties={"TRAN_MSG": "true", "PGROUP": "payers"},
            sys_flag=PREPARED,
            producer_group="payers",
            born_timestamp=world.clock.now_ms(),
        )
        place = message_id.parse_offset_id(half.fields["msgId"]).physical_offset
        ending = EndTransaction("payers", int(half.fields["queueOffset"]), place, outcome, unique_id="x")
        assert peer.ask(RequestCode.END_TRANSACTION, ending).code == 0


def _see_that_all_is_there(files: SimulatedFiles) -> None:
    """No file that nobody here knows of, and none missing."""
    names = {path.removeprefix(ROOT + "/") for path in all_files(files)}
    rest = {name for name in names if not name.startswith(("commitlog/", "consumequeue/", "index/"))}
    expected = {*SMALL_FILES, *(f"{name}.bak" for name in SMALL_FILES), *ALONE}
    assert rest - set(UNREAD) == expected, rest ^ expected


def all_files(files: SimulatedFiles, folder: str = ROOT) -> list[str]:
    found: list[str] = []
    for name in files.list(folder):
        path = f"{folder}/{name}"
        found += all_files(files, path) if files.is_folder(path) else [path]
    return found


def opened(files: SimulatedFiles, clock: SimulatedClock | None = None) -> Store:
    """The store alone."""
    store = Store(
        CONFIG, files=files, clock=clock or SimulatedClock(), defer=lambda work: work(), background=at_once
    )
    store.open()
    return store


class _Heard(logging.Handler):
    """Keeps what is said, and keeps it from being printed: nobody wants to read ten thousand starts."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


class OpenedBroker:
    """A broker that has the folder, until it is killed. Raises what its start does."""

    def __init__(self, files: SimulatedFiles, now_ms: int) -> None:
        self._world = BrokerWorld()
        self._world.clock = SimulatedClock(now_ms)
        self._world.network = SimulatedNetwork(self._world.clock)
        self._world.files = files
        self._heard = _Heard()
        self.says: dict[str, Any] = {}
        """Once it had started, by the file it is from."""

    def __enter__(self) -> OpenedBroker:
        self._logger = logging.getLogger("kourou")
        self._before = self._logger.propagate, self._logger.level
        self._logger.addHandler(self._heard)
        self._logger.propagate = False
        self._logger.setLevel(logging.WARNING)
        try:
            self._world.start(**GUARDED)
            self.says = self._says()
            self.pass_time(1.5)  # the key index follows the log
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._world.crash()
        self._world.close()
        self._logger.removeHandler(self._heard)
        self._logger.propagate, level = self._before
        self._logger.setLevel(level)

    def pass_time(self, seconds: float) -> None:
        self._world.pass_time(seconds, step=max(0.5, seconds / 30))

    @property
    def store(self) -> Store:
        return self._world.broker.store

    @property
    def heard(self) -> list[str]:
        """Its warnings and errors."""
        return self._heard.said

    @property
    def corrupt_records(self) -> int:
        """As it publishes it."""
        return int(self._world.broker.metrics.figures().value("rocketmq_corrupt_records_total"))

    def _says(self) -> dict[str, Any]:
        broker = self._world.broker
        deleted = broker.store._queues.deleted
        users = broker.access.users
        assert users is not None
        accounts = users.accounts.by_name.items()
        said = {
            "config/topics.json": dict(broker.topics.all),
            "config/subscriptionGroup.json": dict(broker.groups.all),
            "config/consumerOffset.json": broker.offsets._table,
            "config/delayOffset.json": broker.delays.offsets.offset_table,
            "config/term.json": broker.role.term,
            "config/users.json": [
                {name: (each.secret, each.is_super, each.is_enabled) for name, each in accounts},
                users.acls(None, None),
            ],
            "timers/progress.json": broker.timers._saved,
            "timers/pending": sorted(broker.timers.places),
            "deletedtopics.json": {topic: deleted.end_of(topic) for topic in deleted.topics},
        }
        return {name: msgspec.json.encode(value) for name, value in said.items()}

    def messages(self) -> list[Message]:
        found = []
        for topic, queue_ids in self.store.topics().items():
            for queue_id in queue_ids:
                for queue_offset, record in self.served((topic, queue_id)):
                    parsed = decode_all(record)[0]
                    key = (find(parsed.properties, b"KEYS") or b"").decode()
                    found.append(
                        Message((topic, queue_id), queue_offset, parsed.physical_offset, record, key)
                    )
        return sorted(found, key=lambda message: message.place)

    def served(self, queue: tuple[str, int]) -> list[tuple[int, bytes]]:
        """Every message of a queue, and its offset. Raises MQError, and NoEnd when it does not go on."""
        found = []
        store = self.store
        at, end = store.min_offset(*queue), store.max_offset(*queue)
        while at < end:
            result = store.read(*queue, at)
            records = decode_all(b"".join(result.messages))
            found += [(record.queue_offset, bytes(record.data)) for record in records]
            if result.next_offset <= at:
                raise NoEnd(f"it does not go on at {at} of {end}: {result.status}")
            at = result.next_offset
        return found


class NoEnd(Exception):
    """A queue cannot be read to its end."""
