"""Do the consume queues say of the log what the log says of itself?

The log is walked once, by whoever has it. Each record says which entry its queue must have for it; these are
collected and compared queue by queue, some ten thousand at a time, as bytes. Only where they differ is an
entry taken apart. Entries that no record asks for are looked at as well:

    of records that are gone with the log's oldest files, or before a queue's first         nothing to say
    a copy of a neighbour, in the place of a record that was found damaged                  counted
    anything else                                                                           a finding

A topic that was deleted leaves its records in the log. When it is made again its offsets begin at 0 again:
what was held against the queue until then is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kourou.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from kourou.store.config import ENTRY_BYTES
from kourou.store.consume_queue import DUE_INEXACT_MS, ENTRY, FILLER_SIZE, ConsumeQueue, ConsumeQueues
from kourou.store.findings import ERROR, NOTE, Finding, RebuildQueue, Report
from kourou.store.segment import segment_name

RECORDS_A_COMPARISON = 1 << 16
_TAG_IS_A_TIME = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC))
_TIME_MIN = 1 << 31
_NO_ENTRY = (0, 0, 0)
_UNASKED_A_TIME = 4096


class _Run:
    """Entries that must follow one another."""

    __slots__ = ("entries", "first")

    def __init__(self, first: int) -> None:
        self.first = first
        self.entries: list[bytes] = []


@dataclass
class _Trouble:
    """Neighbouring entries with one thing wrong."""

    kind: str
    first: int
    count: int
    place: int
    """In the log, of the first one's record; -1 when it has none."""
    is_late: bool
    """The record came after the last checkpoint: the next start sees to its entry."""


@dataclass
class _Missing:
    """What the log has for a queue that is not there."""

    messages: int = 0
    late: int = 0


