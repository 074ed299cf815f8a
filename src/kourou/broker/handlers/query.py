"""Finding messages that are already there: by key, by place, by their entry in a consume queue."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET

from kourou.access.rules import SUB, topic_need
from kourou.broker.filters import Filter
from kourou.broker.members import Members
from kourou.errors import Refused
from kourou.protocol.bodies import ConsumeQueueEntry, ConsumeQueuePage
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import QueryConsumeQueue, QueryMessage, QueryMessageReply, ViewMessage
from kourou.protocol.names import printable
from kourou.protocol.record import Record
from kourou.remoting.access import Require
from kourou.remoting.answer import Answer
from kourou.store.consume_queue import ENTRY
from kourou.store.store import Store

UNIQUE_KEY_MATCHES_MAX: Final = 32
BODY_BYTES_MAX: Final = 12 * 1024 * 1024
"""Whole records only; beyond it the oldest are left out. A frame has room for 16 MiB."""
ENTRIES_MAX: Final = 1_000


class QueryMessageHandler:
    """QUERY_MESSAGE (12): messages by one of their keys, or by their unique id."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(QueryMessage)
        most = UNIQUE_KEY_MATCHES_MAX if header.is_unique_key else header.max_num
        between = (header.begin_timestamp, header.end_timestamp)
        found = self._store.find(header.topic, header.key, most, *between) if most > 0 else []
        stored_ms, place = self._store.last_indexed
        reply = QueryMessageReply(index_last_update_timestamp=stored_ms, index_last_update_phyoffset=place)
        if found:
            answer(request.reply(reply, b"".join(_newest_that_fit(found))))
            return
        remark = (
            f"can not find message, maybe time range not correct: topic '{printable(header.topic)}', "
            f"key '{printable(header.key)}', stored {header.begin_timestamp} to {header.end_timestamp}"
        )
        answer(request.reply(reply, code=ResponseCode.QUERY_NOT_FOUND, remark=remark))


def _newest_that_fit(found: list[bytes]) -> list[bytes]:
    left = BODY_BYTES_MAX
    for index in range(len(found) - 1, -1, -1):
        left -= len(found[index])
        if left < 0:
            return found[index + 1 :] or found[-1:]
    return found


class ViewMessageHandler:
    """VIEW_MESSAGE_BY_ID (33): the message at a place of the log, which an offset id names."""

    def __init__(self, store: Store, require: Require) -> None:
        self._store = store
        self._require = require

    def __call__(self, request: Command, answer: Answer) -> None:
        place = request.parse(ViewMessage).offset
        record = self._store.record_at(place)
        if record is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {place}: the log holds {self._store.start} to "
                f"{self._store.dispatched}, and no message begins there",
            )
        self._require(request, answer, topic_need(Record(record).topic.decode(), SUB, ""))
        answer(request.reply(body=record))


class QueryConsumeQueueHandler:
    """QUERY_CONSUME_QUEUE (321): a piece of a consume queue, and what a group's filter says of it."""

    def __init__(self, store: Store, members: Members) -> None:
        self._store = store
        self._members = members

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(QueryConsumeQueue)
        end = self._store.max_offset(header.topic, header.queue_id)
        if end == 0:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"{header.queue_id}@{printable(header.topic)} is not exist: it has no message here",
            )
        least = self._store.min_offset(header.topic, header.queue_id)
        page = ConsumeQueuePage(min_queue_index=least, max_queue_index=end)
        accepts = self._filter(header, page)
        start = header.index if header.index >= 0 else least
        count = min(max(0, header.count), ENTRIES_MAX)
        for place, size, tags_code in ENTRY.iter_unpack(
            self._store.entries(header.topic, header.queue_id, max(least, start), count)
        ):
            page.queue_data.append(self._described(place, size, tags_code, accepts))
        answer(request.reply(body=page.encode()))

    def _filter(self, header: QueryConsumeQueue, page: ConsumeQueuePage) -> Filter | None:
        """The filter of the group that is asked about, which the page tells too."""
        if header.consumer_group is None:
            return None
        group = self._members.consumer_group(header.consumer_group)
        subscription = None if group is None else group.subscriptions.get(header.topic)
        if subscription is None:
            page.filter_data = f"{printable(header.consumer_group)}@{header.topic} is not online!"
            return None
        page.subscription_data = subscription.data
        page.filter_data = "null"  # of an SQL92 filter the original shows how it compiled it
        return subscription.filter

    def _described(self, place: int, size: int, tags_code: int, accepts: Filter | None) -> ConsumeQueueEntry:
        record = self._store.record_at(place)
        is_wanted = accepts is not None and record is not None and accepts.matches(tags_code, record)
        return ConsumeQueueEntry(
            physic_offset=place,
            physic_size=size,
            tags_code=tags_code,
            eval=is_wanted,
            msg=UNSET if record is not None else "the message is no longer there",
        )
