"""Clusters of processes for tests: up until they serve, down in the end, whatever happens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kourou.admin import Connection, cluster
from kourou.doors.files import RealFiles
from kourou.errors import MQError
from kourou.local.machine_cluster import MachineCluster, Running

READY_SECONDS_MAX = 30.0


@contextmanager
def machine_cluster(
    folder: Path, layout: str, *, name_servers: int = 1, **settings: str
) -> Iterator[MachineCluster]:
    """`kourou cluster up` without the command line, on free ports, in `folder`."""
    machine = MachineCluster(str(folder), RealFiles())
    try:
        machine.up(layout, name_servers=name_servers, settings=settings)
        wait_until_registered(machine)
        yield machine
    finally:
        machine.down()


def wait_until_registered(machine: MachineCluster, *, without: tuple[str, ...] = ()) -> None:
    """Until every name server knows every broker, and a master for each name."""
    wanted = {each for each in machine.servers() if each.kind == "broker" and each.name not in without}
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        if all(_knows(address, wanted) for address in machine.name_servers.split(";")):
            return
        for server in wanted:
            assert server.state != "stopped", machine.last_words(server.name)
        assert time.monotonic() < deadline, f"not registered: {wanted}"
        time.sleep(0.05)


def _knows(address: str, wanted: set[Running]) -> bool:
    try:
        with Connection(address, timeout=1.0) as connection:
            nodes = cluster.nodes(connection)
    except MQError:
        return False
    known = {node.address for node in nodes}
    led = {node.broker for node in nodes if node.is_master}
    return all(server.address in known and server.broker in led for server in wanted)
