"""The JSON bodies of requests and replies, typed: routes, registrations, heartbeats, tables of offsets.

Names are ours; the wire's are camelCase of the same words unless a field says otherwise, and appear here
only. Fields stand in the wire's alphabetical order, so that what we write is what Java writes. A member that
may be missing is UNSET then: false in an `if`, and never written, since a null in the wrong place breaks
some peer or other. Unknown members are ignored; the rest have the defaults they have in Java.

    body.encode()                 standard JSON, which every client reads
    body.encode_fastjson()        as Java writes it: integer keys bare, queue keys as objects
    TopicList.decode(data)        either of them, and what C++, Go and Node make of it

A broker's registration has a compressed form as well, one zlib stream over

    i32 length, data version JSON
    i32 number of topics, each: i32 length, `name read write perm filterType[ attributes JSON]`
    i32 length, filter servers as a JSON array
    i32 number of static topics, each: i32 length, JSON          only from brokers of 5.0 on
"""

from __future__ import annotations

import zlib
from enum import Enum
from struct import Struct
from typing import Any, NamedTuple, Self, TypeVar

import msgspec
from msgspec import UNSET, UnsetType, field

from kourou.errors import DecompressionLimit, ProtocolError
from kourou.protocol import fastjson
from kourou.protocol.compression import INFLATED_BYTES_MAX, inflate_zlib
from kourou.protocol.numbers import Int32, Int64

STANDARD_JSON_VERSION = 401
"""Clients from 4.9.4 on read a route with quoted broker ids; older Java ones wrote none themselves."""

FILTER_SERVERS_VERSION = 37
"""Brokers before 3.0.11 registered their topic table and nothing around it."""

STATIC_TOPICS_VERSION = 413
"""Brokers from 5.0.0 on end the compressed form of their registration with the static topics."""

PERM_READ, PERM_WRITE, PERM_INHERIT = 4, 2, 1
"""What may be done with a topic at a broker, added up: 6 is to read and to write."""

QUEUES_MAX = 65_535
"""Of one topic at one broker, to read or to write."""

_LENGTH = Struct(">i")
_TIMER_CHECKPOINT = Struct(">7q")


