"""Long lists, a page at a time: ten thousand topics are not sent to a browser at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kourou.console.given import Given

PAGE_SIZE, PAGE_SIZE_MAX = 50, 1000

Row = TypeVar("Row")


@dataclass(frozen=True)
class PageOf(Generic[Row]):
    rows: list[Row]
    number: int
    size: int
    total: int

    @property
    def last(self) -> int:
        return max(1, -(-self.total // self.size))


def page_of(rows: Sequence[Row], given: Given, size: int = PAGE_SIZE) -> PageOf[Row]:
    """The page that is asked for; the last one when there are fewer."""
    size = given.number("size", size, least=1, most=PAGE_SIZE_MAX)
    number = given.number("page", 1, least=1)
    number = min(number, max(1, -(-len(rows) // size)))
    return PageOf(list(rows[(number - 1) * size : number * size]), number, size, len(rows))
