"""What RocketMQ's checkpoint says, what ours adds to it, and when it is written."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection

import pytest

from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import StoreForeign
from kourou.store import checkpoint
from kourou.store.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from kourou.store.recovery import PREPARED
from tests.unit.store.folder import (
    ROOT,
    Later,
    ToldLater,
    bodies_of,
    draft,
    fill,
    mark_of_format,
    queue_path,
    store_on,
)


def test_a_checkpoint_comes_back() -> None:
    files = SimulatedFiles()
    checkpoint = Checkpoint(5000, 4000, 3000, 2000, 777, 900, 12)
    write_checkpoint(files, "/checkpoint", checkpoint)
    assert read_checkpoint(files, "/checkpoint") == checkpoint
    assert len(files.read("/checkpoint")) == 4096
    assert checkpoint.trusted_ms == 1000


def test_the_first_forty_bytes_are_as_rocketmq_has_them() -> None:
    data = Checkpoint(1_700_000_000_456, 1_700_000_000_123, 3, 4, 1024, 1152, 1).encode()
    assert (
        data[:40].hex() == "0000018bcfe569c80000018bcfe5687b000000000000000300000000000000040000000000000400"
    )


def test_a_checkpoint_of_apache_gives_its_times_and_no_mark() -> None:
    files = SimulatedFiles()
    data = b"".join(number.to_bytes(8, "big") for number in (9000, 8000, 7000, 6000, 5))
    files.open("/checkpoint", create=True).pwrite(data.ljust(4096, b"\0"), 0)
    checkpoint = read_checkpoint(files, "/checkpoint")
    assert checkpoint == Checkpoint(9000, 8000, 7000, 6000)
    assert (checkpoint.trusted_ms, checkpoint.last_record) == (5000, -1)


@pytest.mark.parametrize("content", [None, b"", b"short"])
def test_without_a_checkpoint_nothing_is_vouched_for(content: bytes | None) -> None:
    files = SimulatedFiles()
    if content is not None:
        files.open("/checkpoint", create=True).pwrite(content, 0)
    assert read_checkpoint(files, "/checkpoint") == Checkpoint()


def test_a_damaged_mark_is_not_believed_but_the_times_are() -> None:
    files = SimulatedFiles()
    write_checkpoint(files, "/checkpoint", Checkpoint(5000, 4000, 0, 0, 777, 900, 12))
    files.open("/checkpoint").pwrite(b"\x55", 75)
    assert read_checkpoint(files, "/checkpoint") == Checkpoint(5000, 4000)


def test_a_mark_of_a_newer_version_is_foreign() -> None:
    files = SimulatedFiles()
    files.open("/checkpoint", create=True).pwrite((bytes(64) + mark_of_format(2)).ljust(4096, b"\0"), 0)
    with pytest.raises(StoreForeign, match="format 2, and this Kourou knows up to 1"):
        read_checkpoint(files, "/checkpoint")


# When it is written.


def test_entries_that_wait_are_in_their_files_before_a_checkpoint_speaks_of_them() -> None:
    """Several turns' worth of queues; what comes meanwhile is not part of it."""
    files, clock, disk = SimulatedFiles(), SimulatedClock(), Later()
    store = store_on(files, clock=clock, background=disk.background, checkpoint_thorough_interval_ms=900)
    sent = {topic: fill(store, 3, topic=topic) for topic in map(str, range(150))}
    clock.advance(1.05)
    disk.run()
    end = store.wrote
    sent["7"] += fill(store, 2, topic="7", start=3)
    clock.advance(0.1)
    disk.run()
    written = read_checkpoint(files, f"{ROOT}/checkpoint")
    assert (written.end, written.entries, written.queues) == (end, 450, 150)
    assert files.read(queue_path("7"))[60:80] == bytes(20)
    again = store_on(files.crashed())
    assert {topic: bodies_of(again, topic) for topic in sent} == sent
    again = store_on(files.power_cut(Chance(1)))
    assert {topic: bodies_of(again, topic)[:3] for topic in sent} == {
        topic: bodies[:3] for topic, bodies in sent.items()
    }


def test_the_more_queues_are_to_be_synced_the_more_of_the_log_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint, "_FILES_USUAL", 8)
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock, checkpoint_least_bytes=2000)
    for topic in map(str, range(40)):
        fill(store, 1, topic=topic)
    assert 2000 < store.wrote < 10_000
    clock.advance(5)
    assert not files.exists(f"{ROOT}/checkpoint")
    fill(store, 60)
    assert store.wrote > 10_250
    clock.advance(2)
    assert read_checkpoint(files, f"{ROOT}/checkpoint").end == store.wrote


def test_a_full_disk_has_no_room_for_the_first_checkpoint_and_that_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock, disk_warning_percent=100)
    sent = fill(store, 5)
    files.capacity = files.used()
    clock.advance(60)
    assert store.failed is None
    assert caplog.text.count("no room for a checkpoint") == 1  # and not at every try
    assert bodies_of(store) == sent
    files.capacity = 1 << 30
    clock.advance(1.1)
    assert read_checkpoint(files, f"{ROOT}/checkpoint").end == store.wrote
    sent += fill(store, 1, start=5)
    store.close()
    assert not files.exists(f"{ROOT}/abort")
    assert bodies_of(store_on(files)) == sent


def test_a_store_closes_clean_on_a_full_disk() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    sent = fill(store, 5)
    files.capacity = files.used()
    store.close()
    assert store.failed is None
    assert not files.exists(f"{ROOT}/abort")
    files.capacity = 1 << 30
    for found in (files.crashed(), files.power_cut(Chance(3))):
        assert bodies_of(store_on(found)) == sent


