"""The chunks of a decided transaction become messages, in turns, so that the loop stays free meanwhile.

    chunk ─▶ message 0, 1, 2, … of it ─▶ Draft of its own topic and queue ─▶ store.append ─▶ … ─▶ done

A turn is stored, or not, as a whole: then the next one begins where it ended, or it is tried again. A message
that is to be delivered later goes where such messages wait, as when it is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import repeat
from typing import Final

from kourou.broker.handlers.usual_properties import UsualProperties
from kourou.broker.staged_notes import ChunkPlace, chunk_of
from kourou.broker.stats import Stats
from kourou.doors.clock import Clock
from kourou.errors import Corrupt, MQError, ProtocolError, Refused
from kourou.protocol.codes import ResponseCode
from kourou.protocol.properties import PROPERTIES_BYTES_MAX, find
from kourou.protocol.record import CRC_PROPERTY_BYTES, Record
from kourou.protocol.staged import Chunk, StagedMessage
from kourou.remoting.complaints import Complaints
from kourou.store.flush import StoreStatus, Then, failed
from kourou.store.store import Draft, Store, Usual

TURN_MESSAGES: Final = 512
UNUSUAL_MESSAGES: Final = 32
AGAIN_SECONDS: Final = 1.0
PROPERTIES_RESERVED: Final = 512
"""Room for what a broker adds to the properties of a message, also of one that has to wait."""

_LATER: Final = (b"DELAY", b"TIMER_DE")

logger = logging.getLogger(__name__)

StoredProperties = Callable[..., tuple[bytes, str]]
"""`SendHandler.stored_properties`: what is stored as the properties of a message, and its unique id."""


class Expander:
    """Knows how a message of a chunk is stored; holds nothing."""

    def __init__(
        self,
        *,
        store: Store,
        stats: Stats,
        clock: Clock,
        stored_properties: StoredProperties,
        placed: Callable[[Draft], Draft],
    ) -> None:
        """`placed` says where a message goes: one with a delay has a way of its own."""
        self.store = store
        self.stats = stats
        self.clock = clock
        self._stored_properties = stored_properties
        self._usual = UsualProperties(stored_properties)
        self._placed = placed
        self.complaints = Complaints(logger, clock)

    def check(self, topic: str, chunk: Chunk) -> None:
        """Raises Refused when a message of `chunk` could not be stored later on."""
        room = PROPERTIES_BYTES_MAX - CRC_PROPERTY_BYTES - PROPERTIES_RESERVED
        if chunk.longest_properties > room:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"properties of {chunk.longest_properties} bytes: at most {room} can be stored",
            )
        properties = chunk.properties
        try:
            properties.decode()
        except UnicodeDecodeError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"properties are not UTF-8: {error}") from None
        may_be_half = b"TRAN_MSG" in properties
        if may_be_half or any(name in properties for name in _LATER):
            for message in chunk.messages():
                if may_be_half and find(message.properties, b"TRAN_MSG") is not None:
                    raise Refused(ResponseCode.MESSAGE_ILLEGAL, "half messages cannot be staged")
                self.draft(topic, message, bytes(8), bytes(8), 0)

    def draft(
        self, topic: str, message: StagedMessage, born_host: bytes, store_host: bytes, prepared_offset: int
    ) -> Draft:
        queue_id, flag, born_ms, body, given = message
        properties, _ = self._stored_properties(given.decode(), 0, may_wait=True)
        draft = Draft(
            topic, queue_id, body, properties, flag, 0, born_ms, born_host, store_host, 0, prepared_offset
        )
        return self._placed(draft)

    def usual(self, topic: str, chunk: Chunk, start: int, stop: int) -> list[Usual]:
        """The messages from `start` on that have nothing unusual about them, ready for `Store.append_run`; up
        to the first of another kind."""
        run: list[Usual] = []
        keys = {queue_id: (topic, queue_id) for queue_id in set(chunk.queue_ids)}
        messages = list(chunk.messages(start, stop))
        stored = self._usual.of_each(topic, [message.properties.decode() for message in messages])
        with suppress(Refused):  # one that is to be delivered later
            for (queue_id, flag, born_ms, body, _), (properties, _, id_at, tag) in zip(
                messages, stored, strict=False
            ):
                run.append((keys[queue_id], body, properties, id_at, tag, flag, 0, born_ms, 0))
        return run

    def read(self, place: ChunkPlace) -> tuple[str, Chunk, Record]:
        """The topic, the messages and the record of a chunk. Raises Corrupt when they are not there."""
        data = self.store.record_at(place.physical_offset)
        try:
            record = None if data is None else Record(data)
            of = None if record is None else chunk_of(record)
            if record is not None and of is not None:
                return of.topic, Chunk(record.body), record
        except ProtocolError:
            pass
        raise Corrupt(f"the staged messages at {place.physical_offset} of the log cannot be read")


class Expansion:
    """One transaction on its way into the queues of its messages."""

    def __init__(
        self,
        expander: Expander,
        chunks: Sequence[ChunkPlace],
        present: frozenset[int],
        expanded: Callable[[Then], None],
    ) -> None:
        """`present` are the prepared offsets of messages that have their places. `expanded` is called when
        all messages are stored, with whom to tell when that is noted."""
        self._expander = expander
        self._chunks = chunks
        self._present = present
        self._expanded = expanded
        self._waiting: list[Then] = []
        self._at = (0, 0)  # chunk, message: where the next turn begins
        self._chunk: tuple[int, tuple[str, Chunk, Record]] | None = None
        self._is_stopped = False

    def when_ended(self, then: Then) -> None:
        """Have `then` told that all is stored; or that it is not now, and goes on being tried."""
        self._waiting.append(then)

    def start(self) -> None:
        self._turn()

    def stop(self, reason: str) -> None:
        self._is_stopped = True
        self._tell(failed(reason))

    def _turn(self) -> None:
        if self._is_stopped:
            return
        try:
            following, end = self._append_some()
            if end is None:
                self._expanded(self._noted)
                return
        except MQError as error:
            self._try_again(str(error))
            return
        self._expander.store.when_stored(end, partial(self._stored, following))

    def _append_some(self) -> tuple[tuple[int, int], int | None]:
        """Append one turn's messages: where the next one begins, and where in the log this one ends; None
        when there was nothing left to append."""
        number, start = self._at
        while number < len(self._chunks):
            place = self._chunks[number]
            topic, chunk, record = self._read(number)
            stop, end = self._append(topic, chunk, record, place.physical_offset, start)
            following = (number, stop) if stop < chunk.count else (number + 1, 0)
            if end is not None:
                return following, end
            number, start = following  # all of it was there already
        return (number, 0), None

    def _append(
        self, topic: str, chunk: Chunk, record: Record, place: int, start: int
    ) -> tuple[int, int | None]:
        """Append the messages from `start` on that are not there yet: the number of the next one, and where
        in the log these end. Raises what the first one raises; at a later one it stops, for the next turn."""
        expander, present = self._expander, self._present
        append, draft = expander.store.append, expander.draft
        born_host, store_host = record.born_host, record.store_host
        stop = min(chunk.count, start + TURN_MESSAGES)
        if not present:
            run = expander.usual(topic, chunk, start, stop)
            taken = expander.store.append_run(
                run, repeat(born_host), store_host, range(place + start, place + stop)
            )
            if taken.places:
                expander.stats.put(topic, len(taken.places), taken.end - taken.start)
                return start + len(taken.places), taken.end
            stop = min(stop, start + UNUSUAL_MESSAGES)
        end: int | None = None
        count = size = 0
        for index, message in enumerate(chunk.messages(start, stop), start):
            if present and place + index in present:
                continue
            try:
                appended = append(draft(topic, message, born_host, store_host, place + index))
            except MQError:
                if end is None:
                    raise
                stop = index
                break
            end = appended.end
            count += 1
            size += appended.size
        if count:
            expander.stats.put(topic, count, size)
        return stop, end

    def _read(self, number: int) -> tuple[str, Chunk, Record]:
        if self._chunk is None or self._chunk[0] != number:
            self._chunk = (number, self._expander.read(self._chunks[number]))
        return self._chunk[1]

    def _stored(self, following: tuple[int, int], status: StoreStatus) -> None:
        if not status.is_stored:
            self._try_again(status.reason)
            return
        self._at = following
        self._expander.clock.later(0.0, self._turn)

    def _noted(self, status: StoreStatus) -> None:
        if status.is_stored:
            self._chunk = None
            self._tell(status)
        else:
            self._try_again(status.reason)

    def _try_again(self, reason: str) -> None:
        if not self._is_stopped:
            self._expander.complaints.warn("expand", f"staged messages are not delivered now: {reason}")
            self._tell(failed(reason))
            self._expander.clock.later(AGAIN_SECONDS, self._turn)

    def _tell(self, status: StoreStatus) -> None:
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(status)
