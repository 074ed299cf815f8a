"""Which files go, when, and what the rest of the store makes of it."""

from __future__ import annotations

import errno
import logging
import os
from typing import Any

import pytest

from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import Busy
from kourou.store.retention import SteadyClock
from kourou.store.store import ReadStatus, Store
from tests.unit.store.folder import ROOT, Later, bodies_of, draft, fill, read_all, store_on

HOUR = 50.0  # of a clock by which messages are kept 72 hours, and it is one: many small steps take long
NOON_MS = 1_700_000_000_000  # no matter where: `delete_hours` is set to every hour, or to none


def world(**settings: Any) -> tuple[SimulatedFiles, SimulatedClock, Store]:
    clock = SimulatedClock(NOON_MS)
    files = SimulatedFiles(clock_ms=clock.now_ms)
    every_hour: dict[str, Any] = {
        "delete_hours": frozenset(range(24)),
        "consume_queue_segment_entries": 10,
        "file_reserved_hours": 1,
    }
    return files, clock, store_on(files, clock=clock, **{**every_hour, **settings})


def logs(files: SimulatedFiles) -> list[int]:
    return [int(name) for name in files.list(f"{ROOT}/commitlog")]


def test_log_files_past_their_time_go_and_the_newest_never() -> None:
    files, clock, store = world()
    fill(store, 60)
    clock.advance(40 * HOUR)
    fill(store, 60, start=60)
    newer = [base for base in logs(files) if files.modified_ms(f"{ROOT}/commitlog/{base:020d}") > NOON_MS]
    clock.advance(31 * HOUR)
    assert logs(files)[0] == 0
    clock.advance(2 * HOUR)
    assert logs(files) == newer
    assert store.start == newer[0]
    clock.advance(200 * HOUR)
    assert logs(files) == newer[-1:]


def test_queues_follow_the_log() -> None:
    files, clock, store = world()
    fill(store, 100)
    fill(store, 3, topic="Small")
    clock.advance(1)
    fill(store, 5)
    clock.advance(73 * HOUR)
    first = store.min_offset("T", 0)
    assert 0 < first < 105
    assert [record.queue_offset for record in read_all(store)] == list(range(first, 105))
    assert int(files.list(f"{ROOT}/consumequeue/T/0")[0]) // 20 == first // 10 * 10
    assert store.read("T", 0, 0).status is ReadStatus.OFFSET_TOO_SMALL
    assert store.read("T", 0, 0).next_offset == first
    store.append(draft(b"next", "Small"))
    assert bodies_of(store, "Small")[-1:] == [b"next"]
    assert store.max_offset("Small", 0) == 4  # an empty queue goes on counting


def test_what_is_left_is_there_after_a_restart_and_after_a_crash() -> None:
    files, clock, store = world()
    fill(store, 100)
    clock.advance(73 * HOUR)
    fill(store, 20, start=100)
    left = bodies_of(store)
    assert 0 < len(left) < 120
    assert bodies_of(store_on(files.crashed(), consume_queue_segment_entries=10)) == left
    store.close()
    assert bodies_of(store_on(files, consume_queue_segment_entries=10)) == left


def test_index_files_follow_the_log() -> None:
    files, clock, store = world(index_slots=10, index_entries=12)
    for number in range(100):
        store.append(draft(b"%d" % number, properties=b"KEYS\x01k%d\x02" % number))
        clock.advance(0.2)
    before = files.list(f"{ROOT}/index")
    clock.advance(73 * HOUR)
    after = files.list(f"{ROOT}/index")
    assert 0 < len(after) < len(before)
    assert before[-len(after) :] == after
    assert store.find("T", "k0", 10) == []
    assert len(store.find("T", "k99", 10)) == 1


def test_outside_the_hours_set_for_it_nothing_goes() -> None:
    files, clock, store = world(delete_hours=frozenset())
    fill(store, 100)
    clock.advance(100 * HOUR)
    assert logs(files)[0] == 0
    store.clean_expired_log()  # unless somebody asks for it
    assert logs(files)[0] > 0


def test_above_the_first_limit_what_has_expired_goes_at_any_hour() -> None:
    files, clock, store = world(delete_hours=frozenset())
    fill(store, 100)
    used = files.used()
    files.capacity = used * 100 // 80
    clock.advance(71 * HOUR)
    assert logs(files)[0] == 0  # full enough, and not old enough
    clock.advance(2 * HOUR)
    assert logs(files)[0] > 0


def test_above_the_second_limit_the_oldest_go_whatever_their_age_and_no_more_than_needed() -> None:
    files, clock, store = world(delete_hours=frozenset())
    fill(store, 200)
    files.capacity = files.used() * 100 // 87
    before = logs(files)
    clock.advance(120)
    after = logs(files)
    assert 0 < len(after) < len(before)
    assert len(after) > len(before) // 2
    assert files.used() * 100 // files.capacity <= 85


