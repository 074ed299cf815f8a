"""Up to where log and consume queues are known to be on the disk together.

     0  newest flushed message, ms i64 | newest dispatched message, ms i64 | newest indexed message, ms i64
    24  flushed on the primary i64 | start of the last valid record i64                  as RocketMQ has it
    64  "KOUROU" | version u16 | end i64 | start of the last record before it i64 | queues i32 | CRC u32
   104  "KINDEX" | version u16 | newest index file i64 | its next entry i32 | end i64 | CRC u32
   136  "KTOTAL" | version u16 | entries of all queues up to `end` i64 | CRC u32

RocketMQ's times only tell in which file to begin looking after a crash. The mark at byte 64, in what it
leaves unused, tells the very place: everything before `end` is on the disk, log and queues. It is believed
only when a record that passes its checks ends exactly there. A checkpoint is written after what it vouches
for. Where there is no room to write one, the former stays true: the next start looks at more of the log.
Entries of queues that still wait in memory are written first, and their files synced.
The mark at byte 104 says the same of the key index, which may be further behind. The one at byte 136 lets a
start see that a queue has lost its end: where a queue ends is told by its own entries, which may rot.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from zlib import crc32

from kourou.doors.clock import Clock, Timer
from kourou.doors.files import Files, is_full
from kourou.errors import StoreForeign
from kourou.store.config import ENTRY_BYTES, StoreConfig
from kourou.store.consume_queue import ConsumeQueue, ConsumeQueues
from kourou.store.dispatch import Dispatcher, Position
from kourou.store.flush import Background, Flusher, Syncs

if TYPE_CHECKING:
    from kourou.store.key_index import KeyIndex, Save

CHECKPOINT_BYTES = 4096
TRUST_MARGIN_MS = 3000
_TIMES = Struct(">5q")
_MARK = Struct(">6sHqqiI")
_MARK_AT = 64
_MARK_MAGIC = b"KOUROU"
_MARK_VERSION = 1
_INDEX_MARK = Struct(">6sHqiqI")
_INDEX_MARK_AT = 104
_INDEX_MAGIC = b"KINDEX"
_TOTAL_MARK = Struct(">6sHqI")
_TOTAL_MARK_AT = 136
_TOTAL_MAGIC = b"KTOTAL"
_FILES_A_JOB = 64  # a sync of the log must not wait for those of ten thousand queues
_FILES_USUAL = 128  # with more of them to be synced, the log must have grown more, too
_QUEUES_A_TURN = 64  # a message must not wait until those of ten thousand queues are written
QUEUES_A_LOOK = 256
"""At each interval so many queues write what waits: in a quiet broker all, so that its files are right."""
_RETRY_SECONDS = 1.0

log = logging.getLogger(__name__)
T = TypeVar("T")


class IndexMark(NamedTuple):
    """Up to where the key index is on the disk."""

    name: int
    """Its newest file; 0 when there is none."""
    next_entry: int
    """The number that file's next entry had."""
    end: int
    """Every message before this place of the log is in the index."""
    end_ms: int = 0
    """When the last one in it was stored; not part of the mark on the disk."""

    def encode(self) -> bytes:
        mark = _INDEX_MARK.pack(_INDEX_MAGIC, _MARK_VERSION, self.name, self.next_entry, self.end, 0)
        return mark[:-4] + crc32(mark).to_bytes(4, "big")

    @classmethod
    def decode(cls, data: bytes) -> IndexMark | None:
        if len(data) < _INDEX_MARK_AT + _INDEX_MARK.size:
            return None
        magic, version, name, next_entry, end, _ = _INDEX_MARK.unpack_from(data, _INDEX_MARK_AT)
        mark = cls(name, next_entry, end)
        is_known = magic == _INDEX_MAGIC and version == _MARK_VERSION
        return mark if is_known and data.startswith(mark.encode(), _INDEX_MARK_AT) else None


