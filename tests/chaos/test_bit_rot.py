"""A stored bit that flips costs at most the message it is in (`bit_rot.py`).

`make test` does 200 harms, `make chaos FLIPS=10000` more, on all cores; SEED=… is the first seed.
"""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest

from tests.chaos.bit_rot import judged, judged_from, outcome

FLIPS = int(os.environ.get("FLIPS", "200"))
SEED = int(os.environ.get("SEED", "0"))
WORTH_PROCESSES = 500


@pytest.mark.slow
@pytest.mark.timeout(600 + FLIPS)
def test_rot_is_told_nothing_is_served_wrong_and_no_neighbour_is_lost() -> None:
    begin = time.monotonic()
    total: Counter[str] = judged(FLIPS, SEED) if FLIPS >= WORTH_PROCESSES else judged_from(SEED, FLIPS)
    print(f"\n{FLIPS} harms from seed {SEED} on in {time.monotonic() - begin:.0f} s: {outcome(total)}")
    for kind, times in sorted(total.items()):
        print(f"  {kind:<28}{times}")
    files = {kind.split()[0] for kind in total}
    assert {"commitlog", "consumequeue", "index", "checkpoint", "config", "timers"} <= files
    told = sum(times for kind, times in total.items() if kind.endswith("told"))
    assert told >= FLIPS // 2  # a run in which nothing was harmed that matters proves nothing
