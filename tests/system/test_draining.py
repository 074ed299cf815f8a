"""A broker is taken out of service, and a topic gets fewer queues, while messages flow: nobody loses one."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kourou as library
from bench.restart import send_request
from kourou.admin import Connection, brokers, cluster, draining, topics
from kourou.local.machine_cluster import MachineCluster
from tests.kourou_process import kourou
from tests.machine_clusters import machine_cluster

PERIOD = "3"
"""Seconds: the clients of this test ask for routes every second."""


@pytest.fixture(autouse=True)
def routes_are_asked_for_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.client.routes.REFRESH_SECONDS", 1.0)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineCluster]:
    with machine_cluster(tmp_path_factory.mktemp("pair") / "c", "2m") as machine:
        yield machine


class Traffic:
    """A sender and a consumer that go on all the time."""

    def __init__(self, name_server: str, topic: str) -> None:
        self._name_server = name_server
        self._topic = topic
        self.sent: dict[bytes, library.SendResult] = {}
        self.failed = 0
        self.handled: Counter[bytes] = Counter()
        self.is_over = False

    def __enter__(self) -> Traffic:
        # From the earliest: what comes while a group begins at the latest is before that.
        self._consumer = library.PushConsumer(
            "readers", self._name_server, start="earliest", rebalance_seconds=1.0
        )
        self._consumer.on(self._topic)(lambda message: self.handled.update([message.body]))
        self._consumer.start()
        self._sender = threading.Thread(target=self._send)
        self._sender.start()
        return self

    def _send(self) -> None:
        number = 0
        with library.Producer("shop", self._name_server) as producer:
            while not self.is_over:
                number += 1
                body = b"%d" % number
                try:
                    self.sent[body] = producer.send(library.Message(self._topic, body))
                except library.MQError:
                    self.failed += 1
                time.sleep(0.01)

    def stop_sending(self) -> None:
        self.is_over = True
        self._sender.join()

    def await_all_handled(self) -> None:
        deadline = time.monotonic() + 20
        while missing := self.sent.keys() - self.handled.keys():
            where = [self.sent[body] for body in missing]
            assert time.monotonic() < deadline, f"of {len(self.sent)} were not handled: {where}"
            time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        with contextlib.suppress(library.MQError):
            self._consumer.close()
        self._sender.join()


def make_topic(machine: MachineCluster, name: str, queues: int = 4, broker: str | None = None) -> None:
    with Connection(machine.name_servers) as connection:
        for outcome in topics.save(
            connection, topics.Wanted(name, queues, queues), topics.targets(connection, broker=broker)
        ):
            assert outcome.error is None, outcome.error


def test_fewer_queues_are_made_in_two_steps_and_nothing_is_lost(pair: MachineCluster) -> None:
    make_topic(pair, "shrinking", 8)
    with Traffic(pair.name_servers, "shrinking") as traffic, Connection(pair.name_servers) as connection:
        while len(traffic.handled) < 50:
            time.sleep(0.05)
        said = []
        for step in draining.resize(connection, "shrinking", 3, period_seconds=float(PERIOD)):
            said.append(step.what)
            if not step.is_waiting:
                shapes = {
                    (part.write_queues, part.read_queues) for part in topics.show(connection, "shrinking")
                }
            time.sleep(0.3 if step.is_waiting else 0)
        assert shapes == {(3, 3)}
        assert any("read queues are now 3" in each for each in said)
        more = len(traffic.sent) + 20
        while len(traffic.sent) < more:
            time.sleep(0.05)
        traffic.stop_sending()
        traffic.await_all_handled()
        assert traffic.failed == 0


def test_a_message_that_comes_in_the_last_moment_keeps_the_queue_readable(
    pair: MachineCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer may have been asleep for longer than any route period."""
    make_topic(pair, "late", 4, broker="broker-a")
    queue = library.MessageQueue(topic="late", broker_name="broker-a", queue_id=3)
    looks: list[dict[str, int]] = []
    unread = draining._unread

    def and_then_one_comes(*arguments: Any) -> dict[str, int]:
        found = unread(*arguments)
        if not looks:
            producer.send(library.Message("late", b"late"), queue=queue)
        looks.append(found)
        return found

    monkeypatch.setattr(draining, "_unread", and_then_one_comes)
    with (
        library.Producer("shop", pair.name_servers) as producer,
        library.PushConsumer("late-readers", pair.name_servers, rebalance_seconds=1.0) as consumer,
        Connection(pair.name_servers) as connection,
    ):
        handled: list[bytes] = []
        consumer.on("late")(lambda message: handled.append(message.body))
        consumer.start()
        said = []
        for step in draining.resize(connection, "late", 2, period_seconds=0.5):
            said.append(step.what)
            time.sleep(0.1)
        assert any("in the last moment" in each for each in said)
        assert {(part.write_queues, part.read_queues) for part in topics.show(connection, "late")} == {(2, 2)}
        assert handled == [b"late"]


