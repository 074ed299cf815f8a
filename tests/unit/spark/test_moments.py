"""Moments into offsets, whatever a broker guesses."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from kourou.spark.moments import Bounds, Place, first_at
from kourou.spark.offsets import Queue

QUEUE = Queue("t", "b", 0)


@given(
    st.lists(st.integers(0, 30), max_size=40).map(sorted),
    st.integers(0, 20),
    st.integers(0, 32),
    st.integers(0, 70),
)
def test_the_first_that_is_not_older_is_found(times: list[int], first: int, moment: int, guess: int) -> None:
    def look(places: Iterable[Place]) -> dict[Place, int]:
        return {(queue, offset): times[offset - first] for queue, offset in places}

    bounds = Bounds(first, first + len(times))
    found = first_at({QUEUE: moment}, {QUEUE: guess}, {QUEUE: bounds}, look)
    assert found == {QUEUE: first + bisect_left(times, moment)}


def test_a_good_guess_takes_one_look() -> None:
    looks = 0

    def look(places: Iterable[Place]) -> dict[Place, int]:
        nonlocal looks
        looks += 1
        return {(queue, offset): offset for queue, offset in places}

    assert first_at({QUEUE: 500}, {QUEUE: 500}, {QUEUE: Bounds(0, 1000)}, look) == {QUEUE: 500}
    assert looks == 1


def test_what_cannot_be_read_is_taken_for_older() -> None:
    found = first_at(
        {QUEUE: 5}, {QUEUE: 0}, {QUEUE: Bounds(0, 10)}, lambda places: {p: 9 for p in places if p[1] > 3}
    )
    assert found == {QUEUE: 4}
