"""Clients that come and go: heartbeats, goodbyes, and who else is in the group."""

from __future__ import annotations

import logging

from kourou.broker.groups import Groups
from kourou.broker.members import Member, Members
from kourou.broker.topics import Topics
from kourou.doors.clock import Clock
from kourou.errors import NotFound, Refused
from kourou.protocol.bodies import PERM_READ, PERM_WRITE, ConsumerData, ConsumerList, HeartbeatData
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import GroupNamed, HeartbeatReply, UnregisterClient
from kourou.protocol.names import printable, producer_group_fault, retry_topic
from kourou.remoting.answer import Answer
from kourou.remoting.complaints import Complaints

GROUPS_MAX = 200
SUBSCRIPTIONS_MAX = 10_000
CLIENT_ID_CHARACTERS_MAX = 512

logger = logging.getLogger(__name__)


class HeartbeatHandler:
    """HEART_BEAT (34): this client exists, sends for these groups, consumes for those.

    A 5.x client may send a short form, without its subscriptions, once it was told that it may. It is told
    to send the whole again (IS_SUB_CHANGE) when this broker does not know them: after a restart, say.
    A group that does not exist, and is not made, is left out; the others of the heartbeat are heard.
    """

    def __init__(self, members: Members, groups: Groups, topics: Topics, clock: Clock) -> None:
        self._members = members
        self._groups = groups
        self._topics = topics
        self._complaints = Complaints(logger, clock)

    def __call__(self, request: Command, answer: Answer) -> None:
        heartbeat = HeartbeatData.decode_request(request.body)
        _check(heartbeat)
        for producer in heartbeat.producer_data_set:
            self._members.producer_heard(self._member(request, answer, heartbeat), producer.group_name)
        is_short = heartbeat.heartbeat_fingerprint != 0 and heartbeat.without_sub
        is_asked_for_more = False
        for consumer in heartbeat.consumer_data_set:
            member = self._member(request, answer, heartbeat)
            if not is_short:
                try:
                    self._consumer(member, consumer)
                except NotFound as missing:
                    self._complaints.warn(consumer.group_name, f"{member.client_id} does not join: {missing}")
            elif not self._members.consumer_unchanged(member, consumer.group_name):
                is_asked_for_more = True
        # A client that sends no fingerprint sends everything each time, and is told to, as in the original.
        wants_all = is_asked_for_more or heartbeat.heartbeat_fingerprint == 0
        answer(request.reply(HeartbeatReply(supports_v2=True, subscription_changed=wants_all)))

    def _member(self, request: Command, answer: Answer, heartbeat: HeartbeatData) -> Member:
        """One for each group: what it wants differs between them."""
        member = Member(answer.connection, heartbeat.client_id, request.language, request.version)
        member.fingerprint = heartbeat.heartbeat_fingerprint
        return member

    def _consumer(self, member: Member, consumer: ConsumerData) -> None:
        group = self._groups.get_or_create(consumer.group_name)
        # Without a retry topic Java clients complain about a missing route, and admin tools find no group.
        self._topics.ensure(
            retry_topic(consumer.group_name),
            group.retry_queue_nums,
            PERM_READ | PERM_WRITE,
            sys_flag=2 if consumer.unit_mode else 0,
        )
        self._members.consumer_heard(member, consumer, notify=group.notify_consumer_ids_changed_enable)


def _check(heartbeat: HeartbeatData) -> None:
    if not 0 < len(heartbeat.client_id) <= CLIENT_ID_CHARACTERS_MAX:
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            f"client id '{printable(heartbeat.client_id)}' must have 1 to "
            f"{CLIENT_ID_CHARACTERS_MAX} characters",
        )
    for producer in heartbeat.producer_data_set:
        fault = producer_group_fault(producer.group_name)
        if fault is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
    groups = len(heartbeat.producer_data_set) + len(heartbeat.consumer_data_set)
    subscriptions = sum(len(each.subscription_data_set) for each in heartbeat.consumer_data_set)
    if groups > GROUPS_MAX or subscriptions > SUBSCRIPTIONS_MAX:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"heartbeat of {printable(heartbeat.client_id)} names {groups} groups and {subscriptions} "
            f"subscriptions: at most {GROUPS_MAX} and {SUBSCRIPTIONS_MAX} are taken",
        )


class UnregisterHandler:
    """UNREGISTER_CLIENT (35): this client leaves these groups."""

    def __init__(self, members: Members) -> None:
        self._members = members

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(UnregisterClient)
        if header.producer_group:
            self._members.producer_left(answer.connection, header.producer_group)
        if header.consumer_group:
            self._members.consumer_left(answer.connection, header.consumer_group)
        answer(request.reply())


class MemberListHandler:
    """GET_CONSUMER_LIST_BY_GROUP (38): the ids of all members; each works out its share of the queues."""

    def __init__(self, members: Members) -> None:
        self._members = members

    def __call__(self, request: Command, answer: Answer) -> None:
        name = request.parse(GroupNamed).consumer_group
        group = self._members.consumer_group(name)
        if group is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {printable(name)}")
        answer(request.reply(body=ConsumerList(consumer_id_list=group.client_ids()).encode()))
