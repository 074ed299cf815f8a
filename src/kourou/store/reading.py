"""Which messages of a queue a reader gets, and where it goes on.

Records leave as they lie in the log. When no filter applies and they lie side by side, the answer is one
slice found by its first and last entry; else each run of neighbours is one slice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum
from itertools import accumulate
from struct import Struct
from typing import NamedTuple

import msgspec

from kourou.store.commit_log import CommitLog
from kourou.store.config import ENTRY_BYTES, StoreConfig
from kourou.store.consume_queue import ENTRY, ConsumeQueue, entries_struct

Accepts = Callable[[bytes], bool]
"""Says of a whole record whether the reader wants it."""


class ReadStatus(Enum):
    """How a read ended, under RocketMQ's names."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class ReadResult(msgspec.Struct, frozen=True):
    status: ReadStatus
    next_offset: int
    """Where to read on."""
    min_offset: int
    max_offset: int
    messages: list[bytes]
    """Records one after the other, in slices to be joined."""
    count: int = 0
    is_behind: bool = False
    """So far behind that the messages had to come from the disk."""


class _Limits(NamedTuple):
    messages: int
    size: int


_EXT_ADDRESS_MAX = -2147483649  # at or below it a tag code is a place in consumequeue_ext: the tag is unknown
_TAG_AT = 12
_TAG = Struct(">q")
_FIND_TAGS_MAX = 4  # more tags are found faster by taking all entries apart


