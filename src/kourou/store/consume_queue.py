"""(topic, queue) -> places in the log.

    entry    physical offset i64 | record size i32 | tag code i64        20 bytes, at queue offset * 20

The position of an entry is its queue offset, so none may ever be left out. Three kinds of entry stand for no
message of their own:

    (0, 0x7FFFFFFF, 0)       before the first: the queue was begun with an offset above 0
    a copy of the next one   in the place of a record that was found damaged. RocketMQ's readers see the
                             neighbour twice under one offset, which is once; ours pass over the copy
    zeros                    not written yet

A queue's entries are derived from the log and can be built again. So the newest may wait in memory until
there are enough for a write (`dispatch.py`), where readers find them all the same; a crash leaves them to be
built again. Files are synced in the background.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct

from kourou.doors.files import Files
from kourou.errors import Refused
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import SCHEDULE_TOPIC
from kourou.protocol.record import topic_part
from kourou.store.config import ENTRY_BYTES, StoreConfig
from kourou.store.deleted import DeletedTopics
from kourou.store.foreign import refuse_foreign_formats
from kourou.store.rows import Rows
from kourou.store.segment import OpenFiles
from kourou.store.segmented_file import SegmentedFile

ENTRY = Struct(">qiq")
ENTRIES = Rows("qiq")
FILLER_SIZE = 0x7FFF_FFFF
SECTOR_BYTES = 512
DUE_INEXACT_MS = 5000
"""A message waits from when it came, and has the store time of the first one of its tick."""
_DELAY_MS_MAX = 366 * 24 * 3600 * 1000
_READ_BYTES = 1 << 16
_FILLER = ENTRY.pack(0, FILLER_SIZE, 0)
_PAGE_BYTES = 4096
_PAGE_ENTRIES = _PAGE_BYTES // ENTRY_BYTES
_ZEROS = bytes(_PAGE_BYTES)

Entry = tuple[int, int, int]
"""Physical offset, record size, tag code."""


Forgotten = dict[int, bytes]
"""Entries of a queue's file that are no longer believed, by where they lay in the queue."""


def due_as_noted(
    forgotten: Forgotten | None, queue_offset: int, place: int, size: int, stored_ms: int
) -> int | None:
    """When a delayed message was due as its former entry has it; None when there is none to be believed.

    The log knows its level alone, and what a level means may have been changed since.
    """
    for start, entries in (forgotten or {}).items():
        at = queue_offset * ENTRY_BYTES - start
        if 0 <= at <= len(entries) - ENTRY_BYTES:
            entry: Entry = ENTRY.unpack_from(entries, at)
            if entry[:2] == (place, size) and -DUE_INEXACT_MS <= entry[2] - stored_ms <= _DELAY_MS_MAX:
                return entry[2]
    return None


@lru_cache(maxsize=1024)
def entries_struct(count: int) -> Struct:
    """Takes `count` entries apart at once: three numbers each, in one flat tuple."""
    return Struct(">" + "qiq" * count)


