"""A full disk, or one whose sync fails, on one side of a pair: nothing acknowledged is lost, and all goes on.

Each broker has a small disk (tmpfs) that the test mounts, so it needs the right to. `make chaos PAIRS=200`
has many rounds of it, and the failing sync of a master (that of a slave is in `test_replication_faults.py`).
"""

from __future__ import annotations

import os
import time

import pytest

from tests.chaos.replica_faults import DISK_KINDS, CannotMount, report, under_fire

PAIRS = int(os.environ.get("PAIRS", "0"))
ROUNDS = max(1, PAIRS // 20)
KINDS = DISK_KINDS if PAIRS else DISK_KINDS[:2]


@pytest.mark.slow
@pytest.mark.timeout(600 + 30 * ROUNDS)
def test_one_faulty_disk_loses_nothing_that_was_acknowledged() -> None:
    seed = int(os.environ.get("SEED", time.time_ns() % 100_000))
    kinds = KINDS * ROUNDS
    try:
        counters, longest_gap = under_fire(len(kinds), seed, kinds, disks=True)
    except CannotMount as reason:
        pytest.skip(f"A FAULTY DISK OF ONE OF A PAIR IS NOT TESTED: {reason}; run it as root")
    print("\n" + report(counters, longest_gap, seed))
    assert all(counters[kind] == ROUNDS for kind in KINDS)
    # What was heard while which disk was full is asserted there: nothing goes on before it was.
    assert counters["acknowledged"] > 20, "too little happened to prove anything"
