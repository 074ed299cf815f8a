"""Sees to it that what is read from the disk is what was once written there.

A broker serves the log's bytes as they lie there. Those it has written itself, it knows. What an earlier
process wrote may have rotted since: flipped bits, sectors that are blank, or another's. So before messages
from before the start are read for the first time, each is looked at:

    the entry's record is whole, and says the entry's queue and offset    nothing to do
    the record is found elsewhere in the log                              the entry is corrected
    it is nowhere                                                         the message is lost: told, counted,
                                                                          and passed over

For a lost message the entry of the next one stands, as after a recovery (`consume_queue.py`); for one at the
end of a queue, that of the one before. What was found right is not looked at again: readers of one queue come
one after the other.
"""

from __future__ import annotations

import logging

from kourou.protocol import record as records
from kourou.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from kourou.protocol.record import Verdict
from kourou.store.ahead import BLOCK_ENTRIES, RecordsAhead
from kourou.store.commit_log import RECORD_OVERHEAD_BYTES_MAX, CommitLog
from kourou.store.config import ENTRY_BYTES, StoreConfig
from kourou.store.consume_queue import ENTRY, FILLER_SIZE, ConsumeQueue, Entry
from kourou.store.dispatch import entry_tag
from kourou.store.recovery import Finder, Sketch, checked_record, is_overwritten, sketch_of, sketched

SEARCH_BYTES_MAX = 256 << 20
"""How much of the log is searched for a record whose entry is wrong; the loop waits meanwhile."""
_ENTRIES_MAX = 10_000
_TAG_IS_A_TIME = (SCHEDULE_TOPIC, TIMER_TOPIC)
_EXT_ADDRESS_BELOW = -(1 << 31)

log = logging.getLogger(__name__)


