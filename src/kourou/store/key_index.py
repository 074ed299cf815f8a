"""Message key -> places in the log.

    live      a dispatched tick ─▶ `take`, kept for a moment ─▶ a turn of the loop: hashes, entries, one write
    behind    records from the log itself, some each turn, until the dispatcher is caught up with

The index follows the log: `end` says how far. It is not on the way of a message: a tick's keys are put in a
few milliseconds later, some hundreds at a time, or when somebody asks for one. After a crash, after a
rebuild, and when more is waiting than memory should hold, it is behind and reads the log again.

What a start believes, in this order. After a clean stop: the files as they are. After a crash: the file that
the checkpoint's mark names, up to the entry it names, and all older files; without a mark (another broker's
folder) the files that were complete when its checkpoint was written. What does not fit together is removed.
All the rest is built again from the log, so no key is lost, whatever became of the index.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from kourou.doors.clock import Clock, Timer
from kourou.doors.files import Files, is_full, make_lasting_folder
from kourou.errors import Corrupt, StoreForeign
from kourou.protocol.record import Record
from kourou.store.checkpoint import Checkpoint, IndexMark
from kourou.store.commit_log import CommitLog
from kourou.store.config import StoreConfig
from kourou.store.index_file import Header, IndexFile, Saving, Shape, save
from kourou.store.key_hashes import Keyed, KeyHashes, Keys, key_hash
from kourou.store.recovery import ROLLED_BACK, TRANSACTION_BITS, records_from

NAME_DIGITS = 17
TURN_DELAY_SECONDS = 0.05
RETRY_SECONDS = 1.0
TURN_MESSAGES_MIN = 1024
TURN_SHARE = 8
WAITING_MESSAGES_MAX = 200_000
RECORDS_A_TURN = 256
_UNSAVED_ENTRIES_MAX = 500_000
_CHEAP_PAGES = 64
_THOROUGH_SECONDS = 60.0

log = logging.getLogger(__name__)


class _Tick(NamedTuple):
    """What became visible in one tick, or in several of one millisecond."""

    keys: Keys
    stored_ms: int
    end: int


class Save(NamedTuple):
    """Files to be brought to the disk, and what can be vouched for then."""

    savings: list[tuple[IndexFile, Saving]]
    mark: IndexMark


class KeyIndex:
    def __init__(
        self,
        config: StoreConfig,
        files: Files,
        clock: Clock,
        commit_log: CommitLog,
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._files = files
        self._clock = clock
        self._log = commit_log
        self._on_fault = on_fault
        self._folder = f"{config.root}/index"
        self._shape = Shape(config.index_slots, config.index_entries)
        self._index_files: list[IndexFile] = []
        self._hashes = KeyHashes()
        self._ticks: deque[_Tick] = deque()
        self._waiting = 0
        self._timer: Timer | None = None
        self._dispatched: Callable[[], int] = lambda: 0
        self._is_behind = False
        self._records: Iterator[Record] | None = None
        self._records_end = 0
        self._is_stopped = False
        self._has_room = True
        self._last_save = clock.monotonic()
        self.end = 0
        """Everything in the log before this is in the index."""

    # What is there.

    def load(self, checkpoint: Checkpoint, is_clean: bool) -> None:
        """Find out what to believe. The log must have been recovered. Raises StoreForeign."""
        if not self._config.index_enabled:
            return
        names = self._names()
        self._index_files = [IndexFile.load(self._files, self._path(name), self._shape) for name in names]
        if is_clean:
            self.end = self._end_after_clean_stop(checkpoint.index)
        elif checkpoint.index is not None:
            self.end = self._go_back_to(checkpoint.index)
        else:
            while self._index_files and self._index_files[-1].header.end_ms > checkpoint.indexed_ms:
                self._remove(self._index_files[-1])
            self.end = self._end_by_header()
        while self.end > self._log.end and self._index_files:  # the log has lost its end
            self.end = self._index_files[-1].header.begin_place
            self._remove(self._index_files[-1])
        self.end = min(max(self.end, self._log.start), self._log.end)

    def _names(self) -> list[str]:
        names = []
        for name in self._files.list(self._folder):
            path = self._path(name)
            if self._files.is_folder(path):
                continue
            file = self._files.open(path, read_only=True)
            length = file.size()
            file.close()
            if len(name) != NAME_DIGITS or not name.isdecimal() or not name.isascii():
                raise StoreForeign(
                    f"{path} is not a file of the key index ({NAME_DIGITS} digits): move it away"
                )
            if length == 0:  # made, and never used: a crash came between
                self._files.remove(path)
            elif length != self._shape.file_bytes:
                raise StoreForeign(
                    f"{path} has {length} bytes, and an index file of maxHashSlotNum={self._shape.slots} and "
                    f"maxIndexNum={self._shape.entries} has {self._shape.file_bytes}: set both to the values "
                    "this folder was begun with, or move the folder away to have it built again"
                )
            else:
                names.append(name)
        return names

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _end_after_clean_stop(self, mark: IndexMark | None) -> int:
        newest = self._index_files[-1] if self._index_files else None
        if mark is not None:
            name, count = (newest.name, newest.header.count) if newest is not None else (0, 0)
            if (mark.name, mark.next_entry) == (name, count):
                return mark.end
        return self._end_by_header()

    def _end_by_header(self) -> int:
        """Behind the last record that was put in; another broker does not say how far it has read."""
        if not self._index_files or self._index_files[-1].header.count <= 1:
            return self._log.start
        place = self._index_files[-1].header.end_place
        record = self._log.record_at(place, self._log.end)
        return place + len(record) if record is not None else place

    def _go_back_to(self, mark: IndexMark) -> int:
        while self._index_files and self._index_files[-1].name > mark.name:
            self._remove(self._index_files[-1])
        if not mark.name:
            return mark.end
        newest = self._index_files[-1] if self._index_files else None
        if newest is None or newest.name != mark.name:
            return self._end_by_header()
        try:
            if newest.header.count < mark.next_entry:
                raise Corrupt(f"{newest.path} has lost entries")
            last = newest.entry(mark.next_entry - 1)[1] if mark.next_entry > 1 else 0
            newest.go_back_to(mark.next_entry, self._log.stored_ms(last) or newest.header.begin_ms)
        except Corrupt as error:
            log.warning("%s; it is built again from the log", error)
            begin = newest.header.begin_place
            self._remove(newest)
            return begin
        return mark.end

    def _remove(self, index_file: IndexFile) -> None:
        index_file.close()
        self._index_files.remove(index_file)
        self._files.remove(index_file.path)

    # Following the log.

    def start(self, dispatched: Callable[[], int]) -> None:
        """Begin to follow; `dispatched` says how far the log is visible."""
        self._dispatched = dispatched
        if self._config.index_enabled and self.end < dispatched():
            self._fall_behind()

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def collect(self, messages: Iterable[Keyed], into: Keys) -> None:
        """Find out what these messages are to be found by, while they are at hand."""
        if self._config.index_enabled:
            self._hashes.collect(messages, into)

    def take(self, keys: Keys, stored_ms: int, end: int) -> None:
        """A tick has become visible: its messages, and where it ends."""
        if self._is_behind or not self._config.index_enabled:
            return
        last = self._ticks[-1] if self._ticks else None
        if last is not None and last.stored_ms == stored_ms:
            # Sends that come one by one are a tick each: so they cost a write a millisecond, not one each.
            last.keys.hashes.extend(keys.hashes)
            last.keys.places.extend(keys.places)
            self._ticks[-1] = _Tick(last.keys, stored_ms, end)
        else:
            self._ticks.append(_Tick(keys, stored_ms, end))
        self._waiting += len(keys.hashes)
        if self._timer is None:
            self._arm(TURN_DELAY_SECONDS)
        elif self._waiting > WAITING_MESSAGES_MAX:
            self._fall_behind()

    def _arm(self, seconds: float) -> None:
        if not self._is_stopped:
            self._timer = self._clock.later(seconds, self._turn)

    def _turn(self) -> None:
        self._timer = None
        if self._is_behind:
            self._catch_up(RECORDS_A_TURN)
        else:
            self._put_in(max(TURN_MESSAGES_MIN, self._waiting // TURN_SHARE))
        self._go_on()

    def _go_on(self) -> None:
        if self._timer is None and (self._is_behind or self._ticks):
            self._arm(0.0)

    def _put_in(self, most: int) -> None:
        """What waits, up to about `most` keys; whole ticks."""
        ticks = self._ticks
        while ticks and most > 0:
            tick = ticks[0]
            if not self._add(*tick.keys, tick.stored_ms):
                return
            self.end = tick.end
            ticks.popleft()
            self._waiting -= len(tick.keys.hashes)
            most -= len(tick.keys.hashes)

    def _add(self, hashes: list[int], places: list[int], stored_ms: int) -> bool:
        """False when the disk did not take it. It may have taken a part: `end` stays, and what is read again
        from there on stands in the index twice, which nobody notices."""
        try:
            while hashes:
                index_file = self._file_with_room()
                room = index_file.room
                index_file.add(hashes[:room], places[:room], stored_ms)
                hashes, places = hashes[room:], places[room:]
        except OSError as error:
            if not is_full(error):
                self._on_fault(error)
                self.stop()
                return False
            self._note_no_room()
            return False
        self._has_room = True
        return True

    def _file_with_room(self) -> IndexFile:
        newest = self._index_files[-1] if self._index_files else None
        if newest is not None and newest.room > 0:
            return newest
        make_lasting_folder(self._files, self._folder)
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000)  # local time, as RocketMQ names them
        name = int(f"{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03d}")
        before: Header | None = None
        if newest is not None:
            name, before = max(name, newest.name + 1), newest.header
        path = self._path(f"{name:0{NAME_DIGITS}d}")
        created = IndexFile.create(self._files, path, self._shape, before)
        self._index_files.append(created)
        return created

    def _note_no_room(self) -> None:
        if self._has_room:
            log.warning("%s: no room; keys are put in when there is some again", self._folder)
        self._has_room = False
        self._fall_behind()
        if self._timer is not None:
            self._timer.cancel()
        self._arm(RETRY_SECONDS)

    # Being behind.

    def _fall_behind(self) -> None:
        self._ticks.clear()
        self._waiting = 0
        self._is_behind = True
        self._records = None
        if self._timer is None:
            self._arm(0.0)

    def _catch_up(self, most: int) -> None:
        """Some records from the log; live again once all that is visible has been read."""
        if self._records is None:
            self.end = max(self.end, self._log.start)
            self._records_end = self._dispatched()
            self._records = records_from(self._config, self._log, self.end, self._records_end)
        for record in islice(self._records, most):
            if not self._put_in_record(record):
                return
            most -= 1
        if not most:
            return
        self._records = None
        if self.end < self._log.start:
            return  # the file that was being read is gone: the next turn begins with the oldest there is
        self.end = self._records_end
        if self.end >= self._dispatched():
            self._is_behind = False

    def _put_in_record(self, record: Record) -> bool:
        if record.sys_flag & TRANSACTION_BITS != ROLLED_BACK:
            hashes = self._hashes.topic(record.topic).of(record.properties)
            if not self._add(hashes, [record.physical_offset] * len(hashes), record.store_ms):
                return False
        self.end = record.physical_offset + record.size
        return True

    # Looking up.

    def find(self, topic: str, key: str, most: int, begin_ms: int, end_ms: int) -> list[int]:
        """Where messages with this key may lie, ascending: the newest `most`, of those stored in the time
        given. Hashes collide: compare topic and key. Times count in whole seconds."""
        self._put_in(self._waiting)
        wanted = key_hash(topic, key)
        found: list[int] = []
        for index_file in reversed(self._index_files):
            header = index_file.header
            if header.begin_ms <= end_ms and header.end_ms >= begin_ms:
                found += index_file.find(wanted, begin_ms - begin_ms % 1000, end_ms, most - len(found))
            if header.begin_ms < begin_ms or len(found) >= most:
                break
        return sorted(set(found))

    @property
    def last(self) -> tuple[int, int]:
        """When the newest message in the index was stored, and where."""
        if not self._index_files:
            return 0, 0
        header = self._index_files[-1].header
        return header.end_ms, header.end_place

    @property
    def is_behind(self) -> bool:
        """Whether keys of visible messages may still be missing."""
        return self._is_behind

    # Saving.

    def is_due(self) -> bool:
        """Whether it is time to save: cheap enough, or long ago, or a lot has gathered."""
        unsaved = sum(index_file.unsaved for index_file in self._index_files)
        if not unsaved:
            return True
        return (
            unsaved >= _UNSAVED_ENTRIES_MAX
            or self._clock.monotonic() - self._last_save >= _THOROUGH_SECONDS
            or all(index_file.is_cheap_to_save(_CHEAP_PAGES) for index_file in self._index_files)
        )

    def has_much_unsaved(self) -> bool:
        return sum(index_file.unsaved for index_file in self._index_files) >= _UNSAVED_ENTRIES_MAX

    def begin_saving(self) -> Save:
        """What to save, as of now; `write` it on any thread, then say `saved`."""
        self._last_save = self._clock.monotonic()
        savings = [(each, each.begin_saving()) for each in self._index_files if each.unsaved]
        newest = self._index_files[-1] if self._index_files else None
        name, count = (newest.name, newest.header.count) if newest is not None else (0, 0)
        end_ms = newest.header.end_ms if newest is not None else 0
        return Save(savings, IndexMark(name, count, self.end, end_ms))

    def write(self, this: Save) -> None:
        """Bring it to the disk. Raises OSError."""
        for _, saving in this.savings:
            save(self._files, saving)
        if this.savings:
            self._files.sync_folder(self._folder)

    def saved(self, this: Save) -> None:
        newest = self._index_files[-1] if self._index_files else None
        for index_file, _ in this.savings:
            if index_file is not newest and not index_file.unsaved:
                index_file.forget_slots()

    def not_saved(self, this: Save) -> None:
        for index_file, saving in this.savings:
            index_file.take_back(saving)

    def finish(self) -> None:
        """Put in all that waits, before a clean stop."""
        self._put_in(self._waiting)

    # Cleaning.

    def clean(self, log_start: int) -> int:
        """Remove files all of whose messages are gone, but never the newest; returns how many."""
        gone = [each for each in self._index_files[:-1] if each.header.end_place < log_start]
        for index_file in gone:
            self._remove(index_file)
        return len(gone)

    def close(self) -> None:
        for index_file in self._index_files:
            index_file.close()
