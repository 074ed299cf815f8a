"""Rows on their way out: Arrow columns become the parts of messages without a loop over rows.

    body, keys, tags, properties, …   ─▶   bodies | encoded properties | topic, queue id, born at, …  by row

The properties of a message are one text (`protocol/properties.py`), joined by Arrow out of the columns:

    UNIQ_KEY␁<id>␂  KEYS␁<keys>␂  TAGS␁<tags>␂  __SHARDINGKEY␁…␂  DELAY␁…␂  and what the map holds

Columns have the source's names, so rows that were read can be written (with queueId, brokerName counts, and
bornTimestamp if it is to be kept). What a column says goes before what
the map says; what only a broker may say, or was about the message's former life, is left out of the map.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kourou.errors import ConfigError
from kourou.protocol.properties import PROPERTIES_BYTES_MAX
from kourou.spark.columns import TYPES
from kourou.spark.property_columns import Properties

Numbers = np.ndarray[Any, np.dtype[Any]]

SINK_COLUMNS = (
    *("body", "topic", "keys", "tags", "properties", "shardingKey"),
    *("queueId", "delayLevel", "deliverAt", "msgId", "flag"),
)
UNIQUE_ID_BYTES = 32
_ID_PREFIX_BYTES = 24
_ROWS_MAX = 1 << 32

LEFT_OUT = (
    *("UNIQ_KEY", "KEYS", "TAGS", "__SHARDINGKEY", "WAIT", "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"),
    *("TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES"),
    *("TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP"),
    *("__transactionId__", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "TRAN_PAIRED"),
    *("CHECK_IMMUNITY_TIME_IN_SECONDS", "MSG_REGION", "TRACE_ON", "CLUSTER", "POP_CK", "1ST_POP_TIME"),
    *("MIN_OFFSET", "MAX_OFFSET", "__CRC32#", "INNER_NUM", "INNER_BASE", "DUP_INFO"),
)
"""Names that a map of properties cannot set: they have columns of their own, or belong to brokers."""

_FROM_MAP_IF_NO_COLUMN = {"KEYS": "keys", "TAGS": "tags", "__SHARDINGKEY": "shardingKey"}


@dataclass(frozen=True)
class Outgoing:
    """The rows of one Arrow batch, ready to be sent. All arrays have one element for each row."""

    bodies: pa.BinaryArray
    properties: pa.BinaryArray
    topics: pa.StringArray
    flags: Numbers
    queue_ids: pa.Int32Array | None
    broker_names: pa.StringArray | None
    sharding_keys: pa.StringArray | None
    born_ms: Numbers
    is_delayed: Numbers | None
    first_row: int

    def __len__(self) -> int:
        return len(self.bodies)

    def take(self, rows: Numbers) -> Outgoing:
        """Some of the rows, in the order given."""
        chosen = pa.array(rows)
        return Outgoing(
            self.bodies.take(chosen),
            self.properties.take(chosen),
            self.topics.take(chosen),
            self.flags[rows],
            None if self.queue_ids is None else self.queue_ids.take(chosen),
            None if self.broker_names is None else self.broker_names.take(chosen),
            None if self.sharding_keys is None else self.sharding_keys.take(chosen),
            self.born_ms[rows],
            None if self.is_delayed is None else self.is_delayed[rows],
            self.first_row,
        )

    def slice(self, start: int, stop: int) -> Outgoing:
        """Rows that follow one another; copies nothing."""
        return Outgoing(
            self.bodies[start:stop],
            self.properties[start:stop],
            self.topics[start:stop],
            self.flags[start:stop],
            None if self.queue_ids is None else self.queue_ids[start:stop],
            None if self.broker_names is None else self.broker_names[start:stop],
            None if self.sharding_keys is None else self.sharding_keys[start:stop],
            self.born_ms[start:stop],
            None if self.is_delayed is None else self.is_delayed[start:stop],
            self.first_row + start,
        )


def check_columns(names: list[str]) -> None:
    """Raises ConfigError unless these columns can be written."""
    if "body" not in names:
        raise ConfigError(
            f"there is no column 'body' to write, only {', '.join(names)}; name it: "
            "df.selectExpr('CAST(value AS BINARY) AS body')"
        )
    known = (*SINK_COLUMNS, *TYPES)
    for name in names:
        if name not in known:
            near = get_close_matches(name, SINK_COLUMNS, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(SINK_COLUMNS)}"
            raise ConfigError(f"column {name!r} cannot be written; {hint} Or drop it: df.drop({name!r})")


class Rows:
    """Makes messages of the rows of one partition, and numbers them."""

    def __init__(self, *, topic: str | None, identity: str, now_ms: int, keep_born: bool = False) -> None:
        """`topic` is where all rows go, if it is given. `identity` is what the unique ids are made from: the
        same one and the same rows give the same ids."""
        self._topic = topic
        self._id_prefix = (
            hashlib.blake2b(identity.encode(), digest_size=_ID_PREFIX_BYTES // 2).hexdigest().upper()
        )
        self._now_ms = now_ms
        self._keep_born = keep_born
        self._next_row = 0

    def take_in(self, batch: pa.RecordBatch) -> Outgoing:
        """Raises ConfigError for a row that cannot be a message, with its number in the partition."""
        first, count = self._next_row, batch.num_rows
        self._next_row += count
        if self._next_row >= _ROWS_MAX:
            raise ConfigError(f"more than {_ROWS_MAX} rows in one partition: use more partitions")
        columns = {name: _plain(batch.column(name)) for name in batch.schema.names}
        bodies = _bodies(columns["body"], first)
        later = _later_part(columns)
        return Outgoing(
            bodies=bodies,
            properties=self._properties(columns, later, first, count),
            topics=self._topics(columns, first, count),
            flags=_whole(columns.get("flag"), count),
            queue_ids=_cast(columns.get("queueId"), pa.int32()),
            broker_names=_cast(columns.get("brokerName"), pa.string()),
            sharding_keys=_cast(columns.get("shardingKey"), pa.string()),
            born_ms=self._born(columns.get("bornTimestamp"), count),
            is_delayed=None if later is None else np.asarray(pc.is_valid(later)),
            first_row=first,
        )

    def _topics(self, columns: dict[str, pa.Array], first: int, count: int) -> pa.StringArray:
        if self._topic is not None:
            return pa.repeat(pa.scalar(self._topic), count)
        topics = columns.get("topic")
        if topics is None:
            raise ConfigError("where to? Give the option topic, or a column topic")
        topics = topics.cast(pa.string())
        if topics.null_count:
            row = first + _first(pc.is_null(topics))
            raise ConfigError(
                f"row {row} has no topic: its column topic is null, and there is no option topic"
            )
        return topics

    def _born(self, column: pa.Array | None, count: int) -> Numbers:
        if column is None or not self._keep_born:
            return np.full(count, self._now_ms, dtype=np.int64)
        millis = pc.cast(pc.cast(column, pa.timestamp("us", tz="UTC")), pa.int64())
        return np.asarray(pc.divide(pc.fill_null(millis, self._now_ms * 1000), 1000))

    def _properties(
        self, columns: dict[str, pa.Array], later: pa.Array | None, first: int, count: int
    ) -> pa.BinaryArray:
        from_map = _from_map(columns)
        parts: list[Any] = [_named("UNIQ_KEY", self._ids(columns, first, count))]
        for name, column in (("KEYS", "keys"), ("TAGS", "tags"), ("__SHARDINGKEY", "shardingKey")):
            if column in columns:
                parts.append(_named(name, _cast(columns[column], pa.string())))
        if later is not None:
            parts.append(later)
        if from_map is not None:
            parts.append(from_map)
        joined = pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement="")
        properties = _as_binary(joined)
        _check_properties(properties, first)
        return properties

    def _ids(self, columns: dict[str, pa.Array], first: int, count: int) -> pa.StringArray:
        made = unique_ids(self._id_prefix, first, count)
        given = _cast(columns.get("msgId"), pa.string())
        if given is None:
            return made
        return pc.if_else(pc.equal(pc.fill_null(given, ""), ""), made, given)


def unique_ids(prefix: str, first: int, count: int) -> pa.StringArray:
    """`prefix` and eight hexadecimal digits: the number of the row."""
    assert len(prefix) == _ID_PREFIX_BYTES
    text = np.empty((count, UNIQUE_ID_BYTES), dtype=np.uint8)
    text[:, :_ID_PREFIX_BYTES] = np.frombuffer(prefix.encode(), dtype=np.uint8)
    rows = np.arange(first, first + count, dtype=">u4").view(np.uint8).reshape(count, 4)
    text[:, _ID_PREFIX_BYTES:] = _HEX[rows].reshape(count, 8)
    offsets = np.arange(count + 1, dtype=np.int32) * UNIQUE_ID_BYTES
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


_HEX = np.array([tuple(b"%02X" % byte) for byte in range(256)], dtype=np.uint8)


# --------------------------------------------------------------------------------------------- single columns


def _plain(column: pa.Array) -> pa.Array:
    """Without Arrow's larger offsets and views: what Spark hands over depends on its settings."""
    kind = column.type
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return column.cast(pa.binary())
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    return column


