"""Taking a broker out of service without anybody losing a message; also fewer queues for a topic.

    drain    wipe its write permission ─▶ wait until no send came for one route period ─▶ wait until every
             group has read what is there ─▶ have it refuse sends ─▶ a last look whether something came in
             between: then all that again ─▶ report ─▶ stop it
    resize   fewer write queues ─▶ the same two waits, for the queues that go ─▶ fewer read queues ─▶ a last
             look whether something came in between: then all that again

Each is a story told step by step: whoever runs it takes the next step a moment later, shows what it says, and
may leave off at any time. What was done by then stays as it is, and running it again goes on from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Final

from kourou.admin import brokers, groups, nameservers, switching, topics
from kourou.admin import cluster as clusters
from kourou.admin.cluster import Node
from kourou.admin.connection import Connection, Item, Outcome, Result
from kourou.admin.steps import Step
from kourou.doors.clock import Clock
from kourou.errors import Busy, ConfigError, NotFound, Refused, Unreachable
from kourou.protocol.bodies import PERM_READ, PERM_WRITE, TopicConfig, TopicStats
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import request
from kourou.protocol.headers import OffsetReply, QueueNamed, TopicNamed
from kourou.protocol.names import DEAD_LETTER_PREFIX, TRANSACTION_GROUP, is_system_topic

ROUTE_PERIOD_SECONDS: Final = 30.0
"""After so long every client has asked for its routes anew."""
PERMISSION: Final = "brokerPermission"


@dataclass(frozen=True)
class GroupLeft:
    """What a group has not read yet of a topic's queues here."""

    group: str
    topic: str
    messages: int


@dataclass(frozen=True)
class Left:
    """What would stay behind."""

    groups: tuple[GroupLeft, ...]
    delayed: int
    """Messages whose time has not come."""
    transactions: int = 0
    """Messages whose transaction has not ended; one of Apache's tells of them as unread by a group."""

    @property
    def is_nothing(self) -> bool:
        return not self.groups and not self.delayed and not self.transactions


@dataclass(frozen=True)
class DrainPlan:
    """What draining a broker means."""

    node: Node
    topics: tuple[str, ...]
    only_here: tuple[str, ...]
    """Topics that can be written to nowhere else."""
    left: Left
    replicas: tuple[Node, ...]
    is_elected: bool = False
    """Whether a replica would lead, and be sent to, when the master stops: then they all stop."""


def plan(connection: Connection, name: str) -> DrainPlan:
    """Look, and change nothing. Raises NotFound when there is no such broker, ConfigError for a replica."""
    node = clusters.node(connection, name)
    if not node.is_master and name == node.broker:
        raise ConfigError(f"{name} has no master now, only {node.address}: start it, or wait for another one")
    if not node.is_master:
        raise ConfigError(
            f"{node.address} is a replica of {node.broker} (brokerId {node.broker_id}): nobody sends to it, "
            f"so that it can just be stopped; to drain the whole set, name its master: {node.broker}"
        )
    everyone = clusters.nodes(connection)
    masters = [each for each in everyone if each.is_master]
    tables = _tables(connection, masters)
    names = {each.cluster for each in everyone} | {each.broker for each in everyone}
    names |= {f"{each.cluster}_REPLY_TOPIC" for each in everyone}  # every broker has its own
    own = {topic for topic in tables.get(node.broker, {}) if _is_for_users(topic) and topic not in names}
    elsewhere = {
        topic
        for broker, table in tables.items()
        if broker != node.broker
        for topic, config in table.items()
        if config.perm & PERM_WRITE and config.write_queue_nums
    }
    return DrainPlan(
        node=node,
        topics=tuple(sorted(own)),
        only_here=tuple(sorted(own - elsewhere)),
        left=left(connection, node),
        replicas=tuple(each for each in everyone if each.broker == node.broker and each != node),
        is_elected=_is_elected(connection, node),
    )


def _is_elected(connection: Connection, node: Node) -> bool:
    try:
        return switching.state(connection, node.address).is_elected
    except Refused as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        return False  # one of Apache's


def _tables(connection: Connection, masters: list[Node]) -> dict[str, dict[str, TopicConfig]]:
    found, _ = connection.some(masters, lambda node: topics.table(connection, node))
    return {node.broker: table for node, table in found}


def _is_for_users(topic: str) -> bool:
    return not is_system_topic(topic) and not topic.startswith(DEAD_LETTER_PREFIX)


