"""Entries of 20 bytes whose position is the offset."""

from __future__ import annotations

import errno
from functools import partial

import pytest

from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import Refused
from kourou.store.consume_queue import ENTRY, ConsumeQueue, ConsumeQueues, Entry, is_folder_name
from tests.unit.store.folder import config


def queue_on(files: SimulatedFiles, entries_each: int = 50) -> ConsumeQueue:
    queues = ConsumeQueues(config(consume_queue_segment_entries=entries_each), files)
    queues.load()
    return queues.get_or_make("T", 0)


def entries(first: int, count: int, size: int = 10, step: int | None = None) -> bytes:
    return b"".join(
        ENTRY.pack(physical, size, 7)
        for physical in range(first, first + count * (step or size), step or size)
    )


def test_an_entry_is_laid_out_as_rocketmq_does() -> None:
    assert ENTRY.pack(1024, 104, 2598919).hex() == "000000000000040000000068000000000027a807"
    assert ENTRY.pack(0, 1, -1195727601).hex()[-16:] == "ffffffffb8baa50f"


def test_entries_are_read_back_by_offset_and_never_beyond_the_last() -> None:
    queue = queue_on(SimulatedFiles())
    queue.append(entries(0, 70))
    queue.append(entries(700, 5))
    assert queue.max_offset == 75
    assert queue.entries(48, 4) == entries(480, 4)  # over the end of a file
    assert queue.entries(73, 99) == entries(730, 2)
    assert (queue.entries(75, 1), queue.entry(75)) == (b"", None)
    assert queue.entry(74) == (740, 10, 7)


