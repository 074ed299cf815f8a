"""Entries taken apart ahead of their readers: always those of the file."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kourou.doors.simulated_files import SimulatedFiles
from kourou.store.ahead import BLOCK_ENTRIES, EntriesAhead, take_apart
from kourou.store.consume_queue import ENTRY, ConsumeQueue
from kourou.store.segment import OpenFiles


def queue_of(files: SimulatedFiles, entries: int, queue_id: int = 0) -> ConsumeQueue:
    queue = ConsumeQueue(files, OpenFiles(files), "queues", "T", queue_id, 20 * 1000)
    append(queue, entries)
    return queue


def append(queue: ConsumeQueue, count: int) -> None:
    start = queue.max_offset
    rows = [ENTRY.pack(100 * at, 100, at % 7) for at in range(start, start + count)]
    if rows:
        queue.append(b"".join(rows))


@settings(max_examples=40)
@given(
    st.integers(1, 3 * BLOCK_ENTRIES),
    st.lists(
        st.tuples(st.integers(0, 4 * BLOCK_ENTRIES), st.integers(1, 900), st.integers(0, 200)), max_size=12
    ),
)
def test_entries_are_those_of_the_file(count: int, reads: list[tuple[int, int, int]]) -> None:
    queue = queue_of(SimulatedFiles(), count)
    ahead = EntriesAhead(blocks_max=2)
    for queue_offset, wanted, more in reads:
        append(queue, more)
        assert ahead.entries(queue, queue_offset, wanted) == take_apart(queue.entries(queue_offset, wanted))


def test_a_full_block_is_read_once() -> None:
    files = SimulatedFiles()
    queue = queue_of(files, 2 * BLOCK_ENTRIES + 10)
    ahead = EntriesAhead()
    reads = files.counts.get("pread", 0)
    for queue_offset in range(0, BLOCK_ENTRIES, 32):
        ahead.entries(queue, queue_offset, 33)
    assert files.counts["pread"] - reads == 2
    ahead.entries(queue, 2 * BLOCK_ENTRIES, 10)
    ahead.entries(queue, 2 * BLOCK_ENTRIES, 10)
    assert files.counts["pread"] - reads == 4


def test_the_oldest_blocks_are_let_go() -> None:
    files = SimulatedFiles()
    queues = [queue_of(files, BLOCK_ENTRIES, number) for number in range(5)]
    ahead = EntriesAhead(blocks_max=3)
    for queue in queues:
        assert len(ahead.entries(queue, 0, 10).places) == 10
    assert len(ahead._blocks) == 3
