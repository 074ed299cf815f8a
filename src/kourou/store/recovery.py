"""What to believe after a stop, clean or not.

The log is the truth, the consume queues are derived from it. From the place up to which both are vouched for,
the log is walked record by record, each checked by its CRCs and by the place it says it lies at:

    a whole record            goes (again) into its queue
    the end of a file         on to the next
    anything else             is there a valid record further on?
                              yes: the bytes between are set aside, counted and reported; the walk goes on
                              no:  a torn tail; the log ends here, and zeros follow

Where to begin, in this order: the mark of our own checkpoint, when a valid record ends just there; after a
clean stop the end of the last record in any queue; after a crash the file that RocketMQ's own checkpoint
names; else the first byte there is. A queue that turns out to lack entries sends us back to the first byte.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from kourou.doors.failpoints import reached
from kourou.errors import Corrupt, ProtocolError
from kourou.native import native
from kourou.protocol import record as records
from kourou.protocol.checksum import crc32
from kourou.protocol.names import SCHEDULE_TOPIC
from kourou.protocol.record import Record, Verdict
from kourou.store.checkpoint import Checkpoint
from kourou.store.commit_log import RECORD_OVERHEAD_BYTES_MAX, CommitLog
from kourou.store.config import ENTRY_BYTES, StoreConfig
from kourou.store.consume_queue import (
    ENTRIES,
    ENTRY,
    FILLER_SIZE,
    ConsumeQueue,
    ConsumeQueues,
    due_as_noted,
    is_folder_name,
)
from kourou.store.dispatch import Position, entry_tag

TRANSACTION_BITS = 0xC
PREPARED, ROLLED_BACK = 0x4, 0xC
_HIDDEN = (PREPARED, ROLLED_BACK)
_IPV6_BITS = 0x30
_OUR_HEAD = Struct(">ii4xi4xqqi16xq20xi")  # V1, both hosts IPv4: the body follows
_TOPIC_BYTES_MAX = 127
_CRC_START = b"__CRC32#\x01"
_MAGICS = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab")
_BLANK = b"\xcb\xd4\x31\x94"
_END_OF_FILES = 1 << 62
_WINDOW_BYTES = 8 << 20
_WINDOW_BYTES_MAX = 64 << 20
_WRITE_BYTES = 1024 * ENTRY_BYTES
_ENTRIES_GATHERED = 128 * 1024  # of all queues: ten thousand of them are to be opened once, not each time
_TORN_BYTES_MAX = 64 << 20
_STAND_INS_MAX = 10_000_000

_logger = logging.getLogger(__name__)


Sketch = tuple[int, int, int, int, int, int, bytes, bytes]
"""Of a record: place, size, store time, sys flag, queue, queue offset, topic, properties."""

Usual = Callable[[bytes, int, int], tuple[int, int, int]]
"""Takes the usual records in some bytes, from a place in them on, which is a place of the log. Of the last it
took: place, size, store time; a size of 0 says that it took none."""


class Damage(NamedTuple):
    """Bytes of the log that make no record, though records follow."""

    start: int
    end: int
    reason: str


class Recovered(NamedTuple):
    position: Position
    """Where the log ends."""
    start: int
    """From where on the log was looked at; what lies before is vouched for."""
    is_rebuilt: bool
    """Queues were built again from before the place that the checkpoint vouches for them up to."""
    damage: list[Damage]
    walked: int
    """How many records were looked at."""
    changed: dict[ConsumeQueue, int]
    """Queues that were written to, and the first entry that was."""
    has_lost_its_end: bool = False
    """The last of `damage` was the end of the log; what is stored next takes its places."""


Keep = Callable[[int, int], None]
"""Is told of bytes of the log, from a place to another."""


class _Vouched(NamedTuple):
    end: int
    """The checkpoint knows of a record that ends there; 0 when it knows of none."""
    keep: Keep


class _EntriesMissing(Exception):
    """A queue has a gap before the place the walk began at."""


def recover(
    config: StoreConfig,
    log: CommitLog,
    queues: ConsumeQueues,
    checkpoint: Checkpoint,
    is_clean: bool,
    keep: Keep = lambda start, end: None,
) -> Recovered:
    """Bring log and queues, freshly loaded, to one consistent end. Changes files; the lock must be held.

    `keep` is told of bytes that are about to be cut off, though the checkpoint vouches for records there: no
    torn write, but damage with nothing whole after it.
    """
    _refuse_a_lost_log(config, log, queues, checkpoint, is_clean)
    if log.segments.is_empty:
        for queue in queues.on_disk():
            queue.recover(trusted=0)
            queue.zero_tail()
            queue.loaded()
        queues.deleted.cut(0)
        log.resume(0)
        return Recovered(Position(0, -1, 0), 0, False, [], 0, {})
    start, last = _start(config, log, queues, checkpoint, is_clean)
    vouched = _Vouched(checkpoint.end if checkpoint.last_record >= 0 else 0, keep)
    try:
        return _Walk(config, log, queues, is_clean, start, last, vouched).run(start < checkpoint.end)
    except _EntriesMissing:
        for queue in queues.on_disk():
            queue.loaded()
        _trust(log, queues, log.start)
        return _Walk(config, log, queues, is_clean, log.start, None, vouched).run(is_rebuilt=True)


def _refuse_a_lost_log(
    config: StoreConfig, log: CommitLog, queues: ConsumeQueues, checkpoint: Checkpoint, is_clean: bool
) -> None:
    """A disk that is not mounted, or another storePathCommitLog, must not pass for an empty log: queues would
    be emptied, and what is stored then would take the places of what is stored there.

    What a checkpoint vouches for was on the disk, and so was all that a clean stop left.
    """
    end = log.segments.end
    if checkpoint.last_record >= end:
        says = f"the checkpoint says that it went up to {checkpoint.end}"
    elif end or not (checkpoint.flushed_ms > 0 or (is_clean and queues.on_disk())):
        return
    else:
        says = (
            "there are consume queues" if queues.on_disk() else "the checkpoint says that there were messages"
        )
    if end:
        has, way_out = (
            f"the log in {config.log_folder} ends at {end}",
            "or let kourou store repair stand in for them",
        )
    else:
        has, way_out = f"there is no log in {config.log_folder}", f"or move {config.root} away to begin anew"
    raise Corrupt(
        f"{has}, and {says}: is its disk mounted, is storePathCommitLog right? Nothing was changed; "
        f"bring the missing files back, {way_out}"
    )


def records_from(
    config: StoreConfig, log: CommitLog, start: int, end: int, *, is_verified: bool = False
) -> Iterator[Record]:
    """Every valid record of a recovered log from the one at `start` on and before `end`; damage is passed
    over.

    `is_verified`: recovery has just looked at them, their CRCs need not be compared again.
    """
    verify = config.verify_on_recovery and not is_verified
    return Finder(config, log, start, end=end, verify=verify).records()


def _start(
    config: StoreConfig, log: CommitLog, queues: ConsumeQueues, checkpoint: Checkpoint, is_clean: bool
) -> tuple[int, Record | None]:
    """Where to begin, and the record that ends there."""
    on_disk = queues.on_disk()
    start, last = log.start, None
    if on_disk and len(on_disk) >= checkpoint.queues:
        marked = valid_record(config, log, checkpoint.last_record)
        if marked is not None and checkpoint.last_record + marked.size == checkpoint.end:
            start, last = checkpoint.end, marked
        elif is_clean:
            return _after_clean_stop(config, log, queues)
        else:
            start = file_to_begin_with(config, log, checkpoint)
    _trust(log, queues, start)
    if last is not None and checkpoint.entries not in (None, _entries_of(queues)):
        start, last = log.start, None  # a queue has lost its end, or goes on with what is not its own
        _trust(log, queues, start)
    return start, last


def _entries_of(queues: ConsumeQueues) -> int:
    return sum(queue.max_offset for queue in queues.on_disk())


def _trust(log: CommitLog, queues: ConsumeQueues, physical_offset: int) -> None:
    for queue in queues.on_disk():
        queue.recover(trusted=physical_offset)
        if queue.max_offset > queue.min_offset and queue.may_end_torn and not _ends_as_written(log, queue):
            queue.drop_last()


def _ends_as_written(log: CommitLog, queue: ConsumeQueue) -> bool:
    """Whether the last entry names a record that says the same of itself.

    Of an entry that was never synced, the half with its place may be missing: it then points to the front of
    the log, where everything is to be believed.
    """
    entry = queue.entry(queue.max_offset - 1)
    if entry is None or entry[1] == FILLER_SIZE or entry[0] < log.start:
        return True
    if entry == queue.entry(queue.max_offset - 2):  # stands for a message that is lost (`repair`)
        return True
    data = log.segments.read(entry[1], entry[0])
    try:
        record = records.decode(data)
    except ProtocolError:
        return False
    return (record.topic, record.queue_id, record.queue_offset, record.size) == (
        queue.topic_bytes,
        queue.queue_id,
        queue.max_offset - 1,
        entry[1],
    )


def _after_clean_stop(
    config: StoreConfig, log: CommitLog, queues: ConsumeQueues
) -> tuple[int, Record | None]:
    for queue in queues.on_disk():
        queue.recover(trusted=None)
    last_entries = [
        entry
        for queue in queues.on_disk()
        if queue.end_physical > 0 and (entry := queue.entry(queue.max_offset - 1)) is not None
    ]
    if last_entries:
        physical, size, _ = max(last_entries)
        last = valid_record(config, log, physical)
        if last is not None and last.size == size:
            return physical + size, last
    _trust(log, queues, log.start)  # queues that point past the log: believe the log
    return log.start, None


def file_to_begin_with(config: StoreConfig, log: CommitLog, checkpoint: Checkpoint) -> int:
    """The newest file whose first record is old enough to be on the disk with all before it."""
    for base in reversed(log.segments.bases):
        first = valid_record(config, log, base)
        if first is not None and 0 < first.store_ms <= checkpoint.trusted_ms:
            return base
    return log.start


def valid_record(config: StoreConfig, log: CommitLog, at: int) -> Record | None:
    data = (
        log.record_at(at, log.start + len(log.segments.bases) * config.commit_log_segment_bytes)
        if at >= 0
        else None
    )
    if data is None:
        return None
    return checked_record(data, 0, len(data), config.verify_on_recovery, at).record


def checked_record(data: bytes, at: int, end: int, verify: bool, physical_offset: int) -> records.Checked:
    """As `record.check`, but a record must not end in zeros where its last sector never reached the disk,
    nor in what was a CRC of the whole, nor in another's bytes.

    Records of other brokers may lack the CRC of the whole, and the body's says nothing of what follows it.
    """
    checked = records.check(data, at, end, verify, physical_offset)
    if checked.record is not None:
        properties = checked.record.properties
        last = properties[-records.CRC_PROPERTY_BYTES :]
        if not last.startswith(_CRC_START):
            if b"\0" in properties:
                return records.Checked(Verdict.BAD, checked.size, "zeros in the properties")
            if _was_a_crc(last) or _CRC_START in properties:
                return records.Checked(Verdict.BAD, checked.size, "its CRC is damaged")
            if any(b"\x01" not in each for each in properties.split(b"\x02") if each):
                return records.Checked(Verdict.BAD, checked.size, "properties that are none")
    return checked


def is_overwritten(log: CommitLog, record: Record, at: int) -> bool:
    """Whether a record without a CRC of the whole had one, most likely: it lies in a file that begins with a
    record of ours, and what comes after it is none. Whatever took its end has gone on there."""
    following = at + record.size
    if record.properties[-records.CRC_PROPERTY_BYTES :].startswith(_CRC_START):
        return False
    if following % log.segments.segment_bytes == 0:
        return False
    head = log.read(8, following)
    if not any(head) or head[4:] in (*_MAGICS, _BLANK):
        return False
    base = at - at % log.segments.segment_bytes
    first = log.read(min(int.from_bytes(log.read(4, base), "big"), _WINDOW_BYTES_MAX), base)
    return sketched(first, memoryview(first), 0, base) is not None


def _was_a_crc(end: bytes) -> bool:
    """Whether the end of some properties looks like that of our records, some of its bytes apart."""
    alike = sum(found == expected for found, expected in zip(end, _CRC_START, strict=False))
    digits = sum(48 <= found < 58 for found in end[len(_CRC_START) : -1])
    return alike >= 3 and alike + digits + end.endswith(b"\x02") >= 12


class _Walk:
    """One pass over the log, from `start` to the end it finds."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: ConsumeQueues,
        is_clean: bool,
        start: int,
        last: Record | None,
        vouched: _Vouched,
    ) -> None:
        self._config = config
        self._vouched = vouched
        self._is_clean = is_clean
        self._log = log
        self._queues = queues
        self._start = start
        self._last = Position(start, last.physical_offset if last else -1, last.store_ms if last else 0)
        usual = None if native is None else self._take_usual
        self._finder = Finder(config, log, start, self._last.last_stored_ms, usual=usual)
        self._damage = self._finder.damage
        self._walked = 0
        self._entries: dict[ConsumeQueue, bytearray] = {}
        self._changed: dict[ConsumeQueue, int] = {}
        self._pending = 0
        self._topics: dict[bytes, str] = {}
        self._usual_from = start

    def run(self, is_rebuilt: bool) -> Recovered:
        self._refuse_what_is_no_log()
        reached("before-recovery-rebuild")
        for found in self._finder.sketches():
            self._take(found)
        self._write_entries()
        reached("after-recovery-rebuild")
        end = self._last.end
        if has_lost_its_end := end < self._vouched.end:
            self._vouched.keep(end, self._vouched.end)
            self._damage.append(Damage(end, self._vouched.end, "the last messages are no records any more"))
        self._queues.deleted.cut(end)
        reached("before-recovery-truncate")
        self._log.segments.cut(end)
        reached("after-recovery-truncate")
        self._log.resume(end)
        for queue in self._queues.on_disk():
            if not self._is_clean and queue.zero_tail():
                self._changed.setdefault(queue, max(0, queue.max_offset - 1))
            queue.correct_min(self._log.start)
            queue.next_offset = queue.max_offset
            queue.forgotten = None
            queue.loaded()
        return Recovered(
            *(self._last, self._start, is_rebuilt, self._damage, self._walked, self._changed),
            has_lost_its_end=has_lost_its_end,
        )

    def _refuse_what_is_no_log(self) -> None:
        """A log without a single record, and not empty either, is somebody else's: cut nothing there.

        After a crash it may also be the very first writes that were torn: little, and at the very start.
        """
        segments = self._log.segments
        if self._start != segments.start or any(True for _ in self._finder.candidates(segments.start)):
            return
        torn_max = 0 if self._is_clean else _TORN_BYTES_MAX
        for segment in segments.segments_between(segments.start, 1 << 62):
            end = segment.data_end()
            if end and segment.base + end > torn_max:
                raise Corrupt(
                    f"{segment.path} holds data, but nothing in {segments.folder} is a message record; "
                    "nothing was changed: restore the folder from a copy, or start with an empty one"
                )

    # Taking them in.

    def _take(self, found: Sketch) -> None:
        self._walked += 1
        at, size, store_ms, sys_flag, queue_id, queue_offset, topic_bytes, properties = found
        self._last = Position(at + size, at, store_ms)
        if sys_flag & TRANSACTION_BITS in _HIDDEN:
            return
        topic = self._topics.get(topic_bytes) or self._topic(topic_bytes)
        if topic is not None and at < self._queues.deleted.end_of(topic):
            return  # of a topic that was deleted since
        if topic is None or queue_id < 0:
            reason = f"topic {topic_bytes[:80]!r}, queue {queue_id}: no name of a queue"
            self._damage.append(Damage(at, at + size, reason))
            return
        queue = self._queues.get_or_make(topic, queue_id)
        entries = self._entries.get(queue)
        if entries is None:
            entries = self._entries[queue] = bytearray()
        expected = queue.max_offset + len(entries) // ENTRY_BYTES
        if queue_offset < expected:
            if self._place(queue, entries, queue_offset) >= at:
                return  # there already
            queue, entries, expected = *self._anew(queue), 0
        tag = entry_tag(topic, properties, store_ms, self._config.delay_levels_ms)
        if queue.forgotten is not None:
            due_ms = due_as_noted(queue.forgotten, queue_offset, at, size, store_ms)
            tag = tag if due_ms is None else due_ms
        entry = ENTRY.pack(at, size, tag)
        if queue_offset > expected:
            self._fill(queue, entries, queue_offset - expected, entry)
        entries += entry
        self._gathered(1)

    def _gathered(self, count: int) -> None:
        self._pending += count
        if self._pending >= _ENTRIES_GATHERED:
            self._write_entries()

    def _take_usual(self, window: bytes, within: int, at: int) -> tuple[int, int, int]:
        """Take the usual records that come next, all at once: our own, visible, of queues that are known and
        expect them. `_take` sees to the first one that is not."""
        assert native is not None
        self._usual_from = at
        _, last, runs, _, _ = native.walk(window, within, at, self._queue_of, False)
        place, size, stored_ms = last
        if size:
            self._last = Position(place + size, place, stored_ms)
        taken = 0
        for queue, numbers in runs:
            if numbers:
                self._entries.setdefault(queue, bytearray()).extend(ENTRIES.pack(numbers))
                taken += len(numbers) // ENTRIES.numbers
        self._walked += taken
        self._gathered(taken)
        return place, size, stored_ms

    def _queue_of(self, topic_bytes: bytes, queue_id: int) -> tuple[int, ConsumeQueue] | None:
        """A queue that has had records, and the offset it expects; not that of a topic deleted further on."""
        topic = self._topics.get(topic_bytes)
        queue = self._queues.table.get((topic, queue_id)) if topic is not None else None
        if topic is None or queue is None or topic == SCHEDULE_TOPIC:
            return None
        if self._usual_from < self._queues.deleted.end_of(topic):
            return None
        return queue.max_offset + len(self._entries.get(queue, b"")) // ENTRY_BYTES, queue

    def _place(self, queue: ConsumeQueue, entries: bytearray, queue_offset: int) -> int:
        """Where the message lies that has this offset."""
        gathered = queue_offset - queue.max_offset
        if gathered >= 0:
            place: int = ENTRY.unpack_from(entries, gathered * ENTRY_BYTES)[0]
            return place
        entry = queue.entry(queue_offset)
        return entry[0] if entry is not None else -1

    def _anew(self, queue: ConsumeQueue) -> tuple[ConsumeQueue, bytearray]:
        """The same offset again, further on: the topic was deleted and made again on the master that this log
        was copied from, and nothing here noted it. What was before is nobody's."""
        if self._start > self._log.start:
            raise _EntriesMissing  # believe the log from its beginning, and not one entry of a queue
        _logger.warning("%s queue %d begins anew", queue.topic, queue.queue_id)
        self._pending -= len(self._entries.pop(queue)) // ENTRY_BYTES
        self._changed.pop(queue, None)
        if not queue.segments.is_empty:
            self._queues.remove_queue(queue)
        queue = self._queues.get_or_make(queue.topic, queue.queue_id)
        entries = self._entries[queue] = bytearray()
        return queue, entries

    def _topic(self, name: bytes) -> str | None:
        topic = name.decode("utf-8", "replace")
        if not is_folder_name(topic):
            return None
        self._topics[name] = topic
        return topic

    def _fill(self, queue: ConsumeQueue, entries: bytearray, missing: int, entry: bytes) -> None:
        """Offsets before this one have no record: damaged, or gone with the log's oldest files."""
        if not self._damage and self._start > self._log.start:
            raise _EntriesMissing
        if queue.max_offset == 0 and not entries and self._begins_later(missing):
            queue.begin_at(missing)
        else:
            entries += entry * missing

    def _begins_later(self, missing: int) -> bool:
        """Whether a queue's first messages were never in this log, or went with its oldest files.

        What stands for them then (`begin_at`) points before the log. For messages that were damaged in a log
        which still has its first byte it would not, and RocketMQ's readers would pass over the whole file.
        """
        return self._log.start > 0 or not self._damage or missing > _STAND_INS_MAX

    def _write_entries(self) -> None:
        for queue, entries in self._entries.items():
            self._changed.setdefault(queue, queue.max_offset)
            for at in range(0, len(entries), _WRITE_BYTES):
                queue.restore(bytes(entries[at : at + _WRITE_BYTES]))
        self._entries.clear()
        self._pending = 0


