from __future__ import annotations

from collections import Counter

import pytest

from kourou.client.faults import (
    TABLE_4_9,
    TABLE_5,
    FaultItem,
    Faults,
    FaultTable,
    after_try,
    avoided_ms,
    better_half,
)
from kourou.client.queue_choice import Turns
from kourou.client.routes import Route
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from tests.unit.client.conversation import route_of

THREE = {name: {0: f"{name}:10911"} for name in ("a", "b", "c")}


@pytest.mark.parametrize(
    ("table", "latency_ms", "avoided"),
    [
        (TABLE_4_9, 0, 0),
        (TABLE_4_9, 49.9, 0),
        (TABLE_4_9, 549.9, 0),
        (TABLE_4_9, 550, 30_000),
        (TABLE_4_9, 999, 30_000),
        (TABLE_4_9, 1000, 60_000),
        (TABLE_4_9, 2000, 120_000),
        (TABLE_4_9, 3000, 180_000),
        (TABLE_4_9, 14_999, 180_000),
        (TABLE_4_9, 15_000, 600_000),
        (TABLE_5, 549.9, 0),
        (TABLE_5, 550, 2_000),
        (TABLE_5, 1_799, 2_000),
        (TABLE_5, 1_800, 5_000),
        (TABLE_5, 3_000, 6_000),
        (TABLE_5, 5_000, 10_000),
        (TABLE_5, 15_000, 30_000),
    ],
)
def test_slower_is_avoided_for_longer(table: FaultTable, latency_ms: float, avoided: int) -> None:
    assert avoided_ms(table, latency_ms, failed=False) == avoided


def test_a_failure_counts_as_a_very_slow_try() -> None:
    assert avoided_ms(TABLE_4_9, 1, failed=True) == 600_000  # as 30 s
    assert avoided_ms(TABLE_5, 1, failed=True) == 10_000  # as 10 s


def test_in_4_9_a_quick_try_makes_a_broker_available_again_and_in_5_it_does_not() -> None:
    avoided = FaultItem("a", 3000, available_from_ms=100_000)
    assert after_try(avoided, TABLE_4_9, "a", 10_000, 5, False).available_from_ms == 10_000
    assert after_try(avoided, TABLE_5, "a", 10_000, 5, False).available_from_ms == 100_000


@pytest.mark.parametrize(
    ("items", "best"),
    [
        ([], []),
        ([FaultItem("a", 9, 99)], ["a"]),
        ([FaultItem("slow", 9, 99), FaultItem("fast", 3, 99)], ["fast"]),
        ([FaultItem("fast", 3, 99), FaultItem("back", 9, 5)], ["back"]),
        ([FaultItem("late", 3, 99), FaultItem("early", 3, 50)], ["early"]),
        (
            [FaultItem(name, latency, 99) for name, latency in zip("abcde", (5, 1, 4, 2, 3), strict=True)],
            ["b", "d"],
        ),
    ],
)
def test_the_better_half_is_who_is_back_then_who_is_fast_then_who_is_avoided_less_long(
    items: list[FaultItem], best: list[str]
) -> None:
    assert [item.broker_name for item in better_half(items, now_ms=10)] == best


class World:
    def __init__(self, table: FaultTable = TABLE_4_9) -> None:
        self.clock = SimulatedClock()
        self.faults = Faults(table, Turns(Chance(1)), self.clock, Chance(2), probes=True)
        self.route = Route("t", route_of(THREE, write=4))

    def chosen(self, times: int = 24) -> Counter[str]:
        return Counter(self.faults.choose(self.route, None).broker_name for _ in range(times))


def test_a_broker_nobody_tried_is_available_and_all_take_turns() -> None:
    assert World().chosen() == {"a": 8, "b": 8, "c": 8}


def test_a_broker_that_failed_is_avoided_until_its_time_is_over() -> None:
    world = World()
    world.faults.tried("b", 0.001, failed=True)
    assert set(world.chosen()) == {"a", "c"}
    world.clock.advance(599.9)
    assert set(world.chosen()) == {"a", "c"}
    world.clock.advance(0.1)
    assert set(world.chosen()) == {"a", "b", "c"}


def test_when_all_are_avoided_the_better_half_is_used_in_turn() -> None:
    world = World()
    for name, seconds in (("a", 2.0), ("b", 0.6), ("c", 1.0)):
        world.faults.tried(name, seconds, failed=False)
    assert set(world.chosen()) == {"b"}
    queues = {world.faults.choose(world.route, None).queue_id for _ in range(16)}
    assert len(queues) > 1


def test_a_broker_without_a_queue_of_the_topic_is_forgotten() -> None:
    world = World()
    world.faults.tried("elsewhere", 0.6, failed=False)
    for name in "abc":
        world.faults.tried(name, 5.0, failed=False)
    assert set(world.chosen(4)) <= set("abc")  # `elsewhere` is the fastest, and has no queue here
    assert world.faults.is_available("elsewhere")


def test_a_broker_that_could_not_be_reached_waits_for_a_probe() -> None:
    world = World(TABLE_5)
    world.faults.tried("a", 0.1, failed=True, unreachable=True)
    world.clock.advance(11)
    assert not world.faults.is_available("a")
    assert world.faults.unreachable() == ["a"]
    world.faults.reached("a")
    assert world.faults.is_available("a")
    assert world.faults.unreachable() == []
