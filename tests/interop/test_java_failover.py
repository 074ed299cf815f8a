"""Stock Java clients when the master changes: they go on by themselves, and miss nothing acknowledged."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import kourou
from kourou.admin import Connection
from kourou.admin import cluster as clusters
from tests.interop import apache, ours
from tests.interop.java_member import JavaMember, java_member, java_producer
from tests.interop.ours import wait_until
from tests.interop.test_replication import our_broker, until_following, until_same, wait_for_topic
from tests.kourou_process import kourou as run_kourou
from tests.machine_clusters import machine_cluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC = "followed"
FOLLOWS_SECONDS_MAX = 35.0


def acknowledged(producer: JavaMember) -> set[str]:
    return {line["body"] for line in producer.events("sent") if line["status"] == "SEND_OK"}


def test_java_clients_follow_an_elected_master_and_miss_nothing(version: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        machine = stack.enter_context(machine_cluster(tmp_path / "c", "3n-auto"))
        names = machine.name_servers
        made = run_kourou("topic", "create", TOPIC, "-n", names, folder=tmp_path)
        assert made.returncode == 0, made.stderr
        consumer = stack.enter_context(java_member(version, tmp_path, names, "java-readers", TOPIC, millis=0))
        producer = stack.enter_context(java_producer(version, tmp_path, names, "java-senders", TOPIC))
        wait_until(lambda: len(acknowledged(producer)) > 50, 30, "Java sent something")
        wait_until(lambda: bool(consumer.bodies()), 60, "Java consumed something")
        with Connection(names) as connection:
            master = clusters.node(connection, "broker-a")
        assert master.is_master
        name = next(server.name for server in machine.servers() if server.address == master.address)
        killed_ms = time.time() * 1000
        machine.tell(name, signal.SIGKILL)

        def after_the_kill() -> list[float]:
            """When sends were acknowledged that the killed one cannot have answered."""
            sent = [line for line in producer.events("sent") if line["status"] == "SEND_OK"]
            return [line["ms"] for line in sent if line["ms"] > killed_ms + 500]

        wait_until(lambda: bool(after_the_kill()), FOLLOWS_SECONDS_MAX, "the Java producer went on")
        took = (after_the_kill()[0] - killed_ms) / 1000
        wait_until(lambda: len(after_the_kill()) > 50, 30, "the Java producer sent more")
        producer.leave()
        wanted = acknowledged(producer)
        wait_until(lambda: wanted <= set(consumer.bodies()), 60, "the Java consumer got everything")
        again = len(consumer.bodies()) - len(set(consumer.bodies()))
        print(
            f"\nclient {version}: went on {took:.1f} s after the kill; {len(wanted)} acknowledged, "
            f"0 missed, {again} consumed again, {len(producer.events('failed'))} sends failed"
        )
        assert took <= FOLLOWS_SECONDS_MAX


def test_a_java_consumer_goes_on_when_our_slave_of_an_apache_master_is_promoted(tmp_path: Path) -> None:
    """At run time, without a restart of anybody."""
    version = "4.9.7"
    with ExitStack() as stack:
        names = stack.enter_context(ours.name_server(tmp_path)).address
        master = stack.enter_context(
            apache.broker(
                version,
                tmp_path,
                names,
                name="pair",
                brokerRole="SYNC_MASTER",
                slaveTimeout=10_000,
                mappedFileSizeCommitLog=1024 * 1024,
            )
        )
        port = apache.free_ports_in_a_row()
        slave = stack.enter_context(
            our_broker(tmp_path / "ours", names, port, brokerRole="SLAVE", brokerId=1, haMetadataInterval=500)
        )
        until_following(names, TOPIC)
        consumer = stack.enter_context(java_member(version, tmp_path, names, "java-readers", TOPIC, millis=0))
        before = {f"before-{number}" for number in range(500)}
        send(names, before)
        wait_until(lambda: before <= set(consumer.bodies()), 60, "the Java consumer got the first ones")
        until_same(master.store, slave.folder)
        wait_for_topic(slave.address, TOPIC)
        time.sleep(7.0)  # Java commits every five seconds, and the slave copies that a moment later
        master.kill()
        promoted = run_kourou(
            "broker", "promote", slave.address, "--force", "--yes", "-n", names, folder=tmp_path, seconds=60
        )
        assert promoted.returncode == 0, promoted.stdout + promoted.stderr
        after = {f"after-{number}" for number in range(200)}
        send(names, after)
        wait_until(lambda: after <= set(consumer.bodies()), 60, "the Java consumer went on")
        bodies = consumer.bodies()
        assert len(bodies) - len(set(bodies)) < 50, "it began anew: its offsets were lost with the master"


def send(name_server: str, bodies: set[str]) -> None:
    with kourou.Producer("senders", name_server=name_server, send_timeout=15.0) as producer:
        for body in sorted(bodies):
            producer.send(kourou.Message(TOPIC, body.encode()))