class _Codec:
    """How a body is written and read, whether it may change in between or not."""

    __slots__ = ()

    def encode(self) -> bytes:
        """Standard JSON."""
        return fastjson.dumps(self)

    def encode_fastjson(self) -> bytes:
        """As Java writes it."""
        return fastjson.dumps_fastjson(self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises ProtocolError when `data` is no such body."""
        return cls._read(data, fastjson.LENIENT_VALUES_MAX)

    @classmethod
    def decode_request(cls, data: bytes) -> Self:
        """As `decode`, of what anybody may have sent to a server: little of it is read the slow way."""
        try:
            return cls._read(data, fastjson.REQUEST_VALUES_MAX)
        except ProtocolError as error:
            raise ProtocolError(f"body: {error}") from None

    @classmethod
    def _read(cls, data: bytes, values_max: int) -> Self:
        return fastjson.decode(data, cls, values_max)


class Body(_Codec, msgspec.Struct, rename="camel"):
    """What all bodies have in common."""


class Value(_Codec, msgspec.Struct, rename="camel", frozen=True):
    """A body that may be a key of a map."""


class MessageQueue(Value, frozen=True, order=True, kw_only=True):
    """One queue of one broker: the key of many a table."""

    broker_name: str
    queue_id: Int32
    topic: str

    def __str__(self) -> str:
        """The text that RocketMQ's consistent hashing hashes."""
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"


# ------------------------------------------------------------------------------------- routes and clusters


class QueueData(Body, kw_only=True):
    """What one broker has of a topic."""

    broker_name: str
    perm: Int32
    read_queue_nums: Int32
    topic_sys_flag: Int32 = 0
    write_queue_nums: Int32


class BrokerData(Body, kw_only=True):
    """The addresses of one broker name: 0 is the master, the others are slaves."""

    broker_addrs: dict[Int64, str] = {}
    broker_name: str
    cluster: str = ""
    enable_acting_master: bool = False
    zone_name: str | UnsetType = UNSET


class TopicRouteData(Body, kw_only=True):
    """Reply of GET_ROUTEINFO_BY_TOPIC (105); body of REGISTER_TOPIC_IN_NAMESRV (217)."""

    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | UnsetType = UNSET
    queue_datas: list[QueueData] = []
    topic_queue_mapping_by_broker: dict[str, Any] | UnsetType = UNSET

    def encode_for(self, client_version: int, accept_standard_json_only: bool = False) -> bytes:
        """In the form that a client of that version reads."""
        if client_version >= STANDARD_JSON_VERSION or accept_standard_json_only:
            return self.encode()
        return self.encode_fastjson()


class ClusterInfo(Body, kw_only=True):
    """Reply of GET_BROKER_CLUSTER_INFO (106)."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class BrokerMemberGroup(Body, kw_only=True):
    """The brokers of one name, alive."""

    broker_addrs: dict[Int64, str] = {}
    broker_name: str = ""
    cluster: str = ""


class BrokerMemberGroupReply(Body, kw_only=True):
    """Reply of GET_BROKER_MEMBER_GROUP (901)."""

    broker_member_group: BrokerMemberGroup | UnsetType = UNSET


class TopicList(Body, kw_only=True):
    """Reply of 206, 224, 304, 311, 312, 313."""

    broker_addr: str | UnsetType = UNSET
    topic_list: list[str] = []


class GroupList(Body, kw_only=True):
    """Reply of QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    group_list: list[str] = []


class KVTable(Body, kw_only=True):
    """Reply of GET_KVLIST_BY_NAMESPACE (219), and of a registration: the order configuration."""

    table: dict[str, str] = {}


class KVConfig(Body, kw_only=True):
    """The name server's `kvConfig.json`: namespace -> key -> value."""

    config_table: dict[str, dict[str, str]] = {}


# ---------------------------------------------------------------------------------- topics and registration


class DataVersion(Value, frozen=True, kw_only=True):
    """Which state of a table this is. Two are the same state when all three numbers are."""

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0

    def next(self, now_ms: int, state_version: int = 0) -> DataVersion:
        """The version after one more change."""
        return DataVersion(counter=self.counter + 1, state_version=state_version, timestamp=now_ms)


class TopicConfig(Body, kw_only=True):
    """A topic as its broker knows it."""

    attributes: dict[str, str] = {}
    order: bool = False
    perm: Int32 = 6
    read_queue_nums: Int32 = 16
    topic_filter_type: str = "SINGLE_TAG"
    topic_name: str = ""
    topic_sys_flag: Int32 = 0
    write_queue_nums: Int32 = 16


class TopicTable(Body, kw_only=True):
    """All topics of a broker: in a registration, in GET_ALL_TOPIC_CONFIG (21), and in `topics.json`.

    The three mapping members are those of 5.x: static topics, which we pass on as they are.
    """

    data_version: DataVersion = DataVersion()
    mapping_data_version: DataVersion | UnsetType = UNSET
    topic_config_table: dict[str, TopicConfig] = {}
    topic_queue_mapping_detail_map: dict[str, Any] | UnsetType = UNSET
    topic_queue_mapping_info_map: dict[str, Any] | UnsetType = UNSET


class RegisterBrokerBody(Body, kw_only=True):
    """REGISTER_BROKER (103). Only in the plain form do a topic's system flag and order travel."""

    filter_server_list: list[str] = []
    topic_table: TopicTable = field(name="topicConfigSerializeWrapper", default_factory=TopicTable)

    def encode_compressed(self, broker_version: int) -> bytes:
        """The compressed form, as a broker of that version writes it."""
        table = self.topic_table
        topics = [_topic_line(name, topic) for name, topic in table.topic_config_table.items()]
        parts = [
            _sized(table.data_version.encode()),
            _LENGTH.pack(len(topics)),
            *map(_sized, topics),
            _sized(fastjson.dumps(self.filter_server_list)),
        ]
        if broker_version >= STATIC_TOPICS_VERSION:
            mappings = table.topic_queue_mapping_info_map or {}
            parts.append(_LENGTH.pack(len(mappings)))
            parts += [_sized(fastjson.dumps(mapping)) for mapping in mappings.values()]
        return zlib.compress(b"".join(parts), 9)

    @classmethod
    def decode_from(cls, data: bytes, broker_version: int, compressed: bool = False) -> Self:
        """In whichever form a broker of that version wrote it; without a body it has no topics."""
        if not data:
            return cls()
        if broker_version < FILTER_SERVERS_VERSION:
            return cls(topic_table=TopicTable.decode_request(data))
        return cls.decode_compressed(data, broker_version) if compressed else cls.decode_request(data)

    @classmethod
    def decode_compressed(cls, data: bytes, broker_version: int) -> Self:
        """What `encode_compressed` put together; raises ProtocolError for anything else."""
        plain = inflate_zlib(data, INFLATED_BYTES_MAX)
        if len(plain) > INFLATED_BYTES_MAX:
            raise DecompressionLimit(
                f"a registration of {len(data)} bytes inflates beyond {INFLATED_BYTES_MAX} bytes"
            )
        parts = _Parts(plain)
        data_version = DataVersion.decode_request(parts.next())
        topics = [_topic(parts.next()) for _ in range(parts.count())]
        table = TopicTable(
            data_version=data_version,
            topic_config_table={topic.topic_name: topic for topic in topics if topic.topic_name},
        )
        filter_servers = fastjson.decode(parts.next(), list[str], fastjson.REQUEST_VALUES_MAX)
        if broker_version >= STATIC_TOPICS_VERSION:
            parts.check_values()
            mappings = [_mapping(parts.next()) for _ in range(parts.count())]
            table.topic_queue_mapping_info_map = {mapping["topic"]: mapping for mapping in mappings}
        parts.end()
        return cls(filter_server_list=filter_servers, topic_table=table)


def register_crc(body: bytes) -> int:
    """The `bodyCrc32` of a registration, over the bytes as sent; a header with 0 asks for no check."""
    return zlib.crc32(body) & 0x7FFF_FFFF


class _Parts:
    """Takes length-prefixed parts off a buffer, each length checked before it is used."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def next(self) -> bytes:
        length = self._number()
        start, stop = self._at, self._at + length
        if length < 0 or stop > len(self._data):
            raise ProtocolError(f"registration: a part of {length} bytes at byte {start} does not fit")
        self._at = stop
        return self._data[start:stop]

    def count(self) -> int:
        count = self._number()
        if not 0 <= count <= (len(self._data) - self._at) // _LENGTH.size:
            raise ProtocolError(f"registration: {count} entries do not fit into what is left")
        return count

    def check_values(self) -> None:
        """That what is left can be read in little time."""
        fastjson.check_values(self._data[self._at :], fastjson.REQUEST_VALUES_MAX)

    def end(self) -> None:
        if self._at != len(self._data):
            raise ProtocolError(f"registration: {len(self._data) - self._at} bytes follow its end")

    def _number(self) -> int:
        at = self._at
        if at + _LENGTH.size > len(self._data):
            raise ProtocolError("registration breaks off")
        self._at = at + _LENGTH.size
        number: int = _LENGTH.unpack_from(self._data, at)[0]
        return number


def _sized(part: bytes) -> bytes:
    return _LENGTH.pack(len(part)) + part


def _topic_line(name: str, topic: TopicConfig) -> bytes:
    line = f"{name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} {topic.topic_filter_type} "
    return line.encode() + fastjson.dumps(topic.attributes)


def _topic(line: bytes) -> TopicConfig:
    words = line.decode("utf-8", "replace").split(" ", 5)
    if len(words) < 5:
        raise ProtocolError(f"registration: topic {line[:200]!r} is not 'name read write perm type'")
    members: dict[str, Any] = dict(zip(_TOPIC_WORDS, words, strict=False))
    if len(words) > 5:
        members["attributes"] = fastjson.decode(words[5].encode(), dict[str, str], _ATTRIBUTES_MAX)
    return fastjson.convert(members, TopicConfig)


_ATTRIBUTES_MAX = 100
_TOPIC_WORDS = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")


def _mapping(data: bytes) -> dict[str, Any]:
    mapping = fastjson.loads(data)
    if not isinstance(mapping, dict) or not isinstance(mapping.get("topic"), str):
        raise ProtocolError("registration: a static topic without its name")
    return mapping


# ------------------------------------------------------------------------------- clients and subscriptions


class _Named(Enum):
    """Peers write the name; C++ and Go write the number, which is the place in this list."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return next(
            (each for each in cls if each.value == str(value).upper()), None
        )  # fastjson minds no case

    @classmethod
    def read(cls, value: Self | int | str) -> Self:
        if isinstance(value, cls):
            return value
        members = list(cls)
        if isinstance(value, int) and 0 <= value < len(members):
            return members[value]
        raise ProtocolError(f"{value!r} is no {cls.__name__}: {', '.join(each.value for each in members)}")


