"""What to do, not how to wait: every operation on a name server or a broker, as a generator of steps.

Each function here returns an operation (see `steps.py`) for `drive.py` to run. They know which request to
send to whom and what its replies mean. They keep nothing: routes are cached in `routes.py`, positions in
`reading.py`. Sending, with its tries, is in `sends.py`.
"""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Literal, NamedTuple, TypeAlias

from kourou.client.refusals import accepted
from kourou.client.routes import MASTER, NameServers, Routes
from kourou.client.steps import Call, Operation
from kourou.errors import ConfigError, NoMaster, NotFound, Unreachable
from kourou.message import ReceivedMessage
from kourou.protocol import record
from kourou.protocol.bodies import ClusterInfo, MessageQueue, TopicList
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import (
    CreateTopic,
    OffsetReply,
    PullMessage,
    PullReply,
    QueryOffset,
    QueueNamed,
    SearchOffset,
    UpdateOffset,
)
from kourou.protocol.names import DEAD_LETTER_PREFIX, DEFAULT_TOPIC, RETRY_PREFIX, is_system_topic

TIMEOUT_SECONDS = 3.0

# ------------------------------------------------------------------------------------------------- pulling

PULL_COMMIT = 0x1
PULL_SUSPEND = 0x2
PULL_SUBSCRIPTION = 0x4

PULL_CODES = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


TAG = "TAG"
SQL92 = "SQL92"


class Subscription:
    """Which messages of a topic are wanted: those with one of these tags, those an SQL92 expression says, or
    all."""

    __slots__ = ("expression", "kind", "tags", "topic", "version")

    def __init__(self, topic: str, expression: str, version: int, kind: str = TAG) -> None:
        self.topic = topic
        self.kind = kind
        self.version = version
        self.tags: frozenset[str] = frozenset()
        self.expression = expression
        if kind == TAG:
            self.tags = frozenset(tag for part in expression.split("||") if (tag := part.strip())) - {"*"}
            self.expression = " || ".join(sorted(self.tags)) or "*"

    def wants(self, message: ReceivedMessage) -> bool:
        """By the tag itself: a broker compares hashes, and hashes collide."""
        return not self.tags or message.tags in self.tags


class Pulled(NamedTuple):
    """What a pull brought. An empty `messages` is no failure: there was nothing, or nothing that matched."""

    messages: list[ReceivedMessage]
    next_offset: int
    moved: bool
    """The offset asked for is not in the queue (any more, or yet); `next_offset` is the nearest that is."""
    min_offset: int
    max_offset: int
    suggested_broker_id: int


def pull_request(
    queue: MessageQueue,
    queue_offset: int,
    subscription: Subscription,
    group: str,
    *,
    count: int = 32,
    suspend: float = 0.0,
    commit: int | None = None,
) -> Command:
    """A pull that brings its own subscription, so that it depends on no heartbeat.

    `commit` is stored as the group's place in the queue before the pull is answered.
    """
    header = PullMessage(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=queue_offset,
        message_count_max=count,
        sys_flag=PULL_SUBSCRIPTION
        | (PULL_SUSPEND if suspend > 0 else 0)
        | (PULL_COMMIT if commit is not None else 0),
        commit_offset=commit or 0,
        suspend_timeout_ms=round(suspend * 1000),
        subscription=subscription.expression,
        subscription_version=subscription.version,
        expression_type=subscription.kind,
    )
    return request(RequestCode.PULL_MESSAGE, header)


def pulled(reply: Command, queue: MessageQueue, subscription: Subscription) -> Pulled:
    """What the reply to a pull means; raises Refused, or ProtocolError when its records make no sense."""
    accepted(
        reply, f"pulling from queue {queue.queue_id} of '{queue.topic}' at {queue.broker_name}", PULL_CODES
    )
    header = reply.parse(PullReply)
    messages = []
    if reply.code == ResponseCode.SUCCESS:
        received = (record.to_received(each, queue.broker_name) for each in record.decode_all(reply.body))
        messages = [message for message in received if subscription.wants(message)]
    return Pulled(
        messages,
        header.next_begin_offset,
        reply.code == ResponseCode.PULL_OFFSET_MOVED,
        header.min_offset,
        header.max_offset,
        header.suggest_which_broker_id,
    )


