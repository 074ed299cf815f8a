"""Who is due when: order, slots that come near, and the file it is written to."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kourou.errors import Corrupt
from kourou.store.timers import AHEAD_MS, SLOT_MS, PendingTimers, key_of, read_timers, time_and_place

NOW = 1_700_000_000_000


def taken(pending: PendingTimers, now_ms: int, most: int = 1_000_000) -> list[tuple[int, int]]:
    pending.prepare(now_ms, most)
    return [time_and_place(key) for key in pending.take_due(now_ms, most)]


def test_a_key_holds_a_time_and_a_place() -> None:
    assert time_and_place(key_of(NOW, (1 << 62) + 5)) == (NOW, (1 << 62) + 5)
    assert key_of(NOW, 1 << 62) < key_of(NOW + 1, 0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(NOW - SLOT_MS, NOW + 5 * SLOT_MS), max_size=60),
    st.lists(st.integers(1, 2 * SLOT_MS), min_size=1, max_size=12),
    st.integers(1, 9),
)
def test_everybody_comes_out_once_in_order_and_never_early(
    dues: list[int], steps: list[int], most: int
) -> None:
    pending, came, now_ms = PendingTimers(), [], NOW
    for place, due_ms in enumerate(dues):
        pending.add(due_ms, place)
    for step in (*steps, 6 * SLOT_MS):
        now_ms += step
        for _ in range(len(dues) * 3 + 3):
            floor = pending.floor
            pending.prepare(now_ms, most)
            keys = pending.take_due(now_ms, most)
            assert all(time_and_place(key)[0] <= now_ms for key in keys)
            assert floor is None or all(key >= floor for key in keys)
            came += keys
    assert came == sorted(key_of(due_ms, place) for place, due_ms in enumerate(dues))
    assert len(pending) == 0
    assert pending.floor is None
    assert pending.next_ms() is None


def test_timers_far_ahead_are_moved_near_in_parts_and_in_time() -> None:
    pending = PendingTimers()
    pending.prepare(NOW, 1)
    due_ms = (NOW // SLOT_MS + 10) * SLOT_MS + 5
    for place in range(10):
        pending.add(due_ms, place)
    assert pending.next_ms() == due_ms - 5 - AHEAD_MS
    pending.prepare(due_ms - 5 - AHEAD_MS, 4)
    assert pending.next_ms() == 0  # the rest is to be moved at once
    assert taken(pending, due_ms, most=4) == []
    assert taken(pending, due_ms) == [(due_ms, place) for place in range(10)]


def test_none_is_given_out_while_an_earlier_one_may_still_have_to_be_moved() -> None:
    pending = PendingTimers()
    for place in range(10):
        pending.add(NOW - place, place)
    pending.prepare(NOW, 4)
    assert pending.take_due(NOW, 100) == []
    assert [place for _, place in taken(pending, NOW)] == list(reversed(range(10)))


def test_what_is_given_back_comes_out_again_and_what_was_noted_twice_only_once() -> None:
    pending = PendingTimers()
    pending.add(NOW, 1)
    pending.add(NOW, 1)
    pending.prepare(NOW, 10)
    keys = pending.take_due(NOW, 10)
    assert keys == [key_of(NOW, 1)]
    pending.give_back(keys)
    assert len(pending) == 1
    assert pending.take_due(NOW, 10) == keys


def test_the_written_list_has_everybody_near_far_moving_and_those_named() -> None:
    pending = PendingTimers()
    pending.prepare(NOW, 1)
    expected = [(NOW + number * SLOT_MS // 3, number) for number in range(20)]
    for due_ms, place in expected:
        pending.add(due_ms, place)
    pending.prepare(NOW + 4 * SLOT_MS, 5)
    assert pending._is_moving
    encoded = pending.frozen(77, [key_of(NOW, 99)])
    pending.take_due(NOW + 40 * SLOT_MS, 100)  # what happens afterwards does not show
    queue_offset, timers = read_timers(encoded())
    assert queue_offset == 77
    assert sorted(timers) == sorted([*expected, (NOW, 99)])


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: d[:40], lambda d: b"", lambda d: d + b"x"])
def test_a_damaged_list_is_noticed(damage: object) -> None:
    pending = PendingTimers()
    pending.add(NOW, 5)
    assert callable(damage)
    with pytest.raises(Corrupt):
        read_timers(damage(pending.frozen(1)()))


def test_one_flipped_bit_of_a_list_is_noticed() -> None:
    pending = PendingTimers()
    pending.add(NOW, 5)
    data = bytearray(pending.frozen(1)())
    for at in range(len(data)):
        data[at] ^= 1
        with pytest.raises(Corrupt):
            read_timers(bytes(data))
        data[at] ^= 1


@pytest.mark.parametrize("spread_ms", [500_000, 40 * 86_400_000], ids=["all-near", "forty-days"])
def test_a_million_timers_take_less_than_200_mib_also_while_they_are_written(spread_ms: int) -> None:
    count = 20_000
    now_ms = 1_800_000_000_000
    tracemalloc.start()
    try:
        pending = PendingTimers()
        pending.prepare(now_ms, 1)
        before, _ = tracemalloc.get_traced_memory()
        for number in range(count):
            pending.add(now_ms + number * 7919 * 1009 % spread_ms, (1 << 40) + 300 * number)
        pending.frozen(count)()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    rest_of_a_broker = 60 << 20
    # Forty days have 5,760 slots, and each its array: with few timers that is much for each of them.
    slots = 200 * min(5_760, spread_ms // 600_000 + 1)
    assert (most - before - slots) / count * 1_000_000 + rest_of_a_broker < 200 << 20
