"""Thousands of replica sets, each from one integer: never two masters, nothing acknowledged lost.

`make test` runs 250 seeds, `make chaos` and `make sim` thousands; a failure prints what repeats it.
"""

from __future__ import annotations

import os

import pytest

from tests.sim.replica_set import simulate

SEEDS = int(os.environ.get("ELECTIONS", "250"))

CAUGHT = {
    "not_in_sync_is_elected": 1,
    "acknowledged_by_one": 0,
    "votes_twice": 1,
    "votes_during_a_lease": 31,
    "no_wait_after_a_start": 335,
    "lease_for_ever": 7,
    "old_bytes_are_taken": 3,
    "shrinks_at_once": 103,
    "joins_too_early": 1,
    "inheritance_is_forgotten": 19,
    "doubt_is_ignored": 23,
    "oldest_record_counts": 7,
    "half_is_enough": 0,
}
"""Faults of our own, and a seed that shows each; `make sim MUTATIONS=1` tries all there are."""


@pytest.mark.slow
@pytest.mark.timeout(0 if SEEDS > 1000 else 1200)
def test_no_replica_set_has_two_masters_or_loses_what_it_acknowledged() -> None:
    acknowledged = terms = kills = 0
    for seed in range(SEEDS):
        outcome = simulate(seed)
        assert not outcome.found, f"{outcome.found[0]}\nagain: {outcome.replay}"
        acknowledged += outcome.acknowledged
        terms += outcome.terms
        kills += outcome.kills
    print(f"{SEEDS} replica sets: {terms} masters, {kills} kills, {acknowledged} acknowledged, 0 lost")
    assert terms > 2 * SEEDS, "too little has happened"
    assert acknowledged > 30 * SEEDS


@pytest.mark.parametrize("mutation", CAUGHT)
def test_the_simulated_replica_set_shows_what_is_wrong(mutation: str) -> None:
    assert simulate(CAUGHT[mutation], mutation).found


def test_the_same_seed_tells_the_same_story() -> None:
    stories: list[list[str]] = [[], []]
    outcomes = [simulate(11, tell=story.append) for story in stories]
    assert stories[0]
    assert stories[0] == stories[1]
    assert outcomes[0] == outcomes[1]
