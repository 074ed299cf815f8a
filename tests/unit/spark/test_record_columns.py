"""The vectorised decoder against the plain one, `record.Record`, which is its oracle."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kourou.errors import DecompressionLimit, ProtocolError
from kourou.message import ReceivedMessage
from kourou.protocol import properties, record
from kourou.protocol.compression import Compression, compress
from kourou.spark import columns
from kourou.spark.columns import Choice, Piece, Records, batches, decode, walk

V4 = record.pack_host("10.1.2.3", 10911)
V6 = record.pack_host("2001:db8::1", 10911)

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=8)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from([None, None, *Compression]))
    body = draw(st.binary(max_size=60))
    table = draw(
        st.dictionaries(st.one_of(st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS"]), texts), texts, max_size=6)
    )
    return record.encode(
        topic=draw(st.sampled_from([b"t", b"orders", b"%RETRY%group", b"x" * 127, b"y" * 200])),
        queue_id=draw(st.integers(0, 2**31 - 1)),
        flag=draw(st.integers(-(2**31), 2**31 - 1)),
        queue_offset=draw(st.integers(0, 2**62)),
        physical_offset=draw(st.integers(0, 2**62)),
        sys_flag=kind.sys_flag if kind else 0,
        born_ms=draw(st.integers(0, 2**41)),
        born_host=draw(st.sampled_from([V4, V6])),
        store_ms=draw(st.integers(0, 2**41)),
        store_host=draw(st.sampled_from([V4, V6])),
        reconsume_times=draw(st.integers(0, 2**31 - 1)),
        prepared_offset=0,
        body=compress(body, kind) if kind else body,
        properties=properties.encode(table),
        append_crc=draw(st.booleans()),
    )


def row_of(message: ReceivedMessage, data: bytes) -> dict[str, Any]:
    """What a row must be, by the plain decoder."""
    plain = record.decode(data)
    table = {name: value for name, value in message.properties.items() if name != "__CRC32#"}

    def host(address: tuple[str, int]) -> str:
        return f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"

    return {
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.message_id,
        "keys": message.keys,
        "tags": message.tags,
        "properties": table,
        "body": message.body,
        "bornTimestamp": message.born_at_ms * 1000,
        "storeTimestamp": message.stored_at_ms * 1000,
        "bornHost": host(message.born_host),
        "storeHost": host(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bodyCrc": plain.body_crc,
        "commitLogOffset": message.physical_offset,
    }


def rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """With times as plain numbers: some of them have no date in Python."""
    plain = {
        name: batch.column(name).cast(pa.int64())
        if batch.schema.field(name).type == columns.TIMESTAMP
        else batch.column(name)
        for name in batch.schema.names
    }
    listed = pa.table(plain).to_pylist()
    for row in listed:
        if isinstance(row.get("properties"), list):
            row["properties"] = dict(row["properties"])
    return listed


@given(st.lists(records(), max_size=8))
@settings(max_examples=80, deadline=None)
def test_every_column_is_what_the_plain_decoder_says(many: list[bytes]) -> None:
    batch = decode(b"".join(many), Choice(), "broker-a")
    assert batch.schema.equals(columns.SCHEMA)
    expected = [row_of(record.to_received(record.decode(each), "broker-a"), each) for each in many]
    assert rows(batch) == expected


@given(st.lists(records(), min_size=1, max_size=12), st.integers(1, 4000), st.data())
@settings(max_examples=40, deadline=None)
def test_batches_do_not_depend_on_how_records_arrive(
    many: list[bytes], batch_bytes: int, data: st.DataObject
) -> None:
    pieces = []
    left = list(many)
    while left:
        count = data.draw(st.integers(1, len(left)))
        pieces.append(Piece(b"".join(left[:count]), "b"))
        left = left[count:]
    found = [row for batch in batches(pieces, batch_bytes=batch_bytes) for row in rows(batch)]
    assert found == rows(decode(b"".join(many), Choice(), "b"))


@given(records(), st.data())
@settings(max_examples=120, deadline=None)
def test_a_damaged_record_is_an_error_of_ours_or_what_the_plain_decoder_reads(
    original: bytes, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(original) - 1))
    damaged = bytearray(original)
    damaged[place] ^= data.draw(st.integers(1, 255))
    try:
        expected = record.decode_all(bytes(damaged))
    except ProtocolError:
        with pytest.raises(ProtocolError):
            decode(bytes(damaged), Choice(pa.schema([("queueId", pa.int32())])))
    else:
        batch = decode(
            bytes(damaged), Choice(pa.schema([("queueId", pa.int32()), ("queueOffset", pa.int64())]))
        )
        assert [row["queueOffset"] for row in rows(batch)] == [each.queue_offset for each in expected]


def made(**values: Any) -> bytes:
    usual = {
        **{"topic": b"t", "queue_id": 1, "flag": 0, "queue_offset": 7, "physical_offset": 0, "sys_flag": 0},
        **{"born_ms": 1, "born_host": V4, "store_ms": 2, "store_host": V4, "reconsume_times": 0},
        **{"prepared_offset": 0, "body": b"x" * 50, "properties": b""},
    }
    return record.encode(**{**usual, **values})


def test_columns_that_are_not_asked_for_are_not_made() -> None:
    damaged = made(sys_flag=Compression.ZLIB.sys_flag, body=b"not zlib at all")
    batch = decode(damaged, Choice(pa.schema([("topic", pa.string()), ("queueOffset", pa.int64())])))
    assert batch.to_pylist() == [{"topic": "t", "queueOffset": 7}]
    with pytest.raises(ProtocolError):
        decode(damaged, Choice(pa.schema([("body", pa.binary())])))


def test_a_body_that_inflates_beyond_its_bound_is_refused() -> None:
    bomb = made(sys_flag=Compression.ZLIB.sys_flag, body=zlib.compress(bytes(200_000)))
    assert len(decode(bomb).column("body")[0].as_py()) == 200_000
    with pytest.raises(DecompressionLimit):
        decode(bomb, Choice(inflated_bytes_max=100_000))


def test_a_body_is_held_against_its_crc_when_that_is_wanted() -> None:
    damaged = bytearray(made())
    damaged[90] ^= 1
    assert len(decode(bytes(damaged))) == 1
    with pytest.raises(ProtocolError, match="offset 7 in queue 1"):
        decode(bytes(damaged), Choice(verify=True))
    decode(made(), Choice(verify=True))


def test_tags_are_compared_themselves() -> None:
    # "Aa" and "BB" have one hash in Java: a broker cannot tell them apart.
    data = b"".join(
        made(queue_offset=number, properties=b"TAGS\x01%b\x02" % tag)
        for number, tag in enumerate([b"Aa", b"BB"])
    )
    batch = decode(data, Choice(tags=frozenset({"BB"})))
    assert batch.column("queueOffset").to_pylist() == [1]


def test_topics_are_shown_without_the_namespace() -> None:
    batch = decode(made(topic=b"shop%orders"), Choice(namespace="shop"))
    assert batch.column("topic").to_pylist() == ["orders"]


def test_raw_properties_are_the_text_without_the_crc_of_the_log() -> None:
    schema = pa.schema([("properties", pa.string())])
    for append_crc in (False, True):
        data = made(properties=b"a\x01b\x02", append_crc=append_crc)
        assert decode(data, Choice(schema)).column("properties").to_pylist() == ["a\x01b\x02"]


def test_what_is_not_utf_8_does_not_stop_a_query() -> None:
    batch = decode(made(properties=b"KEYS\x01\xff\x02"))
    assert batch.column("keys").to_pylist() == ["�"]


def test_pieces_of_two_brokers_are_not_mixed() -> None:
    pieces = [Piece(made(), "a"), Piece(made(), "b"), Piece(b"", "b"), Piece(made(), "b")]
    assert [batch.column("brokerName").to_pylist() for batch in batches(pieces)] == [["a"], ["b", "b"]]


def test_a_large_piece_becomes_several_batches() -> None:
    data = b"".join(made(queue_offset=number) for number in range(100))
    found = list(batches([Piece(data)], batch_bytes=len(data) // 10))
    assert len(found) >= 9
    assert [offset for batch in found for offset in batch.column("queueOffset").to_pylist()] == list(
        range(100)
    )


def test_no_records_are_no_batch() -> None:
    assert list(batches([])) == []
    assert list(batches([Piece(b"")])) == []
    assert decode(b"").num_rows == 0


@pytest.mark.parametrize("data", [b"\0", made()[:-1], made() + b"\0" * 20, b"\xff" * 200])
def test_what_is_no_row_of_whole_records_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        walk(data)


def test_records_can_be_read_from_a_view() -> None:
    data = memoryview(b"head" + made())[4:]
    assert Records(data).starts.tolist() == [0]
    assert decode(data).column("queueOffset").to_pylist() == [7]
    assert isinstance(walk(data), np.ndarray)