def pull(
    address: str,
    queue: MessageQueue,
    queue_offset: int,
    subscription: Subscription,
    group: str,
    *,
    count: int = 32,
    suspend: float = 0.0,
    timeout: float = TIMEOUT_SECONDS,
) -> Operation[Pulled]:
    """Ask once for messages from `queue_offset` on; the broker waits `suspend` seconds for one to come."""
    command = pull_request(queue, queue_offset, subscription, group, count=count, suspend=suspend)
    reply: Command = yield Call(address, command, timeout + suspend)
    return pulled(reply, queue, subscription)


# ------------------------------------------------------------------------------------------------- offsets

Start: TypeAlias = Literal["earliest", "latest"] | datetime
"""Where to begin in a queue."""


def checked_start(start: object) -> Start:
    """Raises ConfigError for what is no place to start at."""
    if start == "earliest" or start == "latest" or isinstance(start, datetime):
        return start
    raise ConfigError(f"start is {start!r}, but must be 'earliest', 'latest' or a datetime")


def committed_offset(
    address: str, queue: MessageQueue, group: str, *, set_zero_if_not_found: bool | None = False
) -> Operation[int | None]:
    """Where `group` goes on reading; None when it has never committed there.

    With None for `set_zero_if_not_found`, which is what Java's push consumers say, a broker answers 0 for as
    long as a queue's first message is in its memory: then a new group misses nothing of a young topic.
    """
    header = QueryOffset(group, queue.topic, queue.queue_id, set_zero_if_not_found=set_zero_if_not_found)
    reply: Command = yield Call(address, request(RequestCode.QUERY_CONSUMER_OFFSET, header), TIMEOUT_SECONDS)
    try:
        accepted(reply, f"offset of group '{group}' in queue {queue.queue_id} of '{queue.topic}'")
    except NotFound as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise
    return reply.parse(OffsetReply).offset


def commit_offset(keepers: list[str], queue: MessageQueue, group: str, queue_offset: int) -> Operation[None]:
    """Store how far a group is, at the first of these brokers that can be reached (`Route.keepers`)."""
    header = UpdateOffset(group, queue.topic, queue.queue_id, queue_offset)
    for number, address in enumerate(keepers, 1):
        command = request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        try:
            reply: Command = yield Call(address, command, TIMEOUT_SECONDS)
            break
        except Unreachable:
            if number == len(keepers):
                raise
    accepted(
        reply,
        f"committing offset {queue_offset} of group '{group}' in queue {queue.queue_id} of '{queue.topic}'",
    )


def min_offset(address: str, queue: MessageQueue) -> Operation[int]:
    """The place of the oldest message that is still there."""
    return _bound(address, queue, RequestCode.GET_MIN_OFFSET)


def max_offset(address: str, queue: MessageQueue) -> Operation[int]:
    """The place the next message will take."""
    return _bound(address, queue, RequestCode.GET_MAX_OFFSET)


def _bound(address: str, queue: MessageQueue, code: RequestCode) -> Operation[int]:
    reply: Command = yield Call(
        address, request(code, QueueNamed(queue.topic, queue.queue_id)), TIMEOUT_SECONDS
    )
    return accepted(reply, f"bounds of queue {queue.queue_id} of '{queue.topic}'").parse(OffsetReply).offset


def place(address: str, queue: MessageQueue, where: Start) -> Operation[int]:
    """The place "earliest", "latest" or a moment stands for."""
    if where == "earliest":
        return min_offset(address, queue)
    if where == "latest":
        return max_offset(address, queue)
    return offset_at(address, queue, round(where.timestamp() * 1000))


def offset_at(address: str, queue: MessageQueue, timestamp_ms: int) -> Operation[int]:
    """The place of the first message stored at `timestamp_ms` or later."""
    header = SearchOffset(queue.topic, queue.queue_id, timestamp_ms)
    reply: Command = yield Call(
        address, request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header), TIMEOUT_SECONDS
    )
    return (
        accepted(reply, f"place by time in queue {queue.queue_id} of '{queue.topic}'")
        .parse(OffsetReply)
        .offset
    )


# --------------------------------------------------------------------------------------- topics and cluster


