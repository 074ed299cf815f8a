"""Which messages of a queue a reader gets, and where it goes on.

Records leave as they lie in the log, and three ways lead to the same answer:

    ahead      out of what was gathered before (`RecordsAhead`): most of what is read
    in sight   each record as a slice of one view of the log (`File.view`): the last messages of a queue,
               and large ones; one slice where they lie side by side
    plain      each run of neighbours read by itself: what lies far behind or apart, and beside damage

With the native loops a usual pull is answered before it comes here (`Replies`), with the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum
from itertools import accumulate

import msgspec

from kourou.store.ahead import (
    BLOCK_ENTRIES,
    FILTERED_BLOCK_ENTRIES,
    Accepts,
    Entries,
    RecordsAhead,
    TagCodes,
    matching,
    places_and_sizes,
    take_apart,
)
from kourou.store.commit_log import CommitLog
from kourou.store.config import ENTRY_BYTES, StoreConfig
from kourou.store.consume_queue import ConsumeQueue
from kourou.store.mending import Mender

__all__ = ["Accepts", "ReadResult", "ReadStatus", "Reader"]


class ReadStatus(Enum):
    """How a read ended, under RocketMQ's names."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class ReadResult(msgspec.Struct, frozen=True):
    status: ReadStatus
    next_offset: int
    """Where to read on."""
    min_offset: int
    max_offset: int
    messages: Sequence[bytes | memoryview]
    """Records one after the other, in slices to be joined: at once, because a slice may be a view."""
    count: int = 0
    size: int = 0
    """Bytes, all together."""
    is_behind: bool = False
    """So far behind that the messages had to come from the disk."""


_SCAN_VIEW_BYTES = 1 << 20
_VIEW_BYTES_MAX = 8 << 20  # what lies further apart is read one by one
BULK_ENTRIES_MAX = 512
"""Looked up at once for who takes megabytes: a message costs 0.65 us then, with one copy in `bulk_pull.py`,
where reads of 32 and two copies took 1.27; bench: Spark."""


