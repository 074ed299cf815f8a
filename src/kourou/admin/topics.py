"""Topics: which there are, where they are, what is in them; made, changed, deleted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from msgspec import UNSET

from kourou.admin import cluster as clusters
from kourou.admin import nameservers
from kourou.admin.cluster import Node
from kourou.admin.connection import Connection, Outcome
from kourou.client import operations, settings
from kourou.errors import ConfigError, NotFound, Refused, Unreachable
from kourou.protocol.bodies import GroupList, TopicConfig, TopicRouteData, TopicStats, TopicTable
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import request
from kourou.protocol.headers import CreateTopic, DeleteTopicFromNameServer, TopicNamed
from kourou.protocol.names import DEAD_LETTER_PREFIX, DEFAULT_TOPIC, RETRY_PREFIX, is_system_topic

Kind = Literal["normal", "delay", "fifo", "transaction", "mixed", "unspecified", "retry", "dlq", "system"]

MESSAGE_TYPE = "message.type"
ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"


@dataclass(frozen=True)
class Topic:
    """A topic over all brokers that have it."""

    name: str
    kind: Kind
    brokers: tuple[str, ...]
    read_queues: int
    """Of all brokers together."""
    write_queues: int
    perm: int
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)
    settings_differ: bool = False
    """Its brokers do not agree on permission or number of queues."""


@dataclass(frozen=True)
class TopicAt:
    """A topic as one broker has it."""

    topic: str
    cluster: str
    broker: str
    address: str
    read_queues: int
    write_queues: int
    perm: int
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class QueueStats:
    """One queue: its bounds, and when it was last written to (0 when never)."""

    topic: str
    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_updated_ms: int

    @property
    def messages(self) -> int:
        return self.max_offset - self.min_offset


@dataclass(frozen=True)
class Stats:
    """What is in a topic."""

    queues: tuple[QueueStats, ...]
    put_tps: float
    missing: tuple[str, ...] = ()
    """Brokers that could not be asked, each with the reason."""

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues)


# ---------------------------------------------------------------------------------------------- looking


def names(connection: Connection, *, everything: bool = False, cluster: str | None = None) -> list[str]:
    """Users' topics, sorted; with `everything` also retries, dead letters and the system's own."""
    found = connection.run(operations.topic_names(connection.name_servers, everything=everything))
    if cluster is None:
        return found
    in_cluster = {topic.name for topic in all_topics(connection, everything=True, cluster=cluster)}
    return [name for name in found if name in in_cluster]


def all_topics(
    connection: Connection, *, everything: bool = False, cluster: str | None = None
) -> list[Topic]:
    """Every topic with its settings: one request to each master, however many topics there are."""
    known = clusters.clusters(connection)
    own_names = {*known, *(name for each in known.values() for name in each)}
    tables, _ = connection.some(clusters.masters(connection, cluster), lambda node: table(connection, node))
    parts: dict[str, list[tuple[str, TopicConfig]]] = defaultdict(list)
    for node, found in tables:
        for name, config in found.items():
            parts[name].append((node.broker, config))
    listed = [_merged(name, at, own_names) for name, at in sorted(parts.items())]
    return [topic for topic in listed if everything or topic.kind not in ("retry", "dlq", "system")]


def table(connection: Connection, node: Node) -> dict[str, TopicConfig]:
    """GET_ALL_TOPIC_CONFIG: all topics of one broker."""
    reply = connection.ask(
        node.address, request(RequestCode.GET_ALL_TOPIC_CONFIG), "asked for all its topics"
    )
    return dict(TopicTable.decode(reply.body).topic_config_table)


def kind_of(name: str, attributes: Mapping[str, str], own_names: set[str] | frozenset[str]) -> Kind:
    """What a topic is for, by its name and by what its brokers say."""
    if name.startswith(RETRY_PREFIX):
        return "retry"
    if name.startswith(DEAD_LETTER_PREFIX):
        return "dlq"
    if is_system_topic(name) or name in own_names or name.endswith("_REPLY_TOPIC"):
        return "system"
    told = attributes.get(MESSAGE_TYPE, "").lower()
    if told in ("delay", "fifo", "transaction", "mixed", "unspecified"):
        return told  # type: ignore[return-value]
    return "normal"


def _merged(name: str, at: list[tuple[str, TopicConfig]], own_names: set[str]) -> Topic:
    configs = [config for _, config in at]
    first = configs[0]
    shapes = {(each.read_queue_nums, each.write_queue_nums, each.perm, each.order) for each in configs}
    return Topic(
        name=name,
        kind=kind_of(name, first.attributes, own_names),
        brokers=tuple(sorted(broker for broker, _ in at)),
        read_queues=sum(config.read_queue_nums for config in configs),
        write_queues=sum(config.write_queue_nums for config in configs),
        perm=first.perm,
        order=first.order,
        attributes=dict(first.attributes),
        settings_differ=len(shapes) > 1,
    )


def route(connection: Connection, topic: str) -> TopicRouteData:
    """Where it is, as the name servers tell it; raises NotFound."""
    return connection.run(connection.routes.ask(settings.checked_topic(topic), connection.timeout))


def at_brokers(connection: Connection, topic: str) -> list[TopicAt]:
    """What each broker of its route has of it, by the route."""
    told = route(connection, topic)
    by_name = {broker.broker_name: broker for broker in told.broker_datas}
    found = []
    for part in sorted(told.queue_datas, key=lambda each: each.broker_name):
        broker = by_name.get(part.broker_name)
        if broker is None or not broker.broker_addrs:
            continue
        found.append(
            TopicAt(
                topic=topic,
                cluster=broker.cluster,
                broker=part.broker_name,
                address=broker.broker_addrs[min(broker.broker_addrs)],
                read_queues=part.read_queue_nums,
                write_queues=part.write_queue_nums,
                perm=part.perm,
            )
        )
    return found


def show(connection: Connection, topic: str) -> list[TopicAt]:
    """A topic as each of its brokers says it is, attributes included; as its route does when one is away."""

    def asked(part: TopicAt) -> TopicAt:
        config = config_at(connection, part.address, topic)
        return TopicAt(
            topic,
            part.cluster,
            part.broker,
            part.address,
            config.read_queue_nums,
            config.write_queue_nums,
            config.perm,
            config.order,
            dict(config.attributes),
        )

    outcomes = connection.each(at_brokers(connection, topic), asked)
    return [outcome.result or outcome.of for outcome in outcomes]


def config_at(connection: Connection, address: str, topic: str) -> TopicConfig:
    """One broker's settings of a topic: GET_TOPIC_CONFIG, or for a broker of 4.x all its topics."""
    try:
        reply = connection.ask(
            address, request(RequestCode.GET_TOPIC_CONFIG, TopicNamed(topic)), f"asked for topic '{topic}'"
        )
        return TopicConfig.decode(reply.body)
    except Refused as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
    reply = connection.ask(address, request(RequestCode.GET_ALL_TOPIC_CONFIG), "asked for all its topics")
    config = TopicTable.decode(reply.body).topic_config_table.get(topic)
    if config is None:
        raise NotFound(ResponseCode.TOPIC_NOT_EXIST, f"{address} has no topic '{topic}'")
    return config


