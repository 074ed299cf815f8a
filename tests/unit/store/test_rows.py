"""Rows of numbers, packed many at a time."""

from __future__ import annotations

from struct import Struct

import pytest

from kourou.store.rows import ROWS_MAX, Rows


@pytest.mark.parametrize("rows", [0, 1, 2, ROWS_MAX - 1, ROWS_MAX, ROWS_MAX + 1, 3 * ROWS_MAX, 1000])
def test_many_rows_are_packed_as_one_after_the_other_would_be(rows: int) -> None:
    numbers = [number for row in range(rows) for number in (row << 33, row, -row)]
    one = Struct(">qiq")
    expected = b"".join(one.pack(row << 33, row, -row) for row in range(rows))
    assert Rows("qiq").pack(numbers) == expected
