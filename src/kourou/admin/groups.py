"""Consumer groups: which there are, who is in them, what they want, and how far behind they are.

A group's lag is told per queue by the broker that has it: where the queue ends less what the group committed.
Groups that broadcast commit nothing to a broker, so nothing is said of their lag.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from msgspec import UNSET

from kourou.admin import cluster as clusters
from kourou.admin import topics
from kourou.admin.cluster import Node
from kourou.admin.connection import Connection, Outcome
from kourou.client import settings
from kourou.errors import MQError, NotFound
from kourou.protocol.admin_bodies import ConsumeTimeSpans
from kourou.protocol.admin_headers import DirectConsumption, TopicAndGroup
from kourou.protocol.bodies import (
    ConsumedDirectly,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    GroupTable,
    MessageModel,
    SubscriptionGroupConfig,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import request
from kourou.protocol.headers import DeleteGroup, GetConsumeStats, GetRunningInfo, GroupNamed
from kourou.protocol.names import (
    RETRY_PREFIX,
    SYSTEM_GROUPS,
    dead_letter_topic,
    retry_topic,
)
from kourou.protocol.versions import version_name

Result = TypeVar("Result")

ABSENT = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)


@dataclass(frozen=True)
class Group:
    """A group over all brokers that know it."""

    name: str
    brokers: tuple[str, ...]
    is_enabled: bool
    is_broadcast_allowed: bool
    retry_max: int
    retry_queues: int
    is_ordered: bool
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Member:
    """One consumer that is connected."""

    client_id: str
    address: str
    language: str
    version: str
    brokers: tuple[str, ...]
    """Those that hear its heartbeats."""


@dataclass(frozen=True)
class Subscription:
    """What a group wants of a topic."""

    topic: str
    expression: str
    kind: str
    version: int


@dataclass(frozen=True)
class Members:
    """Who is in a group now, and what it wants."""

    group: str
    members: tuple[Member, ...]
    subscriptions: tuple[Subscription, ...]
    consume_type: str
    message_model: str
    consume_from: str
    disagreements: tuple[str, ...] = ()
    """Why its members would miss messages: brokers, or members, do not agree on what the group wants."""

    @property
    def is_broadcast(self) -> bool:
        return self.message_model == MessageModel.BROADCASTING.value


@dataclass(frozen=True)
class QueueLag:
    """How far a group is in one queue."""

    group: str
    topic: str
    broker: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    pull_offset: int
    lag: int
    in_flight: int
    """Pulled by a member and not done; none where no member is connected."""
    last_consumed_ms: int
    """When the last message it is done with was stored; 0 when there is none."""
    client_id: str | None = None
    """Who has the queue, when that was asked."""

    def behind_ms(self, now_ms: int) -> int:
        """How old its backlog is at most; 0 without one."""
        return max(0, now_ms - self.last_consumed_ms) if self.lag and self.last_consumed_ms else 0


@dataclass(frozen=True)
class Lag:
    """How far a group is, over all its queues."""

    group: str
    queues: tuple[QueueLag, ...]
    tps: float
    missing: tuple[str, ...] = ()
    """Brokers that could not be asked, each with the reason."""

    @property
    def total(self) -> int:
        return sum(queue.lag for queue in self.queues)

    @property
    def in_flight(self) -> int:
        return sum(queue.in_flight for queue in self.queues)

    def __iter__(self) -> Iterator[QueueLag]:
        return iter(self.queues)


@dataclass(frozen=True)
class GroupState:
    """A group in one line."""

    group: str
    members: int
    version: str
    consume_type: str
    message_model: str
    tps: float
    lag: int
    topics: tuple[str, ...]
    disagreements: tuple[str, ...] = ()
    error: str | None = None


# ---------------------------------------------------------------------------------------------- looking


def names(connection: Connection, *, everything: bool = False) -> list[str]:
    """All groups, sorted; with `everything` also the system's own."""
    return [group.name for group in all_groups(connection, everything=everything)]