class TopicSettings(NamedTuple):
    """A topic to be made, or changed to this."""

    name: str
    read_queues: int = 8
    write_queues: int = 8
    permission: int = 6
    """4 may be read, 2 may be written, added up."""


def create_topic(address: str, topic: TopicSettings) -> Operation[None]:
    """Make the topic at one broker, or change it there."""
    header = CreateTopic(
        topic=topic.name,
        read_queue_nums=topic.read_queues,
        write_queue_nums=topic.write_queues,
        perm=topic.permission,
        default_topic=DEFAULT_TOPIC,
        topic_sys_flag=0,
        order=False,
    )
    reply: Command = yield Call(
        address, request(RequestCode.UPDATE_AND_CREATE_TOPIC, header), TIMEOUT_SECONDS
    )
    accepted(reply, f"creating topic '{topic.name}' at {address}")


def topic_names(name_servers: NameServers, *, everything: bool = False) -> Operation[list[str]]:
    """The users' topics the name servers know of; with `everything` also the system's own."""
    names = yield from _topic_list(name_servers, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    if not everything:
        # Every cluster and every broker has a topic of its own name.
        internal = yield from _topic_list(name_servers, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        names = {name for name in names - internal if not _is_internal(name)}
    return sorted(names)


def _topic_list(name_servers: NameServers, code: RequestCode) -> Operation[set[str]]:
    reply = yield from name_servers.ask(request(code))
    return set(TopicList.decode(accepted(reply, "list of topics").body).topic_list)


def _is_internal(topic: str) -> bool:
    return (
        is_system_topic(topic)
        or topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
        or topic.endswith("_REPLY_TOPIC")
    )


class RoutePart(NamedTuple):
    """What one broker has of a topic."""

    cluster: str
    broker: str
    addresses: str
    read_queues: int
    write_queues: int
    perm: int


def route_parts(routes: Routes, topic: str) -> Operation[list[RoutePart]]:
    """Which brokers have the topic, as the name servers tell it."""
    data = yield from routes.ask(topic, TIMEOUT_SECONDS)
    brokers = {broker.broker_name: broker for broker in data.broker_datas}
    parts = []
    for part in sorted(data.queue_datas, key=attrgetter("broker_name")):
        broker = brokers.get(part.broker_name)
        parts.append(
            RoutePart(
                broker.cluster if broker else "",
                part.broker_name,
                " ".join(f"{number}={address}" for number, address in sorted(broker.broker_addrs.items()))
                if broker
                else "",
                part.read_queue_nums,
                part.write_queue_nums,
                part.perm,
            )
        )
    return parts


def cluster_info(name_servers: NameServers) -> Operation[ClusterInfo]:
    """Which brokers there are, and where."""
    reply = yield from name_servers.ask(request(RequestCode.GET_BROKER_CLUSTER_INFO))
    return ClusterInfo.decode(accepted(reply, "list of brokers").body)


class Master(NamedTuple):
    """A broker one can write to."""

    cluster: str
    broker_name: str
    address: str


def masters(name_servers: NameServers, cluster: str | None = None) -> Operation[list[Master]]:
    """The masters of `cluster`, or of the only cluster there is; raises when that leaves a doubt."""
    info = yield from cluster_info(name_servers)
    clusters = sorted(info.cluster_addr_table)
    if cluster is None and len(clusters) > 1:
        raise ConfigError(f"there are {len(clusters)} clusters: {', '.join(clusters)}; say which one")
    if cluster is not None and cluster not in clusters:
        known = ", ".join(clusters) or "none"
        raise NotFound(ResponseCode.BROKER_NOT_EXIST, f"no cluster '{cluster}'; known: {known}")
    names = {name for each in clusters if cluster in (None, each) for name in info.cluster_addr_table[each]}
    found = [
        Master(broker.cluster, name, broker.broker_addrs[MASTER])
        for name, broker in sorted(info.broker_addr_table.items())
        if name in names and MASTER in broker.broker_addrs
    ]
    if not found:
        asked = ", ".join(name_servers.addresses)
        raise NoMaster(
            ResponseCode.BROKER_NOT_EXIST,
            f"no broker is registered at {asked}; start one, and wait until it is",
        )
    return found