def test_a_broker_that_is_added_gets_its_share_without_a_restart(pair: MachineCluster) -> None:
    make_topic(pair, "growing", broker="broker-a")
    with Traffic(pair.name_servers, "growing") as traffic, Connection(pair.name_servers) as connection:
        while len(traffic.handled) < 20:
            time.sleep(0.05)
        make_topic(pair, "growing", broker="broker-b")

        def at_the_new_one() -> int:
            queues = topics.stats(connection, "growing").queues
            return sum(each.messages for each in queues if each.broker == "broker-b")

        deadline = time.monotonic() + 20
        while at_the_new_one() < 20:
            assert time.monotonic() < deadline, "producers do not see the new broker"
            time.sleep(0.1)
        traffic.stop_sending()
        traffic.await_all_handled()
        assert traffic.failed == 0


def test_a_look_at_what_draining_would_do_changes_nothing(pair: MachineCluster) -> None:
    make_topic(pair, "only-b", broker="broker-b")
    done = kourou(
        "broker", "drain", "broker-b", "--dry-run", "-n", pair.name_servers, folder=Path(pair.folder)
    )
    assert done.returncode == 0, done.stderr
    assert "writable nowhere else: only-b" in done.stdout
    assert "nothing was changed" in done.stderr
    refused = kourou("broker", "drain", "broker-b", "-n", pair.name_servers, folder=Path(pair.folder))
    assert refused.returncode == 6
    assert "only-b" in refused.stderr
    assert "--yes" in refused.stderr
    with Connection(pair.name_servers) as connection:
        assert {part.perm for part in topics.at_brokers(connection, "only-b")} == {6}


def test_an_unknown_broker_is_told_with_those_there_are(pair: MachineCluster) -> None:
    done = kourou("broker", "drain", "broker-z", "-n", pair.name_servers, folder=Path(pair.folder))
    assert done.returncode == 3
    assert "no broker 'broker-z'; known: broker-a, broker-b" in done.stderr


def test_a_new_topic_does_not_make_the_others_writable_again(pair: MachineCluster) -> None:
    """With it, the broker registers all its topics anew; the name server takes what it says."""
    make_topic(pair, "wiped", broker="broker-a")
    with Connection(pair.name_servers) as connection:
        node = cluster.node(connection, "broker-a")
        planned = draining.plan(connection, "broker-a")
        steps = draining.drain(connection, planned, period_seconds=60.0)
        next(steps)
        assert not is_writable(connection, "wiped", "broker-a")
        make_topic(pair, "new", broker="broker-a")
        assert is_writable(connection, "wiped", "broker-a"), "else there is nothing to be done about it"
        next(steps)
        assert not is_writable(connection, "wiped", "broker-a")
        draining.undo(connection, node)
        assert is_writable(connection, "wiped", "broker-a")


def is_writable(connection: Connection, topic: str, broker: str) -> bool:
    route = topics.route(connection, topic)
    return any(each.perm & 2 for each in route.queue_datas if each.broker_name == broker)


