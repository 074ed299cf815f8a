"""The official Go client: our broker does with it as Apache's does; beside other clients, and in trouble."""

from __future__ import annotations

import signal
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kourou
from kourou.admin import Connection, groups, topics
from kourou.admin import cluster as clusters
from tests.guarded_cluster import ADMIN, READER, SHOP, guarded_cluster
from tests.interop import apache, go_client, ours, scenario_runs
from tests.interop.go_client import go_member, go_producer
from tests.interop.groups_of_both import make_topic, warm_up
from tests.interop.java_member import java_member
from tests.interop.ours import wait_until
from tests.interop.test_replication import our_broker, until_following, wait_for_topic
from tests.interop.test_scenarios_later import as_before_5
from tests.kourou_process import kourou as run_kourou
from tests.machine_clusters import machine_cluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

SETTINGS: dict[str, Any] = {
    "messageDelayLevel": "1s 2s 3s 4s 5s 6s",
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",  # this client traces only where the topic is there
    "transactionTimeOut": 2000,
    "transactionCheckInterval": 1000,
    "transactionOpBatchInterval": 50,
}
EXPLAINED: dict[str, set[str]] = {"go-send-batch": {"sent.transactionId"}}
"""By scenario, where the two differ and why that is right: docs/compatibility.md tells each."""

