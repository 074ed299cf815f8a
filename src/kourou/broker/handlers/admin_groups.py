"""Groups, for those who look after them: several saved at once, what they read and how late they are, their
offsets compared and copied, and who may read what."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from kourou.broker.advertised import Advertised
from kourou.broker.config import BrokerConfig
from kourou.broker.groups import Groups
from kourou.broker.handlers.groups import changed_attributes
from kourou.broker.handlers.made import Made
from kourou.broker.members import Members
from kourou.broker.offsets import CommittedOffsets
from kourou.broker.rates import Rates
from kourou.broker.topics import Topics
from kourou.doors.clock import Clock
from kourou.errors import Refused
from kourou.protocol.admin_bodies import (
    ConsumeStatsList,
    ConsumeTimeSpans,
    CorrectionOffsets,
    GroupConfigList,
    GroupForbiddenReply,
    GroupSubscription,
    QueueTimeSpan,
    RequestModes,
    RequestModeWanted,
)
from kourou.protocol.admin_headers import (
    CloneOffsets,
    ConsumeStatsAsked,
    CorrectionAsked,
    GroupForbidden,
    TopicAndGroup,
)
from kourou.protocol.bodies import ConsumeStats, MessageQueue, QueueProgress, TopicConfig, TopicList
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import GroupAsked
from kourou.protocol.names import printable
from kourou.remoting.answer import Answer
from kourou.store.store import Store

LONG_MAX: Final = (1 << 63) - 1
GROUPS_AT_ONCE_MAX: Final = 10_000

logger = logging.getLogger(__name__)


class SaveGroupsHandler:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225)."""

    def __init__(self, groups: Groups, made: Made) -> None:
        self._groups = groups
        self._made = made

    def __call__(self, request: Command, answer: Answer) -> None:
        wanted = GroupConfigList.decode_request(request.body).group_config_list
        if len(wanted) > GROUPS_AT_ONCE_MAX:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"{len(wanted)} groups at once: at most {GROUPS_AT_ONCE_MAX} are taken",
            )
        for group in wanted:
            known = self._groups.get(group.group_name)
            group.attributes = changed_attributes({} if known is None else known.attributes, group.attributes)
            self._groups.save(group)
        logger.info("%d consumer groups saved for %s", len(wanted), answer.connection.peer)
        self._made.groups(request, answer, f"{len(wanted)} groups are")


class TopicsOfGroupHandler:
    """QUERY_TOPICS_BY_CONSUMER (343): what a group ever committed an offset for."""

    def __init__(self, offsets: CommittedOffsets) -> None:
        self._offsets = offsets

    def __call__(self, request: Command, answer: Answer) -> None:
        topics = self._offsets.topics_of(request.parse(GroupAsked).group)
        answer(request.reply(body=TopicList(topic_list=sorted(topics)).encode()))


