"""A killed master is followed by another within seconds, and nothing acknowledged is lost."""

from __future__ import annotations

import os

import pytest

from tests.chaos.failovers import failed_over

FAILOVERS = int(os.environ.get("FAILOVERS", "3"))
SECONDS_MAX = 5.0
MOMENT_SECONDS = 5.0
"""More for a machine that is busy with other tests; `make chaos` prints what it measured."""


@pytest.mark.slow
@pytest.mark.timeout(0 if FAILOVERS > 10 else 600)
def test_a_killed_master_is_followed_by_another_and_nothing_is_lost() -> None:
    outcome = failed_over(FAILOVERS, pauses=FAILOVERS // 5)
    print(outcome.report())
    assert not outcome.lost, outcome.report()
    assert not outcome.unhandled, outcome.report()
    assert len(outcome.told.acknowledged) > 20 * FAILOVERS, "too little has happened"
    assert max(outcome.kills) <= SECONDS_MAX + MOMENT_SECONDS, outcome.report()
