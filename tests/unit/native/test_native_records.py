"""Records walked and keys hashed in C are as by the plain functions; what is not usual is left to these."""

from __future__ import annotations

import random
from collections.abc import Callable
from struct import pack_into
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kourou.native import native
from kourou.protocol import record as records
from kourou.protocol.record import Record, Verdict, pack_host
from kourou.store.dispatch import entry_tag
from kourou.store.key_hashes import Keyed, KeyHashes, Keys, TopicKeys
from kourou.store.recovery import checked_record

pytestmark = pytest.mark.skipif(
    native is None, reason="kourou.native is not compiled here, or KOUROU_NATIVE=0"
)

V4, V6 = pack_host("10.1.2.3", 1234), pack_host("::1", 10911)
START = 1 << 33
Queues = dict[tuple[bytes, int], int]
Walked = tuple[int, tuple[int, int, int], list[tuple[Any, list[int]]], list[int], list[int]]


def walk(data: Any, at: int = 0, place: int = START, queues: Queues | None = None) -> Walked:
    """By C. All queues are known and begin with 0, unless told."""
    assert native is not None
    walked: Walked = native.walk(data, at, place, asked(queues), True)
    return walked


def asked(queues: Queues | None) -> Callable[[bytes, int], tuple[int, tuple[bytes, int]] | None]:
    def queue_of(topic: bytes, queue_id: int) -> tuple[int, tuple[bytes, int]] | None:
        key = topic, queue_id
        if queues is None:
            return 0, key
        return (queues[key], key) if key in queues else None

    return queue_of


def walk_plainly(data: bytes, at: int = 0, place: int = START, queues: Queues | None = None) -> Walked:
    """The same, by what decides about records of any kind."""
    last, runs = (0, 0, 0), dict[tuple[bytes, int], list[int]]()
    expected, hashes, places = dict(queues or {}), list[int](), list[int]()
    while True:
        found = checked_record(data, at, len(data), True, place)
        record = found.record
        if found.verdict is not Verdict.OK or record is None or not is_usual(record):
            break
        key = record.topic, record.queue_id
        if queues is not None and key not in queues:
            break
        numbers = runs.setdefault(key, [])
        if expected.get(key, 0) != record.queue_offset:
            break
        expected[key] = record.queue_offset + 1
        tag = entry_tag(record.topic.decode(), record.properties, record.store_ms, ())
        numbers += (place, record.size, tag)
        own = TopicKeys(record.topic).of(record.properties)
        hashes += own
        places += [place] * len(own)
        last = place, record.size, record.store_ms
        at, place = at + record.size, place + record.size
    return at, last, list(runs.items()), hashes, places


def is_usual(record: Record) -> bool:
    if record.magic != records.MAGIC_V1 or record.sys_flag & 0x3C or not record.topic:
        return False
    properties = record.properties
    own, mark, _ = properties.rpartition(b"__CRC32#\x01")
    is_at_the_end = len(properties) - len(own) == records.CRC_PROPERTY_BYTES
    if mark and not (is_at_the_end and (not own or own.endswith(b"\x02"))):
        return False
    entries = [each.partition(b"\x01") for each in properties.split(b"\x02") if each]
    counting = [value for name, _, value in entries if name in (b"TAGS", b"KEYS", b"UNIQ_KEY")]
    return (
        record.topic.isascii()
        and all(mark for _, mark, _ in entries)
        and all(value and value.isascii() for value in counting)
    )


def made(place: int = START, properties: bytes = b"", **changed: Any) -> bytes:
    values = {
        "topic": b"orders",
        "queue_id": 0,
        "flag": 0,
        "queue_offset": 0,
        "physical_offset": place,
        "sys_flag": 0,
        "born_ms": 1_700_000_000_000,
        "born_host": V4,
        "store_ms": 1_700_000_000_001,
        "store_host": V4,
        "reconsume_times": 0,
        "prepared_offset": 0,
        "body": b"a body",
        "properties": properties,
        "append_crc": True,
        **changed,
    }
    return records.encode(**values)


# ------------------------------------------------------------------------------------- as the plain way does

