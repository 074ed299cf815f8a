"""One file of the key index, in RocketMQ's own format.

     0  first message, ms i64 | last message, ms i64 | place of the first i64 | of the last i64
    32  slots in use i32 | next entry i32
    40  slot      number of the newest entry of this slot i32                            `slots` of them
        entry     key hash i32 | place i64 | seconds since the first message i32 | next older entry i32
                  of the very first one: since the last message of the file before

A key's slot is its hash modulo the number of slots; from there a chain of entries leads back in time. Entry 0
is never used: a slot of 0 is empty. The file has its full length from the start, most of it holes.

Entries are written as they come and never change. Slots are kept in memory, page by page, and written by
`save`, and only after the entries they point to have been synced: whatever a crash leaves behind, a slot on
the disk leads to entries that are there. `save` comes in the order

    sync entries · header · sync · slots · sync

so that a header which says more than the checkpoint vouches for tells that some slots may be ahead of it;
`go_back_to` follows their chains back to what is vouched for.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from struct import Struct
from sys import byteorder
from typing import NamedTuple

from kourou.doors.files import File, Files
from kourou.errors import Corrupt
from kourou.native import native
from kourou.store.rows import Rows

HEADER = Struct(">qqqqii")
ENTRY = Struct(">iqii")
_ENTRIES = Rows("iqii")
_SLOT = Struct(">i")
_SLOT_BYTES = 4
_PAGE_BITS = 10
_PAGE_SLOTS = 1 << _PAGE_BITS
_PAGE_BYTES = _PAGE_SLOTS * _SLOT_BYTES
_SECONDS_MAX = 0x7FFF_FFFF
_EMPTY_PAGE = array("i", bytes(_PAGE_BYTES))


class Shape(NamedTuple):
    """How many slots and entries a file has; written down nowhere in it."""

    slots: int
    entries: int

    @property
    def file_bytes(self) -> int:
        return HEADER.size + self.slots * _SLOT_BYTES + self.entries * ENTRY.size

    def entry_at(self, number: int) -> int:
        return HEADER.size + self.slots * _SLOT_BYTES + number * ENTRY.size


@dataclass
class Header:
    begin_ms: int = 0
    end_ms: int = 0
    begin_place: int = 0
    end_place: int = 0
    slots_used: int = 0
    count: int = 1
    """The number the next entry will have: the file is full when there is no room for it."""

    def encode(self) -> bytes:
        return HEADER.pack(
            self.begin_ms, self.end_ms, self.begin_place, self.end_place, self.slots_used, self.count
        )


class Saving(NamedTuple):
    """What `save` has to write; made on the loop's thread, written on another one."""

    path: str
    header: bytes
    runs: list[tuple[int, bytes]]
    """Neighbouring slots: where, and their bytes."""
    pages: set[int]


