"""Which messages a reader gets, and where it goes on: the table of wire-protocol.md, 6.4."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kourou.doors.files import RealFiles
from kourou.doors.simulated_files import SimulatedFiles
from kourou.protocol.java_hash import java_hash
from kourou.protocol.record import decode_all
from kourou.store import ahead, reading
from kourou.store.ahead import FILTERED_BLOCK_ENTRIES, matching
from kourou.store.config import ENTRY_BYTES
from kourou.store.consume_queue import ENTRY
from kourou.store.reading import Accepts
from kourou.store.store import ReadResult, ReadStatus, Store
from tests.unit.store.folder import ROOT, draft, fill, log_path, overwrite, queue_path, store_on


def bodies(result: ReadResult) -> list[bytes]:
    found = [record.body for record in decode_all(b"".join(result.messages))]
    assert len(found) == result.count
    return found


def record_body(record: bytes | memoryview) -> bytes:
    return decode_all(record)[0].body


def test_offsets_outside_the_queue_say_where_to_go_on() -> None:
    store = store_on(SimulatedFiles())
    fill(store, 5)
    answers = {
        offset: (result.status, result.next_offset, result.min_offset, result.max_offset, result.count)
        for offset in (-1, 5, 6, 99)
        for result in [store.read("T", 0, offset)]
    }
    assert answers == {
        -1: (ReadStatus.OFFSET_TOO_SMALL, 0, 0, 5, 0),
        5: (ReadStatus.OFFSET_OVERFLOW_ONE, 5, 0, 5, 0),
        6: (ReadStatus.OFFSET_OVERFLOW_BADLY, 5, 0, 5, 0),
        99: (ReadStatus.OFFSET_OVERFLOW_BADLY, 5, 0, 5, 0),
    }
    assert store.read("T", 1, 3).status is ReadStatus.NO_MESSAGE_IN_QUEUE
    assert store.read("nobody", 0, 0).next_offset == 0


def test_a_read_in_bulk_brings_the_same_without_the_limits_of_a_pull(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = store_on(RealFiles(), root=str(tmp_path / "store"))
    for number in range(700):
        store.append(draft(b"%04d" % number * 50, queue_id=number % 2))
    by_pulls: list[bytes] = []
    while len(by_pulls) < 350:
        by_pulls += bodies(store.read("T", 0, len(by_pulls)))
    assert bodies(store.read("T", 0, 0, 1 << 16, in_bulk=True)) == by_pulls
    few = store.read("T", 0, 7, 1 << 16, 2_000, in_bulk=True)
    assert 0 < few.size <= 2_000
    assert bodies(few) == by_pulls[7 : few.next_offset]
    monkeypatch.setattr(reading, "_VIEW_BYTES_MAX", 4_000)  # what one look takes in, with those of queue 1
    some = store.read("T", 0, 7, 1 << 16, in_bulk=True)
    assert 1 < some.count < 20
    assert bodies(some) == by_pulls[7 : some.next_offset]


def test_a_queue_that_has_seen_nothing_visible_has_no_message() -> None:
    store = store_on(SimulatedFiles())
    store.append(draft(sys_flag=0x4))
    assert store.read("T", 0, 0).status is ReadStatus.NO_MESSAGE_IN_QUEUE


@pytest.mark.parametrize("others", [0, 1, 3])
def test_at_most_32_messages_come_at_once_side_by_side_or_not(others: int) -> None:
    store = store_on(SimulatedFiles(), commit_log_segment_bytes=1 << 20)
    for number in range(40):
        store.append(draft(b"%d" % number))
        for other in range(others):
            store.append(draft(topic="U", queue_id=other))
    for offset, count_max, expected in ((0, 100, 32), (0, 5, 5), (38, 32, 2), (7, 0, 1), (3, -1, 1)):
        result = store.read("T", 0, offset, count_max)
        assert bodies(result) == [b"%d" % number for number in range(offset, offset + expected)]
        assert result.next_offset == offset + expected
        assert (len(result.messages) == 1) == (others == 0 or expected == 1)


@pytest.mark.parametrize("others", [0, 1])
def test_bytes_are_limited_but_one_message_always_comes(others: int) -> None:
    store = store_on(SimulatedFiles(), commit_log_segment_bytes=1 << 20)
    sizes = []
    for number in range(10):
        sizes.append(store.append(draft(bytes(100 * number))).size)
        if others:
            store.append(draft(topic="U"))
    assert store.read("T", 0, 0, 32, sum(sizes[:4])).count == 4
    assert store.read("T", 0, 0, 32, sum(sizes[:4]) - 1).count == 3
    assert store.read("T", 0, 9, 32, 1).count == 1
    assert store.read("T", 0, 5, 32, 1).next_offset == 6


def test_far_behind_readers_get_less_at_a_time() -> None:
    store = store_on(SimulatedFiles(), in_memory_bytes=3000, commit_log_segment_bytes=1 << 20)
    fill(store, 60)
    old, new = store.read("T", 0, 0), store.read("T", 0, 58)
    assert (old.count, old.is_behind) == (8, True)
    assert (new.count, new.is_behind) == (2, False)
    tagged = store.read("T", 0, 0, wanted={java_hash("TagA")})
    assert (tagged.count, tagged.is_behind) == (8, True)


def mixed(count: int, **settings: Any) -> Store:
    store = store_on(SimulatedFiles(), commit_log_segment_bytes=1 << 20, **settings)
    for number in range(count):
        tag = b"" if number % 5 == 4 else b"TAGS\x01t%d\x02" % (number % 5)
        store.append(draft(b"%d" % number, properties=tag))
    return store


@pytest.mark.parametrize("tags", [{"t1"}, {"t1", "t3"}, {"t0", "t1", "t2", "t3", "x", "y"}])
def test_a_filter_gives_the_wanted_tags_alone(tags: set[str]) -> None:
    store = mixed(60)
    wanted = {java_hash(tag) for tag in tags}
    found: list[bytes] = []
    offset = 0
    while offset < 60:
        result = store.read("T", 0, offset, 7, wanted=wanted)
        found += bodies(result)
        offset = result.next_offset
    assert found == [b"%d" % number for number in range(60) if f"t{number % 5}" in tags]


def test_a_filter_that_matches_nothing_goes_on_after_what_it_has_seen() -> None:
    store = mixed(60, scan_entries_max=40)
    result = store.read("T", 0, 0, wanted={java_hash("nobody")})
    assert (result.status, result.next_offset, result.count) == (ReadStatus.NO_MATCHED_MESSAGE, 40, 0)
    result = store.read("T", 0, 40, wanted={java_hash("nobody")})
    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 60)


def test_a_full_filtered_answer_goes_on_at_the_first_message_it_left_out() -> None:
    store = mixed(60)
    result = store.read("T", 0, 0, 2, wanted={java_hash("t1")})
    assert bodies(result) == [b"1", b"6"]
    assert result.next_offset == 11


def test_a_reader_may_look_at_whole_records() -> None:
    store = mixed(20)
    result = store.read("T", 0, 0, accepts=lambda many: [b"7" in record_body(each) for each in many])
    assert bodies(result) == [b"7", b"17"]
    both = store.read(
        "T", 0, 0, wanted={java_hash("t2")}, accepts=lambda many: [b"1" in record_body(each) for each in many]
    )
    assert bodies(both) == [b"12", b"17"]


def test_entries_whose_records_are_gone_are_skipped() -> None:
    """Between the going of a log file and the correction of the queue's beginning."""
    store = store_on(SimulatedFiles())
    fill(store, 60)
    queue = store._queues.table["T", 0]
    store._log.segments.forget(0)
    result = store.read("T", 0, 0, 8)
    assert (result.status, result.next_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, 8)
    queue.correct_min(store.start)
    assert store.read("T", 0, 0).status is ReadStatus.OFFSET_TOO_SMALL
    assert store.read("T", 0, queue.min_offset).status is ReadStatus.FOUND


