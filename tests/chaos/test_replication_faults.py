"""Nothing a sync master acknowledged is lost, whatever happens to it, its slave and the link.

`make test` has some kinds of faults, `make chaos PAIRS=200` all, many times (`replica_faults.py`); SEED=…
repeats a run as far as threads allow.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.chaos.replica_faults import KINDS, report, under_fire

FAULTS = int(os.environ.get("PAIRS", "0"))


@pytest.mark.slow
@pytest.mark.timeout(600 + 10 * FAULTS)
def test_nothing_acknowledged_by_a_sync_master_is_lost() -> None:
    seed = int(os.environ.get("SEED", time.time_ns() % 100_000))
    kinds = (
        (*KINDS, "switch")
        if FAULTS
        else (
            "clock of the master",
            "end at a place of the slave",
            "switch",
            "end at a place of the master",
            "one-way link",
            "sync error",
        )
    )
    counters, longest_gap = under_fire(max(FAULTS, len(kinds)), seed, kinds)
    print("\n" + report(counters, longest_gap, seed))
    assert counters["acknowledged"] > 100, "too little happened to prove anything"
