"""Verify a stopped store: every record, every entry of every queue and of the index, every small file.

    check(config, files)      one walk over the log, some megabytes at a time, in memory that does not grow
                              with it; returns a Report and changes nothing

The walk is recovery's own (`Finder`): each record by its lengths, its CRCs and the place it says it lies at;
where there is none, the bytes up to the next one. What each record asks of its queue and of the index is
compared as it goes by (`check_queues`, `check_index`). Sizes need not be told: they are seen from the files.

A folder that no broker has closed is not yet in order, and need not be: what came after its last checkpoint
is for the next start to see to, and only worth a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kourou.doors.files import Files
from kourou.errors import StoreLocked
from kourou.protocol.names import TIMER_TOPIC
from kourou.protocol.properties import find
from kourou.protocol.record import MAGIC_BLANK
from kourou.store.check_index import IndexCheck
from kourou.store.check_queues import QueueChecks
from kourou.store.check_state import check_state
from kourou.store.checkpoint import Checkpoint, damaged_marks, read_checkpoint
from kourou.store.commit_log import CommitLog
from kourou.store.config import StoreConfig
from kourou.store.consume_queue import ConsumeQueues, is_folder_name
from kourou.store.dispatch import entry_tag
from kourou.store.findings import NOTE, CutTail, Finding, Report, RewriteCheckpoint, SetAside
from kourou.store.key_hashes import UNIQUE_ID_BYTES, Keyed, KeyHashes, Keys
from kourou.store.layout import Layout, lay_out, refuse_what_is_no_store
from kourou.store.recovery import (
    PREPARED,
    ROLLED_BACK,
    TRANSACTION_BITS,
    Finder,
    Sketch,
    file_to_begin_with,
    valid_record,
)

Progress = Callable[[int, int], None]
"""Told how many bytes of how many have been looked at."""

_RECORDS_A_TURN = 8192
_CHECKPOINT_BYTES_MIN = 40
_UNIQUE_ID = b"UNIQ_KEY\x01"
_ROLLED_AFTER_MS_MIN = 30 * 60 * 1000
"""Half of the shortest time that messages can be kept for."""


class _Topic(NamedTuple):
    name: str
    is_usable: bool


@contextmanager
def alone(files: Files, root: str, *, to_change: bool = False) -> Iterator[None]:
    """Keep brokers out of the folder meanwhile; raises StoreLocked when one is there.

    Merely to look, a lock file is not made where there is none, nor where it cannot be written.
    """
    path = f"{root}/lock"
    lock = None
    if to_change or files.exists(path):
        try:
            lock = files.lock(path)
        except OSError:
            if to_change:
                raise
        else:
            if lock is None:
                raise StoreLocked(f"{root} is in use by a broker: stop it first")
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def check(
    config: StoreConfig,
    files: Files,
    progress: Progress = lambda done, total: None,
    *,
    is_told: bool = False,
) -> Report:
    """Look at everything. Raises StoreForeign when the folder is no store, or one of a newer format.

    `is_told`: the sizes in `config` are those of the folder's broker, and not merely the usual ones.
    """
    root = config.root
    refuse_what_is_no_store(files, config)
    checkpoint = read_checkpoint(files, f"{root}/checkpoint")
    report = Report(root, is_closed=not files.exists(f"{root}/abort"))
    layout = lay_out(config, files, checkpoint, report, is_told=is_told)
    topics = check_state(files, root, report)
    _Check(layout, checkpoint, report, progress).run(topics)
    return report


class _Check:
    def __init__(self, layout: Layout, checkpoint: Checkpoint, report: Report, progress: Progress) -> None:
        self._config = config = layout.config
        self._view = layout.view
        self._shape = layout.index_shape
        self._checkpoint = checkpoint
        self._report = report
        self._progress = progress
        self._log = CommitLog(config, layout.view)
        self._log.load()
        self._queues = ConsumeQueues(config, layout.view)
        self._queues.load()
        self._topics: dict[bytes, _Topic] = {}
        self._vouched = checkpoint.end if checkpoint.last_record >= 0 else 0
        self._end = self._log.start
        self._first_store_ms = self._last_store_ms = 0
        self._late_from = self._begin_of_what_is_late()

    def _begin_of_what_is_late(self) -> int:
        """What lies behind this place, the next start sees to."""
        if self._report.is_closed:
            return 1 << 62
        if self._vouched:
            return self._vouched
        return file_to_begin_with(self._config, self._log, self._checkpoint)

    def _is_late(self, place: int) -> bool:
        return place >= self._late_from

    def run(self, known_topics: frozenset[str] | None) -> None:
        report, checkpoint = self._report, self._checkpoint
        has_more_tags = self._view.exists(f"{self._config.root}/consumequeue_ext")
        queues = QueueChecks(self._queues, self._log.start, self._is_late, has_more_tags)
        index = None
        if self._shape is not None:
            index = IndexCheck(
                *(self._view, self._config.root, self._shape, checkpoint.index, report.is_closed),
                log_is_whole=self._log.start == 0,
            )
        self._walk(queues, index)
        self._look_at_tail()
        self._look_at_checkpoint()
        none_is_lost = self._vouched > 0 and len(self._queues.on_disk()) >= checkpoint.queues
        queues.finish(report, none_is_lost=none_is_lost, known_topics=known_topics)
        if index is not None:
            index.finish(report)
        if not report.is_closed:
            meaning = "no broker has closed the folder; the next start looks at the end of the log again"
            report.findings.append(Finding(severity=NOTE, file="abort", what="still there", meaning=meaning))
        self._log.close()
        self._queues.close()

    # The log.

    def _walk(self, queues: QueueChecks, index: IndexCheck | None) -> None:
        total = self._data_end() - self._log.start
        finder = Finder(self._config, self._log, self._log.start, verify=True)
        hashes = KeyHashes()
        keyed: list[Keyed] = []
        times: dict[int, int] = {}
        for number, sketch in enumerate(finder.sketches(), 1):
            self._take(sketch, queues, keyed)
            times[sketch[0]] = sketch[2]
            if number % _RECORDS_A_TURN == 0:
                if index is not None:
                    index.take(*_keys(hashes, keyed), times)
                keyed.clear()
                times.clear()
                self._progress(self._end - self._log.start, total)
        if index is not None:
            index.take(*_keys(hashes, keyed), times)
        self._report.log_bytes = self._end - self._log.start
        for damage in finder.damage:
            self._say(
                damage.start,
                f"{damage.end - damage.start} bytes that are no record: {damage.reason}",
                "a message is lost; those after it are whole",
                SetAside(damage.start, damage.end),
            )
        self._progress(total, total)

    def _take(self, sketch: Sketch, queues: QueueChecks, keyed: list[Keyed]) -> None:
        report = self._report
        report.records += 1
        place, size, store_ms, sys_flag, queue_id, queue_offset, name, properties = sketch
        self._end = place + size
        self._first_store_ms = self._first_store_ms or store_ms
        self._last_store_ms = store_ms
        topic = self._topics.get(name) or self._topic(name)
        kind = sys_flag & TRANSACTION_BITS
        if kind == ROLLED_BACK:
            report.hidden_records += 1
            return
        keyed.append((name, properties, _usual_id_at(properties), place))
        if kind == PREPARED:
            report.hidden_records += 1
            return
        if not topic.is_usable or queue_id < 0 or queue_offset < 0:
            self._say(
                place,
                f"topic {topic.name[:80]!r}, queue {queue_id}, offset {queue_offset}",
                "a message that can be in no queue; its CRCs are right, so it was stored like that",
                SetAside(place, place + size),
            )
            return
        tag = entry_tag(topic.name, properties, store_ms, self._config.delay_levels_ms)
        if topic.name == TIMER_TOPIC:
            tag = _wake_ms(properties, store_ms)
        queues.take(name, queue_id, queue_offset, place, size, tag)

    def _topic(self, name: bytes) -> _Topic:
        text = name.decode("utf-8", "replace")
        topic = self._topics[name] = _Topic(text, is_folder_name(text))
        return topic

    def _data_end(self) -> int:
        """One past the last byte of the log's files that is not zero."""
        for base in reversed(self._log.segments.bases):
            segment = self._log.segments.segment_at(base)
            if segment is not None and (end := segment.data_end()):
                return base + end
        return self._log.start

    def _look_at_tail(self) -> None:
        """What comes after the last record must be zeros."""
        end, data_end = self._after_blank(self._end), self._data_end()
        if not self._report.records and data_end > end:
            self._say(
                end,
                "data, but no message record in all of the log",
                "nothing here is a log; a broker does not start with it",
                None,
                "bring the folder back from a copy, or start with an empty one",
            )
            return
        if self._vouched > self._end:
            self._say(
                self._end,
                f"no record up to {self._vouched}, where the checkpoint says the log was on the disk",
                "the last messages are lost",
                SetAside(self._end, self._vouched),
            )
            end = self._vouched
        if data_end > end:
            self._say(
                end,
                f"{data_end - end} bytes after the last record",
                "a write did not get to its end; the next start cuts it off as well",
                CutTail(end, data_end),
            )

    def _after_blank(self, end: int) -> int:
        """The end of the log; past the record that ends a file, if it is there."""
        segment_bytes = self._config.commit_log_segment_bytes
        left = segment_bytes - end % segment_bytes
        head = self._log.read(8, end)
        is_blank = head == left.to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big", signed=True)
        return end + left if is_blank else end

    def _say(
        self, place: int, what: str, meaning: str, action: SetAside | CutTail | None, advice: str = ""
    ) -> None:
        segment = self._log.segments.segment_at(place)
        path = segment.path if segment is not None else self._log.segments.folder
        self._report.findings.append(
            Finding(
                file=path.removeprefix(self._config.root + "/"),
                offset=place - segment.base if segment is not None else None,
                what=what,
                meaning=meaning,
                action=action,
                advice=advice,
            )
        )

    # The checkpoint.

    def _look_at_checkpoint(self) -> None:
        path = f"{self._config.root}/checkpoint"
        data = self._view.read(path) if self._view.exists(path) else None
        if data is None:
            if self._report.records:
                self._say_checkpoint("missing", is_wrong=False)
        elif len(data) < _CHECKPOINT_BYTES_MIN:
            self._say_checkpoint(f"{len(data)} bytes long", is_wrong=True)
        elif damaged := damaged_marks(data, self._checkpoint):
            self._say_checkpoint(f"{' and '.join(damaged)} does not fit its CRC", is_wrong=True)
        elif not self._checkpoint.flushed_ms and self._vouched == 0 and self._report.records:
            self._say_checkpoint("says nothing, though there are messages", is_wrong=False)
        elif not self._are_times_right():
            self._say_checkpoint("its times are those of no message here", is_wrong=True)
        elif 0 < self._vouched <= self._end and not self._is_mark_right():
            self._say_checkpoint(f"no record ends at {self._vouched}, as it says", is_wrong=True)

    def _are_times_right(self) -> bool:
        checkpoint = self._checkpoint
        times = (checkpoint.flushed_ms, checkpoint.dispatched_ms, checkpoint.indexed_ms)
        if min(times) < 0 or max(times) > self._last_store_ms:
            return False
        # What lay before the log's first message may be gone; what was flushed last is not. An index may be
        # older: messages without keys are not in it.
        return all(not each or each >= self._first_store_ms for each in times[:2])

    def _is_mark_right(self) -> bool:
        last = valid_record(self._config, self._log, self._checkpoint.last_record)
        return last is not None and last.physical_offset + last.size == self._vouched

    def _say_checkpoint(self, what: str, *, is_wrong: bool) -> None:
        meaning = "the next start looks at more of the log than it would have to"
        self._report.findings.append(
            Finding(file="checkpoint", what=what, meaning=meaning, action=RewriteCheckpoint())
            if is_wrong
            else Finding(severity=NOTE, file="checkpoint", what=what, meaning=meaning)
        )


def _keys(hashes: KeyHashes, keyed: list[Keyed]) -> Keys:
    keys = Keys([], [])
    hashes.collect(keyed, keys)
    return keys


def _wake_ms(properties: bytes, store_ms: int) -> int:
    """When a timed message is to be taken up; 0 when that cannot be told, because it may be looked at before
    it is due."""
    value = find(properties, b"TIMER_OUT_MS") or b""
    out_ms = int(value) if value.isdigit() and len(value) <= 18 else 0
    return out_ms if out_ms <= store_ms + _ROLLED_AFTER_MS_MIN else 0


def _usual_id_at(properties: bytes) -> int:
    """Where the unique id begins that is all a message is found by; 0 when that is to be seen."""
    at = properties.find(_UNIQUE_ID)
    start = at + len(_UNIQUE_ID)
    end = start + UNIQUE_ID_BYTES
    is_usual = at >= 0 and (at == 0 or properties[at - 1] == 2) and properties[end : end + 1] == b"\x02"
    return start if is_usual and b"KEYS\x01" not in properties else 0