def test_what_comes_in_the_last_moment_is_waited_for_and_nothing_comes_after_it(
    pair: MachineCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(pair, "moments", 1, broker="broker-a")
    queue = library.MessageQueue(topic="moments", broker_name="broker-a", queue_id=0)
    looks: list[draining.Left] = []
    left = draining.left

    def and_then_one_comes(*arguments: Any) -> draining.Left:
        found = left(*arguments)
        if found.is_nothing and not any(each.is_nothing for each in looks):
            # By one who knows the old route: our own producer may have been told of the new one.
            connection.ask(planned.node.address, send_request("moments", 0), "sent to")
        looks.append(found)
        return found

    with (
        library.Producer("shop", pair.name_servers) as producer,
        library.PushConsumer("moment-readers", pair.name_servers, start="earliest") as consumer,
        Connection(pair.name_servers) as connection,
    ):
        handled: list[bytes] = []
        consumer.on("moments")(lambda message: handled.append(message.body))
        consumer.start()
        producer.send(library.Message("moments", b"early"), queue=queue)
        planned = draining.plan(connection, "broker-a")
        monkeypatch.setattr(draining, "left", and_then_one_comes)
        said = []
        for step in draining.drain(connection, planned, period_seconds=0.5):
            said.append(step.what)
            time.sleep(0.1)
        assert any("in the last moment: moment-readers 1 of moments" in each for each in said), said
        assert handled == [b"early", send_request("moments", 0).body]
        address = planned.node.address
        assert brokers.configuration(connection, address)["brokerPermission"] == "4"
        draining.undo(connection, planned.node)
        assert brokers.configuration(connection, address)["brokerPermission"] == "6"
        assert is_writable(connection, "moments", "broker-a")


def test_an_open_transaction_is_left_to_be_ended(pair: MachineCluster) -> None:
    make_topic(pair, "paid", 1, broker="broker-a")
    with (
        Connection(pair.name_servers) as connection,
        library.TransactionProducer(
            "payers", lambda _: library.TransactionState.UNKNOWN, pair.name_servers
        ) as producer,
    ):
        transaction = producer.transaction(library.Message("paid", b"half"))
        transaction.__enter__()
        rest = draining.left(connection, cluster.node(connection, "broker-a"))
        assert rest.transactions == 1
        assert not rest.is_nothing
        assert "1 open transactions" in draining.described(rest)
        transaction.__exit__(None, None, None)
        deadline = time.monotonic() + 20
        while draining.left(connection, cluster.node(connection, "broker-a")).transactions:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_replica_needs_no_draining(tmp_path: Path) -> None:
    """Its name is its master's: nobody could write to the whole set any more."""
    with machine_cluster(tmp_path / "c", "2m-2s-async") as machine, Connection(machine.name_servers) as seen:
        replica = next(node for node in cluster.nodes(seen) if not node.is_master)
        options = ("--yes", "-n", machine.name_servers)
        done = kourou("broker", "drain", replica.address, *options, folder=tmp_path)
        assert done.returncode == 2, done.stdout + done.stderr
        assert f"{replica.address} is a replica of {replica.broker} (brokerId 1)" in done.stderr
        make_topic(machine, "orders")
        assert is_writable(seen, "orders", replica.broker)


def test_a_set_that_elects_its_master_is_drained_as_a_whole(tmp_path: Path) -> None:
    with machine_cluster(tmp_path / "c", "3n-auto") as machine:
        options = ("--yes", "--route-period", "1", "-n", machine.name_servers)
        done = kourou("broker", "drain", "broker-a", *options, folder=tmp_path, seconds=90)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "replicas, which stop, too:" in done.stdout
        assert "REPLY_TOPIC" not in done.stdout
        deadline = time.monotonic() + 20
        while any(each.state != "stopped" for each in machine.servers() if each.kind == "broker"):
            assert time.monotonic() < deadline, machine.servers()
            time.sleep(0.1)


@pytest.mark.timeout(600)
def test_a_broker_is_drained_and_stopped_while_messages_flow(pair: MachineCluster) -> None:
    make_topic(pair, "flowing")
    with Traffic(pair.name_servers, "flowing") as traffic:
        while len(traffic.handled) < 50:
            time.sleep(0.05)
        options = ("--yes", "--route-period", PERIOD, "-n", pair.name_servers)
        done = kourou("broker", "drain", "broker-a", *options, folder=Path(pair.folder), seconds=90)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "broker-a stops; left behind: nothing" in done.stdout
        deadline = time.monotonic() + 20
        while {each.name: each.state for each in pair.servers()}["broker-a"] != "stopped":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        more = len(traffic.sent) + 20
        while len(traffic.sent) < more:
            time.sleep(0.05)
        traffic.stop_sending()
        traffic.await_all_handled()
    assert "stopped" in pair.last_words("broker-a")