EXPLAINED_WITH_OLDER: dict[str, set[str]] = {
    "go-send-no-queue": {"sent.code"},
    "go-send-empty": {"refused"},
    "go-send-properties": {"stored[0].properties.WAIT"},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> scenario_runs.Both:
    return scenario_runs.both_of(go_client.scenarios, tmp_path_factory.mktemp("go"), **SETTINGS)


@pytest.mark.parametrize("name", go_client.names())
def test_the_go_client_finds_all_as_with_apache(results: scenario_runs.Both, name: str) -> None:
    scenario_runs.check(results, name, EXPLAINED)


@pytest.fixture(scope="module")
def results_with_older(tmp_path_factory: pytest.TempPathFactory) -> scenario_runs.Both:
    folder = tmp_path_factory.mktemp("go-older")
    return as_before_5(scenario_runs.both_of(go_client.scenarios, folder, release="4.9.7", **SETTINGS))


@pytest.mark.parametrize("name", go_client.names())
def test_the_go_client_finds_all_as_with_an_older_apache(
    results_with_older: scenario_runs.Both, name: str
) -> None:
    scenario_runs.check(results_with_older, name, EXPLAINED_WITH_OLDER)


def test_each_difference_with_the_go_client_is_explained() -> None:
    assert {*EXPLAINED, *EXPLAINED_WITH_OLDER} <= scenario_runs.explained_in_the_documentation()


# --- beside other clients --------------------------------------------------------------------------------


def test_a_go_and_a_kourou_consumer_share_the_queues_of_one_group(tmp_path: Path) -> None:
    received: list[str] = []
    with (
        ours.node(tmp_path) as node,
        kourou.Producer("senders", node.address) as producer,
    ):
        make_topic(node.address, "shared", 8)
        with (
            go_member(tmp_path, node.address, "both", "shared") as go,
            kourou.PushConsumer("both", node.address, start="earliest") as consumer,
        ):

            @consumer.on("shared")
            def note(message: kourou.ReceivedMessage) -> None:
                received.append(message.body.decode())

            consumer.start()
            warm_up(producer, "shared", 8, lambda: (len(go.bodies()), len(received)))
            before = len(go.bodies()), len(received)
            for n in range(80):
                producer.send(kourou.Message("shared", b"first-%d" % n))
            wait_until(lambda: len(go.bodies()) + len(received) >= sum(before) + 80, 30, "all came")
            assert (len(go.bodies()) - before[0], len(received) - before[1]) == (40, 40)
            go.leave()
            for n in range(40):
                producer.send(kourou.Message("shared", b"second-%d" % n))
            wanted = {f"first-{n}" for n in range(80)} | {f"second-{n}" for n in range(40)}
            wait_until(lambda: wanted <= {*go.bodies(), *received}, 30, "all came to the one that stayed")
        node.stop()


def test_a_go_and_a_java_consumer_share_the_queues_of_one_group(version: str, tmp_path: Path) -> None:
    with ours.node(tmp_path) as node, kourou.Producer("senders", node.address) as producer:
        make_topic(node.address, "shared", 8)
        with (
            java_member(version, tmp_path, node.address, "both", "shared") as java,
            go_member(tmp_path, node.address, "both", "shared") as go,
        ):
            warm_up(producer, "shared", 8, lambda: (len(go.bodies()), len(java.bodies())))
            before = len(go.bodies()), len(java.bodies())
            for n in range(80):
                producer.send(kourou.Message("shared", b"%d" % n))
            wait_until(lambda: len(go.bodies()) + len(java.bodies()) >= sum(before) + 80, 30, "all came")
            assert (len(go.bodies()) - before[0], len(java.bodies()) - before[1]) == (40, 40)
            java.leave()
            for n in range(80, 120):
                producer.send(kourou.Message("shared", b"%d" % n))
            everything = {str(n) for n in range(120)}
            wait_until(lambda: everything <= {*go.bodies(), *java.bodies()}, 30, "the Go member had it all")
        node.stop()


def test_our_tools_see_move_and_use_a_go_member(tmp_path: Path) -> None:
    with (
        ours.name_server(tmp_path) as names,
        ours.broker(tmp_path, names.address, useServerSideResetOffset="false") as broker,
        kourou.Producer("senders", names.address) as producer,
        Connection(names.address) as connection,
    ):
        make_topic(names.address, "seen", 2)
        sent = [producer.send(kourou.Message("seen", b"%d" % n)) for n in range(6)]
        with go_member(tmp_path, names.address, "go-group", "seen") as go:
            wait_until(lambda: len(go.bodies()) == 6, 30, "all came")
            (seen,) = groups.members(connection, "go-group").members
            assert (seen.client_id.split("@")[1], seen.language) == ("go-member", "GO")
            info = groups.running_info(connection, "go-group", seen.client_id, stacks=True)
            assert {queue.queue_id for queue in info.mq_table if queue.topic == "seen"} == {0, 1}
            assert "goroutine" in str(info.jstack)
            said = groups.consume_directly(connection, "go-group", seen.client_id, sent[0].offset_id, "seen")
            assert said.consume_result == "CR_SUCCESS"
            wait_until(lambda: Counter(go.bodies())["0"] == 2, 10, "it handled the message it was handed")

            wait_until(lambda: _committed(connection, "go-group") == 6, 30, "it committed")
            reset = apache.mqadmin(
                "4.9.7", tmp_path, f"resetOffsetByTime -n {names.address} -g go-group -t seen -s 0 -f true"
            )
            assert "broker" in reset[0], reset
            wait_until(lambda: len(go.bodies()) == 13, 60, "it went on at the begin")
        broker.stop()
        names.stop()


def _committed(connection: Connection, group: str) -> int:
    return sum(queue.consumer_offset for queue in groups.lag(connection, group).queues)


# --- accounts ----------------------------------------------------------------------------------------------


def test_go_clients_send_and_receive_what_their_account_may(tmp_path: Path) -> None:
    def keys(account: Any) -> str:
        return f"{account.access_key}:{account.secret_key}"

    with guarded_cluster(tmp_path / "ours") as cluster:
        with Connection(cluster.name_server, access=ADMIN) as connection:
            wait_until(lambda: bool(clusters.nodes(connection)), 30, "the broker was registered")
            for topic in ("Orders", "Secret"):
                topics.save(connection, topics.Wanted(topic), clusters.nodes(connection))
            names = {"Orders", "Secret"}
            wait_until(lambda: names <= set(topics.names(connection)), 10, "the topics had routes")
        with (
            go_member(tmp_path, cluster.name_server, "readers", "Orders", credentials=keys(READER)) as reader,
            go_producer(tmp_path, cluster.name_server, "Orders", 3, credentials=keys(SHOP)) as shop,
        ):
            shop.wait(30)
            assert shop.events("sent")
            assert not shop.events("failed"), shop.events("failed")[0]
            wait_until(lambda: set(shop.bodies("sent")) <= set(reader.bodies()), 20, "the reader got them")
        for topic, account in (("Secret", keys(SHOP)), ("Orders", "shop-account:a-wrong-secret")):
            with go_producer(tmp_path, cluster.name_server, topic, 1, credentials=account) as refused:
                refused.wait(30)
                assert not refused.events("sent")
                assert refused.events("failed")


# --- trouble -----------------------------------------------------------------------------------------------


def test_go_clients_go_on_when_a_broker_comes_back(tmp_path: Path) -> None:
    port = apache.free_ports_in_a_row()
    with (
        ours.name_server(tmp_path) as names,
        ours.broker(tmp_path, names.address, port=port) as broker,
    ):
        make_topic(names.address, "kept", 4)
        with (
            go_member(tmp_path, names.address, "readers", "kept") as reader,
            go_producer(tmp_path, names.address, "kept", 25) as sender,
        ):
            wait_until(lambda: len(reader.bodies()) > 10, 30, "some came")
            broker.stop()
            stopped = time.time()
            with ours.broker(tmp_path, names.address, port=port):

                def sent_afterwards() -> list[str]:
                    return [line["body"] for line in sender.events("sent") if line["at"] > stopped + 0.5]

                wait_until(lambda: len(sent_afterwards()) > 20, 30, "it sent again")
                sender.wait(60)
                acknowledged = set(sender.bodies("sent"))
                wait_until(lambda: acknowledged <= set(reader.bodies()), 60, "all that was stored came")


def test_a_go_consumer_reads_from_the_slave_when_the_master_has_gone(tmp_path: Path) -> None:
    with ExitStack() as stack:
        names = stack.enter_context(ours.name_server(tmp_path)).address
        pair: list[ours.Part] = [
            stack.enter_context(
                our_broker(
                    tmp_path / role, names, apache.free_ports_in_a_row(), brokerRole=role, brokerId=number
                )
            )
            for number, role in enumerate(("SYNC_MASTER", "SLAVE"))
        ]
        until_following(names, "followed")
        wait_for_topic(pair[1].address, "followed")
        with (
            kourou.Producer("senders", names) as producer,
            go_member(tmp_path, names, "readers", "followed") as reader,
        ):
            wait_until(lambda: bool(reader.bodies()), 30, "it read from the master")
            reader.tell("suspend")
            time.sleep(1.0)
            wanted = {f"late-{n}" for n in range(12)}
            for body in sorted(wanted):
                assert producer.send(kourou.Message("followed", body.encode())).status.name == "SEND_OK"
            time.sleep(1.0)  # the slave shows what its master said last that readers may see
            pair[0].process.kill()
            reader.tell("resume")
            wait_until(lambda: wanted <= set(reader.bodies()), 90, "it read from the slave")


def test_go_clients_follow_an_elected_master_and_miss_nothing(tmp_path: Path) -> None:
    with machine_cluster(tmp_path / "c", "3n-auto") as machine:
        names = machine.name_servers
        made = run_kourou("topic", "create", "followed", "-n", names, folder=tmp_path)
        assert made.returncode == 0, made.stderr
        with (
            go_member(tmp_path, names, "readers", "followed") as reader,
            go_producer(tmp_path, names, "followed", 60) as sender,
        ):
            wait_until(lambda: len(reader.bodies()) > 10, 30, "some came")
            with Connection(names) as connection:
                master = clusters.node(connection, "broker-a")
            name = next(server.name for server in machine.servers() if server.address == master.address)
            killed = time.time()
            machine.tell(name, signal.SIGKILL)

            def sent_afterwards() -> list[float]:
                return [line["at"] for line in sender.events("sent") if line["at"] > killed + 0.5]

            wait_until(lambda: bool(sent_afterwards()), 45, "the Go producer followed")
            print(f"the Go producer went on {sent_afterwards()[0] - killed:.1f} s after the kill")
            sender.wait(90)
            acknowledged = set(sender.bodies("sent"))
            wait_until(lambda: acknowledged <= set(reader.bodies()), 90, "the Go consumer got everything")
