"""Which messages are read next, and by how many tasks: pure functions over tables of offsets.

What is planned for a range depends on nothing but the range, the options and the sizes of the records at
fixed places in it: a batch that is planned again after a crash gets the same partitions. A sink that takes
`partition 3 of batch 7` for the same messages relies on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from kourou.spark.offsets import Offsets, Queue, Range

RECORD_BYTES_ASSUMED = 1024.0
"""Of messages nobody could look at beforehand."""

SAMPLES = 4
SAMPLED_ROWS_MIN = 64
"""A range shorter than this is judged by its first record."""


# ----------------------------------------------------------------------------------------------- ranges


def ranges_between(start: Mapping[Queue, int], end: Mapping[Queue, int]) -> list[Range]:
    """What lies between two tables, queue by queue; queues without anything new are left out."""
    return [Range(queue, start[queue], end[queue]) for queue in sorted(end) if start[queue] < end[queue]]


class Loss(NamedTuple):
    """Messages that were to be read and are not there any more, or never were."""

    queue: Queue
    start: int
    end: int
    why: str

    def __str__(self) -> str:
        count = self.end - self.start
        plural = "s" * (count != 1)
        return f"{count} message{plural}, offsets {self.start} to {self.end - 1}, of {self.queue}: {self.why}"


def kept(ranges: Iterable[Range], lows: Mapping[Queue, int]) -> tuple[list[Range], list[Loss]]:
    """What is left of ranges whose queues now begin at `lows`, and what is lost of them."""
    left, lost = [], []
    for queue, start, end in ranges:
        low = lows.get(queue, start)
        if low > start:
            lost.append(Loss(queue, start, min(low, end), f"the queue begins at {low} now (retention)"))
        if max(low, start) < end:
            left.append(Range(queue, max(low, start), end))
    return left, lost


def backward(start: Mapping[Queue, int], end: Mapping[Queue, int]) -> list[Loss]:
    """Queues whose planned end lies before the planned start: somebody has forgotten where it began."""
    return [
        Loss(queue, end[queue], start[queue], "the batch was planned to end before it begins")
        for queue in sorted(end)
        if start.get(queue, 0) > end[queue]
    ]


def beyond(start: Mapping[Queue, int], ends: Mapping[Queue, int]) -> list[Loss]:
    """Queues that end before the place where they are to be read on."""
    return [
        Loss(queue, ends[queue], start[queue], f"the queue ends at {ends[queue]} now")
        for queue in sorted(start)
        if queue in ends and ends[queue] < start[queue]
    ]


# ------------------------------------------------------------------------------------------------ limits


def share_out(backlog: Mapping[Queue, int], room: int, turn: int = 0) -> dict[Queue, int]:
    """How many of its messages each queue may give when all together may give `room`.

    One each, and of what is left in proportion to what each has left. Where there is less room than queues,
    they take turns.
    """
    total = sum(backlog.values())
    if total <= room:
        return dict(backlog)
    queues = [queue for queue in sorted(backlog) if backlog[queue] > 0]
    if room < len(queues):
        served = {queues[(turn + number) % len(queues)] for number in range(room)}
        return {queue: int(queue in served) for queue in backlog}
    room, total = room - len(queues), total - len(queues)
    shares = {queue: 1 + (backlog[queue] - 1) * room // total for queue in queues}
    left = room + len(queues) - sum(shares.values())
    by_remainder = sorted(queues, key=lambda queue: -((backlog[queue] - 1) * room % total))
    for queue in by_remainder[:left]:
        shares[queue] += 1
    return {queue: shares.get(queue, 0) for queue in backlog}


def limited(
    start: Mapping[Queue, int],
    end: Mapping[Queue, int],
    rows_max: int | None,
    bytes_max: int | None = None,
    record_bytes: Mapping[Queue, float] | None = None,
) -> Offsets:
    """Where a batch ends that begins at `start` and may take no more than this, but at least one message."""
    backlog = {queue: max(end[queue] - start[queue], 0) for queue in end}
    room = rows_max
    if bytes_max is not None:
        sizes = record_bytes or {}
        total = sum(rows * sizes.get(queue, RECORD_BYTES_ASSUMED) for queue, rows in backlog.items())
        if total > bytes_max:
            rows = sum(backlog.values())
            by_bytes = max(1, int(rows * (bytes_max / total)))
            room = by_bytes if room is None else min(room, by_bytes)
    if room is None:
        return dict(end)
    shares = share_out(backlog, room, turn=sum(start.values()))
    return {queue: start[queue] + shares[queue] for queue in end}


# ------------------------------------------------------------------------------------------------- tasks


def sampled_places(ranges: Iterable[Range]) -> list[tuple[Queue, int]]:
    """Where to look to know how large the records of these ranges are."""
    places = []
    for part in ranges:
        rows = len(part)
        count = SAMPLES if rows >= SAMPLED_ROWS_MIN else 1
        places += [(part.queue, part.start + rows * number // count) for number in range(count)]
    return places


def mean_bytes(ranges: Iterable[Range], sizes: Mapping[tuple[Queue, int], int]) -> dict[Queue, float]:
    """The mean size of a record by queue, from the sizes at `sampled_places`."""
    means: dict[Queue, float] = {}
    for part in ranges:
        found = [sizes[place] for place in sampled_places([part]) if place in sizes]
        means[part.queue] = sum(found) / len(found) if found else RECORD_BYTES_ASSUMED
    return means


def packed(
    ranges: Sequence[Range],
    record_bytes: Mapping[Queue, float],
    target_bytes: int,
    *,
    rows_max: int | None = None,
    partitions_min: int | None = None,
) -> list[tuple[Range, ...]]:
    """The ranges of each task: large ones cut evenly, small ones put together, in the order of the queues.

    No task has more than about `target_bytes`, nor more than `rows_max` messages. With `partitions_min` there
    are at least so many, as far as there are messages.
    """
    weights = {part.queue: max(record_bytes.get(part.queue, RECORD_BYTES_ASSUMED), 1.0) for part in ranges}
    target = float(target_bytes)
    if partitions_min is not None:
        rows = sum(len(part) for part in ranges)
        rows_max = min(rows_max or rows, max(rows // partitions_min, 1)) or None
        # Equal weights: so many tasks are wanted for their number, whatever lies in them.
    tasks: list[list[Range]] = []
    task_bytes, task_rows = 0.0, 0
    for part in ranges:
        for piece in _cut(part, weights[part.queue], target, rows_max):
            size, rows = len(piece) * weights[part.queue], len(piece)
            is_full = task_bytes + size > target or (rows_max is not None and task_rows + rows > rows_max)
            if not tasks or is_full:
                tasks.append([])
                task_bytes, task_rows = 0.0, 0
            tasks[-1].append(piece)
            task_bytes += size
            task_rows += rows
    return [tuple(task) for task in tasks]


def _cut(part: Range, record_bytes: float, target: float, rows_max: int | None) -> list[Range]:
    """The range in equal pieces, none above the target, nor with more than `rows_max` messages."""
    rows = len(part)
    per_piece = max(int(target / record_bytes), 1)
    if rows_max is not None:
        per_piece = min(per_piece, rows_max)
    count = -(-rows // per_piece)
    bounds = [part.start + rows * number // count for number in range(count + 1)]
    return [Range(part.queue, low, high) for low, high in pairwise(bounds)]