class SubscriptionHandler:
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345): what a group wants of a topic now."""

    def __init__(self, members: Members) -> None:
        self._members = members

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(TopicAndGroup)
        body = GroupSubscription(group=header.group, topic=header.topic)
        group = self._members.consumer_group(header.group)
        subscription = None if group is None else group.subscriptions.get(header.topic)
        if subscription is not None:
            body.subscription_data = subscription.data
        answer(request.reply(body=body.encode()))


class TimeSpanHandler:
    """QUERY_CONSUME_TIME_SPAN (303): from when to when each queue has messages, and how late a group is."""

    def __init__(
        self, config: BrokerConfig, topics: Topics, offsets: CommittedOffsets, store: Store, clock: Clock
    ) -> None:
        self._config = config
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._clock = clock

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(TopicAndGroup)
        topic = self._topics.named(header.topic)
        spans = [
            self._span(header.group, topic.topic_name, queue_id) for queue_id in range(topic.write_queue_nums)
        ]
        answer(request.reply(body=ConsumeTimeSpans(consume_time_span_set=spans).encode()))

    def _span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        store = self._store
        end = store.max_offset(topic, queue_id)
        committed = self._offsets.get(group, topic, queue_id) or 0
        begin_ms = store.earliest_store_ms(topic, queue_id)
        span = QueueTimeSpan(
            message_queue=MessageQueue(broker_name=self._config.broker_name, queue_id=queue_id, topic=topic),
            min_time_stamp=begin_ms,
            max_time_stamp=_time(store, topic, queue_id, end - 1),
            consume_time_stamp=_time(store, topic, queue_id, committed - 1) if committed else begin_ms,
        )
        if committed < end:
            next_ms = _time(store, topic, queue_id, max(committed, store.min_offset(topic, queue_id)))
            span.delay_time = self._clock.now_ms() - next_ms if next_ms >= 0 else -1
        return span


def _time(store: Store, topic: str, queue_id: int, queue_offset: int) -> int:
    stored_ms = store.stored_ms(topic, queue_id, queue_offset) if queue_offset >= 0 else None
    return -1 if stored_ms is None else stored_ms


class CorrectionHandler:
    """QUERY_CORRECTION_OFFSET (308): the least offset any group has in each queue of a topic.

    Where `compareGroup` is behind that, there is nothing to correct, which is said with the largest number.
    The original forgets the offsets of the groups that are to be left out; here they are only left out.
    """

    def __init__(self, offsets: CommittedOffsets, store: Store) -> None:
        self._offsets = offsets
        self._store = store

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(CorrectionAsked)
        left_out = {each.strip() for each in (header.filter_groups or "").split(",")}
        least: dict[int, int] = {}
        for group in self._offsets.groups_of(header.topic):
            if group in left_out:
                continue
            for queue_id, queue_offset in self._places(group, header.topic).items():
                if queue_offset >= self._store.min_offset(header.topic, queue_id):
                    least[queue_id] = min(queue_offset, least.get(queue_id, LONG_MAX))
        for queue_id, queue_offset in self._places(header.compare_group, header.topic).items():
            if least.get(queue_id, LONG_MAX) > queue_offset:
                least[queue_id] = LONG_MAX
        body = CorrectionOffsets(correction_offsets=dict(sorted(least.items())))
        answer(request.reply(body=body.encode_fastjson()))

    def _places(self, group: str, topic: str) -> dict[int, int]:
        return dict(self._offsets.all.offset_table.get(f"{topic}@{group}", {}))


class CloneOffsetsHandler:
    """CLONE_GROUP_OFFSET (314): one group goes on where another one is.

    Without a topic, in all topics the other one ever committed for; the original then copies nothing.
    """

    def __init__(self, topics: Topics, groups: Groups, members: Members, offsets: CommittedOffsets) -> None:
        self._topics = topics
        self._groups = groups
        self._members = members
        self._offsets = offsets

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(CloneOffsets)
        topics = [header.topic] if header.topic else self._offsets.topics_of(header.src_group)
        self._groups.get_or_create(header.dest_group)
        for topic in topics:
            if self._topics.get(topic) is not None and (
                header.offline or self._wants(header.src_group, topic)
            ):
                self._clone(header, topic)
        answer(request.reply())

    def _wants(self, group: str, topic: str) -> bool:
        online = self._members.consumer_group(group)
        return online is None or not online.subscriptions or topic in online.subscriptions

    def _clone(self, header: CloneOffsets, topic: str) -> None:
        places = dict(self._offsets.all.offset_table.get(f"{topic}@{header.src_group}", {}))
        for queue_id, queue_offset in places.items():
            self._offsets.reset(header.dest_group, topic, queue_id, queue_offset, tell=False)
        logger.info("group %s goes on where %s is in topic %s", header.dest_group, header.src_group, topic)


class BrokerConsumeStatsHandler:
    """GET_BROKER_CONSUME_STATS (317): how far every group is, in every queue of this broker."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        topics: Topics,
        groups: Groups,
        members: Members,
        offsets: CommittedOffsets,
        store: Store,
        rates: Rates,
        advertised: Advertised,
    ) -> None:
        self._config = config
        self._advertised = advertised
        self._topics = topics
        self._groups = groups
        self._members = members
        self._offsets = offsets
        self._store = store
        self._rates = rates

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(ConsumeStatsAsked)
        found = ConsumeStatsList(broker_addr=self._advertised.address)
        topics_of = self._offsets.topics_by_group()
        for name in self._groups.all:
            topics = self._still_read(name, topics_of.get(name, ()), header.is_order)
            stats = [self._stats(name, topic) for topic in topics]
            found.consume_stats_list.append({name: stats})
            for progress in (each for some in stats for each in some.offset_table.values()):
                found.total_diff += progress.broker_offset - progress.consumer_offset
                found.total_inflight_diff += max(0, progress.pull_offset - progress.consumer_offset)
        answer(request.reply(body=found.encode_fastjson()))

    def _still_read(self, group: str, topics: Iterable[str], is_order: bool) -> list[TopicConfig]:
        online = self._members.consumer_group(group)
        found = []
        for name in topics:
            topic = self._topics.get(name)
            if topic is None or (is_order and not topic.order):
                continue
            if online is not None and not online.may_want(name):
                continue
            found.append(topic)
        return found

    def _stats(self, group: str, topic: TopicConfig) -> ConsumeStats:
        name = topic.topic_name
        stats = ConsumeStats(consume_tps=self._rates.got_by(group, name), offset_table={})
        # Of a topic that is being shrunk there is something to read where nobody writes any more.
        for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
            committed = self._offsets.get(group, name, queue_id) or 0
            queue = MessageQueue(broker_name=self._config.broker_name, queue_id=queue_id, topic=name)
            stats.offset_table[queue] = QueueProgress(
                broker_offset=self._store.max_offset(name, queue_id),
                consumer_offset=committed,
                last_timestamp=max(0, _time(self._store, name, queue_id, committed - 1)),
                pull_offset=self._offsets.pull_offset(group, name, queue_id),
            )
        return stats


class GroupForbiddenHandler:
    """UPDATE_AND_GET_GROUP_FORBIDDEN (353): whether a group may read a topic here."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(GroupForbidden)
        if header.readable is not None:
            self._groups.forbid(header.group, header.topic, not header.readable)
            logger.info(
                "group %s %s read topic %s, says %s",
                header.group,
                "may" if header.readable else "may not",
                printable(header.topic),
                answer.connection.peer,
            )
        body = GroupForbiddenReply(
            group=header.group,
            topic=header.topic,
            readable=not self._groups.is_forbidden(header.group, header.topic),
        )
        answer(request.reply(body=body.encode()))


class RequestModeHandler:
    """SET_MESSAGE_REQUEST_MODE (401): groups pull here, which is what they may be set to."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(self, request: Command, answer: Answer) -> None:
        wanted = RequestModeWanted.decode_request(request.body)
        self._groups.named(wanted.consumer_group)
        if wanted.mode != "PULL":
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"group {printable(wanted.consumer_group)} cannot be set to {printable(wanted.mode)}: this "
                "broker is read by pulling",
            )
        answer(request.reply())


class AllRequestModesHandler:
    """GET_ALL_MESSAGE_REQUEST_MODE (402), which a slave of 5.x copies: nobody is set to anything but PULL."""

    def __call__(self, request: Command, answer: Answer) -> None:
        answer(request.reply(body=RequestModes().encode()))
