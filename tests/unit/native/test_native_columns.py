"""`native/columns.c` against its twins: the NumPy and Python of the same modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kourou.errors import MQError
from kourou.native import native
from kourou.protocol import record
from kourou.protocol.checksum import crc32
from kourou.protocol.compression import Compression, compress
from kourou.spark import columns, property_columns, sending, store_scan
from kourou.spark.columns import Choice, Records, decode, walk
from kourou.spark.outgoing import Outgoing
from kourou.spark.property_columns import Properties

pytestmark = pytest.mark.skipif(
    native is None, reason="kourou.native is not compiled here: NOTHING of native/columns.c is tested"
)

V4 = record.pack_host("10.1.2.3", 10911)
OTHER_V4 = record.pack_host("10.1.2.4", 10911)
V6 = record.pack_host("2001:db8::1", 10911)
RAW = pa.schema([("properties", pa.string()), ("body", pa.binary())])

# Few characters, so that empty entries, missing ends and repeated names come often; some are no UTF-8.
encoded_properties = st.lists(
    st.sampled_from(
        [
            b"\x01",
            b"\x02",
            b"a",
            b"b",
            b"TAGS\x01",
            b"KEYS\x01",
            b"UNIQ_KEY\x01",
            "é".encode(),
            b"\xff",
            b"\xfe",
        ]
    ),
    max_size=16,
).map(b"".join)
usual_properties = st.builds(
    lambda key, tag: b"UNIQ_KEY\x01%032d\x02TAGS\x01%b\x02WAIT\x01true\x02" % (key, tag),
    st.integers(0, 10**20),
    st.sampled_from([b"new", b"old", b"x" * 40]),
)


@contextmanager
def plainly() -> Iterator[None]:
    """As if there were no `kourou.native`."""
    with (
        patch.object(columns, "native", None),
        patch.object(property_columns, "native", None),
        patch.object(store_scan, "native", None),
        patch.object(sending, "native", None),
    ):
        yield


@st.composite
def records(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from([None, None, None, *Compression]))
    body = draw(st.binary(max_size=60))
    return record.encode(
        topic=draw(st.sampled_from([b"t", b"orders", b"", b"x" * 127, b"y" * 128, b"z" * 300, b"\xff"])),
        queue_id=draw(st.integers(-(2**31), 2**31 - 1)),
        flag=draw(st.integers(-(2**31), 2**31 - 1)),
        queue_offset=draw(st.integers(0, 2**62)),
        physical_offset=draw(st.integers(0, 2**62)),
        sys_flag=kind.sys_flag if kind else 0,
        born_ms=draw(st.integers(0, 2**41)),
        born_host=draw(st.sampled_from([V4, V4, OTHER_V4, V6])),
        store_ms=draw(st.integers(0, 2**41)),
        store_host=draw(st.sampled_from([V4, V4, V4, V6])),
        reconsume_times=draw(st.integers(0, 2**31 - 1)),
        prepared_offset=0,
        body=compress(body, kind) if kind else body,
        properties=draw(st.one_of(usual_properties, encoded_properties)),
        append_crc=draw(st.booleans()),
    )


def outcome(data: bytes, choice: Choice) -> Any:
    """The batch, or the error it is."""
    try:
        batch = decode(data, choice, "b")
    except MQError as error:
        return type(error), str(error)
    batch.validate(full=True)
    return batch


@given(
    st.lists(records(), max_size=8),
    st.sampled_from([columns.SCHEMA, RAW]),
    st.booleans(),
    st.sampled_from([frozenset[str](), frozenset({"new"})]),
)
@settings(max_examples=50, deadline=None)
def test_every_column_is_what_the_twins_make(
    many: list[bytes], schema: pa.Schema, verify: bool, tags: frozenset[str]
) -> None:
    data, choice = b"".join(many), Choice(schema, verify=verify, tags=tags)
    found = outcome(data, choice)
    with plainly():
        assert found == outcome(data, choice)
    assert isinstance(found, pa.RecordBatch)


@given(st.lists(records(), min_size=1, max_size=3), st.data())
@settings(max_examples=80, deadline=None)
def test_damage_is_what_the_twins_say(many: list[bytes], data: st.DataObject) -> None:
    damaged = bytearray(b"".join(many))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    choice = Choice(columns.SCHEMA, verify=True)
    found = outcome(bytes(damaged), choice)
    with plainly():
        assert found == outcome(bytes(damaged), choice)


@given(st.lists(encoded_properties, max_size=6), st.integers(0, 3))
@example([b"a\x01b\x02", b"", b"\x02a\x01b", b"a\x01b\x02a\x01c\x02"], 0)
@example([b"\xff\x01b\x02\xfe\x01c\x02"], 0)  # two names that are shown as one
@example([b"n\x01" + b"v" * 100 + b"\x02" + b"m" * 100 + b"\x01w"], 0)
@example([b"".join(b"n%d\x01v\x02" % number for number in range(100))], 0)
@settings(max_examples=80, deadline=None)
def test_properties_are_what_the_twin_makes_of_them(many: list[bytes], skipped: int) -> None:
    packed = pa.array(many, pa.binary()).slice(skipped)
    names = ("a", "TAGS", "KEYS", "never", "é", "\ufffd")
    found = Properties(packed)
    made = [found.maps(), *(found.values(name) for name in names), found.raw()]
    with plainly():
        twin = Properties(packed)
        assert made == [twin.maps(), *(twin.values(name) for name in names), twin.raw()]
    for each in made:
        each.validate(full=True)


@given(st.lists(st.one_of(records(), st.binary(max_size=120)), max_size=4), st.integers(-5, 2000))
@settings(max_examples=50, deadline=None)
def test_walks_end_where_those_of_the_twins_do(parts: list[bytes], end: int) -> None:
    data = b"".join(parts)
    starts, last = store_scan._walk(data, end)
    expected, expected_last = store_scan._walk_plainly(data, end)
    assert (starts.tolist(), last) == (expected.tolist(), expected_last)
    assert walked(walk, data) == walked(columns._walk_plainly, data)


def walked(walk: Callable[[bytes], Any], data: bytes) -> list[int] | str:
    """Where records begin, or what is wrong with them."""
    try:
        return [int(start) for start in walk(data)]
    except MQError as error:
        return str(error)


@given(st.lists(records(), min_size=1, max_size=6), st.data())
@settings(max_examples=50, deadline=None)
def test_a_scan_finds_the_same_records_bad(many: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(b"".join(many))
    bodies = Records(bytes(whole)).bodies_at.tolist()
    whole[data.draw(st.sampled_from(bodies))] ^= data.draw(st.integers(0, 1))
    damaged = Records(bytes(whole))
    if damaged.fitting.all():
        found = store_scan._bad(damaged)
        with plainly():
            assert found == store_scan._bad(Records(bytes(whole)))


def test_flags_that_were_changed_stay_so() -> None:
    """A scan shows a bad body as it lies there, whatever its flags say of compression."""
    whole = record.encode(
        *(b"t", 0, 0, 7, 0, Compression.ZLIB.sys_flag, 1, V4, 2, V4, 0, 0, b"no zlib", b""), append_crc=True
    )
    choice = Choice(pa.schema([("body", pa.binary()), ("sysFlag", pa.int32())]))
    for way in (nullcontext, plainly):
        with way():
            one = Records(whole)
            one.sys_flags[0] = 0
            assert decode(one, choice).to_pylist() == [{"body": b"no zlib", "sysFlag": 0}]


@given(st.binary(max_size=60), st.lists(st.tuples(st.integers(-4, 70), st.integers(-4, 70)), max_size=5))
@settings(max_examples=80, deadline=None)
def test_pieces_that_are_not_there_are_refused(data: bytes, spans: list[tuple[int, int]]) -> None:
    assert native is not None
    places, lengths = np.array(spans, dtype=np.int64).reshape(-1, 2).T.copy()
    are_there = all(at >= 0 and length >= 0 and at + length <= len(data) for at, length in spans)
    total = sum(length for _, length in spans)
    bounds, picked = np.full(len(spans) + 1, -1, dtype=np.int32), bytearray(max(total, 0))
    if are_there:
        native.pick_pieces(data, places, lengths, bounds, picked)
        assert bytes(picked) == b"".join(data[at : at + length] for at, length in spans)
        assert bounds.tolist() == np.cumsum([0, *lengths]).tolist()
        with pytest.raises(ValueError, match="another length"):
            native.pick_pieces(data, places, lengths, bounds, bytearray(total + 1))
    else:
        with pytest.raises(ValueError, match="within the data"):
            native.pick_pieces(data, places, lengths, bounds, picked)
    sums = np.zeros(len(spans), dtype=np.int64)
    if all(0 <= start <= stop <= len(data) for start, stop in spans):
        native.piece_sums(data, places, lengths, sums)
        assert sums.tolist() == [
            crc32(data[start:stop]) & 0x7FFF_FFFF for start, stop in zip(places, lengths, strict=True)
        ]
    else:
        with pytest.raises(ValueError, match="within the data"):
            native.piece_sums(data, places, lengths, sums)


_NUMBERS = st.lists(st.integers(-3, 40), max_size=7)


@given(st.binary(max_size=30), _NUMBERS, _NUMBERS)
@settings(max_examples=100, deadline=None)
def test_entries_that_are_not_there_are_refused(data: bytes, firsts: list[int], entries: list[int]) -> None:
    """Whatever numbers come: an error of ours, or texts that lie within the data."""
    assert native is not None
    packed, spans = np.array(firsts, dtype=np.int32), np.array(entries, dtype=np.int32)
    calls: list[tuple[Any, tuple[Any, ...]]] = [
        (native.property_entries, (data, packed)),
        (native.property_texts, (data, spans)),
        (native.property_values, (data, packed, spans, b"a")),
    ]
    for call, arguments in calls:
        try:
            found = call(*arguments)
        except ValueError:
            continue
        assert all(part in data for part in found if isinstance(part, bytes) and len(part) == 1)


@given(
    st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=30), st.integers(-(2**31), 2**31 - 1))),
    st.integers(0, 2),
    st.randoms(use_true_random=False),
)
@settings(max_examples=50, deadline=None)
def test_batches_are_joined_as_the_twin_does(
    rows: list[tuple[bytes, bytes, int]], skipped: int, chance: Random
) -> None:
    count = len(rows)
    outgoing = Outgoing(
        bodies=pa.array([row[0] for row in rows], pa.binary()),
        properties=pa.array([row[1] for row in rows], pa.binary()),
        topics=pa.array(["t"] * count, pa.string()),
        flags=np.array([row[2] for row in rows], dtype=np.int32),
        queue_ids=None,
        broker_names=None,
        sharding_keys=None,
        born_ms=np.zeros(count, dtype=np.int64),
        is_delayed=None,
        first_row=0,
    ).slice(skipped, count)
    if not len(outgoing):
        return
    order = np.array(chance.sample(range(len(outgoing)), len(outgoing)))
    for wanted in (None, order):
        data, ends = sending.joined_items(outgoing, wanted)
        with plainly():
            expected, expected_ends = sending.joined_items(outgoing, wanted)
        assert (bytes(data), ends.tolist()) == (bytes(expected), expected_ends.tolist())


@given(
    st.binary(max_size=30), st.lists(st.integers(-2, 40), max_size=5), st.integers(0, 200), st.integers(-1, 5)
)
@settings(max_examples=80, deadline=None)
def test_rows_that_are_not_there_are_not_joined(data: bytes, bounds: list[int], room: int, row: int) -> None:
    assert native is not None
    packed, flags = np.array(bounds, dtype=np.int32), np.zeros(max(len(bounds) - 1, 0), dtype=np.int32)
    rows, ends, joined = np.array([row]), np.zeros(1, dtype=np.int64), bytearray(room)
    try:
        native.join_batch(data, packed, data, packed, flags, rows, ends, joined)
    except ValueError:
        return
    part = data[bounds[row] : bounds[row + 1]]
    assert joined == record.encode_batch([(0, part, part)])
    with pytest.raises(ValueError, match="another length"):
        native.join_batch(data, packed, data, packed, flags, rows, ends, bytearray(room + 1))


def test_bounds_that_are_written_over_while_they_are_read_do_no_harm() -> None:
    assert native is not None
    shared = bytearray(np.array([0, 4, 8], dtype=np.int32).tobytes() + bytes(4))  # bounds, and where ends go
    rows = np.array([0, 1])
    with pytest.raises(ValueError, match="not there"):
        native.join_batch(
            bytes(8),
            memoryview(shared)[:12],
            bytes(8),
            memoryview(shared)[:12],
            bytes(8),
            rows,
            shared,
            bytearray(60),
        )


def test_what_is_no_buffer_or_too_few_is_refused() -> None:
    assert native is not None
    for call in (native.record_parts, native.piece_sums, native.pick_pieces, native.property_entries):
        with pytest.raises(TypeError):
            call(b"")
    for call in (native.property_texts, native.property_entries):
        with pytest.raises(TypeError):
            call(b"", "text")
    with pytest.raises(TypeError):
        native.record_starts(b"", None)
    with pytest.raises(BufferError):
        native.piece_sums(b"", b"", b"", b"")  # nothing can be written into bytes
    with pytest.raises(ValueError, match="so many records"):
        native.record_parts(b"", np.zeros(2, dtype=np.int64), np.zeros(8, dtype=np.int64), bytearray(8))
    wild = np.array([-1, 2**62, 5], dtype=np.int64)
    assert native.record_parts(bytes(200), wild, np.zeros((8, 3), dtype=np.int64), bytearray(12)) == 0
