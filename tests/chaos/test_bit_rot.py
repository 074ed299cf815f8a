"""A stored bit that flips costs at most the message it is in (`bit_rot.py`).

`make test` does 200 harms, `make chaos FLIPS=10000` more, on all cores; SEED=… is the first seed.
"""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest

from tests.chaos.bit_rot import LARGE, Served, judged, judged_from, outcome
from tests.chaos.rot_folder import ALONE, SMALL_FILES

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
        print(f"  {kind:<42}{times}")
    assert {kind.split()[0] for kind in total} == {*LARGE, *SMALL_FILES, *ALONE}
    told = sum(times for kind, times in total.items() if kind.endswith("told"))
    assert told >= FLIPS // 2  # a run in which nothing was harmed that matters proves nothing


@pytest.mark.parametrize(("excused", "of"), [(2, 200), (11, 10_000), (10_000, 10_000)])
def test_a_run_that_excuses_more_than_a_few_fails(excused: int, of: int) -> None:
    total = Counter({"commitlog EXCUSED": excused, "commitlog told": of - excused})
    with pytest.raises(Served, match=f"{excused} of {of} harms excused"):
        outcome(total)
    total["commitlog EXCUSED"] -= excused
    assert outcome(total) == "nothing served wrong, nothing whole lost"
