"""Entries of the consume queues, taken apart some way ahead: whoever reads a queue comes back for the next.

    (queue, number of the block)  ->  places, sizes, tag codes of its 256 entries

An entry never changes once it is visible, so a full block stays right until it is let go. What is in no full
block, the last entries of a queue, is read from the file each time.
"""

from __future__ import annotations

from typing import NamedTuple

from kourou.store.config import ENTRY_BYTES
from kourou.store.consume_queue import ConsumeQueue, entries_struct

BLOCK_ENTRIES = 256
BLOCKS_MAX = 128
"""Some 30 KiB each."""


class Entries(NamedTuple):
    """Entries that follow each other, column by column."""

    places: tuple[int, ...]
    sizes: tuple[int, ...]
    tags: tuple[int, ...]

    def between(self, start: int, stop: int) -> Entries:
        return Entries(self.places[start:stop], self.sizes[start:stop], self.tags[start:stop])

    def followed_by(self, other: Entries) -> Entries:
        return Entries(self.places + other.places, self.sizes + other.sizes, self.tags + other.tags)


def take_apart(entries: bytes) -> Entries:
    numbers = entries_struct(len(entries) // ENTRY_BYTES).unpack_from(entries)
    return Entries(numbers[::3], numbers[1::3], numbers[2::3])


class EntriesAhead:
    def __init__(self, blocks_max: int = BLOCKS_MAX) -> None:
        self._blocks_max = blocks_max
        self._blocks: dict[tuple[ConsumeQueue, int], Entries] = {}

    def entries(self, queue: ConsumeQueue, queue_offset: int, count: int) -> Entries:
        """Up to `count` entries; fewer at the end of the queue, and where a file of it is missing."""
        number, start = divmod(queue_offset, BLOCK_ENTRIES)
        block = self._blocks.get((queue, number)) or self._block(queue, number)
        if block is None:
            return take_apart(queue.entries(queue_offset, count))
        stop = start + count
        found = block.between(start, stop)
        if stop <= BLOCK_ENTRIES:
            return found
        rest = self.entries(queue, (number + 1) * BLOCK_ENTRIES, stop - BLOCK_ENTRIES)
        return found.followed_by(rest)

    def _block(self, queue: ConsumeQueue, number: int) -> Entries | None:
        """The block if it is full and all there."""
        first = number * BLOCK_ENTRIES
        if first < queue.min_offset or first + BLOCK_ENTRIES > queue.max_offset:
            return None
        data = queue.entries(first, BLOCK_ENTRIES)
        if len(data) < BLOCK_ENTRIES * ENTRY_BYTES:
            return None
        if len(self._blocks) >= self._blocks_max:
            del self._blocks[next(iter(self._blocks))]
        block = self._blocks[queue, number] = take_apart(data)
        return block
