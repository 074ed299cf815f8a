"""Handing messages out: records are sent as they lie on disk.

Command ─▶ may this group read here? ─▶ which ones? ─▶ store.read ─▶ answer
                                                          │
                                                          └─ nothing new: wait in `LongPoll`, then once more
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from kourou.broker import filters
from kourou.broker.config import BrokerConfig
from kourou.broker.filters import EVERYTHING, TAG, Filter
from kourou.broker.groups import Groups
from kourou.broker.long_poll import LongPoll, Waiting
from kourou.broker.members import Members
from kourou.broker.offsets import CommittedOffsets
from kourou.broker.stats import Stats
from kourou.broker.topics import Topics
from kourou.doors.clock import Clock
from kourou.errors import Refused
from kourou.protocol.bodies import PERM_READ, SubscriptionGroupConfig
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import JSON, Command, reply_frame, reply_template
from kourou.protocol.frame import PREFIX
from kourou.protocol.headers import PullMessage, PullReply
from kourou.protocol.names import RETRY_PREFIX, printable
from kourou.remoting.answer import Answer
from kourou.store.store import ReadResult, ReadStatus, Store

COMMIT: Final = 0x1
SUSPEND: Final = 0x2
OWN_SUBSCRIPTION: Final = 0x4

SUSPEND_MS_MAX: Final = 100_000
"""Below the 120 seconds after which a silent connection is closed."""

FOUND: Final = reply_template(
    b'{"suggestWhichBrokerId":"%d","nextBeginOffset":"%d","minOffset":"%d","maxOffset":"%d"}'
)


class Standing(Protocol):
    """What a reader's broker needs to know of its replica set."""

    @property
    def is_slave(self) -> bool: ...
    @property
    def has_master(self) -> bool:
        """A slave: whether its master is there to be read from."""

    @property
    def has_slaves(self) -> bool:
        """A master: whether a slave is there that keeps up."""


class Alone:
    """A broker with no replica."""

    is_slave = has_master = has_slaves = False


