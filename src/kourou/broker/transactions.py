"""Messages that wait for their sender's transaction: half messages, and how they end.

    send TRAN_MSG=true ─▶ half ─▶ END_TRANSACTION commit   ─▶ committed + done mark
                           │      END_TRANSACTION rollback ─▶             done mark
                           └──▶ a round finds it old ─▶ copy + done mark, and a producer is asked
                                                     ─▶ asked often enough: discarded + done mark

Which half messages are open follows from two positions and a set: everything before the cursor is over, so is
every offset in `_done`, the rest is open. A record and its done mark are appended together, side by side;
`load` mends what a power cut parted. So a transaction ends once.

The positions are kept as offsets of the group CID_RMQ_SYS_TRANS, as the original does, and only as far as
what they stand for stays: on the disk, and at every broker that may lead next. A copy takes over from the
half message it copies: whoever still knows that one's place (its sender, a producer that was asked before)
means the copy.

Rounds come by the clock and go in turns of bounded work, so that the loop stays free.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Container
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

from kourou.broker import half_messages
from kourou.broker.advertised import Advertised
from kourou.broker.config import BrokerConfig
from kourou.broker.half_messages import COMMIT
from kourou.broker.members import Member, Members
from kourou.broker.offsets import CommittedOffsets
from kourou.broker.stats import Stats
from kourou.broker.topics import READ_WRITE, Topics
from kourou.doors.clock import Clock, Timer
from kourou.doors.failpoints import reached
from kourou.errors import MQError, ProtocolError, Refused
from kourou.protocol.codes import ResponseCode
from kourou.protocol.headers import EndTransaction
from kourou.protocol.names import (
    DISCARDED_HALF_TOPIC,
    HALF_DONE_TOPIC,
    HALF_TOPIC,
    TRANSACTION_GROUP,
    printable,
)
from kourou.protocol.record import Record, decode_all
from kourou.remoting.complaints import Complaints
from kourou.remoting.figures import Histogram
from kourou.store.consume_queue import ENTRY
from kourou.store.flush import StoreStatus, Then
from kourou.store.store import Appended, Draft, ReadStatus, Store

TURN_MESSAGES: Final = 128
TURN_BYTES: Final = 1024 * 1024
COPIES_MAX: Final = 500_000
"""Of so many copies it is remembered what they took over from; whoever means another waits to be asked."""

_HOUR_MS: Final = 3_600_000

FINISH_BOUNDS_MS: Final = (5_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000)

logger = logging.getLogger(__name__)


class Move(Enum):
    """What a round does with an open half message."""

    WAIT = "it is not due, and nothing behind it is"
    KEEP = "its sender wants it left alone for longer: to the end of the queue with it"
    CHECK = "ask a producer"
    DISCARD = "it was asked about often enough"


class _Moved(NamedTuple):
    half: Record
    move: Move
    copy: Appended
    mark: Appended
    producer: Member | None


class Transactions:
    """All half messages of a broker."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        store: Store,
        topics: Topics,
        members: Members,
        offsets: CommittedOffsets,
        stats: Stats,
        advertised: Advertised,
        clock: Clock,
        placed: Callable[[Draft], Draft] = lambda draft: draft,
    ) -> None:
        """`placed` says where a committed message goes: one with a delay has a way of its own."""
        self._config = config
        self._store = store
        self._topics = topics
        self._members = members
        self._offsets = offsets
        self._stats = stats
        self._advertised = advertised
        self._clock = clock
        self._placed = placed
        self._complaints = Complaints(logger, clock)
        self._timer: Timer | None = None
        self.committed: Counter[str] = Counter()  # by topic, since the start
        self.rolled_back: Counter[str] = Counter()
        self.finish_ms = Histogram(FINISH_BOUNDS_MS)
        self._cursor = 0
        self._mark_cursor = 0
        self._done: set[int] = set()  # half messages at or behind the cursor that are over
        self._marks: deque[tuple[int, int]] = deque()  # (its queue offset, the last half message it ends)
        self._busy: set[int] = set()  # being ended or copied at this moment
        self._copies: dict[int, int] = {}  # where a message was sent to -> where its newest copy is
        self._last_asked: dict[str, int] = {}
        self._round_end = -1  # >= 0: a round is under way, up to there
        self._appended_end = 0
        self._saving: tuple[int, int, int] | None = None  # once the log is on disk so far: both cursors

    # ------------------------------------------------------------------------------------------------- life

    def load(self) -> None:
        """Find out what is open; call it when store and offsets are there, and before anything is served."""
        self._done.clear()
        self._marks.clear()
        self._busy.clear()
        self._copies.clear()
        self._cursor = self._kept(HALF_TOPIC)
        self._mark_cursor = self._kept(HALF_DONE_TOPIC)
        self._load_marks()
        self._mend()
        self._advance()

    def start(self) -> None:
        self._timer = self._clock.every(self._config.transaction_check_interval_ms / 1000, self.check)

    def settings_changed(self) -> None:
        """Look as often as is set now."""
        if self._timer is not None:
            self._timer.cancel()
            self.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._round_end = -1
        self._save()

    @property
    def open_count(self) -> int:
        """Half messages that have not ended; each of them may be there as a copy, too, for a moment."""
        return max(0, self._store.max_offset(HALF_TOPIC, 0) - self._cursor - len(self._done))

    def keep_counts_of(self, topics: Container[str]) -> None:
        """Forget how many ended of topics that are no more."""
        for counts in (self.committed, self.rolled_back):
            for topic in [each for each in counts if each not in topics]:
                del counts[topic]

    @property
    def is_checking(self) -> bool:
        return self._round_end >= 0

    def _kept(self, topic: str) -> int:
        first, end = self._store.min_offset(topic, 0), self._store.max_offset(topic, 0)
        kept = self._offsets.get(TRANSACTION_GROUP, topic, 0)
        if kept is None:
            return first
        if not first <= kept <= end:
            logger.warning("%s is kept from %d to %d, transactions had come to %d", topic, first, end, kept)
        return min(max(kept, first), end)

    def _load_marks(self) -> None:
        at = self._mark_cursor
        while True:
            marks, next_offset = self._read(HALF_DONE_TOPIC, at)
            for mark in marks:
                ended = [each for each in half_messages.done_offsets(mark) if self._is_meant_by(mark, each)]
                self._done.update(each for each in ended if each >= self._cursor)
                self._marks.append((mark.queue_offset, max(ended, default=-1)))
            if next_offset <= at:
                return
            at = next_offset

    def _is_meant_by(self, mark: Record, offset: int) -> bool:
        """Whether the half message at `offset` is the one that `mark` ends. A power cut may take one that was
        not flushed and leave its mark; the next one there came after the mark."""
        if offset < self._cursor:
            return True
        entry = self._store.entries(HALF_TOPIC, 0, offset, 1)
        return bool(entry) and ENTRY.unpack(entry)[0] < mark.physical_offset

    def _read(self, topic: str, queue_offset: int) -> tuple[list[Record], int]:
        """Some records from there on, and where the next ones are; the same place when there are none."""
        for count in (TURN_MESSAGES, 1):
            result = self._store.read(topic, 0, queue_offset, count, TURN_BYTES)
            try:
                records = decode_all(b"".join(result.messages))
            except ProtocolError:
                continue
            if all(each.topic == topic.encode() and each.queue_offset >= queue_offset for each in records):
                return records, result.next_offset
        logger.error("%s: message %d is unreadable and passed over", topic, queue_offset)
        return [], queue_offset + 1

    def _mend(self) -> None:
        """A power cut, or a master that went, may have taken one of a pair. The record alone is made a pair
        again; a mark alone says that something became of a half message which is not there, so that one is
        open again, as a copy; unless another pair says that it has ended, which may be that copy's. Where the
        half message is gone that was committed, an earlier copy may be left: that has ended. So has whatever
        a later copy took over from, when those between the two are gone."""
        if not self._store.max_offset(HALF_TOPIC, 0):
            return  # there never was one; to look for it would take a start half a second more
        alone: Record | None = None
        without_marks: list[Record] = []
        without_records: set[int] = set()
        ended: set[int] = set()
        committed_without_half: set[bytes | None] = set()
        is_link_lost = False
        for record in self._store.recovered():
            is_pair = alone is not None and alone.physical_offset + alone.size == record.physical_offset
            if half_messages.is_paired_mark(record):
                offsets = half_messages.done_offsets(record)
                if is_pair:
                    alone = None
                    ended.update(offsets)
                else:
                    without_records.update(each for each in offsets if self._is_meant_by(record, each))
            if alone is not None:
                without_marks.append(alone)
            alone = record if self._half_before(record) is not None else None
            if alone is None and half_messages.is_committed(record):
                committed_without_half.add(record.find(b"UNIQ_KEY"))
            elif alone is None and half_messages.is_copy(record):
                is_link_lost = True
        if alone is not None:
            without_marks.append(alone)
        inherited = self._store.last_inherited()  # its master may have gone between the two
        if inherited is not None and self._half_before(inherited) is not None:
            without_marks.append(inherited)
        for record in without_marks:
            self._end_again(self._half_before(record))
        if not (committed_without_half or is_link_lost or without_records):
            return
        halves, newest = self._halves_left()
        for half in halves:
            is_committed = half.find(b"UNIQ_KEY") in committed_without_half
            if is_committed or newest[half_messages.identity(half)] > half.queue_offset:
                self._end_again(half)
        for offset in sorted(without_records - ended):
            lost = self._half_at(offset)
            if lost is None or lost.find(b"UNIQ_KEY") in committed_without_half:
                continue
            if newest.get(half_messages.identity(lost), offset) == offset:
                self._open_again(lost)

    def _halves_left(self) -> tuple[list[Record], dict[tuple[bytes | None, int], int]]:
        """Those that are open, and of each transaction where its newest half message is, open or not."""
        found, newest, at, is_more = [], {}, self._cursor, True
        while is_more:
            halves, next_offset = self._read(HALF_TOPIC, at)
            found += [half for half in halves if self._is_open(half.queue_offset)]
            newest.update({half_messages.identity(half): half.queue_offset for half in halves})
            is_more, at = next_offset > at, next_offset
        return found, newest

    def _half_before(self, record: Record) -> Record | None:
        """The half message that `record` is what became of."""
        if not half_messages.may_end_a_half(record):
            return None
        data = self._store.record_at(record.prepared_offset)
        half = None if data is None else Record(data)
        is_it = (
            half is not None
            and half.topic == HALF_TOPIC.encode()
            and half.physical_offset < record.physical_offset
            and half.find(b"UNIQ_KEY") == record.find(b"UNIQ_KEY")  # copies made elsewhere point nowhere
        )
        return half if is_it else None

    def _end_again(self, half: Record | None) -> None:
        if half is None or not self._is_open(half.queue_offset):
            return
        logger.warning("half message %d had ended before the power did: marked as done", half.queue_offset)
        self._done.add(half.queue_offset)
        try:
            mark = self._append([self._mark(half.queue_offset)])[0]
        except MQError as error:
            logger.error("half message %d is not marked as done on disk: %s", half.queue_offset, error)
        else:
            self._marks.append((mark.queue_offset, half.queue_offset))

    def _open_again(self, half: Record) -> None:
        offset = half.queue_offset
        if offset < self._cursor or offset not in self._done:
            return
        logger.warning("half message %d is open again: what had become of it is lost", offset)
        self._done.discard(offset)
        moved = self._moved(half, Move.KEEP)
        if moved is not None:
            self._busy.add(offset)
            self._store.when_stored(moved.mark.end, partial(self._passed, [moved], self._cursor, True))

    # ----------------------------------------------------------------------------------------------- ending

    def end(self, header: EndTransaction, then: Then) -> None:
        """Commit or roll back; `then` hears when that is stored. Raises Refused when it is not to be."""
        half = self._meant(header)
        if not header.from_check:
            self._refuse_when_late(half)
        offset = half.queue_offset
        reached("before-op-append")
        drafts = [self._mark(offset, is_paired=header.outcome == COMMIT)]
        if header.outcome == COMMIT:
            drafts.insert(0, self._placed(half_messages.committed(half)))
        appended = self._append(drafts)
        reached("after-op-append")
        if header.outcome == COMMIT:
            self._stats.put(half_messages.real_topic(half), 1, appended[0].size)
        self._busy.add(offset)
        self._store.when_stored(
            appended[-1].end, partial(self._ended, half, header.outcome, appended[-1], then)
        )

    def _meant(self, header: EndTransaction) -> Record:
        """The open half message that `header` is about: the one it names, or what took over from that."""
        named = self._half_at(header.half_queue_offset)
        if named is None:
            raise self._refused(header, "there is no half message at this tranStateTableOffset")
        if named.physical_offset != header.physical_offset:
            raise self._refused(header, "the half message there has another commitLogOffset")
        if half_messages.producer_group(named) != header.producer_group:
            raise self._refused(header, "the half message there is another producer group's")
        if not _may_mean(header, named):
            raise self._refused(header, "another transaction's message is there now")
        if not half_messages.real_topic(named):
            raise self._refused(header, "the half message there does not say where it is to go")
        offset = self._copies.get(half_messages.origin(named), named.queue_offset)
        half = named if offset == named.queue_offset else self._half_at(offset)
        if half is None or not self._is_open(offset):
            raise self._refused(header, "it has ended already, or its producer is being asked anew")
        return half

    def _refuse_when_late(self, half: Record) -> None:
        """Whoever set a time of its own is asked after it; what it says by itself then may be out of date."""
        immunity_ms = half_messages.own_immunity_ms(half)
        if immunity_ms is not None:
            limit_ms = max(immunity_ms, self._config.transaction_timeout_ms)
            age_ms = self._clock.now_ms() - half.born_ms
            if age_ms > limit_ms:
                raise Refused(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"the transaction of half message {half.queue_offset} began {age_ms} ms ago, its "
                    f"CHECK_IMMUNITY_TIME_IN_SECONDS allows {limit_ms} ms: wait to be asked",
                )

    def _refused(self, header: EndTransaction, why: str) -> Refused:
        return Refused(
            ResponseCode.SYSTEM_ERROR,
            f"no transaction of group {printable(header.producer_group)} ended: half message "
            f"{header.half_queue_offset} at {header.physical_offset}: {why}",
        )

    def _ended(self, half: Record, outcome: int, mark: Appended, then: Then, status: StoreStatus) -> None:
        reached("before-commit-visible" if outcome == COMMIT else "before-rollback")
        self._busy.discard(half.queue_offset)
        if status.is_stored:
            (self.committed if outcome == COMMIT else self.rolled_back)[half_messages.real_topic(half)] += 1
            self.finish_ms.note(max(0, self._clock.now_ms() - half.born_ms))
            self._copies.pop(half_messages.origin(half), None)
            self._note_done(half.queue_offset, mark)
            self._advance()
            self._save()
        then(status)
        reached("after-commit-visible" if outcome == COMMIT else "after-rollback")

    # --------------------------------------------------------------------------------------------- resuming

    def resume(self, physical_offset: int, then: Then) -> None:
        """Open a discarded transaction again, as if nobody had been asked; `then` hears when that is stored.

        Raises Refused when there is no discarded message, or its transaction is open already.
        """
        data = self._store.record_at(physical_offset)
        discarded = None if data is None else Record(data)
        if discarded is None or discarded.topic != DISCARDED_HALF_TOPIC.encode():
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"there is no message of topic {DISCARDED_HALF_TOPIC} at {physical_offset}: give the offset "
                "id of one that is there",
            )
        origin = half_messages.origin(discarded)
        if self._is_open(self._copies.get(origin, -1)):
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the transaction of the message at {physical_offset} is open already: its producers will be "
                "asked",
            )
        appended = self._append([half_messages.copied(discarded, 0)])[0]
        self._copies[origin] = appended.queue_offset
        logger.info(
            "a transaction of group %s for topic %s is open again, on request",
            printable(half_messages.producer_group(discarded)),
            printable(half_messages.real_topic(discarded)),
        )
        self._store.when_stored(appended.end, then)

    # ----------------------------------------------------------------------------------------------- rounds

    def check(self) -> None:
        """Begin a round: whatever is open and old is moved on, its producers are asked."""
        self._save()
        if not self.is_checking and self._store.failed is None:
            self._round_end = self._store.max_offset(HALF_TOPIC, 0)
            self._last_asked = {
                group: n for group, n in self._last_asked.items() if self._members.producers(group)
            }
            self._turn()

    def _turn(self) -> None:
        if not self.is_checking:
            return  # stopped meanwhile
        self._advance()
        if self._cursor >= self._round_end:
            self._round_end = -1
            return
        halves, next_offset = self._read(HALF_TOPIC, self._cursor)
        if not halves:
            self._skip_lost(next_offset)
            return
        moved, cursor, is_end = self._move_on(halves)
        if moved:
            self._busy.update(each.half.queue_offset for each in moved)
            passed = partial(self._passed, moved, cursor, is_end)
            self._store.when_stored(moved[-1].mark.end, passed)
        else:
            self._go_on(cursor, is_end)

    def _skip_lost(self, next_offset: int) -> None:
        if next_offset <= self._cursor:
            self._round_end = -1
            return
        logger.error(
            "half messages %d to %d are lost: their transactions were open, and the log has them no more",
            self._cursor,
            next_offset - 1,
        )
        self._go_on(next_offset, False)

    def _move_on(self, halves: list[Record]) -> tuple[list[_Moved], int, bool]:
        """Append what becomes of these; where that leads, and whether the round ends there."""
        now_ms = self._clock.now_ms()
        moved: list[_Moved] = []
        cursor = self._cursor
        for half in halves:
            if half.queue_offset >= self._round_end or half.queue_offset in self._busy:
                return moved, cursor, True
            if half.queue_offset not in self._done:
                each = self._moved(half, self._decide(half, now_ms))
                if each is None:
                    return moved, cursor, True
                moved.append(each)
            cursor = half.queue_offset + 1
        return moved, cursor, False

    def _moved(self, half: Record, move: Move) -> _Moved | None:
        """What became of it; None when that must wait, and everything behind it too."""
        producer = None
        if move is Move.CHECK:
            producers = self._members.producers(half_messages.producer_group(half))
            producer = self._next_producer(half, producers)
            if producers and producer is None:
                return None  # they have enough to read; a check that is not sent must not count
        if move is Move.WAIT:
            return None
        try:
            return self._append_move(half, move, producer)
        except MQError as error:
            self._complaints.warn("move", f"open transactions are not checked now: {error}")
            return None

    def _decide(self, half: Record, now_ms: int) -> Move:
        age_ms = now_ms - half.born_ms  # by its sender's clock, as in the original: negative if that is ahead
        checks = half_messages.checks_of(half)
        reserved_ms = self._config.file_reserved_hours * _HOUR_MS
        if checks >= self._config.transaction_checks_max or (
            checks and age_ms > reserved_ms and self._was_sent_before(half, now_ms - reserved_ms)
        ):
            return Move.DISCARD
        own_immunity_ms = half_messages.own_immunity_ms(half)
        if own_immunity_ms is not None and age_ms <= own_immunity_ms:
            return Move.KEEP
        if own_immunity_ms is None and 0 <= age_ms <= self._config.transaction_timeout_ms:
            return Move.WAIT
        return Move.CHECK

    def _was_sent_before(self, half: Record, moment_ms: int) -> bool:
        """By our own clock: its sender's may be days behind. When the first one has gone, it was."""
        first = self._half_at(half_messages.origin(half))
        return (
            first is None or first.find(b"UNIQ_KEY") != half.find(b"UNIQ_KEY") or first.store_ms < moment_ms
        )

    def _append_move(self, half: Record, move: Move, producer: Member | None) -> _Moved:
        if move is Move.DISCARD:
            self._topics.ensure(DISCARDED_HALF_TOPIC, 1, READ_WRITE)
            draft = half_messages.discarded(half)
        else:
            checks = half_messages.checks_of(half) + 1 if move is Move.CHECK else None
            draft = half_messages.copied(half, checks)
        copy, mark = self._append([draft, self._mark(half.queue_offset, is_paired=True)])
        return _Moved(half, move, copy, mark, producer)

    def _passed(self, moved: list[_Moved], cursor: int, is_end: bool, status: StoreStatus) -> None:
        self._busy.difference_update(each.half.queue_offset for each in moved)
        if not status.is_stored:
            self._complaints.warn("move", f"open transactions are not checked now: {status.reason}")
            self._round_end = -1
            return
        for each in moved:
            self._note_done(each.half.queue_offset, each.mark)
            self._tell(each)
        self._go_on(cursor, is_end)

    def _go_on(self, cursor: int, is_end: bool) -> None:
        while self._cursor < cursor:
            self._done.discard(self._cursor)
            self._cursor += 1
        self._advance()
        self._save()
        if is_end:
            self._round_end = -1
        elif self.is_checking:
            self._clock.later(0, self._turn)

    def _tell(self, moved: _Moved) -> None:
        half, origin = moved.half, half_messages.origin(moved.half)
        group = half_messages.producer_group(half)
        if moved.move is Move.DISCARD:
            self._copies.pop(origin, None)
            logger.warning(
                "a transaction of group %s for topic %s, id %s, is open after %d checks: "
                "its message is now in %s",
                printable(group),
                printable(half_messages.real_topic(half)),
                printable((half.find(b"UNIQ_KEY") or b"").decode("utf-8", "replace")),
                half_messages.checks_of(half),
                DISCARDED_HALF_TOPIC,
            )
            return
        if origin in self._copies or len(self._copies) < COPIES_MAX:
            self._copies[origin] = moved.copy.queue_offset
        if moved.move is not Move.CHECK:
            return
        if moved.producer is None:
            self._complaints.warn(
                f"nobody {group}", f"no producer of group {group} is here to be asked about its transactions"
            )
        else:
            question = half_messages.checking(half, moved.copy, self._config.broker_name)
            moved.producer.connection.send_one_way(question)

    def _next_producer(self, half: Record, producers: list[Member]) -> Member | None:
        """Each in turn; who is slow to read what it is sent is passed over."""
        group = half_messages.producer_group(half)
        last = self._last_asked.get(group, -1)
        for step in range(1, len(producers) + 1):
            number = (last + step) % len(producers)
            connection = producers[number].connection
            if connection.is_open and connection.is_writable:
                self._last_asked[group] = number
                return producers[number]
        return None

    # ------------------------------------------------------------------------------------------ what is open

    def _is_open(self, offset: int) -> bool:
        end = self._store.max_offset(HALF_TOPIC, 0)
        return self._cursor <= offset < end and offset not in self._done and offset not in self._busy

    def _half_at(self, offset: int) -> Record | None:
        if offset < 0:
            return None
        result = self._store.read(HALF_TOPIC, 0, offset, 1)
        if result.status is not ReadStatus.FOUND:
            return None
        try:
            half = Record(b"".join(result.messages))
        except ProtocolError:
            return None
        return half if half.queue_offset == offset else None

    def _mark(self, offset: int, *, is_paired: bool = False) -> Draft:
        now_ms, host = self._clock.now_ms(), self._advertised.packed
        return half_messages.done_mark(offset, now_ms, host, is_paired=is_paired)

    def _append(self, drafts: list[Draft]) -> list[Appended]:
        appended = self._store.append_batch(drafts)
        self._appended_end = appended[-1].end
        return appended

    def _note_done(self, offset: int, mark: Appended) -> None:
        if offset >= self._cursor:
            self._done.add(offset)
        self._marks.append((mark.queue_offset, offset))

    def _advance(self) -> None:
        """Leave behind what is over: half messages, and the marks that say nothing about any other."""
        done = self._done
        while self._cursor in done:
            done.discard(self._cursor)
            self._cursor += 1
        marks = self._marks
        while marks and marks[0][1] < self._cursor:
            self._mark_cursor = marks.popleft()[0] + 1

    def _save(self) -> None:
        """Keep both positions once what they stand for stays: no power cut, and no other master, must find
        them ahead."""
        now = (self._appended_end, self._cursor, self._mark_cursor)
        if self._store.settled >= self._appended_end:
            self._saving = None
            self._keep(now)
        elif self._saving is None:
            self._saving = now
        elif self._store.settled >= self._saving[0]:
            saved, self._saving = self._saving, now
            self._keep(saved)

    def _keep(self, saved: tuple[int, int, int]) -> None:
        if self._store.max_offset(HALF_TOPIC, 0):
            _, cursor, mark_cursor = saved
            self._offsets.keep(TRANSACTION_GROUP, HALF_TOPIC, 0, cursor)
            self._offsets.keep(TRANSACTION_GROUP, HALF_DONE_TOPIC, 0, mark_cursor)


def _may_mean(header: EndTransaction, half: Record) -> bool:
    """Whether the ids agree, as far as they are given. After a power cut took the end of an asynchronously
    flushed log, another message may be where the one meant here was."""
    unique_id = (half.find(b"UNIQ_KEY") or b"").decode("utf-8", "replace")
    return not header.transaction_id or unique_id in (header.transaction_id, header.unique_id)
