"""Put a stopped store right: all that a check found, and nothing else.

    repair(config, report, files, clock)      carries out `report.actions`; the lock must be held

The log is the truth. What makes no record in it is copied aside and overwritten by records that are rolled
back: every reader of the format passes over them, Apache's as well, and their neighbours stay where they are.
What is derived from the log is built again from it. Nothing is thrown away: whatever is replaced lies in
`quarantine/<time>/` afterwards, under the path it had.

    small files · foreign files · missing files · records · queues · the end of the log · index · checkpoint

in this order, each on the disk before the next. The last steps are recovery's own, as at every start.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

from kourou.doors.clock import Clock, SimulatedClock
from kourou.doors.files import Files, make_lasting_folder
from kourou.errors import StoreError
from kourou.protocol import record as records
from kourou.protocol.names import SCHEDULE_TOPIC
from kourou.store.aside import copy_to_quarantine, quarantine
from kourou.store.check_state import PREVIOUS, USERS
from kourou.store.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from kourou.store.commit_log import CommitLog
from kourou.store.config import ENTRY_BYTES, StoreConfig
from kourou.store.consume_queue import (
    ENTRY,
    FILLER_SIZE,
    ConsumeQueue,
    ConsumeQueues,
    Forgotten,
    due_as_noted,
)
from kourou.store.dispatch import entry_tag
from kourou.store.findings import (
    CutTail,
    FillIn,
    MoveAside,
    RebuildIndex,
    RebuildQueue,
    Report,
    RestoreState,
    RewriteCheckpoint,
    SetAside,
)
from kourou.store.key_index import KeyIndex
from kourou.store.layout import lay_out
from kourou.store.recovery import PREPARED, ROLLED_BACK, TRANSACTION_BITS, Finder, recover

_COPY_BYTES = 1 << 20
_STAND_IN_BYTES = 1 << 20
_STAND_IN_TOPIC = b"KOUROU_QUARANTINE"
_SHORT_TOPIC = b"_"
_NOWHERE = bytes(8)
_ENTRIES_A_WRITE = 1024
_STAND_INS_MAX = 10_000_000

Kind = TypeVar("Kind")
Tell = Callable[[str], None]


def repair(
    config: StoreConfig,
    report: Report,
    files: Files,
    clock: Clock,
    tell: Tell = lambda done: None,
    *,
    is_told: bool = False,
) -> str:
    """Do what `report` names; `tell` hears of each step. Returns the folder of what was replaced.

    Raises OSError; what was done until then stays, and a second repair goes on.
    """
    checkpoint = read_checkpoint(files, f"{config.root}/checkpoint")
    layout = lay_out(config, files, checkpoint, Report(config.root), is_told=is_told)
    return _Repair(layout.config, report, files, clock, tell, checkpoint).run()


class _Repair:
    def __init__(
        self,
        config: StoreConfig,
        report: Report,
        files: Files,
        clock: Clock,
        tell: Tell,
        checkpoint: Checkpoint,
    ) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._files = files
        self._clock = clock
        self._report = report
        self._tell = tell
        self._root = config.root
        self._quarantine = quarantine(config.root, clock.now_ms())
        self._ends: dict[tuple[str, int], int] = {}  # of queues that are built again
        self._times: dict[tuple[str, int], Forgotten] = {}

    def run(self) -> str:
        for state in self._named(RestoreState):
            self._restore(state.path)
        for moving in self._named(MoveAside):
            self._move(moving.path)
        for filling in self._named(FillIn):
            self._fill_in(filling)
        log = CommitLog(self._config, self._files)
        with closing(log):
            log.load()
            for damage in self._named(SetAside):
                self._set_aside(log, damage.start, damage.end)
            for tail in self._named(CutTail):
                self._copy(log, tail.start, tail.end)
            self._rebuild_queues(log)
            self._finish(log)
        return self._quarantine

    def _named(self, kind: type[Kind]) -> list[Kind]:
        return [action for action in self._report.actions if isinstance(action, kind)]

    # Files.

    def _restore(self, path: str) -> None:
        data = self._files.read(path + PREVIOUS)
        if self._files.exists(path):
            self._move(path)
        self._files.write_atomically(path, data, keep_previous=False, private=path.endswith(USERS))
        self._tell(f"{self._short(path)}: the previous generation is back")

    def _move(self, path: str) -> None:
        """Out of the way, to the same place below the quarantine."""
        target = f"{self._quarantine}/{self._short(path)}"
        make_lasting_folder(self._files, target.rpartition("/")[0])
        try:
            self._files.rename(path, target)
        except OSError as error:
            if error.errno != errno.EXDEV or self._files.is_folder(path):
                raise
            self._carry_over(path, target)
        self._files.sync_folder(target.rpartition("/")[0])
        self._files.sync_folder(path.rpartition("/")[0])
        self._tell(f"{self._short(path)} moved to {self._short(target)}")

    def _carry_over(self, path: str, target: str) -> None:
        """As a rename, from another disk: a log may lie on one of its own (storePathCommitLog)."""
        with (
            closing(self._files.open(path, read_only=True)) as old,
            closing(self._files.open(target, create=True)) as new,
        ):
            for at in range(0, old.size(), _COPY_BYTES):
                new.pwrite(old.pread(_COPY_BYTES, at), at)
            new.sync()
        self._files.remove(path)

    def _keep_copy(self, path: str) -> None:
        """Of a file that is about to be written anew: without it, a crash would have the next start guess."""
        target = f"{self._quarantine}/{self._short(path)}"
        make_lasting_folder(self._files, self._quarantine)
        self._files.write_atomically(target, self._files.read(path), keep_previous=False)

    def _short(self, path: str) -> str:
        return path.removeprefix(self._root + "/").lstrip("/")

    def _fill_in(self, filling: FillIn) -> None:
        with closing(self._files.open(filling.path, create=True)) as file:
            file.truncate(filling.size)
            file.sync()
        self._files.sync_folder(filling.path.rpartition("/")[0])
        self._tell(f"{self._short(filling.path)} has {filling.size} bytes now")

    # The log.

    def _set_aside(self, log: CommitLog, start: int, end: int) -> None:
        segment_bytes = self._config.commit_log_segment_bytes
        self._copy(log, start, end)
        store_ms = log.stored_ms(end) or self._checkpoint.flushed_ms  # in a log, time does not go back
        while start < end:
            file_end = start - start % segment_bytes + segment_bytes
            stop = min(end, file_end)
            if log.segments.segment_at(start) is None:
                log.segments.grow(start - start % segment_bytes)
            self._stand_in(log, start, stop, store_ms, is_file_end=stop == file_end)
            start = stop

    def _copy(self, log: CommitLog, start: int, end: int) -> None:
        path = copy_to_quarantine(self._files, log, self._quarantine, start, end)
        self._tell(f"bytes {start} to {end} of the log copied to {self._short(path)}")

    def _stand_in(self, log: CommitLog, start: int, end: int, store_ms: int, *, is_file_end: bool) -> None:
        """Records from `start` to `end` of one file that nobody is shown."""
        segment = log.segments.segment_at(start)
        assert segment is not None
        if is_file_end and end - start >= records.BLANK_BYTES:
            segment.write(records.blank(end - start), start - segment.base)
        else:
            for at, size in _sizes(start, end):
                segment.write(_rolled_back(at, size, store_ms), at - segment.base)
        segment.file().sync()

    # Queues.

    def _rebuild_queues(self, log: CommitLog) -> None:
        asked = self._named(RebuildQueue)
        for each in asked:
            folder = f"{self._config.queues_folder}/{each.topic}/{each.queue_id}"
            if self._files.is_folder(folder):
                self._ends[each.topic, each.queue_id] = self._end_of(folder)
                if each.topic == SCHEDULE_TOPIC:
                    self._times[each.topic, each.queue_id] = self._entries_in(folder)
                self._move(folder)
        queues = ConsumeQueues(self._config, self._files)
        with closing(queues):
            self._build(log, queues)
        for each in asked:
            self._tell(f"{each.topic}, queue {each.queue_id}: built again")

    def _build(self, log: CommitLog, queues: ConsumeQueues) -> None:
        """The queues that are asked for, from all of the log; whatever they hold is dropped."""
        is_damaged = log.start == 0 and bool(self._named(SetAside))
        builders: dict[tuple[bytes, int], _QueueBuilder] = {}
        for each in self._named(RebuildQueue):
            queue = queues.get_or_make(each.topic, each.queue_id)
            if not queue.segments.is_empty:
                queues.remove_queue(queue)
                queue = queues.get_or_make(each.topic, each.queue_id)
            builders[each.topic.encode(), each.queue_id] = _QueueBuilder(queue, is_damaged)
        if not builders:
            return
        for record in Finder(self._config, log, log.start, verify=True).records():
            builder = builders.get((record.topic, record.queue_id))
            if builder is not None and record.sys_flag & TRANSACTION_BITS not in (PREPARED, ROLLED_BACK):
                topic = builder.queue.topic
                place, size, stored_ms = record.physical_offset, record.size, record.store_ms
                tag = entry_tag(topic, record.properties, stored_ms, self._config.delay_levels_ms)
                former = self._times.get((topic, record.queue_id))
                due_ms = due_as_noted(former, record.queue_offset, place, size, stored_ms)
                builder.take(record.queue_offset, ENTRY.pack(place, size, tag if due_ms is None else due_ms))
        for builder in builders.values():
            builder.write()

    def _end_of(self, folder: str) -> int:
        """How many messages the queue had, as far as its files can be believed."""
        names = [name for name in self._files.list(folder) if name.isdecimal()]
        for name in reversed(names):
            data = self._files.read(f"{folder}/{name}")
            whole = len(data) - len(data) % ENTRY_BYTES
            for at in range(whole - ENTRY_BYTES, -1, -ENTRY_BYTES):
                place, size, _ = ENTRY.unpack_from(data, at)
                if records.RECORD_BYTES_MIN <= size < FILLER_SIZE and place >= 0:
                    return (int(name) + at) // ENTRY_BYTES + 1
        return 0

    def _entries_in(self, folder: str) -> Forgotten:
        return {
            int(name): self._files.read(f"{folder}/{name}")
            for name in self._files.list(folder)
            if name.isdecimal()
        }

    # As at every start.

    def _finish(self, log: CommitLog) -> None:
        """Recovery finds the end of the log and adds what queues still lack; then a checkpoint says so."""
        queues = ConsumeQueues(self._config, self._files)
        with closing(queues):
            queues.load()
            was_closed = self._report.is_closed and not self._named(CutTail)
            # That queues are missing is known: they need not all be built again for it.
            found = recover(self._config, log, queues, replace(self._checkpoint, queues=0), is_clean=False)
            if found.damage:
                first = found.damage[0]
                raise StoreError(
                    f"bytes {first.start} to {first.end} of the log could not be put right: {first.reason}"
                )
            if found.start <= log.start:  # it has built all queues, and knows nothing of what was damaged
                self._build(log, queues)
            for (topic, queue_id), end in self._ends.items():
                _keep_end(queues.get_or_make(topic, queue_id), end)
            self._sync(log, queues)
            position = found.position
            checkpoint = Checkpoint(
                position.last_stored_ms,
                position.last_stored_ms,
                self._checkpoint.indexed_ms,
                self._checkpoint.primary_flushed,
                position.last_start,
                position.end,
                len(queues.on_disk()),
                self._checkpoint.index,
            )
        path = f"{self._root}/checkpoint"
        if self._named(RewriteCheckpoint):
            self._keep_copy(path)
        if position.last_start >= 0:
            write_checkpoint(self._files, path, self._with_index(log, checkpoint, was_closed))
        if self._files.exists(f"{self._root}/abort"):
            self._files.remove(f"{self._root}/abort")
            self._files.sync_folder(self._root)
        self._tell(f"the log ends at {position.end}; queues and checkpoint say the same")

    def _sync(self, log: CommitLog, queues: ConsumeQueues) -> None:
        paths = [segment.path for segment in log.segments.segments_between(0, log.end + 1)]
        for queue in queues.on_disk():
            paths += [segment.path for segment in queue.segments.segments_between(0, 1 << 62)]
            paths += [queue.segments.folder, queue.segments.folder.rpartition("/")[0]]
        self._files.sync_all([*paths, self._config.queues_folder, self._root])

    def _with_index(self, log: CommitLog, checkpoint: Checkpoint, was_closed: bool) -> Checkpoint:
        """Have the index follow the log to its end, as a running broker does, on a clock of our own."""
        folder = f"{self._root}/index"
        if self._named(RebuildIndex):
            for name in self._files.list(folder):
                self._move(f"{folder}/{name}")
        elif not self._files.list(folder) and not (checkpoint.index and checkpoint.index.name):
            return checkpoint  # there never was one
        clock = SimulatedClock(self._clock.now_ms())
        faults: list[BaseException] = []
        index = KeyIndex(self._config, self._files, clock, log, faults.append)
        with closing(index):
            index.load(checkpoint, was_closed)
            index.start(lambda: log.end)
            while index.is_behind and not faults:
                clock.advance(0.0)
            if faults:
                raise faults[0]
            save = index.begin_saving()
            index.write(save)
        self._tell("the index is up with the log")
        return replace(checkpoint, index=save.mark, indexed_ms=save.mark.end_ms)


class _QueueBuilder:
    """One queue, from the records of the log."""

    def __init__(self, queue: ConsumeQueue, is_damaged: bool) -> None:
        """`is_damaged`: the first messages may have been damaged, in a log that still has its first byte.

        Then a neighbour stands for them, as for any other. Entries that point nowhere would have RocketMQ's
        readers pass over the whole file.
        """
        self.queue = queue
        self._is_damaged = is_damaged
        self._entries: list[bytes] = []

    def take(self, queue_offset: int, entry: bytes) -> None:
        queue = self.queue
        following = queue.max_offset + len(self._entries)
        if not queue_offset and following:  # the topic was deleted, and made again
            self._entries.clear()
            queue.segments.cut(0)
            following = queue.max_offset = queue.next_offset = queue.min_offset = 0
        missing = queue_offset - following
        if missing < 0:
            return
        if missing and not following and not (self._is_damaged and missing <= _STAND_INS_MAX):
            queue.begin_at(queue_offset)
        else:
            self._entries += [entry] * missing
        self._entries.append(entry)
        if len(self._entries) >= _ENTRIES_A_WRITE:
            self.write()

    def write(self) -> None:
        for at in range(0, len(self._entries), _ENTRIES_A_WRITE):
            self.queue.append(b"".join(self._entries[at : at + _ENTRIES_A_WRITE]))
        self._entries.clear()


def _keep_end(queue: ConsumeQueue, end: int) -> None:
    """Offsets that were given out are not given out again, though their messages are lost: a group that had
    read those would not be shown the new ones."""
    missing = end - queue.max_offset
    if queue.max_offset == 0 and missing > 0:
        queue.begin_at(end)
    elif missing > 0:
        last = queue.entries(queue.max_offset - 1, 1)
        for _ in range(missing):
            queue.append(last)


def _sizes(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Parts that are neither too large for a message nor too small for a record."""
    least = records.RECORD_BYTES_MIN + len(_SHORT_TOPIC)
    if end - start < least:
        raise StoreError(
            f"{end - start} bytes at {start} of the log have no room for a record in their place"
        )
    while start < end:
        left = end - start
        size = left if left <= _STAND_IN_BYTES else min(_STAND_IN_BYTES, left - least)
        yield start, size
        start += size


def _rolled_back(at: int, size: int, store_ms: int) -> bytes:
    """A record of just this size. It is rolled back, so it is in no queue and in no index."""
    has_room = size >= records.encoded_size(_STAND_IN_TOPIC, b"", b"", _NOWHERE, _NOWHERE, append_crc=True)
    topic = _STAND_IN_TOPIC if has_room else _SHORT_TOPIC
    body = bytes(size - records.encoded_size(topic, b"", b"", _NOWHERE, _NOWHERE, append_crc=has_room))
    return records.encode(
        topic,
        0,
        0,
        0,
        at,
        ROLLED_BACK,
        store_ms,
        _NOWHERE,
        store_ms,
        _NOWHERE,
        0,
        0,
        body,
        b"",
        has_room,
    )
