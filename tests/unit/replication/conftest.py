"""What the tests of replication share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.replication.replica_world import ReplicaWorld


@pytest.fixture
def replicas() -> Iterator[ReplicaWorld]:
    """A network for a master and its slaves; the test starts them, with the settings it wants."""
    world = ReplicaWorld()
    yield world
    world.close()
