"""Who waits for replicas is told in time, and told the truth."""

from __future__ import annotations

import pytest

from kourou.doors.clock import SimulatedClock
from kourou.store.flush import FLUSH_SLAVE_TIMEOUT, FLUSH_TIMEOUT, OK, SLAVE_NOT_AVAILABLE, StoreStatus
from kourou.store.replica_wait import ReplicaWait


class World:
    def __init__(self, *, is_strict: bool = False, is_elected: bool = False) -> None:
        self.clock = SimulatedClock()
        self.is_available = True
        self.seen: list[int] = []
        self.wait = ReplicaWait(
            self.clock, 3_000, lambda _: self.is_available, is_strict=is_strict, is_elected=is_elected
        )
        self.wait.on_passed = lambda: self.seen.append(self.wait.passed)

    def message(self, end: int, status: StoreStatus = OK) -> list[StoreStatus]:
        """One that is written, and whose disk's part went as said; how it ended, once it has."""
        told: list[StoreStatus] = []
        self.wait.wrote(end)
        self.wait.hold(end, [told.append], status)
        return told


@pytest.fixture
def world() -> World:
    return World()


def test_nobody_is_told_before_enough_replicas_have_it(world: World) -> None:
    first, second = world.message(100), world.message(200)
    world.wait.reached(199)
    assert (first, second) == ([OK], [])
    assert world.wait.passed == 199
    world.wait.reached(200)
    assert second == [OK]


def test_visible_before_told(world: World) -> None:
    order: list[str] = []
    world.wait.on_passed = lambda: order.append("visible")
    world.wait.wrote(100)
    world.wait.hold(100, [lambda _: order.append("told")], OK)
    world.wait.reached(100)
    assert order == ["visible", "told"]


def test_too_few_replicas_are_said_at_once_and_then_readers_may_see_it(world: World) -> None:
    world.is_available = False
    assert world.message(100) == [SLAVE_NOT_AVAILABLE]
    assert world.wait.passed == 100


def test_time_runs_from_the_write(world: World) -> None:
    told: list[StoreStatus] = []
    world.wait.wrote(100)
    world.clock.advance(2.5)  # the disk takes its time
    world.wait.hold(100, [told.append], OK)
    world.clock.advance(0.4)
    assert told == []
    world.clock.advance(0.2)
    assert told == [FLUSH_SLAVE_TIMEOUT]
    assert world.wait.passed == 100


def test_a_slow_disk_and_a_quick_slave_make_a_flush_timeout(world: World) -> None:
    told = world.message(100, FLUSH_TIMEOUT)
    world.wait.reached(100)
    assert told == [FLUSH_TIMEOUT]


def test_of_both_failures_the_slaves_is_told(world: World) -> None:
    told = world.message(100, FLUSH_TIMEOUT)
    world.clock.advance(4)
    assert told == [FLUSH_SLAVE_TIMEOUT]


def test_when_replicas_go_those_who_wait_hear_of_it(world: World) -> None:
    told = world.message(100)
    world.is_available = False
    world.wait.look_again()
    assert told == [SLAVE_NOT_AVAILABLE]


def test_strictly_nothing_is_seen_that_replicas_do_not_have() -> None:
    world = World(is_strict=True)
    world.is_available = False
    assert world.message(100) == [SLAVE_NOT_AVAILABLE]
    assert world.seen == []
    world.wait.reached(100)
    assert world.seen == [100]


def test_a_change_of_roles_leaves_nobody_waiting(world: World) -> None:
    told = world.message(100)
    world.wait.release()
    assert told == [FLUSH_SLAVE_TIMEOUT]
    world.clock.advance(10)
    assert len(told) == 1


def test_a_master_that_may_have_been_replaced_confirms_nothing(world: World) -> None:
    world.wait.gate = lambda: "the lease is over"
    told = world.message(100)
    world.wait.reached(100)
    assert [(each.name, each.reason) for each in told] == [("FAILED", "the lease is over")]


def test_messages_nobody_waits_for_become_visible_too(world: World) -> None:
    world.wait.wrote(100)
    assert world.wait.passed == 0
    world.clock.advance(3.1)
    assert world.wait.passed == 100


def test_in_an_elected_set_readers_see_what_every_next_master_has_whatever_senders_were_told() -> None:
    world = World(is_elected=True)
    world.wait.begin(50)  # the end of an inherited log: others may lack it
    late = world.message(100)
    world.clock.advance(3.0)
    world.is_available = False
    alone = world.message(200)
    assert (late, alone) == ([FLUSH_SLAVE_TIMEOUT], [SLAVE_NOT_AVAILABLE])
    assert world.wait.passed == 0
    world.wait.safe(100)
    assert world.wait.passed == 100
    world.is_available = True
    waiting = world.message(300)
    world.wait.release()
    assert waiting == [FLUSH_SLAVE_TIMEOUT]
    assert world.wait.passed == 100
