"""Rows of numbers, many at a time: entries of a consume queue, of an index file.

One `Struct` for a whole tick's rows packs many times as fast as one row after the other. Structs are made for
up to 64 rows and used again and again: one for every number of rows there may be would fill megabytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

ROWS_MAX = 64


class Rows:
    def __init__(self, row: str) -> None:
        """`row` is the format of one row, big-endian: `qiq`, say."""
        self._row = row
        self.numbers = len(row)
        """How many numbers a row has."""
        self.size = Struct(f">{row}").size
        self._structs: list[Struct | None] = [None] * (ROWS_MAX + 1)

    def pack(self, numbers: Sequence[int]) -> bytes:
        """The rows as bytes; `numbers` holds those of all rows, one row after the other."""
        rows = len(numbers) // self.numbers
        if rows <= ROWS_MAX:
            return self._struct(rows).pack(*numbers)
        step = ROWS_MAX * self.numbers
        pack = self._struct(ROWS_MAX).pack
        whole = len(numbers) - len(numbers) % step
        parts = [pack(*numbers[at : at + step]) for at in range(0, whole, step)]
        return b"".join([*parts, self._struct(rows % ROWS_MAX).pack(*numbers[whole:])])

    def _struct(self, rows: int) -> Struct:
        struct = self._structs[rows]
        if struct is None:
            struct = self._structs[rows] = Struct(">" + self._row * rows)
        return struct
