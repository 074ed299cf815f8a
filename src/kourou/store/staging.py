"""Records of another broker's log on their way into the queues here.

    the log   [ in its queue | staged | believed, not looked at yet | ... ]
                                      ^ at                          ^ until

Whoever took the bytes in has found every record before `until` to be whole and valid (`following.py`); here
it is only asked where each belongs. What the master has deleted and begun anew begins anew; what was lost in
damaged bytes gets a neighbour to stand for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct

from kourou.errors import DiskFault, Refused
from kourou.protocol import record as records
from kourou.protocol.names import SCHEDULE_TOPIC
from kourou.store.commit_log import CommitLog
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
_OUR_HEAD = Struct(">ii4xi4xq8xi16xq20xi")  # V1, both hosts IPv4: the body follows
_HEAD_BYTES = _OUR_HEAD.size
_UNUSUAL_BITS = 0x3C  # transactions; hosts that are IPv6
_HIDDEN = (PREPARED, ROLLED_BACK)
_STAND_INS_MAX = 10_000_000

log = logging.getLogger(__name__)

_Shape = tuple[int, bytes, bytes, int, int]
"""What the properties of most messages share with those before: length; what stands before the unique id, and
after it; where that begins (0: there is none, or it is not all they are found by); tag code."""

_NO_SHAPE: _Shape = (-1, b"", b"", 0, 0)


class Stager:
    """Puts the records of a followed log into their queues, in their order."""

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
        self._topics: dict[bytes, str] = {}
        self._shape = _NO_SHAPE
        self._keyed: list[Keyed] = []  # of what was staged and not sealed yet
        self._last: tuple[int, int, int] | None = None  # the last record of it: place, size, store time
        self._gaps: dict[int, int] = {}
        self.at = commit_log.end
        """Every record before this is in its queue, or staged."""
        self.damage: list[Damage] = []
        """Bytes that make no record, though records follow."""

    def begin_at(self, place: int) -> None:
        self.at = place

    def note_damage(self, damage: Damage) -> None:
        """These bytes, not come to yet, are none of a record."""
        self.damage.append(damage)
        self._gaps[damage.start] = damage.end

    def stage_from_log(self, until: int, most: int) -> None:
        """Stage about `most` bytes that were written some time ago; never beyond `until`. Raises OSError when
        they cannot be read, DiskFault when they are not what was written."""
        self.at = max(self.at, self._log.start)
        begin = self.at
        left = until - begin
        while self.at == begin < until:
            window = self._log.read(min(most, left), begin)
            self.stage(window, begin, begin + len(window))
            if self.at == begin and most >= left:
                raise DiskFault(f"the log from {begin} to {until} does not read as it was written")
            most *= 2  # a record that is longer than that

    def stage(self, window: bytes, begin: int, until: int) -> None:
        """Stage all that is there as a whole before `until`. `window` holds the log from `begin` on, with
        `at` in it."""
        while True:
            self._stage_usual(window, begin, until)
            found = self._next(window, begin, until)
            if found is None:
                return
            if not self._put(found):
                self.seal()  # a queue that begins anew: first what belongs to the old one
                self._begin_anew(found)
                self._put(found)
            self.at = found[0] + found[1]
            self._last = found[:3]

    def seal(self) -> None:
        """Have all that is staged go into its queues as soon as it is durable. Called once for what came in
        some milliseconds: a queue is then written once, not for every piece."""
        last, self._last = self._last, None
        if last is not None:
            self._index.collect(self._keyed, self._dispatcher.keys)
            self._keyed.clear()
            self._sealed(Position(last[0] + last[1], last[0], last[2]))

    # Record by record.

    def _stage_usual(self, window: bytes, begin: int, until: int) -> None:
        """Stage the usual records that come next: our own, visible, in their queue's order.

        The plain way is `_next` and `_put`, which see to the first one that is not. In one function, and
        with properties held against those of the record before, it is half of that; bench: replication.
        """
        unpack, known_topics, queue_of = _OUR_HEAD.unpack_from, self._topics.get, self._queues.table.get
        staged_queues, add_keyed = self._dispatcher.staged, self._keyed.append
        within, end = self.at - begin, until - begin
        last = self._last
        length, before, after, id_at, usual_tag = self._shape
        while within + _HEAD_BYTES <= end:
            size, magic, queue_id, queue_offset, sys_flag, stored_ms, body_length = unpack(window, within)
            stop = within + size
            if magic != records.MAGIC_V1 or sys_flag & _UNUSUAL_BITS or stop > end:
                break
            topic_at = within + _HEAD_BYTES + body_length + 1
            crc_at = stop - records.CRC_PROPERTY_BYTES
            if body_length < 0 or topic_at >= crc_at:
                break
            properties_at = topic_at + window[topic_at - 1] + 2
            if properties_at > crc_at or not window.startswith(b"__CRC32#", crc_at):
                break
            topic = known_topics(window[topic_at : properties_at - 2])
            queue = queue_of((topic, queue_id)) if topic is not None else None
            if queue is None or queue.next_offset != queue_offset or topic == SCHEDULE_TOPIC:
                break
            place = begin + within
            properties = window[properties_at:crc_at]
            if len(properties) != length or not (
                properties.startswith(before) and properties.endswith(after)
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
        self.at = begin + within
        self._last = last

    def _next(self, window: bytes, begin: int, until: int) -> Sketch | None:
        """The next record, whatever kind it is of; None: there is none as a whole before `until`."""
        end = until - begin
        while True:
            self.at = self._gaps.pop(self.at, self.at)
            within = self.at - begin
            if within + _SIZE_AND_MAGIC.size > end:
                return None
            size, magic = _SIZE_AND_MAGIC.unpack_from(window, within)
            if magic == records.MAGIC_BLANK:
                self.at += size
                continue
            if within + size > end:
                return None
            found = sketched(window, memoryview(window), within, self.at)
            if found is None:
                checked = checked_record(window, within, within + size, True, self.at)
                if checked.record is None:
                    raise DiskFault(f"the record at {self.at} does not read as it was written")
                found = sketch_of(checked.record)
            return found

    def _put(self, found: Sketch) -> bool:
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
            if place < self._queues.deleted.end_of(topic):  # it came, and its topic was deleted, before this
                return True
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
        is_damaged = any(damage.start < place for damage in self.damage)
        if is_first and (self._log.start > 0 or not is_damaged or missing > _STAND_INS_MAX):
            queue.begin_at(queue_offset)
        else:
            for _ in range(missing):  # what was lost in damaged bytes: its neighbour stands for it
                self._dispatcher.stage(queue, place, size, 0)
            queue.next_offset = queue_offset


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