@dataclass(frozen=True)
class Checkpoint:
    flushed_ms: int = 0
    dispatched_ms: int = 0
    indexed_ms: int = 0
    primary_flushed: int = 0
    last_record: int = -1
    """Where the last record before `end` begins; -1 when there is no mark of ours."""
    end: int = 0
    queues: int = 0
    index: IndexMark | None = None
    """None: this checkpoint says nothing of the key index."""
    entries: int | None = None
    """How many entries all queues had together, up to `end`; None when that is not known."""

    @property
    def trusted_ms(self) -> int:
        """Messages stored before this are on the disk, and in their queues."""
        return max(0, min(self.flushed_ms, self.dispatched_ms) - TRUST_MARGIN_MS)

    def encode(self) -> bytes:
        data = bytearray(CHECKPOINT_BYTES)
        _TIMES.pack_into(
            data,
            0,
            self.flushed_ms,
            self.dispatched_ms,
            self.indexed_ms,
            self.primary_flushed,
            max(0, self.last_record),
        )
        mark = _MARK.pack(_MARK_MAGIC, _MARK_VERSION, self.end, self.last_record, self.queues, 0)
        _MARK.pack_into(
            data,
            _MARK_AT,
            _MARK_MAGIC,
            _MARK_VERSION,
            self.end,
            self.last_record,
            self.queues,
            crc32(mark),
        )
        if self.index is not None:
            data[_INDEX_MARK_AT : _INDEX_MARK_AT + _INDEX_MARK.size] = self.index.encode()
        if self.entries is not None:
            data[_TOTAL_MARK_AT : _TOTAL_MARK_AT + _TOTAL_MARK.size] = _total_mark(self.entries, self.end)
        return bytes(data)


def _total_mark(entries: int, end: int) -> bytes:
    """Its CRC covers the place that it is said of, too."""
    mark = _TOTAL_MARK.pack(_TOTAL_MAGIC, _MARK_VERSION, entries, 0)
    return mark[:-4] + crc32(mark + end.to_bytes(8, "big")).to_bytes(4, "big")


def _total(data: bytes, end: int) -> int | None:
    if len(data) < _TOTAL_MARK_AT + _TOTAL_MARK.size:
        return None
    entries: int = _TOTAL_MARK.unpack_from(data, _TOTAL_MARK_AT)[2]
    return entries if data.startswith(_total_mark(entries, end), _TOTAL_MARK_AT) else None


def read_checkpoint(files: Files, path: str) -> Checkpoint:
    """What the file says; nothing when it is absent or too short."""
    data = files.read(path) if files.exists(path) else b""
    if len(data) < _TIMES.size:
        return Checkpoint()
    flushed_ms, dispatched_ms, indexed_ms, primary_flushed, _ = _TIMES.unpack_from(data)
    times = Checkpoint(flushed_ms, dispatched_ms, indexed_ms, primary_flushed, index=IndexMark.decode(data))
    if len(data) < _MARK_AT + _MARK.size:
        return times
    magic, version, end, last_record, queues, crc = _MARK.unpack_from(data, _MARK_AT)
    if magic != _MARK_MAGIC:
        return times
    if crc != crc32(_MARK.pack(magic, version, end, last_record, queues, 0)):
        return times  # damaged: of what format, nobody knows
    if version > _MARK_VERSION:
        raise StoreForeign(
            f"{path} has format {version}, and this Kourou knows up to {_MARK_VERSION}: use a newer Kourou"
        )
    return replace(times, last_record=last_record, end=end, queues=queues, entries=_total(data, end))


def damaged_marks(data: bytes, checkpoint: Checkpoint) -> list[str]:
    """Which of our marks in a checkpoint's bytes are not what was written, given what could be read of it."""
    marks = (
        ("its mark", _MARK_AT, _MARK.size, checkpoint.last_record < 0),
        ("its mark of the key index", _INDEX_MARK_AT, _INDEX_MARK.size, checkpoint.index is None),
        ("its total of entries", _TOTAL_MARK_AT, _TOTAL_MARK.size, checkpoint.entries is None),
    )
    return [what for what, at, size, is_unread in marks if is_unread and any(data[at : at + size])]


