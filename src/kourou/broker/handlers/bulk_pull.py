"""Handing messages out by the megabyte, to who says it can take them: Spark tasks, mostly.

Who may read, what a filter leaves out and which messages are visible is decided where it is for every pull
(`pull.py`): a bulk pull is many small reads of the store, answered as one. It does not wait and commits
nothing.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from kourou.broker.handlers.pull import OWN_SUBSCRIPTION, PullHandler, response_code
from kourou.broker.handlers.staging import BULK_PULL_BYTES_MAX
from kourou.broker.stats import Stats
from kourou.errors import Refused
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.extensions import BulkPull
from kourou.protocol.headers import PullMessage, PullReply
from kourou.protocol.record import BORN_HOST_V6, STORE_HOST_V6
from kourou.remoting.answer import Answer
from kourou.store.store import ReadResult, ReadStatus, Store

READS_MAX: Final = 4_096
"""Of the store for one request: where a filter leaves out nearly everything, the reader goes on from
there."""

_GOES_ON: Final = (ReadStatus.FOUND, ReadStatus.NO_MATCHED_MESSAGE)
_COUNT: Final = 1 << 16  # the store has its own limit for a read, and a lower one


class BulkPullHandler:
    """KOUROU_BULK_PULL (30002)."""

    def __init__(self, pull: PullHandler, store: Store, stats: Stats) -> None:
        self._pull = pull
        self._store = store
        self._stats = stats

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(BulkPull)
        if not 0 < header.bytes_max <= BULK_PULL_BYTES_MAX:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"bytesMax is {header.bytes_max}: 1 to {BULK_PULL_BYTES_MAX} bytes are handed out at once",
            )
        parts, count, last = self._read(header)
        if count:
            self._stats.got(header.topic, header.consumer_group, count, sum(map(len, parts)))
        if header.headers_only:
            parts = [without_bodies(b"".join(parts))]
        reply = PullReply(
            suggest_which_broker_id=0,
            next_begin_offset=last.next_offset,
            min_offset=last.min_offset,
            max_offset=last.max_offset,
        )
        if count:
            # One copy of the records, into the frame: it is megabytes.
            answer(request.reply(reply, remark=ReadStatus.FOUND.name).encode(*parts))
        else:
            code = response_code(last.status, header.queue_offset)
            answer(request.reply(reply, code=code, remark=last.status.name))

    def _read(self, header: BulkPull) -> tuple[list[bytes | memoryview], int, ReadResult]:
        """What is to be sent, how many that are, and the last read of the store."""
        wanted = self._pull.wanted(_as_pull(header))
        read, topic, queue_id = self._store.read, header.topic, header.queue_id
        at, left = header.queue_offset, header.bytes_max
        end = header.queue_offset_end
        parts: list[bytes | memoryview] = []
        count = 0
        for _ in range(READS_MAX):
            most = _COUNT if end is None else max(1, min(_COUNT, end - at))
            result = read(topic, queue_id, at, most, left, wanted.codes, wanted.accepts, in_bulk=True)
            if result.count and parts and result.size > left:
                return parts, count, _up_to(result, at)  # one always comes, but here it is not the first
            parts += result.messages
            count += result.count
            left -= result.size
            at = result.next_offset
            is_end = at >= result.max_offset or (end is not None and at >= end)
            if result.status not in _GOES_ON or is_end or left <= 0:
                break
        return parts, count, result


def _as_pull(header: BulkPull) -> PullMessage:
    """The same question, as the rules of a pull know it."""
    return PullMessage(
        consumer_group=header.consumer_group,
        topic=header.topic,
        queue_id=header.queue_id,
        queue_offset=header.queue_offset,
        message_count_max=1,
        sys_flag=OWN_SUBSCRIPTION,
        subscription=header.subscription or "*",
        expression_type=header.expression_type,
    )


def _up_to(result: ReadResult, queue_offset: int) -> ReadResult:
    return ReadResult(ReadStatus.FOUND, queue_offset, result.min_offset, result.max_offset, [])


_SIZE = Struct(">i")
_SYS_FLAG_LOW_BYTE = 39
_BODY_LENGTH_AT = 84
_NO_BODY = bytes(4)


def without_bodies(records: bytes) -> bytes:
    """The same records, each with no body and a size to fit; whatever CRC they hold is that of the whole."""
    view = memoryview(records)
    parts: list[bytes | memoryview] = []
    at, end = 0, len(records)
    while at < end:
        size = _SIZE.unpack_from(view, at)[0]
        sys_flag = view[at + _SYS_FLAG_LOW_BYTE]
        length_at = at + _BODY_LENGTH_AT
        length_at += 12 * bool(sys_flag & BORN_HOST_V6) + 12 * bool(sys_flag & STORE_HOST_V6)
        body_bytes = _SIZE.unpack_from(view, length_at)[0]
        body_at = length_at + 4
        parts += (
            _SIZE.pack(size - body_bytes),
            view[at + 4 : length_at],
            _NO_BODY,
            view[body_at + body_bytes : at + size],
        )
        at += size
    return b"".join(parts)
