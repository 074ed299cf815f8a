"""A broker that is killed while it is written to and read from loses nothing that it acknowledged or showed.

`make test` kills one twenty times, `make chaos KILLS=200` more often, several side by side (`kills.py`);
SEED=… repeats a run as far as threads allow.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.chaos.kills import killed_side_by_side, report

KILLS = int(os.environ.get("KILLS", "20"))


@pytest.mark.slow
@pytest.mark.timeout(600 + 30 * KILLS)
def test_nothing_acknowledged_or_shown_is_lost_when_the_broker_is_killed() -> None:
    seed = int(os.environ.get("SEED", time.time_ns() % 100_000))
    begin = time.monotonic()
    total = killed_side_by_side(KILLS, seed)
    print("\n" + report(total, time.monotonic() - begin, seed))
