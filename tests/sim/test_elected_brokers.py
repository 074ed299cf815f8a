"""Real brokers that elect their master, on simulated machines: nothing is lost, and all logs are the same.

`make test` runs a few seeds, `make sim SEEDS=500` many; a failure prints what repeats it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.elected_brokers import MUTATIONS

ROOT = Path(__file__).parents[2]
SEEDS = int(os.environ.get("ELECTED", "6"))


def elected_brokers(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.sim.elected_brokers", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(620)
def test_no_seed_loses_what_was_acknowledged_or_leaves_two_logs() -> None:
    done = elected_brokers("--seeds", str(SEEDS))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert f"{SEEDS} seeds from 0: 0 failed" in done.stdout


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_what_is_wrong_shows(mutation: str) -> None:
    first = "0" if mutation.startswith("shown") else "2"
    done = elected_brokers("--first", first, "--seeds", "8", "--mutation", mutation)
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
    shown = "readers saw" if mutation.startswith("shown") else "acknowledged messages are lost"
    assert shown in done.stdout