class IndexFile:
    def __init__(self, files: Files, path: str, shape: Shape, header: Header) -> None:
        self._files = files
        self._file: File | None = None
        self._pages: list[array[int] | None] = []
        self._dirty: set[int] = set()
        self._is_new = False  # no slot of it was ever written
        self.path = path
        self.name = int(path.rpartition("/")[2])
        self.shape = shape
        self.header = header
        self.unsaved = 0
        """Entries that no slot on the disk leads to yet."""

    @classmethod
    def create(cls, files: Files, path: str, shape: Shape, before: Header | None) -> IndexFile:
        """A new file; its times and places begin where those of the file `before` end."""
        file = files.open(path, create=True)
        file.truncate(shape.file_bytes)
        header = Header()
        if before is not None:
            header.begin_ms = header.end_ms = before.end_ms
            header.begin_place = header.end_place = before.end_place
        file.pwrite(header.encode(), 0)
        index_file = cls(files, path, shape, header)
        index_file._file = file
        index_file._is_new = True
        return index_file

    @classmethod
    def load(cls, files: Files, path: str, shape: Shape) -> IndexFile:
        with closing(files.open(path, read_only=True)) as file:
            header = Header(*HEADER.unpack(file.pread(HEADER.size, 0)))
        header.count = min(max(1, header.count), shape.entries)
        return cls(files, path, shape, header)

    @property
    def room(self) -> int:
        return self.shape.entries - self.header.count

    # Writing.

    def add(self, hashes: list[int], places: list[int], stored_ms: int) -> None:
        """Put messages stored at one time under their keys; there must be room for them.

        Raises OSError; then none was added.
        """
        header, slots, pages = self.header, self.shape.slots, self._pages
        if not pages:
            pages += [None] * (slots // _PAGE_SLOTS + 1)
        first = header.count
        seconds = seconds_after(header.begin_ms, stored_ms)
        data, older = _entries(*(hashes, places, first, seconds, slots, _PAGE_BITS, pages, self._load_page))
        if first <= 1 and seconds:
            data = _timed_by_the_first(data)
        try:
            self.file().pwrite(data, self.shape.entry_at(first))
        except OSError:
            for key_hash, number in zip(reversed(hashes), reversed(older), strict=True):
                slot = key_hash % slots
                self._page(slot >> _PAGE_BITS)[slot & (_PAGE_SLOTS - 1)] = number
            raise
        if len(self._dirty) * _PAGE_SLOTS < slots:  # else all are, and there is nothing to note
            self._dirty.update([key_hash % slots >> _PAGE_BITS for key_hash in hashes])
        if first <= 1:
            header.begin_ms, header.begin_place = stored_ms, places[0]
        header.slots_used += older.count(0)
        header.count = first + len(hashes)
        header.end_ms, header.end_place = stored_ms, places[-1]
        self.unsaved += len(hashes)

    def file(self) -> File:
        if self._file is None:
            self._file = self._files.open(self.path)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    # Slots.

    def _page(self, number: int) -> array[int]:
        return self._pages[number] or self._load_page(number)

    def _load_page(self, number: int) -> array[int]:
        if self._is_new:
            page = self._pages[number] = _EMPTY_PAGE[: self.shape.slots - number * _PAGE_SLOTS]
            return page
        page = self._read_page(number)
        if max(page) >= self.header.count or min(page) < 0:  # another broker's, after a crash of its own
            page = array("i", [value if 0 <= value < self.header.count else 0 for value in page])
        self._pages[number] = page
        return page

    def _read_page(self, number: int) -> array[int]:
        """The slots of a page as the disk has them; the last page may be a short one."""
        size = min(_PAGE_BYTES, (self.shape.slots - number * _PAGE_SLOTS) * _SLOT_BYTES)
        page = array("i", self.file().pread(size, HEADER.size + number * _PAGE_BYTES))
        if byteorder == "little":
            page.byteswap()
        return page

    def is_cheap_to_save(self, pages_max: int) -> bool:
        return len(self._dirty) <= pages_max

    def begin_saving(self) -> Saving:
        """Take a copy of all that is not on the disk yet."""
        pages, self._dirty = self._dirty, set()
        self.unsaved = 0
        return Saving(self.path, self.header.encode(), list(self._runs(sorted(pages))), pages)

    def _runs(self, numbers: list[int]) -> Iterator[tuple[int, bytes]]:
        run = array("i")
        for index, number in enumerate(numbers):
            run += self._page(number)
            if index + 1 == len(numbers) or numbers[index + 1] != number + 1:
                if byteorder == "little":
                    run.byteswap()
                first = number + 1 - -(-len(run) // _PAGE_SLOTS)
                yield HEADER.size + first * _PAGE_BYTES, run.tobytes()
                run = array("i")

    def take_back(self, saving: Saving) -> None:
        """It could not be written: it is still to be done."""
        self._dirty |= saving.pages
        self.unsaved += 1

    def forget_slots(self) -> None:
        """The file is full and saved: the disk has it all."""
        self._pages = []
        self._is_new = False

    # Looking up.

    def find(self, key_hash: int, begin_ms: int, end_ms: int, most: int) -> list[int]:
        """Places of messages under this hash, stored between two times, the newest first."""
        number = self._newest(key_hash % self.shape.slots)
        found: list[int] = []
        while 0 < number < self.header.count and len(found) < most:
            entry_hash, place, seconds, older = self.entry(number)
            stored_ms = self.header.begin_ms + seconds * 1000
            if seconds < 0 or stored_ms < begin_ms:
                break
            if entry_hash == key_hash and stored_ms <= end_ms:
                found.append(place)
            if older >= number:
                break
            number = older
        return found

    def _newest(self, slot: int) -> int:
        page = self._pages[slot >> _PAGE_BITS] if self._pages else None
        if page is not None:
            return page[slot & (_PAGE_SLOTS - 1)]
        number: int = _SLOT.unpack(self.file().pread(_SLOT_BYTES, HEADER.size + slot * _SLOT_BYTES))[0]
        return number

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Key hash, place, seconds, next older entry."""
        entry: tuple[int, int, int, int] = ENTRY.unpack(
            self.file().pread(ENTRY.size, self.shape.entry_at(number))
        )
        return entry

    # After a crash.

    def go_back_to(self, count: int, end_ms: int) -> None:
        """Forget the entries from `count` on. Raises Corrupt when the chains do not lead back."""
        if self.header.count == count:
            return
        header = self.header
        # All at once: half a million entries took two seconds one by one, and a start must not.
        ahead = self.file().pread((header.count - count) * ENTRY.size, self.shape.entry_at(count))
        header.count = count
        self._pages = [None] * (self.shape.slots // _PAGE_SLOTS + 1)
        used = 0
        for number in range(-(-self.shape.slots // _PAGE_SLOTS)):
            page = self._read_page(number)
            if max(page) >= count or min(page) < 0:
                for slot, newest in enumerate(page):
                    if not 0 <= newest < count:
                        page[slot] = self._vouched(newest, number * _PAGE_SLOTS + slot, ahead)
                self._pages[number] = page
                self._dirty.add(number)
            used += len(page) - page.count(0)
        header.slots_used = used
        if count > 1:
            header.end_place, header.end_ms = self.entry(count - 1)[1], end_ms
        self.unsaved = 1

    def _vouched(self, number: int, slot: int, ahead: bytes) -> int:
        """The newest entry of a chain that is vouched for; `ahead` are the entries that are not."""
        count = self.header.count
        while number >= count:
            at = (number - count) * ENTRY.size
            key_hash, _, _, older = ENTRY.unpack_from(ahead, at) if at < len(ahead) else (0, 0, 0, number)
            if key_hash % self.shape.slots != slot or not 0 <= older < number:
                raise Corrupt(f"{self.path}: entry {number} does not belong to slot {slot}")
            number = older
        if number < 0:
            raise Corrupt(f"{self.path}: slot {slot} holds {number}")
        return number


def seconds_after(begin_ms: int, stored_ms: int) -> int:
    """What an entry says of its message's time. A file's first one says it of the file before, whose last
    message `begin_ms` is until the file has one of its own; 0 when there is none."""
    return min(max(0, stored_ms - begin_ms) // 1000, _SECONDS_MAX) if begin_ms > 0 else 0


def _timed_by_the_first(data: bytes) -> bytes:
    """The first entries of a file: those beside the very first one are of its time."""
    entries = [ENTRY.unpack_from(data, at) for at in range(0, len(data), ENTRY.size)]
    packed = [ENTRY.pack(key_hash, place, 0, older) for key_hash, place, _, older in entries[1:]]
    return data[: ENTRY.size] + b"".join(packed)


def entries_plainly(
    hashes: list[int],
    places: list[int],
    first: int,
    seconds: int,
    slots: int,
    page_bits: int,
    pages: list[array[int] | None],
    load_page: Callable[[int], array[int]],
) -> tuple[bytes, list[int]]:
    """Put entries from number `first` on into their slots: the entries, packed, and what each slot led to."""
    older: list[int] = []
    for number, key_hash in enumerate(hashes, first):
        slot = key_hash % slots
        page = pages[slot >> page_bits] or load_page(slot >> page_bits)
        within = slot & (1 << page_bits) - 1
        older.append(page[within])
        page[within] = number
    numbers = [seconds] * (4 * len(hashes))
    numbers[0::4], numbers[1::4], numbers[3::4] = hashes, places, older
    return _ENTRIES.pack(numbers), older


_entries = entries_plainly if native is None else native.index_entries


def save(files: Files, saving: Saving) -> None:
    """Bring a file's header and slots to the disk, after its entries. Raises OSError."""
    with closing(files.open(saving.path)) as file:
        file.sync()
        file.pwrite(saving.header, 0)
        if saving.runs:
            file.sync()
            for at, data in saving.runs:
                file.pwrite(data, at)
        file.sync()
