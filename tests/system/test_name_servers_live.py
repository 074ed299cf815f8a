"""Name servers come and go while brokers and clients work."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kourou as library
from kourou.admin import Connection
from kourou.admin import cluster as clusters
from kourou.local.machine_cluster import MachineCluster
from tests.machine_clusters import machine_cluster

BACK_SECONDS_MAX = 5.0
MOMENT_SECONDS = 10.0
"""More for a machine that is busy with other tests."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineCluster]:
    with machine_cluster(tmp_path_factory.mktemp("servers") / "c", "1m", name_servers=2) as machine:
        yield machine


def known_brokers(address: str) -> set[str]:
    try:
        with Connection(address, timeout=1.0) as connection:
            return {node.broker for node in clusters.nodes(connection)}
    except library.MQError:
        return set()


def seconds_until_known(address: str) -> float:
    began = time.monotonic()
    while "broker-a" not in known_brokers(address):
        assert time.monotonic() - began < 30, f"{address} does not know the broker"
        time.sleep(0.05)
    return time.monotonic() - began


def test_without_any_name_server_all_that_is_known_goes_on_and_they_are_back_soon(
    machine: MachineCluster,
) -> None:
    addresses = machine.name_servers.split(";")
    with library.Producer("shop", machine.name_servers) as producer:
        producer.send(library.Message("orders", b"before"))
        with library.PullConsumer("billing", "orders", machine.name_servers) as consumer:
            assert consumer.receive(1, timeout=5)
            for name in ("nameserver-1", "nameserver-2"):
                machine.tell(name, signal.SIGKILL)
            producer.send(library.Message("orders", b"without"))
            assert [message.body for message in consumer.receive(1, timeout=10)] == [b"without"]
            time.sleep(3.0)  # long enough for who tries again to wait between two tries
            for name in ("nameserver-1", "nameserver-2"):
                machine.start(name)
            began = time.monotonic()
            for address in addresses:
                seconds_until_known(address)
            took = time.monotonic() - began
            producer.send(library.Message("orders", b"after"))
            assert [message.body for message in consumer.receive(1, timeout=10)] == [b"after"]
    assert took < BACK_SECONDS_MAX + MOMENT_SECONDS, f"{took:.1f} s"


def test_a_name_server_is_added_and_another_taken_away_without_a_restart(machine: MachineCluster) -> None:
    first, second = machine.name_servers.split(";")
    config = Path(machine.folder) / "broker-a" / "broker.conf"
    both = config.read_text()
    config.write_text(both.replace(f"{first};{second}", first))
    machine.tell("broker-a", signal.SIGHUP)
    machine.tell("nameserver-2", signal.SIGKILL)
    machine.start("nameserver-2")  # it knows nobody now
    time.sleep(2.0)
    assert known_brokers(second) == set(), "the broker does not go there any more"
    assert known_brokers(first) == {"broker-a"}
    config.write_text(both)
    machine.tell("broker-a", signal.SIGHUP)
    seconds_until_known(second)
    with library.Producer("shop", second) as producer:
        producer.send(library.Message("orders", b"by the new one"))


def test_an_unusable_file_changes_nothing(machine: MachineCluster) -> None:
    config = Path(machine.folder) / "broker-a" / "broker.conf"
    good = config.read_text()
    config.write_text(good + "\nflushDiskType=NEVER\n")
    machine.tell("broker-a", signal.SIGHUP)
    deadline = time.monotonic() + 20
    while "the configuration is left as it was" not in machine.last_words("broker-a"):
        assert time.monotonic() < deadline, machine.last_words("broker-a")
        time.sleep(0.05)
    config.write_text(good)
    assert {server.name: server.state for server in machine.servers()}["broker-a"] == "running"