def test_a_missing_queue_file_sends_the_reader_to_the_next() -> None:
    store = store_on(SimulatedFiles())
    fill(store, 120)
    store._queues.table["T", 0].segments.forget(1000)
    result = store.read("T", 0, 60)
    assert (result.status, result.next_offset) == (ReadStatus.OFFSET_FOUND_NULL, 100)


def test_with_tags_kept_elsewhere_unknown_ones_are_let_through() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 3)
    store.close()
    overwrite(
        files, queue_path(), 20, ENTRY.pack(*ENTRY.unpack(files.read(queue_path())[20:40])[:2], -(1 << 62))
    )
    files.make_folders(f"{ROOT}/consumequeue_ext")
    store = store_on(files)
    assert bodies(store.read("T", 0, 0, wanted={1})) == [b"T-0-1"]
    assert files.exists(log_path())


@given(st.lists(st.integers(-3, 3), max_size=60), st.sets(st.integers(-4, 4), max_size=6))
def test_entries_are_matched_as_by_looking_at_each(tags: list[int], wanted: set[int]) -> None:
    expected = [index for index, tag in enumerate(tags) if tag in wanted]
    assert list(matching(tags, frozenset(wanted))) == expected
    assert list(matching(tags, frozenset(wanted), True)) == expected


def outcome(result: ReadResult) -> tuple[object, ...]:
    return (
        *(result.status, result.next_offset, result.min_offset, result.max_offset, result.count),
        *(result.is_behind, b"".join(result.messages)),
    )


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 600)), max_size=80),
    st.lists(
        st.tuples(
            *(st.integers(0, 60), st.integers(0, 40), st.sampled_from([300, 3000, 1 << 31])),
            *(st.sampled_from([None, {1}, {1, 2}, {0, 1, 2, 3, 4, 5}]), st.booleans()),
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([0, 5000]),
)
def test_records_seen_are_the_records_read(
    messages: list[tuple[int, int, int]],
    reads: list[tuple[int, int, int, set[int] | None, bool]],
    in_memory_bytes: int,
) -> None:
    files = SimulatedFiles()
    store = store_on(
        files, in_memory_bytes=in_memory_bytes, commit_log_segment_bytes=8192, scan_entries_max=20
    )
    for queue_id, tag, size in messages:
        store.append(draft(bytes([tag]) * size, queue_id=queue_id, tags_code=tag))
    for queue_offset, count_max, bytes_max, wanted, is_asked in reads:
        accepts = (lambda many: [len(record) % 2 == 0 for record in many]) if is_asked else None
        arguments = ("T", 0, queue_offset, count_max, bytes_max, wanted, accepts)
        seen = outcome(store.read(*arguments))
        files.fail("view", times=1 << 60)
        assert outcome(store.read(*arguments)) == seen
        files.fail("view", times=0)


def even(many: Sequence[bytes | memoryview]) -> list[bool]:
    return [len(record) % 2 == 0 for record in many]


@settings(max_examples=120)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 600)), max_size=120),
    st.lists(
        st.tuples(
            *(st.integers(0, 60), st.integers(0, 40), st.sampled_from([300, 3000, 1 << 31])),
            *(st.sampled_from([None, {1}, {1, 2}, {0, 1, 2, 3, 4, 5}, {9}]), st.sampled_from([None, even])),
        ),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.integers(0, 40), max_size=3),
    st.sampled_from([0, 0, 5000]),
    st.sampled_from([1500, 1 << 20]),
    st.booleans(),
)
def test_records_gathered_ahead_are_the_records_read(
    messages: list[tuple[int, int, int]],
    reads: list[tuple[int, int, int, set[int] | None, Accepts | None]],
    damaged: list[int],
    in_memory_bytes: int,
    stretch_bytes_max: int,
    is_first_segment_gone: bool,
) -> None:
    files = SimulatedFiles()
    store = store_on(
        files, in_memory_bytes=in_memory_bytes, commit_log_segment_bytes=8192, scan_entries_max=20
    )
    for queue_id, tag, size in messages:
        store.append(draft(bytes([tag]) * size, queue_id=queue_id, tags_code=tag))
    queue = store._queues.get_or_make("T", 0)
    for queue_offset in damaged:
        following = queue.entries(queue_offset + 1, 1)
        if following:
            queue.segments.write(following, queue_offset * ENTRY_BYTES)
    with pytest.MonkeyPatch.context() as patch:
        for module in (ahead, reading):
            patch.setattr(module, "BLOCK_ENTRIES", 4)
            patch.setattr(module, "FILTERED_BLOCK_ENTRIES", 6)
        patch.setattr(ahead, "STRETCH_BYTES_MAX", stretch_bytes_max)
        for number, arguments in enumerate([*reads, *reads]):
            gathered = outcome(store.read("T", 0, *arguments))
            with patch.context() as inner:
                inner.setattr(store._reader.ahead, "stretch", lambda *_: None)
                assert outcome(store.read("T", 0, *arguments)) == gathered
            if number == 3 and is_first_segment_gone and len(store._log.segments.bases) > 1:
                store._log.segments.forget(store._log.segments.bases[0])


