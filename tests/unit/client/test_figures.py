"""How fast a consumer is with a topic, by a clock that stands still until it is told."""

from __future__ import annotations

import pytest

from kourou.client.figures import Figures, Window
from kourou.doors.clock import SimulatedClock
from kourou.protocol.bodies import TopicConsumption


def test_figures_are_over_the_last_minute_and_failures_over_the_last_hour() -> None:
    clock = SimulatedClock()
    figures = Figures(clock)
    orders = figures.of("orders")
    for _ in range(12):  # for a minute, every five seconds
        orders.pulled(10, 0.004)
        orders.called(10, 0.2, 8)
        orders.failed(2)
        clock.advance(5)
    told = figures.told()["orders"]
    assert told.pull_tps == pytest.approx(2, rel=0.2)
    assert told.pull_rt == pytest.approx(4)
    assert told.consume_rt == pytest.approx(20)
    assert told.consume_ok_tps == pytest.approx(1.6, rel=0.2)
    assert told.consume_failed_tps == pytest.approx(0.4, rel=0.2)
    assert told.consume_failed_msgs == 24
    clock.advance(120)
    assert figures.told()["orders"] == TopicConsumption(consume_rt=20, consume_failed_msgs=24)
    clock.advance(3600)
    assert figures.told()["orders"] == TopicConsumption()


def test_a_young_consumer_says_what_it_has() -> None:
    clock = SimulatedClock()
    orders = Figures(clock).of("orders")
    clock.advance(5)
    orders.called(100, 1.0, 100)
    assert orders.told().consume_ok_tps == pytest.approx(20)


def test_what_is_older_than_the_window_no_longer_counts() -> None:
    window = Window(60.0, 0.0)
    for second in range(1000):
        window.add(float(second), 1.0)
    sums = window.sums(999.0)
    assert 50 <= sums.times <= 60
    assert sums.per_second == pytest.approx(1.0, rel=0.05)
    assert window.sums(2000.0).times == 0