class Reader:
    def __init__(
        self, config: StoreConfig, log: CommitLog, in_memory_bytes: int, tags_may_be_elsewhere: bool
    ) -> None:
        self.config = config
        self.tags_may_be_elsewhere = tags_may_be_elsewhere
        self._log = log
        self.ahead = RecordsAhead(log, in_memory_bytes, tags_may_be_elsewhere)
        self.mender = Mender(config, log, self.ahead, tags_may_be_elsewhere)
        self.in_memory_bytes = in_memory_bytes

    def read(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        count_max: int,
        bytes_max: int,
        wanted: Collection[int] | None,
        accepts: Accepts | None,
        *,
        in_bulk: bool = False,
    ) -> ReadResult:
        """`in_bulk`: without the limits of a pull, and past what is gathered for those who come back."""
        least, most = queue.min_offset, queue.max_offset
        if most == 0:
            return ReadResult(ReadStatus.NO_MESSAGE_IN_QUEUE, 0, least, most, [])
        if queue_offset < least:
            return ReadResult(ReadStatus.OFFSET_TOO_SMALL, least, least, most, [])
        if queue_offset == most:
            return ReadResult(ReadStatus.OFFSET_OVERFLOW_ONE, queue_offset, least, most, [])
        if queue_offset > most:
            return ReadResult(ReadStatus.OFFSET_OVERFLOW_BADLY, most, least, most, [])
        is_all = wanted is None and accepts is None
        in_bulk = in_bulk and is_all
        count_max = max(
            1, min(count_max, BULK_ENTRIES_MAX if in_bulk else self.config.pull_messages_in_memory_max)
        )
        if queue_offset < queue.old_end:
            count = max(count_max, 0 if is_all else self.config.scan_entries_max)
            queue_offset = self.mender.look(queue, queue_offset, count)
            if queue_offset >= most:
                return ReadResult(ReadStatus.MESSAGE_WAS_REMOVING, most, least, most, [])
        if in_bulk:
            return self._read_all(queue, queue_offset, count_max, bytes_max, in_bulk=True)
        codes = None if wanted is None else frozenset(wanted)
        return self._read_ahead(
            queue, queue_offset, count_max, bytes_max, codes, accepts
        ) or self.read_plainly(queue, queue_offset, count_max, bytes_max, codes, accepts)

    def _read_ahead(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        count_max: int,
        bytes_max: int,
        wanted: TagCodes,
        accepts: Accepts | None,
    ) -> ReadResult | None:
        """Out of what was gathered, block by block; None when a block of it was not: 4 us for 32 messages,
        where seeing each takes 12; bench: pull."""
        config, gathered = self.config, self.ahead.stretch
        block_entries = BLOCK_ENTRIES if wanted is None and accepts is None else FILTERED_BLOCK_ENTRIES
        number, within = divmod(queue_offset, block_entries)
        stretch = gathered(queue, number, wanted, accepts)
        if stretch is None or stretch.log_start < self._log.start:
            return None
        if self._log.end - stretch.place(within) > self.in_memory_bytes:
            return None
        bytes_max = min(bytes_max, config.pull_bytes_in_memory_max)
        scan_end = queue_offset + max(config.scan_entries_max, count_max)
        parts: list[memoryview] = []
        count = size = 0
        while True:
            offsets, ends = stretch.queue_offsets, stretch.ends
            start = bisect_left(offsets, queue_offset) if within else 0
            next_offset = (number + 1) * block_entries
            found = len(offsets)
            if next_offset > scan_end:
                next_offset = scan_end
                found = bisect_left(offsets, scan_end)
            stop = min(found, start + count_max - count)
            if ends[stop] - ends[start] > bytes_max - size:
                stop = max(start, bisect_right(ends, ends[start] + bytes_max - size, start, stop) - 1)
                if stop == start and not count:
                    stop += 1  # one always comes, however large
            if stop > start:
                parts.append(stretch.data[ends[start] : ends[stop]])
                stretch.served += stop - start
                count += stop - start
                size += ends[stop] - ends[start]
            if stop < found:
                next_offset = offsets[stop]
                break
            if count == count_max or next_offset == scan_end:
                break
            number, within = number + 1, 0
            following = gathered(queue, number, wanted, accepts)
            if following is None:
                return None
            stretch = following
        status = ReadStatus.FOUND if count else ReadStatus.NO_MATCHED_MESSAGE
        return ReadResult(status, next_offset, queue.min_offset, queue.max_offset, parts, count, size)

    def read_plainly(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        count_max: int,
        bytes_max: int,
        wanted: TagCodes,
        accepts: Accepts | None,
    ) -> ReadResult:
        """As `read`, of an offset in the queue, with nothing gathered ahead."""
        if wanted is None and accepts is None:
            return self._read_all(queue, queue_offset, count_max, bytes_max)
        return self._read_some(queue, queue_offset, count_max, bytes_max, wanted, accepts)

    # Without a filter.

    def _read_all(
        self, queue: ConsumeQueue, queue_offset: int, count_max: int, bytes_max: int, *, in_bulk: bool = False
    ) -> ReadResult:
        count = count_max if in_bulk else max(1, min(count_max, self.config.pull_messages_in_memory_max))
        entries = queue.entries(queue_offset, count + 1)  # one more shows a mere copy
        places, sizes = places_and_sizes(entries)
        if not places:
            return self._nothing_there(queue, queue_offset)
        if in_bulk:
            is_behind = self._log.end - places[0] > self.in_memory_bytes
            in_view = bisect_right(places, places[0] + _VIEW_BYTES_MAX - max(sizes))
            count = max(1, min(count, len(places), in_view))
        else:
            count_max, bytes_max, is_behind = self._limits(places[0], count_max, bytes_max)
            count = min(count, count_max, len(places))
        following = places[count] if count < len(places) else -1
        if count < len(places):
            places, sizes = places[:count], sizes[:count]
        if sum(sizes) > bytes_max:
            count = max(1, bisect_right(list(accumulate(sizes)), bytes_max))
            following = places[count] if count < len(places) else following
            places, sizes = places[:count], sizes[:count]
        return self._found(queue, queue_offset + count, places, sizes, following, is_behind)

    def _limits(self, physical: int, count_max: int, bytes_max: int) -> tuple[int, int, bool]:
        """How many messages and bytes to give at most from this place on, and whether it is far behind."""
        config = self.config
        is_behind = self._log.end - physical > self.in_memory_bytes
        if is_behind:
            count, size = config.pull_messages_on_disk_max, config.pull_bytes_on_disk_max
        else:
            count, size = config.pull_messages_in_memory_max, config.pull_bytes_in_memory_max
        return max(1, min(count, count_max)), min(size, bytes_max), is_behind

    def _nothing_there(self, queue: ConsumeQueue, queue_offset: int) -> ReadResult:
        """A file of the queue is missing: go on with the next one that is there."""
        each = queue.segments.segment_bytes // ENTRY_BYTES
        following = min(queue.max_offset, (queue_offset // each + 1) * each)
        return ReadResult(ReadStatus.OFFSET_FOUND_NULL, following, queue.min_offset, queue.max_offset, [])

    def _found(
        self,
        queue: ConsumeQueue,
        next_offset: int,
        starts: Sequence[int],
        sizes: Sequence[int],
        following: int,
        is_behind: bool,
    ) -> ReadResult:
        """The records that begin at `starts`; `following` is the place after them."""
        least, most = queue.min_offset, queue.max_offset
        if not is_behind:
            views = self._views(starts, sizes, following)
            if views is not None:
                return ReadResult(ReadStatus.FOUND, next_offset, least, most, views, len(starts), sum(sizes))
        places = list(zip(starts, sizes, strict=True))
        while places and places[-1][0] == following:
            places.pop()  # stands for a damaged record, and shows its neighbour, who comes next
        if places and places[0][0] < self._log.start:
            places = [place for place in places if place[0] >= self._log.start]
        if not places:
            return ReadResult(ReadStatus.MESSAGE_WAS_REMOVING, next_offset, least, most, [])
        runs, count = _runs(places)
        read = self._log.read
        messages = [read(size, physical) for physical, size in runs]
        size = sum(map(len, messages))
        return ReadResult(ReadStatus.FOUND, next_offset, least, most, messages, count, size, is_behind)

    def _views(self, starts: Sequence[int], sizes: Sequence[int], following: int) -> list[memoryview] | None:
        """Each record as a slice of one view, or all in one slice where they lie side by side: 9 us for 32 of
        them, where reading them takes 28; bench: pull.

        None when there is no such view, or when any of the entries stands for no message of its own.
        """
        first, last = starts[0], starts[-1]
        span = last + sizes[-1] - first
        if (
            last == following
            or first < self._log.start
            or not 0 < span <= _VIEW_BYTES_MAX
            or len(set(starts)) < len(starts)
        ):
            return None
        view = self._log.view(span, first)
        if view is None or span == sum(sizes):
            return view if view is None else [view]
        return [
            view[(start := place - first) : start + size] for place, size in zip(starts, sizes, strict=True)
        ]

    # With a filter.

    def _read_some(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        count_max: int,
        bytes_max: int,
        wanted: TagCodes,
        accepts: Accepts | None,
    ) -> ReadResult:
        places: list[int] = []
        sizes: list[int] = []
        total, is_behind, next_offset = 0, False, queue_offset
        sight: _Sight | None = None
        for first, entries in self._blocks(queue, queue_offset, max(self.config.scan_entries_max, count_max)):
            if sight is None:
                count_max, bytes_max, is_behind = self._limits(entries.places[0], count_max, bytes_max)
                sight = _Sight(self._log, is_behind)
            candidates: Iterable[int] = range(len(entries.places))
            if wanted is not None:
                candidates = matching(entries.tags, wanted, self.tags_may_be_elsewhere)
            for index in candidates:
                place, size = entries.places[index], entries.sizes[index]
                if accepts is not None and not accepts((sight.record(place, size),))[0]:
                    continue
                if places and (len(places) >= count_max or total + size > bytes_max):
                    next_offset = first + index
                    return self._found(queue, next_offset, places, sizes, place, is_behind)
                places.append(place)
                sizes.append(size)
                total += size
            next_offset = first + len(entries.places)
            if len(places) >= count_max:
                break
        if sight is None:
            return self._nothing_there(queue, queue_offset)
        if not places:
            least, most = queue.min_offset, queue.max_offset
            return ReadResult(ReadStatus.NO_MATCHED_MESSAGE, next_offset, least, most, [])
        following = take_apart(queue.entries(next_offset, 1)).places
        return self._found(queue, next_offset, places, sizes, following[0] if following else -1, is_behind)

    def _blocks(self, queue: ConsumeQueue, queue_offset: int, count: int) -> Iterator[tuple[int, Entries]]:
        """Up to `count` entries, block by block: a queue offset, and the entries from there on."""
        end = queue_offset + count
        while queue_offset < end:
            size = min(end - queue_offset, FILTERED_BLOCK_ENTRIES - queue_offset % FILTERED_BLOCK_ENTRIES)
            entries = take_apart(queue.entries(queue_offset, size))
            if not entries.places:
                break
            yield queue_offset, entries
            queue_offset += len(entries.places)


class _Sight:
    """Records one after the other, out of one view for many of them."""

    def __init__(self, log: CommitLog, is_behind: bool) -> None:
        self._log = log
        self._is_behind = is_behind
        self._view: memoryview | None = None
        self._start = self._end = 0

    def record(self, place: int, size: int) -> bytes | memoryview:
        view, at = self._view, place - self._start
        if view is not None and at >= 0 and place + size <= self._end:
            return view[at : at + size]
        self._look_at(place)
        if self._view is None or place + size > self._end:
            return self._log.read(size, place)
        return self._view[:size]

    def _look_at(self, place: int) -> None:
        self._start, self._end = place, min(place + _SCAN_VIEW_BYTES, self._log.end)
        is_there = not self._is_behind and self._end > place >= self._log.start
        self._view = self._log.view(self._end - place, place) if is_there else None


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
