"""Which messages are read next, and by how many tasks: tables and properties."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.spark.offsets import Offsets, Queue, Range
from kourou.spark.planning import (
    backward,
    kept,
    limited,
    mean_bytes,
    packed,
    ranges_between,
    sampled_places,
    share_out,
)

A, B, C = (Queue("t", "broker", number) for number in range(3))

queues = st.builds(Queue, st.sampled_from(["t", "u"]), st.sampled_from(["a", "b"]), st.integers(0, 5))
backlogs = st.dictionaries(queues, st.integers(0, 1000), min_size=1, max_size=8)


@given(backlogs, st.integers(1, 3000))
def test_shares_fit_into_the_room_and_waste_none_of_it(backlog: dict[Queue, int], room: int) -> None:
    shares = share_out(backlog, room)
    assert shares.keys() == backlog.keys()
    assert all(0 <= shares[queue] <= backlog[queue] for queue in backlog)
    assert sum(shares.values()) == min(room, sum(backlog.values()))


@given(backlogs, st.integers(8, 3000))
def test_no_queue_starves_where_there_is_room_for_all(backlog: dict[Queue, int], room: int) -> None:
    shares = share_out(backlog, room)
    assert all(shares[queue] > 0 for queue in backlog if backlog[queue] > 0)


def test_where_there_is_less_room_than_queues_they_take_turns() -> None:
    served = {
        queue
        for turn in range(3)
        for queue, share in share_out(dict.fromkeys((A, B, C), 1), 1, turn).items()
        if share
    }
    assert served == {A, B, C}


def test_shares_are_in_proportion() -> None:
    assert share_out({A: 900, B: 90, C: 10}, 100) == {A: 88, B: 10, C: 2}
    assert share_out({A: 14, B: 1, C: 1}, 8) == {A: 6, B: 1, C: 1}


@pytest.mark.parametrize(
    ("rows_max", "bytes_max", "expected"),
    [
        (None, None, {A: 100, B: 50}),
        (30, None, {A: 20, B: 10}),
        (None, 30_000, {A: 20, B: 10}),
        (15, 30_000, {A: 10, B: 5}),
        (30, 15_000, {A: 10, B: 5}),
        (None, 1, {A: 1, B: 0}),
        (1000, 1_000_000, {A: 100, B: 50}),
    ],
)
def test_a_batch_is_limited_by_rows_and_by_bytes(
    rows_max: int | None, bytes_max: int | None, expected: Offsets
) -> None:
    end = limited({A: 0, B: 0}, {A: 100, B: 50}, rows_max, bytes_max, {A: 1000.0, B: 1000.0})
    assert end == expected


ranges = st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 5000)), min_size=1, max_size=8).map(
    lambda pairs: [
        Range(Queue("t", "b", number), start, start + length) for number, (start, length) in enumerate(pairs)
    ]
)


@given(
    ranges,
    st.integers(1, 100_000),
    st.none() | st.integers(1, 1000),
    st.none() | st.integers(1, 50),
    st.integers(1, 5000),
)
def test_tasks_cover_every_message_once_and_in_order(
    given_ranges: list[Range], target: int, rows_max: int | None, least: int | None, record_bytes: int
) -> None:
    sizes = {part.queue: float(record_bytes) for part in given_ranges}
    tasks = packed(given_ranges, sizes, target, rows_max=rows_max, partitions_min=least)
    pieces = [piece for task in tasks for piece in task]
    assert all(len(piece) > 0 for piece in pieces)
    for part in given_ranges:
        own = [piece for piece in pieces if piece.queue == part.queue]
        assert own[0].start == part.start
        assert own[-1].end == part.end
        assert all(before.end == after.start for before, after in pairwise(own))
    for task in tasks:
        rows = sum(len(piece) for piece in task)
        assert rows * record_bytes <= target or rows == 1
        assert rows_max is None or rows <= rows_max
    if least is not None:
        assert len(tasks) >= min(least, sum(len(part) for part in given_ranges))
    assert tasks == packed(given_ranges, sizes, target, rows_max=rows_max, partitions_min=least)


@pytest.mark.parametrize(
    ("parts", "target", "more", "tasks"),
    [
        ([], 1000, {}, 0),
        ([(A, 0, 10), (B, 0, 10), (C, 0, 10)], 100_000, {}, 1),
        ([(A, 0, 10), (B, 0, 10), (C, 0, 10)], 1000, {}, 3),
        ([(A, 0, 100)], 1000, {}, 10),
        ([(A, 0, 100), (B, 0, 5), (C, 0, 5)], 1000, {}, 11),
        ([(A, 0, 100)], 100_000, {"rows_max": 30}, 4),
        ([(A, 0, 100)], 100_000, {"partitions_min": 7}, 8),
        ([(A, 0, 10), (B, 0, 10)], 100_000, {"partitions_min": 2}, 2),
    ],
)
def test_small_queues_are_put_together_and_large_ones_cut(
    parts: list[tuple[Queue, int, int]], target: int, more: dict[str, int], tasks: int
) -> None:
    assert (
        len(packed([Range(*part) for part in parts], dict.fromkeys((A, B, C), 100.0), target, **more))
        == tasks
    )


def test_what_retention_took_is_named_by_queue_range_and_count() -> None:
    left, lost = kept([Range(A, 5, 20), Range(B, 0, 10), Range(C, 3, 4)], {A: 12, B: 30, C: 0})
    assert left == [Range(A, 12, 20), Range(C, 3, 4)]
    assert [str(loss) for loss in lost] == [
        "7 messages, offsets 5 to 11, of queue 0 of 't' at broker: the queue begins at 12 now (retention)",
        "10 messages, offsets 0 to 9, of queue 1 of 't' at broker: the queue begins at 30 now (retention)",
    ]


def test_a_batch_that_ends_before_it_begins_is_a_loss() -> None:
    assert backward({A: 200, B: 5}, {A: 106, B: 5, C: 7})[0][:3] == (A, 106, 200)
    assert backward({A: 1}, {A: 1}) == []


def test_ranges_leave_out_what_has_nothing_new() -> None:
    assert ranges_between({A: 1, B: 5, C: 0}, {B: 9, A: 1, C: 0}) == [Range(B, 5, 9)]


def test_sizes_are_sampled_at_places_that_depend_on_the_range_alone() -> None:
    assert sampled_places([Range(A, 10, 20), Range(B, 0, 100)]) == [
        (A, 10),
        (B, 0),
        (B, 25),
        (B, 50),
        (B, 75),
    ]
    assert mean_bytes([Range(B, 0, 100)], {(B, 0): 100, (B, 25): 300}) == {B: 200.0}
    assert mean_bytes([Range(B, 0, 100)], {}) == {B: 1024.0}