def stats(connection: Connection, topic: str) -> Stats:
    """The bounds of every queue; brokers that are away are left out, and named."""
    parts = at_brokers(connection, topic)

    def asked(part: TopicAt) -> TopicStats:
        reply = connection.ask(
            part.address,
            request(RequestCode.GET_TOPIC_STATS_INFO, TopicNamed(topic)),
            f"asked what is in topic '{topic}'",
        )
        return TopicStats.decode(reply.body)

    found, failed = connection.some(parts, asked)
    queues = [
        QueueStats(
            topic,
            queue.broker_name,
            queue.queue_id,
            bounds.min_offset,
            bounds.max_offset,
            bounds.last_update_timestamp,
        )
        for _, each in found
        for queue, bounds in each.offset_table.items()
    ]
    return Stats(
        queues=tuple(sorted(queues, key=lambda queue: (queue.broker, queue.queue_id))),
        put_tps=sum(each.topic_put_tps for _, each in found),
        missing=tuple(f"{outcome.of.broker}: {outcome.error}" for outcome in failed),
    )


def groups_of(connection: Connection, topic: str) -> list[str]:
    """QUERY_TOPIC_CONSUME_BY_WHO: who consumes it, or ever did."""

    def asked(part: TopicAt) -> list[str]:
        reply = connection.ask(
            part.address,
            request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicNamed(topic)),
            f"asked who consumes '{topic}'",
        )
        return GroupList.decode(reply.body).group_list

    found, _ = connection.some(at_brokers(connection, topic), asked)
    return sorted({group for _, groups in found for group in groups})


# --------------------------------------------------------------------------------------------- changing


@dataclass(frozen=True)
class Wanted:
    """A topic to be made, or changed to this."""

    name: str
    read_queues: int = 8
    write_queues: int = 8
    perm: int = 6
    order: bool = False
    sys_flag: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)
    """`message.type`: NORMAL, DELAY, FIFO, TRANSACTION, …; a value of "" takes an attribute away."""


