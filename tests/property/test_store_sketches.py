"""The quick look at a record during recovery says nothing that the thorough one would not say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol import record as records
from kourou.protocol.record import Verdict, pack_host
from kourou.store.recovery import sketch_of, sketched

HOSTS = st.sampled_from((pack_host("10.1.2.3", 1234), pack_host("::1", 10911)))
PROPERTIES = st.lists(
    st.sampled_from((b"TAGS\x01a", b"KEYS\x01k 1", b"UNIQ_KEY\x01" + b"0" * 32)), max_size=3
)


@st.composite
def encoded(draw: st.DrawFn) -> tuple[bytes, int]:
    """A record, and the place it was made for."""
    born, stored = draw(HOSTS), draw(HOSTS)
    place = draw(st.integers(0, 1 << 40))
    properties = b"".join(each + b"\x02" for each in draw(PROPERTIES))
    data = records.encode(
        draw(st.binary(min_size=1, max_size=127)),
        draw(st.integers(0, 8)),
        0,
        draw(st.integers(0, 1 << 40)),
        place,
        draw(st.sampled_from((0, 4, 8, 12))) | (len(born) > 8) << 4 | (len(stored) > 8) << 5,
        1_700_000_000_000,
        born,
        draw(st.integers(0, 1 << 42)),
        stored,
        0,
        0,
        draw(st.binary(max_size=300)),
        properties,
        draw(st.booleans()),
    )
    return data, place


@given(encoded(), st.binary(max_size=50), st.binary(max_size=50))
def test_what_is_seen_quickly_is_what_is_there(made: tuple[bytes, int], before: bytes, after: bytes) -> None:
    data, place = made
    window = before + data + after
    seen = sketched(window, memoryview(window), len(before), place)
    if seen is not None:
        assert seen == sketch_of(records.decode(data))
    is_ours = data[39] & 0x30 == 0 and b"__CRC32#\x01" in data[-records.CRC_PROPERTY_BYTES :]
    assert (seen is not None) == is_ours


@given(encoded(), st.data())
def test_a_damaged_record_is_never_taken_for_a_whole_one(
    made: tuple[bytes, int], data: st.DataObject
) -> None:
    record, place = made
    at = data.draw(st.integers(0, len(record) - 1))
    flipped = bytes([record[at] ^ 1 << data.draw(st.integers(0, 7))])
    window = record[:at] + flipped + record[at + 1 :]
    assert sketched(window, memoryview(window), 0, place) is None
    shorter = record[:at]
    assert sketched(shorter, memoryview(shorter), 0, place) is None
    assert sketched(record, memoryview(record), 0, place + 1) is None


@given(st.binary(max_size=400), st.integers(0, 400))
def test_garbage_is_judged_as_by_the_thorough_look(window: bytes, at: int) -> None:
    seen = sketched(window, memoryview(window), at, 0)
    if seen is not None:
        assert records.check(window, at, len(window), True, 0).verdict is Verdict.OK
