"""Records as they lie in a pull reply or a log file, turned into Arrow columns without a loop over messages.

    buffer    | record | record | record | ...          whole records, back to back (`protocol/record.py`)
    starts      ^        ^        ^                       one walk over the sizes: the only loop there is
    a number    NumPy picks it at `starts + its place`, whatever the alignment
    a text      Arrow is shown the buffer as  ...|body|...|body|...  and copies every second piece

Where `kourou.native` is there, it walks, finds the parts and copies the texts, in two fifths of the time.

Only what is asked for is looked at: a schema without `body` copies no bodies. Types are those Spark takes as
they are from a Python source: `string`, `binary`, `timestamp[us, UTC]`, `map<string, string>`.

Nothing is believed before it was checked: lengths that do not add up raise ProtocolError, as `record.Record`
does; the vectorised form and that one are held against each other in the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kourou.client.namespaces import without_namespace
from kourou.errors import ProtocolError
from kourou.native import native
from kourou.protocol import record
from kourou.protocol.checksum import crc32
from kourou.protocol.compression import COMPRESSED, INFLATED_BYTES_MAX, decompress
from kourou.spark.property_columns import Properties, texts

Buffer = bytes | bytearray | memoryview
Numbers = Any
"""A NumPy array of numbers, one for each record."""

BATCH_BYTES = 3 * 1024 * 1024
"""Of records in one Arrow batch: 2 to 4 MB is where Spark takes them fastest."""

TIMESTAMP = pa.timestamp("us", tz="UTC")
MAP = pa.map_(pa.string(), pa.string())

TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "brokerName": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "msgId": pa.string(),
    "keys": pa.string(),
    "tags": pa.string(),
    "properties": MAP,
    "body": pa.binary(),
    "bornTimestamp": TIMESTAMP,
    "storeTimestamp": TIMESTAMP,
    "bornHost": pa.string(),
    "storeHost": pa.string(),
    "reconsumeTimes": pa.int32(),
    "sysFlag": pa.int32(),
    "flag": pa.int32(),
    "bodyCrc": pa.int32(),
    "commitLogOffset": pa.int64(),
}
"""Every column there is. `properties` may also be a string: the raw text of `protocol/properties`."""

SCHEMA = pa.schema(list(TYPES.items()))

_MAGIC_V1, _MAGIC_V2 = record.MAGIC_V1, record.MAGIC_V2
_HEAD_BYTES_V4 = 88  # up to and with the length of the body, when both hosts are IPv4
_HOST_V6_MORE = 12
_unpack_size = Struct(">i").unpack_from


class Piece(NamedTuple):
    """Whole records, back to back, and whose they are."""

    data: Buffer
    broker_name: str = ""


def batches(
    pieces: Iterable[Piece],
    schema: pa.Schema = SCHEMA,
    *,
    batch_bytes: int = BATCH_BYTES,
    inflated_bytes_max: int = INFLATED_BYTES_MAX,
    verify: bool = False,
    tags: frozenset[str] = frozenset(),
    namespace: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of all pieces, in their order, as batches of about `batch_bytes` of records each.

    `schema` is any choice of columns out of `TYPES`. Pieces of one broker are put together until they make a
    batch; a piece that is much larger becomes several. Compressed bodies come inflated, none beyond
    `inflated_bytes_max`. With `verify` the CRC of each body is compared.
    With `tags` only messages that have one of these are kept. Raises ProtocolError for damaged records.
    """
    choice = Choice(schema, inflated_bytes_max, verify, tags, namespace)
    waiting: list[Buffer] = []
    waiting_bytes, broker_name = 0, ""

    def gathered() -> Iterator[pa.RecordBatch]:
        data = waiting[0] if len(waiting) == 1 else b"".join(waiting)
        waiting.clear()
        for part in _parts(data, batch_bytes):
            yield decode(part, choice, broker_name)

    for data, name in pieces:
        if waiting and name != broker_name:
            yield from gathered()
            waiting_bytes = 0
        broker_name = name
        if len(data):
            waiting.append(data)
            waiting_bytes += len(data)
        if waiting_bytes >= batch_bytes // 2:  # a reply of that size is decoded where it lies, and not copied
            yield from gathered()
            waiting_bytes = 0
    if waiting:
        yield from gathered()


