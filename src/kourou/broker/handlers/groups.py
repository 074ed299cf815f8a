"""Consumer and producer groups, for those who look after them: settings, who is connected, offsets moved."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from msgspec import UNSET

from kourou.broker.config import BrokerConfig
from kourou.broker.groups import Groups
from kourou.broker.handlers.made import Made
from kourou.broker.long_poll import LongPoll
from kourou.broker.members import ConsumerGroup, Member, Members
from kourou.broker.offsets import CommittedOffsets
from kourou.broker.topics import Topics
from kourou.errors import NotFound, Refused
from kourou.protocol.bodies import (
    Connection,
    ConsumerConnection,
    GroupList,
    MessageQueue,
    ProducerConnection,
    QueueOffsets,
    SubscriptionGroupConfig,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.command import request as make_request
from kourou.protocol.headers import (
    DeleteGroup,
    GroupAsked,
    GroupNamed,
    ProducerGroupNamed,
    ResetOffset,
    TopicNamed,
)
from kourou.protocol.names import printable
from kourou.remoting.answer import Answer
from kourou.store.store import Store

logger = logging.getLogger(__name__)


class SaveGroupHandler:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200)."""

    def __init__(self, groups: Groups, made: Made) -> None:
        self._groups = groups
        self._made = made

    def __call__(self, request: Command, answer: Answer) -> None:
        group = SubscriptionGroupConfig.decode_request(request.body)
        known = self._groups.get(group.group_name)
        group.attributes = changed_attributes({} if known is None else known.attributes, group.attributes)
        self._groups.save(group)
        logger.info("consumer group %s saved for %s", group.group_name, answer.connection.peer)
        self._made.groups(request, answer, f"group '{group.group_name}' is")


def changed_attributes(before: Mapping[str, str], change: Mapping[str, str]) -> dict[str, str]:
    """`before` with `+name` set and `-name` taken away; a plain name, as a table has it, is set too."""
    attributes = dict(before)
    for name, value in change.items():
        if name.startswith("-"):
            attributes.pop(name[1:], None)
        else:
            attributes[name.removeprefix("+")] = value
    return attributes


class AllGroupsHandler:
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201): everything at once, which needs no paging."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(self, request: Command, answer: Answer) -> None:
        answer(request.reply(body=self._groups.kept.encode()))