def _cast(column: pa.Array | None, kind: pa.DataType) -> pa.Array | None:
    return None if column is None else column if column.type == kind else pc.cast(column, kind)


def _whole(column: pa.Array | None, count: int) -> Numbers:
    if column is None:
        return np.zeros(count, dtype=np.int32)
    return np.asarray(pc.fill_null(pc.cast(column, pa.int32()), 0))


def _bodies(column: pa.Array, first: int) -> pa.BinaryArray:
    if pa.types.is_string(column.type):
        column = _as_binary(column)
    if not pa.types.is_binary(column.type):
        raise ConfigError(f"column body is {column.type}: it must be binary or string; CAST(… AS BINARY)")
    if column.null_count:
        raise ConfigError(f"row {first + _first(pc.is_null(column))} has no body: it is null")
    lengths = pc.binary_length(column)
    if len(column) and pc.min(lengths).as_py() == 0:
        row = first + _first(pc.equal(lengths, 0))
        raise ConfigError(f"row {row} has an empty body: RocketMQ takes no message without a body")
    return column


def _as_binary(column: pa.Array) -> pa.BinaryArray:
    """The same bytes; casting would do, and copies the validity only."""
    return column.cast(pa.binary())


def contents(column: pa.BinaryArray) -> Numbers:
    """The bytes of all elements, one after the other; copies nothing."""
    _, bounds, data = column.buffers()
    if data is None or not len(column):
        return np.zeros(0, dtype=np.uint8)
    offsets = np.frombuffer(bounds, dtype=np.int32)
    start, stop = int(offsets[column.offset]), int(offsets[column.offset + len(column)])
    return np.frombuffer(data, dtype=np.uint8)[start:stop]


