"""Messages due later, by time: when, and where in the log.

    near   a heap of numbers, time << 64 | place        due within the next ten or twenty minutes
    far    ten minutes each, an array of pairs          in no order, 16 bytes a timer, until they come near

A timer costs O(1) to take in and O(log near) to give out, and a million of them some 20 MB, or 60 MB when all
are due within minutes. Ten minutes that come near are moved in small parts, so that nobody waits for it.

All this can be built again from the consume queue of the timer topic. So that a start need not, it is written
to `timers/pending` now and then:

    magic 8 bytes | version u32 | CRC-32 of all that follows u32 | queue offset i64 | count i64
    time i64 | place i64                                                              count times

`queue offset` says which messages are taken into account: all before it. What is written down may be older
than the log, or after a power cut newer: whoever takes out a place looks at the record there before use.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from struct import Struct
from typing import Final

from kourou.errors import Corrupt
from kourou.protocol.checksum import crc32

SLOT_MS: Final = 600_000
AHEAD_MS: Final = SLOT_MS
"""A slot is moved near so long before its first timer can be due."""

_PLACE_BITS: Final = 64
_PLACE_MASK: Final = (1 << _PLACE_BITS) - 1
_MAGIC: Final = b"KOUROUTM"
_VERSION: Final = 1
_HEAD: Final = Struct(">8sIIqq")
_CHECKED_FROM: Final = 16
_PAIR: Final = Struct(">qq")
_ENCODED_A_TIME: Final = 4_096


def key_of(due_ms: int, place: int) -> int:
    """One number for a timer; earlier ones are smaller."""
    return due_ms << _PLACE_BITS | place


def time_and_place(key: int) -> tuple[int, int]:
    return key >> _PLACE_BITS, key & _PLACE_MASK


class PendingTimers:
    def __init__(self) -> None:
        self._near: list[int] = []
        self._near_slots_end = 0  # timers of slots before this one go into the heap
        self._far: dict[int, array[int]] = {}
        self._far_slots: list[int] = []  # a heap: which slot comes next
        self._moving: array[int] = array("q")
        self._moved = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, due_ms: int, place: int) -> None:
        self._count += 1
        slot = due_ms // SLOT_MS
        if slot < self._near_slots_end:
            heappush(self._near, due_ms << _PLACE_BITS | place)
            return
        pairs = self._far.get(slot)
        if pairs is None:
            pairs = self._far[slot] = array("q")
            heappush(self._far_slots, slot)
        pairs.append(due_ms)
        pairs.append(place)

    def give_back(self, keys: Iterable[int]) -> None:
        """What was taken out is still to be done."""
        for key in keys:
            heappush(self._near, key)
            self._count += 1

    def prepare(self, now_ms: int, most: int) -> None:
        """Move up to `most` timers near, of those that soon may be due."""
        end = (now_ms + AHEAD_MS) // SLOT_MS + 1
        while most > 0:
            if not self._is_moving:
                if not self._far_slots or self._far_slots[0] >= end:
                    self._near_slots_end = max(self._near_slots_end, end)
                    return
                slot = heappop(self._far_slots)
                self._moving, self._moved = self._far.pop(slot), 0
                self._near_slots_end = max(self._near_slots_end, slot + 1)
            part = self._moving[self._moved : self._moved + 2 * most]
            near = self._near
            for due_ms, place in zip(part[::2], part[1::2], strict=True):
                heappush(near, due_ms << _PLACE_BITS | place)
            self._moved += len(part)
            most -= len(part) // 2
            if not self._is_moving:
                self._moving, self._moved = array("q"), 0

    @property
    def _is_moving(self) -> bool:
        return self._moved < len(self._moving)

    def take_due(self, now_ms: int, most: int) -> list[int]:
        """The earliest timers up to now, in order; none while earlier ones may still have to be moved."""
        keys: list[int] = []
        near = self._near
        end = self._known_until(now_ms)
        while near and len(keys) < most and near[0] < end:
            key = heappop(near)
            self._count -= 1
            if not keys or keys[-1] != key:  # indexed twice, after a crash
                keys.append(key)
        return keys

    def _known_until(self, now_ms: int) -> int:
        until = key_of(now_ms + 1, 0)
        if self._is_moving:
            until = min(until, key_of(self._moving[self._moved] // SLOT_MS * SLOT_MS, 0))
        if self._far_slots:
            until = min(until, key_of(self._far_slots[0] * SLOT_MS, 0))
        return until

    def next_ms(self) -> int | None:
        """When there is something to do: a timer due, or a slot to be moved; None when nothing is pending."""
        times = []
        if self._is_moving:
            times.append(0)
        if self._near:
            times.append(self._near[0] >> _PLACE_BITS)
        if self._far_slots:
            times.append(self._far_slots[0] * SLOT_MS - AHEAD_MS)
        return min(times, default=None)

    def places(self) -> array[int]:
        """Where in the log those lie who wait, in no order."""
        places = array("q", [key & _PLACE_MASK for key in self._near])
        for pairs in self._far.values():
            places.extend(pairs[1::2])
        places.extend(self._moving[self._moved + 1 :: 2])
        return places

    @property
    def first_ms(self) -> int | None:
        """When the first one of those that are near is due."""
        return self._near[0] >> _PLACE_BITS if self._near else None

    @property
    def floor(self) -> int | None:
        """No pending timer is before this key."""
        floors = []
        if self._near:
            floors.append(self._near[0])
        if self._is_moving:
            floors.append(key_of(self._moving[self._moved] // SLOT_MS * SLOT_MS, 0))
        if self._far_slots:
            floors.append(key_of(self._far_slots[0] * SLOT_MS, 0))
        return min(floors, default=None)

    def frozen(self, queue_offset: int, also: Iterable[int] = ()) -> Callable[[], bytes]:
        """Makes the file's content as of now, with the keys of `also`; may be called on another thread."""
        keys = [*self._near, *also]
        arrays = [pairs[:] for pairs in self._far.values()]
        arrays.append(self._moving[self._moved :])

        def encoded() -> bytes:
            count = len(keys) + sum(map(len, arrays)) // 2
            data = bytearray(_HEAD.size + count * _PAIR.size)
            at = _HEAD.size
            for part in _encoded_parts(keys, arrays):
                data[at : at + len(part)] = part
                at += len(part)
            _HEAD.pack_into(data, 0, _MAGIC, _VERSION, 0, queue_offset, count)
            crc = crc32(memoryview(data)[_CHECKED_FROM:])
            _HEAD.pack_into(data, 0, _MAGIC, _VERSION, crc, queue_offset, count)
            return bytes(data)

        return encoded


def _encoded_parts(keys: list[int], arrays: list[array[int]]) -> Iterator[bytes]:
    """In small parts: a million timers that are near must not take three times their room to be written."""
    for start in range(0, len(keys), _ENCODED_A_TIME):
        yield b"".join([key.to_bytes(_PAIR.size, "big") for key in keys[start : start + _ENCODED_A_TIME]])
    for pairs in arrays:
        if sys.byteorder == "little":
            pairs.byteswap()
        yield pairs.tobytes()


def read_timers(data: bytes) -> tuple[int, Iterator[tuple[int, int]]]:
    """What `frozen` wrote: the queue offset, and the times and places. Raises Corrupt."""
    view = memoryview(data)
    if len(data) >= _HEAD.size:
        magic, version, crc, queue_offset, count = _HEAD.unpack_from(data)
        pairs = view[_HEAD.size :]
        is_ours = (magic, version, count * _PAIR.size) == (_MAGIC, _VERSION, len(pairs))
        if is_ours and crc == crc32(view[_CHECKED_FROM:]):
            return queue_offset, _PAIR.iter_unpack(pairs)
    raise Corrupt(f"{len(data)} bytes that are no list of pending timers")