class GetGroupHandler:
    """GET_SUBSCRIPTIONGROUP_CONFIG (352)."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def __call__(self, request: Command, answer: Answer) -> None:
        group = self._groups.named(request.parse(GroupAsked).group)
        answer(request.reply(body=group.encode()))


class DeleteGroupHandler:
    """DELETE_SUBSCRIPTIONGROUP (207). A group that is not there is as good as deleted, as in the original."""

    def __init__(self, groups: Groups, offsets: CommittedOffsets) -> None:
        self._groups = groups
        self._offsets = offsets

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(DeleteGroup)
        self._groups.delete(header.group_name)
        if header.clean_offset or header.remove_offset:
            self._offsets.remove_group(header.group_name)
        answer(request.reply())


class ConsumerConnectionsHandler:
    """GET_CONSUMER_CONNECTION_LIST (203): who is in the group now, and what it wants."""

    def __init__(self, members: Members) -> None:
        self._members = members

    def __call__(self, request: Command, answer: Answer) -> None:
        group = online(self._members, request.parse(GroupNamed).consumer_group)
        body = ConsumerConnection(
            connection_set=_connections(group.members.values()),
            consume_from_where=group.consume_from,
            consume_type=group.consume_type,
            message_model=group.message_model,
            subscription_table={topic: each.data for topic, each in group.subscriptions.items()},
            different_subscriptions=group.has_different_subscriptions or UNSET,
        )
        answer(request.reply(body=body.encode()))


class ProducerConnectionsHandler:
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    def __init__(self, members: Members) -> None:
        self._members = members

    def __call__(self, request: Command, answer: Answer) -> None:
        name = request.parse(ProducerGroupNamed).producer_group
        producers = self._members.producers(name)
        if not producers:
            raise NotFound(
                ResponseCode.SYSTEM_ERROR,
                f"the producer group {printable(name)} not exist: nobody is connected",
            )
        body = ProducerConnection(connection_set=_connections(producers))
        answer(request.reply(body=body.encode()))


def _connections(members: Iterable[Member]) -> list[Connection]:
    return [
        Connection(
            client_addr=member.connection.peer,
            client_id=member.client_id,
            language=member.language,
            version=member.version,
        )
        for member in members
    ]


def online(members: Members, name: str) -> ConsumerGroup:
    group = members.consumer_group(name)
    if group is None:
        raise NotFound(
            ResponseCode.CONSUMER_NOT_ONLINE,
            f"the consumer group {printable(name)} not online: no member is connected",
        )
    return group


class GroupsOfTopicHandler:
    """QUERY_TOPIC_CONSUME_BY_WHO (300): who consumes it now, and who ever did."""

    def __init__(self, members: Members, offsets: CommittedOffsets) -> None:
        self._members = members
        self._offsets = offsets

    def __call__(self, request: Command, answer: Answer) -> None:
        topic = request.parse(TopicNamed).topic
        now = {name for name, group in self._members.consumer_groups.items() if topic in group.subscriptions}
        groups = now.union(self._offsets.groups_of(topic))
        answer(request.reply(body=GroupList(group_list=sorted(groups)).encode()))


class AllOffsetsHandler:
    """GET_ALL_CONSUMER_OFFSET (43)."""

    def __init__(self, offsets: CommittedOffsets) -> None:
        self._offsets = offsets

    def __call__(self, request: Command, answer: Answer) -> None:
        answer(request.reply(body=self._offsets.all.encode_fastjson()))


class ResetOffsetHandler:
    """INVOKE_BROKER_TO_RESET_OFFSET (222): a group goes on at another time, or place.

    The broker sets the offsets by itself, whether anybody is connected or not, and who is pulling is told
    (`CommittedOffsets.reset`). With useServerSideResetOffset=false it is left to the members, as before 5.2:
    they are sent the new offsets (RESET_CONSUMER_CLIENT_OFFSET, 220) and commit them.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        topics: Topics,
        groups: Groups,
        members: Members,
        offsets: CommittedOffsets,
        store: Store,
        long_poll: LongPoll,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._members = members
        self._offsets = offsets
        self._store = store
        self._long_poll = long_poll

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(ResetOffset)
        table = self._reset_here(header) if self._config.server_side_reset else self._reset_by_members(header)
        logger.info(
            "group %s reset for topic %s by %s: %s",
            header.group,
            header.topic,
            answer.connection.peer,
            ", ".join(f"queue {queue.queue_id} to {offset}" for queue, offset in table.items()),
        )
        answer(request.reply(body=QueueOffsets(offset_table=table).encode_fastjson()))

    def _reset_here(self, header: ResetOffset) -> dict[MessageQueue, int]:
        topic = self._topics.named(header.topic)
        self._groups.named(header.group)
        queue_id = -1 if header.queue_id is None else header.queue_id
        if queue_id >= topic.read_queue_nums:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId {queue_id} is illegal: topic '{header.topic}' has {topic.read_queue_nums} read "
                "queues",
            )
        if queue_id >= 0:
            offsets = {queue_id: self._wanted(header, queue_id)}
        else:
            offsets = {each: self._at_time(header, each) for each in range(topic.read_queue_nums)}
        for each, offset in offsets.items():
            self._offsets.reset(header.group, header.topic, each, offset)
            self._long_poll.wake(header.topic, each)
        return {self._queue(header.topic, each): offset for each, offset in offsets.items()}

    def _wanted(self, header: ResetOffset, queue_id: int) -> int:
        """The offset that was named, or the one at the time that was named."""
        offset = header.offset
        if offset is None or offset == -1:
            return self._at_time(header, queue_id)
        least, most = (
            self._store.min_offset(header.topic, queue_id),
            self._store.max_offset(header.topic, queue_id),
        )
        if not least <= offset <= most:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"offset {offset} is not in queue {queue_id} of '{header.topic}': it has {least} to {most}",
            )
        return offset

    def _at_time(self, header: ResetOffset, queue_id: int) -> int:
        if header.timestamp < 0:
            return self._store.max_offset(header.topic, queue_id)
        return self._store.offset_by_time(header.topic, queue_id, header.timestamp)

    def _reset_by_members(self, header: ResetOffset) -> dict[MessageQueue, int]:
        topic = self._topics.named(header.topic)
        table = {}
        for queue_id in range(topic.write_queue_nums):
            committed = self._offsets.get(header.group, header.topic, queue_id)
            if committed is None:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"group {printable(header.group)} has no offset for queue {queue_id} of '{header.topic}'",
                )
            offset = self._at_time(header, queue_id)
            table[self._queue(header.topic, queue_id)] = offset if header.is_force else min(offset, committed)
        offsets = QueueOffsets(offset_table=table)
        for member in online(self._members, header.group).members.values():
            # Neither side reads the other's form: C++ wants a list.
            body = offsets.encode() if member.language == "CPP" else offsets.encode_fastjson()
            push = ResetOffset(header.topic, header.group, header.timestamp, header.is_force or False)
            member.connection.send_one_way(make_request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, push, body))
        return table

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(broker_name=self._config.broker_name, queue_id=queue_id, topic=topic)
