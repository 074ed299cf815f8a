"""Places are given when a record is staged, bytes when the tick ends."""

from __future__ import annotations

import errno

import pytest

from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import DiskFault
from kourou.store.commit_log import CommitLog
from tests.unit.store.folder import config, log_path


def log_on(files: SimulatedFiles, **settings: object) -> CommitLog:
    log = CommitLog(config(**settings), files)
    log.load()
    log.resume(0)
    return log


def stage(log: CommitLog, *records: bytes) -> list[int]:
    places = []
    for record in records:
        places.append(log.place_for(len(record)))
        log.stage(record, places[-1])
    return places


def test_staged_records_lie_side_by_side_and_are_written_at_once() -> None:
    files = SimulatedFiles()
    log = log_on(files)
    assert stage(log, b"a" * 100, b"b" * 200) == [0, 100]
    assert (log.end, log.reserved, files.exists(log_path())) == (0, 300, False)
    log.write()
    assert (log.end, log.reserved, files.counts["pwrite"]) == (300, 300, 1)
    assert files.read(log_path())[:300] == b"a" * 100 + b"b" * 200


def test_a_tick_over_the_end_of_a_file_writes_each_file_once() -> None:
    files = SimulatedFiles()
    log = log_on(files)
    places = stage(log, *[b"x" * 1000] * 9)
    assert places == [0, 1000, 2000, 3000, 4096, 5096, 6096, 7096, 8192]
    log.write()
    assert files.counts["pwrite"] == 3
    assert files.read(log_path())[4000:4008].hex() == "00000060cbd43194"
    assert log.end == 9192


@pytest.mark.parametrize(("size", "place"), [(4088, 0), (4089, 4096)])
def test_a_blank_must_find_room_behind_every_record(size: int, place: int) -> None:
    log = log_on(SimulatedFiles())
    assert log.fits(size) == (place == 0)
    assert log.place_for(size) == place


def test_blocks_are_reserved_step_by_step_before_they_are_written() -> None:
    files = SimulatedFiles()
    log = log_on(files, allocation_step_bytes=1024)
    reserved: list[str] = []
    files.before = lambda operation, path: reserved.append(operation)
    for _ in range(10):
        stage(log, b"x" * 300)
        log.write()
    assert reserved.count("allocate") == 3
    assert reserved.index("allocate") < reserved.index("pwrite")


def test_a_new_file_survives_a_power_cut_before_anything_is_written_to_it() -> None:
    files = SimulatedFiles()
    log = log_on(files)
    order: list[tuple[str, str]] = []
    files.before = lambda operation, path: order.append((operation, path))
    stage(log, b"x")
    log.write()
    first_write = order.index(("pwrite", log_path()))
    for step in (
        ("sync", log_path()),
        ("sync_folder", "/data/store/commitlog"),
        ("sync_folder", "/data/store"),
    ):
        assert step in order[:first_write]


def test_without_room_nothing_is_written_and_the_places_are_free_again() -> None:
    files = SimulatedFiles()
    log = log_on(files)
    stage(log, b"a" * 500)
    log.write()
    files.capacity = files.used()
    stage(log, *[b"b" * 1000] * 6)
    with pytest.raises(OSError, match="No space left") as failure:
        log.write()
    assert failure.value.errno == errno.ENOSPC
    assert (log.end, log.reserved) == (500, 500)
    assert files.read(log_path())[500:].strip(b"\0") == b""
    files.capacity = 1 << 30
    assert stage(log, b"c" * 100) == [500]
    log.write()
    assert files.read(log_path())[:600] == b"a" * 500 + b"c" * 100


def test_room_in_one_file_but_not_in_the_next_takes_back_the_first_part() -> None:
    files = SimulatedFiles()
    log = log_on(files, allocation_step_bytes=4096)
    stage(log, b"a" * 3000)
    log.write()
    files.capacity = files.used()
    stage(log, b"b" * 900, b"c" * 900)
    with pytest.raises(OSError, match="No space left"):
        log.write()
    assert files.read(log_path())[3000:].strip(b"\0") == b""
    assert (log.end, log.place_for(900)) == (3000, 3000)


def test_a_write_that_cannot_be_taken_back_is_a_fault() -> None:
    files = SimulatedFiles()
    log = log_on(files)
    stage(log, b"a" * 500)
    files.fail("pwrite", error=errno.EIO, times=1)
    files.fail("pread", error=errno.EIO, times=1)
    with pytest.raises(DiskFault, match="while taking back a write"):
        log.write()
