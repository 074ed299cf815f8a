"""A log that is another broker's, byte for byte: taken in as it comes, made visible record by record.

    the master's log   [ record | record | record | BLANK ][ record | rec…
    what came so far   ───────────────────────────────────────────────▶
                                                           ^ whole     ^ end
                                                             [ held … ]

Bytes come cut anywhere. They are written where they belong at once; a record goes into its consume queue, by
its own queue offset, when it is there as a whole and its CRCs agree. Bytes that make no record are kept,
since the master has them too, and passed over when a valid record follows; until one does, nothing behind
them counts as had. A master that sends nothing but such bytes is not believed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct

from kourou.errors import Corrupt, Refused
from kourou.native import native
from kourou.protocol import record as records
from kourou.protocol.checksum import crc32
from kourou.protocol.names import SCHEDULE_TOPIC
from kourou.protocol.record import Verdict
from kourou.store.commit_log import RECORD_OVERHEAD_BYTES_MAX, CommitLog
from kourou.store.config import StoreConfig
from kourou.store.consume_queue import ConsumeQueue, ConsumeQueues
from kourou.store.dispatch import Dispatcher, Position, entry_tag
from kourou.store.key_hashes import UNIQUE_ID_BYTES, Keyed
from kourou.store.key_index import KeyIndex
from kourou.store.recovery import (
    PREPARED,
    ROLLED_BACK,
    TRANSACTION_BITS,
    Damage,
    Sketch,
    checked_record,
    sketch_of,
    sketched,
)

_SIZE_AND_MAGIC = Struct(">ii")
_OUR_HEAD = Struct(">ii4xi4xqqi16xq20xi")  # V1, both hosts IPv4: the body follows
_HEAD_BYTES = _OUR_HEAD.size
_UNUSUAL_BITS = 0x3C  # transactions; hosts that are IPv6
_HIDDEN = (PREPARED, ROLLED_BACK)
_MAGICS = (records.MAGIC_V1, records.MAGIC_V2)
_UNREADABLE_BYTES_MAX = 64 << 20
_STAND_INS_MAX = 10_000_000

log = logging.getLogger(__name__)

_Last = tuple[int, int, int]
"""Of the last record that was taken in: place, size, store time."""

_Shape = tuple[int, bytes, bytes, int, int]
"""What the properties of most messages share with those before: length; what stands before the unique id, and
after it; where that begins (0: there is none, or it is not all they are found by); tag code."""

_NO_SHAPE: _Shape = (-1, b"", b"", 0, 0)


def _shape_of(topic: str, properties: bytes) -> _Shape:
    """The shape of these properties, which others may have but for their unique id."""
    id_at = properties.find(b"UNIQ_KEY\x01") + 9
    id_end = id_at + UNIQUE_ID_BYTES
    is_first = id_at == 9 or properties[id_at - 10 : id_at - 9] == b"\x02"
    unique_id = properties[id_at:id_end]
    if id_at < 9 or not is_first or b"KEYS" in properties or not unique_id.isalnum() or len(unique_id) < 32:
        return _NO_SHAPE
    if properties[id_end : id_end + 1] != b"\x02":
        return _NO_SHAPE
    tag = entry_tag(topic, properties, 0, ())
    return len(properties), properties[:id_at], properties[id_end:], id_at, tag


class Follower:
    """Takes in another broker's log. One at a time has a store (`Store.follow`)."""

    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        dispatcher: Dispatcher,
        index: KeyIndex,
        sealed: Callable[[Position], None],
        forget: Callable[[ConsumeQueue], None],
    ) -> None:
        """`sealed(position)` is told when records up to `position` are to go into their queues;
        `forget(queue)` takes a queue away that the master has begun anew."""
        self._config = config
        self._log = commit_log
        self._queues = queues
        self._dispatcher = dispatcher
        self._index = index
        self._sealed = sealed
        self._forget = forget
        self._whole = commit_log.end
        self._held: list[bytes] = []  # what came after `_whole`
        self._held_bytes = 0
        self._needed = 0  # nothing can be said before so much is there
        self._bad_at: int | None = None  # from here on no record has been found
        self._topics: dict[bytes, str] = {}
        self._shape = _NO_SHAPE
        self._keyed: list[Keyed] = []  # of what was staged and not sealed yet, up to the record `_last`
        self._last: _Last | None = None
        self._record_bytes_max = config.message_bytes_max + RECORD_OVERHEAD_BYTES_MAX
        self.damage: list[Damage] = []
        """Bytes that make no record, though records follow."""

    @property
    def end(self) -> int:
        """One past the last byte that came."""
        return self._log.end

    @property
    def whole(self) -> int:
        """Every record that ends before this is in its queue, or will be soon."""
        return self._whole

    @property
    def had(self) -> int:
        """What may be acknowledged, once it is as durable as was asked for."""
        return self._log.end if self._bad_at is None else self._bad_at

    def begin_at(self, place: int) -> None:
        """Begin an empty log with the byte at `place`."""
        assert self._log.segments.is_empty
        self._log.resume(place)
        self._whole = place

    def take(self, data: bytes) -> None:
        """The next bytes, from `end` on. Raises OSError or DiskFault when they cannot be written, and Corrupt
        when there is no record to be found in what came."""
        self._log.write_raw(data)
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes >= self._needed:
            self._take_records()

    def _take_records(self) -> None:
        window = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        begin = self._whole
        try:
            with memoryview(window) as view:
                self._take_each(window, view, begin)
        finally:  # also when a queue found no room: what was taken is not taken again
            rest = window[self._whole - begin :]
            self._held, self._held_bytes = [rest], len(rest)

    def _take_each(self, window: bytes, view: memoryview, begin: int) -> None:
        while True:
            self._take_usual(window, view, begin)
            found = self._next(window, view, self._whole - begin)
            if found is None:
                return
            if not self._stage(found):
                self.seal()  # a queue that begins anew: first what belongs to the old one
                self._begin_anew(found)
                self._stage(found)
            self._whole = found[0] + found[1]
            self._last = found[:3]

    def _take_usual(self, window: bytes, view: memoryview, begin: int) -> None:
        """Take in the usual records that come next: our own, whole, visible, in their queue's order.

        The plain way is `_next` and `_stage`, which see to the first one that is not.
        """
        if native is None:
            self._take_usual_plainly(window, view, begin)
            return
        keys, staged_queues = self._dispatcher.keys, self._dispatcher.staged
        stop, last, runs, hashes, places = native.walk(
            window, self._whole - begin, self._whole, self._queue_of, self._config.index_enabled
        )
        if last[1]:
            self._last = last
        for queue, numbers in runs:
            if numbers:
                queue.next_offset += len(numbers) // 3
                if not queue.staged:
                    staged_queues.append(queue)
                queue.staged += numbers
        if hashes:
            self._collect()  # of those that came before
            keys.hashes.extend(hashes)
            keys.places.extend(places)
        self._whole = begin + stop

    def _queue_of(self, topic_bytes: bytes, queue_id: int) -> tuple[int, ConsumeQueue] | None:
        """A queue that has had records, and the offset of its next."""
        topic = self._topics.get(topic_bytes)
        queue = self._queues.table.get((topic, queue_id)) if topic is not None else None
        return None if queue is None or topic == SCHEDULE_TOPIC else (queue.next_offset, queue)

    def _take_usual_plainly(self, window: bytes, view: memoryview, begin: int) -> None:
        """As `_take_usual`, by Python alone. In one function, and with properties held against those of the
        record before, it takes two thirds of `_next` and `_stage`, by C a tenth; bench: replication."""
        unpack, known_topics, queue_of = _OUR_HEAD.unpack_from, self._topics.get, self._queues.table.get
        staged_queues, add_keyed = self._dispatcher.staged, self._keyed.append
        within, end = self._whole - begin, len(window)
        last = self._last
        length, before, after, id_at, usual_tag = self._shape
        while within + _HEAD_BYTES <= end:
            size, magic, queue_id, queue_offset, place, sys_flag, stored_ms, body_length = unpack(
                window, within
            )
            stop = within + size
            topic_at = within + _HEAD_BYTES + body_length + 1
            crc_at = stop - records.CRC_PROPERTY_BYTES
            if (
                magic != records.MAGIC_V1
                or place != begin + within
                or sys_flag & _UNUSUAL_BITS
                or body_length < 0
                or stop > end
                or topic_at >= crc_at
            ):
                break
            properties_at = topic_at + window[topic_at - 1] + 2
            if (
                properties_at > crc_at
                or window[properties_at - 2] << 8 | window[properties_at - 1] != stop - properties_at
            ):
                break
            crc = b"%010d" % (crc32(view[within:crc_at]) & 0x7FFF_FFFF)
            if window[crc_at:stop] != b"__CRC32#\x01%b\x02" % crc[::-1]:
                break
            topic = known_topics(window[topic_at : properties_at - 2])
            queue = queue_of((topic, queue_id)) if topic is not None else None
            if queue is None or queue.next_offset != queue_offset or topic == SCHEDULE_TOPIC:
                break
            properties = window[properties_at:crc_at]
            if len(properties) != length or not (
                properties.startswith(before)
                and properties.endswith(after)
                and properties[id_at : id_at + UNIQUE_ID_BYTES].isalnum()
            ):
                self._shape = _shape_of(queue.topic, properties)
                length, before, after, id_at, usual_tag = self._shape
                tag = usual_tag if id_at else entry_tag(queue.topic, properties, stored_ms, ())
            else:
                tag = usual_tag
            queue.next_offset = queue_offset + 1
            if not queue.staged:
                staged_queues.append(queue)
            queue.staged += (place, size, tag)
            add_keyed((queue.topic_bytes, properties, id_at, place))
            last = place, size, stored_ms
            within = stop
        self._whole, self._last = begin + within, last

    def seal(self) -> None:
        """Have all records that came so far go into their queues as soon as they are durable. Called once for
        what came in some milliseconds: a queue is then written once, not for every piece."""
        last, self._last = self._last, None
        if last is not None:
            self._collect()
            self._sealed(Position(last[0] + last[1], last[0], last[2]))

    def _collect(self) -> None:
        if self._keyed:
            self._index.collect(self._keyed, self._dispatcher.keys)
            self._keyed.clear()

    def _next(self, window: bytes, view: memoryview, within: int) -> Sketch | None:
        """The record at `within`, or the first after it where that is none; None: more must come first."""
        base = self._whole - within
        segment_bytes = self._config.commit_log_segment_bytes
        while True:
            at = base + within
            found = sketched(window, view, within, at)
            if found is not None:
                self._end_damage(at)
                return found
            left = len(window) - within
            segment_left = segment_bytes - at % segment_bytes
            self._needed = _SIZE_AND_MAGIC.size
            if left < _SIZE_AND_MAGIC.size:
                return None
            size, magic = _SIZE_AND_MAGIC.unpack_from(window, within)
            is_record = magic in _MAGICS and records.RECORD_BYTES_MIN <= size <= min(
                segment_left, self._record_bytes_max
            )
            if magic == records.MAGIC_BLANK and size == segment_left:
                self._needed = size
                if left < size:
                    return None
                self._end_damage(at)
                within += size
                self._whole = at + size
                continue
            if is_record and left < size and self._bad_at is None:
                self._needed = size
                return None
            if is_record and left >= size:
                checked = checked_record(window, within, within + size, True, at)
                if checked.verdict is Verdict.OK and checked.record is not None:
                    self._end_damage(at)
                    return sketch_of(checked.record)
            following = self._search(window, view, within, base)
            if following is None:
                return None
            within = following

    # Damage.

    def _search(self, window: bytes, view: memoryview, within: int, base: int) -> int | None:
        """Where a valid record begins after `within`; None when none is in sight."""
        if self._bad_at is None:
            self._bad_at = base + within
            log.error("the master's log holds no record at %d; looking for the next one", self._bad_at)
        at = within
        while (at := window.find(b"\xda\xa3\x20", at + 1)) >= 0:
            start = at - 4
            if start > within and self._is_valid(window, view, start, base + start):
                return start
        if len(window) - within > _UNREADABLE_BYTES_MAX:
            raise Corrupt(
                f"the master sent {len(window) - within} bytes from {self._bad_at} on, no valid record: "
                "check its store with `kourou store check`, and what this slave is connected to"
            )
        self._needed = 2 * (len(window) - within)  # not the same search again for every byte that comes
        return None

    def _is_valid(self, window: bytes, view: memoryview, within: int, place: int) -> bool:
        if sketched(window, view, within, place) is not None:
            return True
        segment_left = self._config.commit_log_segment_bytes - place % self._config.commit_log_segment_bytes
        end = min(len(window), within + segment_left)
        return checked_record(window, within, end, True, place).verdict is Verdict.OK

    def _end_damage(self, at: int) -> None:
        if self._bad_at is not None:
            damage = Damage(self._bad_at, at, "no record, though records follow")
            self.damage.append(damage)
            log.error("bytes %d to %d of the master's log are damaged, here too", damage.start, damage.end)
            self._bad_at = None

    # Queues.

    def _stage(self, found: Sketch) -> bool:
        """Put a record into its queue; False, and nothing is done, when that queue is to begin anew first."""
        place, size, stored_ms, sys_flag, queue_id, queue_offset, topic_bytes, properties = found
        bits = sys_flag & TRANSACTION_BITS
        if bits in _HIDDEN:
            if bits != ROLLED_BACK:
                self._keyed.append((topic_bytes, properties, 0, place))
            return True
        topic = self._topics.get(topic_bytes)
        if topic is None:
            topic = self._topics[topic_bytes] = topic_bytes.decode("utf-8", "replace")
        queue = self._queues.table.get((topic, queue_id))
        if queue is None:
            try:
                queue = self._queues.get_or_make(topic, queue_id)
            except Refused as refused:
                self.damage.append(Damage(place, place + size, str(refused)))
                return True
        if queue_offset < queue.next_offset:
            return False
        if queue_offset > queue.next_offset:
            self._meet(queue, queue_offset, place, size)
        self._keyed.append((topic_bytes, properties, 0, place))
        tag = entry_tag(topic, properties, stored_ms, self._config.delay_levels_ms)
        queue.next_offset = queue_offset + 1
        self._dispatcher.stage(queue, place, size, tag)
        return True

    def _begin_anew(self, found: Sketch) -> None:
        """The master has deleted the topic since, and created it again."""
        queue = self._queues.table[self._topics[found[6]], found[4]]
        log.warning("%s queue %d begins anew, as on the master", queue.topic, queue.queue_id)
        self._forget(queue)

    def _meet(self, queue: ConsumeQueue, queue_offset: int, place: int, size: int) -> None:
        """Bring a queue to the offset its next record has."""
        missing = queue_offset - queue.next_offset
        is_first = queue.next_offset == 0 and queue.segments.is_empty and not queue.staged
        if is_first and (self._log.start > 0 or not self.damage or missing > _STAND_INS_MAX):
            queue.begin_at(queue_offset)
            self._dispatcher.entries += queue_offset
        else:
            for _ in range(missing):  # what was lost in damaged bytes: its neighbour stands for it
                self._dispatcher.stage(queue, place, size, 0)
            queue.next_offset = queue_offset
