"""Producers that write exactly once: staged without a gap, decided once, then messages like all others.

    KOUROU_STAGE          ─▶ chunk in the log; nobody reads it        sequence 0, 1, 2, … of its stage
    KOUROU_COMMIT_STAGED  ─▶ commit in the log: from here on it is final ─▶ messages into their queues ─▶ done
    KOUROU_ABORT_STAGED   ─▶ forgotten

A transaction is (producer, number); numbers of a producer only grow (a Spark query and its batch, say). It is
made of stages, one for each attempt to write a part of it. Attempts that nobody names in the commit never
were: tasks may be killed, run twice at a time and write their rows in another order, and nobody will know.

Three rules make it once:
  1. a chunk is taken if its sequence follows the last one of its stage, confirmed if it is there already, and
     refused if others are missing before it;
  2. a commit is taken if everything it names is here, and answered with the decision in force if there is
  one;
     a number at or below the last one decided is over;
  3. a decided transaction is brought to its end by whoever has the log: here, after a restart, on a replica.

All of it lies in the log (`staged_notes.py`): what is here in memory is made from there by `load`, beginning
at the newest snapshot. Memory is bounded: of each producer the last decision, of `PRODUCERS_MAX` producers
those heard of last; open stages are forgotten when a later number is decided, or after `STAGED_HOURS`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec

from kourou.broker.advertised import Advertised
from kourou.broker.config import BrokerConfig
from kourou.broker.expansion import Expander, Expansion
from kourou.broker.staged_notes import (
    CHUNKS_QUEUE,
    COMMIT,
    DONE,
    NOTES_QUEUE,
    SNAPSHOT,
    ChunkPlace,
    CommitNote,
    Decided,
    DoneNote,
    OpenStage,
    SnapshotPage,
    chunk_draft,
    chunk_of,
    note_draft,
    note_of,
    snapshot_pages,
)
from kourou.broker.topics import Topics
from kourou.doors.clock import Clock, Timer
from kourou.errors import Busy, MQError, ProtocolError, Refused
from kourou.protocol import names
from kourou.protocol.bodies import PERM_WRITE
from kourou.protocol.codes import ResponseCode
from kourou.protocol.extensions import Decision, StageCount, StagedTransaction, StageMessages
from kourou.protocol.names import STAGED_TOPIC, printable
from kourou.protocol.record import Record, decode_all
from kourou.protocol.staged import Chunk
from kourou.store.flush import OK, StoreStatus
from kourou.store.store import Store

PRODUCERS_MAX: Final = 10_000
OPEN_STAGES_MAX: Final = 10_000
STAGED_HOURS: Final = 24
SNAPSHOT_AFTER_NOTES: Final = 512
SNAPSHOT_AFTER_CHUNKS: Final = 1_024

_LOOK_AROUND_SECONDS: Final = 60.0
_BLOCK: Final = 128
_HOUR_MS: Final = 3_600_000
_LEGAL_ID: Final = re.compile(r"[\w.:/+=@-]{1,200}", re.ASCII)

Staged = Callable[[str, StoreStatus], None]
"""Told what became of a chunk: `staged`, `repeated` or `committed`; and whether that is on the disk."""
Committed = Callable[["Outcome", StoreStatus], None]

logger = logging.getLogger(__name__)


class Outcome(msgspec.Struct, frozen=True):
    """How a transaction stands."""

    state: str
    messages: int = 0
    decision: Decision | None = None


class Sequences:
    """All staged transactions of a broker."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        store: Store,
        topics: Topics,
        advertised: Advertised,
        clock: Clock,
        expander: Expander,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._advertised = advertised
        self._clock = clock
        self._expander = expander
        self._timer: Timer | None = None
        self._clear()

    def _clear(self) -> None:
        self._decided: dict[str, Decided] = {}  # by producer, those heard of last at the end
        self._open: dict[tuple[str, int], dict[str, OpenStage]] = {}
        self._running: dict[str, Expansion] = {}  # by producer: its last decision, not yet done
        self._notes_since = self._chunks_since = 0
        self._snapshot_ms = 0

    # ------------------------------------------------------------------------------------------------- life

    def load(self) -> None:
        """Learn from the log what is open and what is decided; again when the log became another's."""
        self._clear()
        chunks_from = self._load_notes()
        self._load_chunks(chunks_from)

    def start(self) -> None:
        """Bring to an end what was decided and not done, and look after the rest now and then."""
        for decided in [each for each in self._decided.values() if not each.is_done]:
            self._resume(decided)
        self._timer = self._clock.every(_LOOK_AROUND_SECONDS, self._look_around)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        running, self._running = self._running, {}
        for expansion in running.values():
            expansion.stop("the broker is stopping")

    @property
    def open_stages(self) -> int:
        return sum(map(len, self._open.values()))

    @property
    def producers(self) -> int:
        return len(self._decided)

    # ---------------------------------------------------------------------------------------------- staging

    def stage(self, header: StageMessages, body: bytes, born_host: bytes, then: Staged) -> None:
        """Take a chunk; `then` hears when it is stored. Raises Refused when it cannot be taken."""
        _check_ids(header.producer, header.number, header.stage)
        if self._is_over(header.producer, header.number):
            then("committed", OK)
            return
        stages = self._open.get((header.producer, header.number), {})
        stage = stages.get(header.stage)
        chunks = stage.chunks if stage is not None else []
        if header.sequence < len(chunks):
            place = chunks[header.sequence]
            self._store.when_stored(place.physical_offset + place.size, partial(then, "repeated"))
            return
        if header.sequence != len(chunks):
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION,
                f"chunk {header.sequence} of stage {header.stage}: {len(chunks)} came before it, so that "
                f"{header.sequence - len(chunks)} are missing; begin a new stage",
            )
        if stage is None:
            self._refuse_too_many()
            stage = OpenStage(header.producer, header.number, header.stage, self._clock.now_ms())
        chunk = self._checked(header.topic, body)
        now_ms = self._clock.now_ms()
        draft = chunk_draft(header, body, chunk.count, now_ms, born_host, self._advertised.packed)
        appended = self._store.append(draft)
        self._open.setdefault((header.producer, header.number), {})[header.stage] = stage
        stage.chunks.append(ChunkPlace(appended.physical_offset, appended.size, chunk.count))
        stage.touched_ms = now_ms
        self._chunks_since += 1
        self._store.when_stored(
            appended.end, partial(self._staged, stage, header.sequence, appended.physical_offset, then)
        )

    def _staged(self, stage: OpenStage, sequence: int, place: int, then: Staged, status: StoreStatus) -> None:
        is_there = len(stage.chunks) > sequence and stage.chunks[sequence].physical_offset == place
        if not status.is_stored and is_there:
            del stage.chunks[sequence:]  # those behind it went the same way
        then("staged", status)

    def _checked(self, topic_name: str, body: bytes) -> Chunk:
        """The chunk, if every message of it can be stored when the time comes; raises Refused."""
        topic = self._topics.named(topic_name)
        is_ours = topic_name in names.NOT_SENDABLE or topic_name.startswith(names.RETRY_PREFIX)
        if is_ours or not topic.perm & PERM_WRITE or not self._config.permission & PERM_WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"nothing can be staged for topic '{printable(topic_name)}': its perm is {topic.perm}, the "
                f"brokerPermission of {self._config.broker_name} is {self._config.permission}",
            )
        try:
            chunk = Chunk(body)
        except ProtocolError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        if min(chunk.queue_ids) < 0 or max(chunk.queue_ids) >= topic.write_queue_nums:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queue ids {min(chunk.queue_ids)} to {max(chunk.queue_ids)}: topic '{topic_name}' has "
                f"{topic.write_queue_nums} write queues",
            )
        if min(chunk.body_lengths) < 1 or max(chunk.body_lengths) > self._config.message_bytes_max:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"bodies of {min(chunk.body_lengths)} to {max(chunk.body_lengths)} bytes: 1 to "
                f"{self._config.message_bytes_max} are taken (maxMessageSize)",
            )
        self._expander.check(topic_name, chunk)
        return chunk

    def _refuse_too_many(self) -> None:
        if self.open_stages >= OPEN_STAGES_MAX:
            raise Busy(
                ResponseCode.SYSTEM_BUSY,
                f"{OPEN_STAGES_MAX} stages wait to be committed on broker {self._config.broker_name}: abort "
                f"those that are no longer wanted, or wait {STAGED_HOURS} hours",
            )

    # --------------------------------------------------------------------------------------------- deciding

    def commit(self, header: StagedTransaction, decision: Decision, then: Committed) -> None:
        """Make a transaction final; `then` hears when all its messages are stored, and of the decision that
        is in force. Raises Refused when something of it is not here: nothing is decided then."""
        _check_ids(header.producer, header.number)
        if self._is_over(header.producer, header.number):
            self._when_done(header, then)
            return
        if header.producer in self._running:
            raise Busy(
                ResponseCode.SYSTEM_BUSY,
                f"transaction {self._decided[header.producer].number} of {header.producer} is not done yet",
            )
        chunks = self._complete(header, decision)
        messages = sum(each.messages for each in chunks)
        note = CommitNote(header.producer, header.number, decision, messages, chunks)
        now_ms = self._clock.now_ms()
        appended = self._store.append(note_draft(COMMIT, note, now_ms, self._advertised.packed))
        before = self._decided.pop(header.producer, None)
        decided = Decided(
            header.producer,
            header.number,
            decision,
            appended.physical_offset,
            now_ms,
            messages,
            False,
            chunks,
        )
        self._decided[header.producer] = decided
        self._notes_since += 1
        expansion = self._running[header.producer] = self._expansion(decided, frozenset())
        expansion.when_ended(partial(self._tell, decided, then))
        self._store.when_stored(appended.end, partial(self._is_decided, decided, before, expansion))

    def _is_decided(
        self, decided: Decided, before: Decided | None, expansion: Expansion, status: StoreStatus
    ) -> None:
        if self._running.get(decided.producer) is not expansion:
            return  # stopped meanwhile
        if not status.is_stored:
            del self._running[decided.producer], self._decided[decided.producer]
            if before is not None:
                self._decided[decided.producer] = before
            expansion.stop(status.reason)
            return
        self._forget_open(decided.producer, decided.number)
        self._forget_idle_producers()
        expansion.start()

    def _complete(self, header: StagedTransaction, decision: Decision) -> list[ChunkPlace]:
        """The chunks of this broker that `decision` names, in order; raises Refused unless all are here."""
        stages = self._open.get((header.producer, header.number), {})
        chunks: list[ChunkPlace] = []
        for wanted in decision.brokers.get(self._config.broker_name, []):
            stage = stages.get(wanted.stage)
            here = stage.chunks if stage is not None else []
            if len(here) != wanted.chunks or sum(each.messages for each in here) != wanted.messages:
                raise self._incomplete(header, wanted, here, "not all of it came")
            if any(each.physical_offset < self._store.start for each in here):
                raise self._incomplete(
                    header, wanted, here, "some of it was removed with old files of the log"
                )
            chunks += here
        return chunks

    def _incomplete(
        self, header: StagedTransaction, wanted: StageCount, here: list[ChunkPlace], why: str
    ) -> Refused:
        return Refused(
            ResponseCode.ILLEGAL_OPERATION,
            f"transaction {header.number} of {header.producer} is not committed: stage {wanted.stage} was "
            f"written in {wanted.chunks} chunks of {wanted.messages} messages, broker "
            f"{self._config.broker_name} has {len(here)} of {sum(each.messages for each in here)}: {why}; "
            "write it anew",
        )

    def state(self, header: StagedTransaction, decision: Decision | None) -> Outcome:
        """How a transaction stands; with `decision`, raises Refused unless all it names is here."""
        _check_ids(header.producer, header.number)
        if self._is_over(header.producer, header.number):
            return self._outcome(header)
        if decision is None:
            return Outcome("open")
        return Outcome("ready", sum(each.messages for each in self._complete(header, decision)))

    def abort(self, header: StagedTransaction) -> None:
        """Forget what was staged; what is decided stays so."""
        _check_ids(header.producer, header.number)
        self._open.pop((header.producer, header.number), None)

    def _is_over(self, producer: str, number: int) -> bool:
        decided = self._decided.get(producer)
        return decided is not None and number <= decided.number

    def _when_done(self, header: StagedTransaction, then: Committed) -> None:
        running = self._running.get(header.producer)
        if running is None or self._decided[header.producer].number != header.number:
            then(self._outcome(header), OK)
        else:
            running.when_ended(partial(self._tell, self._decided[header.producer], then))

    def _outcome(self, header: StagedTransaction) -> Outcome:
        decided = self._decided[header.producer]
        if decided.number != header.number:
            return Outcome("committed")
        return Outcome("committed", decided.messages, decided.decision)

    def _tell(self, decided: Decided, then: Committed, status: StoreStatus) -> None:
        then(Outcome("committed", decided.messages, decided.decision), status)

    # ------------------------------------------------------------------------------------ messages and done

    def _expansion(self, decided: Decided, present: frozenset[int]) -> Expansion:
        return Expansion(self._expander, decided.chunks, present, partial(self._expanded, decided))

    def _expanded(self, decided: Decided, then: Callable[[StoreStatus], None]) -> None:
        """All messages are stored: say so, once and for all. Raises MQError when that is not possible now."""
        note = DoneNote(decided.producer, decided.number)
        draft = note_draft(DONE, note, self._clock.now_ms(), self._advertised.packed)
        appended = self._store.append(draft)
        self._store.when_stored(appended.end, partial(self._is_done, decided, then))

    def _is_done(self, decided: Decided, then: Callable[[StoreStatus], None], status: StoreStatus) -> None:
        if status.is_stored:
            decided.is_done, decided.chunks = True, []
            self._running.pop(decided.producer, None)
            self._notes_since += 1
        then(status)
        if self._notes_since >= SNAPSHOT_AFTER_NOTES or self._chunks_since >= SNAPSHOT_AFTER_CHUNKS:
            self._write_snapshot()

    def _resume(self, decided: Decided) -> None:
        """A stop came between a decision and its end. Which messages had their places by then, the log
        says."""
        first = min((each.physical_offset for each in decided.chunks), default=0)
        last = max((each.physical_offset + each.size for each in decided.chunks), default=0)
        present = frozenset(
            record.prepared_offset
            for record in self._store.records_after(decided.at)
            if first <= record.prepared_offset < last
        )
        logger.warning(
            "transaction %d of %s was decided and not done: %d of %d messages are there, the rest follows",
            decided.number,
            decided.producer,
            len(present),
            decided.messages,
        )
        expansion = self._running[decided.producer] = self._expansion(decided, present)
        expansion.start()

    # ---------------------------------------------------------------------------------------- bounded memory

    def _look_around(self) -> None:
        """Forget what nobody will come back for, and keep what is known from going with old files."""
        now_ms = self._clock.now_ms()
        for key, stages in list(self._open.items()):
            if now_ms - max(stage.touched_ms for stage in stages.values()) > STAGED_HOURS * _HOUR_MS:
                del self._open[key]
        is_old = now_ms - self._snapshot_ms > max(1, self._config.file_reserved_hours) * _HOUR_MS // 4
        if is_old and (self._decided or self._open):
            self._write_snapshot()

    def _forget_open(self, producer: str, number: int) -> None:
        for key in [key for key in self._open if key[0] == producer and key[1] <= number]:
            del self._open[key]

    def _forget_idle_producers(self) -> None:
        if len(self._decided) > PRODUCERS_MAX:
            for producer in [name for name in self._decided if name not in self._running]:
                del self._decided[producer]
                if len(self._decided) <= PRODUCERS_MAX:
                    break

    def _write_snapshot(self) -> None:
        now_ms, host = self._clock.now_ms(), self._advertised.packed
        open_stages = [stage for stages in self._open.values() for stage in stages.values()]
        # Chunks that are staged and not yet visible are in the snapshot, and found again behind it: no harm.
        chunks_end = self._store.max_offset(STAGED_TOPIC, CHUNKS_QUEUE)
        pages = snapshot_pages(chunks_end, list(self._decided.values()), open_stages)
        try:
            self._store.append_batch([note_draft(SNAPSHOT, page, now_ms, host) for page in pages])
        except MQError as error:
            logger.warning("no snapshot of staged transactions is written now: %s", error)
            return
        self._snapshot_ms, self._notes_since, self._chunks_since = now_ms, 0, 0

    # ----------------------------------------------------------------------------------------------- loading

    def _load_notes(self) -> int:
        """Take in the newest whole snapshot and all that came after; returns where unknown chunks begin."""
        start = self._newest_snapshot()
        chunks_from = self._store.min_offset(STAGED_TOPIC, CHUNKS_QUEUE)
        for record in self._records(NOTES_QUEUE, start):
            note = note_of(record)
            match note:
                case SnapshotPage():
                    if record.queue_offset - note.page != start:
                        continue  # a later one, and torn: what it says is said elsewhere, too
                    chunks_from = note.chunks_end
                    self._snapshot_ms = record.store_ms
                    self._decided.update({each.producer: each for each in note.decided})
                    for stage in note.open:
                        self._open.setdefault((stage.producer, stage.number), {})[stage.stage] = stage
                case CommitNote():
                    self._load_commit(note, record)
                case DoneNote():
                    decided = self._decided.get(note.producer)
                    if decided is not None and decided.number == note.number:
                        decided.is_done, decided.chunks = True, []
                case None:
                    logger.error("note %d of staged transactions cannot be read", record.queue_offset)
            self._notes_since += 1
        return chunks_from

    def _load_commit(self, note: CommitNote, record: Record) -> None:
        self._decided.pop(note.producer, None)
        self._decided[note.producer] = Decided(
            note.producer,
            note.number,
            note.decision,
            record.physical_offset,
            record.store_ms,
            note.messages,
            False,
            note.chunks,
        )
        self._forget_open(note.producer, note.number)

    def _newest_snapshot(self) -> int:
        """The queue offset of its first page; where the notes begin when there is none."""
        first = self._store.min_offset(STAGED_TOPIC, NOTES_QUEUE)
        end = self._store.max_offset(STAGED_TOPIC, NOTES_QUEUE)
        pages_behind = 0  # pages of one snapshot seen in a row, coming from its end
        while end > first:
            start = max(first, end - _BLOCK)
            for record in reversed(list(self._records(NOTES_QUEUE, start, end))):
                note = note_of(record)
                if not isinstance(note, SnapshotPage):
                    pages_behind = 0
                    continue
                if note.page == note.pages - 1:
                    pages_behind = 0
                pages_behind += 1
                if note.page == 0 and pages_behind == note.pages:
                    return int(record.queue_offset)
            end = start
        return first

    def _load_chunks(self, start: int) -> None:
        for record in self._records(CHUNKS_QUEUE, start):
            self._chunks_since += 1
            of = chunk_of(record)
            if of is None or self._is_over(of.producer, of.number):
                continue
            stages = self._open.setdefault((of.producer, of.number), {})
            stage = stages.setdefault(of.stage, OpenStage(of.producer, of.number, of.stage, record.store_ms))
            if of.sequence == len(stage.chunks):
                stage.chunks.append(ChunkPlace(record.physical_offset, record.size, of.messages))
                stage.touched_ms = record.store_ms

    def _records(self, queue_id: int, start: int, end: int | None = None) -> Iterator[Record]:
        """Those of one of our queues that can be read, from `start` on."""
        at = start
        end = self._store.max_offset(STAGED_TOPIC, queue_id) if end is None else end
        while at < end:
            result = self._store.read(STAGED_TOPIC, queue_id, at, min(_BLOCK, end - at))
            try:
                yield from decode_all(b"".join(result.messages))
            except ProtocolError as error:
                logger.error("a record of %s from %d on cannot be read: %s", STAGED_TOPIC, at, error)
            at = max(at + 1, result.next_offset)


def _check_ids(producer: str, number: int, stage: str = "-") -> None:
    for what, value in (("producer", producer), ("stage", stage)):
        if not _LEGAL_ID.fullmatch(value):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"{what} '{printable(value)}': 1 to 200 letters, digits and . : / + = @ _ - are taken",
            )
    if number < 0:
        raise Refused(ResponseCode.INVALID_PARAMETER, f"number {number}: they begin with 0")
