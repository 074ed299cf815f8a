"""The first message of each queue that was stored at some moment or later, found in as few looks as it takes.

    low              lo ........ hi          high
     |--- older ------|    ?     |-- not older -|

A look is a pull of one record; those of all queues go out together. The first looks are at a broker's guess
and at the place before it: where these are on both sides of the moment, that was all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from kourou.spark.offsets import Offsets, Queue

Place: TypeAlias = tuple[Queue, int]
Look: TypeAlias = Callable[[Iterable[Place]], Mapping[Place, int]]
"""When the messages at some places were stored; those that cannot be read are left out."""


class Bounds(NamedTuple):
    """Where a queue begins and ends."""

    low: int
    high: int


def first_at(
    moments_ms: Mapping[Queue, int],
    guesses: Mapping[Queue, int],
    bounds: Mapping[Queue, Bounds],
    look: Look,
) -> Offsets:
    """Where each queue is as new as its moment; its end where it is not."""
    low = {queue: bounds[queue].low for queue in moments_ms}
    high = {queue: bounds[queue].high for queue in moments_ms}
    places = [
        (queue, offset)
        for queue in moments_ms
        for offset in (guesses[queue] - 1, guesses[queue])
        if low[queue] <= offset < high[queue]
    ]
    while True:
        times = look(places)
        for queue, offset in places:
            # What cannot be read is taken for older: retention takes the oldest.
            if times.get((queue, offset), -1) < moments_ms[queue]:
                low[queue] = max(low[queue], offset + 1)
            else:
                high[queue] = min(high[queue], offset)
        places = [
            (queue, (low[queue] + high[queue]) // 2) for queue in moments_ms if low[queue] < high[queue]
        ]
        if not places:
            return {queue: low[queue] for queue in moments_ms}