class Finder:
    """Finds the records in a log, one after the other."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        start: int,
        last_stored_ms: int = 0,
        *,
        end: int = _END_OF_FILES,
        verify: bool | None = None,
        usual: Usual | None = None,
    ) -> None:
        """`end`: where the log ends, if that is known. In a log that is being written nothing behind it may
        be looked at: what is read of it now is something else a moment later, and to search what is reserved
        there for a record takes its time. `verify`: whether CRCs are compared; as the configuration says when
        not given. `usual` takes what it can of the records that come next, comparing their CRCs; the others
        are given out."""
        self._config = config
        self._log = log
        self._start = start
        self._end = end
        self._last_stored_ms = last_stored_ms
        self._verify = config.verify_on_recovery if verify is None else verify
        self._usual = usual
        self.damage: list[Damage] = []

    def records(self) -> Iterator[Record]:
        """Every valid record from `start` on, but for those that `usual` took."""
        for data, at, _ in self._found():
            yield Record(data, at)

    def sketches(self) -> Iterator[Sketch]:
        """The same, in short."""
        for _, _, sketch in self._found():
            yield sketch

    def _found(self) -> Iterator[tuple[bytes, int, Sketch]]:
        """Of every valid record: the bytes it lies in, where in them, and what it says."""
        at = self._start
        segment_bytes = self._config.commit_log_segment_bytes
        room = self._config.message_bytes_max + RECORD_OVERHEAD_BYTES_MAX
        window, window_at, window_end = b"", 0, 0
        view = memoryview(window)
        while at < self._end and (segment := self._log.segments.segment_at(at)) is not None:
            segment_end = segment.base + segment_bytes
            is_short = at + room > window_end and window_end < min(segment_end, self._end)
            if is_short or not window_at <= at < window_end:
                window, window_at = self._window(at), at
                window_end = at + len(window)
                view = memoryview(window)
            within = at - window_at
            if self._usual is not None:
                place, size, stored_ms = self._usual(window, within, at)
                if size:
                    self._last_stored_ms = stored_ms
                    at = place + size
                    continue
            sketch = sketched(window, view, within, at) if self._verify else None
            if sketch is not None:
                self._last_stored_ms = sketch[2]
                yield window, within, sketch
                at += sketch[1]
                continue
            left = segment_end - at
            checked = checked_record(window, within, min(len(window), within + left), self._verify, at)
            if checked.record is not None and self._verify and is_overwritten(self._log, checked.record, at):
                checked = records.Checked(Verdict.BAD, checked.size, "its end is overwritten")
            if checked.verdict is Verdict.OK and checked.record is not None:
                self._last_stored_ms = checked.record.store_ms
                yield window, within, sketch_of(checked.record)
                at += checked.size
            elif checked.verdict is Verdict.BLANK and checked.size == left:
                at += left
            else:
                following = self._following(at)
                if following is None:
                    return
                self.damage.append(Damage(at, following, checked.reason))
                at = following

    def _window(self, at: int) -> bytes:
        """The bytes from `at` on, as many as a record can have at most, and more to go on with."""
        left = self._config.commit_log_segment_bytes - at % self._config.commit_log_segment_bytes
        left = min(left, self._end - at)
        size = int.from_bytes(self._log.read(4, at), "big")
        return self._log.read(min(left, max(_WINDOW_BYTES, min(size, _WINDOW_BYTES_MAX))), at)

    def _following(self, at: int) -> int | None:
        """Where the next valid record begins; None when there is none to the end of the log."""
        return next(self.candidates(at + 1), None)

    def candidates(self, start: int) -> Iterator[int]:
        for segment in self._log.segments.segments_between(start, self._end):
            size = min(segment.size, self._end - segment.base)
            at = segment.data_from(max(0, start - segment.base))
            while at < size:
                data = segment.read(min(_WINDOW_BYTES, size - at), at)
                for place in _magic_places(data):
                    physical = segment.base + at + place - 4
                    if physical >= start and self._is_valid(physical):
                        yield physical
                if at + len(data) >= size:
                    break
                at = segment.data_from(at + len(data) - 8)  # a magic may lie across two readings

    def _is_valid(self, physical: int) -> bool:
        found = valid_record(self._config, self._log, physical)
        return found is not None and found.store_ms >= self._last_stored_ms


def sketched(data: bytes, view: memoryview, at: int, physical_offset: int) -> Sketch | None:
    """The record at `at` of `data`, if it is one of our own and whole: in half the time of `checked_record`,
    which decides about all others. `view` is one of `data`.

    The CRC of the whole stands for that of the body, too.
    """
    if at + _OUR_HEAD.size > len(data):
        return None
    size, magic, queue_id, queue_offset, place, sys_flag, store_ms, body_length = _OUR_HEAD.unpack_from(
        data, at
    )
    topic_at = at + _OUR_HEAD.size + body_length + 1
    stop = at + size
    crc_at = stop - records.CRC_PROPERTY_BYTES
    if (
        magic != records.MAGIC_V1
        or place != physical_offset
        or sys_flag & _IPV6_BITS
        or body_length < 0
        or topic_at >= crc_at
        or stop > len(data)
    ):
        return None
    properties_at = topic_at + data[topic_at - 1] + 2
    crc = b"%010d" % (crc32(view[at:crc_at]) & 0x7FFF_FFFF)
    if (
        data[topic_at - 1] > _TOPIC_BYTES_MAX
        or properties_at > crc_at
        or properties_at + int.from_bytes(data[properties_at - 2 : properties_at], "big") != stop
        or data[crc_at:stop] != b"%b%b\x02" % (_CRC_START, crc[::-1])
    ):
        return None
    topic, properties = data[topic_at : properties_at - 2], data[properties_at:stop]
    return physical_offset, size, store_ms, sys_flag, queue_id, queue_offset, topic, properties


def sketch_of(record: Record) -> Sketch:
    """The same of any record."""
    return (
        record.physical_offset,
        record.size,
        record.store_ms,
        record.sys_flag,
        record.queue_id,
        record.queue_offset,
        record.topic,
        record.properties,
    )


def _magic_places(data: bytes) -> Iterator[int]:
    """Where in `data` the second word of a record may lie."""
    prefix = _MAGICS[0][:3]
    at = data.find(prefix)
    while at >= 0:
        if data[at : at + 4] in _MAGICS:
            yield at
        at = data.find(prefix, at + 1)