def all_groups(
    connection: Connection, *, everything: bool = False, cluster: str | None = None
) -> list[Group]:
    """Every group with its settings: one request to each master."""
    tables, _ = connection.some(clusters.masters(connection, cluster), lambda node: table(connection, node))
    parts: dict[str, list[tuple[str, SubscriptionGroupConfig]]] = defaultdict(list)
    for node, found in tables:
        for name, config in found.items():
            parts[name].append((node.broker, config))
    return [
        _merged(name, at) for name, at in sorted(parts.items()) if everything or not is_system_group(name)
    ]


def is_system_group(name: str) -> bool:
    return name in SYSTEM_GROUPS or name.startswith(("CID_RMQ_SYS_", "CID_ONS", "CID_SYS_RMQ_"))


def table(connection: Connection, node: Node) -> dict[str, SubscriptionGroupConfig]:
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: all groups of one broker."""
    reply = connection.ask(
        node.address, request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG), "asked for all its groups"
    )
    return dict(GroupTable.decode(reply.body).subscription_group_table)


def _merged(name: str, at: list[tuple[str, SubscriptionGroupConfig]]) -> Group:
    first = at[0][1]
    return Group(
        name=name,
        brokers=tuple(sorted(broker for broker, _ in at)),
        is_enabled=all(config.consume_enable for _, config in at),
        is_broadcast_allowed=first.consume_broadcast_enable,
        retry_max=first.retry_max_times,
        retry_queues=first.retry_queue_nums,
        is_ordered=first.consume_message_orderly,
        attributes=dict(first.attributes),
    )


def show(connection: Connection, group: str) -> list[tuple[Node, SubscriptionGroupConfig]]:
    """A group as each master that knows it has it; raises NotFound when none does."""
    settings.checked_group(group)

    def asked(node: Node) -> SubscriptionGroupConfig | None:
        # Asked for one group (352), an Apache broker makes it: who only looks asks for all.
        return table(connection, node).get(group)

    found, _ = connection.some(clusters.masters(connection), asked)
    known = [(node, config) for node, config in found if config is not None]
    if not known:
        raise NotFound(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"no group '{group}'; see them with: kourou group ls",
        )
    return known


def members(connection: Connection, group: str) -> Members:
    """Who is connected; raises NotFound when nobody is."""
    settings.checked_group(group)

    def asked(node: Node) -> ConsumerConnection | None:
        reply = connection.ask(
            node.address,
            request(RequestCode.GET_CONSUMER_CONNECTION_LIST, GroupNamed(group)),
            f"asked who is in group '{group}'",
            expected=(ResponseCode.SUCCESS, *ABSENT),
        )
        return ConsumerConnection.decode(reply.body) if reply.code == ResponseCode.SUCCESS else None

    found, _ = connection.some(clusters.masters(connection), asked)
    heard = [(node, each) for node, each in found if each is not None]
    if not heard:
        raise NotFound(
            ResponseCode.CONSUMER_NOT_ONLINE, f"nobody is in group '{group}' now: no member is connected"
        )
    return _heard_members(group, heard)


def _heard_members(group: str, heard: list[tuple[Node, ConsumerConnection]]) -> Members:
    by_client: dict[str, list[tuple[Node, Member]]] = defaultdict(list)
    for node, each in heard:
        for client in each.connection_set:
            member = Member(
                client.client_id,
                client.client_addr,
                client.language,
                version_name(client.version),
                (node.broker,),
            )
            by_client[client.client_id].append((node, member))
    merged = [
        Member(
            client_id,
            at[0][1].address,
            at[0][1].language,
            at[0][1].version,
            tuple(sorted(node.broker for node, _ in at)),
        )
        for client_id, at in sorted(by_client.items())
    ]
    newest = max((each for _, each in heard), key=_newest_subscription)
    return Members(
        group=group,
        members=tuple(merged),
        subscriptions=tuple(
            Subscription(topic, data.sub_string, data.expression_type, data.sub_version)
            for topic, data in sorted(newest.subscription_table.items())
        ),
        consume_type=newest.consume_type.value if newest.consume_type is not UNSET else "",
        message_model=newest.message_model.value if newest.message_model is not UNSET else "",
        consume_from=newest.consume_from_where.value if newest.consume_from_where is not UNSET else "",
        disagreements=tuple(_disagreements(heard)),
    )


def _newest_subscription(each: ConsumerConnection) -> int:
    return max((data.sub_version for data in each.subscription_table.values()), default=0)


def _disagreements(heard: list[tuple[Node, ConsumerConnection]]) -> Iterable[str]:
    for node, each in heard:
        if each.different_subscriptions:
            yield f"at {node.broker} the members do not all want the same"
    wanted: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for node, each in heard:
        for topic, data in each.subscription_table.items():
            if not topic.startswith(RETRY_PREFIX):
                wanted[topic][f"{data.expression_type} {data.sub_string}"].append(node.broker)
    for topic, expressions in sorted(wanted.items()):
        if len(expressions) > 1:
            told = "; ".join(f"{what} at {', '.join(at)}" for what, at in sorted(expressions.items()))
            yield f"topic {topic} is wanted in {len(expressions)} ways: {told}"


def running_info(
    connection: Connection, group: str, client_id: str, *, stacks: bool = False
) -> ConsumerRunningInfo:
    """GET_CONSUMER_RUNNING_INFO: one member tells of itself, through a broker it is connected to."""

    def asked(node: Node) -> ConsumerRunningInfo:
        reply = connection.ask(
            node.address,
            request(RequestCode.GET_CONSUMER_RUNNING_INFO, GetRunningInfo(group, client_id, stacks)),
            f"asked how {client_id} of group '{group}' fares",
            timeout=max(connection.timeout, 15.0),
        )
        return ConsumerRunningInfo.decode(reply.body)

    return _first_that_answers(connection, asked)


def consume_directly(
    connection: Connection, group: str, client_id: str, offset_id: str, topic: str | None = None
) -> ConsumedDirectly:
    """CONSUME_MESSAGE_DIRECTLY: hand one message to one member now, and say what became of it."""

    def asked(node: Node) -> ConsumedDirectly:
        header = DirectConsumption(group, client_id, offset_id, topic=topic)
        reply = connection.ask(
            node.address,
            request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header),
            f"asked to hand {offset_id} to {client_id}",
            timeout=max(connection.timeout, 15.0),
        )
        return ConsumedDirectly.decode(reply.body)

    return _first_that_answers(connection, asked)


def _first_that_answers(connection: Connection, ask: Callable[[Node], Result]) -> Result:
    """A client is connected to several brokers; the first that knows it passes the question on."""
    failure: MQError | None = None
    for node in clusters.masters(connection):
        try:
            return ask(node)
        except MQError as error:
            failure = failure or error
    assert failure is not None, "there is at least one master"
    raise failure


def lag(connection: Connection, group: str, topic: str | None = None, *, owners: bool = False) -> Lag:
    """How far a group is in each queue; with `owners` also who has the queue now.

    Raises NotFound when no broker knows the group.
    """
    settings.checked_group(group)

    def asked(node: Node) -> ConsumeStats:
        reply = connection.ask(
            node.address,
            request(RequestCode.GET_CONSUME_STATS, GetConsumeStats(group, topic)),
            f"asked how far group '{group}' is",
            expected=(
                ResponseCode.SUCCESS,
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                ResponseCode.CONSUMER_NOT_ONLINE,
                ResponseCode.TOPIC_NOT_EXIST,
            ),
        )
        return ConsumeStats.decode(reply.body) if reply.code == ResponseCode.SUCCESS else ConsumeStats()

    found, failed = connection.some(clusters.readable(connection), asked)
    held = _owners(connection, group) if owners else {}
    queues = [
        QueueLag(
            group=group,
            topic=queue.topic,
            broker=queue.broker_name,
            queue_id=queue.queue_id,
            broker_offset=progress.broker_offset,
            consumer_offset=progress.consumer_offset,
            pull_offset=progress.pull_offset,
            lag=progress.broker_offset - progress.consumer_offset,
            in_flight=max(0, progress.pull_offset - progress.consumer_offset),
            last_consumed_ms=max(0, progress.last_timestamp),
            client_id=held.get((queue.topic, queue.broker_name, queue.queue_id)),
        )
        for _, stats in found
        for queue, progress in stats.offset_table.items()
    ]
    if not queues:
        show(connection, group)  # raises when there is no such group at all
    if any(queue.in_flight for queue in queues) and _is_deserted(connection, group):
        queues = [replace(queue, in_flight=0) for queue in queues]
    return Lag(
        group=group,
        queues=tuple(sorted(queues, key=lambda each: (each.topic, each.broker, each.queue_id))),
        tps=sum(stats.consume_tps for _, stats in found),
        missing=tuple(f"{outcome.of.broker}: {outcome.error}" for outcome in failed),
    )


def _is_deserted(connection: Connection, group: str) -> bool:
    """Whether nobody is there who could be at work on what was pulled: it comes again to whoever is next."""
    try:
        return not members(connection, group).members
    except NotFound:
        return True
    except MQError:  # nobody could say
        return False


def _owners(connection: Connection, group: str) -> dict[tuple[str, str, int], str]:
    """Which member has which queue: each is asked; those who cannot tell have none, as far as we know."""
    try:
        clients = [member.client_id for member in members(connection, group).members]
    except NotFound:
        return {}
    outcomes = connection.each(clients, lambda client: running_info(connection, group, client))
    return {
        (queue.topic, queue.broker_name, queue.queue_id): outcome.of
        for outcome in outcomes
        if outcome.result is not None
        for queue in outcome.result.mq_table
    }


def state(connection: Connection, group: str) -> GroupState:
    """A group in one line: members, lag, rate."""
    error = None
    who: Members | None = None
    try:
        who = members(connection, group)
    except NotFound:
        pass
    except MQError as failure:
        error = str(failure)
    try:
        progress = lag(connection, group)
    except MQError as failure:
        progress = Lag(group, (), 0.0)
        error = error or str(failure)
    subscribed = {each.topic for each in who.subscriptions} if who else set()
    topics_read = subscribed | {queue.topic for queue in progress.queues}
    return GroupState(
        group=group,
        members=len(who.members) if who else 0,
        version=min((member.version for member in who.members), default="") if who else "",
        consume_type=who.consume_type if who else "",
        message_model=who.message_model if who else "",
        tps=progress.tps,
        lag=0 if who and who.is_broadcast else progress.total,
        topics=tuple(sorted(name for name in topics_read if not name.startswith(RETRY_PREFIX))),
        disagreements=who.disagreements if who else (),
        error=error,
    )


def states(connection: Connection, wanted: Iterable[str] | None = None) -> list[GroupState]:
    """All groups, or some, each in one line."""
    outcomes = connection.each(
        names(connection) if wanted is None else wanted, lambda group: state(connection, group)
    )
    return [outcome.result for outcome in outcomes if outcome.result is not None]


def time_spans(connection: Connection, group: str, topic: str) -> ConsumeTimeSpans:
    """QUERY_CONSUME_TIME_SPAN: how much time lies between a group and the end of each queue."""

    def asked(part: topics.TopicAt) -> ConsumeTimeSpans:
        reply = connection.ask(
            part.address,
            request(RequestCode.QUERY_CONSUME_TIME_SPAN, TopicAndGroup(group, topic)),
            f"asked how late group '{group}' is in '{topic}'",
        )
        return ConsumeTimeSpans.decode(reply.body)

    found, _ = connection.some(topics.at_brokers(connection, topic), asked)
    return ConsumeTimeSpans(
        consume_time_span_set=[span for _, each in found for span in each.consume_time_span_set]
    )


# --------------------------------------------------------------------------------------------- changing


def save(
    connection: Connection, config: SubscriptionGroupConfig, targets: list[Node]
) -> list[Outcome[Node, None]]:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP at these brokers."""
    settings.checked_group(config.group_name)

    def asked(node: Node) -> None:
        connection.ask(
            node.address,
            request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode()),
            f"asked to save group '{config.group_name}'",
        )

    return connection.each(targets, asked)


def delete(
    connection: Connection, group: str, targets: list[Node], *, keep_offsets: bool = False
) -> list[str]:
    """Delete a group at these brokers, with its retry and dead-letter topics; returns who did."""
    settings.checked_group(group)

    def asked(node: Node) -> None:
        header = DeleteGroup(group, clean_offset=not keep_offsets, remove_offset=not keep_offsets)
        connection.ask(
            node.address,
            request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header),
            f"asked to delete group '{group}'",
        )

    connection.all(targets, asked, f"deleting group '{group}'")
    for topic in (retry_topic(group), dead_letter_topic(group)):
        if topics.exists(connection, topic):
            topics.delete(connection, topic)
    return [node.broker for node in targets]