def test_fewer_queues_are_written_down_once_there_is_room() -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock)
    fill(store, 1, topic="T")
    fill(store, 1, topic="U")
    clock.advance(11)
    files.fail("pwrite", after=1, error=errno.ENOSPC)  # after the note of the deletion
    store.delete_topic("T")
    assert store.failed is None
    assert read_checkpoint(files, f"{ROOT}/checkpoint").queues == 2
    clock.advance(1.1)
    assert read_checkpoint(files, f"{ROOT}/checkpoint").queues == 1


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_queue_that_cannot_be_synced_is_a_fault_whatever_the_reason(error: int) -> None:
    """Its pages may have been given up for clean: there is no second try."""
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock)
    fill(store, 1)

    def no_sync_of_queues(operation: str, path: str) -> None:
        if operation == "sync" and "consumequeue" in path:
            raise OSError(error, os.strerror(error), path)

    files.before = no_sync_of_queues
    clock.advance(11)
    assert store.failed is not None
    assert os.strerror(error) in store.failed


def test_a_checkpoint_that_cannot_be_synced_is_a_fault() -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock)
    fill(store, 1)

    def no_sync_of_the_checkpoint(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith("/checkpoint"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    files.before = no_sync_of_the_checkpoint
    store.close()
    assert store.failed is not None
    assert files.exists(f"{ROOT}/abort")


def test_closing_while_a_checkpoint_is_under_way_vouches_only_for_what_is_on_the_disk() -> None:
    files, disk, clock = SimulatedFiles(), Later(), SimulatedClock()
    store = store_on(files, background=disk.background, clock=clock)
    topics = [f"T{number}" for number in range(100)]
    for topic in topics:
        fill(store, 1, topic=topic)
    clock.advance(11)
    disk.run()
    expected = {topic: [f"{topic}-0-0".encode(), *fill(store, 1, topic=topic, start=1)] for topic in topics}
    clock.advance(11)
    disk.run_one()  # the log is synced; the queues, in several jobs, are next
    store.close()
    for seed in range(5):
        again = store_on(files.power_cut(Chance(seed)))
        assert {topic: bodies_of(again, topic) for topic in topics} == expected
    disk.run()  # the job that was under way ends, and begins no other
    assert disk.work == []


def test_closing_knows_of_a_failed_sync_of_queues_that_nobody_was_told_of_yet() -> None:
    files, disk, clock = SimulatedFiles(), ToldLater(), SimulatedClock()
    store = store_on(files, background=disk.background, clock=clock)
    fill(store, 3)
    clock.advance(11)

    failed: list[str] = []

    def no_sync_of_queues(operation: str, path: str) -> None:
        if operation == "sync" and "/consumequeue/" in path:
            failed.append(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    files.before = no_sync_of_queues
    while not failed:
        clock.advance(0.1)
        disk.run_one()
    files.before = None
    store.close()
    assert store.failed is not None
    assert files.exists(f"{ROOT}/abort")


def test_closing_syncs_all_queues_at_once() -> None:
    """A disk takes many syncs side by side in a fraction of the time: the door to it knows how."""
    files = SimulatedFiles()
    store = store_on(files)
    for number in range(300):
        store.append(draft(topic=f"T{number}"))
    asked: list[int] = []
    sync_all = files.sync_all

    def counted(paths: Collection[str]) -> None:
        asked.append(sum("consumequeue/T" in path for path in paths))
        sync_all(paths)

    files.sync_all = counted  # type: ignore[method-assign]
    store.close()
    assert asked == [300 * 3]  # the file, its folder and that of its topic


def test_a_checkpoint_never_runs_ahead_of_the_log_on_the_disk() -> None:
    """Also while a sync of the log is under way that covers less than the checkpoint would, and when no queue
    has to be synced in between: half messages are in none."""
    files, clock, thread = SimulatedFiles(), SimulatedClock(), Later()
    store = store_on(
        files, clock=clock, background=thread.background, checkpoint_least_bytes=1, flush_least_pages=0
    )
    seen = 0
    for _ in range(40):
        store.append(draft(b"half", sys_flag=PREPARED))
        clock.advance(0.6)
        if thread.work:
            thread.run_one()
        end = read_checkpoint(files, f"{ROOT}/checkpoint").end
        assert end <= store.flushed
        seen = max(seen, end)
    assert seen > 0


# What a queue's end is compared with.


def test_a_queue_that_has_lost_its_end_is_built_again() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    sent = fill(store, 30)
    fill(store, 5, queue_id=1)
    store.close()
    assert read_checkpoint(files, f"{ROOT}/checkpoint").entries == 35
    files.open(queue_path()).pwrite(bytes(400), 10 * 20)  # a queue ends at its first blank entry
    assert bodies_of(store_on(files)) == sent


def test_a_deleted_topic_is_no_lost_entry() -> None:
    files, clock = SimulatedFiles(), SimulatedClock()
    store = store_on(files, clock=clock)
    fill(store, 3, topic="T")
    clock.advance(11)
    store.delete_topic("T")
    fill(store, 3, topic="U")
    assert read_checkpoint(files, f"{ROOT}/checkpoint").entries is None
    again = store_on(files.crashed())
    assert again.topics() == {"U": [0]}


def test_a_version_is_believed_only_when_the_mark_is_whole() -> None:
    files = SimulatedFiles()
    write_checkpoint(files, "/checkpoint", Checkpoint(5000, 4000, 0, 0, 777, 900, 12))
    files.open("/checkpoint").pwrite(b"\x08", 70)
    assert read_checkpoint(files, "/checkpoint").last_record == -1
