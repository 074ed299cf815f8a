from __future__ import annotations

from kourou.doors.chance import Chance
from kourou.remoting.backoff import Backoff


def test_the_wait_doubles_up_to_five_seconds_with_half_of_it_left_to_chance() -> None:
    backoff = Backoff(Chance(7))
    now = 100.0
    for number in range(200):
        backoff.failed(now)
        full = min(5.0, 0.1 * 2**number)
        assert full / 2 <= backoff.not_before - now <= full


def test_success_starts_it_over() -> None:
    backoff = Backoff(Chance(7))
    for _ in range(5):
        backoff.failed(1.0)
    backoff.succeeded()
    assert backoff.not_before == 0.0
    backoff.failed(1.0)
    assert backoff.not_before <= 1.1


def test_two_clients_do_not_come_back_at_the_same_moment() -> None:
    first, second = Backoff(Chance(1)), Backoff(Chance(2))
    first.failed(0.0)
    second.failed(0.0)
    assert first.not_before != second.not_before