class ConsumeType(_Named):
    PULL = "CONSUME_ACTIVELY"
    PUSH = "CONSUME_PASSIVELY"
    POP = "CONSUME_POP"


class MessageModel(_Named):
    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(_Named):
    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    LAST_OFFSET_AND_MIN_AT_FIRST_BOOT = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"

    @classmethod
    def _missing_(cls, value: object) -> Self:
        # A broker only shows it, so a heartbeat is not refused for it. Go clients may send "UNKOWN".
        return super()._missing_(value) or cls["LAST_OFFSET"]


class SubscriptionData(Body, kw_only=True):
    """One topic of a consumer, and which of its messages it wants.

    `code_set` is what the client computed, and Go computes it over other units than Java: compute it anew
    from `sub_string`.
    """

    class_filter_mode: bool = False
    code_set: list[Int32] = []
    expression_type: str = "TAG"
    sub_string: str = "*"
    sub_version: Int64 = 0
    tags_set: list[str] = []
    topic: str


class ConsumerData(Body, kw_only=True):
    """One consumer group of a client."""

    consume_from_where: ConsumeFromWhere | int = ConsumeFromWhere.LAST_OFFSET
    consume_type: ConsumeType | int = ConsumeType.PULL
    group_name: str
    message_model: MessageModel | int = MessageModel.CLUSTERING
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False

    def __post_init__(self) -> None:
        self.consume_from_where = ConsumeFromWhere.read(self.consume_from_where)
        self.consume_type = ConsumeType.read(self.consume_type)
        self.message_model = MessageModel.read(self.message_model)


