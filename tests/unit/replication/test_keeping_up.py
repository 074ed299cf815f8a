"""Who keeps up with the master, and who does not."""

from __future__ import annotations

from collections.abc import Callable

from kourou.replication.keeping_up import (
    ABSENT_SECONDS_MAX,
    BEHIND_SECONDS_MAX,
    START_SECONDS,
    KeepingUp,
    Progress,
)

Acked = Callable[[int], int] | int | None

BOTH = frozenset({"master", "replica"})
ALONE = frozenset({"master"})
STEP = 0.05


def watched(now: float = 0.0) -> KeepingUp:
    return KeepingUp(frozenset({"replica"}), now)


def advised(
    watch: KeepingUp, begin: float, seconds: float, in_sync: frozenset[str], acked: Acked, rate: int = 100
) -> frozenset[str]:
    """The advice after so long; `acked(end)` is what the replica has when the log ends there."""
    now, advice = begin, in_sync
    while now < begin + seconds:
        end = int(now * rate)
        has = acked(end) if callable(acked) else acked
        progress = Progress({} if has is None else {"replica": has}, 0, end)
        said = watch.advice(now, progress, advice)
        advice = said.stay | said.near
        now += STEP
    return advice


def test_a_replica_that_is_always_a_little_behind_stays() -> None:
    assert advised(watched(), 0.0, 30.0, BOTH, lambda end: max(0, end - 20)) == BOTH


def test_one_that_gets_nothing_leaves_after_two_seconds() -> None:
    watch = watched()
    begin = advised(watch, 0.0, 5.0, BOTH, lambda end: end)
    assert begin == BOTH
    assert advised(watch, 5.0, BEHIND_SECONDS_MAX - 0.2, BOTH, 500) == BOTH
    assert advised(watch, 5.0 + BEHIND_SECONDS_MAX - 0.2, 0.5, BOTH, 500) == ALONE


def test_one_that_is_gone_leaves_after_a_moment() -> None:
    watch = watched()
    advised(watch, 0.0, 5.0, BOTH, lambda end: end)
    assert advised(watch, 5.0, ABSENT_SECONDS_MAX - 0.1, BOTH, None) == BOTH
    assert advised(watch, 5.0 + ABSENT_SECONDS_MAX - 0.1, 0.3, BOTH, None) == ALONE


def test_after_an_election_the_others_have_time_to_come() -> None:
    assert advised(watched(), 0.0, START_SECONDS, BOTH, None) == BOTH
    assert advised(watched(), 0.0, START_SECONDS + ABSENT_SECONDS_MAX + 0.2, BOTH, None) == ALONE


def test_one_that_has_caught_up_comes_back() -> None:
    watch = watched()
    assert advised(watch, 0.0, 5.0, ALONE, lambda end: end // 2) == ALONE
    assert advised(watch, 5.0, 1.0, ALONE, lambda end: end - 2) == BOTH