def left(connection: Connection, node: Node) -> Left:
    """What the groups have still to read at this broker, and what waits there for its time."""
    stats = brokers.consume_stats(connection, node.address)
    found: Counter[tuple[str, str]] = Counter()
    for entry in stats.consume_stats_list:
        for group, each in entry.items():
            for progress in each:
                for queue, at in progress.offset_table.items():
                    found[group, queue.topic] += max(0, at.broker_offset - at.consumer_offset)
    runtime = brokers.runtime(connection, node.address)
    transactions = runtime.open_transactions
    if transactions is None and runtime.is_kourou:
        raise Busy(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"{node.address} does not know what waits at {node.broker}: it is no master any more, or only "
            "just; try again soon",
        )
    return Left(
        groups=tuple(
            GroupLeft(group, topic, messages)
            for (group, topic), messages in sorted(found.items())
            if messages and (group != TRANSACTION_GROUP or transactions is None)
        ),
        delayed=runtime.timers_waiting + _delayed(runtime.table),
        transactions=transactions or 0,
    )


def _delayed(table: dict[str, str]) -> int:
    """Messages in the delay levels: `scheduleMessageOffset_3 = 17,20` means three of them."""
    waiting = 0
    for key, value in table.items():
        following, comma, end = value.partition(",")
        if key.startswith("scheduleMessageOffset_") and comma and following.isdecimal() and end.isdecimal():
            waiting += max(0, int(end) - int(following))
    return waiting


def drain(
    connection: Connection, planned: DrainPlan, *, period_seconds: float = ROUTE_PERIOD_SECONDS
) -> Iterator[Step]:
    """Everything but the stop. Ends when nothing is left; raises what goes wrong on the way."""
    node = planned.node
    wiped = nameservers.wipe_write(connection, node.broker)
    where = ", ".join(f"{count} topics at {address}" for address, count in sorted(wiped.items()))
    yield Step(f"nobody is sent to {node.broker} any more ({where})")

    def sent() -> int:
        # With its next new topic the broker registers all of them anew, writable as ever.
        nameservers.wipe_write(connection, node.broker)
        return _sent(connection, node, planned.topics)

    while True:
        yield from _until_quiet(connection.clock, sent, "no send", period_seconds)
        yield Step(f"no message was sent to {node.broker} for {period_seconds:g} s")
        while not (rest := left(connection, node)).is_nothing:
            nameservers.wipe_write(connection, node.broker)
            yield Step(f"left to consume: {described(rest)}", is_waiting=True)
        if not _may_refuse_sends(connection, node):
            break
        brokers.configure(connection, node.address, {PERMISSION: str(PERM_READ)})
        # Nobody can send there any more. Did somebody, after the last look?
        if (rest := left(connection, node)).is_nothing:
            break
        brokers.configure(connection, node.address, {PERMISSION: str(PERM_READ | PERM_WRITE)})
        yield Step(f"a message came in the last moment: {described(rest)}; it stays a while longer")
    yield Step(f"everything {node.broker} has was consumed")


def _may_refuse_sends(connection: Connection, node: Node) -> bool:
    """One of ours forgets such a setting when it stops; one of Apache's would have it ever after."""
    return brokers.runtime(connection, node.address).is_kourou


def _until_quiet(
    clock: Clock, look: Callable[[], int], what: str, period_seconds: float
) -> Generator[Step, None, int]:
    """Until every look of one period has seen the same number, which is returned.

    The time a look takes does not count: what was on its way meanwhile, it may have missed.
    """
    before, since = look(), clock.monotonic()
    while True:
        quiet = clock.monotonic() - since
        seen = look()
        if seen != before:
            before, since, quiet = seen, clock.monotonic(), 0.0
        if quiet >= period_seconds:
            return seen
        yield Step(f"{what} for {quiet:.0f} of {period_seconds:g} s", is_waiting=True)


def _sent(connection: Connection, node: Node, names: tuple[str, ...]) -> int:
    """The ends of all queues that producers write to, added up; of a topic that is gone, none."""

    def ends(topic: str) -> int:
        reply = connection.ask(
            node.address,
            request(RequestCode.GET_TOPIC_STATS_INFO, TopicNamed(topic)),
            f"asked what is in topic '{topic}'",
            expected=(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST),
        )
        stats = TopicStats.decode(reply.body) if reply.code == ResponseCode.SUCCESS else TopicStats()
        return sum(bounds.max_offset for bounds in stats.offset_table.values())

    return sum(_all(connection.each(names, ends)))


def _all(outcomes: list[Outcome[Item, Result]]) -> Iterator[Result]:
    """Every result; raises when there is an error among them: half an answer must not be taken for all."""
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
        yield outcome.result  # type: ignore[misc]


def described(rest: Left) -> str:
    """In one line."""
    parts = [f"{each.group} {each.messages} of {each.topic}" for each in rest.groups]
    if rest.transactions:
        parts.append(f"{rest.transactions} open transactions")
    if rest.delayed:
        parts.append(f"{rest.delayed} delayed messages whose time has not come")
    return "; ".join(parts) or "nothing"


