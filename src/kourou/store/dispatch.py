"""Makes stored records visible: feeds the consume queues and the key index, then whoever listens.

Entries are collected while a tick stages its records and wait, batch by batch, until the log is durable up
to their end in the mode that was asked for. Only then are they shown to readers, and the listeners told. What
a reader has seen, no crash can take back: it is in the log, and the queues can be built from that again.

So the files of the queues may be behind. Entries wait in memory, and are written

    with the first entry of a file      which makes the file
    when a queue has a page of them
    when all queues have `WAITING_BYTES_MAX`      the longest waiting first
    each second                                   up to `checkpoint.QUEUES_A_LOOK`
    before a checkpoint speaks of them, and before a clean stop

Sends that go round a thousand topics would otherwise cost a write each, most of them with a file opened and
closed: a third of all that such a send costs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple, Protocol

from kourou.protocol import properties as props
from kourou.protocol.java_hash import tag_code
from kourou.protocol.names import SCHEDULE_TOPIC
from kourou.store.config import ENTRY_BYTES
from kourou.store.consume_queue import ENTRIES, ENTRY, ConsumeQueue
from kourou.store.key_hashes import Keys

SECOND_MS = 1000
PAGE_BYTES = 4096
WAITING_BYTES_MAX = 4 << 20
_QUEUES_A_WRITE = 32


class Dispatched(NamedTuple):
    """New messages of one queue, readable from now on."""

    topic: str
    queue_id: int
    max_offset: int
    entries: bytes

    @property
    def tags(self) -> list[int]:
        """Their tag codes, in order."""
        return [tags for _, _, tags in ENTRY.iter_unpack(self.entries)]


Listener = Callable[[Dispatched], None]


class Position(NamedTuple):
    """A boundary between two records of the log, and what lies just before it."""

    end: int
    last_start: int
    last_stored_ms: int


class _Batch(NamedTuple):
    position: Position
    parts: deque[tuple[ConsumeQueue, bytes, int]]
    """Entries of a queue, and where the last one's record ends."""
    keys: Keys


class Index(Protocol):
    """What finds messages by their keys."""

    def take(self, keys: Keys, stored_ms: int, end: int) -> None: ...


