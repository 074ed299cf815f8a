"""Does the key index say of the log what the log says of itself?

Entries lie in the index in the order of their records in the log. So the two are read side by side: the
records' keys and times, as they go by, against the next entries. Beside that every file is played again from
its first entry on, as it was written: each entry names the one that was the newest of its slot before it, and
at the end slots and header must be those on the disk.

An index may be behind the log (a start catches up), begin later than it, and hold an entry twice, after a
crash. That is no fault.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from struct import Struct
from sys import byteorder
from typing import NamedTuple

from kourou.doors.files import File, Files
from kourou.store.checkpoint import IndexMark
from kourou.store.findings import ERROR, NOTE, Finding, RebuildIndex, Report
from kourou.store.index_file import ENTRY, HEADER, Header, Shape, seconds_after

_ENTRIES_A_READING = 8192
_SLOTS_A_READING = 1 << 18
_SLOT_BYTES = 4
_KEYS_A_MESSAGE = 64


class _Block(NamedTuple):
    """Some entries of one file, one after the other."""

    path: str
    first: int
    hashes: tuple[int, ...]
    places: tuple[int, ...]
    seconds: tuple[int, ...]
    header: Header
    before_ms: int | None
    """When the last message of the file before was stored, 0 when there is none; None: nothing tells."""

    def time_faults(self, at: int, stored_ms: Sequence[int]) -> Iterator[tuple[int, str]]:
        """What entries and header say of times, and is wrong: entries from `at` on are of these."""
        begin_ms, header = self.header.begin_ms, self.header
        due = [seconds_after(begin_ms, ms) for ms in stored_ms]
        number = self.first + at
        if number == 1:
            if stored_ms[0] != begin_ms:
                yield 0, "the header has another time than the first message"
            due[0] = (
                self.seconds[0] if self.before_ms is None else seconds_after(self.before_ms, stored_ms[0])
            )
        if number + len(due) == header.count and stored_ms[-1] != header.end_ms:
            yield 0, "the header has another time than the last message"
        found = self.seconds[at : at + len(due)]
        if found != tuple(due):
            for index, (seconds, right) in enumerate(zip(found, due, strict=True)):
                if seconds != right and not (stored_ms[index] == begin_ms and seconds == self._by_former()):
                    yield number + index, "has another time than its message"

    def _by_former(self) -> int | None:
        """What entries beside the first one, of its moment, say when an older Kourou has made the file: it
        timed all of them by the file before. None when that is not known."""
        if self.before_ms is not None:
            return seconds_after(self.before_ms, self.header.begin_ms)
        return self.seconds[0] if self.first == 1 else None


_NO_BLOCK = _Block("", 0, (), (), (), Header(), None)


@dataclass
class _Fault:
    file: str
    offset: int
    what: str
    is_late: bool
    """The next start builds this file again anyway."""
    count: int = 1


class IndexCheck:
    """The index, while the log goes by: `take` the keys of its records, in order; then `finish`."""

    def __init__(
        self,
        files: Files,
        root: str,
        shape: Shape,
        mark: IndexMark | None,
        is_closed: bool,
        *,
        log_is_whole: bool,
    ) -> None:
        """`log_is_whole`: it has its first byte still, so no file of the index has gone with its messages."""
        self._files = files
        self._root = root
        self._shape = shape
        self._mark = mark
        self._is_closed = is_closed
        self._names = files.list(f"{root}/index")
        self._faults: dict[tuple[str, str], _Fault] = {}
        self._blocks = self._read_all()
        self._block = _NO_BLOCK
        self._before_ms = 0 if log_is_whole else None
        self._at = 0  # in the block
        self._first_place: int | None = None
        self._before = 0  # keys of messages before the first that is in the index
        self._lost = 0
        self._lost_place = 0
        self._behind = 0  # keys of messages after the last one
        self._behind_place = 0
        self._entries = 0

    # The log goes by.

    def take(self, hashes: list[int], places: list[int], times: dict[int, int]) -> None:
        """The hashes of keys, and the place of each one's record; by place, when a record was stored."""
        at, count = 0, len(hashes)
        while at < count:
            if not self._has_more():
                self._behind_place = self._behind_place if self._behind else places[at]
                self._behind += count - at
                return
            block, start = self._block, self._at
            step = min(count - at, len(block.hashes) - start)
            if block.places[start : start + step] == tuple(places[at : at + step]) and block.hashes[
                start : start + step
            ] == tuple(hashes[at : at + step]):
                self._compare_times([times[place] for place in places[at : at + step]])
                at += step
                self._at += step
            else:
                at = self._compare_each(hashes, places, times, at, at + step)

    def _has_more(self) -> bool:
        while self._at >= len(self._block.hashes):
            block = next(self._blocks, None)
            if block is None:
                return False
            self._block, self._at = block, 0
            if self._first_place is None and block.places:
                self._first_place = block.places[0]
        return True

    def _compare_times(self, stored_ms: Sequence[int]) -> None:
        """The next entries are of messages that were stored then."""
        path = self._block.path
        for number, what in self._block.time_faults(self._at, stored_ms):
            if number:
                self._blame(path, self._shape.entry_at(number), what, number)
            else:
                self._blame(path, 0, what)

    def _compare_each(
        self, hashes: list[int], places: list[int], times: dict[int, int], at: int, end: int
    ) -> int:
        """Entry by entry, as far as this block goes; returns which key is due next."""
        while at < end and self._at < len(self._block.hashes):
            key_hash, place = self._block.hashes[self._at], self._block.places[self._at]
            if (key_hash, place) == (hashes[at], places[at]):
                self._compare_times((times[place],))
                at += 1
                self._at += 1
            elif place > places[at]:
                self._note_lost(places[at])
                at += 1
            elif place < places[at]:
                self._at += 1  # of a message that has gone by, or is gone: readers look at the message itself
            elif (found := self._among_the_keys(key_hash, place, hashes, places, at)) is not None:
                for _ in range(found - at):
                    self._note_lost(place)
                at = found
            else:
                number = self._block.first + self._at
                self._blame(
                    self._block.path, self._shape.entry_at(number), "names no key of its message", number
                )
                self._at += 1
        return at

    def _among_the_keys(
        self, key_hash: int, place: int, hashes: list[int], places: list[int], at: int
    ) -> int | None:
        for index in range(at, min(at + _KEYS_A_MESSAGE, len(hashes))):
            if (hashes[index], places[index]) == (key_hash, place):
                return index
        return None

    def _note_lost(self, place: int) -> None:
        if self._first_place is not None and place < self._first_place:
            self._before += 1
            return
        self._lost_place = self._lost_place if self._lost else place
        self._lost += 1

    # The files.

    def _read_all(self) -> Iterator[_Block]:
        for name in self._names:
            if self._is_closed or self._mark is None or int(name) <= self._mark.name:
                path = f"{self._root}/index/{name}"
                with closing(self._files.open(path, read_only=True)) as file:
                    yield from self._read(path, file)

    def _read(self, path: str, file: File) -> Iterator[_Block]:
        header = Header(*HEADER.unpack(file.pread(HEADER.size, 0)))
        if not 1 <= header.count <= self._shape.entries:
            self._blame(path, HEADER.size - _SLOT_BYTES, f"the header counts {header.count} entries")
            self._before_ms = None
            return
        count = header.count
        mark = self._mark
        if not self._is_closed and mark is not None and int(path.rpartition("/")[2]) == mark.name:
            count = min(count, mark.next_entry)
        newest = array("i", bytes(self._shape.slots * _SLOT_BYTES))
        for first in range(1, count, _ENTRIES_A_READING):
            number = min(_ENTRIES_A_READING, count - first)
            data = file.pread(number * ENTRY.size, self._shape.entry_at(first))
            numbers = Struct(">" + "iqii" * number).unpack(data)
            hashes = numbers[0::4]
            self._play(path, first, hashes, numbers[3::4], newest)
            self._entries += number
            yield _Block(path, first, hashes, numbers[1::4], numbers[2::4], header, self._before_ms)
        self._compare_slots(path, file, newest, count if count < header.count else None)
        self._compare_header(path, file, header, newest if count == header.count else None)
        self._before_ms = header.end_ms

    def _compare_header(self, path: str, file: File, header: Header, newest: array[int] | None) -> None:
        """`newest` are the slots, if the header speaks of them. It is written after the entries it counts."""
        if header.count <= 1:
            return
        ends = [
            ENTRY.unpack(file.pread(ENTRY.size, self._shape.entry_at(each)))[1]
            for each in (1, header.count - 1)
        ]
        if [header.begin_place, header.end_place] != ends:
            self._blame(path, 0, "the header has other places than its first and last entry")
        if newest is not None and header.slots_used != len(newest) - newest.count(0):
            self._blame(path, 0, f"the header counts {header.slots_used} slots in use")

    def _play(
        self, path: str, first: int, hashes: tuple[int, ...], olders: tuple[int, ...], newest: array[int]
    ) -> None:
        """Put the entries in once more, and see whether they say the same."""
        slots = self._shape.slots
        for number, (key_hash, older) in enumerate(zip(hashes, olders, strict=True), first):
            slot = key_hash % slots
            if newest[slot] != older:
                at = self._shape.entry_at(number)
                self._blame(path, at, "leads back to an entry of another slot", number)
            newest[slot] = number

    def _compare_slots(self, path: str, file: File, newest: array[int], ahead_from: int | None) -> None:
        """The slots on the disk must be those of `newest`. While they are written the header is ahead of the
        mark, and so may they be: `ahead_from` is the first entry that is not vouched for."""
        for first in range(0, len(newest), _SLOTS_A_READING):
            expected = newest[first : first + _SLOTS_A_READING]
            slots = array("i", file.pread(len(expected) * _SLOT_BYTES, HEADER.size + first * _SLOT_BYTES))
            if byteorder == "little":
                slots.byteswap()
            if slots == expected:
                continue
            for index, (value, due) in enumerate(zip(slots, expected, strict=True)):
                if value != due and (ahead_from is None or value < ahead_from):
                    at = HEADER.size + (first + index) * _SLOT_BYTES
                    self._blame(path, at, "slots that lead to other entries than they should")

    def _blame(self, path: str, offset: int, what: str, number: int | None = None) -> None:
        file = path.removeprefix(self._root + "/")
        fault = self._faults.get((file, what))
        if fault is None:
            # With a mark, what it does not vouch for was not looked at; without, the newest is made anew.
            is_late = not self._is_closed and self._mark is None and path.endswith(self._names[-1])
            shown = what if number is None else f"entry {number} {what}"
            self._faults[file, what] = _Fault(file, offset, shown, is_late)
        else:
            fault.count += 1

    # The log has ended.

    def finish(self, report: Report) -> None:
        while self._has_more():  # what no record asks for has still to be played again
            self._at = len(self._block.hashes)
        report.index_entries = self._entries
        for fault in self._faults.values():
            more = f", and {fault.count - 1} more like it" if fault.count > 1 else ""
            report.findings.append(
                Finding(
                    severity=NOTE if fault.is_late else ERROR,
                    file=fault.file,
                    offset=fault.offset,
                    what=fault.what + more,
                    meaning="the next start builds it again"
                    if fault.is_late
                    else "messages are not found by their keys",
                    action=None if fault.is_late else RebuildIndex(),
                )
            )
        self._tell_what_is_not_there(report)

    def _tell_what_is_not_there(self, report: Report) -> None:
        mark = self._mark
        if self._lost:
            report.findings.append(
                _absent(f"{self._lost} keys of messages from {self._lost_place} on are missing", ERROR)
            )
        if self._before:
            what = f"{self._before} keys of messages before {self._first_place} are missing"
            report.findings.append(_absent(what, NOTE if mark is None else ERROR))
        if self._behind:
            what = f"{self._behind} keys of messages from {self._behind_place} on are missing"
            is_known = mark is None or mark.end <= self._behind_place or not self._is_closed
            report.findings.append(_absent(what, NOTE if is_known else ERROR))


def _absent(what: str, severity: str) -> Finding:
    if severity == NOTE:
        meaning = "a start of Kourou puts them in, if its index is on"
        return Finding(severity=NOTE, file="index", what=what, meaning=meaning)
    return Finding(
        file="index", what=what, meaning="messages are not found by their keys", action=RebuildIndex()
    )
