"""The suite sees each fault that is put into the broker on purpose (`mutations.py`)."""

from __future__ import annotations

import pytest

from tests.chaos.mutations import MUTATIONS, outcome_of


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_fault_in_the_broker_is_caught(name: str) -> None:
    outcome = outcome_of(name)
    assert outcome.caught_by is not None, outcome.output[-2000:]
