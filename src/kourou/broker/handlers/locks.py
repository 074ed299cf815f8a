"""Queues for one consumer at a time."""

from __future__ import annotations

from kourou.broker.locks import QueueLocks
from kourou.broker.members import Members
from kourou.broker.topics import Topics
from kourou.doors.failpoints import reached
from kourou.errors import Refused
from kourou.protocol.bodies import LockedQueues, LockQueues, MessageQueue
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.names import printable
from kourou.remoting.answer import Answer
from kourou.remoting.connection import Connection


class LockHandler:
    """LOCK_BATCH_MQ (41): the queues this member has for itself now, out of those it wants."""

    def __init__(self, locks: QueueLocks, members: Members, topics: Topics) -> None:
        self._locks = locks
        self._members = members
        self._topics = topics

    def __call__(self, request: Command, answer: Answer) -> None:
        wanted = LockQueues.decode_request(request.body)
        check_member(self._members, answer.connection, wanted)
        here = [queue for queue in wanted.mq_set if self._is_here(queue)]
        reached("before-lock-grant")
        locked = self._locks.lock(wanted.consumer_group, wanted.client_id, here)
        reached("after-lock-grant")
        answer(request.reply(body=LockedQueues(locked=locked).encode()))

    def _is_here(self, queue: MessageQueue) -> bool:
        topic = self._topics.get(queue.topic)
        return topic is not None and 0 <= queue.queue_id < max(topic.read_queue_nums, topic.write_queue_nums)


class UnlockHandler:
    """UNLOCK_BATCH_MQ (42): this member gives queues back."""

    def __init__(self, locks: QueueLocks, members: Members) -> None:
        self._locks = locks
        self._members = members

    def __call__(self, request: Command, answer: Answer) -> None:
        given = LockQueues.decode_request(request.body)
        check_member(self._members, answer.connection, given)
        self._locks.unlock(given.consumer_group, given.client_id, given.mq_set)
        answer(request.reply())


def check_member(members: Members, connection: Connection, request: LockQueues) -> None:
    """A lock is for members, under their own name: nobody takes or gives back another's."""
    group = members.consumer_group(request.consumer_group)
    member = None if group is None else group.members.get(connection)
    if member is None or member.client_id != request.client_id:
        raise Refused(
            ResponseCode.CONSUMER_NOT_ONLINE,
            f"{printable(request.client_id)} is no member of group {printable(request.consumer_group)} on "
            "this connection: send a heartbeat first",
        )