def _first(mask: pa.BooleanArray) -> int:
    return int(pc.index(mask, True).as_py())


def _named(name: str, values: pa.StringArray) -> pa.StringArray:
    """`name␁value␂`, null where there is no value or an empty one."""
    written = pc.binary_join_element_wise(f"{name}\x01", values, "\x02", "")
    is_empty = pc.equal(pc.binary_length(values), 0)
    if pc.any(is_empty).as_py():
        return pc.if_else(pc.fill_null(is_empty, True), None, written)
    return written


def _later_part(columns: dict[str, pa.Array]) -> pa.StringArray | None:
    """When to deliver: the property that says so, null for at once; None when no row says anything."""
    level, moment = columns.get("delayLevel"), columns.get("deliverAt")
    parts = []
    if level is not None and level.null_count < len(level):
        level = pc.cast(level, pa.int32())
        wanted = pc.if_else(pc.greater(level, 0), level, None)
        parts.append(_named("DELAY", pc.cast(wanted, pa.string())))
    if moment is not None and moment.null_count < len(moment):
        if pa.types.is_timestamp(moment.type):
            moment = pc.divide(
                pc.cast(pc.cast(moment, pa.timestamp("us", tz=moment.type.tz)), pa.int64()), 1000
            )
        parts.append(_named("TIMER_DELIVER_MS", pc.cast(pc.cast(moment, pa.int64()), pa.string())))
    if not parts:
        return None
    later = pc.coalesce(*parts)
    return later if later.null_count < len(later) else None