def hidden_by(connection: Connection, wanted: Wanted, targets: list[Node]) -> list[TopicAt]:
    """Where the topic is now with more queues than it would have: nobody would read the rest of them."""
    try:
        there = at_brokers(connection, wanted.name)
    except (NotFound, Unreachable):  # who names a broker's address need not have a name server
        return []
    names = {node.broker for node in targets}
    return [
        each
        for each in there
        if each.broker in names
        and (each.read_queues > wanted.read_queues or each.write_queues > wanted.write_queues)
    ]


def check_not_of_system(topic: str) -> None:
    """Raises ConfigError for a topic that brokers keep for themselves: they refuse to have it changed."""
    if is_system_topic(topic):
        raise ConfigError(f"topic '{topic}' belongs to the system and stays as it is; choose one of your own")


def save(connection: Connection, wanted: Wanted, targets: list[Node]) -> list[Outcome[Node, None]]:
    """Make a topic at these brokers, or change it there; one that fails does not stop the others."""
    settings.checked_topic(wanted.name)
    for what, queues in (("read", wanted.read_queues), ("write", wanted.write_queues)):
        if not 1 <= queues <= 65_535:
            raise ConfigError(f"{queues} {what} queues cannot be: 1 to 65535")
    if wanted.perm not in (0, 2, 4, 6):
        raise ConfigError(f"permission {wanted.perm} is none: 2 may be written, 4 may be read, 6 both")

    def asked(node: Node) -> None:
        header = CreateTopic(
            topic=wanted.name,
            read_queue_nums=wanted.read_queues,
            write_queue_nums=wanted.write_queues,
            perm=wanted.perm,
            default_topic=DEFAULT_TOPIC,
            topic_sys_flag=wanted.sys_flag,
            order=wanted.order,
            attributes=_attribute_changes(wanted.attributes),
        )
        connection.ask(
            node.address,
            request(RequestCode.UPDATE_AND_CREATE_TOPIC, header),
            f"asked to save topic '{wanted.name}'",
        )

    return connection.each(targets, asked)


def _attribute_changes(attributes: Mapping[str, str]) -> str | None:
    changes = [f"+{name}={value}" if value else f"-{name}" for name, value in attributes.items()]
    return ",".join(changes) or None


def targets(connection: Connection, cluster: str | None = None, broker: str | None = None) -> list[Node]:
    """Where a change is to be made: at one broker, at the masters of one cluster, or of the only one."""
    if broker is not None:
        return [clusters.node(connection, broker)]
    known = clusters.clusters(connection)
    if cluster is None and len(known) > 1:
        raise ConfigError(f"there are {len(known)} clusters: {', '.join(known)}; say which one")
    return clusters.masters(connection, cluster)


def set_permission(connection: Connection, topic: str, perm: int, broker: str | None = None) -> list[TopicAt]:
    """Change what may be done with a topic, everywhere it is or at one broker; what it was is returned."""
    before = [part for part in show(connection, topic) if broker in (None, part.broker, part.address)]
    if not before:
        raise NotFound(ResponseCode.TOPIC_NOT_EXIST, f"topic '{topic}' is not at broker '{broker}'")
    for part in before:
        wanted = Wanted(topic, part.read_queues, part.write_queues, perm, part.order)
        node = Node(part.cluster, part.broker, 0, part.address)
        _raise_first(save(connection, wanted, [node]))
    return before


def delete(connection: Connection, topic: str, cluster: str | None = None) -> list[str]:
    """Delete a topic at every master (of one cluster), then at every name server; returns who did."""
    settings.checked_topic(topic)
    nodes = clusters.masters(connection, cluster)

    def at_broker(node: Node) -> None:
        connection.ask(
            node.address,
            request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicNamed(topic)),
            f"asked to delete topic '{topic}'",
        )

    connection.all(nodes, at_broker, f"deleting topic '{topic}'")
    header = DeleteTopicFromNameServer(topic, cluster)
    nameservers.tell_all(
        connection, lambda: request(RequestCode.DELETE_TOPIC_IN_NAMESRV, header), f"deleting topic '{topic}'"
    )
    connection.routes.doubt(topic)
    return [node.broker for node in nodes]


def exists(connection: Connection, topic: str) -> bool:
    try:
        route(connection, topic)
    except NotFound:
        return False
    return True


def _raise_first(outcomes: list[Outcome[Node, None]]) -> None:
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


# --------------------------------------------------------------------------------- queues of ordered topics


def order_configuration(connection: Connection, topic: str) -> str | None:
    """`broker-a:4;broker-b:4`, or None: the queues laid down for an ordered topic."""
    return nameservers.kv_get(connection, ORDER_NAMESPACE, topic)


def order_route(told: TopicRouteData) -> str | None:
    """What a route says of it."""
    return None if told.order_topic_conf is UNSET else told.order_topic_conf