class ProducerData(Body, kw_only=True):
    """One producer group of a client."""

    group_name: str


class HeartbeatData(Body, kw_only=True):
    """HEART_BEAT (34): all groups of one client. The last two members are those of 5.x."""

    client_id: str = field(name="clientID")
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: Int32 = 0
    producer_data_set: list[ProducerData] = []
    without_sub: bool = field(name="withoutSub", default=False)


class CheckClient(Body, kw_only=True):
    """CHECK_CLIENT_CONFIG (46)."""

    client_id: str
    group: str
    namespace: str | UnsetType = UNSET
    subscription_data: SubscriptionData


class ConsumeQueueEntry(Body, kw_only=True):
    """One entry of a consume queue, and whether a group wants it."""

    eval: bool = False
    msg: str | UnsetType = UNSET
    physic_offset: Int64
    physic_size: Int32
    tags_code: Int64


class ConsumeQueuePage(Body, kw_only=True):
    """Reply of QUERY_CONSUME_QUEUE (321)."""

    filter_data: str | UnsetType = UNSET
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0
    queue_data: list[ConsumeQueueEntry] = []
    subscription_data: SubscriptionData | UnsetType = UNSET


class ConsumerList(Body, kw_only=True):
    """Reply of GET_CONSUMER_LIST_BY_GROUP (38)."""

    consumer_id_list: list[str] = []


class Connection(Body, kw_only=True):
    """One client of a group."""

    client_addr: str = ""
    client_id: str = ""
    language: str = "OTHER"
    version: Int32 = 0


class ConsumerConnection(Body, kw_only=True):
    """Reply of GET_CONSUMER_CONNECTION_LIST (203)."""

    connection_set: list[Connection] = []
    consume_from_where: ConsumeFromWhere | UnsetType = UNSET
    consume_type: ConsumeType | UnsetType = UNSET
    message_model: MessageModel | UnsetType = UNSET
    subscription_table: dict[str, SubscriptionData] = {}
    different_subscriptions: bool | UnsetType = UNSET
    """Ours alone, and only when true: its members do not all want the same, so messages are missed."""


class ProducerConnection(Body, kw_only=True):
    """Reply of GET_PRODUCER_CONNECTION_LIST (204)."""

    connection_set: list[Connection] = []


# ------------------------------------------------------------------------------------- groups and offsets


class SubscriptionGroupConfig(Body, kw_only=True):
    """A consumer group as its broker knows it."""

    attributes: dict[str, str] = {}
    broker_id: Int64 = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minute: Int32 = 15
    group_name: str
    group_retry_policy: dict[str, Any] = field(default_factory=lambda: {"type": "CUSTOMIZED"})
    group_sys_flag: Int32 = 0
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: Int32 = 16
    retry_queue_nums: Int32 = 1
    subscription_data_set: list[dict[str, Any]] | UnsetType = UNSET
    which_broker_when_consume_slowly: Int64 = 1


class GroupTable(Body, kw_only=True):
    """All groups of a broker: GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), and `subscriptionGroup.json`."""

    data_version: DataVersion = DataVersion()
    forbidden_table: dict[str, dict[str, Int32]] = {}
    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}


