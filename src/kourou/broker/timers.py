"""Messages to be delivered at any time their senders name, to the millisecond.

They wait in `rmq_sys_wheel_timer`, queue 0, as with Apache, whose own files (timerwheel, timerlog,
config/timercheck) are only ever read. What we keep beside the log, in the folder `timers`:

    pending          who is due when (`store/timers.py`), written now and then and at stop
    progress.json    messages of the queue before `queueOffset` and due before `deliveredBefore…` are done

A start reads both, and the consume queue from where `pending` ends. Without them it reads the whole queue.

A message due so late that the log would have forgotten it by then is taken up earlier and stored anew, to
wait on (Apache: rolled). A recall is a message of its own in the same queue, due just before the one it takes
back.
"""

from __future__ import annotations

import contextlib
import logging
from array import array
from collections import deque
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from kourou.broker.config import BrokerConfig
from kourou.broker.delays import COPIES_A_TURN, RETRY_MS
from kourou.broker.later import LOOK_AGAIN_MS, again, hidden, revealed, stored_properties, whole_property
from kourou.broker.rates import Pace
from kourou.broker.state_file import StateFile
from kourou.broker.stats import Stats
from kourou.broker.topics import Topics
from kourou.doors.clock import Clock, Timer
from kourou.doors.failpoints import reached
from kourou.doors.files import Files, make_lasting_folder
from kourou.errors import Busy, Corrupt, DiskFault, ProtocolError, Refused
from kourou.protocol.bodies import TimerCheckpoint
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import TIMER_TOPIC
from kourou.protocol.properties import find, with_added
from kourou.protocol.record import Record
from kourou.remoting.complaints import Complaints
from kourou.store.consume_queue import ENTRY, FILLER_SIZE
from kourou.store.flush import Background, StoreStatus
from kourou.store.store import Appended, Dispatched, Draft, Store
from kourou.store.timers import PendingTimers, key_of, read_timers, time_and_place

ROLL_MS: Final = 48 * 3600 * 1000
"""A record waits so long before it is stored anew, as with Apache; less when the log forgets sooner."""

MOVES_A_TURN: Final = 4_096
INDEXED_A_TIME: Final = 8_192
NEW_TIMERS_MIN: Final = 100_000
"""`pending` is written again when so many are new, and at least half as many as are pending."""

RECALL_AHEAD_MS: Final = 2
"""A recall is due before its message, whose handle names a time one millisecond late."""
RECALLED_FOR_MS: Final = 2_000

_UNHEARD_MS: Final = 60_000
_TIME_MIN: Final = 1 << 40  # 2004; a tag's hash is far below
_EVERYTHING: Final = key_of(1 << 62, 0)
_ROOM: Final = 128  # for what is added when it is delivered, or rolled
_APACHE_CHECK: Final = Struct(">qqq")

_TOPIC = TIMER_TOPIC.encode()
_OURS = (b"TIMER_OUT_MS", b"TIMER_ENQUEUE_MS", b"TIMER_DEQUEUE_MS", b"TIMER_ROLL_TIMES")
_GIVEN = (("TIMER_DELAY_SEC", 1000), ("TIMER_DELAY_MS", 1), ("TIMER_DELIVER_MS", 1))

logger = logging.getLogger(__name__)


class TimerProgress(msgspec.Struct, frozen=True, rename="camel"):
    """The content of `progress.json`."""

    queue_offset: int
    delivered_before_ms: int
    delivered_before_place: int

    @property
    def key(self) -> int:
        return key_of(self.delivered_before_ms, self.delivered_before_place)