# -------------------------------------------------------------------------------------------- the properties


def _from_map(columns: dict[str, pa.Array]) -> pa.StringArray | None:
    """What a column of properties contributes; None when there is none."""
    column = columns.get("properties")
    if column is None or column.null_count == len(column):
        return None
    if pa.types.is_string(column.type):  # the raw form
        column = Properties(_as_binary(pc.fill_null(column, ""))).maps()
    if not pa.types.is_map(column.type):
        raise ConfigError(f"column properties is {column.type}: it must be map<string,string>, or raw text")
    bounds = np.asarray(column.offsets).astype(np.int64)
    first, last = int(bounds[0]), int(bounds[-1])
    names = _plain(column.keys).cast(pa.string())[first:last]
    values = _plain(column.items).cast(pa.string())[first:last]
    bounds -= first
    allowed = [name for name, each in _FROM_MAP_IF_NO_COLUMN.items() if each not in columns]
    left_out = pa.array([name for name in LEFT_OUT if name not in allowed], pa.string())
    counts = pc.and_(
        pc.invert(pc.is_in(names, left_out)),
        pc.and_(
            pc.greater(pc.fill_null(pc.binary_length(values), 0), 0), pc.greater(pc.binary_length(names), 0)
        ),
    )
    if column.null_count:  # Arrow may keep entries behind a null
        lengths = np.diff(bounds)
        valid = np.asarray(pc.is_valid(column))
        counts = pc.and_(counts, pa.array(np.repeat(valid, lengths)))
    if not pc.all(counts).as_py():
        keep = np.asarray(counts)
        names, values = names.filter(counts), values.filter(counts)
        bounds = np.concatenate(([0], np.cumsum(keep)))[bounds]
    entries = pc.binary_join_element_wise(names, values, "\x01")
    entries = pc.binary_join_element_wise(entries, "\x02", "")
    return _grouped(entries, bounds)


def _grouped(entries: pa.StringArray, bounds: Numbers) -> pa.StringArray:
    """The entries from bound to bound put together: they lie side by side already, so only bounds change."""
    buffers = entries.buffers()
    if not len(entries):
        return pa.repeat(pa.scalar("", pa.string()), len(bounds) - 1)
    offsets = np.frombuffer(buffers[1], dtype=np.int32)[entries.offset : entries.offset + len(entries) + 1]
    grouped = np.ascontiguousarray(offsets[bounds])
    return pa.Array.from_buffers(pa.string(), len(bounds) - 1, [None, pa.py_buffer(grouped), buffers[2]])


def _check_properties(properties: pa.BinaryArray, first: int) -> None:
    """Raises ConfigError for U+0001 or U+0002 inside a name or a value, and for properties that are too
    long."""
    lengths = pc.binary_length(properties)
    longest = pc.max(lengths).as_py() or 0
    if longest > PROPERTIES_BYTES_MAX - 1024:
        row = first + _first(pc.equal(lengths, longest))
        raise ConfigError(
            f"row {row} has {longest} bytes of properties: at most {PROPERTIES_BYTES_MAX - 1024} fit"
        )
    data = contents(properties)
    separators = np.flatnonzero((data == 1) | (data == 2))
    kinds = data[separators]
    if len(kinds) % 2 == 0 and (kinds[0::2] == 1).all() and (kinds[1::2] == 2).all():
        return
    for row, each in enumerate(properties.to_pylist()):
        entries = each.split(b"\x02")[:-1]
        if any(entry.count(b"\x01") != 1 for entry in entries):
            raise ConfigError(
                f"row {first + row} has U+0001 or U+0002 inside keys, tags, a property's name or its value: "
                "RocketMQ parts properties by these two characters"
            )