def test_a_block_is_gathered_once_for_all_its_readers() -> None:
    files = SimulatedFiles()
    store = store_on(files, commit_log_segment_bytes=1 << 20, consume_queue_segment_entries=1000)
    for number in range(70):
        store.append(draft(b"%d" % number))
        store.append(draft(queue_id=1))
    asked: list[int] = []

    def accepts(many: Sequence[bytes | memoryview]) -> list[bool]:
        asked.append(len(many))
        return [record_body(each).endswith(b"3") for each in many]

    views, reads = (files.counts.get(kind, 0) for kind in ("view", "pread"))
    for offset in (0, 7, 32, 5):
        assert bodies(store.read("T", 0, offset)) == [b"%d" % n for n in range(offset, offset + 32)]
    assert (files.counts["view"] - views, files.counts["pread"] - reads) == (1, 1)
    for number in range(300):
        store.append(draft(b"%d" % number, queue_id=2))
    for offset, expected in ((0, [b"3", b"13"]), (3, [b"3", b"13"]), (4, [b"13", b"23"])):
        assert bodies(store.read("T", 2, offset, 2, accepts=accepts)) == expected
    assert asked == [FILTERED_BLOCK_ENTRIES]


def test_records_are_seen_without_a_read_each() -> None:
    files = SimulatedFiles()
    store = store_on(files, commit_log_segment_bytes=1 << 20)
    for _ in range(20):
        store.append(draft())
        store.append(draft(queue_id=1))
    reads = files.counts.get("pread", 0)
    assert store.read("T", 0, 0).count == 20
    assert files.counts["pread"] - reads == 1  # the entries
    assert (
        store.read("T", 0, 0, wanted={java_hash("TagA")}, accepts=lambda many: [True] * len(many)).count == 20
    )
    assert files.counts["pread"] - reads == 2


def test_a_disk_that_fails_is_told_by_the_read_and_not_by_a_view() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 3)
    files.fail("view", times=10)
    assert store.read("T", 0, 0).count == 3
    files.fail("pread", after=1)
    with pytest.raises(OSError, match="Input/output error"):
        store.read("T", 0, 0)


def test_a_segment_that_goes_takes_its_views_along(tmp_path: Path) -> None:
    files = RealFiles()
    store = store_on(files, root=str(tmp_path), commit_log_segment_bytes=8192)
    for number in range(30):
        store.append(draft(b"%d" % number * 300))
        store.append(draft(queue_id=1))
    seen = store.read("T", 0, 0, 3)
    assert (seen.count, len(files._windows)) == (3, 1)
    files.remove(store._log.segments.forget(store._log.segments.bases[0]))
    assert len(files._windows) == 0  # or its blocks would stay on the disk
    assert bodies(seen) == [b"%d" % number * 300 for number in range(3)]
    assert store.read("T", 0, 0, 3).status is ReadStatus.MESSAGE_WAS_REMOVING
    store.close()
