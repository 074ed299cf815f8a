"""A broker to attack, on a network, a clock and a disk of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.broker.broker_world import BrokerWorld


@pytest.fixture
def world() -> Iterator[BrokerWorld]:
    world = BrokerWorld()
    yield world
    world.close()