class PullHandler:
    """PULL_MESSAGE (11), LITE_PULL_MESSAGE (361)."""

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
        stats: Stats,
        clock: Clock,
        standing: Standing | None = None,
    ) -> None:
        self._config = config
        self._standing = standing or Alone()
        self._topics = topics
        self._groups = groups
        self._members = members
        self._offsets = offsets
        self._store = store
        self._long_poll = long_poll
        self._stats = stats
        self._clock = clock

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(PullMessage)
        wanted = self.wanted(header)
        if header.sys_flag & COMMIT and header.commit_offset >= 0:
            self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        if self._told_of_reset(request, answer, header):
            return
        if self._standing.is_slave and not self._config.slave_read:
            self._send_to_master(request, answer, header, "slaveReadEnable=false")
            return
        result = self._read(header, header.queue_offset, wanted)
        if self._standing.is_slave and is_elsewhere(result.status, header.queue_offset):
            self._not_here(request, answer, header, wanted, result)
        elif header.sys_flag & SUSPEND and (
            is_worth_waiting(result, header.queue_offset) or self._may_be_shown_soon(result)
        ):
            self._park(request, answer, header, wanted)
        else:
            self._answer(request, answer, header, result)

    def _may_be_shown_soon(self, result: ReadResult) -> bool:
        """Whether the log has more than readers see yet. A new master shows all of its own a moment after it
        began to lead: who was further on with the old one waits for that, and is not sent back."""
        is_ahead = result.status is ReadStatus.OFFSET_OVERFLOW_BADLY
        return is_ahead and self._store.dispatched < self._store.wrote

    @property
    def may_read_here(self) -> bool:
        """Whether this broker answers readers at all."""
        return self._config.slave_read or not self._standing.is_slave

    def suggested(self, group_name: str, is_behind: bool) -> int:
        """Which broker of the set to ask the next time: who is far behind does not disturb the master. Where
        there is no other, nobody is sent to one."""
        group = self._groups.get(group_name) if self._config.slave_read else None
        if group is None:
            return 0
        broker_id = group.which_broker_when_consume_slowly if is_behind else group.broker_id
        standing = self._standing
        return broker_id if broker_id and (standing.has_slaves or standing.is_slave) else 0

    def _send_to_master(self, request: Command, answer: Answer, header: PullMessage, why: str) -> None:
        """Whoever asks is to ask the master, at once and for the same."""
        reply = PullReply(
            suggest_which_broker_id=0,
            next_begin_offset=header.queue_offset,
            min_offset=self._store.min_offset(header.topic, header.queue_id),
            max_offset=self._store.max_offset(header.topic, header.queue_id),
        )
        answer(request.reply(reply, code=ResponseCode.PULL_RETRY_IMMEDIATELY, remark=why))

    def _not_here(
        self, request: Command, answer: Answer, header: PullMessage, wanted: Filter, result: ReadResult
    ) -> None:
        """A slave has not got that far yet, or less than its master: it corrects nobody's offset while that
        one is there, and waits for what is still to come while it is not."""
        if self._standing.has_master:
            self._send_to_master(request, answer, header, f"{result.status.name} on a slave")
        elif header.queue_offset < result.min_offset:
            self._answer(request, answer, header, result)
        elif header.sys_flag & SUSPEND:
            self._park(request, answer, header, wanted)
        else:
            self._send_to_master(request, answer, header, f"{result.status.name} on a slave")

    def usual(self, header: PullMessage) -> Filter | None:
        """As `wanted`, asked in one go, for a group that is sent to no slave: 0.6 us instead of 1.3; bench:
        pull. None when there may be more to say: then ask `wanted`, `suggested` and `may_read_here`."""
        config = self._config
        group, topic = self._groups.get(header.consumer_group), self._topics.get(header.topic)
        if (
            group is None
            or topic is None
            or not config.slave_read
            or group.broker_id
            or not group.consume_enable
            or not config.permission & topic.perm & PERM_READ
            or not 0 <= header.queue_id < topic.read_queue_nums
            or self._groups.is_forbidden(header.consumer_group, header.topic)
        ):
            return None
        if header.sys_flag & OWN_SUBSCRIPTION and header.expression_type == TAG:
            return filters.make_filter(TAG, header.subscription)
        return self._wanted(header, group)

    def wanted(self, header: PullMessage) -> Filter:
        """Which messages to send. Raises Refused when this group may not read there."""
        return self._wanted(header, self._check(header))

    def _check(self, header: PullMessage) -> SubscriptionGroupConfig:
        """The group, if it may read there; the order of the questions is the original's."""
        if not self._config.permission & PERM_READ:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"broker {self._config.broker_name} is not readable: its brokerPermission is "
                f"{self._config.permission}",
            )
        group = self._groups.get_or_create(header.consumer_group)
        if not group.consume_enable:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"group {header.consumer_group} may not consume (consumeEnable=false)",
            )
        topic = self._topics.named(header.topic)
        if self._groups.is_forbidden(header.consumer_group, header.topic):
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{header.consumer_group}] is forbidden for topic[{header.topic}]",
            )
        if not topic.perm & PERM_READ:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"topic '{header.topic}' is not readable: its perm is {topic.perm}",
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId {header.queue_id} is illegal: topic '{header.topic}' has "
                f"{topic.read_queue_nums} read queues",
            )
        return group

    def _wanted(self, header: PullMessage, group: SubscriptionGroupConfig) -> Filter:
        """By this request's own expression, or by the group's heartbeats."""
        if header.sys_flag & OWN_SUBSCRIPTION:
            self._check_expression_type(header.expression_type)
            return self._unless_retry(
                header, filters.make_filter(header.expression_type, header.subscription)
            )
        online = self._members.consumer_group(header.consumer_group)
        if online is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"group {printable(header.consumer_group)} has no member here: send a heartbeat first",
            )
        if online.is_broadcast and not group.consume_broadcast_enable:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"group {header.consumer_group} may not broadcast (consumeBroadcastEnable=false)",
            )
        subscription = online.subscriptions.get(header.topic)
        if subscription is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"no heartbeat of group {header.consumer_group} subscribes to '{header.topic}'",
            )
        if subscription.data.sub_version < header.subscription_version:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the newest heartbeat of group {header.consumer_group} has subscription version "
                f"{subscription.data.sub_version}, this pull has {header.subscription_version}",
            )
        self._check_expression_type(subscription.data.expression_type)
        if subscription.fault is not None:
            raise Refused(ResponseCode.FILTER_DATA_NOT_EXIST, subscription.fault)
        return self._unless_retry(header, subscription.filter)

    def _check_expression_type(self, expression_type: str | None) -> None:
        if not self._config.property_filter and not filters.is_tag_expression(expression_type):
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "The broker does not support consumer to filter message by "
                f"{printable(expression_type or '')} (enablePropertyFilter=false)",
            )

    def _unless_retry(self, header: PullMessage, wanted: Filter) -> Filter:
        """What comes back for a retry was wanted once; it is not asked about again, unless that is set."""
        if wanted.accepts is None or not header.topic.startswith(RETRY_PREFIX):
            return wanted
        return wanted if self._config.filter_retries else EVERYTHING

    def _read(self, header: PullMessage, queue_offset: int, wanted: Filter) -> ReadResult:
        count = max(1, header.message_count_max)
        return self._store.read(
            header.topic, header.queue_id, queue_offset, count, wanted=wanted.codes, accepts=wanted.accepts
        )

    def _told_of_reset(self, request: Command, answer: Answer, header: PullMessage) -> bool:
        """Whether an operator (or a crash) sent this group elsewhere, and it is told so now instead of being
        answered."""
        topic, queue_id = header.topic, header.queue_id
        reset_to = self._offsets.take_reset(header.consumer_group, topic, queue_id, header.queue_offset)
        if reset_to is None:
            return False
        reply = PullReply(
            suggest_which_broker_id=0,
            next_begin_offset=reset_to,
            min_offset=self._store.min_offset(topic, queue_id),
            max_offset=self._store.max_offset(topic, queue_id),
        )
        answer(request.reply(reply, code=ResponseCode.PULL_OFFSET_MOVED, remark="OFFSET_RESET"))
        return True

    def _answer(self, request: Command, answer: Answer, header: PullMessage, result: ReadResult) -> None:
        self._offsets.pulled(header.consumer_group, header.topic, header.queue_id, result.next_offset)
        if request.serialization == JSON and result.status is ReadStatus.FOUND:
            broker_id = self.suggested(header.consumer_group, result.is_behind)
            head = FOUND % (
                broker_id,
                result.next_offset,
                result.min_offset,
                result.max_offset,
                request.opaque,
            )
            frame = reply_frame(head, *result.messages)
            body_bytes = len(frame) - len(head) - PREFIX.size
            self._stats.got(header.topic, header.consumer_group, result.count, body_bytes)
            answer(frame)
            return
        body = b"".join(result.messages)
        if result.count:
            self._stats.got(header.topic, header.consumer_group, result.count, len(body))
        reply = PullReply(
            suggest_which_broker_id=self.suggested(header.consumer_group, result.is_behind),
            next_begin_offset=result.next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
        )
        code = response_code(result.status, header.queue_offset)
        answer(request.reply(reply, body, code=code, remark=result.status.name))

    # ------------------------------------------------------------------------------------- long polling

    def _park(self, request: Command, answer: Answer, header: PullMessage, wanted: Filter) -> None:
        hold_ms = min(header.suspend_timeout_ms, SUSPEND_MS_MAX)
        if not self._config.long_polling:
            hold_ms = self._config.short_polling_ms
        queue_offset = header.queue_offset
        # What waits for minutes keeps nothing it does not need: no body, no raw header, no expression.
        request = Command(request.code, opaque=request.opaque, serialization=request.serialization)
        header = msgspec.structs.replace(header, subscription=None)

        def retry(last: bool) -> bool:
            nonlocal queue_offset
            if self._told_of_reset(request, answer, header):
                return True
            result = self._read(header, queue_offset, wanted)
            if not last and (is_worth_waiting(result, queue_offset) or self._may_be_shown_soon(result)):
                return False
            if self._standing.is_slave and is_elsewhere(result.status, queue_offset):
                if last:
                    self._send_to_master(request, answer, header, f"{result.status.name} on a slave")
                return last
            if not last and result.status is ReadStatus.NO_MATCHED_MESSAGE:
                queue_offset = result.next_offset  # not for this reader: wait on behind it
                return False
            self._answer(request, answer, header, result)
            return True

        deadline = self._clock.monotonic() + max(0, hold_ms) / 1000
        waiting = Waiting(deadline, retry, lambda: not answer.is_open, lambda: answer.has_room)
        if self._long_poll.park(header.topic, header.queue_id, waiting):
            answer.park()
        else:
            retry(True)


_CODES = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


def response_code(status: ReadStatus, queue_offset: int) -> ResponseCode:
    """How a read's end is said on the wire; an empty queue is only right for whoever begins at its start."""
    code = _CODES.get(status)
    if code is None:
        return ResponseCode.PULL_NOT_FOUND if queue_offset == 0 else ResponseCode.PULL_OFFSET_MOVED
    return code


def is_elsewhere(status: ReadStatus, queue_offset: int) -> bool:
    """Whether the reader is at a place that this broker does not have."""
    if status is ReadStatus.NO_MESSAGE_IN_QUEUE:
        return queue_offset > 0
    return status in (ReadStatus.OFFSET_OVERFLOW_BADLY, ReadStatus.OFFSET_TOO_SMALL)


def is_worth_waiting(result: ReadResult, queue_offset: int) -> bool:
    """Whether the reader is where it should be, and there is just nothing new."""
    return response_code(result.status, queue_offset) is ResponseCode.PULL_NOT_FOUND