def _parts(data: Buffer, batch_bytes: int) -> Iterator[Records]:
    """`data` as it is, or cut between records when it is more than twice what a batch shall have."""
    starts = walk(data)
    if len(data) <= 2 * batch_bytes:
        yield Records(data, starts)
        return
    bounds = np.append(starts, len(data))
    first = 0
    while first < len(starts):
        last = int(np.searchsorted(bounds, bounds[first] + batch_bytes))
        last = min(max(last, first + 1), len(starts))
        low, high = int(bounds[first]), int(bounds[last])
        yield Records(memoryview(data)[low:high], starts[first:last] - low)
        first = last


def walk(data: Buffer) -> Numbers:
    """Where each record begins. Raises ProtocolError where a size cannot be one."""
    if native is not None:
        starts, end = native.record_starts(data, len(data))
        if end == len(data):
            return np.frombuffer(starts, dtype=np.int64)
    return _walk_plainly(data)


def _walk_plainly(data: Buffer) -> Numbers:
    at, end, least = 0, len(data), record.RECORD_BYTES_MIN
    last = end - least
    starts: list[int] = []
    append, unpack = starts.append, _unpack_size
    while at <= last:  # a size that leads beyond the end shows itself there
        (size,) = unpack(data, at)
        append(at)
        if size < least:
            raise ProtocolError(f"record of {size} bytes, of which {end - at} are there")
        at += size
    if at > end:
        raise ProtocolError(f"record of {size} bytes, of which {end - at + size} are there")
    if at < end:
        raise ProtocolError(f"{end - at} bytes after the last record")
    return np.array(starts, dtype=np.int64)


class Choice(NamedTuple):
    """What is wanted of records."""

    schema: pa.Schema = SCHEMA
    inflated_bytes_max: int = INFLATED_BYTES_MAX
    verify: bool = False
    tags: frozenset[str] = frozenset()
    namespace: str | None = None


def decode(records: Records | Buffer, choice: Choice = Choice(), broker_name: str = "") -> pa.RecordBatch:  # noqa: B008  # it never changes
    """One batch with all of the records that are wanted."""
    if not isinstance(records, Records):
        records = Records(records)
    records.check()
    if choice.verify:
        records.check_bodies()
    if choice.tags:
        records = records.tagged(choice.tags)
    columns = []
    for field in choice.schema:
        if field.name == "body":
            columns.append(records.bodies(choice.inflated_bytes_max))
        elif field.name == "brokerName":
            columns.append(pa.repeat(pa.scalar(broker_name, pa.string()), len(records)))
        elif field.name == "topic" and choice.namespace is not None:
            columns.append(_shown(records.topics, choice.namespace))
        elif field.name == "properties" and field.type == pa.string():
            columns.append(records.properties.raw())
        else:
            columns.append(_COLUMNS[field.name](records))
    return pa.RecordBatch.from_arrays(columns, schema=choice.schema)


