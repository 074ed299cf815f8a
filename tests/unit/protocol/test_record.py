"""Records of the commit log, batch bodies, packed hosts."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.errors import ProtocolError
from kourou.protocol import record
from kourou.protocol.record import (
    Verdict,
    check,
    decode,
    decode_all,
    encode,
    encoded_size,
    pack_host,
    properties_of_each,
    unpack_host,
)

V4 = pack_host("10.0.0.1", 5000)
V6 = pack_host("2001:db8::1", 10911)


def encoded(**changes: Any) -> bytes:
    values: dict[str, Any] = {
        "topic": b"orders",
        "queue_id": 3,
        "flag": 0,
        "queue_offset": 9,
        "physical_offset": 1000,
        "sys_flag": 0,
        "born_ms": 1700000000000,
        "born_host": V4,
        "store_ms": 1700000000001,
        "store_host": V4,
        "reconsume_times": 1,
        "prepared_offset": 2,
        "body": b"hello",
        "properties": b"TAGS\x01TagA\x02",
    }
    return encode(**{**values, **changes})


@pytest.mark.parametrize("append_crc", [False, True])
@pytest.mark.parametrize("topic", [b"T", b"t" * 127, b"t" * 128, b"t" * 300])
@pytest.mark.parametrize("store_host", [V4, V6])
@pytest.mark.parametrize("born_host", [V4, V6])
def test_what_is_written_is_read_whatever_its_shape(
    born_host: bytes, store_host: bytes, topic: bytes, append_crc: bool
) -> None:
    data = encoded(born_host=born_host, store_host=store_host, topic=topic, append_crc=append_crc)
    assert len(data) == encoded_size(topic, b"hello", b"TAGS\x01TagA\x02", born_host, store_host, append_crc)
    found = decode(data)
    assert (found.born_host, found.store_host, found.topic) == (born_host, store_host, topic)
    assert (found.body, found.find(b"TAGS"), found.tag_code) == (b"hello", b"TagA", 2598919)
    assert (found.reconsume_times, found.prepared_offset, found.size) == (1, 2, len(data))
    assert found.sys_flag == (0x10 if born_host == V6 else 0) | (0x20 if store_host == V6 else 0)
    assert found.magic == (record.MAGIC_V2 if len(topic) > 127 else record.MAGIC_V1)
    assert found.data == data
    assert found.damage() is None


def test_properties_are_found_in_records_of_every_shape_and_in_no_damaged_one() -> None:
    shapes = [
        encoded(born_host=born, store_host=store, topic=topic, append_crc=crc, properties=properties)
        for born in (V4, V6)
        for store in (V4, V6)
        for topic in (b"T", b"t" * 127, b"t" * 300)
        for crc in (False, True)
        for properties in (b"", b"TAGS\x01TagA\x02")
    ]
    assert properties_of_each(map(memoryview, shapes)) == [decode(each).properties for each in shapes]
    whole = encoded()
    damaged = [whole[:-1], whole[:40], b"", bytes(len(whole)), whole[:84] + b"\x7f" + whole[85:]]
    assert properties_of_each([*damaged, whole]) == [*([None] * len(damaged)), decode(whole).properties]


def test_the_host_bits_come_from_the_hosts_and_the_other_bits_stay() -> None:
    assert decode(encoded(sys_flag=0x70F | 0x30)).sys_flag == 0x70F


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"properties": bytes(32768)}, "properties of 32768 bytes"),
        ({"properties": bytes(32748), "append_crc": True}, "properties of 32769 bytes"),
        ({"topic": bytes(32768)}, "topic of 32768 bytes"),
        ({"queue_id": 2**31}, "does not fit"),
        ({"queue_offset": 2**63}, "does not fit"),
        ({"born_host": b"1234567"}, "packed hosts of 7 and 8"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        encoded(**changes)


def test_a_record_stored_anew_does_not_keep_its_old_crc() -> None:
    first = decode(encoded(append_crc=True))
    again = encoded(properties=first.properties, queue_offset=10, append_crc=True)
    assert again.count(b"__CRC32#") == 1
    assert len(again) == first.size == encoded_size(b"orders", b"hello", first.properties, V4, V4, True)
    assert decode(again).damage() is None


def test_a_record_without_a_tag_has_code_0() -> None:
    assert decode(encoded(properties=b"")).tag_code == 0


def test_records_of_a_pull_reply_are_read_one_after_the_other() -> None:
    reply = b"".join(encoded(queue_offset=offset, body=b"x" * offset) for offset in range(5))
    assert [(each.queue_offset, each.body_length) for each in decode_all(reply)] == [(n, n) for n in range(5)]
    assert decode_all(b"") == []


def test_a_record_kept_does_not_keep_the_whole_reply() -> None:
    reply = bytearray(encoded() * 2)
    kept = decode_all(reply)[1]
    reply[:] = bytes(len(reply))
    assert kept.body == b"hello"


@pytest.mark.parametrize("cut", [1, 50, 90, 100])
def test_a_pull_reply_that_breaks_off_is_refused(cut: int) -> None:
    with pytest.raises(ProtocolError):
        decode_all(encoded() + encoded()[:cut])


@pytest.mark.parametrize("size", [0, -1, 90, 2**31 - 1])
def test_a_record_that_lies_about_its_size_is_refused(size: int) -> None:
    lie = size.to_bytes(4, "big", signed=True) + encoded()[4:]
    with pytest.raises(ProtocolError):
        decode_all(lie)
    with pytest.raises(ProtocolError):
        decode(lie)


def test_an_unknown_magic_is_refused() -> None:
    data = encoded()
    with pytest.raises(ProtocolError, match="magic 01020304"):
        decode(data[:4] + b"\1\2\3\4" + data[8:])


def test_text_that_is_not_utf_8_is_refused_when_it_is_asked_for() -> None:
    found = decode(encoded(topic=b"\xff", properties=b"a\x01\xff\x02"))
    for ask in (found.topic_name, found.property_table):
        with pytest.raises(ProtocolError, match="UTF-8"):
            ask()


def test_a_record_shows_where_it_lies() -> None:
    assert repr(decode(encoded())) == "<Record b'orders' queue 3 offset 9 at 1000, 112 bytes>"


# -------------------------------------------------------------------------------------------------- check


def test_a_sound_record_is_found_sound_wherever_it_lies() -> None:
    data = encoded(append_crc=True)
    log = memoryview(b"stale" + data + b"more")
    checked = check(log, 5, len(log), physical_offset=1000)
    assert (checked.verdict, checked.size, checked.reason) == (Verdict.OK, len(data), "")
    assert checked.record is not None
    assert checked.record.body == b"hello"


def test_the_end_of_a_file_is_found() -> None:
    assert check(record.blank(64) + bytes(56), 0, 64)[:2] == (Verdict.BLANK, 64)
    assert check(bytes(3) + b"\7" + record.blank(8)[4:], 0, 8).verdict is Verdict.BAD


def test_where_nothing_was_written_is_empty() -> None:
    assert check(bytes(100), 0, 100)[:2] == (Verdict.EMPTY, 0)


@pytest.mark.parametrize("end", [0, 7, 8, 91, 110])
def test_a_record_whose_end_is_missing_is_torn(end: int) -> None:
    assert check(encoded(), 0, end)[:2] == (Verdict.TORN, 0)


def test_a_record_from_another_place_is_bad() -> None:
    checked = check(encoded(), 0, 112, physical_offset=2000)
    assert (checked.verdict, checked.size) == (Verdict.BAD, 112)
    assert "at 1000, not 2000" in checked.reason


def test_every_flipped_bit_is_noticed() -> None:
    sound = encoded(append_crc=True)
    name_of_the_crc = range(len(sound) - 20, len(sound) - 11)  # without it, only the body is checked
    for place in sorted(set(range(len(sound))) - set(name_of_the_crc)):
        for bit in range(8):
            damaged = bytearray(sound)
            damaged[place] ^= 1 << bit
            assert check(damaged, 0, len(damaged)).verdict is not Verdict.OK, (place, bit)


def test_without_the_whole_crc_the_body_is_still_checked() -> None:
    damaged = encoded(body=b"hello").replace(b"hello", b"jello")
    assert "body CRC" in check(damaged, 0, len(damaged)).reason
    assert check(damaged, 0, len(damaged), verify=False).verdict is Verdict.OK


def test_lengths_that_do_not_add_up_are_bad_and_tell_how_far_to_go_on() -> None:
    data = bytearray(encoded())
    data[84:88] = (4).to_bytes(4, "big")
    assert check(data, 0, len(data))[:2] == (Verdict.BAD, len(data))


# -------------------------------------------------------------------------------------------------- hosts


@pytest.mark.parametrize(
    ("address", "port", "packed"),
    [
        ("127.0.0.1", 10911, "7f000001 00002a9f"),
        ("::1", 1, "00000000000000000000000000000001 00000001"),
        ("::ffff:10.0.0.1", 80, "0a000001 00000050"),
    ],
)
def test_hosts_are_packed(address: str, port: int, packed: str) -> None:
    assert pack_host(address, port) == bytes.fromhex(packed)


def test_hosts_are_unpacked() -> None:
    assert unpack_host(V4) == ("10.0.0.1", 5000)
    assert unpack_host(V6) == ("2001:db8::1", 10911)


def test_what_is_no_host_is_refused() -> None:
    with pytest.raises(ProtocolError, match="'localhost' is not an IP address"):
        pack_host("localhost", 1)
    with pytest.raises(ProtocolError, match="packed host of 3 bytes"):
        unpack_host(b"123")


# -------------------------------------------------------------------------------------------------- batch


def test_a_batch_comes_back_as_it_was() -> None:
    items = [(0, b"one", b"K\x01v\x02"), (-5, b"", b""), (7, b"x" * 1000, b"")]
    assert record.decode_batch(record.encode_batch(items)) == items
    assert record.decode_batch(b"") == []


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, 0), (0, -1), (0, 21), (0, 2**31 - 1), (16, -1), (16, 2**31 - 1), (16, 3), (0, 25), (0, 27)],
)
def test_a_batch_that_lies_about_a_length_is_refused(place: int, value: int) -> None:
    data = bytearray(record.encode_batch([(0, b"hi", b"ab"), (0, b"hi", b"ab")]))
    data[place : place + 4] = value.to_bytes(4, "big", signed=True)
    with pytest.raises(ProtocolError, match="batch"):
        record.decode_batch(bytes(data))


def test_a_batch_that_lies_about_its_properties_is_refused() -> None:
    data = bytearray(record.encode_batch([(0, b"hi", b"ab")]))
    data[22:24] = b"\xff\xff"
    with pytest.raises(ProtocolError, match="do not make up"):
        record.decode_batch(bytes(data))


def test_a_batch_of_too_many_messages_is_refused() -> None:
    item = record.encode_batch([(0, b"", b"")])
    assert len(record.decode_batch(item * record.BATCH_ITEMS_MAX)) == record.BATCH_ITEMS_MAX
    with pytest.raises(ProtocolError, match="more than 1024"):
        record.decode_batch(item * (record.BATCH_ITEMS_MAX + 1))


def test_a_batch_that_breaks_off_is_refused() -> None:
    data = record.encode_batch([(0, b"hi", b"ab")])
    for end in range(1, len(data)):
        with pytest.raises(ProtocolError, match="batch"):
            record.decode_batch(data[:end])