class Mender:
    def __init__(
        self, config: StoreConfig, commit_log: CommitLog, ahead: RecordsAhead, tags_may_be_elsewhere: bool
    ) -> None:
        self._tags_may_be_elsewhere = tags_may_be_elsewhere
        self._config = config
        self._log = commit_log
        self._ahead = ahead
        self._record_bytes_max = config.message_bytes_max + RECORD_OVERHEAD_BYTES_MAX
        self.corrected = 0
        """Entries that were wrong, and are right now."""
        self.lost = 0
        """Messages whose record is damaged."""

    def look(self, queue: ConsumeQueue, queue_offset: int, count: int) -> int:
        """See to the entries from `queue_offset` on; returns the first of them that leads to a message of its
        own or of one behind it: the end of the queue, when none does."""
        start = max(queue.min_offset, queue_offset - queue_offset % BLOCK_ENTRIES)  # what is gathered ahead
        end = min(queue_offset + count + BLOCK_ENTRIES, queue.old_end)
        if queue.sure_from <= start and end <= queue.sure_to:
            return self._first(queue, queue_offset)
        stop = min(end + 1, queue.max_offset)  # one more: it may have to stand for another
        wrong = [at for at in range(start, stop) if not self._is_right(queue, at)]
        while wrong and wrong[-1] == stop - 1 and stop < queue.max_offset and stop - end < _ENTRIES_MAX:
            if not self._is_right(queue, stop):
                wrong.append(stop)
            stop += 1
        try:
            if not self._mend(queue, wrong):
                return stop
        except OSError as error:
            log.error("%r: %s; messages from %d to %d are not served now", queue, error, start, stop - 1)
            return stop
        self._note_sure(queue, start, stop)
        return self._first(queue, queue_offset)

    def _first(self, queue: ConsumeQueue, queue_offset: int) -> int:
        """Past those for which the message before them stands."""
        before = queue.entry(queue_offset - 1) if queue_offset > queue.min_offset else None
        while queue_offset < queue.max_offset and before is not None and queue.entry(queue_offset) == before:
            found = self._record(*before[:2])
            if found is None or found[5] >= queue_offset:
                break  # its own, and it stands for the one before it
            queue_offset += 1
        return queue_offset

    def _note_sure(self, queue: ConsumeQueue, start: int, stop: int) -> None:
        if queue.sure_from <= start <= queue.sure_to:
            queue.sure_to = max(queue.sure_to, stop)
        else:
            queue.sure_from, queue.sure_to = start, stop

    def _is_right(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        entry = queue.entry(queue_offset)
        if entry is None:
            return True  # a file of the queue is missing: that is not for us to see to
        place, size, tag = entry
        if size == FILLER_SIZE or (size > 0 and 0 <= place < self._log.start):
            return True  # gone with the log's oldest files
        found = self._record(place, size)
        if found is None or found[1] != size or (found[6], found[4]) != (queue.topic_bytes, queue.queue_id):
            return False
        if found[5] != queue_offset:  # stands for one that is lost, if its neighbour has the same
            return queue.entry(queue_offset + (1 if found[5] > queue_offset else -1)) == entry
        is_time = queue.topic in _TAG_IS_A_TIME or (self._tags_may_be_elsewhere and tag < _EXT_ADDRESS_BELOW)
        return is_time or tag == self._tag(queue, found)

    def _record(self, place: int, size: int) -> Sketch | None:
        """The record there, if it is one and whole."""
        if not records.RECORD_BYTES_MIN <= size <= self._record_bytes_max or place + size > self._log.end:
            return None
        data = self._log.read(size, place)
        found = sketched(data, memoryview(data), 0, place)
        if found is None:
            checked = checked_record(data, 0, len(data), True, place)
            record = checked.record if checked.verdict is Verdict.OK else None
            if record is not None and not is_overwritten(self._log, record, place):
                found = sketch_of(record)
        return found

    def _tag(self, queue: ConsumeQueue, found: Sketch) -> int:
        return entry_tag(queue.topic, found[7], found[2], self._config.delay_levels_ms)

    # Mending.

    def _mend(self, queue: ConsumeQueue, wrong: list[int]) -> bool:
        """Make these entries right; False when none is left to stand for them. Raises OSError."""
        at_the_end = []
        for at in reversed(wrong):  # the next one is right, then, and can stand for this
            found = self._find(queue, at)
            if found is not None:
                self._write(queue, at, (found[0], found[1], self._tag(queue, found)))
                self.corrected += 1
                log.warning("%r: the entry of message %d was wrong; corrected from the log", queue, at)
                continue
            self.lost += 1
            log.error("%r: message %d is damaged, and not served; see `kourou store check`", queue, at)
            following = queue.entry(at + 1)
            if following is not None and at + 1 not in at_the_end:
                self._write(queue, at, following)
            else:
                at_the_end.append(at)
        for at in reversed(at_the_end):
            before = queue.entry(at - 1) if at > queue.min_offset else None
            if before is None:
                return False
            self._write(queue, at, before)
        return True

    def _write(self, queue: ConsumeQueue, queue_offset: int, entry: Entry) -> None:
        queue.segments.write(ENTRY.pack(*entry), queue_offset * ENTRY_BYTES)
        self._ahead.forget(queue)

    def _find(self, queue: ConsumeQueue, queue_offset: int) -> Sketch | None:
        """The record of that message: the last one between those of its neighbours. A topic that was deleted
        and made again has earlier ones with the same offset."""
        start, end = self._neighbours(queue, queue_offset)
        found = None
        for sketch in Finder(self._config, self._log, start, end=self._log.end, verify=True).sketches():
            if sketch[0] >= end:
                break
            if (sketch[5], sketch[4], sketch[6]) == (queue_offset, queue.queue_id, queue.topic_bytes):
                found = sketch
        return found

    def _neighbours(self, queue: ConsumeQueue, queue_offset: int) -> tuple[int, int]:
        """Where in the log to look: from the record of the right entry before it to that of the one after."""
        start, end = self._log.start, self._log.end
        for at in range(queue_offset - 1, max(queue.min_offset, queue_offset - _ENTRIES_MAX) - 1, -1):
            if self._is_right(queue, at) and (entry := queue.entry(at)) is not None:
                start = max(start, entry[0])
                break
        if queue_offset + 1 < queue.max_offset and self._is_right(queue, queue_offset + 1):
            following = queue.entry(queue_offset + 1)
            end = following[0] if following is not None else end
        return start, min(end, start + SEARCH_BYTES_MAX)
