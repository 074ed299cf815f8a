"""Where a group is in a queue, and where the queue begins and ends."""

from __future__ import annotations

from kourou.broker.groups import Groups
from kourou.broker.offsets import CommittedOffsets
from kourou.broker.topics import Topics
from kourou.errors import NotFound
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import (
    OffsetReply,
    QueryOffset,
    QueueNamed,
    SearchOffset,
    TimestampReply,
    UpdateOffset,
)
from kourou.protocol.names import printable
from kourou.remoting.answer import Answer
from kourou.store.store import Store


class QueryOffsetHandler:
    """QUERY_CONSUMER_OFFSET (14).

    A group that never committed is new. On a young queue, whose first message is still in memory, it starts
    there; on any other it gets QUERY_NOT_FOUND, exactly, because clients take every other code for a failure,
    and decide by themselves: a group that wants the newest does not get a year of messages first.
    """

    def __init__(self, offsets: CommittedOffsets, store: Store) -> None:
        self._offsets = offsets
        self._store = store

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(QueryOffset)
        committed = self._offsets.get(header.consumer_group, header.topic, header.queue_id)
        if committed is None:
            committed = self._first_for_new_group(header)
        answer(request.reply(OffsetReply(committed)))

    def _first_for_new_group(self, header: QueryOffset) -> int:
        if header.set_zero_if_not_found is False or not self._is_young(header.topic, header.queue_id):
            raise NotFound(
                ResponseCode.QUERY_NOT_FOUND,
                f"group {printable(header.consumer_group)} has no offset for {printable(header.topic)} "
                f"queue {header.queue_id}: maybe it is new",
            )
        return 0

    def _is_young(self, topic: str, queue_id: int) -> bool:
        first = self._store.read(topic, queue_id, 0, 1)
        return first.min_offset == 0 and first.max_offset > 0 and not first.is_behind


class UpdateOffsetHandler:
    """UPDATE_CONSUMER_OFFSET (15). Negative offsets (a Node client's "none yet") change nothing, nor do those
    of queues that never were. A queue that is closed may be opened again, and its readers were somewhere."""

    def __init__(self, offsets: CommittedOffsets, topics: Topics, groups: Groups, store: Store) -> None:
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._store = store

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(UpdateOffset)
        topic = self._topics.named(header.topic)
        self._groups.get_or_create(header.consumer_group)
        queue_id = header.queue_id
        is_queue = 0 <= queue_id < topic.read_queue_nums or self._store.max_offset(header.topic, queue_id) > 0
        if header.commit_offset >= 0 and is_queue:
            self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        answer(request.reply())


class MaxOffsetHandler:
    """GET_MAX_OFFSET (30): the queue offset the next message will get."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(QueueNamed)
        answer(request.reply(OffsetReply(self._store.max_offset(header.topic, header.queue_id))))


class MinOffsetHandler:
    """GET_MIN_OFFSET (31): the queue offset of the oldest message kept."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(QueueNamed)
        answer(request.reply(OffsetReply(self._store.min_offset(header.topic, header.queue_id))))


class SearchOffsetHandler:
    """SEARCH_OFFSET_BY_TIMESTAMP (29): the first message stored at or after a time, or the last before it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(SearchOffset)
        upper = (header.boundary_type or "").upper() == "UPPER"
        found = self._store.offset_by_time(header.topic, header.queue_id, header.timestamp, upper=upper)
        answer(request.reply(OffsetReply(found)))


class EarliestTimeHandler:
    """GET_EARLIEST_MSG_STORETIME (32): when the oldest message kept was stored; -1 without one."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(QueueNamed)
        stored_ms = self._store.earliest_store_ms(header.topic, header.queue_id)
        answer(request.reply(TimestampReply(stored_ms)))
