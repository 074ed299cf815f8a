"""Delay levels: messages that wait in SCHEDULE_TOPIC_XXXX, one queue for each level.

    queue      0      1      2     ...   17
    level      1      2      3     ...   18        messageDelayLevel
    waits      1s     5s    10s    ...   2h

All messages of a level wait equally long, so they become due in the order they came: a level needs to know
only which one is next, and to wake when that one is due. Its offset moves on once the copies are stored, and
is written to `config/delayOffset.json`, in Apache's shape, once they are on the disk. A message that is due
further ahead than its level can mean was stored before the clock was set back: it is delivered at once.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import Final

import msgspec

from kourou.broker.later import LOOK_AGAIN_MS, hidden, revealed
from kourou.broker.state_file import StateFile
from kourou.broker.stats import Stats
from kourou.broker.topics import Topics
from kourou.doors.clock import Clock, Timer
from kourou.doors.failpoints import reached
from kourou.errors import Busy, DiskFault, ProtocolError, Refused
from kourou.protocol.bodies import DataVersion, DelayOffsets
from kourou.protocol.names import SCHEDULE_TOPIC
from kourou.protocol.properties import with_added
from kourou.protocol.record import Record
from kourou.remoting.complaints import Complaints
from kourou.store.consume_queue import ENTRY, FILLER_SIZE
from kourou.store.flush import StoreStatus
from kourou.store.store import Appended, Dispatched, Draft, Store

COPIES_A_TURN: Final = 256
"""So many are delivered before others get their turn: some five milliseconds."""

RETRY_MS: Final = 100

_TIMER_PROPERTIES = (b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS")

logger = logging.getLogger(__name__)


class _Level:
    __slots__ = ("delay_ms", "is_storing", "next_offset", "number", "timer", "unsettled")

    def __init__(self, number: int, delay_ms: int) -> None:
        self.number = number
        self.delay_ms = delay_ms
        self.next_offset = 0
        """The message to be delivered next."""
        self.is_storing = False
        self.timer: Timer | None = None
        self.unsettled: deque[tuple[int, int]] = deque()
        """Delivered, but the copies may be lost yet: the offset of each batch, and where its copies end."""

    @property
    def queue_id(self) -> int:
        return self.number - 1

    def lasting_offset(self, settled: int) -> int:
        """Where to go on after a power cut, or under the next master, when the log stays up to `settled`."""
        while self.unsettled and self.unsettled[0][1] <= settled:
            self.unsettled.popleft()
        return self.unsettled[0][0] if self.unsettled else self.next_offset


class Delays:
    """Every level of a broker."""

    def __init__(
        self,
        delays_ms: tuple[int, ...],
        *,
        store: Store,
        topics: Topics,
        stats: Stats,
        file: StateFile,
        clock: Clock,
    ) -> None:
        self._delays_ms = delays_ms
        self._store = store
        self._topics = topics
        self._stats = stats
        self._file = file
        self._clock = clock
        self._kept = DelayOffsets()
        self._levels: dict[int, _Level] = {}
        self._is_running = False
        self._is_listening = False
        self._complaints = Complaints(logger, clock)

    # ----------------------------------------------------------------------------------- putting to wait

    def hide(self, draft: Draft, level: int) -> Draft:
        """What to store of a message that waits for `level`, or for the longest there is."""
        if level > len(self._delays_ms):
            level = len(self._delays_ms)
            properties = with_added(draft.properties, b"DELAY", b"%d" % level)
            draft = msgspec.structs.replace(draft, properties=properties)
        due_ms = self._clock.now_ms() + self._delays_ms[level - 1]
        return hidden(draft, SCHEDULE_TOPIC, level - 1, due_ms, _TIMER_PROPERTIES, b"", 0)

    # ---------------------------------------------------------------------------------------------- life

    def load(self) -> None:
        """Read how far each level has come, and bring that into what the store has."""
        self._kept = self._file.load(DelayOffsets) or DelayOffsets()
        self._levels = {}
        queues = self._store.topics().get(SCHEDULE_TOPIC, [])
        for number in range(1, max(len(self._delays_ms), *(queue_id + 1 for queue_id in queues), 0) + 1):
            self._level(number).next_offset = self._kept.offset_table.get(number, 0)
            self._correct(self._levels[number])

    def take_over(self, offsets: DelayOffsets) -> None:
        """Keep how far a master's levels are, for the day we take its place. Raises Busy, StoreError."""
        if offsets.offset_table != self._kept.offset_table:
            self._file.save(offsets)
            self._kept = offsets

    def start(self) -> None:
        self._is_running = True
        if not self._is_listening:
            self._is_listening = True
            self._store.on_dispatch(self._on_new, topic=SCHEDULE_TOPIC)
        for level in self._levels.values():
            self._wake_in(level, 0)

    def stop(self) -> None:
        """Deliver nothing more."""
        self._is_running = False
        for level in self._levels.values():
            if level.timer is not None:
                level.timer.cancel()
                level.timer = None

    def save(self) -> None:
        """Write down how far the levels are whose copies stay. Raises Busy, StoreError."""
        table = self._lasting_offsets()
        if table != self._kept.offset_table:
            version = (self._kept.data_version or DataVersion()).next(self._clock.now_ms())
            kept = DelayOffsets(data_version=version, offset_table=table)
            self._file.save(kept)
            self._kept = kept

    def _lasting_offsets(self) -> dict[int, int]:
        settled = self._store.settled
        table = dict(self._kept.offset_table)
        for number, level in self._levels.items():
            queue_offset = level.lasting_offset(settled)
            if queue_offset or number in table:
                table[number] = queue_offset
        return table

    @property
    def offsets(self) -> DelayOffsets:
        """How far each level has come whose copies stay."""
        return DelayOffsets(
            data_version=self._kept.data_version or DataVersion(), offset_table=self._lasting_offsets()
        )

    def progress(self) -> dict[int, tuple[int, int]]:
        """Of each level: the message to be delivered next, and where its queue ends."""
        return {
            number: (level.next_offset, self._store.max_offset(SCHEDULE_TOPIC, level.queue_id))
            for number, level in sorted(self._levels.items())
        }

    def _level(self, number: int) -> _Level:
        """A level. One beyond those configured has messages of another configuration: they come out too."""
        level = self._levels.get(number)
        if level is None:
            known = number <= len(self._delays_ms)
            delay_ms = self._delays_ms[number - 1] if known else max(self._delays_ms)
            level = self._levels[number] = _Level(number, delay_ms)
        return level

    def _correct(self, level: _Level) -> None:
        least = self._store.min_offset(SCHEDULE_TOPIC, level.queue_id)
        most = self._store.max_offset(SCHEDULE_TOPIC, level.queue_id)
        within = min(max(level.next_offset, least), most)
        if within != level.next_offset:
            logger.warning(
                "delay level %d stood at %d, and its queue has %d to %d: it goes on at %d",
                *(level.number, level.next_offset, least, most, within),
            )
            level.next_offset = within

    # -------------------------------------------------------------------------------------------- waking

    def _on_new(self, new: Dispatched) -> None:
        if self._is_running:
            level = self._level(new.queue_id + 1)
            if level.timer is None and not level.is_storing:  # it had nothing to wait for
                self._wake_in(level, 0)

    def _wake_in(self, level: _Level, wait_ms: int) -> None:
        if self._is_running and self._store.failed is None:
            seconds = min(wait_ms, LOOK_AGAIN_MS) / 1000
            level.timer = self._clock.later(seconds, partial(self._wake, level))

    def _wake(self, level: _Level) -> None:
        level.timer = None
        try:
            self._deliver(level)
        except Exception:
            logger.exception("delay level %d failed at %d; trying again", level.number, level.next_offset)
            self._wake_in(level, LOOK_AGAIN_MS)

    def _deliver(self, level: _Level) -> None:
        """Store the copies that are due, as many as one turn may take; or sleep until the first one is."""
        self._correct(level)
        entries = self._store.entries(SCHEDULE_TOPIC, level.queue_id, level.next_offset, COPIES_A_TURN)
        if not entries:
            self._nothing_there(level)
            return
        now_ms, passed, last = self._clock.now_ms(), 0, None
        wait_ms, before = 0, -1
        reached("before-delay-fire")
        for place, size, due_ms in ENTRY.iter_unpack(entries):
            if size != FILLER_SIZE and place != before:  # where one is damaged, its neighbour stands twice
                if now_ms < due_ms <= now_ms + level.delay_ms:
                    wait_ms = due_ms - now_ms
                    break
                try:
                    last = self._copy(level, place) or last
                except (Busy, DiskFault):
                    wait_ms = RETRY_MS
                    break
            passed, before = passed + 1, place
        if last is not None:
            reached("after-delay-fire")
            level.is_storing = True
            self._store.when_stored(last.end, partial(self._stored, level, passed, last.end))
        else:
            level.next_offset += passed
            self._wake_in(level, wait_ms)

    def _nothing_there(self, level: _Level) -> None:
        if level.next_offset < self._store.max_offset(SCHEDULE_TOPIC, level.queue_id):
            # A file of the queue is missing: what it told of is lost to this level.
            found = self._store.read(SCHEDULE_TOPIC, level.queue_id, level.next_offset, 1)
            logger.error(
                "delay level %d: no entries from %d to %d", level.number, level.next_offset, found.next_offset
            )
            level.next_offset = max(found.next_offset, level.next_offset + 1)
            self._wake_in(level, 0)

    def _copy(self, level: _Level, place: int) -> Appended | None:
        """The copy of the message at `place`; None when it cannot be delivered. Raises Busy, DiskFault."""
        data = self._store.record_at(place)
        if data is None:
            self._complaints.warn("gone", f"delay level {level.number}: the message at {place} is gone")
            return None
        try:
            draft = revealed(Record(data))
            appended = self._store.append(draft)
        except Busy:
            raise
        except (ProtocolError, Refused) as error:
            self._complaints.warn(
                "dropped", f"delay level {level.number}: the message at {place} is dropped: {error}"
            )
            return None
        if self._topics.get(draft.topic) is None:
            self._complaints.warn(draft.topic, f"delayed message for topic {draft.topic}, which is not there")
        self._stats.put(draft.topic, 1, appended.size)
        return appended

    def _stored(self, level: _Level, passed: int, end: int, status: StoreStatus) -> None:
        level.is_storing = False
        if not status.is_stored:
            self._wake_in(level, RETRY_MS)
            return
        level.lasting_offset(self._store.settled)  # forgets what need not be remembered
        level.unsettled.append((level.next_offset, end))
        level.next_offset += passed
        self._wake_in(level, 0)
