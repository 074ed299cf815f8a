"""Figures over the last minute, hour and day."""

from __future__ import annotations

from kourou.broker.spans import Spans
from kourou.broker.stats import Stats
from kourou.doors.clock import SimulatedClock
from kourou.protocol.admin_bodies import StatsSnapshot


def spans() -> tuple[Spans, Stats, SimulatedClock]:
    clock, stats = SimulatedClock(), Stats()
    counted = Spans(stats, clock, "DefaultCluster")
    counted.start()
    return counted, stats, clock


def of(counted: Spans, name: str, key: str) -> tuple[StatsSnapshot, StatsSnapshot, StatsSnapshot]:
    found = counted.of(name, key)
    assert found is not None
    return found


def test_what_was_never_counted_has_no_figure() -> None:
    counted, stats, _ = spans()
    stats.put("orders", 1, 100)
    assert counted.of("TOPIC_PUT_NUMS", "prices") is None
    assert counted.of("GROUP_GET_NUMS", "orders@readers") is None
    assert counted.of("NONSENSE", "orders") is None
    assert counted.of("BROKER_PUT_NUMS", "another-cluster") is None


def test_each_span_forgets_in_its_own_time() -> None:
    counted, stats, clock = spans()
    clock.advance(1)
    stats.put("orders", 60, 6_000)
    minute, hour, day = of(counted, "TOPIC_PUT_NUMS", "orders")
    assert (minute.sum, hour.sum, day.sum) == (60, 60, 60)
    for _ in range(9):
        clock.advance(10)
    minute, hour, day = of(counted, "TOPIC_PUT_NUMS", "orders")
    assert (minute.sum, hour.sum, day.sum) == (0, 60, 60)
    for _ in range(500):
        clock.advance(10)
    minute, hour, day = of(counted, "TOPIC_PUT_NUMS", "orders")
    assert (hour.sum, day.sum) == (0, 60)


def test_a_rate_is_over_the_time_that_passed() -> None:
    counted, stats, clock = spans()
    for _ in range(6):
        clock.advance(10)
        stats.put("orders", 20, 2_000)
    minute, _, _ = of(counted, "TOPIC_PUT_NUMS", "orders")
    assert round(minute.tps, 2) == 2.0
    size, _, _ = of(counted, "TOPIC_PUT_SIZE", "orders")
    assert size.sum == 12_000


def test_groups_and_the_whole_broker_are_counted() -> None:
    counted, stats, _ = spans()
    stats.put("orders", 3, 300)
    stats.got("orders", "readers", 2, 200)
    figures = {
        name: of(counted, name, key)[0].sum
        for name, key in (
            ("GROUP_GET_NUMS", "orders@readers"),
            ("GROUP_GET_SIZE", "orders@readers"),
            ("BROKER_PUT_NUMS", "DefaultCluster"),
            ("BROKER_GET_NUMS", "DefaultCluster"),
        )
    }
    assert figures == {
        "GROUP_GET_NUMS": 2,
        "GROUP_GET_SIZE": 200,
        "BROKER_PUT_NUMS": 3,
        "BROKER_GET_NUMS": 2,
    }


def test_nothing_runs_after_the_stop() -> None:
    counted, stats, clock = spans()
    counted.stop()
    stats.put("orders", 1, 1)
    clock.advance(3600)
    assert of(counted, "TOPIC_PUT_NUMS", "orders")[0].sum == 1
