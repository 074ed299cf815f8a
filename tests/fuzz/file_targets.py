"""Everything that reads a file: settings and accounts that people write, and what a store keeps."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

from kourou.access import plain_acl
from kourou.access.users import Users
from kourou.broker.config import KEYS as BROKER_KEYS
from kourou.broker.config import BrokerConfig
from kourou.broker.state_file import StateFile
from kourou.client.route_cache import RouteCache
from kourou.console import audit, login
from kourou.doors.clock import SimulatedClock
from kourou.doors.configuration import read_settings
from kourou.doors.memory_files import MemoryFiles
from kourou.doors.private_folder import PrivateFolder
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import ConfigError, MQError, StoreError
from kourou.nameserver.config import KEYS as NAME_SERVER_KEYS
from kourou.nameserver.config import NameServerConfig
from kourou.nameserver.kv import KeyValues
from kourou.nameserver.witness import Witness
from kourou.protocol.access_messages import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from kourou.protocol.bodies import ConsumerOffsets, DelayOffsets, GroupTable, TopicTable
from kourou.protocol.record import decode_all
from kourou.store.check import check
from kourou.store.checkpoint import Checkpoint, damaged_marks, read_checkpoint
from kourou.store.deleted import DeletedTopics
from kourou.store.index_file import IndexFile, Shape
from kourou.store.timers import read_timers
from tests.chaos.power_cuts import quiet
from tests.chaos.rot_folder import CONFIG, Made, all_files, made, opened
from tests.fuzz.target import Target
from tests.guarded_cluster import PLAIN_ACL

PATH = "/data/file"


def files_with(data: bytes, path: str = PATH) -> MemoryFiles:
    files = MemoryFiles()
    files.make_folders(path.rpartition("/")[0])
    files.write_atomically(path, data)
    return files


# --------------------------------------------------------------------------------------- what people write


def feed_settings(data: bytes) -> None:
    files = files_with(data)
    with suppress(ConfigError):
        BROKER_KEYS.as_properties(read_settings(BROKER_KEYS, files=files, path=PATH).build(BrokerConfig))
    with suppress(ConfigError):
        read_settings(NAME_SERVER_KEYS, files=files, path=PATH).build(NameServerConfig)


def settings_seeds() -> list[bytes]:
    usual = (
        b"brokerName=broker-a\nbrokerClusterName=c\nlistenPort=10911\nflushDiskType=SYNC_FLUSH\n"
        b"brokerIP1=127.0.0.1\nnamesrvAddr=127.0.0.1:9876;localhost:9877\ndeleteWhen=04;05\n"
        b"messageDelayLevel=1s 5s 10m 2h\nfileReservedTime=72\nbrokerRole=SYNC_MASTER\n# a comment\n"
    )
    return [usual, BROKER_KEYS.as_properties(BrokerConfig()).encode()]


def feed_acl(data: bytes) -> None:
    with suppress(ConfigError):
        acl = plain_acl.parse(data, "plain_acl.yml")
        accounts = plain_acl.accounts_in(acl, "plain_acl.yml")
        assert plain_acl.parse(plain_acl.dump(acl), "again") == acl
        assert all(str(account.secret) not in repr(acl) for account in accounts.by_name.values())


ACL_SEEDS = (
    PLAIN_ACL.encode(),
    b"accounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n  admin: false\n  defaultTopicPerm: DENY\n"
    b"  topicPerms: [topicA=DENY, topicB=PUB|SUB]\n  whiteRemoteAddress: 10.0.0.1-10\n"
    b"  rules: [{topic: 'order*', perm: PUB, group: [a, b], address: 10.1.2.*}]\n",
    b"globalWhiteRemoteAddresses: [10.10.103.*, '192.168.0.1,2', '::1/128', '*']\n",
)


# ------------------------------------------------------------------------------------- what servers keep


def feed_state(data: bytes) -> None:
    files = files_with(data)
    for kind in (TopicTable, GroupTable, ConsumerOffsets, DelayOffsets):
        with suppress(StoreError):
            StateFile(files, PATH).load(kind)


def state_seeds() -> list[bytes]:
    files = MemoryFiles()
    files.make_folders("/data")
    saved = []
    for state in (
        TopicTable.decode(
            b'{"topicConfigTable":{"t":{"topicName":"t","perm":6}},"dataVersion":{"counter":1}}'
        ),
        GroupTable.decode(b'{"subscriptionGroupTable":{"g":{"groupName":"g"}}}'),
        ConsumerOffsets(offset_table={"T@g": {0: 10, 1: 20}}),
        DelayOffsets.decode(b'{"offsetTable":{1:5,2:7}}'),
    ):
        StateFile(files, PATH).save(state)
        saved.append(files.read(PATH))
    return [*saved, b'{"offsetTable":{"T@g":{0:10,1:20}}}']


def feed_name_server_files(data: bytes) -> None:
    clock = SimulatedClock()
    with suppress(MQError):
        KeyValues(files_with(data), PATH).load()
    with suppress(StoreError):
        Witness(files_with(data), PATH, clock).load()


def feed_users(data: bytes) -> None:
    files = files_with(data, "/data/users.json")
    files.write_atomically("/data/users.key", bytes(32))
    with suppress(ConfigError):
        assert Users("/data/users.json", files, bytes).load() is not None


def user_seeds() -> list[bytes]:
    files = files_with(b"", "/data/other")
    users = Users("/data/users.json", files, bytes)
    users.load()
    users.create(UserInfo(username="somebody", password="a password", user_type="Normal"))
    entry = PolicyEntryInfo(
        resource="Topic:order*", actions=["Pub", "Sub"], source_ips=["10.0.0.*"], decision="Allow"
    )
    users.create_acl(
        AclInfo(subject="User:somebody", policies=[PolicyInfo(policy_type="Custom", entries=[entry])])
    )
    return [files.read("/data/users.json")]


def feed_deleted(data: bytes) -> None:
    deleted = DeletedTopics(files_with(data, "/data/deletedtopics.json"), "/data")
    with quiet():
        deleted.load()
    assert isinstance(deleted.end_of("T"), int)


def feed_route_cache(data: bytes) -> None:
    with quiet():
        RouteCache(PATH, files_with(data)).get("T")


class OneFile(PrivateFolder):
    """A folder where every file has the same content."""

    def __init__(self, data: bytes) -> None:
        super().__init__("/data")
        self._data = data

    def read(self, name: str) -> bytes | None:
        return self._data


def feed_console_files(data: bytes) -> None:
    with suppress(StoreError):
        login._read(OneFile(data))
    with quiet():
        list(audit._read(OneFile(data)))


CONSOLE_SEEDS = (
    b'{"accounts":[{"name":"ann","role":"admin","hash":"$argon2id$v=19$","must_change":true}]}',
    b'{"ms":1,"user":"ann","address":"127.0.0.1","what":"login","target":"","outcome":"ok"}\n{"ms":2}\n',
)


def feed_checkpoint(data: bytes) -> None:
    with suppress(StoreError):
        damaged_marks(data, read_checkpoint(files_with(data), PATH))


def feed_timers(data: bytes) -> None:
    with suppress(StoreError):
        _, pairs = read_timers(data)
        assert sum(1 for _ in pairs) * 16 < len(data)


SHAPE = Shape(50, 200)


def feed_index(data: bytes) -> None:
    """A file of its full length, as `KeyIndex` makes sure; what is found is compared with the record."""
    path = "/data/00000000000000000001"
    with suppress(StoreError):
        index = IndexFile.load(
            files_with(data.ljust(SHAPE.file_bytes, b"\0")[: SHAPE.file_bytes], path), path, SHAPE
        )
        for key_hash in (0, 1, 49, 2**31 - 1):
            assert len(index.find(key_hash, 0, 2**62, 32)) <= 32
        index.go_back_to(min(5, index.header.count), 0)


# -------------------------------------------------------------------------------------------- a whole store


@cache
def folder(is_closed: bool) -> tuple[SimulatedFiles, list[str]]:
    store: Made = made(is_closed)
    paths = [path for path in all_files(store.files) if not path.endswith(("/lock", "/abort"))]
    return store.files, sorted(paths)


def feed_store(data: bytes) -> None:
    """One of its files, chosen by the first byte, has other bytes; it opens, or says why not."""
    files, paths = folder(bool(data[:1] > b"\x7f"))
    path = paths[(data[0] if data else 0) % len(paths)]
    files = files.crashed()
    length = files.open(path).size()
    file = files.open(path)
    keeps_its_length = "/commitlog/" in path or "/consumequeue/" in path or "/index/" in path
    content = data[1:].ljust(length, b"\0")[:length] if keeps_its_length else data[1:]
    file.truncate(len(content))
    file.pwrite(content, 0)
    with quiet():
        with suppress(MQError):
            check(CONFIG, files)
        with suppress(StoreError):
            read_all(files)


def read_all(files: SimulatedFiles) -> None:
    store = opened(files, SimulatedClock())
    for topic, queue_id in (("T", 0), ("T", 1), ("U", 0)):
        at, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        assert at <= end
        decode_all(b"".join(store.read(topic, queue_id, at, 32).messages))
    for number in range(0, 90, 30):
        store.find("T", f"k{number}", 5)
    store.close()


def store_seeds() -> list[bytes]:
    files, paths = folder(True)
    return [bytes([number]) + files.read(path)[:4096] for number, path in enumerate(paths)]


def seed_of(name: str) -> list[bytes]:
    files, paths = folder(True)
    return [files.read(path) for path in paths if name in path]


SETTING_WORDS = tuple(key.encode() + b"=" for key in sorted(BROKER_KEYS.keys))
ACL_WORDS = (
    b"accounts:",
    b"- ",
    b"accessKey: ",
    b"&a ",
    b"*a",
    b"<<: ",
    b"!!python/object:os.system ",
    b"? ",
    b"|\n",
)

FILE_TARGETS = (
    Target("settings", feed_settings, settings_seeds, SETTING_WORDS, examples=40),
    Target("plain-acl", feed_acl, lambda: list(ACL_SEEDS), ACL_WORDS, examples=25),
    Target("state-files", feed_state, state_seeds),
    Target(
        "name-server-files",
        feed_name_server_files,
        lambda: [
            b'{"configTable":{"ORDER_TOPIC_CONFIG":{"t":"a:4"}}}',
            b'{"ballots":{"a":{"promised":3,"record":[3,1,"m",["m"]]}},"leases":{"a":1.0}}',
        ],
    ),
    Target("users", feed_users, user_seeds),
    Target("deleted-topics", feed_deleted, lambda: [b'{"T":4096,"U":0}', b"{}"]),
    Target("route-cache", feed_route_cache, lambda: [b'{"T":{"brokerDatas":[],"queueDatas":[]}}']),
    Target("console-files", feed_console_files, lambda: [*CONSOLE_SEEDS]),
    Target("checkpoint", feed_checkpoint, lambda: [*seed_of("/checkpoint"), Checkpoint().encode()]),
    Target("timers", feed_timers, lambda: seed_of("/timers/pending")),
    Target("index-file", feed_index, lambda: seed_of("/index/")),
    Target("store-folder", feed_store, store_seeds, examples=25),
)