def undo(connection: Connection, node: Node) -> dict[str, int]:
    """Let producers find its queues again, and send to them; by name server, how many topics."""
    if _may_refuse_sends(connection, node):
        before = brokers.configuration(connection, node.address).get(PERMISSION)
        if before == str(PERM_READ):
            brokers.configure(connection, node.address, {PERMISSION: str(PERM_READ | PERM_WRITE)})
    return nameservers.add_write(connection, node.broker)


def stop_all(connection: Connection, planned: DrainPlan) -> None:
    """End what was drained; of a set that elects its master the replicas first, so that none leads."""
    for node in (*(planned.replicas if planned.is_elected else ()), planned.node):
        stop(connection, node)


def stop(connection: Connection, node: Node) -> None:
    """End the broker in order. Raises Refused where it is one of Apache's: that ends by its own scripts."""
    try:
        connection.ask(node.address, request(RequestCode.KOUROU_STOP), "asked to stop")
    except Refused as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        raise Refused(
            error.code, f"{node.broker} at {node.address} is no Kourou broker: stop it with its own scripts"
        ) from None


# ----------------------------------------------------------------------------------------- fewer queues


def resize(
    connection: Connection,
    topic: str,
    queues: int,
    *,
    broker: str | None = None,
    period_seconds: float = ROUTE_PERIOD_SECONDS,
) -> Iterator[Step]:
    """So many queues at each broker that has the topic, or at one. Raises NotFound when none has it."""
    parts = [part for part in topics.show(connection, topic) if broker in (None, part.broker, part.address)]
    if not parts:
        raise NotFound(ResponseCode.TOPIC_NOT_EXIST, f"topic '{topic}' is not at broker '{broker}'")
    nodes = {part.broker: clusters.node(connection, part.address) for part in parts}
    for part in parts:
        _save(connection, part, nodes[part.broker], max(part.read_queues, queues), queues)
        if (part.read_queues, part.write_queues) != (queues, queues):
            yield Step(f"{part.broker}: {part.write_queues} write queues are now {queues}")
    shrinking = [part for part in parts if part.read_queues > queues]
    while shrinking:
        ends = yield from _until_quiet(
            connection.clock,
            lambda: _ends(connection, shrinking, queues),
            f"no send to queue {queues} and above",
            period_seconds,
        )
        names = {part.broker for part in shrinking}
        while unread := _unread(connection, topic, queues, names):
            what = "; ".join(f"{group} {count}" for group, count in sorted(unread.items()))
            yield Step(f"left to consume in queue {queues} and above: {what}", is_waiting=True)
        for part in shrinking:
            _save(connection, part, nodes[part.broker], queues, queues)
        # Nobody can send there any more. Did somebody, after the last look?
        if _ends(connection, shrinking, queues) == ends:
            break
        for part in shrinking:
            _save(connection, part, nodes[part.broker], part.read_queues, queues)
        yield Step(f"a message came to queue {queues} or above in the last moment: they stay a while longer")
    for part in shrinking:
        yield Step(f"{part.broker}: {part.read_queues} read queues are now {queues}")


def _save(connection: Connection, part: topics.TopicAt, node: Node, read: int, write: int) -> None:
    wanted = topics.Wanted(part.topic, read, write, part.perm, part.order)
    for outcome in topics.save(connection, wanted, [node]):
        if outcome.error is not None:
            raise outcome.error


def _ends(connection: Connection, parts: list[topics.TopicAt], queues: int) -> int:
    """The ends of the queues that are to go, added up; a broker tells them of queues nobody may read, too."""

    def end(at: tuple[topics.TopicAt, int]) -> int:
        part, queue = at
        reply = connection.ask(
            part.address,
            request(RequestCode.GET_MAX_OFFSET, QueueNamed(part.topic, queue)),
            f"asked for the end of queue {queue} of '{part.topic}'",
        )
        return reply.parse(OffsetReply).offset

    going = [(part, queue) for part in parts for queue in range(queues, part.read_queues)]
    return sum(_all(connection.each(going, end)))


def _unread(connection: Connection, topic: str, queues: int, names: set[str]) -> dict[str, int]:
    """By group, how much it has not read of the queues that are to go."""
    unread: dict[str, int] = {}
    for group in topics.groups_of(connection, topic):
        lag = groups.lag(connection, group, topic)
        if lag.missing:
            raise Unreachable(f"how far group '{group}' is, not every broker told: {'; '.join(lag.missing)}")
        count = sum(each.lag for each in lag.queues if each.queue_id >= queues and each.broker in names)
        if count:
            unread[group] = count
    return unread
