"""How much a second."""

from __future__ import annotations

import pytest

from kourou.broker.rates import Rates
from kourou.broker.stats import Stats
from kourou.doors.clock import SimulatedClock


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


def test_a_rate_is_over_the_time_asked_for(clock: SimulatedClock) -> None:
    stats = Stats()
    rates = Rates(stats, clock)
    rates.start()
    stats.put("a", 600, 1)
    clock.advance(60)
    stats.put("a", 100, 1)
    clock.advance(10)
    assert rates.put(10) == pytest.approx(10)
    assert rates.put(60) == pytest.approx(100 / 60)
    assert rates.put(600) == pytest.approx(10)  # it is only 70 seconds old


def test_topics_and_groups_have_rates_of_their_own(clock: SimulatedClock) -> None:
    stats = Stats()
    rates = Rates(stats, clock)
    rates.start()
    stats.put("a", 60, 1)
    stats.got("a", "g", 30, 1)
    clock.advance(60)
    assert rates.put_to("a") == pytest.approx(1)
    assert rates.got_by("g", "a") == pytest.approx(0.5)
    assert rates.put_to("b") == rates.got_by("h", "a") == 0
    clock.advance(120)
    assert rates.put_to("a") == 0


def test_it_forgets_what_is_too_old(clock: SimulatedClock) -> None:
    rates = Rates(Stats(), clock)
    rates.start()
    clock.advance(3600)
    assert len(rates._looks) == 61
    assert len(rates._tables) == 7
