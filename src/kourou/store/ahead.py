"""Records of a queue, gathered some way ahead of its readers: they come back for the next, and are not alone.

    (queue, number of a block, filter)  ->  those of its entries that the filter wants, records joined

The records of one queue lie between those of others. Whoever reads them has to pick them out; the second one
to come, another group or another member with the same filter, finds them side by side. So does a filter
whatever it has looked at before, and an SQL92 expression is asked once about each message.

A record and its entry never change once they are visible, so what was gathered stays right; whether it is
still to be had is for the reader to ask (`Reader`). What stands for no message of its own, lies far behind,
over two files or is large is not gathered: `stretch` gives None, and there is another way.

Gathering pays for itself with the second reader. Where each message is read but once, or so much is read at
the same time that it is let go before anybody comes back, whole blocks are soon left alone, all but a few
that show when this has changed. With a filter it always pays: many are looked at together.

Where a whole reply is made in one copy (`Replies`), no records are gathered. Kept for that are the entries
themselves, many at a time, and what an expression said of each message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate, compress
from operator import eq
from struct import Struct
from typing import NamedTuple

from kourou.store.commit_log import CommitLog
from kourou.store.config import ENTRY_BYTES
from kourou.store.consume_queue import ENTRY, ConsumeQueue, entries_struct

BLOCK_ENTRIES = 64
FILTERED_BLOCK_ENTRIES = 256
"""More, because less is wanted of them."""
KEPT_BYTES_MAX = 16 << 20
STRETCH_BYTES_MAX = 512 << 10
ENTRIES_TOGETHER = 1024
ENTRIES_KEPT_MAX = 512
"""So many entries of a queue are read at once, and so many times that kept, for `Replies`: 10 MiB."""
VERDICTS_KEPT_MAX = 2048
"""What expressions said of so many blocks is kept, for `Replies`: 1 MiB, and the expressions."""
_SPAN_BYTES_MAX = 8 << 20
_STRETCH_OVERHEAD_BYTES = 1024
_MESSAGE_OVERHEAD_BYTES = 96
"""What a stretch takes besides its records and entries: objects and numbers."""
CREDIT_MAX = 64
"""After so many stretches in a row that were of no use, blocks are left alone."""
TRIED_OF = 16
"""One in so many blocks left alone is gathered all the same."""
_EXT_ADDRESS_MAX = -2147483649  # at or below it a tag code is a place in consumequeue_ext: the tag is unknown
_NO_TAG_BELOW = -(1 << 63) - 1
_unpack_entry = ENTRY.unpack_from

Accepts = Callable[[Sequence[bytes | memoryview]], Sequence[bool]]
"""Says of each of these whole records whether the reader wants it: always the same of the same one, because
it is asked once for all who read with it. It must not keep them."""

TagCodes = frozenset[int] | None


class Entries(NamedTuple):
    """Entries that follow each other, column by column."""

    places: tuple[int, ...]
    sizes: tuple[int, ...]
    tags: tuple[int, ...]


def take_apart(entries: bytes) -> Entries:
    numbers = entries_struct(len(entries) // ENTRY_BYTES).unpack_from(entries)
    return Entries(numbers[::3], numbers[1::3], numbers[2::3])


def places_and_sizes(entries: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """As `take_apart`, for whoever asks for no tags."""
    numbers = _columns_struct("qi8x", len(entries) // ENTRY_BYTES).unpack_from(entries)
    return numbers[::2], numbers[1::2]


@lru_cache(maxsize=128)
def _columns_struct(columns: str, count: int) -> Struct:
    """Takes only these columns out of `count` entries."""
    return Struct(">" + columns * count)


class Stretch:
    """What a filter wants of one block: message i is `data[ends[i]:ends[i + 1]]`."""

    __slots__ = ("_entries", "data", "ends", "kept_bytes", "log_start", "queue_offsets", "served")

    def __init__(
        self, entries: bytes, queue_offsets: Sequence[int], sizes: Sequence[int], data: bytes
    ) -> None:
        self._entries = entries
        self.queue_offsets = queue_offsets
        self.ends = list(accumulate(sizes, initial=0))
        self.data = memoryview(data)
        self.kept_bytes = (
            len(data) + len(entries) + _STRETCH_OVERHEAD_BYTES + _MESSAGE_OVERHEAD_BYTES * len(sizes)
        )
        self.served = 0
        """Messages taken out of it so far."""
        self.log_start = self.place(0) if entries else 0
        """Nothing of it lies before that place in the log."""

    def place(self, index: int) -> int:
        """Where in the log the record of an entry of the block lies, wanted or not."""
        place: int = ENTRY.unpack_from(self._entries, index * ENTRY_BYTES)[0]
        return place


_NEVER = Stretch(b"", (), (), b"")
"""Stands for what has been found to be no block to be gathered, for good."""


class RecordsAhead:
    """The last stretches that were asked for, `kept_bytes_max` together."""

    def __init__(
        self,
        log: CommitLog,
        in_memory_bytes: int,
        tags_may_be_elsewhere: bool,
        kept_bytes_max: int = KEPT_BYTES_MAX,
    ) -> None:
        self._log = log
        self._in_memory_bytes = in_memory_bytes
        self._tags_may_be_elsewhere = tags_may_be_elsewhere
        self._kept_bytes_max = kept_bytes_max
        self._kept: dict[tuple[ConsumeQueue, int, TagCodes, Accepts | None], Stretch] = {}
        self._kept_bytes = 0
        self.kept_entries: dict[tuple[ConsumeQueue, int], bytes] = {}
        """`ENTRIES_TOGETHER` of a queue, by their number; read freely, changed only here."""
        self._verdicts: dict[tuple[ConsumeQueue, int, Accepts], bytes] = {}
        self._credit = CREDIT_MAX
        self._left_alone = 0

    def stretch(
        self, queue: ConsumeQueue, number: int, wanted: TagCodes, accepts: Accepts | None
    ) -> Stretch | None:
        """What is wanted of block `number`; None when it has to be read in the plain way."""
        key = (queue, number, wanted, accepts)
        stretch = self._kept.get(key)
        if stretch is None:
            if wanted is None and accepts is None and not self._is_worth_it():
                return None
            stretch = self._gather(queue, number, wanted, accepts)
            if stretch is None:
                return None
            self._keep(key, stretch)
        return None if stretch is _NEVER else stretch

    def forget(self, queue: ConsumeQueue) -> None:
        """An entry of this queue was corrected (`mending.py`)."""
        for key in [key for key in self._kept if key[0] is queue]:
            self._kept_bytes -= self._kept.pop(key).kept_bytes
        for place in [place for place in self.kept_entries if place[0] is queue]:
            del self.kept_entries[place]
        for asked in [asked for asked in self._verdicts if asked[0] is queue]:
            del self._verdicts[asked]

    def entries(self, queue: ConsumeQueue, queue_offset: int, count: int) -> tuple[bytes, int]:
        """So many entries from that one on, if the queue has them, perhaps in the midst of others; and which
        of them is the first. 0.4 us when they are kept, where to read them takes 3; bench: pull."""
        number, first = divmod(queue_offset, ENTRIES_TOGETHER)
        if first + count <= ENTRIES_TOGETHER:
            entries = self.kept_entries.get((queue, number)) or self._read_together(queue, number)
            if entries is not None:
                return entries, first
        return queue.entries(queue_offset, count), 0

    def _read_together(self, queue: ConsumeQueue, number: int) -> bytes | None:
        """A whole block of entries; None when the queue has not got all of it."""
        first = number * ENTRIES_TOGETHER
        if first < queue.min_offset or first + ENTRIES_TOGETHER > queue.max_offset:
            return None
        entries = queue.entries(first, ENTRIES_TOGETHER)
        if len(entries) < ENTRIES_TOGETHER * ENTRY_BYTES:
            return None  # a file of the queue is missing
        self.kept_entries[queue, number] = entries
        if len(self.kept_entries) > ENTRIES_KEPT_MAX:
            del self.kept_entries[next(iter(self.kept_entries))]
        return entries

    def verdicts(self, queue: ConsumeQueue, number: int, accepts: Accepts) -> bytes | None:
        """Which entries of block `number` are accepted, a byte for each that the queue has: 0 for one that is
        not. None when they cannot all be seen now."""
        key = (queue, number, accepts)
        verdicts = self._verdicts.get(key, b"")
        if len(verdicts) == FILTERED_BLOCK_ENTRIES:
            return verdicts
        first = number * FILTERED_BLOCK_ENTRIES
        if first < queue.min_offset:
            return None
        count = min(FILTERED_BLOCK_ENTRIES, queue.max_offset - first) - len(verdicts)
        if count > 0:
            records = self._records(queue, first + len(verdicts), count)
            if records is None:
                return None
            verdicts = self._verdicts[key] = verdicts + bytes(map(bool, accepts(records)))
            if len(self._verdicts) > VERDICTS_KEPT_MAX:
                del self._verdicts[next(iter(self._verdicts))]
        return verdicts

    def _records(self, queue: ConsumeQueue, queue_offset: int, count: int) -> list[memoryview] | None:
        """All of these, if they can be seen."""
        entries = queue.entries(queue_offset, count)
        if len(entries) < count * ENTRY_BYTES or not self._is_near(entries):
            return None
        return self._slices(*places_and_sizes(entries))

    def _is_near(self, entries: bytes) -> bool:
        """Whether the first of them leads to what is there, and not far behind."""
        place = _unpack_entry(entries)[0]
        return bool(place >= self._log.start and self._log.end - place <= self._in_memory_bytes)

    def _keep(self, key: tuple[ConsumeQueue, int, TagCodes, Accepts | None], stretch: Stretch) -> None:
        self._kept[key] = stretch
        self._kept_bytes += stretch.kept_bytes
        while self._kept_bytes > self._kept_bytes_max:
            oldest = self._kept.pop(next(iter(self._kept)))
            self._kept_bytes -= oldest.kept_bytes
            self._learn_from(oldest)

    def _is_worth_it(self) -> bool:
        if not self._credit:
            self._left_alone += 1
            return self._left_alone % TRIED_OF == 0
        return True

    def _learn_from(self, stretch: Stretch) -> None:
        """Was a whole block, now let go, of use to more than one reader?"""
        if isinstance(stretch.queue_offsets, range):
            is_paid = stretch.served * 2 > len(stretch.queue_offsets) * 3
            self._credit = min(CREDIT_MAX, self._credit + 4) if is_paid else max(0, self._credit - 1)

    def _gather(
        self, queue: ConsumeQueue, number: int, wanted: TagCodes, accepts: Accepts | None
    ) -> Stretch | None:
        """None when it cannot be had now."""
        is_all = wanted is None and accepts is None
        count = BLOCK_ENTRIES if is_all else FILTERED_BLOCK_ENTRIES
        first = number * count
        if first < queue.min_offset or first + count >= queue.max_offset:
            return None
        entries = queue.entries(first, count + 1)  # one more shows a mere copy
        if len(entries) <= count * ENTRY_BYTES or not self._is_near(entries):
            return None  # a file of the queue is missing, or it lies far behind
        if is_all:
            return self._gather_all(first, entries)
        return self._gather_some(first, entries, wanted, accepts)

    def _gather_all(self, first: int, entries: bytes) -> Stretch | None:
        """30 us for 64 messages, most of it for the slices; bench: pull."""
        places, sizes = places_and_sizes(entries)
        if len(set(places)) < len(places):
            return _NEVER
        places, sizes = places[:-1], sizes[:-1]
        total = sum(sizes)
        if total > STRETCH_BYTES_MAX:
            return _NEVER
        data = self._joined(places, sizes, total)
        if data is None:
            return None
        return Stretch(entries, range(first, first + BLOCK_ENTRIES), sizes, data)

    def _gather_some(
        self, first: int, entries: bytes, wanted: TagCodes, accepts: Accepts | None
    ) -> Stretch | None:
        indexes: Sequence[int] = range(FILTERED_BLOCK_ENTRIES)
        places: Sequence[int]
        sizes: Sequence[int]
        if wanted is None:
            places, sizes = places_and_sizes(entries[:-ENTRY_BYTES])
        else:  # few: not all entries are taken apart for them
            tags = _columns_struct("12xq", FILTERED_BLOCK_ENTRIES).unpack_from(entries)
            indexes = list(matching(tags, wanted, self._tags_may_be_elsewhere))
            rows = [_unpack_entry(entries, at * ENTRY_BYTES) for at in indexes]
            places, sizes = [row[0] for row in rows], [row[1] for row in rows]
        if accepts is not None:
            records = self._slices(places, sizes)
            if records is None:
                return None
            is_wanted = accepts(records)
            indexes, places, sizes = (list(compress(each, is_wanted)) for each in (indexes, places, sizes))
        total = sum(sizes)
        following = [_unpack_entry(entries, (at + 1) * ENTRY_BYTES)[0] for at in indexes]
        if total > STRETCH_BYTES_MAX or any(map(eq, places, following)):
            return _NEVER
        data = self._joined(places, sizes, total)
        return None if data is None else Stretch(entries, [first + at for at in indexes], sizes, data)

    def _joined(self, places: Sequence[int], sizes: Sequence[int], total: int) -> bytes | None:
        """The records that lie there; None when there is no view of all of them."""
        records = self._slices(places, sizes)
        data = None if records is None else b"".join(records)
        return data if data is not None and len(data) == total else None

    def _slices(self, places: Sequence[int], sizes: Sequence[int]) -> list[memoryview] | None:
        if not places:
            return []
        start = places[0]
        span = places[-1] + sizes[-1] - start
        view = self._log.view(span, start) if 0 < span <= _SPAN_BYTES_MAX else None
        if view is None:
            return None
        return [view[(at := place - start) : at + size] for place, size in zip(places, sizes, strict=True)]


def matching(
    tags: Sequence[int], wanted: frozenset[int], tags_may_be_elsewhere: bool = False
) -> Iterator[int]:
    """Which of the entries with these tag codes may be of a wanted tag, ascending.

    Hashes collide, so the consumer compares the tag itself; a broker only has to be right about what it
    leaves out. With `tags_may_be_elsewhere` (consumequeue_ext) a tag code can be an address: unknown.
    """
    if len(wanted) == 1 and not tags_may_be_elsewhere:
        return _with_tag(tags, *wanted)
    least = _EXT_ADDRESS_MAX if tags_may_be_elsewhere else _NO_TAG_BELOW
    return (index for index, tag in enumerate(tags) if tag in wanted or tag <= least)


def _with_tag(tags: Sequence[int], tag: int) -> Iterator[int]:
    """One tag by `index`: a third of the time of looking at each."""
    at, end = -1, len(tags)
    with suppress(ValueError):
        while at < end:
            at = tags.index(tag, at + 1)
            yield at
