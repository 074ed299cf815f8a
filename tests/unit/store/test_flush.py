"""One sync at a time, each for all that has gathered."""

from __future__ import annotations

from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import SimulatedFiles
from kourou.store.commit_log import CommitLog
from kourou.store.config import SYNC_FLUSH
from kourou.store.flush import FLUSH_TIMEOUT, OK, Flusher, StoreStatus, Waiters, failed
from tests.unit.store.folder import Later, config


def grow(log: CommitLog, size: int) -> None:
    log.stage(b"x" * size, log.place_for(size))
    log.write()


def flusher_on(
    files: SimulatedFiles, disk: Later, **settings: object
) -> tuple[CommitLog, Flusher, list[int]]:
    log = CommitLog(config(flush=SYNC_FLUSH, **settings), files)
    log.resume(0)
    seen: list[int] = []
    flusher = Flusher(
        log,
        config(flush=SYNC_FLUSH, **settings),
        SimulatedClock(),
        disk.background,
        lambda: seen.append(flusher.flushed),
        lambda error: seen.append(-1),
    )
    return log, flusher, seen


def test_what_gathers_during_a_sync_is_taken_by_the_next() -> None:
    files, disk = SimulatedFiles(), Later()
    log, flusher, seen = flusher_on(files, disk)
    for _ in range(5):
        grow(log, 100)
        flusher.wrote()
    assert (len(disk.work), flusher.flushed) == (1, 0)
    disk.run_one()
    assert (seen, len(disk.work)) == ([100], 1)
    disk.run_one()
    assert (seen, disk.work) == ([100, 500], [])


def test_a_sync_covers_every_file_that_was_written() -> None:
    files, disk = SimulatedFiles(), Later()
    log, flusher, seen = flusher_on(files, disk)
    for _ in range(6):
        grow(log, 2000)
    flusher.wrote()
    before = files.counts["sync"]
    disk.run()
    assert files.counts["sync"] - before == 3
    assert seen == [log.end]


def test_a_failed_sync_is_reported_and_not_repeated() -> None:
    files, disk = SimulatedFiles(), Later()
    log, flusher, seen = flusher_on(files, disk)
    grow(log, 100)
    flusher.wrote()
    files.fail("sync")
    disk.run()
    assert (seen, flusher.flushed, disk.work) == ([-1], 0, [])


def test_files_are_closed_only_when_no_sync_is_under_way() -> None:
    files, disk = SimulatedFiles(), Later()
    log, flusher, seen = flusher_on(files, disk)
    closed: list[str] = []
    flusher.when_idle(lambda: closed.append("idle"))
    assert closed == ["idle"]
    grow(log, 100)
    flusher.wrote()
    flusher.when_idle(lambda: closed.append("after the sync"))
    assert closed == ["idle"]
    disk.run()
    assert closed == ["idle", "after the sync"]
    assert seen == []


def test_waiters_are_told_in_order_once_and_by_their_deadline() -> None:
    clock = SimulatedClock()
    waiters = Waiters(clock, 5000)
    told: list[tuple[str, StoreStatus]] = []

    def waiter(name: str) -> list[object]:
        return [lambda status: told.append((name, status))]

    waiters.add(100, waiter("a"))  # type: ignore[arg-type]
    clock.advance(3)
    waiters.add(200, waiter("b"))  # type: ignore[arg-type]
    waiters.add(300, waiter("c"))  # type: ignore[arg-type]
    waiters.reached(99)
    assert told == []
    clock.advance(2.5)
    assert told == [("a", FLUSH_TIMEOUT)]
    waiters.reached(250)
    assert told[1:] == [("b", OK)]
    waiters.fail("why")
    assert told[2:] == [("c", failed("why"))]
    clock.advance(10)
    assert (len(told), len(waiters)) == (3, 0)