class QueueCheck:
    """One queue, while the log goes by."""

    __slots__ = (
        "_first",
        "_log_start",
        "_runs",
        "_tags_may_be_elsewhere",
        "entries_end",
        "good",
        "queue",
        "seen",
        "stand_ins",
        "troubles",
    )

    def __init__(self, queue: ConsumeQueue, log_start: int, tags_may_be_elsewhere: bool) -> None:
        self.queue = queue
        self._tags_may_be_elsewhere = tags_may_be_elsewhere
        self._log_start = log_start
        self._runs: list[_Run] = []
        self._first = queue.segments.start // ENTRY_BYTES
        self.entries_end = _entries_end(queue)
        """One after the last entry that is there."""
        self.seen = self._first
        """Entries before this one have been looked at."""
        self.good = 0
        self.stand_ins = 0
        self.troubles: list[_Trouble] = []

    def take(self, queue_offset: int, entry: bytes) -> None:
        """A record of this queue has gone by, and this is what its entry must be."""
        runs = self._runs
        run = runs[-1] if runs else None
        if run is None or queue_offset != run.first + len(run.entries):
            run = _Run(queue_offset)
            runs.append(run)
        run.entries.append(entry)

    def compare(self, is_late: Callable[[int], bool]) -> None:
        """Look at what has been collected."""
        runs, self._runs = self._runs, []
        for run in runs:
            if run.first < self.seen and not run.first:  # the topic was deleted, and made again
                self.seen, self.good, self.stand_ins, self.troubles = self._first, 0, 0, []
            if run.first < self._first and self.seen == self._first:
                self._note_before_the_first(run, is_late)
            if run.first < self.seen:  # under an offset that was taken already; queues show the first
                del run.entries[: self.seen - run.first]
                run.first = self.seen
            self._look_at_unasked(self.seen, run.first, is_late)
            actual = self._read(run.first, len(run.entries))
            if b"".join(run.entries) == actual:
                self.good += len(run.entries)
            else:
                self._compare_each(run, actual, is_late)
            self.seen = run.first + len(run.entries)

    def _note_before_the_first(self, run: _Run, is_late: Callable[[int], bool]) -> None:
        """The queue has lost its oldest files, though the log has not."""
        for index, entry in enumerate(run.entries[: self._first - run.first]):
            place = ENTRY.unpack(entry)[0]
            self._note("missing", run.first + index, place, is_late(place))

    def _read(self, first: int, count: int) -> bytes:
        return self.queue.segments.read(count * ENTRY_BYTES, first * ENTRY_BYTES)

    def _compare_each(self, run: _Run, actual: bytes, is_late: Callable[[int], bool]) -> None:
        for index, expected in enumerate(run.entries):
            at = index * ENTRY_BYTES
            found = actual[at : at + ENTRY_BYTES]
            if found == expected:
                self.good += 1
                continue
            place, size, tag = ENTRY.unpack(expected)
            there = ENTRY.unpack(found) if len(found) == ENTRY_BYTES else _NO_ENTRY
            if there == _NO_ENTRY:
                kind = "missing"
            elif there[:2] != (place, size):
                kind = "wrong"
            elif self.queue.topic in _TAG_IS_A_TIME:
                is_hash = self.queue.topic == TIMER_TOPIC and -_TIME_MIN <= there[2] < _TIME_MIN
                is_level = self.queue.topic == SCHEDULE_TOPIC
                if tag < _TIME_MIN or is_hash or (is_level and abs(there[2] - tag) <= DUE_INEXACT_MS):
                    self.good += 1
                    continue
                kind = "wrong time"
            elif self._tags_may_be_elsewhere and there[2] < -(1 << 31):
                self.good += 1
                continue
            else:
                kind = "wrong tag"
            self._note(kind, run.first + index, place, is_late(place))

    def _look_at_unasked(self, start: int, end: int, is_late: Callable[[int], bool]) -> None:
        """Entries that no record asks for, up to the one of a record."""
        following = self._read(end, 1) if end < self.entries_end else b""
        before = self._read(start - 1, 1) if start > self._first else b""
        end = min(end, self.entries_end)
        while start < end:
            data = self._read(start, min(_UNASKED_A_TIME, end - start))
            for at in range(0, len(data), ENTRY_BYTES):
                found = data[at : at + ENTRY_BYTES]
                place, size, _ = ENTRY.unpack(found)
                if size == FILLER_SIZE or (size > 0 and 0 <= place < self._log_start):
                    self.good += 1
                elif found in (following, before) and size > 0:
                    self.stand_ins += 1
                elif not following and not size:
                    pass  # after the last one
                else:
                    self._note("without a record", start + at // ENTRY_BYTES, place, is_late(place))
                before = found
            start += _UNASKED_A_TIME

    def finish(self, is_late: Callable[[int], bool]) -> None:
        """The log has ended."""
        self._look_at_unasked(self.seen, self.entries_end, is_late)

    def _note(self, kind: str, queue_offset: int, place: int, is_late: bool) -> None:
        last = self.troubles[-1] if self.troubles else None
        if last is not None and (last.kind, last.is_late, last.first + last.count) == (
            kind,
            is_late,
            queue_offset,
        ):
            last.count += 1
        else:
            self.troubles.append(_Trouble(kind, queue_offset, 1, place, is_late))


def _entries_end(queue: ConsumeQueue) -> int:
    if queue.segments.is_empty:
        return 0
    for base in reversed(queue.segments.bases):
        segment = queue.segments.segment_at(base)
        assert segment is not None
        if end := segment.data_end():
            return base // ENTRY_BYTES + -(-end // ENTRY_BYTES)
    return queue.segments.start // ENTRY_BYTES


class QueueChecks:
    """All queues, while the log goes by."""

    def __init__(
        self,
        queues: ConsumeQueues,
        log_start: int,
        is_late: Callable[[int], bool],
        tags_may_be_elsewhere: bool,
    ) -> None:
        """`tags_may_be_elsewhere`: a tag code may be an address in consumequeue_ext."""
        self._is_late = is_late
        self._checks = {
            (queue.topic_bytes, queue.queue_id): QueueCheck(queue, log_start, tags_may_be_elsewhere)
            for queue in queues.on_disk()
        }
        self._missing: dict[tuple[bytes, int], _Missing] = {}
        self._touched: set[QueueCheck] = set()
        self._collected = 0

    def take(self, topic: bytes, queue_id: int, queue_offset: int, place: int, size: int, tag: int) -> None:
        """A record that must be in a queue."""
        check = self._checks.get((topic, queue_id))
        if check is None:
            missing = self._missing.setdefault((topic, queue_id), _Missing())
            missing.messages += 1
            missing.late += self._is_late(place)
            return
        check.take(queue_offset, ENTRY.pack(place, size, tag))
        self._touched.add(check)
        self._collected += 1
        if self._collected >= RECORDS_A_COMPARISON:
            self.compare()

    def compare(self) -> None:
        self._collected = 0
        for check in self._touched:
            check.compare(self._is_late)
        self._touched.clear()

    def finish(self, report: Report, *, none_is_lost: bool, known_topics: frozenset[str] | None) -> None:
        """The log has ended: put it all into `report`.

        `none_is_lost` says that the checkpoint misses no queue; `known_topics` are those of topics.json.
        """
        self.compare()
        for check in self._checks.values():
            check.finish(self._is_late)
            report.queues += 1
            report.queue_entries += check.good + check.stand_ins
            report.stand_ins += check.stand_ins
            report.findings += [_finding(check.queue, trouble) for trouble in check.troubles]
        for (name, queue_id), missing in self._missing.items():
            topic = name.decode("utf-8", "replace")
            if RebuildQueue(topic, queue_id) in report.actions:
                continue  # what is wrong with it was said when its files were looked at
            is_deleted = none_is_lost or (known_topics is not None and topic not in known_topics)
            if missing.messages > missing.late and is_deleted:
                report.unlisted_records += missing.messages
            else:
                report.findings.append(_missing_queue(topic, queue_id, missing))


def _missing_queue(topic: str, queue_id: int, missing: _Missing) -> Finding:
    is_wrong = missing.messages > missing.late
    return Finding(
        severity=ERROR if is_wrong else NOTE,
        file=f"consumequeue/{topic}/{queue_id}",
        what=f"missing, with its {missing.messages} messages",
        meaning="they are in the log, and nobody can read them" if is_wrong else "the next start makes it",
        action=RebuildQueue(topic, queue_id) if is_wrong else None,
    )


_MEANINGS = {
    "missing": "their messages are in the log, and nobody can read them",
    "wrong": "readers get another message, or none",
    "wrong tag": "filters by tag leave their messages out, or let others in",
    "wrong time": "their messages come at another time than they should",
    "without a record": "there is no message of this queue where they point to",
}


_LEVELS = "nothing: it may be that messageDelayLevel was another one; -c says what it is now"


def _finding(queue: ConsumeQueue, trouble: _Trouble) -> Finding:
    at = trouble.first * ENTRY_BYTES
    within = at % queue.segments.segment_bytes
    last = trouble.first + trouble.count - 1
    entries = f"entry {trouble.first}" if trouble.count == 1 else f"entries {trouble.first} to {last}"
    pointing = f" (log {trouble.place})" if trouble.place >= 0 else ""
    # Times of delay levels are others, too, when somebody has changed what the levels mean, or has not said
    # what they mean here. Which of the two is right, the log does not say: the time stays as it is.
    is_of_a_level = (trouble.kind, queue.topic) == ("wrong time", SCHEDULE_TOPIC)
    is_note = trouble.is_late or is_of_a_level
    return Finding(
        severity=NOTE if is_note else ERROR,
        file=f"consumequeue/{queue.topic}/{queue.queue_id}/{segment_name(at - within)}",
        offset=within,
        what=f"{entries} {trouble.kind}{pointing}",
        meaning="the next start puts it right" if trouble.is_late else _MEANINGS[trouble.kind],
        action=None if is_note else RebuildQueue(queue.topic, queue.queue_id),
        advice=_LEVELS if is_of_a_level else "",
    )
