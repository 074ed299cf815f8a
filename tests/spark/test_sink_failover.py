"""Exactly once while masters fail over: what was staged at one is committed at the next."""

from __future__ import annotations

import contextlib
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kourou.admin import Connection, switching
from kourou.errors import MQError
from kourou.local.machine_cluster import MachineCluster
from kourou.local.published import Published, make_topic
from kourou.spark.access import ClusterAccess
from kourou.spark.cluster import Cluster
from kourou.spark.outgoing import Rows
from kourou.spark.staging import Committer, Stager, Transaction
from tests.machine_clusters import machine_cluster

TOPIC, ROWS = "failing-over", 6_000
PATIENCE_SECONDS = 60.0


@pytest.fixture
def three(tmp_path: Path) -> Iterator[MachineCluster]:
    """A name server, and three brokers of one name that elect their master."""
    with machine_cluster(tmp_path, "3n-auto") as machine:
        yield machine


@pytest.mark.slow
def test_rows_staged_and_committed_across_two_fail_overs_are_there_once(
    three: MachineCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.spark.staging.CHUNK_BYTES", 8_192)  # so that some are always on their way
    make_topic(address_of(three, master(three)), TOPIC, 2)
    bodies = pa.array([b"%d" % number for number in range(ROWS)], pa.binary())
    with contextlib.closing(Cluster(ClusterAccess(name_server=three.name_servers))) as cluster:
        write_over_fail_overs(three, cluster, bodies)
    written = Counter(message.body for message in Published(three.name_servers).messages(TOPIC))
    assert written == Counter(bodies.to_pylist())


def write_over_fail_overs(three: MachineCluster, cluster: Cluster, bodies: pa.Array) -> None:
    """One transaction: the first master is killed while it is staged, the second before it is committed."""
    transaction = Transaction("failing-over", 0)
    stager = Stager(cluster, transaction, "0.0", patience_seconds=PATIENCE_SECONDS)
    rows = Rows(topic=TOPIC, identity="0.0", now_ms=1)
    for start in range(0, ROWS, 100):
        if start == ROWS // 2:
            killed = kill_the_master(three)
        stager.send(rows.take_in(pa.RecordBatch.from_pydict({"body": bodies.slice(start, 100)})))
    part = stager.finish()
    three.start(killed)
    assert sum(messages for _, messages in part.brokers.values()) == ROWS
    assert not Published(three.name_servers).messages(TOPIC), "nothing is final before the commit"
    kill_the_master(three)
    assert Committer(cluster, transaction, PATIENCE_SECONDS).commit([part]) == ROWS
    Committer(cluster, transaction, PATIENCE_SECONDS).commit([part])


def kill_the_master(machine: MachineCluster) -> str:
    """SIGKILL to the one that leads, once the two others have all it has; its name."""
    name = master(machine)
    machine.tell(name, signal.SIGKILL)
    return name


def master(machine: MachineCluster) -> str:
    """The server that leads all three."""
    by_address = {server.address: server.name for server in machine.servers()}
    deadline = time.monotonic() + PATIENCE_SECONDS
    with Connection(machine.name_servers, timeout=1.0) as connection:
        while True:
            for address in leaders(connection):
                return by_address[address]
            assert time.monotonic() < deadline, "nobody leads all three"
            time.sleep(0.05)


def leaders(connection: Connection) -> list[str]:
    try:
        states = switching.states(connection)
    except MQError:  # the name server has just lost sight of somebody
        return []
    return [
        each.node.address
        for each in states
        if each.detail is not None
        and each.node.is_master
        and each.detail.may_acknowledge
        and len(each.detail.in_sync) == 3
    ]


def address_of(machine: MachineCluster, name: str) -> str:
    return next(server.address for server in machine.servers() if server.name == name)