class ConsumerOffsets(Body, kw_only=True):
    """How far each group has come, by `topic@group` and queue: GET_ALL_CONSUMER_OFFSET (43), and
    `consumerOffset.json`."""

    data_version: DataVersion | UnsetType = UNSET
    offset_table: dict[str, dict[Int32, Int64]] = {}


class DelayOffsets(Body, kw_only=True):
    """How far each delay level has come: GET_ALL_DELAY_OFFSET (45), and `delayOffset.json`."""

    data_version: DataVersion | UnsetType = UNSET
    offset_table: dict[Int32, Int64] = {}


class TimerCheckpoint(NamedTuple):
    """How far timers have come: GET_TIMER_CHECK_POINT (60), seven numbers."""

    last_read_ms: int
    """Whatever was due before this has been delivered."""
    timer_log_flushed: int
    timer_queue_offset: int
    """Messages of the timer topic before this one have been taken into account."""
    primary_timer_queue_offset: int
    state_version: int
    timestamp: int
    counter: int

    def encode(self) -> bytes:
        return _TIMER_CHECKPOINT.pack(*self)

    @classmethod
    def decode(cls, data: bytes) -> TimerCheckpoint:
        """Raises ProtocolError when it is too short."""
        if len(data) < _TIMER_CHECKPOINT.size:
            raise ProtocolError(f"a timer checkpoint has {_TIMER_CHECKPOINT.size} bytes, not {len(data)}")
        return cls(*_TIMER_CHECKPOINT.unpack_from(data))


class TimingCount(Body, kw_only=True):
    """How many messages of one topic wait for their time."""

    count: Int64 = 0
    time_stamp: Int64 = 0


class TimerMetrics(Body, kw_only=True):
    """Who waits for a time, by topic: GET_TIMER_METRICS (61)."""

    data_version: DataVersion = DataVersion()
    timing_count: dict[str, TimingCount] = {}


class LockQueues(Body, kw_only=True):
    """LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42)."""

    client_id: str = ""
    consumer_group: str = ""
    mq_set: list[MessageQueue] = []
    only_this_broker: bool = False


class LockedQueues(Body, kw_only=True):
    """Reply of LOCK_BATCH_MQ."""

    locked: list[MessageQueue] = field(name="lockOKMQSet", default_factory=list)


class QueueRange(Body, kw_only=True):
    """Where a queue begins and ends, and when it was last written to; 0 when never."""

    last_update_timestamp: Int64 = 0
    max_offset: Int64 = 0
    min_offset: Int64 = 0


class TopicStats(Body, kw_only=True):
    """Reply of GET_TOPIC_STATS_INFO (202). Keyed by objects: only `encode_fastjson` writes it."""

    offset_table: dict[MessageQueue, QueueRange] = {}
    topic_put_tps: float = 0.0

    @classmethod
    def _read(cls, data: bytes, values_max: int) -> Self:
        return _keyed_by_queue(
            fastjson.loads(data, values_max), cls, "offsetTable", "offset_table", QueueRange
        )