def _shown(topics: pa.StringArray, namespace: str) -> pa.StringArray:
    """Without the namespace, as the program knows them; there are few different ones."""
    coded = topics.dictionary_encode()
    names = [without_namespace(namespace, name) for name in coded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(coded.indices)


class Records:
    """Whole records in one buffer, and where their parts lie. Parts are found when they are asked for."""

    def __init__(self, data: Buffer, starts: Numbers | None = None) -> None:
        self.data = data
        self.starts = walk(data) if starts is None else starts

    def __len__(self) -> int:
        return len(self.starts)

    def numbers(self, places: Numbers, kind: str) -> Numbers:
        """The number of this kind (a NumPy type, big-endian) at each place.

        One array over all bytes, in which each element begins one byte after the last: NumPy then picks
        unaligned numbers with one copy each, and no byte is swapped that nobody wants.
        """
        width = np.dtype(kind).itemsize
        if len(self.data) < width:
            return np.zeros(0, dtype=np.dtype(kind).newbyteorder("="))
        every = np.ndarray(shape=(len(self.data) - width + 1,), dtype=kind, buffer=self.data, strides=(1,))
        picked = every[places]
        native: Numbers = picked.astype(picked.dtype.newbyteorder("="), copy=False)
        return native

    @cached_property
    def sizes(self) -> Numbers:
        return self.numbers(self.starts, ">i4").astype(np.int64)

    @cached_property
    def magics(self) -> Numbers:
        return self.numbers(self.starts + 4, ">i4")

    @cached_property
    def sys_flags(self) -> Numbers:
        return self.numbers(self.starts + 36, ">i4")

    @cached_property
    def born_hosts_at(self) -> Numbers:
        return self.starts + 48

    @cached_property
    def store_times_at(self) -> Numbers:
        is_v6 = (self.sys_flags & record.BORN_HOST_V6) != 0
        return self.born_hosts_at + 8 + _HOST_V6_MORE * is_v6

    @cached_property
    def reconsume_at(self) -> Numbers:
        is_v6 = (self.sys_flags & record.STORE_HOST_V6) != 0
        return self.store_times_at + 16 + _HOST_V6_MORE * is_v6

    @cached_property
    def bodies_at(self) -> Numbers:
        return self.reconsume_at + 16

    @cached_property
    def body_lengths(self) -> Numbers:
        return self.numbers(self._within(self.reconsume_at + 12, 4), ">i4").astype(np.int64)

    @cached_property
    def _topic_lengths_at(self) -> Numbers:
        return self.bodies_at + np.maximum(self.body_lengths, 0)

    @cached_property
    def topics_at(self) -> Numbers:
        return self._topic_lengths_at + 1 + (self.magics == _MAGIC_V2)

    @cached_property
    def topic_lengths(self) -> Numbers:
        lengths = self.numbers(self._within(self._topic_lengths_at, 1), "u1").astype(np.int64)
        is_v2 = self.magics == _MAGIC_V2
        if is_v2.any():
            lengths[is_v2] = self.numbers(self._within(self._topic_lengths_at[is_v2], 2), ">i2")
        return lengths

    @cached_property
    def properties_at(self) -> Numbers:
        return self.topics_at + np.maximum(self.topic_lengths, 0) + 2

    @cached_property
    def property_lengths(self) -> Numbers:
        return self.numbers(self._within(self.properties_at - 2, 2), ">i2").astype(np.int64)

    @cached_property
    def text_lengths(self) -> Numbers:
        """Those of the properties less the CRC of the whole record: it is the log's, not the message's."""
        lengths = self.property_lengths
        tails = self.properties_at + lengths - record.CRC_PROPERTY_BYTES
        may_be = lengths >= record.CRC_PROPERTY_BYTES
        if not may_be.any():
            return lengths
        first = self.numbers(self._within(tails, 8), ">u8")
        has_crc = may_be & (first == int.from_bytes(_CRC_NAME, "big"))
        return lengths - record.CRC_PROPERTY_BYTES * has_crc

    def _within(self, places: Numbers, width: int) -> Numbers:
        """Places that a lying length put beyond the buffer are brought back; `check` then finds the lie."""
        return np.clip(places, 0, len(self.data) - width)

    @cached_property
    def fitting(self) -> Numbers:
        """Which of the records have parts that add up to them."""
        if native is not None and self._are_laid_out():
            return np.ones(len(self), dtype=bool)
        ends = self.starts + self.sizes
        fits: Numbers = (
            ((self.magics == _MAGIC_V1) | (self.magics == _MAGIC_V2))
            & (self.body_lengths >= 0)
            & (self.topic_lengths >= 0)
            & ((self.topic_lengths <= record.TOPIC_BYTES_MAX_V1) | (self.magics == _MAGIC_V2))
            & (self.property_lengths >= 0)
            & (self.properties_at + self.property_lengths == ends)
        )
        return fits

    def _are_laid_out(self) -> bool:
        """All parts found at once, which else are found one by one; not when any record does not fit."""
        table = np.empty((len(_PARTS), len(self)), dtype=np.int64)
        sys_flags = np.empty(len(self), dtype=np.int32)
        starts = np.ascontiguousarray(self.starts)
        if native is None or native.record_parts(self.data, starts, table, sys_flags) < len(self):
            return False
        for name, numbers in (*zip(_PARTS, table, strict=True), ("sys_flags", sys_flags)):
            self.__dict__.setdefault(
                name, numbers
            )  # as cached_property does; who asked before may have changed it
        return True

    def check(self) -> None:
        """Raises ProtocolError unless the parts of each record add up to it."""
        fits = self.fitting
        if not fits.all():
            at = int(self.starts[int(np.argmin(fits))])
            record.Record(self.data, at)  # says in words what is wrong with it
            raise ProtocolError(f"the parts of the record at byte {at} do not make it up")

    def check_bodies(self) -> None:
        """Raises ProtocolError for a body that is not what its CRC says."""
        crcs = self.sums(self.bodies_at, self.bodies_at + self.body_lengths)
        bad = np.flatnonzero(crcs != self.numbers(self.starts + 8, ">i4"))
        if len(bad):
            first = self.starts[bad[:1]]
            queue_id, offset = self.numbers(first + 12, ">i4")[0], self.numbers(first + 20, ">i8")[0]
            raise ProtocolError(f"the body of offset {offset} in queue {queue_id} is not what its CRC says")

    def sums(self, froms: Numbers, tos: Numbers) -> Numbers:
        """The CRC of the bytes between these places, its top bit cleared as in records."""
        if native is not None:
            found = np.empty(len(froms), dtype=np.int64)
            native.piece_sums(self.data, froms, tos, found)
            return found
        view = memoryview(self.data)
        pairs = zip(froms.tolist(), tos.tolist(), strict=True)
        return np.array([crc32(view[start:stop]) & 0x7FFF_FFFF for start, stop in pairs], dtype=np.int64)

    def tagged(self, tags: frozenset[str]) -> Records:
        """Those with one of the tags."""
        found = pc.is_in(self.properties.values("TAGS"), value_set=pa.array(sorted(tags), pa.string()))
        return Records(self.data, self.starts[np.asarray(found)])

    def pieces(self, places: Numbers, lengths: Numbers) -> pa.BinaryArray:
        """The bytes at each place, copied side by side."""
        count = len(places)
        if native is not None and (total := int(lengths.sum())) <= _COLUMN_BYTES_MAX:
            ends, picked = np.empty(count + 1, dtype=np.int32), pa.allocate_buffer(total)
            native.pick_pieces(self.data, places, lengths, ends, picked)
            return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), picked])
        bounds = np.empty(2 * count, dtype=np.int32)
        bounds[0::2] = places
        bounds[1::2] = places + lengths
        alternating = pa.Array.from_buffers(
            pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(self.data)]
        )
        return alternating.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))

    def bodies(self, inflated_bytes_max: int) -> pa.BinaryArray:
        """As their producers gave them."""
        compressed = np.flatnonzero(self.sys_flags & COMPRESSED)
        if not len(self):
            return pa.array([], pa.binary())
        if not len(compressed):
            return self.pieces(self.bodies_at, self.body_lengths)
        stored = self.pieces(self.bodies_at, self.body_lengths).to_pylist()
        for row in compressed.tolist():
            stored[row] = decompress(int(self.sys_flags[row]), stored[row], inflated_bytes_max)
        return pa.array(stored, pa.binary())

    @cached_property
    def properties(self) -> Properties:
        return Properties(
            self.pieces(self.properties_at, self.text_lengths) if len(self) else pa.array([], pa.binary())
        )

    @cached_property
    def topics(self) -> pa.StringArray:
        return (
            texts(self.pieces(self.topics_at, self.topic_lengths)) if len(self) else pa.array([], pa.string())
        )

    def times(self, places: Numbers) -> pa.Array:
        """Milliseconds as Spark's microseconds."""
        return plain_array(self.numbers(places, ">i8") * 1000, TIMESTAMP)

    def hosts(self, places: Numbers, is_v6: Numbers) -> pa.Array:
        """`address:port`. There are few different ones, so each is written out once."""
        if is_v6.any():
            widths = np.where(is_v6, 20, 8).tolist()
            packed = [
                bytes(self.data[at : at + width]) for at, width in zip(places.tolist(), widths, strict=True)
            ]
            return pa.array([_host(each) for each in packed], pa.string())
        packed = self.numbers(places, ">u8")
        if len(packed) and (packed == packed[0]).all():
            return pa.repeat(pa.scalar(_host(int(packed[0]).to_bytes(8, "big"))), len(packed))
        kinds, rows = np.unique(packed, return_inverse=True)
        written = pa.array([_host(int(kind).to_bytes(8, "big")) for kind in kinds], pa.string())
        return written.take(plain_array(rows, pa.int64()))

    def message_ids(self) -> pa.Array:
        """The producer's own; where it gave none, the offset id, as in Java and in `ReceivedMessage`."""
        unique = self.properties.values("UNIQ_KEY")
        if unique.null_count:
            found = unique.to_pylist()
            starts = self.starts.tolist()
            found = [
                record.Record(self.data, starts[row]).offset_id() if each is None else each
                for row, each in enumerate(found)
            ]
            return pa.array(found, pa.string())
        return unique


