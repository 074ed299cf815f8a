"""Leases on queues."""

from __future__ import annotations

import pytest

from kourou.broker.locks import QueueLocks
from kourou.doors.clock import SimulatedClock
from kourou.protocol.bodies import MessageQueue


def queue(queue_id: int, topic: str = "orders", broker_name: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def locks(clock: SimulatedClock) -> QueueLocks:
    return QueueLocks(clock)


def test_a_queue_is_one_members_at_a_time(locks: QueueLocks) -> None:
    assert locks.lock("g", "one", [queue(0), queue(1)]) == [queue(0), queue(1)]
    assert locks.lock("g", "two", [queue(1), queue(2)]) == [queue(2)]


def test_groups_do_not_stand_in_each_others_way(locks: QueueLocks) -> None:
    locks.lock("g", "one", [queue(0)])
    assert locks.lock("h", "two", [queue(0)]) == [queue(0)]


def test_a_lease_lasts_a_minute_from_when_it_was_last_asked_for(
    locks: QueueLocks, clock: SimulatedClock
) -> None:
    locks.lock("g", "one", [queue(0)])
    clock.advance(50)
    locks.lock("g", "one", [queue(0)])
    clock.advance(59)
    assert locks.lock("g", "two", [queue(0)]) == []
    assert locks.is_ordered("g")
    clock.advance(2)
    assert not locks.is_ordered("g")
    assert locks.lock("g", "two", [queue(0)]) == [queue(0)]
    assert locks.lock("g", "one", [queue(0)]) == []


def test_the_wall_clock_does_not_end_a_lease(locks: QueueLocks, clock: SimulatedClock) -> None:
    locks.lock("g", "one", [queue(0)])
    clock.jump_ms(3_600_000)
    assert locks.lock("g", "two", [queue(0)]) == []


def test_only_its_owner_gives_a_queue_back(locks: QueueLocks) -> None:
    locks.lock("g", "one", [queue(0)])
    locks.unlock("g", "two", [queue(0)])
    assert locks.owner("g", "orders", 0) == "one"
    locks.unlock("g", "one", [queue(0), queue(7)])
    assert locks.owner("g", "orders", 0) is None
    assert locks.lock("g", "two", [queue(0)]) == [queue(0)]


def test_another_name_for_this_broker_is_not_another_queue(locks: QueueLocks) -> None:
    named = queue(0, broker_name="proxy")
    assert locks.lock("g", "one", [named]) == [named]
    assert locks.lock("g", "two", [queue(0)]) == []


def test_leases_that_ended_are_forgotten(locks: QueueLocks, clock: SimulatedClock) -> None:
    for number in range(100):
        locks.lock(f"g{number}", "one", [queue(0)])
    clock.advance(121)
    locks.lock("g", "one", [queue(0)])
    assert len(locks._groups) == 1