@pytest.mark.parametrize("written", [1, 30, 49, 50])
def test_entries_that_wait_are_read_as_those_on_the_disk(written: int) -> None:
    files = SimulatedFiles()
    queue, plain = queue_on(files), queue_on(SimulatedFiles())
    plain.append(entries(0, 50))
    queue.append(entries(0, written))
    if written < 50:
        queue.append_later(entries(written * 10, 50 - written), 500)
    assert (queue.max_offset, queue.end_physical, queue.first_unwritten) == (50, 500, written)
    for offset in range(51):
        for count in (1, 2, 50):
            assert queue.entries(offset, count) == plain.entries(offset, count)
    for place in range(0, 510, 5):
        found = queue.first_where(partial(_is_from, place), 0, 50)
        assert found == min(50, (place + 9) // 10)
    queue.correct_min(480)
    assert queue.min_offset == 48
    queue.write()
    assert (queue.unwritten, queue.first_unwritten) == (b"", 50)
    assert files.read("/data/store/consumequeue/T/0/00000000000000000000") == entries(0, 50)


def _is_from(place: int, entry: Entry) -> bool:
    return entry[0] >= place


def test_entries_that_wait_are_written_with_the_next_that_do_not() -> None:
    files = SimulatedFiles()
    queue = queue_on(files)
    queue.append(entries(0, 1))
    queue.append_later(entries(10, 40), 410)
    files.fail("pwrite", error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        queue.append(entries(410, 30))
    assert (queue.max_offset, queue.first_unwritten) == (41, 1)
    queue.append(entries(410, 30))  # into a second file
    assert (queue.max_offset, queue.unwritten, queue.segments.bases) == (71, b"", [0, 1000])
    again = queue_on(files)
    again.load()
    again.recover(trusted=None)
    assert again.entries(0, 99) == entries(0, 71)


def test_a_queue_can_begin_above_zero() -> None:
    files = SimulatedFiles()
    queue = queue_on(files)
    queue.begin_at(57)
    queue.append(entries(5000, 2))
    assert (queue.min_offset, queue.max_offset, queue.segments.bases) == (57, 59, [1000])
    assert files.read("/data/store/consumequeue/T/0/00000000000000001000")[:140].hex() == (
        "00000000000000007fffffff0000000000000000" * 7
    )
    again = queue_on(files)
    again.recover(trusted=None)
    again.correct_min(0)
    assert (again.min_offset, again.max_offset, again.entry(57)) == (57, 59, (5000, 10, 7))


@pytest.mark.parametrize("count", [0, 1, 49, 50, 51, 120])
def test_the_end_is_found_again(count: int) -> None:
    files = SimulatedFiles()
    if count:
        queue_on(files).append(entries(0, count))
    for trusted, expected in ((None, count), (count * 10, count), (count * 5, (count * 5 + 9) // 10), (0, 0)):
        queue = queue_on(files.crashed())
        queue.recover(trusted=trusted)
        assert queue.max_offset == queue.next_offset == expected
        assert queue.end_physical == (expected * 10 if expected else -1)


def test_a_long_queue_is_found_by_halving_not_by_reading_it_all() -> None:
    files = SimulatedFiles()
    queues = ConsumeQueues(config(consume_queue_segment_entries=300_000), files)
    queue = queues.get_or_make("T", 0)
    for at in range(0, 50_000, 1000):
        queue.append(entries(at * 10, 1000))
    before = files.counts.get("pread", 0)
    queue.recover(trusted=None)
    assert queue.max_offset == 50_000
    assert files.counts["pread"] - before < 25


def test_what_lies_behind_the_last_entry_is_zeroed() -> None:
    files = SimulatedFiles()
    queue_on(files).append(entries(0, 120))
    queue = queue_on(files)
    queue.recover(trusted=700)
    queue.zero_tail()
    assert queue.max_offset == 70
    assert files.list("/data/store/consumequeue/T/0") == ["00000000000000000000", "00000000000000001000"]
    assert files.read("/data/store/consumequeue/T/0/00000000000000001000") == entries(500, 20).ljust(
        1000, b"\0"
    )


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("stale", [b"", ENTRY.pack(9_999, 7, 7)])
def test_a_short_queue_is_the_same_looked_at_ahead_or_not(lost: int, stale: bytes) -> None:
    """Four entries are believed; of the three behind them some are lost, or are not what they should be."""
    files = SimulatedFiles()
    written = entries(0, 7 - lost) + stale
    queue_on(files).append(written)
    again = queue_on(files)
    again.recover(trusted=40)
    assert again.max_offset == 4
    again.restore(entries(40, 3))
    again.zero_tail()
    again.correct_min(10)
    again.loaded()
    assert (again.min_offset, again.max_offset, again.end_physical) == (1, 7, 70)
    assert files.read("/data/store/consumequeue/T/0/00000000000000000000") == entries(0, 7).ljust(1000, b"\0")


def test_a_short_queue_is_opened_once_and_what_is_restored_is_written_though_it_is_there() -> None:
    """A sync may have failed that was to bring it to the disk."""
    files = SimulatedFiles()
    queue_on(files).append(entries(0, 7))
    before = dict(files.counts)
    again = queue_on(files)
    again.recover(trusted=40)
    again.restore(entries(40, 3))
    assert not again.zero_tail()
    again.correct_min(0)
    assert again.max_offset == 7
    counts = {name: count - before.get(name, 0) for name, count in files.counts.items()}
    assert (counts["open"], counts["pread"], counts["pwrite"]) == (1, 1, 1)


def test_a_page_of_entries_with_something_far_behind_it_is_not_taken_for_all() -> None:
    files = SimulatedFiles()
    queue_on(files, 500).append(entries(0, 3))
    path = "/data/store/consumequeue/T/0/00000000000000000000"
    files.open(path).pwrite(entries(9_000, 1), 8_000)
    again = queue_on(files, 500)
    again.recover(trusted=1 << 40)
    assert again.max_offset == 3
    assert again.zero_tail()
    assert files.read(path).rstrip(b"\0") == entries(0, 3).rstrip(b"\0")


def test_the_beginning_follows_the_log() -> None:
    queue = queue_on(SimulatedFiles())
    queue.append(entries(0, 120))
    for log_start, expected in ((0, 0), (5, 1), (500, 50), (501, 51), (1190, 119), (1200, 120), (9999, 120)):
        queue.correct_min(log_start)
        assert queue.min_offset == expected


def test_names_that_lead_elsewhere_are_no_folder_names() -> None:
    for name in ("", ".", "..", "...", "a/b", "/", "a\\b", "C:x", "a\0b", "x" * 256, "é" * 128):
        assert not is_folder_name(name), name
    for name in ("T", "%RETRY%g", "a.b", "..a", "con", "%2e%2e%2f", "x" * 255):
        assert is_folder_name(name), name


def test_queues_are_found_on_disk_by_topic_and_number() -> None:
    files = SimulatedFiles()
    for folder in ("T/0", "T/11", "U/3", "U/not a number"):
        files.make_folders(f"/data/store/consumequeue/{folder}")
    files.open("/data/store/consumequeue/a file", create=True)
    queues = ConsumeQueues(config(), files)
    queues.load()
    assert sorted(queues.table) == [("T", 0), ("T", 11), ("U", 3)]
    for queue_id in (-1, 1 << 31):
        with pytest.raises(Refused, match="is not a number of a queue"):
            queues.get_or_make("T", queue_id)
