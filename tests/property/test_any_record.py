"""Records, batches, properties and ids: what is written is read, and garbage is refused politely."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ProtocolError
from kourou.protocol import properties, record
from kourou.protocol.compression import Compression, compress, decompress
from kourou.protocol.java_hash import java_hash
from kourou.protocol.message_id import UniqueIds, offset_id, parse_offset_id, parse_unique_id
from kourou.protocol.record import Verdict, check, decode, decode_all, encode

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
hosts = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))
words = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=20
)
tables = st.dictionaries(words, words, max_size=8)
topics = st.one_of(st.binary(min_size=1, max_size=127), st.binary(min_size=128, max_size=300))
MASKS = 0x30


@st.composite
def records(draw: st.DrawFn) -> tuple[bytes, dict[str, Any]]:
    fields: dict[str, Any] = {
        "topic": draw(topics),
        "queue_id": draw(i32),
        "flag": draw(i32),
        "queue_offset": draw(i64),
        "physical_offset": draw(i64),
        "sys_flag": draw(i32),
        "born_ms": draw(i64),
        "born_host": draw(hosts),
        "store_ms": draw(i64),
        "store_host": draw(hosts),
        "reconsume_times": draw(i32),
        "prepared_offset": draw(i64),
        "body": draw(st.binary(max_size=200)),
        "properties": properties.encode(draw(tables)),
    }
    return encode(**fields, append_crc=draw(st.booleans())), fields


@given(records(), st.binary(max_size=20), st.binary(max_size=20))
def test_a_record_is_read_as_it_was_written(
    written: tuple[bytes, dict[str, Any]], before: bytes, after: bytes
) -> None:
    data, fields = written
    found = decode(memoryview(before + data + after), len(before))
    for name, value in fields.items():
        if name == "sys_flag":
            assert found.sys_flag & ~MASKS == fields["sys_flag"] & ~MASKS
        elif name == "properties":
            assert isinstance(value, bytes)
            table = found.property_table()
            table.pop("__CRC32#", None)
            assert table == properties.parse(value)
        else:
            assert getattr(found, name) == value, name
    checked = check(before + data + after, len(before), len(before) + len(data), True, found.physical_offset)
    assert (checked.verdict, checked.size) == (Verdict.OK, len(data))


@given(st.lists(records(), max_size=5))
def test_records_in_a_row_are_read_in_a_row(written: list[tuple[bytes, dict[str, Any]]]) -> None:
    found = decode_all(b"".join(data for data, _ in written))
    assert [each.data for each in found] == [data for data, _ in written]


@given(records(), st.data())
def test_a_damaged_record_is_a_record_or_a_protocol_error(
    written: tuple[bytes, dict[str, Any]], data: st.DataObject
) -> None:
    damaged = bytearray(written[0])
    for place, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(damaged) - 1), st.integers(0, 255)), min_size=1, max_size=4)
    ):
        damaged[place] = value
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    with suppress(ProtocolError):
        for each in decode_all(damaged):
            each.topic_name(), each.property_table(), each.plain_body(), each.born_at(), each.offset_id()
    check(damaged, 0, len(damaged))


@given(st.binary(max_size=300))
def test_garbage_is_no_record(garbage: bytes) -> None:
    for read in (decode, decode_all, record.decode_batch, properties.parse):
        with suppress(ProtocolError):
            read(garbage)
    assert check(garbage, 0, len(garbage)).verdict is not Verdict.OK


@given(st.lists(st.tuples(i32, st.binary(max_size=50), st.binary(max_size=50)), max_size=10))
def test_a_batch_is_read_as_it_was_written(items: list[tuple[int, bytes, bytes]]) -> None:
    assert record.decode_batch(record.encode_batch(items)) == items


@given(
    st.lists(st.tuples(i32, st.binary(max_size=9), st.binary(max_size=9)), min_size=1, max_size=4), st.data()
)
def test_a_damaged_batch_is_a_batch_or_a_protocol_error(
    items: list[tuple[int, bytes, bytes]], data: st.DataObject
) -> None:
    damaged = bytearray(record.encode_batch(items))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ProtocolError):
        read = record.decode_batch(bytes(damaged))
        assert sum(22 + len(item.body) + len(item.properties) for item in read) == len(damaged)


@given(tables)
def test_properties_are_read_as_they_were_written(table: dict[str, str]) -> None:
    encoded = properties.encode(table)
    assert properties.parse(encoded) == table
    assert properties.parse(encoded[:-1]) == table


@given(
    st.binary(max_size=60).map(lambda data: data.translate(None, b"\x80")), st.binary(min_size=1, max_size=3)
)
def test_finding_one_property_agrees_with_reading_all(encoded: bytes, name: bytes) -> None:
    """Any bytes at all, as long as they are text: `parse` is the oracle."""
    with suppress(ProtocolError, UnicodeDecodeError):
        table = properties.parse(encoded)
        if name.isalnum():
            found = properties.find(encoded, name)
            assert (found.decode() if found else None) == table.get(name.decode())


@given(st.lists(st.sampled_from(["a", "b", "ab", "\x01", "\x02", "c"]), max_size=30).map("".join))
def test_editing_properties_agrees_with_editing_a_dict(text: str) -> None:
    encoded = text.encode()
    table = properties.parse(encoded)
    for name in ("a", "b", "ab"):
        found = properties.find(encoded, name.encode())
        assert (found.decode() if found else None) == table.get(name)
        kept = {key: value for key, value in table.items() if key != name}
        assert properties.parse(properties.without(encoded, name.encode())) == kept
        assert properties.parse(properties.with_added(encoded, name.encode(), b"new")) == {
            **kept,
            name: "new",
        }


@given(hosts, i64)
def test_an_offset_id_is_read_as_it_was_written(host: bytes, physical_offset: int) -> None:
    assert parse_offset_id(offset_id(host, physical_offset)) == (host, physical_offset)


@given(
    st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)),
    st.integers(0, 2**32),
    st.integers(0, 2**32 - 1),
    st.integers(0, 4_000_000_000_000),
    st.integers(-14 * 3_600_000, 14 * 3_600_000),
)
def test_a_unique_id_tells_when_it_was_made(
    address: bytes, process_id: int, instance: int, now_ms: int, utc_offset_ms: int
) -> None:
    made = parse_unique_id(UniqueIds(address, process_id, instance, utc_offset_ms).next(now_ms))
    assert made[:3] == (address, process_id & 0xFFFF, instance)
    assert made.made_at_ms(now_ms + 1, utc_offset_ms) == now_ms


@given(st.text(max_size=60))
def test_any_text_is_an_id_or_a_protocol_error(text: str) -> None:
    for parse in (parse_offset_id, parse_unique_id):
        with suppress(ProtocolError):
            parse(text)


@given(st.text(max_size=200))
def test_a_hash_has_32_bits_and_follows_javas_rule(text: str) -> None:
    expected = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        expected = (31 * expected + units[at] * 256 + units[at + 1]) % 2**32
    assert java_hash(text) % 2**32 == expected
    assert -(2**31) <= java_hash(text) < 2**31


@given(st.sampled_from(list(Compression)), st.binary(max_size=500), st.data())
def test_a_damaged_body_is_a_body_or_a_protocol_error(
    kind: Compression, plain: bytes, data: st.DataObject
) -> None:
    packed = bytearray(compress(plain, kind))
    assert decompress(kind.sys_flag, bytes(packed)) == plain
    packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ProtocolError):
        decompress(kind.sys_flag, bytes(packed), limit_bytes=1 << 20)


@given(st.integers(0, 0x7FF), st.binary(max_size=100))
def test_garbage_inflates_to_something_or_a_protocol_error(sys_flag: int, garbage: bytes) -> None:
    for start in (b"", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"\x78\x9c"):
        with suppress(ProtocolError):
            decompress(sys_flag, start + garbage, limit_bytes=1 << 20)
