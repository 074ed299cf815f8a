"""Who is connected right now: the members of each consumer group, and the producers of each producer group.

A member is a connection that has sent a heartbeat. It is gone when its connection closes, when it says
goodbye, or after two minutes of silence. Whenever a group's membership or topics change, all its members
are told at once, so that they share out the queues anew.

All members of a group should want the same: a broker filters by group, and queues change hands. When they
do not, messages are skipped by whoever got the queue and did not want them. That is said in the log and kept
with the group, and with `refuse_different` the one who comes second is turned away.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from kourou.broker import filters
from kourou.doors.clock import Clock
from kourou.doors.failpoints import reached
from kourou.errors import Refused
from kourou.protocol.bodies import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel, SubscriptionData
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import request
from kourou.protocol.headers import GroupNamed, GroupNews
from kourou.protocol.names import RETRY_PREFIX
from kourou.remoting.complaints import Complaints
from kourou.remoting.connection import Connection

SILENCE_SECONDS: Final = 120.0
SCAN_SECONDS: Final = 10.0

logger = logging.getLogger(__name__)


Wants = frozenset[tuple[str, str, str]]
"""Topic, kind of expression and expression, of everything a member subscribes to."""


class Member:
    """One client in one group, on one connection."""

    __slots__ = ("client_id", "connection", "fingerprint", "language", "last_heard", "version", "wants")

    def __init__(self, connection: Connection, client_id: str, language: str, version: int) -> None:
        self.connection = connection
        self.client_id = client_id
        self.language = language
        self.version = version
        self.last_heard = 0.0
        self.fingerprint = 0
        """What its last whole heartbeat had; a short one with the same says that nothing changed."""
        self.wants: Wants = frozenset()


class Subscription:
    """What a group wants of one topic; the tag hashes are computed here, not believed from the client."""

    __slots__ = ("data", "fault", "filter")

    def __init__(self, data: SubscriptionData) -> None:
        self.data = data
        self.filter = filters.EVERYTHING
        self.fault: str | None = None
        """Why its expression cannot be used: said to whoever pulls. A heartbeat names many subscriptions,
        and a mistake in one must not take the others away."""
        if filters.is_tag_expression(data.expression_type):
            self.filter = filters.make_filter(data.expression_type, data.sub_string)
            return
        try:
            self.filter = filters.make_filter(data.expression_type, data.sub_string)
        except Refused as error:
            self.fault = error.remark


class ConsumerGroup:
    """A group while it has members. The last heartbeat's attributes win, as in the original."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[Connection, Member] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.consume_type = ConsumeType.PUSH
        self.message_model = MessageModel.CLUSTERING
        self.consume_from = ConsumeFromWhere.LAST_OFFSET
        self.wants_news = True
        """Whether its members are told when one joins or leaves; a setting of the group."""

    @property
    def is_broadcast(self) -> bool:
        return self.message_model is MessageModel.BROADCASTING

    def may_want(self, topic: str) -> bool:
        """Whether a member may still read `topic`; while they disagree, nobody can say what is not wanted."""
        return not self.subscriptions or self.has_different_subscriptions or topic in self.subscriptions

    @property
    def has_different_subscriptions(self) -> bool:
        return len({member.wants for member in self.members.values()}) > 1

    def at_odds_with(self, member: Member, wants: Wants) -> Member | None:
        """Another client of this group that wants something else than `member` does."""
        for other in self.members.values():
            if other.wants != wants and other.client_id != member.client_id:
                return other
        return None

    def client_ids(self) -> list[str]:
        return [member.client_id for member in self.members.values()]

    def subscribe(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Take over what a member wants; True when the set of topics is another one now."""
        changed = False
        topics = set()
        for data in subscriptions:
            topics.add(data.topic)
            known = self.subscriptions.get(data.topic)
            if known is None or data.sub_version > known.data.sub_version:
                changed = changed or known is None
                self.subscriptions[data.topic] = Subscription(data)
        for topic in self.subscriptions.keys() - topics:
            del self.subscriptions[topic]
            changed = True
        return changed


class Members:
    """All groups that have members."""

    def __init__(self, clock: Clock, *, notify: bool = True, refuse_different: bool = False) -> None:
        self._clock = clock
        self._notify = notify
        self._refuse_different = refuse_different
        self._complaints = Complaints(logger, clock)
        self._producer_ids: dict[Connection, str] = {}
        self._producer_connections: dict[str, Connection] = {}
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Connection, Member]] = {}
        self._known: set[Connection] = set()

    def settings_changed(self, *, notify: bool, refuse_different: bool) -> None:
        """As they are now."""
        self._notify = notify
        self._refuse_different = refuse_different

    def start(self) -> None:
        self._scan = self._clock.every(SCAN_SECONDS, self.drop_silent)

    def stop(self) -> None:
        self._scan.cancel()

    @property
    def consumer_groups(self) -> Mapping[str, ConsumerGroup]:
        return self._consumers

    def different_groups(self) -> int:
        """How many groups have members that do not want the same."""
        return sum(group.has_different_subscriptions for group in self._consumers.values())

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        return self._consumers.get(name)

    def producers(self, group: str) -> list[Member]:
        return list(self._producers.get(group, {}).values())

    def producer_heard(self, member: Member, group: str) -> None:
        """A heartbeat names `group` as one its client sends for."""
        self._watch(member.connection)
        member.last_heard = self._clock.monotonic()
        self._producers.setdefault(group, {})[member.connection] = member
        if self._producer_ids.get(member.connection) != member.client_id:
            self._forget_producer(member.connection)
            self._producer_ids[member.connection] = member.client_id
        self._producer_connections[member.client_id] = member.connection

    def producer_connection(self, client_id: str) -> Connection | None:
        """Where that client was heard last, as a producer."""
        return self._producer_connections.get(client_id)

    @property
    def producer_groups(self) -> Mapping[str, Mapping[Connection, Member]]:
        return self._producers

    def consumer_heard(self, member: Member, data: ConsumerData, *, notify: bool) -> bool:
        """A heartbeat says what its client consumes; True when that changed the group."""
        for subscription in data.subscription_data_set:
            Subscription(subscription)  # raises on an unusable one, before anything changes
        wants = _wants(data.subscription_data_set)
        self._check_wants(member, data.group_name, wants)
        self._watch(member.connection)
        group = self._consumers.setdefault(data.group_name, ConsumerGroup(data.group_name))
        group.wants_news = notify
        group.consume_type = ConsumeType.read(data.consume_type)
        group.message_model = MessageModel.read(data.message_model)
        group.consume_from = ConsumeFromWhere.read(data.consume_from_where)
        known = group.members.get(member.connection)
        joined = known is None or known.client_id != member.client_id
        if known is None or joined:
            group.members[member.connection] = known = member
            logger.info("%s joined group %s from %s", member.client_id, group.name, member.connection.peer)
        known.last_heard = self._clock.monotonic()
        known.wants = wants
        known.fingerprint = member.fingerprint
        changed = group.subscribe(data.subscription_data_set) or joined
        if changed:
            self._tell(group)
        return changed

    def consumer_unchanged(self, member: Member, name: str) -> bool:
        """A short heartbeat: the client consumes what it said last. False when that is not known here."""
        group = self._consumers.get(name)
        known = None if group is None else group.members.get(member.connection)
        if known is None or known.client_id != member.client_id or known.fingerprint != member.fingerprint:
            return False
        known.last_heard = self._clock.monotonic()
        return True

    def _check_wants(self, member: Member, name: str, wants: Wants) -> None:
        group = self._consumers.get(name)
        other = None if group is None else group.at_odds_with(member, wants)
        if other is None:
            return
        different = (
            f"the members of group {name} subscribe differently: {member.client_id} to "
            f"{_shown(wants - other.wants)} where {other.client_id} has {_shown(other.wants - wants)}"
        )
        if self._refuse_different:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"{different}; who comes second is refused here (refuseDifferentSubscriptions=true)",
            )
        self._complaints.warn(
            f"different {name}", f"{different}: messages will be missed; give all members the same"
        )

    def producer_left(self, connection: Connection, group: str) -> None:
        members = self._producers.get(group)
        if members is not None:
            members.pop(connection, None)
            if not members:
                del self._producers[group]

    def consumer_left(self, connection: Connection, name: str) -> None:
        group = self._consumers.get(name)
        member = None if group is None else group.members.pop(connection, None)
        if group is None or member is None:
            return
        logger.info("%s left group %s", member.client_id, name)
        if not group.members:
            del self._consumers[name]
        else:
            self._tell(group)

    def drop_silent(self) -> None:
        """Close connections whose heartbeats stopped; closing makes them leave."""
        last = self._clock.monotonic() - SILENCE_SECONDS
        for members in self._everybody():
            for member in members:
                if member.last_heard < last and member.connection.is_open:
                    member.connection.close(f"no heartbeat from {member.client_id} for {SILENCE_SECONDS:g} s")

    def _everybody(self) -> list[list[Member]]:
        consumers = [list(group.members.values()) for group in self._consumers.values()]
        return consumers + [list(members.values()) for members in self._producers.values()]

    def _watch(self, connection: Connection) -> None:
        if connection not in self._known:
            self._known.add(connection)
            connection.on_close(self._closed)

    def _closed(self, connection: Connection) -> None:
        self._known.discard(connection)
        self._forget_producer(connection)
        for group in list(self._producers):
            self.producer_left(connection, group)
        for name in list(self._consumers):
            self.consumer_left(connection, name)

    def _forget_producer(self, connection: Connection) -> None:
        client_id = self._producer_ids.pop(connection, None)
        if client_id is not None and self._producer_connections.get(client_id) is connection:
            del self._producer_connections[client_id]

    def topic_changed(self, topic: str) -> None:
        """It has other queues now: whoever consumes it looks for its own at once, not at its next turn."""
        for group in self._consumers.values():
            if topic in group.subscriptions and self._notify and group.wants_news:
                for connection in group.members:
                    news = request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, GroupNews(group.name, topic))
                    connection.send_one_way(news)

    def _tell(self, group: ConsumerGroup) -> None:
        if self._notify and group.wants_news and not group.is_broadcast:
            reached("before-rebalance-publish")
            for connection in group.members:
                changed = request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, GroupNamed(group.name))
                connection.send_one_way(changed)
            reached("after-rebalance-publish")


def _wants(subscriptions: Iterable[SubscriptionData]) -> Wants:
    """What can be compared: tags in whatever order are the same tags, and retry topics come by themselves."""
    return frozenset(
        (each.topic, each.expression_type or "TAG", _normal(each))
        for each in subscriptions
        if not each.topic.startswith(RETRY_PREFIX)
    )


def _normal(subscription: SubscriptionData) -> str:
    expression = subscription.sub_string.strip()
    if not filters.is_tag_expression(subscription.expression_type):
        return expression
    tags = sorted({tag for part in expression.split("||") if (tag := part.strip())})
    return " || ".join(tags) or "*"


def _shown(wants: Wants) -> str:
    listed = ", ".join(f"{topic} ({expression})" for topic, _, expression in sorted(wants))
    return listed or "nothing of it"