def test_forced_cleaning_can_be_turned_off() -> None:
    files, clock, store = world(delete_hours=frozenset(), clean_forcibly=False)
    fill(store, 200)
    files.capacity = files.used() * 100 // 87
    before = logs(files)
    clock.advance(1200)
    assert logs(files) == before


def test_above_the_third_limit_nothing_is_stored_and_reading_goes_on() -> None:
    files, clock, store = world(delete_hours=frozenset(), clean_forcibly=False)
    bodies = fill(store, 100)
    room, files.capacity = files.capacity, files.used() * 100 // 93
    clock.advance(3)
    with pytest.raises(Busy) as refused:
        store.append(draft())
    for part in (f"{ROOT}/commitlog", "94 % used", "above 90 %"):
        assert part in str(refused.value)
    assert store.refusal == refused.value.remark
    assert bodies_of(store) == bodies
    files.capacity = room
    clock.advance(5)
    store.append(draft(b"again"))
    assert bodies_of(store)[-1] == b"again"
    assert store.refusal is None


def test_a_file_that_cannot_be_removed_is_tried_again_and_no_later_one_goes_before_it() -> None:
    files, clock, store = world()
    fill(store, 100)
    before = logs(files)
    clock.advance(71 * HOUR)
    files.fail("remove", times=3)
    clock.advance(1.05 * HOUR)
    left = logs(files)
    assert left == before[-len(left) :]  # never a gap
    clock.advance(1 * HOUR)
    assert logs(files) == before[-1:]


def test_removing_is_done_in_the_background_file_by_file() -> None:
    clock = SimulatedClock(NOON_MS)
    files = SimulatedFiles(clock_ms=clock.now_ms)
    later = Later()
    store = store_on(
        files,
        clock=clock,
        background=later.background,
        delete_hours=frozenset(range(24)),
        file_reserved_hours=1,
        flush_interval_ms=10**9,
    )
    fill(store, 100)
    before = logs(files)
    clock.advance(73 * HOUR)
    later.run()
    assert logs(files) == before  # not synced yet: a sync of theirs may be under way
    store.sync()
    clock.advance(1 * HOUR)
    assert logs(files) == before
    later.run()
    clock.advance(1)
    later.run()
    assert len(before) - 11 <= len(logs(files)) < len(before)


def test_a_clock_that_leaps_forward_does_not_let_messages_expire(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    seldom: dict[str, Any] = {
        "flush_interval_ms": 10**8,
        "checkpoint_interval_ms": 10**8,
        "clean_interval_ms": 600_000,
    }
    files, clock, store = world(file_reserved_hours=72, **seldom)
    fill(store, 100)
    store.sync()
    clock.advance(3)
    clock.jump_ms(10 * 365 * 24 * 3_600_000)
    clock.advance(23 * 3600)
    assert logs(files)[0] == 0
    assert "the clock leapt forward" in caplog.text
    clock.advance(2 * 3600)  # nobody minded for a day: it was right
    assert logs(files)[0] > 0
    assert store.failed is None


def test_a_steady_clock_goes_back_at_once_and_forward_by_small_steps() -> None:
    clock = SimulatedClock(NOON_MS)
    steady = SteadyClock(clock)
    clock.jump_ms(30_000)
    assert steady.now_ms() == NOON_MS + 30_000
    clock.jump_ms(-500_000)
    assert steady.now_ms() == NOON_MS - 470_000
    clock.jump_ms(600_000)
    assert steady.now_ms() == NOON_MS - 470_000


def test_queues_whose_messages_are_all_gone_are_forgotten_when_asked() -> None:
    files, clock, store = world()
    fill(store, 3, topic="Old")
    fill(store, 60)
    clock.advance(73 * HOUR)
    assert store.min_offset("Old", 0) == store.max_offset("Old", 0) == 3
    assert store.clean_expired_queues() == [("Old", 0)]
    assert "Old" not in store.topics()
    assert not files.exists(f"{ROOT}/consumequeue/Old/0")
    assert "T" in store.topics()
    store.append(draft(b"new", "Old"))
    assert bodies_of(store, "Old") == [b"new"]


def test_a_queue_file_that_cannot_be_removed_leaves_no_gap() -> None:
    files, clock, store = world()
    failures = 1

    def before(operation: str, path: str) -> None:
        nonlocal failures
        if operation == "remove" and "/consumequeue/" in path and failures:
            failures -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    files.before = before
    for number in range(6):
        fill(store, 60, start=60 * number)
        clock.advance(40 * HOUR)
    assert failures == 0
    left = files.list(f"{ROOT}/consumequeue/T/0")
    bases = [int(name) for name in left]
    assert bases == list(range(bases[0], bases[-1] + 1, 200))
    assert bases[0] > 0  # tried again
    assert read_all(store_on(files.crashed(), consume_queue_segment_entries=10))