class Dispatcher:
    """Knows which records are visible."""

    def __init__(
        self,
        position: Position,
        listeners: Sequence[Listener] = (),
        index: Index | None = None,
        listeners_of: Mapping[str, Sequence[Listener]] | None = None,
    ) -> None:
        """`listeners` hear of every topic, `listeners_of` of one."""
        self.position = position
        """Every record before this is in its consume queue, for readers."""
        self.entries = 0
        """How many entries all queues have together, up to `position`."""
        self.touched: dict[ConsumeQueue, int] = {}
        """Queues written since the last checkpoint, and their first new entry."""
        self.unwritten: dict[ConsumeQueue, None] = {}
        """Queues with entries that wait to be written; those that have waited longest come first."""
        self._waiting_bytes = 0  # of these entries
        self._listeners = listeners
        self._listeners_of = {} if listeners_of is None else listeners_of  # an empty one may get some
        self._index = index
        self.keys = Keys([], [])
        """What the messages of this tick are to be found by, as they come in."""
        self.staged: list[ConsumeQueue] = []
        """Queues with entries of this tick (`ConsumeQueue.staged`)."""
        self._waiting: deque[_Batch] = deque()
        self._begun = 0  # entries of the batch that is being written

    @property
    def sealed_end(self) -> int:
        """Where the last tick ends that is visible, or will be."""
        return self._waiting[-1].position.end if self._waiting else self.position.end

    @property
    def is_behind(self) -> bool:
        return bool(self._waiting)

    def stage(self, queue: ConsumeQueue, place: int, size: int, tag: int) -> None:
        """Take in an entry of this tick."""
        if not queue.staged:
            self.staged.append(queue)
        queue.staged += (place, size, tag)

    def seal(self, position: Position) -> None:
        """The tick's records are written: its entries wait until the log is durable up to `position`."""
        parts: deque[tuple[ConsumeQueue, bytes, int]] = deque()
        for queue in self.staged:
            numbers = queue.staged
            entries = ENTRY.pack(*numbers) if len(numbers) == 3 else ENTRIES.pack(numbers)
            parts.append((queue, entries, numbers[-3] + numbers[-2]))
        self._waiting.append(_Batch(position, parts, self.keys))
        self._clear()

    def drop_staged(self) -> None:
        """The tick's records were not written: their queue offsets are free again."""
        for queue in self.staged:
            queue.next_offset -= len(queue.staged) // 3
        self._clear()

    def take_back(self, place: int) -> None:
        """Records from `place` on were not staged after all: so for those what `drop_staged` does for all."""
        for queue in self.staged:
            entries = queue.staged
            while entries and entries[-3] >= place:
                del entries[-3:]
                queue.next_offset -= 1
        self.staged[:] = [queue for queue in self.staged if queue.staged]
        kept = bisect_left(self.keys.places, place)
        del self.keys.hashes[kept:], self.keys.places[kept:]

    def _clear(self) -> None:
        self.keys = Keys([], [])
        for queue in self.staged:
            queue.staged = []
        self.staged = []

    def advance(self, durable: int) -> None:
        """Make visible what ends before `durable`. Raises OSError; what is left is tried the next time."""
        waiting, unwritten, listeners, listeners_of = (
            self._waiting,
            self.unwritten,
            self._listeners,
            self._listeners_of,
        )
        while waiting and waiting[0].position.end <= durable:
            batch = waiting[0]
            parts = batch.parts
            while parts:
                queue, entries, end = parts[0]
                size = len(entries)
                count = size // ENTRY_BYTES
                if queue.max_offset + count <= queue.room and len(queue.unwritten) + size < PAGE_BYTES:
                    if not queue.unwritten:
                        unwritten[queue] = None
                    queue.append_later(entries, end)
                    self._waiting_bytes += size
                else:
                    self._append(queue, entries)
                parts.popleft()
                self._begun += count
                if listeners or queue.topic in listeners_of:
                    new = Dispatched(queue.topic, queue.queue_id, queue.max_offset, entries)
                    for listener in listeners:
                        listener(new)
                    for listener in listeners_of.get(queue.topic, ()):
                        listener(new)
            self.position = batch.position
            self.entries += self._begun
            self._begun = 0
            if self._index is not None:
                self._index.take(batch.keys, batch.position.last_stored_ms, batch.position.end)
            waiting.popleft()
            while unwritten and self._waiting_bytes > WAITING_BYTES_MAX:
                self.write_oldest(_QUEUES_A_WRITE)

    def _append(self, queue: ConsumeQueue, entries: bytes) -> None:
        """Write entries of a queue, with those that wait. Raises OSError, and nothing has changed."""
        self.touched.setdefault(queue, queue.first_unwritten)
        waited = len(queue.unwritten)
        queue.append(entries)
        self._written(queue, waited)

    def write_oldest(self, count: int) -> None:
        """As `write`, of the queues that have waited longest."""
        self.write(list(islice(self.unwritten, count)))

    def write(self, queues: Iterable[ConsumeQueue]) -> None:
        """Write what waits of these queues. Raises OSError; what is left goes on waiting."""
        for queue in queues:
            if queue in self.unwritten:
                self.touched.setdefault(queue, queue.first_unwritten)
                waited = len(queue.unwritten)
                queue.write()
                self._written(queue, waited)

    def write_all(self) -> None:
        """As `write`, of every queue: what is visible is in its file then."""
        self.write(list(self.unwritten))

    def _written(self, queue: ConsumeQueue, waited: int) -> None:
        self._waiting_bytes -= waited
        self.unwritten.pop(queue, None)

    def forget_topic(self, queues: list[ConsumeQueue]) -> None:
        """These queues are gone: what still waits for them is not written."""
        gone = set(queues)
        for queue in queues:
            self.touched.pop(queue, None)
            self._written(queue, len(queue.unwritten))  # never: it has no file any more
            self.entries -= queue.max_offset
        for batch in self._waiting:
            kept = [part for part in batch.parts if part[0] not in gone]
            batch.parts.clear()
            batch.parts.extend(kept)


def entry_tag(topic: str, properties: bytes, stored_ms: int, delay_levels_ms: tuple[int, ...]) -> int:
    """What a consume queue entry says beside the place: the tag's hash, or when a delayed message is due."""
    if topic == SCHEDULE_TOPIC and (level := _delay_level(properties)) > 0:
        delays = delay_levels_ms
        return stored_ms + (delays[min(level, len(delays)) - 1] if delays else SECOND_MS)
    # As `properties.find`, with the name known: half the time, on every send.
    at = properties.rfind(b"\x02TAGS\x01")
    if at >= 0:
        start = at + 6
    elif properties.startswith(b"TAGS\x01"):
        start = 5
    else:
        return 0
    stop = properties.find(b"\x02", start)
    tag = (properties[start:stop] if stop > start else None) or props.find(properties, b"TAGS")
    return 0 if tag is None else _code_of(tag)


@lru_cache(maxsize=4096)
def _code_of(tag: bytes) -> int:
    return tag_code(tag.decode("utf-8", "replace"))


def _delay_level(properties: bytes) -> int:
    value = props.find(properties, b"DELAY") or b""
    return int(value) if value.isdigit() else 0