class Checkpointer:
    """Syncs the consume queues now and then, and moves the checkpoint when they are."""

    def __init__(
        self,
        config: StoreConfig,
        files: Files,
        clock: Clock,
        background: Background,
        before: Checkpoint,
        queues: ConsumeQueues,
        dispatcher: Dispatcher,
        flusher: Flusher,
        on_fault: Callable[[BaseException], None],
        index: KeyIndex | None = None,
    ) -> None:
        self._index = index
        self._save: Save | None = None  # of the index, with the goal
        self._config = config
        self._files = files
        self._clock = clock
        self._background = background
        self._queues = queues
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._on_fault = on_fault
        self._path = f"{config.root}/checkpoint"
        self._timer: Timer | None = None
        self._last_time = clock.monotonic()
        self._goal: Position | None = None  # being worked on
        self._goal_entries = 0
        self._is_syncing = False  # the log is on the disk up to the goal, and the queues follow
        self._to_write: list[ConsumeQueue] = []  # what waits of these, before the queues are synced
        self._unsynced: dict[str, None] = {}  # files and folders that the next checkpoint must wait for
        self._queues_max = before.queues
        self._syncs = Syncs()
        self._has_fewer = False
        self._has_room = True
        self._is_stopped = False
        self.written = before

    def start(self) -> None:
        self._timer = self._clock.every(self._config.checkpoint_interval_ms / 1000, self._look)

    def stop(self) -> None:
        """Begin nothing more. What is under way counts for nothing; `write_now` does it again."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if self._goal is not None:
            return
        self._write_fewer_queues()
        new_bytes = self._dispatcher.position.end - self.written.end
        idle_ms = (self._clock.monotonic() - self._last_time) * 1000
        files = len(self._dispatcher.touched) + len(self._dispatcher.unwritten)
        enough = new_bytes >= self._config.checkpoint_least_bytes * max(1, files / _FILES_USUAL)
        if self._index is not None and self._index.has_much_unsaved():
            enough = True
        if enough or (new_bytes and idle_ms >= self._config.checkpoint_thorough_interval_ms):
            self._goal, self._goal_entries = self._dispatcher.position, self._dispatcher.entries
            if self._index is not None and self._index.is_due():
                self._save = self._index.begin_saving()  # now: it must not go beyond what is flushed then
            self._flusher.flush()
            self.flushed()
        else:
            self._have_written(self._dispatcher.write_oldest, QUEUES_A_LOOK)

    def flushed(self) -> None:
        """The log is on the disk a bit further; once it is up to the goal, the queues follow."""
        if self._goal is not None and not self._is_syncing and self._flusher.flushed >= self._goal.end:
            self._is_syncing = True
            self._to_write = list(self._dispatcher.unwritten)
            self._write_some(self._goal)

    def _write_some(self, goal: Position) -> None:
        """What waits goes into its files, some queues at a time; then these are synced."""
        if self._is_stopped:
            return
        if not self._have_written(self._dispatcher.write, self._to_write[:_QUEUES_A_TURN]):
            self._clock.later(_RETRY_SECONDS, partial(self._write_some, goal))
            return
        del self._to_write[:_QUEUES_A_TURN]
        if self._to_write:
            self._clock.later(0.0, partial(self._write_some, goal))
        else:
            self._collect()
            self._sync_some(self._checkpoint(goal, self._goal_entries))

    def _have_written(self, write: Callable[[T], None], what: T) -> bool:
        """Whether entries could be written; where there is no room, they go on waiting. After any other error
        there is no more checkpoint."""
        try:
            write(what)
        except OSError as error:
            if is_full(error):
                self._note_no_room()
            else:
                self.stop()
                self._on_fault(error)
            return False
        return True

    def _sync_some(self, checkpoint: Checkpoint) -> None:
        """One job of several; they touch no shared state: paths are all they know."""
        paths = list(islice(self._unsynced, _FILES_A_JOB))
        if paths:
            sync = partial(self._syncs.do, partial(self._files.sync_all, paths))
            self._background(sync, partial(self._synced, checkpoint, paths))
        elif self._index is not None and self._save is not None and not self._save.savings:
            self._saved_index(checkpoint, self._save, None)
        elif self._index is not None and self._save is not None:
            self._background(
                partial(self._index.write, self._save), partial(self._saved_index, checkpoint, self._save)
            )
        else:
            self._background(
                partial(write_checkpoint, self._files, self._path, checkpoint),
                partial(self._wrote, checkpoint),
            )

    def _synced(self, checkpoint: Checkpoint, paths: list[str], error: BaseException | None) -> None:
        if self._is_stopped:
            return
        if error is not None:  # a full disk too: it is unknown which pages were given up for clean
            self._on_fault(error)
            return
        for path in paths:
            del self._unsynced[path]
        self._sync_some(checkpoint)

    def _saved_index(self, checkpoint: Checkpoint, save: Save, error: BaseException | None) -> None:
        if self._is_stopped or self._index is None:
            return
        self._save = None
        if error is None:
            self._index.saved(save)
            checkpoint = replace(checkpoint, index=save.mark, indexed_ms=save.mark.end_ms)
        elif is_full(error):
            self._index.not_saved(save)  # the former mark stays
        else:
            self._on_fault(error)
            return
        self._sync_some(checkpoint)

    def _wrote(self, checkpoint: Checkpoint, error: BaseException | None) -> None:
        if self._is_stopped:
            return
        self._goal = None
        self._is_syncing = False
        if is_full(error):
            self._note_no_room()  # `_last_time` stays: tried again at the next look
        elif error is not None:
            self._on_fault(error)
        else:
            self._last_time = self._clock.monotonic()
            self._note(checkpoint)
            self._write_fewer_queues()

    def _note(self, checkpoint: Checkpoint) -> None:
        self.written = checkpoint
        self._has_room = True

    def _note_no_room(self) -> None:
        if self._has_room:
            log.warning("%s: no room for a checkpoint; a start would look at more of the log", self._path)
        self._has_room = False

    def queues_removed(self) -> None:
        """A topic was deleted: a start must not take its queues for lost, and build everything again."""
        self._queues_max = len(self._queues.on_disk())
        self._has_fewer = True
        if self._goal is None:  # else when the one under way is written
            self._write_fewer_queues()

    def _write_fewer_queues(self) -> None:
        if self._has_fewer:
            fewer = replace(self.written, queues=min(self.written.queues, self._queues_max), entries=None)
            try:
                self._write(fewer)
            except OSError as error:
                self._on_fault(error)
            self._has_fewer = self.written != fewer

    def _write(self, checkpoint: Checkpoint) -> None:
        """Raises OSError, though not for want of room."""
        try:
            write_checkpoint(self._files, self._path, checkpoint)
        except OSError as error:
            if not is_full(error):
                raise
            self._note_no_room()
        else:
            self._note(checkpoint)

    def write_now(self) -> None:
        """Sync what was dispatched and write the checkpoint, before returning. The log must be flushed.

        Raises OSError, though not for want of room for the checkpoint itself.
        """
        assert self._flusher.flushed >= self._dispatcher.position.end
        self._dispatcher.write_all()
        self._collect()
        self._syncs.do(partial(self._files.sync_all, self._unsynced))
        self._unsynced.clear()
        checkpoint = self._checkpoint(self._dispatcher.position, self._dispatcher.entries)
        if self._index is not None:
            checkpoint = self._save_index_now(self._index, checkpoint)
        self._write(checkpoint)

    def _save_index_now(self, index: KeyIndex, checkpoint: Checkpoint) -> Checkpoint:
        if self._save is not None:  # a stop has come between
            index.not_saved(self._save)
            self._save = None
        save = index.begin_saving()
        try:
            index.write(save)
        except OSError as error:
            if not is_full(error):
                raise
            index.not_saved(save)
            return checkpoint
        return replace(checkpoint, index=save.mark, indexed_ms=save.mark.end_ms)

    def _collect(self) -> None:
        """Note what the queues have written since the last time."""
        for queue, first in self._dispatcher.touched.items():
            self._unsynced.update(dict.fromkeys(self._new_in(queue, first)))
        self._dispatcher.touched.clear()
        self._queues_max = len(self._queues.on_disk())

    def _checkpoint(self, goal: Position, entries: int) -> Checkpoint:
        return Checkpoint(
            goal.last_stored_ms,
            goal.last_stored_ms,
            self.written.indexed_ms,
            self.written.primary_flushed,
            goal.last_start,
            goal.end,
            self._queues_max,
            self.written.index,
            entries,
        )

    def _new_in(self, queue: ConsumeQueue, first: int) -> list[str]:
        """The files and folders of a queue that have changed since its entry `first`."""
        start, end = first * ENTRY_BYTES, queue.max_offset * ENTRY_BYTES
        segments = queue.segments.segments_between(start, end)
        paths = [segment.path for segment in segments]
        if queue.is_new or any(segment.base >= start for segment in segments):
            paths.append(queue.segments.folder)
        if queue.is_new:
            topic_folder = f"{self._config.queues_folder}/{queue.topic}"
            paths += (topic_folder, self._config.queues_folder, self._config.root)
            queue.is_new = False
        return paths


def write_checkpoint(files: Files, path: str, checkpoint: Checkpoint) -> None:
    """In place: the 156 bytes that mean something lie in one sector, which is written as a whole."""
    file = files.open(path, create=True)
    is_new = file.size() < CHECKPOINT_BYTES
    try:
        file.pwrite(checkpoint.encode(), 0)
        file.sync()
    finally:
        file.close()
    if is_new:
        files.sync_folder(path.rpartition("/")[0])