class Timers:
    """All timers of a broker."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        store: Store,
        topics: Topics,
        stats: Stats,
        files: Files,
        clock: Clock,
        background: Background,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._stats = stats
        self._files = files
        self._clock = clock
        self._background = background
        self._folder = f"{config.store_path}/timers"
        self._file = StateFile(files, f"{self._folder}/progress.json")
        self._roll_ms = min(ROLL_MS, config.file_reserved_hours * 3600 * 1000 // 2)
        self._pending = PendingTimers()
        self._indexed = 0  # queue offset: all before it are in `_pending`, or done
        self._written = 0  # queue offset of the file `pending`
        self._saved: TimerProgress | None = None
        self._storing: list[int] = []
        self._unsettled: deque[tuple[list[int], int]] = deque()  # the keys of a batch, where its copies end
        self._recalled: dict[bytes, int] = {}
        self._complaints = Complaints(logger, clock)
        self._timer: Timer | None = None
        self._wakes_at_ms = 0
        self._is_running = False
        self._is_listening = False
        self._is_writing = False
        self.taken_in = Pace(clock)
        self.delivered = Pace(clock)

    def __len__(self) -> int:
        """How many messages wait."""
        return len(self._pending) + len(self._storing)

    # ------------------------------------------------------------------------------------------- figures

    @property
    def places(self) -> array[int]:
        """Where in the log those lie who wait, in no order."""
        return self._pending.places() + array("q", [time_and_place(key)[1] for key in self._storing])

    @property
    def late_ms(self) -> int:
        """How long the first one that waits has been due; 0 when nobody is late."""
        first_ms = self._pending.first_ms
        return 0 if first_ms is None else max(0, self._clock.now_ms() - first_ms)

    @property
    def not_taken_in(self) -> int:
        """Messages of the timer topic that have not been looked at."""
        return self._store.max_offset(TIMER_TOPIC, 0) - self._indexed

    def checkpoint(self) -> TimerCheckpoint:
        """How far things are, in the original's terms; there is no timer log here."""
        now_ms = self._clock.now_ms()
        return TimerCheckpoint(now_ms - self.late_ms, 0, self._indexed, self._indexed, 0, now_ms, 0)

    # ----------------------------------------------------------------------------------- putting to wait

    def hide(self, draft: Draft) -> Draft:
        """What to store of a message that may name a time: itself when it is not in the future."""
        properties = draft.properties
        now_ms = self._clock.now_ms()
        given = next((each for each in _GIVEN if find(properties, each[0].encode()) is not None), None)
        if given is None or find(properties, b"TIMER_OUT_MS") is not None:  # the latter has been through
            return draft
        name, unit_ms = given
        value = whole_property(properties, name) or 0
        due_ms = value if name == "TIMER_DELIVER_MS" else now_ms + value * unit_ms
        if not self._config.timers_enabled:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"property {name} is '{value}', and this broker takes no such messages "
                "(timerWheelEnable=false); use a delay level",
            )
        is_recall = find(properties, b"TIMER_DEL_UNIQKEY") is not None
        if due_ms <= now_ms and not is_recall:
            return draft
        if not now_ms < due_ms <= now_ms + self._config.timer_seconds_max * 1000:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"property {name} is '{value}', a time {(due_ms - now_ms) / 1000:.0f} s from now: at most "
                f"{self._config.timer_seconds_max} s are allowed (timerMaxDelaySec)",
            )
        out_ms = due_ms - RECALL_AHEAD_MS if is_recall else due_ms
        wake_ms = min(out_ms, now_ms + self._roll_ms)
        return hidden(draft, TIMER_TOPIC, 0, wake_ms, _OURS, b"TIMER_OUT_MS\x01%d\x02" % out_ms, _ROOM)

    # ---------------------------------------------------------------------------------------------- life

    def load(self) -> None:
        """Find out who waits."""
        self._pending = PendingTimers()
        self._storing = []
        self._unsettled.clear()
        self._recalled = {}
        make_lasting_folder(self._files, self._folder)
        least, most = self._store.min_offset(TIMER_TOPIC, 0), self._store.max_offset(TIMER_TOPIC, 0)
        done = self._done_before(most)
        self._indexed = min(max(self._load_pending(done), least), most)
        self._written = self._indexed
        self._index_up_to(most, done)
        if self._saved is None:
            # From now on a missing file was taken away; one never written says nothing of what is due
            with contextlib.suppress(Busy):  # a full disk: a start goes on, and `save` will be called again
                self.save()
        if len(self._pending):
            logger.info("%d timed messages wait", len(self._pending))

    def _done_before(self, most: int) -> list[_Done]:
        """What is known to be delivered: by us, by an Apache broker that had this folder, or most likely."""
        self._saved = progress = self._file.load(TimerProgress)
        done = []
        if progress is not None:
            done.append(_Done(min(progress.queue_offset, most), progress.key))
        check_path = f"{self._config.store_path}/config/timercheck"
        if self._files.exists(check_path):
            data = self._files.read(check_path)
            if len(data) >= _APACHE_CHECK.size:
                read_ms, _, queue_offset = _APACHE_CHECK.unpack_from(data)
                done.append(_Done(min(queue_offset, most), key_of(max(0, read_ms), 0)))
        if not done and most:
            # Our files were taken away. While the log grew somebody was there to deliver what was due.
            alive_ms = self._store.last_store_ms - _UNHEARD_MS
            logger.warning("timers: %s is missing; those due since %d are taken up", self._folder, alive_ms)
            done.append(_Done(most, key_of(alive_ms, 0)))
        return done

    def _load_pending(self, done: list[_Done]) -> int:
        """Take in the file `pending`; returns the queue offset it goes up to, 0 when it cannot be used."""
        path = f"{self._folder}/pending"
        if not self._files.exists(path):
            return 0
        try:
            queue_offset, timers = read_timers(self._files.read(path))
        except (Corrupt, OSError) as error:
            logger.warning("%s is not used: %s; reading the whole queue", path, error)
            return 0
        first = max((mark.key for mark in done if mark.queue_offset >= queue_offset), default=0)
        for wake_ms, place in timers:
            if key_of(wake_ms, place) >= first:
                self._pending.add(wake_ms, place)
        return queue_offset

    def take_over(self, progress: TimerProgress) -> None:
        """Keep how far a master's timers are, for the day we take its place. Raises Busy, StoreError."""
        if progress != self._saved:
            make_lasting_folder(self._files, self._folder)
            self._file.save(progress)
            self._saved = progress

    def start(self) -> None:
        self._is_running = True
        if not self._is_listening:
            self._is_listening = True
            self._store.on_dispatch(self._on_new, topic=TIMER_TOPIC)
        self._index_up_to(self._store.max_offset(TIMER_TOPIC, 0), [])  # what came since `load`
        self._wake_in(0)

    def stop(self) -> None:
        """Deliver nothing more."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def save(self) -> None:
        """Write down how far things are, as far as the copies stay. Raises Busy, StoreError."""
        self._forget_recalls(self._clock.now_ms())
        progress = self.progress
        if progress != self._saved:
            self._file.save(progress)
            self._saved = progress
        if self._indexed - self._written >= max(NEW_TIMERS_MIN, len(self._pending) // 2):
            self._write_pending_later()

    @property
    def progress(self) -> TimerProgress:
        """How far things are, as far as the copies stay: no power cut takes them, and no other master."""
        self._forget_settled()
        floors = [self._pending.floor, *self._storing[:1], *(keys[0] for keys, _ in self._unsettled)]
        floors += self._recalled.values()
        due_ms, place = time_and_place(min((key for key in floors if key is not None), default=_EVERYTHING))
        return TimerProgress(self._indexed, due_ms, place)

    def save_pending(self) -> None:
        """Write the list of who waits, before returning. Raises OSError."""
        if self._is_writing:
            return  # the thread is at it; the next start reads what has come since from the queue
        if self._written != self._indexed or self._files.exists(f"{self._folder}/pending"):
            self._write_pending(self._frozen())
            self._written = self._indexed

    def _forget_settled(self) -> None:
        settled = self._store.settled
        while self._unsettled and self._unsettled[0][1] <= settled:
            self._unsettled.popleft()

    def _frozen(self) -> Callable[[], bytes]:
        unsure = [key for keys, _ in self._unsettled for key in keys]
        return self._pending.frozen(self._indexed, [*self._storing, *unsure])

    def _write_pending(self, encoded: Callable[[], bytes]) -> None:
        self._files.write_atomically(f"{self._folder}/pending", encoded(), keep_previous=False)

    def _write_pending_later(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            self._background(
                partial(self._write_pending, self._frozen()), partial(self._wrote, self._indexed)
            )

    def _wrote(self, queue_offset: int, error: BaseException | None) -> None:
        self._is_writing = False
        if error is None:
            self._written = queue_offset
        else:  # nothing is lost: a start reads more of the queue
            logger.error("%s/pending is not written: %s; trying again", self._folder, error)

    # ------------------------------------------------------------------------------------------ indexing

    def _on_new(self, new: Dispatched) -> None:
        if self._is_running:
            reached("before-timer-enqueue")
            self._index(new.entries, [])
            reached("after-timer-enqueue")
            next_ms = self._pending.next_ms()
            if (
                next_ms is not None
                and not self._storing
                and (self._timer is None or next_ms < self._wakes_at_ms)
            ):
                self._wake_in(0)

    def _index_up_to(self, most: int, done: list[_Done]) -> None:
        while self._indexed < most:
            entries = self._store.entries(TIMER_TOPIC, 0, self._indexed, INDEXED_A_TIME)
            if not entries:
                logger.error("timers: the queue has no entries from %d on", self._indexed)
                break
            self._index(entries, done)
        self._indexed = most

    def _index(self, entries: bytes, done: list[_Done]) -> None:
        """Take in the next entries of the queue, but for those that are done."""
        self.taken_in.note(len(entries) // ENTRY.size)
        queue_offset, add = self._indexed, self._pending.add
        latest_ms = self._clock.now_ms() + self._roll_ms
        for place, size, wake_ms in ENTRY.iter_unpack(entries):
            if size != FILLER_SIZE:
                # Of an Apache broker, or built anew from the log: a tag's hash. Too late: damaged.
                if not _TIME_MIN <= wake_ms <= latest_ms:
                    wake_ms = self._wake_ms_of(place)
                if not done or not _is_done(done, queue_offset, key_of(wake_ms, place)):
                    add(wake_ms, place)
            queue_offset += 1
        self._indexed = queue_offset

    def _wake_ms_of(self, place: int) -> int:
        """When to take up the record at `place`; at once when that makes no sense, and be told so then."""
        data = self._store.record_at(place)
        record = None if data is None else Record(data)
        out_ms = None if record is None else _out_ms(record.properties)
        if record is None or out_ms is None:
            return self._clock.now_ms()
        wake_ms: int = min(out_ms, record.store_ms + self._roll_ms)
        return wake_ms

    # -------------------------------------------------------------------------------------------- waking

    def _wake_in(self, wait_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_running and self._store.failed is None:
            wait_ms = min(max(0, wait_ms), LOOK_AGAIN_MS)
            self._wakes_at_ms = self._clock.now_ms() + wait_ms
            self._timer = self._clock.later(wait_ms / 1000, self._wake)

    def _wake(self) -> None:
        self._timer = None
        try:
            self._deliver()
        except Exception:
            logger.exception("timers failed; trying again")
            self._wake_in(LOOK_AGAIN_MS)

    def _deliver(self) -> None:
        """Store the copies that are due, as many as one turn may take; or sleep until the first one is."""
        now_ms = self._clock.now_ms()
        self._pending.prepare(now_ms, MOVES_A_TURN)
        keys = self._pending.take_due(now_ms, COPIES_A_TURN)
        last, passed, wait_ms = None, 0, 0
        if keys:
            reached("before-timer-fire")
        for key in keys:
            try:
                last = self._fire(key, now_ms) or last
            except (Busy, DiskFault):
                wait_ms = RETRY_MS
                break
            passed += 1
        self._pending.give_back(keys[passed:])
        self._forget_recalls(now_ms)
        if last is not None:
            reached("after-timer-fire")
            self._storing = keys[:passed]
            self._store.when_stored(last.end, partial(self._stored, last.end))
        elif keys:
            self._wake_in(wait_ms)
        else:
            next_ms = self._pending.next_ms()
            if next_ms is not None:
                self._wake_in(next_ms - now_ms)

    def _stored(self, end: int, status: StoreStatus) -> None:
        keys, self._storing = self._storing, []
        if status.is_stored:
            self.delivered.note(len(keys))
            self._unsettled.append((keys, end))
            self._forget_settled()
            self._wake_in(0)
        else:
            self._pending.give_back(keys)
            self._wake_in(RETRY_MS)

    def _fire(self, key: int, now_ms: int) -> Appended | None:
        """Deliver what is due; None when there is nothing to deliver. Raises Busy, DiskFault."""
        wake_ms, place = time_and_place(key)
        data = self._store.record_at(place)
        if data is None:
            self._complaints.warn("gone", f"timers: the message at {place}, due at {wake_ms}, is gone")
            return None
        record = Record(data)
        properties = record.properties
        out_ms = _out_ms(properties)
        if record.topic != _TOPIC or (out_ms is not None and out_ms < wake_ms):
            return None  # noted before a power cut, which gave its place to another
        if out_ms is None:
            self._complaints.warn("time", f"timers: the message at {place} does not say when it is due")
            return None
        if out_ms > now_ms:
            return self._append(place, self._rolled(record, now_ms, out_ms))
        if (recall := find(properties, b"TIMER_DEL_UNIQKEY")) is not None:
            self._recalled[recall] = key
            return None
        if self._recalled and _recall_of(properties) in self._recalled:
            return None
        times = b"TIMER_ENQUEUE_MS\x01%d\x02TIMER_DEQUEUE_MS\x01%d\x02" % (record.store_ms, now_ms)
        try:
            return self._append(place, revealed(record, times))
        except ProtocolError as error:
            self._complaints.warn("dropped", f"timers: the message at {place} is dropped: {error}")
            return None

    def _rolled(self, record: Record, now_ms: int, out_ms: int) -> Draft:
        """The same message, to wait on."""
        rolls = record.find(b"TIMER_ROLL_TIMES") or b""
        times = int(rolls) + 1 if rolls.isdigit() else 1
        properties = with_added(stored_properties(record), b"TIMER_ROLL_TIMES", b"%d" % times)
        draft = again(record, TIMER_TOPIC, 0, properties)
        draft.tags_code = min(out_ms, now_ms + self._roll_ms)
        return draft

    def _append(self, place: int, draft: Draft) -> Appended | None:
        try:
            appended = self._store.append(draft)
        except Busy:
            raise
        except Refused as error:
            self._complaints.warn("dropped", f"timers: the message at {place} is dropped: {error}")
            return None
        if self._topics.get(draft.topic) is None:
            self._complaints.warn(draft.topic, f"timed message for topic {draft.topic}, which is not there")
        self._stats.put(draft.topic, 1, appended.size)
        return appended

    def _forget_recalls(self, now_ms: int) -> None:
        """Recalls whose messages must have come up by now, and are stored or dropped for good."""
        if self._recalled and not self._storing:
            floor = self._pending.floor
            until_ms = min(now_ms, now_ms if floor is None else time_and_place(floor)[0]) - RECALLED_FOR_MS
            over = [recall for recall, key in self._recalled.items() if time_and_place(key)[0] < until_ms]
            for recall in over:
                del self._recalled[recall]


class _Done(NamedTuple):
    """Messages before `queue_offset` whose key is before `key` are delivered."""

    queue_offset: int
    key: int


def _is_done(done: list[_Done], queue_offset: int, key: int) -> bool:
    return any(queue_offset < mark.queue_offset and key < mark.key for mark in done)


def _out_ms(properties: bytes) -> int | None:
    """When a message of the timer topic is due."""
    value = find(properties, b"TIMER_OUT_MS") or b""
    return int(value) if value.isdigit() and len(value) <= 18 else None


def _recall_of(properties: bytes) -> bytes:
    """What a recall of this message names."""
    return b"%b+%b" % (find(properties, b"REAL_TOPIC") or b"", find(properties, b"UNIQ_KEY") or b"")
