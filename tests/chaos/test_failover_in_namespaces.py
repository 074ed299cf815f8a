"""The wire between brokers is really cut, between network namespaces: nobody is told, and nothing is lost.

`make chaos FAILOVERS=50 PAIRS=200` does so where it may make namespaces, and otherwise says loudly that it
may not. Elsewhere the fault proxy and simulated networks stand for wires (`replica_faults.py`, `tests/sim`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.namespaces import CannotWire, Wires, wires
from tests.chaos.partitions import master_cut_off, pair_cut_apart

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(0)]

FAILOVERS = int(os.environ.get("FAILOVERS", "10"))
PAIRS = int(os.environ.get("PAIRS", "40"))
SECONDS_MAX = 20.0
"""For a busy machine; what it took is printed."""


@pytest.fixture
def machines() -> Iterator[Wires]:
    try:
        with wires() as built:
            built.machine()
            yield built
    except CannotWire as reason:
        pytest.skip(
            f"A CUT WIRE IS NOT TESTED: {reason}; run it on Linux, as root (the fault proxy is, anyhow)"
        )


def test_a_master_that_is_cut_off_is_followed_by_another(tmp_path: Path, machines: Wires) -> None:
    rounds = max(1, FAILOVERS // 10)
    counters, seconds = master_cut_off(tmp_path, machines, rounds)
    print(
        f"\n{rounds} masters cut off, acknowledged again after {max(seconds):.1f} s at most: {dict(counters)}"
    )
    assert counters["confirmed by the one cut off"] == 0
    assert counters["acknowledged"] > 50 * rounds
    assert max(seconds) < SECONDS_MAX


def test_a_pair_that_is_cut_apart_loses_nothing(tmp_path: Path, machines: Wires) -> None:
    counters = pair_cut_apart(tmp_path, machines, max(1, PAIRS // 40))
    print(f"\na pair cut apart: {dict(counters)}")
    assert counters["FLUSH_SLAVE_TIMEOUT"] > 0
    assert counters["acknowledged"] > 30
