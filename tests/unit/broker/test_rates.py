"""How much a second."""

from __future__ import annotations

import sys
import time

import pytest

from kourou.broker.rates import Rates
from kourou.broker.spans import Spans
from kourou.broker.stats import Flow, Stats
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


def test_with_many_topics_a_rate_costs_no_more_and_a_look_16_bytes_each(clock: SimulatedClock) -> None:
    stats = Stats()
    for number in range(5_000):
        stats.put(f"topic-{number}", 1, 100)
        stats.got(f"topic-{number}", "g", 1, 100)
    rates = Rates(stats, clock)
    rates.start()
    clock.advance(60)
    stats.put("topic-7", 60, 100)
    began = time.process_time()
    found = [
        rates.put_to(f"topic-{number}") + rates.got_by("g", f"topic-{number}") for number in range(5_000)
    ]
    assert time.process_time() - began < 2.0  # each by a look at all of them took half a minute
    assert [number for number, rate in enumerate(found) if rate] == [7]
    assert sys.getsizeof(stats.look().put) < 5_000 * 20


def test_what_was_counted_first_after_a_look_counts_as_nothing_before_it(clock: SimulatedClock) -> None:
    stats = Stats()
    stats.put("a", 1, 10)
    before = stats.look()
    stats.put("b", 2, 20)
    stats.got("a", "g", 3, 30)
    assert (stats.put_to("a", before), stats.put_to("b", before)) == (Flow(1, 10), None)
    assert stats.got_from("a", "g", before) is None
    assert (stats.put_to("b"), stats.got_from("a", "g")) == (Flow(2, 20), Flow(3, 30))
    assert (before.put_messages, before.got_messages) == (1, 0)
    assert stats.look().put_messages == stats.put_total.messages == 3


def test_rates_and_spans_can_be_asked_before_they_are_started(clock: SimulatedClock) -> None:
    """A broker listens a moment before everything in it runs."""
    stats = Stats()
    rates, spans = Rates(stats, clock), Spans(stats, clock, "DefaultCluster")
    stats.put("a", 3, 30)
    assert (rates.put(10), rates.put_to("a"), rates.got_by("g", "a")) == (3, 3, 0)
    found = spans.of("TOPIC_PUT_NUMS", "a")
    assert found is not None
    assert [each.sum for each in found] == [3, 3, 3]
