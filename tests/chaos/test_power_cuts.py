"""Whenever the power fails, nothing acknowledged, shown or saved is lost (`power_cuts.py`).

`make test` looks at 2,000 disks, `make chaos IMAGES=100000` at more, on all cores; SEED=… is the first seed.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.chaos.power_cuts import IMAGES_A_WORK, Tally, judged, work_of

IMAGES = int(os.environ.get("IMAGES", "2000"))
SEED = int(os.environ.get("SEED", "0"))
WORTH_PROCESSES = 5_000
KEPT_AN_IMAGE = 10
"""Fewer acknowledged messages on an image on average, and the run fails: too little has happened."""


@pytest.mark.slow
@pytest.mark.timeout(600 + IMAGES)
def test_no_power_cut_takes_what_was_acknowledged_shown_or_saved() -> None:
    begin = time.monotonic()
    if IMAGES >= WORTH_PROCESSES:
        tally = judged(IMAGES, SEED)
    else:
        tally = Tally()
        for seed in range(SEED, SEED - -IMAGES // IMAGES_A_WORK):
            tally = tally.plus(work_of(seed))
    seconds = time.monotonic() - begin
    print(
        f"\n{tally.images} power cuts from seed {SEED} on, {tally.kept} acknowledged messages looked for and "
        f"found, none lost: {seconds:.0f} s, {tally.images / seconds:.0f} images/s"
    )
    assert tally.kept >= KEPT_AN_IMAGE * tally.images


def test_the_same_seed_gives_the_same_images() -> None:
    assert work_of(3, 40) == work_of(3, 40)
