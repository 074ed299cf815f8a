"""What brokers ask of, and tell, a consumer.

40   NOTIFY_CONSUMER_IDS_CHANGED        somebody came or left, or a topic has other queues: which are ours?
220  RESET_CONSUMER_CLIENT_OFFSET       go on elsewhere
221  GET_CONSUMER_STATUS_FROM_CLIENT    how far are you?
307  GET_CONSUMER_RUNNING_INFO          how are you? (on request with the stack of every thread)
309  CONSUME_MESSAGE_DIRECTLY           take this one message now, and say what became of it
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from kourou.client.handling import RETRY_TOPIC
from kourou.client.held_queue import HeldQueue
from kourou.client.namespaces import without_namespace
from kourou.client.outcomes import DeadLetter, RetryLater
from kourou.client.workers import Listener, Task
from kourou.errors import Refused
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import (
    ConsumedDirectly,
    ConsumerRunningInfo,
    ConsumeType,
    HeldQueueInfo,
    QueueOffsets,
    QueuePlaces,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import (
    ConsumeDirectly,
    GetConsumerStatus,
    GetRunningInfo,
    GroupNews,
    ResetOffset,
)
from kourou.protocol.record import Record
from kourou.remoting.answer import Answer, Handler

if TYPE_CHECKING:
    from kourou.client.consuming import Consuming

MIB = 1024 * 1024
CLIENT_VERSION = "V4_9_8"
"""Whose behaviour this client has; tools show it."""


class Answers:
    """The handlers of one consumer, for its connections."""

    def __init__(self, consuming: Consuming) -> None:
        self._consuming = consuming

    def table(self) -> dict[int, Handler]:
        return {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
        }

    def _members_changed(self, request: Command, answer: Answer) -> None:
        news = request.parse(GroupNews)
        self._check(news.consumer_group)
        self._consuming.members_changed(news.topic)
        answer(request.reply())

    def _reset(self, request: Command, answer: Answer) -> None:
        self._check(request.parse(ResetOffset).group)
        self._consuming.move(QueueOffsets.decode(request.body).offset_table)
        answer(request.reply())

    def _status(self, request: Command, answer: Answer) -> None:
        header = request.parse(GetConsumerStatus)
        self._check(header.group)
        places = {
            queue: offset
            for queue, held in self._consuming.held.items()
            if queue.topic == header.topic and (offset := held.commit_offset) is not None
        }
        answer(request.reply(body=QueuePlaces(message_queue_table=places).encode_fastjson()))

    def _running_info(self, request: Command, answer: Answer) -> None:
        header = request.parse(GetRunningInfo)
        self._check(header.consumer_group)
        info = running_info(self._consuming)
        if header.jstack_enable:
            info.jstack = thread_stacks()
        answer(request.reply(body=info.encode_fastjson()))

    def _consume_directly(self, request: Command, answer: Answer) -> None:
        header = request.parse(ConsumeDirectly)
        self._check(header.consumer_group)
        message = ReceivedMessage(Record(request.body), header.broker_name or "")
        topic = message.properties.get(RETRY_TOPIC) or message.topic
        listener = self._consuming.listeners.get(topic)
        if listener is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no handler for topic '{topic}' in this consumer")
        message.show_as(without_namespace(self._consuming.settings.namespace, topic))
        self._consuming.consume_directly(message, listener, _reporter(request, answer, listener))

    def _check(self, group: str) -> None:
        if group != self._consuming.group:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"no consumer of group {group} here: this is one of {self._consuming.group}",
            )


def _reporter(request: Command, answer: Answer, listener: Listener) -> Callable[[Task, float], None]:
    def report(task: Task, seconds: float) -> None:
        failure = task.failure
        if failure is None:
            result = "CR_SUCCESS"
        elif isinstance(failure, RetryLater | DeadLetter):
            result = "CR_LATER"
        else:
            result = "CR_THROW_EXCEPTION"
        consumed = ConsumedDirectly(
            consume_result=result, order=listener.ordered, spent_time_mills=round(seconds * 1000)
        )
        if failure is not None:
            consumed.remark = "".join(traceback.format_exception_only(failure)).strip()
        answer(request.reply(body=consumed.encode()))

    return report


def running_info(consuming: Consuming) -> ConsumerRunningInfo:
    """What administrators are shown of a consumer."""
    told = consuming.consumer_data()
    return ConsumerRunningInfo(
        mq_table={queue: _queue_info(held) for queue, held in sorted(consuming.held.items())},
        properties={
            "PROP_NAMESERVER_ADDR": ";".join(consuming.routes.name_servers.addresses),
            "PROP_CONSUME_TYPE": ConsumeType(told.consume_type).value,
            "PROP_CLIENT_VERSION": CLIENT_VERSION,
            "PROP_CONSUMEORDERLY": str(
                bool(consuming.listeners) and all(each.ordered for each in consuming.listeners.values())
            ).lower(),
            "PROP_THREADPOOL_CORE_SIZE": str(consuming.settings.threads),
            "PROP_CONSUMER_START_TIMESTAMP": str(consuming.started_at_ms),
            "maxReconsumeTimes": str(
                -1 if consuming.settings.retries is None else consuming.settings.retries
            ),
            "messageModel": "BROADCASTING" if consuming.settings.broadcast else "CLUSTERING",
            "pullBatchSize": str(consuming.settings.pull_messages),
        },
        status_table=consuming.figures.told(),
        subscription_set=told.subscription_data_set,
    )


def _queue_info(held: HeldQueue) -> HeldQueueInfo:
    first, last = held.bounds()
    return HeldQueueInfo(
        cached_msg_count=held.messages_in_flight,
        cached_msg_max_offset=last,
        cached_msg_min_offset=first,
        cached_msg_size_in_mib=held.bytes_in_flight // MIB,
        commit_offset=held.commit_offset or 0,
        droped=held.is_dropped,
        last_consume_timestamp=held.consumed_at_ms,
        last_pull_timestamp=held.pulled_at_ms,
        locked=held.ordered and held.locked_until > 0,
    )


def thread_stacks() -> str:
    """Where every thread of this program is right now, as `jstack` would tell it."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        stack = "".join(traceback.format_stack(frame))
        parts.append(f"{names.get(ident, '?')} (tid {ident})\n{stack}")
    return "\n".join(parts)
