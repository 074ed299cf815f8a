"""The election in every order of events, within bounds: nothing is lost, no term has two masters.

`make test` searches narrow bounds, `make sim` and `make chaos` (ORDERS=long) wider ones.
"""

from __future__ import annotations

import os

import pytest

from tests.sim.every_order import CAUGHT, LONG, SHORT, Bounds, searched, searched_with

IS_LONG = os.environ.get("ORDERS") == "long"
SEARCHES = (*SHORT, *LONG) if IS_LONG else SHORT
SOON = ("acknowledged_by_one", "half_is_enough", "lease_for_ever", "not_in_sync_is_elected", "saved_too_late")
"""These are found within a second or two."""


@pytest.mark.slow
@pytest.mark.timeout(0 if IS_LONG else 900)
@pytest.mark.parametrize("bounds", SEARCHES, ids=lambda bounds: bounds.name.replace(" ", "-"))
def test_no_order_of_events_breaks_a_promise(bounds: Bounds) -> None:
    found = searched(bounds)
    print(found.shown)
    assert not found.fault, found.shown
    assert bounds in LONG or not found.is_cut, found.shown
    assert found.states > 1000, "too little has happened"


@pytest.mark.slow
@pytest.mark.timeout(0 if IS_LONG else 900)
@pytest.mark.parametrize("mutation", CAUGHT if IS_LONG else SOON)
def test_a_fault_in_the_election_is_found(mutation: str) -> None:
    assert searched_with(mutation).fault