class QueueProgress(Body, kw_only=True):
    """How far a group is in a queue; the time is that of the last message it is done with."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    last_timestamp: Int64 = 0
    pull_offset: Int64 = 0


class ConsumeStats(Body, kw_only=True):
    """Reply of GET_CONSUME_STATS (208). Keyed by objects: only `encode_fastjson` writes it."""

    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, QueueProgress] = {}

    @classmethod
    def _read(cls, data: bytes, values_max: int) -> Self:
        return cls.convert(fastjson.loads(data, values_max))

    @classmethod
    def convert(cls, document: Any) -> Self:
        """From a document that was read before, or is part of another."""
        return _keyed_by_queue(document, cls, "offsetTable", "offset_table", QueueProgress)


class QueueOffsets(Body, kw_only=True):
    """Offsets by message queue: RESET_CONSUMER_CLIENT_OFFSET (220), and the reply of 222.

    Its map is keyed by objects, so only `encode_fastjson` writes it for Java and Go; C++ wants a list, and
    that is what `encode` gives.
    """

    offset_table: dict[MessageQueue, Int64] = {}

    def encode(self) -> bytes:
        """The list that C++ clients read."""
        entries = [
            {
                "brokerName": queue.broker_name,
                "offset": offset,
                "queueId": queue.queue_id,
                "topic": queue.topic,
            }
            for queue, offset in self.offset_table.items()
        ]
        return fastjson.dumps({"offsetTable": entries})

    @classmethod
    def _read(cls, data: bytes, values_max: int) -> Self:
        """Either form."""
        document = fastjson.loads(data, values_max)
        table = document.get("offsetTable", {}) if isinstance(document, dict) else None
        if isinstance(table, list) and all(isinstance(entry, dict) for entry in table):
            entries = [(entry, entry.get("offset")) for entry in table]
        else:
            entries = fastjson.pairs(table)
        return cls(
            offset_table={
                fastjson.convert(queue, MessageQueue): fastjson.convert(offset, Int64)
                for queue, offset in entries
            }
        )


class QueuePlaces(Body, kw_only=True):
    """Reply of GET_CONSUMER_STATUS_FROM_CLIENT (221). Keyed by objects: only `encode_fastjson` writes it."""

    message_queue_table: dict[MessageQueue, Int64] = {}

    @classmethod
    def _read(cls, data: bytes, values_max: int) -> Self:
        return cls(
            message_queue_table=_by_queue(fastjson.loads(data, values_max), "messageQueueTable", Int64)
        )


Read = TypeVar("Read", bound=Body)


def _keyed_by_queue(document: Any, kind: type[Read], name: str, attribute: str, value: Any) -> Read:
    """A document of which one member is keyed by queues."""
    queues = _by_queue(document, name, value)
    rest = {**document, name: {}} if isinstance(document, dict) else document
    body = fastjson.convert(rest, kind)
    setattr(body, attribute, queues)
    return body


def _by_queue(document: Any, name: str, kind: Any) -> dict[MessageQueue, Any]:
    """A member of a document that is keyed by queues."""
    table = document.get(name) if isinstance(document, dict) else None
    return {
        fastjson.convert(queue, MessageQueue): fastjson.convert(value, kind)
        for queue, value in fastjson.pairs(table or {})
    }


# ------------------------------------------------------------------------------------ how a consumer fares


class HeldQueueInfo(Body, kw_only=True):
    """One queue of a consumer, and how far it is there."""

    cached_msg_count: Int32 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_size_in_mib: Int32 = field(name="cachedMsgSizeInMiB", default=0)
    commit_offset: Int64 = 0
    droped: bool = False
    last_consume_timestamp: Int64 = 0
    last_lock_timestamp: Int64 = 0
    last_pull_timestamp: Int64 = 0
    locked: bool = False
    transaction_msg_count: Int32 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_min_offset: Int64 = 0
    try_unlock_times: Int64 = 0


class TopicConsumption(Body, kw_only=True):
    """How fast a consumer is with one topic; times in ms."""

    consume_failed_msgs: Int64 = 0
    consume_failed_tps: float = field(name="consumeFailedTPS", default=0.0)
    consume_ok_tps: float = field(name="consumeOKTPS", default=0.0)
    consume_rt: float = field(name="consumeRT", default=0.0)
    pull_rt: float = field(name="pullRT", default=0.0)
    pull_tps: float = field(name="pullTPS", default=0.0)


class ConsumerRunningInfo(Body, kw_only=True):
    """Reply of GET_CONSUMER_RUNNING_INFO (307). Keyed by objects: only `encode_fastjson` writes it."""

    jstack: str | UnsetType = UNSET
    mq_table: dict[MessageQueue, HeldQueueInfo] = {}
    properties: dict[str, str] = {}
    status_table: dict[str, TopicConsumption] = {}
    subscription_set: list[SubscriptionData] = []

    @classmethod
    def _read(cls, data: bytes, values_max: int) -> Self:
        return _keyed_by_queue(fastjson.loads(data, values_max), cls, "mqTable", "mq_table", HeldQueueInfo)


CONSUME_RESULTS = (
    "CR_SUCCESS",
    "CR_LATER",
    "CR_ROLLBACK",
    "CR_COMMIT",
    "CR_THROW_EXCEPTION",
    "CR_RETURN_NULL",
)


class ConsumedDirectly(Body, kw_only=True):
    """Reply of CONSUME_MESSAGE_DIRECTLY (309). Members write the result by its name; Go ones by its number,
    which is the place in CONSUME_RESULTS."""

    auto_commit: bool = True
    consume_result: str = "CR_SUCCESS"
    order: bool = False
    remark: str | UnsetType = UNSET
    spent_time_mills: Int64 = 0

    @classmethod
    def _read(cls, data: bytes, values_max: int) -> Self:
        document = fastjson.loads(data, values_max)
        number = document.get("consumeResult") if isinstance(document, dict) else None
        if type(number) is int and 0 <= number < len(CONSUME_RESULTS):
            document = {**document, "consumeResult": CONSUME_RESULTS[number]}
        return fastjson.convert(document, cls)
