"""A pull's reply made in C has what a read in the plain way finds; so have the properties of many records."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from struct import pack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kourou.broker.handlers.pull import FOUND
from kourou.doors.simulated_files import SimulatedFiles
from kourou.native import native
from kourou.protocol import record as records
from kourou.protocol.frame import PREFIX
from kourou.protocol.record import pack_host, values_of_each_plainly
from kourou.store import ahead, reading
from kourou.store.ahead import Accepts
from kourou.store.config import ENTRY_BYTES
from kourou.store.consume_queue import ENTRY
from kourou.store.replies import Reply
from kourou.store.store import ReadStatus, Store
from tests.unit.store.folder import draft, store_on

pytestmark = pytest.mark.skipif(
    native is None, reason="kourou.native is not compiled here, or KOUROU_NATIVE=0"
)


def reply(
    store: Store, queue_offset: int, count_max: int, wanted: frozenset[int] | None, accepts: Accepts | None
) -> Reply | None:
    return store.replies.reply("T", 0, queue_offset, count_max, wanted, accepts, FOUND, 7)


def taken_apart(found: Reply) -> tuple[dict[str, Any], bytes]:
    """The header of a reply, and its body."""
    (frame,), size, _, _, _ = found
    assert len(frame) == size
    length, header_bytes = PREFIX.unpack_from(frame)
    assert length + 4 == size
    return json.loads(bytes(frame[8 : 8 + header_bytes])), bytes(frame[8 + header_bytes :])


def even(many: Sequence[bytes | memoryview]) -> list[bool]:
    return [len(record) % 2 == 0 for record in many]


def third(many: Sequence[bytes | memoryview]) -> list[bool]:
    return [records.decode(record).queue_offset % 3 == 0 for record in many]


def assert_it_is_the_read(store: Store, found: Reply, *arguments: Any) -> None:
    queue_offset, count_max, wanted, accepts = arguments
    read = store.read("T", 0, queue_offset, max(1, count_max), wanted=wanted, accepts=accepts)
    header, body = taken_apart(found)
    assert read.status is ReadStatus.FOUND
    assert not read.is_behind
    assert body == b"".join(read.messages)
    assert found[2:] == (read.next_offset, read.count, read.size)
    offsets = {
        "nextBeginOffset": read.next_offset,
        "minOffset": read.min_offset,
        "maxOffset": read.max_offset,
    }
    assert header["extFields"] == {"suggestWhichBrokerId": "0"} | {k: str(v) for k, v in offsets.items()}
    assert (header["code"], header["flag"], header["opaque"]) == (0, 1, 7)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 600)), max_size=120),
    st.lists(
        st.tuples(
            *(st.integers(-1, 60), st.integers(-1, 40)),
            *(st.sampled_from([None, {1}, {1, 2}, {0, 1, 2, 3, 4, 5}, {9}]), st.sampled_from([None, even])),
        ),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.integers(0, 40), max_size=3),
    st.sampled_from([0, 0, 5000]),
    st.sampled_from([600, 3000, 1 << 18]),
    st.booleans(),
)
def test_a_reply_is_what_a_read_finds_or_there_is_none(
    messages: list[tuple[int, int, int]],
    pulls: list[tuple[int, int, set[int] | None, Accepts | None]],
    damaged: list[int],
    in_memory_bytes: int,
    pull_bytes_max: int,
    is_first_segment_gone: bool,
) -> None:
    store = store_on(
        SimulatedFiles(),
        in_memory_bytes=in_memory_bytes,
        commit_log_segment_bytes=8192,
        scan_entries_max=20,
        pull_bytes_in_memory_max=pull_bytes_max,
    )
    for queue_id, tag, size in messages:
        store.append(draft(bytes([tag]) * size, queue_id=queue_id, tags_code=tag))
    queue = store._queues.get_or_make("T", 0)
    for queue_offset in damaged:
        following = queue.entries(queue_offset + 1, 1)
        if following:
            queue.segments.write(following, queue_offset * ENTRY_BYTES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "ENTRIES_TOGETHER", 5)
        for module in (ahead, reading):
            patch.setattr(module, "FILTERED_BLOCK_ENTRIES", 6)
        for number, (queue_offset, count_max, tags, accepts) in enumerate([*pulls, *pulls]):
            arguments = queue_offset, count_max, None if tags is None else frozenset(tags), accepts
            found = reply(store, *arguments)
            assert store.replies._looked_up(queue, *arguments, FOUND, 7) == found  # kept by now, or not
            if found is not None:
                assert_it_is_the_read(store, found, *arguments)
            if number == 3 and is_first_segment_gone and len(store._log.segments.bases) > 1:
                store._log.segments.forget(store._log.segments.bases[0])


def filled(messages: int = 700) -> Store:
    store = store_on(SimulatedFiles(), commit_log_segment_bytes=8 << 20, consume_queue_segment_entries=2000)
    for number in range(messages):
        store.append(draft(b"%d" % number, tags_code=number % 10))
        store.append(draft(queue_id=1))
    return store


@pytest.mark.parametrize(
    ("wanted", "accepts", "offsets"),
    [
        (None, None, [0, 5, 600, 699]),
        (frozenset({3}), None, [0, 1, 255, 256, 690]),
        (frozenset({3, 4, 5}), None, [0, 2, 250, 690]),
        (None, third, [0, 2, 250, 300]),
    ],
)
def test_usual_pulls_have_a_reply(
    wanted: frozenset[int] | None, accepts: Accepts | None, offsets: list[int]
) -> None:
    store = filled()
    for count_max in (1, 8, 32, 1000):
        for offset in offsets:
            found = reply(store, offset, count_max, wanted, accepts)
            assert found is not None
            assert_it_is_the_read(store, found, offset, count_max, wanted, accepts)


def test_what_is_unusual_has_none() -> None:
    store = filled(40)
    everything = (None, None)
    assert reply(store, 40, 32, *everything) is None  # nothing new
    assert reply(store, -1, 32, *everything) is None
    assert reply(store, 0, 32, frozenset({77}), None) is None  # nothing matches
    assert reply(store, 0, 32, frozenset({3}), even) is None
    assert reply(store, 0, 32, frozenset(range(200)), None) is None  # more tags than anybody sends
    assert store.replies.reply("T", 9, 0, 32, None, None, FOUND, 7) is None
    assert reply(store, 0, 32, *everything) is not None


VIEW = bytes(range(256)) * 8


def made(
    places: Sequence[tuple[int, int, int]],
    view_of: Callable[[int, int], Any] = lambda size, at: VIEW[at : at + size],
    template: bytes = b"%d %d %d %d %d",
    **changes: Any,
) -> Any:
    """One call; all it is told besides is as usual, but for `changes`."""
    assert native is not None
    told: dict[str, Any] = {
        **{"broker_id": 0, "least": 0, "most": len(places), "opaque": 1, "first": 0, "verdicts": None},
        **{"queue_offset": 0, "count_max": 32, "bytes_max": 1 << 20, "scan_max": 800, "block_entries": 256},
        **{"wanted": None, "lowest_place": 0},
    }
    told.update(changes)
    entries = b"".join(ENTRY.pack(*each) for each in places)
    return native.pull_reply(
        *(template, told["broker_id"], told["least"], told["most"], told["opaque"], entries),
        *(told["first"], told["verdicts"], told["queue_offset"], told["count_max"], told["bytes_max"]),
        *(told["scan_max"], told["block_entries"], told["wanted"], told["lowest_place"], view_of),
    )


USUAL = [(0, 10, 1), (10, 5, 2), (40, 7, 1)]


def test_numbers_are_written_as_they_are_anywhere_else() -> None:
    for number in (0, -1, 9, 10, 12345678901, -(1 << 63), (1 << 63) - 1):
        ((frame,), *_) = made(USUAL, broker_id=number, opaque=-number if number > -(1 << 63) else 5)
        opaque = -number if number > -(1 << 63) else 5
        assert frame[8:].startswith(b"%d 3 0 3 %d" % (number, opaque))


@pytest.mark.parametrize(
    "places",
    [
        [(0, 0, 1)],
        [(0, -5, 1)],
        [(-8, 5, 1)],
        [(0, 10, 1), (5, 10, 1)],  # one within the other
        [(20, 10, 1), (5, 10, 1)],
        [(5, 10, 1), (5, 10, 1)],
        [((1 << 63) - 5, 100, 1)],
        [(0, 0x7FFFFFFF, 1)],
        [(0, 10, 1), (1 << 40, 10, 1)],
    ],
)
def test_entries_that_lead_nowhere_are_not_followed(places: list[tuple[int, int, int]]) -> None:
    assert made(places) is None


def test_no_view_is_read_beyond_its_end() -> None:
    def seen_as(view: Any) -> Callable[[int, int], Any]:
        return lambda size, at: view

    for view in (None, b"", VIEW[:46], VIEW[:48]):
        assert made(USUAL, seen_as(view)) is None
    with pytest.raises(BufferError):
        made(USUAL, seen_as(memoryview(VIEW)[:94:2]))
    with pytest.raises(TypeError):
        made(USUAL, seen_as(5))
    with pytest.raises(ZeroDivisionError):
        made(USUAL, lambda size, at: 1 // 0)


def test_more_entries_are_asked_for_and_no_number_is_believed() -> None:
    assert made(USUAL, most=4) is False  # is the last one a mere copy of the next?
    assert made(USUAL, verdicts=b"\1") is False
    assert made(USUAL, verdicts=b"\1\0\1")[2:] == (3, 2, 17)
    for changes in (
        *({"first": -1}, {"first": 4}, {"count_max": 0}, {"count_max": 100_000}, {"block_entries": 0}),
        *(
            {"most": -1},
            {"queue_offset": -1},
            {"scan_max": 0},
            {"opaque": 1 << 64},
            {"wanted": {1}, "most": 0},
        ),
        *({"template": b"%d"}, {"template": b"%d" * 6}, {"template": b"%s %d %d %d %d"}, {"template": b"%"}),
        *({"template": b"x" * 2000}, {"wanted": frozenset({"a"})}, {"wanted": [1]}),
    ):
        assert made(USUAL, **changes) is None, changes


class Numbers:
    """What a reply asks of a queue and of the settings."""

    min_offset, max_offset, old_end = 0, 3, 0
    pull_messages_in_memory_max, pull_bytes_in_memory_max, scan_entries_max = 32, 1 << 18, 800


def kept(queue: Any = Numbers, **changes: Any) -> Any:
    """As `made`, out of what is kept."""
    assert native is not None
    told: dict[str, Any] = {
        **{"config": Numbers, "entries": b"".join(ENTRY.pack(*each) for each in USUAL), "together": 3},
        **{"block_entries": 256, "queue_offset": 0, "count_max": 32, "wanted": None, "opaque": 1},
        **{"template": b"%d %d %d %d %d", "lowest_place": 0},
    }
    told.update(changes)
    return native.kept_reply(
        *(queue, told["config"], {(queue, 0): told["entries"]}, told["together"], told["block_entries"]),
        *(told["queue_offset"], told["count_max"], told["wanted"], told["template"], told["opaque"]),
        *(told["lowest_place"], lambda size, at: VIEW[at : at + size]),
    )


def test_what_is_kept_is_used_like_what_was_just_read() -> None:
    assert kept() == made(USUAL)
    assert kept(wanted=frozenset({1})) == made(USUAL, wanted=frozenset({1}))
    assert kept(count_max=-5) == made(USUAL, count_max=1, scan_max=1)
    assert kept(queue_offset=2) == made(USUAL, queue_offset=2, first=2)
    for changes in (
        *({"queue_offset": 3}, {"queue_offset": -1}, {"together": 0}, {"together": -3}, {"entries": b""}),
        *({"together": 2, "queue_offset": 2}, {"entries": None}, {"block_entries": 0}, {"lowest_place": 11}),
        *({"entries": bytes(60)}, {"count_max": 1 << 70}, {"wanted": "a"}, {"template": b"%d"}),
        {"entries": ENTRY.pack(*USUAL[0])},  # is it a mere copy of the next?
    ):
        assert kept(**changes) is None, changes

    class Old(Numbers):
        old_end = 1

    class Odd(Numbers):
        max_offset: Any = "3"

    class Unhashable(Numbers):
        __hash__ = None  # type: ignore[assignment]

    assert kept(Old) is None
    assert kept(Odd) is None
    assert kept(config=Odd) is not None
    with pytest.raises(AttributeError):
        kept(config=5)
    assert native is not None
    with pytest.raises(TypeError):
        native.kept_reply(Unhashable(), Numbers, {}, 3, 256, 0, 32, None, b"%d", 1, 0, None)


# ------------------------------------------------------------------------------------------- properties

V4, V6 = pack_host("10.1.2.3", 1234), pack_host("::1", 10911)
NAMES = (b"a", b"ab", b"TAGS", b"n")
texts = st.sampled_from([b"", b"1", b"TAGS", b"a\x01b", b"\xff\xfe", b"x" * 40])
entries_of_a_record = st.lists(
    st.tuples(
        st.sampled_from([b"", b"a", b"ab", b"TAGS", b"b"]), texts, st.sampled_from([b"\x02", b"\x02\x02"])
    ),
    max_size=6,
)
whole_records = st.builds(
    lambda entries, tail, topic, born, crc: records.encode(
        topic=topic,
        queue_id=1,
        flag=0,
        queue_offset=2,
        physical_offset=3,
        sys_flag=0,
        born_ms=4,
        born_host=born,
        store_ms=5,
        store_host=V4,
        body=b"body",
        properties=b"".join(name + b"\x01" + value + end for name, value, end in entries) + tail,
        reconsume_times=0,
        prepared_offset=0,
        append_crc=crc,
    ),
    entries_of_a_record,
    st.sampled_from([b"", b"a\x01end", b"TAGS\x01", b"a"]),
    st.sampled_from([b"T", b"t" * 127, b"t" * 300]),
    st.sampled_from([V4, V4, V6]),
    st.booleans(),
)


def damaged(record: bytes, at: int, by: bytes) -> bytes:
    at %= len(record)
    return record[:at] + by + record[at + len(by) :]


any_records = st.one_of(
    whole_records,
    st.builds(lambda record, size: record[:size], whole_records, st.integers(0, 120)),
    st.builds(damaged, whole_records, st.integers(0, 130), st.sampled_from([b"\xff", b"\x7f", b"\0\0\0\0"])),
    st.binary(max_size=200),
)


@settings(max_examples=200)
@given(st.lists(any_records, max_size=9), st.sampled_from([(), NAMES[:1], NAMES, (b"", b"a\x01b")]))
def test_the_values_of_properties_are_those_that_are_found_plainly(
    many: list[bytes], names: tuple[bytes, ...]
) -> None:
    expected = values_of_each_plainly(many, names)
    assert records.values_of_each(many, names) == expected
    assert records.values_of_each([memoryview(each) for each in many], names) == expected


def test_a_usual_record_is_looked_at_by_nobody_else() -> None:
    assert native is not None
    usual = whole_record(b"a\x011\x02TAGS\x01x\x02")
    assert native.values_of_each([usual], NAMES, None) == [(b"1", None, b"x", None)]


def test_a_length_in_a_record_is_not_believed() -> None:
    usual = whole_record(b"a\x011\x02")
    for number in (-1, 1 << 30, len(usual) - 88, len(usual)):
        odd = usual[:84] + pack(">i", number) + usual[88:]
        assert records.values_of_each([odd, usual], NAMES)[1] == (b"1", None, None, None)


def whole_record(properties: bytes) -> bytes:
    return records.encode(
        topic=b"T",
        queue_id=1,
        flag=0,
        queue_offset=2,
        physical_offset=3,
        sys_flag=0,
        born_ms=4,
        born_host=V4,
        store_ms=5,
        store_host=V4,
        body=b"body",
        properties=properties,
        reconsume_times=0,
        prepared_offset=0,
    )
