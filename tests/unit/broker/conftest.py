"""A broker for every test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.broker.broker_world import BrokerWorld, Peer


@pytest.fixture
def world() -> Iterator[BrokerWorld]:
    """A network, a clock and a disk; the test starts the broker, with the settings it wants."""
    world = BrokerWorld()
    yield world
    world.close()


@pytest.fixture
def peer(world: BrokerWorld) -> Peer:
    """A client of a broker with the usual settings."""
    world.start()
    return world.connect()
