"""Records gathered ahead of their readers. That they are the right ones is tested in `test_reading.py`."""

from __future__ import annotations

import pytest

from kourou.doors.simulated_files import SimulatedFiles
from kourou.store import ahead
from kourou.store.ahead import (
    BLOCK_ENTRIES,
    CREDIT_MAX,
    FILTERED_BLOCK_ENTRIES,
    TRIED_OF,
    RecordsAhead,
    Stretch,
)
from kourou.store.store import Store
from tests.unit.store.folder import draft, store_on

QUEUES = 3


def filled(messages: int = 2 * FILTERED_BLOCK_ENTRIES + 1) -> Store:
    store = store_on(SimulatedFiles(), commit_log_segment_bytes=8 << 20)
    for number in range(messages):
        for queue_id in range(QUEUES):
            store.append(draft(b"%d" % number, queue_id=queue_id, tags_code=number % 10))
    return store


def ahead_of(store: Store, kept_bytes_max: int = 1 << 30, in_memory_bytes: int = 1 << 30) -> RecordsAhead:
    return RecordsAhead(store._log, in_memory_bytes, False, kept_bytes_max)


def stretch(
    records: RecordsAhead, store: Store, number: int, wanted: int | None = None, queue_id: int = 0
) -> Stretch | None:
    codes = None if wanted is None else frozenset({wanted})
    return records.stretch(store._queues.table["T", queue_id], number, codes, None)


def test_a_stretch_holds_what_is_wanted_of_a_block_side_by_side() -> None:
    store = filled()
    found = stretch(ahead_of(store), store, 1, 7)
    assert found is not None
    offsets = range(FILTERED_BLOCK_ENTRIES, 2 * FILTERED_BLOCK_ENTRIES)
    assert found.queue_offsets == [offset for offset in offsets if offset % 10 == 7]
    for at, offset in enumerate(found.queue_offsets):
        (expected,) = store.read("T", 0, offset, 1).messages
        assert found.data[found.ends[at] : found.ends[at + 1]] == expected


def test_the_last_block_of_a_queue_is_not_gathered_until_another_entry_follows_it() -> None:
    store = filled(2 * BLOCK_ENTRIES)
    records = ahead_of(store)
    assert stretch(records, store, 0) is not None
    assert stretch(records, store, 1) is None
    store.append(draft())
    assert stretch(records, store, 1) is not None
    assert stretch(records, store, 2) is None


def test_what_is_kept_is_bounded_and_the_oldest_goes_first() -> None:
    store = filled()
    records = ahead_of(store, kept_bytes_max=60_000)
    first = stretch(records, store, 0)
    assert stretch(records, store, 0) is first
    for number in range(7):
        for queue_id in range(QUEUES):
            assert stretch(records, store, number, queue_id=queue_id) is not None
            assert records._kept_bytes <= 60_000
    assert len(records._kept) > 1
    assert stretch(records, store, 0) is not first


def test_large_messages_are_found_to_be_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled()
    records = ahead_of(store)
    monkeypatch.setattr(ahead, "STRETCH_BYTES_MAX", 5000)
    assert stretch(records, store, 0) is None
    monkeypatch.setattr(records, "_gather", lambda *_: pytest.fail("asked again"))
    assert stretch(records, store, 0) is None


def test_what_lies_far_behind_is_not_gathered() -> None:
    store = filled()
    assert stretch(ahead_of(store, in_memory_bytes=10_000), store, 0) is None


def test_an_entry_that_was_corrected_is_gathered_anew() -> None:
    store = filled()
    records = ahead_of(store)
    first, other = stretch(records, store, 0), stretch(records, store, 0, queue_id=1)
    records.forget(store._queues.table["T", 0])
    assert stretch(records, store, 0) is not first
    assert stretch(records, store, 0, queue_id=1) is other


def read_all(records: RecordsAhead, store: Store, times: int, rounds: int = 30) -> int:
    """How many blocks are gathered when each is read so many times, one after the other."""
    gathered = 0
    for at in range(rounds * 7 * QUEUES):
        found = stretch(records, store, at // QUEUES % 7, queue_id=at % QUEUES)
        if found is not None:
            gathered += not found.served
            found.served += times * BLOCK_ENTRIES
    return gathered


def test_blocks_that_are_read_once_are_soon_left_alone_and_tried_again() -> None:
    store = filled()
    records = ahead_of(store, kept_bytes_max=22_000)  # one of them
    asked = 30 * 7 * QUEUES
    assert asked / TRIED_OF / 2 < read_all(records, store, times=1) < CREDIT_MAX + 8 + asked / TRIED_OF
    assert read_all(records, store, times=2) > asked / 2
    assert read_all(records, store, times=1) < asked / 2


def test_a_filter_is_worth_it_also_for_one_reader() -> None:
    store = filled()
    records = ahead_of(store, kept_bytes_max=60_000)
    read_all(records, store, times=1)
    assert stretch(records, store, 0) is None
    assert stretch(records, store, 1, 7) is not None
