"""Up to where log and consume queues are known to be on the disk together.

     0  newest flushed message, ms i64 | newest dispatched message, ms i64 | newest indexed message, ms i64
    24  flushed on the primary i64 | start of the last valid record i64                  as RocketMQ has it
    64  "KOUROU" | version u16 | end i64 | start of the last record before it i64 | queues i32 | CRC u32

RocketMQ's times only tell in which file to begin looking after a crash. The mark at byte 64, in what it
leaves unused, tells the very place: everything before `end` is on the disk, log and queues. It is believed
only when a record that passes its checks ends exactly there. A checkpoint is written after what it vouches
for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from struct import Struct
from zlib import crc32

from kourou.doors.clock import Clock, Timer
from kourou.doors.files import Files
from kourou.errors import StoreForeign
from kourou.store.config import ENTRY_BYTES, StoreConfig
from kourou.store.consume_queue import ConsumeQueue, ConsumeQueues
from kourou.store.dispatch import Dispatcher, Position
from kourou.store.flush import Background, Flusher

CHECKPOINT_BYTES = 4096
TRUST_MARGIN_MS = 3000
_TIMES = Struct(">5q")
_MARK = Struct(">6sHqqiI")
_MARK_AT = 64
_MARK_MAGIC = b"KOUROU"
_MARK_VERSION = 1
_FILES_A_JOB = 64  # a sync of the log must not wait for those of ten thousand queues


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
        return bytes(data)


def read_checkpoint(files: Files, path: str) -> Checkpoint:
    """What the file says; nothing when it is absent or too short."""
    data = files.read(path) if files.exists(path) else b""
    if len(data) < _TIMES.size:
        return Checkpoint()
    flushed_ms, dispatched_ms, indexed_ms, primary_flushed, _ = _TIMES.unpack_from(data)
    times = Checkpoint(flushed_ms, dispatched_ms, indexed_ms, primary_flushed)
    if len(data) < _MARK_AT + _MARK.size:
        return times
    magic, version, end, last_record, queues, crc = _MARK.unpack_from(data, _MARK_AT)
    if magic != _MARK_MAGIC:
        return times
    if version > _MARK_VERSION:
        raise StoreForeign(
            f"{path} has format {version}, and this Kourou knows up to {_MARK_VERSION}: use a newer Kourou"
        )
    if crc != crc32(_MARK.pack(magic, version, end, last_record, queues, 0)):
        return times
    return Checkpoint(flushed_ms, dispatched_ms, indexed_ms, primary_flushed, last_record, end, queues)


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
    ) -> None:
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
        self._jobs: list[Callable[[], None]] = []
        self._queues_max = before.queues
        self.written = before

    def start(self) -> None:
        self._timer = self._clock.every(self._config.checkpoint_interval_ms / 1000, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        new_bytes = self._dispatcher.position.end - self.written.end
        idle_ms = (self._clock.monotonic() - self._last_time) * 1000
        enough = new_bytes >= self._config.checkpoint_least_bytes
        if self._goal is None and (
            enough or (new_bytes and idle_ms >= self._config.checkpoint_thorough_interval_ms)
        ):
            self._goal = self._dispatcher.position
            self._flusher.flush()
            self.flushed()

    def flushed(self) -> None:
        """The log is on the disk a bit further; once it is up to the goal, the queues follow."""
        if self._goal is not None and not self._jobs and self._flusher.flushed >= self._goal.end:
            self._jobs = self._sync_jobs(self._goal)
            self._next_job()

    def _next_job(self) -> None:
        self._background(self._jobs.pop(0), self._done)

    def _done(self, error: BaseException | None) -> None:
        if error is not None:
            self._on_fault(error)
        elif self._jobs:
            self._next_job()
        else:
            self._goal = None
            self._last_time = self._clock.monotonic()
            self._write_fewer_queues()

    def queues_removed(self) -> None:
        """A topic was deleted: a start must not take its queues for lost, and build everything again."""
        self._queues_max = len(self._queues.on_disk())
        if self._goal is None:  # else when the one under way is written
            self._write_fewer_queues()

    def _write_fewer_queues(self) -> None:
        if self.written.queues > self._queues_max:
            self.written = replace(self.written, queues=self._queues_max)
            try:
                write_checkpoint(self._files, self._path, self.written)
            except OSError as error:
                self._on_fault(error)

    def write_now(self) -> None:
        """Sync what was dispatched and write the checkpoint, before returning. The log must be flushed."""
        assert self._flusher.flushed >= self._dispatcher.position.end
        for job in self._sync_jobs(self._dispatcher.position):
            job()

    def _sync_jobs(self, goal: Position) -> list[Callable[[], None]]:
        """Jobs that touch no shared state: paths are all they know."""
        touched = dict(self._dispatcher.touched)
        self._dispatcher.touched.clear()
        paths = [path for queue, first in touched.items() for path in self._new_in(queue, first)]
        slices = [paths[at : at + _FILES_A_JOB] for at in range(0, len(paths), _FILES_A_JOB)]
        self._queues_max = len(self._queues.on_disk())
        checkpoint = Checkpoint(
            goal.last_stored_ms,
            goal.last_stored_ms,
            self.written.indexed_ms,
            self.written.primary_flushed,
            goal.last_start,
            goal.end,
            self._queues_max,
        )

        def write() -> None:
            write_checkpoint(self._files, self._path, checkpoint)
            self.written = checkpoint

        return [*(_syncing(self._files, some) for some in slices), write]

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
    """In place: the 96 bytes that mean something lie in one sector, which is written as a whole."""
    is_new = not files.exists(path)
    file = files.open(path, create=True)
    try:
        file.pwrite(checkpoint.encode(), 0)
        file.sync()
    finally:
        file.close()
    if is_new:
        files.sync_folder(path.rpartition("/")[0])


def _syncing(files: Files, paths: list[str]) -> Callable[[], None]:
    def sync() -> None:
        for path in dict.fromkeys(paths):
            with contextlib.suppress(FileNotFoundError):  # its topic has been deleted meanwhile
                _sync(files, path)

    return sync


def _sync(files: Files, path: str) -> None:
    if files.is_folder(path):
        files.sync_folder(path)
        return
    file = files.open(path)
    try:
        file.sync()
    finally:
        file.close()