UNIQUE = b"7F000001" * 4
ENTRIES = st.sampled_from(
    (
        *(b"UNIQ_KEY\x01" + UNIQUE, b"UNIQ_KEY\x01short", b"UNIQ_KEY\x01", b"X\x01UNIQ_KEY"),
        *(b"TAGS\x01paid", b"TAGS\x01", b"TAGS\x01\xc3\xa9", b"TAGS\x01a\x01b", b"TAGSX\x01no"),
        *(b"KEYS\x01one two  three", b"KEYS\x01 ", b"KEYS\x01k", b"KEYS\x01\xff", b"KEYS"),
        *(b"WAIT\x01true", b"DELAY\x013", b"no name", b"", b"__CRC32#\x010123456789", b"zero\x01\0"),
    )
)
USUAL = st.sampled_from(
    (
        b"UNIQ_KEY\x01" + UNIQUE + b"\x02WAIT\x01true\x02TAGS\x01paid\x02",
        b"TAGS\x01a\x02KEYS\x01one two  three\x02UNIQ_KEY\x01" + UNIQUE[::-1] + b"\x02",
        b"",
    )
)
ODD = st.tuples(st.lists(ENTRIES, max_size=4).map(b"\x02".join), st.sampled_from((b"", b"\x02"))).map(
    b"".join
)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Records one after the other, most of them usual, with their right offsets."""
    parts, place = list[bytes](), START
    following: Queues = {}
    for _ in range(draw(st.integers(0, 8))):
        key = (
            draw(st.sampled_from((b"orders", b"x", b"a" * 127, b"a" * 128, b"\xc3\xa9"))),
            draw(st.integers(0, 2)),
        )
        is_odd = draw(st.integers(0, 4)) == 0
        skipped = is_odd and draw(st.booleans())
        born, stored = (draw(st.sampled_from((V4, V6))) if is_odd else V4 for _ in range(2))
        parts.append(
            made(
                place,
                draw(ODD if is_odd else USUAL),
                topic=key[0],
                queue_id=key[1],
                queue_offset=following.get(key, 0) + skipped,
                sys_flag=draw(st.sampled_from((0, 1, 4, 8, 12))) if is_odd else 0,
                born_host=born,
                store_host=stored,
                store_ms=draw(st.integers(0, 1 << 62)),
                body=draw(st.binary(max_size=80)),
                append_crc=draw(st.booleans()),
            )
        )
        following[key] = following.get(key, 0) + 1
        place += len(parts[-1])
    return b"".join(parts)


@settings(max_examples=300)
@given(logs(), st.data())
def test_any_log_is_walked_as_by_the_plain_functions(log: bytes, data: st.DataObject) -> None:
    cut = log[: data.draw(st.one_of(st.just(len(log)), st.integers(0, len(log))))]
    assert walk(cut) == walk_plainly(cut)
    known = {(b"orders", 0): 0, (b"orders", 1): 0, (b"x", 0): 1}
    assert walk(cut, queues=known) == walk_plainly(cut, queues=known)


@settings(max_examples=300)
@given(logs().filter(bool), st.data())
def test_a_log_with_a_changed_byte_is_walked_as_by_the_plain_functions(
    log: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(log) - 1))
    changed = log[:at] + data.draw(st.binary(min_size=1, max_size=4)) + log[at + 4 :]
    assert walk(changed) == walk_plainly(changed)


@given(st.binary(max_size=400), st.integers(0, 400))
def test_garbage_is_left(data: bytes, at: int) -> None:
    at = min(at, len(data))
    assert walk(data, at) == (at, (0, 0, 0), [], [], [])


@pytest.mark.parametrize("append_crc", [True, False])
def test_no_bit_of_a_record_can_change_unseen_and_none_can_be_missing(append_crc: bool) -> None:
    data = made(properties=b"TAGS\x01paid\x02", append_crc=append_crc)
    assert walk(data)[0] == len(data)
    for at in range(len(data)):
        assert walk(data[:at])[0] == 0
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            assert walk(changed) == walk_plainly(bytes(changed)), (at, bit)
            assert not append_crc or walk(changed)[0] == 0, (at, bit)


@pytest.mark.parametrize("at", [0, 84])  # size; length of the body
def test_lengths_that_lie_lead_nowhere(at: int) -> None:
    for value in [*range(-3, 200), 1 << 16, (1 << 31) - 1, -(1 << 31), (1 << 31) - 92]:
        data = bytearray(made(properties=b"TAGS\x01paid\x02", append_crc=False))
        pack_into(">i", data, at, value)
        assert walk(data) == walk_plainly(bytes(data)), value


def test_numbers_at_their_limits_are_taken_or_left() -> None:
    most = (1 << 63) - 1
    last = made(queue_offset=most)
    assert walk(last, queues={(b"orders", 0): most})[0] == 0
    before = made(queue_offset=most - 1)
    assert walk(before, queues={(b"orders", 0): most - 1})[0] == len(before)
    far = made(most - 1000)
    assert walk(far, place=most - 1000)[0] == len(far)
    for at, place in [(-1, 0), (len(far) + 1, 0), (0, -1), (0, most)]:
        with pytest.raises(ValueError, match="of the log"):
            walk(far, at, place)


def test_a_hash_without_its_sign_is_that_of_the_plain_way() -> None:
    chance = random.Random(3)
    keys = [b"%x" % chance.getrandbits(64) for _ in range(200)]
    keys.append(b"polygenelubricants")  # with an empty prefix it would be -2**31
    data = made(properties=b"KEYS\x01" + b" ".join(keys) + b"\x02")
    assert walk(data) == walk_plainly(data)
    assert len(walk(data)[3]) == 201


ODD_PROPERTIES = [
    b"TAGS\x01earlier\x02TAGS\x01\x02",  # the last one is empty and does not count
    b"KEYS\x01earlier\x02KEYS\x01\x02",
    b"UNIQ_KEY\x01earlier\x02UNIQ_KEY\x01\x02",
    b"TAGS\x01not ended",
    b"X\x01__CRC32#\x01\x02Y\x01z\x02",  # a CRC that was, and is not at the end
    b"__CRC32#\x01" + b"0" * 10,
    b"__CRC32#\x01",
    b"TAGS\x01\xf0\x9f\x98\x80\x02",
    b"\x02\x02TAGS\x01after nothing\x02\x02",
    b"TAGS\x01" + b"t" * 30_000 + b"\x02",
]


@pytest.mark.parametrize("properties", ODD_PROPERTIES)
@pytest.mark.parametrize("has_crc", [True, False])
def test_odd_properties_are_read_as_by_the_plain_functions_or_left(properties: bytes, has_crc: bool) -> None:
    bare = made(properties=properties, append_crc=False)
    data = with_crc(bare) if has_crc else bare
    assert checked_record(data, 0, len(data), True, START).verdict is Verdict.OK or not has_crc
    assert walk(data) == walk_plainly(data)


@pytest.mark.parametrize("length", [127, 128, 200, 255])
def test_a_topic_too_long_for_the_first_version_is_left(length: int) -> None:
    bare = bytearray(made(body=b"", topic=b"t", append_crc=False))
    bare[88:90] = bytes((length,)) + b"t" * length
    pack_into(">i", bare, 0, len(bare))
    data = with_crc(bytes(bare))
    assert walk(data) == walk_plainly(data)
    assert (walk(data)[0] == len(data)) == (length == 127)


def with_crc(bare: bytes) -> bytes:
    """The same record with a CRC of the whole behind its properties, whatever these are."""
    data = bytearray(bare)
    pack_into(">i", data, 0, len(bare) + records.CRC_PROPERTY_BYTES)
    length_at = 89 + int.from_bytes(bare[84:88], "big")
    length_at += bare[length_at - 1]
    properties_length = int.from_bytes(bare[length_at : length_at + 2], "big")
    pack_into(">H", data, length_at, properties_length + records.CRC_PROPERTY_BYTES)
    return bytes(data) + b"__CRC32#\x01%b\x02" % (b"%010d" % (crc32(data) & 0x7FFF_FFFF))[::-1]


# ---------------------------------------------------------------------------------------- keys by themselves


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from((b"orders", b"\xc3\xa9", b"a" * 300)), ODD | USUAL), max_size=6))
def test_the_keys_of_many_messages_are_those_of_each(messages: list[tuple[bytes, bytes]]) -> None:
    keyed: list[Keyed] = [(*each, 0, place) for place, each in enumerate(messages)]
    expected = Keys([], [])
    for topic, properties, _, place in keyed:
        own = TopicKeys(topic).of(properties)
        expected.hashes.extend(own)
        expected.places.extend([place] * len(own))
    hashes = KeyHashes()
    for collect in (hashes.collect, hashes._collect_plainly):
        for given_as in (list(keyed), iter(keyed)):
            found = Keys([], [])
            collect(given_as, found)
            assert found == expected, collect


def test_a_message_whose_unique_id_is_pointed_at_is_found_by_it() -> None:
    properties = b"WAIT\x01true\x02UNIQ_KEY\x01" + UNIQUE + b"\x02TAGS\x01a\x02"
    hashes, quick, plain = KeyHashes(), Keys([], []), Keys([], [])
    keyed: list[Keyed] = [(b"orders", properties, properties.index(UNIQUE), 1 << 40)] * 3
    hashes.collect(keyed, quick)
    hashes._collect_plainly(keyed, plain)
    assert quick == plain == Keys(TopicKeys(b"orders").of(properties) * 3, [1 << 40] * 3)


@pytest.mark.parametrize("message", [None, (), (b"a", b"b", 0), ("a", b"b", 0, 0), (b"a", "b", 0, 0)])
def test_what_is_no_message_is_left(message: Any) -> None:
    assert native is not None
    hashes, places = list[int](), list[int]()
    usual = (b"a", b"KEYS\x01k\x02", 0, 7)
    assert native.add_keys([usual, message, usual], 0, hashes, places) == 1
    assert native.add_keys([usual, message, usual], 2, hashes, places) == 3
    assert (len(hashes), places) == (2, [7, 7])
    assert native.add_keys([], 5, hashes, places) == 5
    assert native.add_keys([usual], -5, hashes, places) == -5


@pytest.mark.parametrize(
    "given", [(), ((), 0, [], []), ([], "0", [], []), ([], 0, (), []), ([], 0, [], None)]
)
def test_keys_of_other_values_are_refused(given: tuple[Any, ...]) -> None:
    assert native is not None
    with pytest.raises(TypeError):
        native.add_keys(*given)


# ------------------------------------------------------------------------------------------------ on its own


def test_more_queues_than_it_holds_are_taken_in_several_walks() -> None:
    parts, place = list[bytes](), START
    keys = [(b"topic-%d" % number, queue_id) for queue_id in range(250) for number in range(4)]
    for number in range(2000):
        topic, queue_id = keys[number % 1000]
        parts.append(made(place, topic=topic, queue_id=queue_id, queue_offset=number // 1000))
        place += len(parts[-1])
    data, at, taken = b"".join(parts), 0, list[tuple[tuple[bytes, int], int]]()
    queues: Queues = dict.fromkeys(keys, 0)
    few = b"".join(parts[:500])
    assert walk(few) == walk_plainly(few)
    while at < len(data):
        stop, _, runs, _, _ = walk(data, at, START + at, queues)
        assert stop > at
        for key, numbers in runs:
            queues[key] += len(numbers) // 3
            taken += [(key, where) for where in numbers[::3]]
        at = stop
    assert set(queues.values()) == {2}
    assert len(set(taken)) == 2000


def test_without_an_index_no_keys_are_collected() -> None:
    assert native is not None
    data = made(properties=b"KEYS\x01one\x02")
    assert native.walk(data, 0, START, asked(None), False)[2:] == (
        [((b"orders", 0), [START, len(data), 0])],
        [],
        [],
    )


@pytest.mark.parametrize("data", [memoryview, bytearray])
def test_any_bytes_will_do(data: Callable[[bytes], Any]) -> None:
    record = made()
    assert walk(data(b"xx" + record), 2) == (2 + len(record), *walk(record)[1:])


def test_what_queue_of_raises_comes_through_and_what_it_must_not_say_is_refused() -> None:
    assert native is not None

    def broken(topic: bytes, queue_id: int) -> Any:
        raise LookupError(topic)

    with pytest.raises(LookupError):
        native.walk(made(), 0, START, broken, True)
    for answer in (7, (1,), ("a", 1), (1 << 70, 1)):
        with pytest.raises((TypeError, OverflowError)):
            native.walk(made(), 0, START, lambda topic, queue_id, answer=answer: answer, True)


@pytest.mark.parametrize(
    "given",
    [(), (b"", 0), ("text", 0, 0, None, True), (b"", "0", 0, None, True), (b"", 0, 1 << 80, None, True)],
)
def test_other_values_are_refused(given: tuple[Any, ...]) -> None:
    assert native is not None
    with pytest.raises((TypeError, OverflowError)):
        native.walk(*given)