class ConsumeQueue:
    __slots__ = (
        "_files",
        "_head",
        "_tail",
        "end_physical",
        "forgotten",
        "is_new",
        "max_offset",
        "min_offset",
        "next_offset",
        "old_end",
        "queue_id",
        "room",
        "segments",
        "staged",
        "sure_from",
        "sure_to",
        "topic",
        "topic_bytes",
        "topic_part",
        "unwritten",
    )

    def __init__(
        self, files: Files, open_files: OpenFiles, folder: str, topic: str, queue_id: int, segment_bytes: int
    ) -> None:
        self._files = files
        self.topic = topic
        self.topic_bytes = topic.encode()
        self.topic_part = topic_part(self.topic_bytes)
        """The topic as a record holds it; empty when it is too long for the usual kind of record."""
        self.queue_id = queue_id
        self.segments = SegmentedFile(files, open_files, f"{folder}/{topic}/{queue_id}", segment_bytes)
        self.is_new = True
        """Its folder has not been synced yet."""
        self.min_offset = 0
        """The first entry whose record is still there."""
        self.max_offset = 0
        """The offset of the next entry: what readers see ends before it."""
        self.next_offset = 0
        """The offset of the next message to be staged; ahead of `max_offset` while some are on their way."""
        self.staged: list[int] = []
        """Entries of this tick, three numbers each."""
        self.end_physical = -1
        """The end of the last entry's record."""
        self.unwritten = b""
        """The last entries, while they wait to be written."""
        self.room = 0
        """Entries before this offset fall into files that are there, as far as it is known."""
        self.old_end = 0
        """Entries before this one are from before the start: they are looked at before they are believed."""
        self.sure_from = self.sure_to = 0
        """Those in between have been (`mending.py`)."""
        self.forgotten: Forgotten | None = None
        """While loading, of those that hold times: the entries that are built again."""
        self._head: bytes | None = None  # while loading: all entries of a queue that has few
        self._tail: bytes | None = None  # while loading: what lies behind its last entry; None: unknown

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.topic} {self.queue_id} [{self.min_offset}, {self.max_offset})>"

    # Writing.

    def append(self, entries: bytes) -> None:
        """Write entries after the last one, and those that wait. Raises OSError; then none of them counts,
        and those that wait go on waiting."""
        self._write(self.unwritten + entries)
        self._count(entries)

    def append_later(self, entries: bytes, end_physical: int) -> None:
        """As `append`, but they wait in memory; the last one's record ends at `end_physical`. There must be
        `room`: so a queue that has entries has a file, and to make one, likeliest to fail, is not put off."""
        self.unwritten += entries
        self.end_physical = end_physical
        self.max_offset += len(entries) // ENTRY_BYTES

    def write(self) -> None:
        """Write what waits. Raises OSError; then it goes on waiting."""
        if self.unwritten:
            self._write(self.unwritten)

    def _write(self, data: bytes) -> None:
        if not self.max_offset and self.segments.is_empty:
            self._files.make_folders(self.segments.folder)
        self.segments.write(data, self.first_unwritten * ENTRY_BYTES)
        self.unwritten = b""
        self.room = self.segments.end // ENTRY_BYTES

    def _count(self, entries: bytes) -> None:
        place, size, _ = ENTRY.unpack_from(entries, len(entries) - ENTRY_BYTES)
        self.end_physical = place + size
        self.max_offset += len(entries) // ENTRY_BYTES

    @property
    def first_unwritten(self) -> int:
        """The first entry that is not in its file yet; `max_offset` when all are."""
        return self.max_offset - len(self.unwritten) // ENTRY_BYTES

    def begin_at(self, queue_offset: int) -> None:
        """Let the first message have this offset: what lies before it in its file says "nothing here"."""
        assert self.segments.is_empty
        assert self.max_offset == 0
        self._files.make_folders(self.segments.folder)
        at = queue_offset * ENTRY_BYTES
        base = at - at % self.segments.segment_bytes
        segment = self.segments.grow(base)
        try:
            segment.write(_FILLER * ((at - base) // ENTRY_BYTES), 0)
        except OSError:
            self._files.remove(self.segments.forget(base))  # the next try begins where this one did
            raise
        self.min_offset = self.max_offset = self.next_offset = queue_offset

    # Reading.

    def entries(self, queue_offset: int, count: int) -> bytes:
        """Up to `count` entries as they lie on disk, or will; none from `max_offset` on."""
        count = min(count, self.max_offset - queue_offset)
        if count <= 0:
            return b""
        size, at = count * ENTRY_BYTES, queue_offset * ENTRY_BYTES
        within = at - self.first_unwritten * ENTRY_BYTES
        if within + size <= 0:
            return self.segments.read(size, at)
        if within >= 0:
            return self.unwritten[within : within + size]
        written = self.segments.read(-within, at)
        return written + self.unwritten[: within + size] if len(written) == -within else written

    def entry(self, queue_offset: int) -> Entry | None:
        data = self.entries(queue_offset, 1)
        return ENTRY.unpack(data) if data else None

    def first_where(self, holds: Callable[[Entry], bool], low: int, high: int) -> int:
        """The first offset in [low, high) whose entry `holds`, and all after it do; `high` when none does."""
        while low < high:
            middle = (low + high) // 2
            if holds(self._raw_entry(middle)):
                high = middle
            else:
                low = middle + 1
        return low

    def _raw_entry(self, queue_offset: int) -> Entry:
        at = queue_offset * ENTRY_BYTES
        if self._head is not None and (within := at - self.segments.start) + ENTRY_BYTES <= len(self._head):
            return ENTRY.unpack_from(self._head, within)
        if self.unwritten and queue_offset >= self.first_unwritten:
            return ENTRY.unpack_from(self.unwritten, at - self.first_unwritten * ENTRY_BYTES)
        data = self.segments.read(ENTRY_BYTES, at)
        return ENTRY.unpack(data) if len(data) == ENTRY_BYTES else (0, 0, 0)

    # After a restart.

    def begins_before(self, physical_offset: int) -> bool:
        """Whether its first entry on the disk leads to a record before that place."""
        place, size, _ = self._raw_entry(self.segments.start // ENTRY_BYTES)
        return 0 < size < FILLER_SIZE and place < physical_offset

    def load(self, *, is_clean: bool = True) -> None:
        self.segments.load("mappedFileSizeConsumeQueue", may_be_torn=not is_clean)
        if len(self.segments.bases) == 1:
            self._look_ahead()

    def _look_ahead(self) -> None:
        """Most queues are short: all of it is in one page, which is read while the file is open. To open
        80,000 files three times instead of once costs two seconds."""
        segment = self.segments.segment_at(self.segments.start)
        if segment is not None and segment.data_from(_PAGE_BYTES) == segment.size:
            page = segment.read(_PAGE_BYTES, 0)
            zeros_at = page.find(_ZEROS[:ENTRY_BYTES])  # perhaps those at the end of the last entry
            end = zeros_at + -zeros_at % ENTRY_BYTES
            if zeros_at >= 0 and page.endswith(_ZEROS[: len(page) - end]):
                self._head, self._tail = page[:end], b""

    def loaded(self) -> None:
        """From now on nothing is known of the file but what is read from it."""
        self._head = self._tail = None
        self.old_end = self.max_offset

    def recover(self, trusted: int | None) -> None:
        """Find the last entry. With `trusted`, only those of records before that place are believed and
        kept; the rest is forgotten, and built again from the log."""

        def is_past_the_end(entry: Entry) -> bool:
            physical, size, _ = entry
            if size == FILLER_SIZE:
                return False
            return size <= 0 or physical < 0 or (trusted is not None and physical >= trusted)

        entries_each = self.segments.segment_bytes // ENTRY_BYTES
        bases = self.segments.bases
        self.min_offset = self.max_offset = self.next_offset = self.room = 0
        self.end_physical = -1
        gone = []
        while len(bases) > 1 and is_past_the_end(self._raw_entry(bases[-1] // ENTRY_BYTES)):
            gone.append(bases.pop())
        if bases:
            first = bases[-1] // ENTRY_BYTES
            end = self._end_in_first_page(first, is_past_the_end)
            if end is None:
                end = self.first_where(is_past_the_end, first, first + entries_each)
            if self.topic == SCHEDULE_TOPIC and trusted is not None:
                self._remember(end)
            if self._head is not None:
                believed = (end - first) * ENTRY_BYTES
                self._head, self._tail = self._head[:believed], self._head[believed:] + (self._tail or b"")
            if end > bases[0] // ENTRY_BYTES:
                self._end_at(end, bases[0] // ENTRY_BYTES)
            else:  # nothing to be believed: it is built anew, from whatever offset its first record has
                gone.append(bases[0])
                self.loaded()
        self.segments.drop_last(gone)

    def _remember(self, end: int) -> None:
        at = start = end * ENTRY_BYTES
        parts = []
        while (data := self.segments.read(_READ_BYTES, at)).strip(b"\0"):
            parts.append(data)
            at += len(data)
        if parts:
            self.forgotten = self.forgotten or {}
            self.forgotten.setdefault(start, b"".join(parts))

    def _end_in_first_page(self, first: int, is_past_the_end: Callable[[Entry], bool]) -> int | None:
        """Most queues are short: one read finds their end, or None when it lies further on."""
        page = self._head
        if page is None:
            page = self.segments.read(_PAGE_ENTRIES * ENTRY_BYTES, first * ENTRY_BYTES)
            page = page[: len(page) - len(page) % ENTRY_BYTES]
        for index, entry in enumerate(ENTRY.iter_unpack(page)):
            if is_past_the_end(entry):
                return first + index
        return None if self._head is None else first + len(page) // ENTRY_BYTES

    def _end_at(self, end: int, first: int) -> None:
        self.max_offset = self.next_offset = end
        self.min_offset = first
        last = self._raw_entry(end - 1) if end > first else None
        self.end_physical = last[0] + last[1] if last is not None and last[1] != FILLER_SIZE else -1

    @property
    def may_end_torn(self) -> bool:
        """Whether the last entry lies across two sectors, so that a power cut may have left half of it."""
        return self.max_offset * ENTRY_BYTES % SECTOR_BYTES in range(1, ENTRY_BYTES)

    def drop_last(self) -> None:
        """Forget the last entry: it is not what was written."""
        self._end_at(self.max_offset - 1, self.min_offset)
        self.loaded()

    def restore(self, entries: bytes) -> None:
        """As `append`, while loading. After a kill some entries are in the file already: they are written all
        the same, because a sync may have failed that was to bring them to the disk."""
        tail = self._tail
        self._tail = tail[len(entries) :] if tail and tail.startswith(entries) else None
        self.append(entries)

    def zero_tail(self) -> bool:
        """Leave no entry of a former life behind the last one; returns whether there was any."""
        return self._tail != b"" and self.segments.cut(self.max_offset * ENTRY_BYTES)

    def correct_min(self, log_start: int) -> None:
        """The first entry that points into the log: the log may have lost its oldest files."""
        first = self.segments.start // ENTRY_BYTES
        low = max(self.min_offset, first)

        def is_there(entry: Entry) -> bool:
            return entry[1] <= 0 or (entry[0] >= log_start and entry[1] != FILLER_SIZE)

        if low < self.max_offset and not is_there(self._raw_entry(low)):
            low = self.first_where(is_there, low, self.max_offset)
        self.min_offset = low


class ConsumeQueues:
    """All queues of a store, by topic and number."""

    def __init__(self, config: StoreConfig, files: Files) -> None:
        self._config = config
        self._files = files
        self._open_files = OpenFiles(files, config.open_consume_queues_max)
        self.deleted = DeletedTopics(files, config.root)
        """Topics that are no more: what the log holds of them belongs to no queue."""
        self.table: dict[tuple[str, int], ConsumeQueue] = {}
        """Read freely; changed only here."""

    def load(self, *, is_clean: bool = True) -> None:
        """Find the queues on disk. Raises StoreForeign when they are not of the plain kind.

        Unless the last stop was clean, files at their ends may be missing: those are made again from the log.
        """
        folder = self._config.queues_folder
        refuse_foreign_formats(self._files, self._config)
        for topic in self._files.list(folder):
            for number in (
                self._files.list(f"{folder}/{topic}") if self._files.is_folder(f"{folder}/{topic}") else ()
            ):
                if number.isascii() and number.isdecimal():
                    self._add(topic, int(number)).load(is_clean=is_clean)
        self.deleted.load()
        for topic in self.deleted.topics:
            for queue in self.of_topic(topic):
                if queue.begins_before(self.deleted.end_of(topic)):
                    self.remove_queue(queue)  # a crash came between the note and the removal

    def get_or_make(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue; a new one has no file before its first entry. Refuses names that cannot be a folder."""
        queue = self.table.get((topic, queue_id))
        if queue is None:
            if queue_id < 0 or queue_id > 0x7FFF_FFFF:
                raise Refused(
                    ResponseCode.INVALID_PARAMETER, f"queue id {queue_id} is not a number of a queue"
                )
            if not is_folder_name(topic):
                raise Refused(
                    ResponseCode.MESSAGE_ILLEGAL, f"topic {topic[:80]!r} cannot be the name of a folder"
                )
            queue = self._add(topic, queue_id)
        return queue

    def _add(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = ConsumeQueue(
            self._files,
            self._open_files,
            self._config.queues_folder,
            topic,
            queue_id,
            self._config.consume_queue_segment_bytes,
        )
        self.table[topic, queue_id] = queue
        return queue

    def on_disk(self) -> list[ConsumeQueue]:
        return [queue for queue in self.table.values() if not queue.segments.is_empty]

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        return [queue for queue in self.table.values() if queue.topic == topic]

    def remove_topic(self, topic: str) -> None:
        """Delete all queues of a topic."""
        for queue in self.of_topic(topic):
            queue.segments.close()
            del self.table[topic, queue.queue_id]
        folder = f"{self._config.queues_folder}/{topic}"
        if is_folder_name(topic) and self._files.is_folder(folder):
            self._files.remove_folder(folder)
            self._files.sync_folder(self._config.queues_folder)

    def remove_queue(self, queue: ConsumeQueue) -> None:
        """Delete one queue of a topic."""
        queue.segments.close()
        del self.table[queue.topic, queue.queue_id]
        self._files.remove_folder(queue.segments.folder)

    def close(self) -> None:
        self._open_files.close_all()


def is_folder_name(name: str) -> bool:
    """Whether a folder of this name lies inside its parent, on any system."""
    return (
        bool(name) and name.strip(".") != "" and not set(name) & _NOT_IN_A_NAME and len(name.encode()) <= 255
    )


_NOT_IN_A_NAME = frozenset("/\\:\0")