class Reader:
    def __init__(
        self, config: StoreConfig, log: CommitLog, in_memory_bytes: int, tags_may_be_elsewhere: bool
    ) -> None:
        self._config = config
        self._tags_may_be_elsewhere = tags_may_be_elsewhere
        self._log = log
        self._in_memory_bytes = in_memory_bytes

    def read(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        count_max: int,
        bytes_max: int,
        wanted: Collection[int] | None,
        accepts: Accepts | None,
    ) -> ReadResult:
        least, most = queue.min_offset, queue.max_offset
        if most == 0:
            return ReadResult(ReadStatus.NO_MESSAGE_IN_QUEUE, 0, least, most, [])
        if queue_offset < least:
            return ReadResult(ReadStatus.OFFSET_TOO_SMALL, least, least, most, [])
        if queue_offset == most:
            return ReadResult(ReadStatus.OFFSET_OVERFLOW_ONE, queue_offset, least, most, [])
        if queue_offset > most:
            return ReadResult(ReadStatus.OFFSET_OVERFLOW_BADLY, most, least, most, [])
        if wanted is None and accepts is None:
            return self._read_all(queue, queue_offset, count_max, bytes_max)
        return self._read_some(queue, queue_offset, count_max, bytes_max, wanted, accepts)

    # Without a filter.

    def _read_all(self, queue: ConsumeQueue, queue_offset: int, count_max: int, bytes_max: int) -> ReadResult:
        config, least, most = self._config, queue.min_offset, queue.max_offset
        count = max(1, min(count_max, config.pull_messages_in_memory_max))
        entries = queue.entries(queue_offset, count + 1)  # one more shows whether the last is a mere copy
        count = min(count, len(entries) // ENTRY_BYTES)
        if not count:
            return self._nothing_there(queue, queue_offset)
        first = ENTRY.unpack_from(entries)[0]
        limits, is_behind = self._limits(first, count_max, bytes_max)
        if count <= limits.messages and queue_offset >= queue.run_from:
            last, last_size, _ = ENTRY.unpack_from(entries, (count - 1) * ENTRY_BYTES)
            size = last + last_size - first
            if size <= limits.size:  # one slice: this is what a pull at the end of a busy queue costs
                data = self._log.read(size, first)
                return ReadResult(
                    ReadStatus.FOUND, queue_offset + count, least, most, [data], count, is_behind
                )
        count = min(count, limits.messages)
        numbers = entries_struct(count).unpack_from(entries)
        sizes = numbers[1::3]
        if sum(sizes) > limits.size:
            count = max(1, bisect_right(list(accumulate(sizes)), limits.size))
        places = list(zip(numbers[: 3 * count : 3], sizes, strict=False))
        return self._found(queue, queue_offset + count, places, _physical(entries, count), is_behind)

    def _limits(self, physical: int, count_max: int, bytes_max: int) -> tuple[_Limits, bool]:
        config = self._config
        if self._log.end - physical <= self._in_memory_bytes:
            count, size, is_behind = (
                config.pull_messages_in_memory_max,
                config.pull_bytes_in_memory_max,
                False,
            )
        else:
            count, size, is_behind = config.pull_messages_on_disk_max, config.pull_bytes_on_disk_max, True
        return _Limits(max(1, min(count, count_max)), min(size, bytes_max)), is_behind

    def _nothing_there(self, queue: ConsumeQueue, queue_offset: int) -> ReadResult:
        """A file of the queue is missing: go on with the next one that is there."""
        each = queue.segments.segment_bytes // ENTRY_BYTES
        following = min(queue.max_offset, (queue_offset // each + 1) * each)
        return ReadResult(ReadStatus.OFFSET_FOUND_NULL, following, queue.min_offset, queue.max_offset, [])

    def _found(
        self,
        queue: ConsumeQueue,
        next_offset: int,
        places: list[tuple[int, int]],
        following: int,
        is_behind: bool,
    ) -> ReadResult:
        """The records at `places`, as few slices; `following` is the place after them."""
        least, most = queue.min_offset, queue.max_offset
        if places[-1][0] == following:
            places.pop()  # stands for a damaged record, and shows its neighbour, who comes next
        if places and places[0][0] < self._log.start:
            places = [place for place in places if place[0] >= self._log.start]
        if not places:
            return ReadResult(ReadStatus.MESSAGE_WAS_REMOVING, next_offset, least, most, [])
        runs, count = _runs(places)
        read = self._log.read
        return ReadResult(
            ReadStatus.FOUND,
            next_offset,
            least,
            most,
            [read(size, physical) for physical, size in runs],
            count,
            is_behind,
        )

    # With a filter.

    def _read_some(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        count_max: int,
        bytes_max: int,
        wanted: Collection[int] | None,
        accepts: Accepts | None,
    ) -> ReadResult:
        scanned = max(self._config.scan_entries_max, count_max)
        entries = queue.entries(queue_offset, scanned + 1)
        if not entries:
            return self._nothing_there(queue, queue_offset)
        limits, is_behind = self._limits(_physical(entries, 0), count_max, bytes_max)
        scanned = min(scanned, len(entries) // ENTRY_BYTES)
        candidates: Iterable[int] = range(scanned)
        if wanted is not None:
            candidates = matching(entries[: scanned * ENTRY_BYTES], wanted, self._tags_may_be_elsewhere)
        places: list[tuple[int, int]] = []
        total, next_index, unpack = 0, scanned, ENTRY.unpack_from
        for index in candidates:
            physical, size, _ = unpack(entries, index * ENTRY_BYTES)
            if places and (len(places) >= limits.messages or total + size > limits.size):
                next_index = index
                break
            if accepts is None or accepts(self._log.read(size, physical)):
                places.append((physical, size))
                total += size
        if not places:
            return ReadResult(
                ReadStatus.NO_MATCHED_MESSAGE,
                queue_offset + scanned,
                queue.min_offset,
                queue.max_offset,
                [],
            )
        return self._found(
            queue, queue_offset + next_index, places, _physical(entries, next_index), is_behind
        )


def matching(entries: bytes, wanted: Collection[int], tags_may_be_elsewhere: bool = False) -> Sequence[int]:
    """Which of the entries may be of a wanted tag, ascending.

    Hashes collide, so the consumer compares the tag itself; a broker only has to be right about what it
    leaves out. With `tags_may_be_elsewhere` (consumequeue_ext) a tag code can be an address: unknown.
    """
    if len(wanted) <= _FIND_TAGS_MAX and not tags_may_be_elsewhere:
        found = [index for tag in wanted for index in _with_tag(entries, tag)]
        if len(wanted) > 1:
            found.sort()
        return found
    tags = entries_struct(len(entries) // ENTRY_BYTES).unpack(entries)[2::3]
    return [index for index, tag in enumerate(tags) if tag in wanted or tag <= _EXT_ADDRESS_MAX]


def _with_tag(entries: bytes, tag: int) -> list[int]:
    """One tag by `find`: half the time of taking all entries apart."""
    packed = _TAG.pack(tag)
    found = []
    at = entries.find(packed, _TAG_AT)
    while at >= 0:
        index, within = divmod(at, ENTRY_BYTES)
        if within == _TAG_AT:
            found.append(index)
            at = entries.find(packed, at + ENTRY_BYTES)
        else:
            at = entries.find(packed, at + 1)
    return found


def _physical(entries: bytes, index: int) -> int:
    """Where the record of an entry lies; -1 beyond the last entry."""
    at = index * ENTRY_BYTES
    physical: int = ENTRY.unpack_from(entries, at)[0] if at < len(entries) else -1
    return physical


def _runs(places: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], int]:
    """Neighbours joined, and how many records they are: a place that comes twice counts once."""
    runs: list[tuple[int, int]] = []
    count, last, start, end = 0, -1, places[0][0], places[0][0]
    for physical, size in places:
        if physical == last:
            continue
        if physical != end:
            runs.append((start, end - start))
            start = physical
        end = physical + size
        last = physical
        count += 1
    runs.append((start, end - start))
    return runs, count