_CRC_NAME = b"__CRC32#"
_COLUMN_BYTES_MAX = 2**31 - 1
_PARTS = (
    "sizes",
    "bodies_at",
    "body_lengths",
    "topics_at",
    "topic_lengths",
    "properties_at",
    "property_lengths",
    "text_lengths",
)
"""Rows of the table that `native/columns.c` fills."""


def plain_array(numbers: Numbers, kind: pa.DataType) -> pa.Array:
    """As `pa.array` makes one, which would load all of pandas to see whether it is given something of that:
    0.2 s of every Python worker."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def _host(packed: bytes) -> str:
    address, port = record.unpack_host(packed)
    return f"[{address}]:{port}" if len(packed) == 20 else f"{address}:{port}"


def _number(place: int, kind: str) -> Callable[[Records], pa.Array]:
    arrow = pa.int64() if kind == ">i8" else pa.int32()
    return lambda records: plain_array(records.numbers(records.starts + place, kind), arrow)


_COLUMNS: dict[str, Callable[[Records], pa.Array]] = {
    "topic": lambda records: records.topics,
    "queueId": _number(12, ">i4"),
    "queueOffset": _number(20, ">i8"),
    "msgId": lambda records: records.message_ids(),
    "keys": lambda records: records.properties.values("KEYS"),
    "tags": lambda records: records.properties.values("TAGS"),
    "properties": lambda records: records.properties.maps(),
    "bornTimestamp": lambda records: records.times(records.starts + 40),
    "storeTimestamp": lambda records: records.times(records.store_times_at),
    "bornHost": lambda records: records.hosts(
        records.born_hosts_at, (records.sys_flags & record.BORN_HOST_V6) != 0
    ),
    "storeHost": lambda records: records.hosts(
        records.store_times_at + 8, (records.sys_flags & record.STORE_HOST_V6) != 0
    ),
    "reconsumeTimes": lambda records: plain_array(records.numbers(records.reconsume_at, ">i4"), pa.int32()),
    "sysFlag": lambda records: plain_array(records.sys_flags, pa.int32()),
    "flag": _number(16, ">i4"),
    "bodyCrc": _number(8, ">i4"),
    "commitLogOffset": _number(28, ">i8"),
}
