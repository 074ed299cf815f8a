"""Our name server with an Apache broker, the other way round, and brokers of both; Java clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kourou
from kourou.client.assignment import assign_in_turn
from tests.interop import apache, ours
from tests.interop.groups_of_both import make_topic, warm_up
from tests.interop.java_member import java_member, java_producer
from tests.interop.ours import wait_until
from tests.interop.round_trip import java_round_trip

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


def test_an_apache_broker_registers_with_our_name_server(version: str, tmp_path: Path) -> None:
    with ours.name_server(tmp_path) as names, apache.broker(version, tmp_path, names.address) as broker:
        received = java_round_trip(version, tmp_path, names.address)
        assert {line["storeHost"] for line in received} == {f"/{broker.address}"}
        broker.stop()
        assert not apache.is_registered(broker.address, names.address), "a stopped broker is still listed"
        names.stop()


def test_an_apache_broker_registers_with_a_compressed_body(version: str, tmp_path: Path) -> None:
    with (
        ours.name_server(tmp_path) as names,
        apache.broker(version, tmp_path, names.address, compressedRegister="true") as broker,
    ):
        assert apache.is_registered(broker.address, names.address)


def test_a_killed_apache_broker_disappears_from_our_name_server_at_once(version: str, tmp_path: Path) -> None:
    with ours.name_server(tmp_path) as names, apache.broker(version, tmp_path, names.address) as broker:
        broker.kill()
        ours.wait_until(
            lambda: not apache.is_registered(broker.address, names.address), 5.0, "it was removed"
        )


def test_our_broker_registers_with_an_apache_name_server(version: str, tmp_path: Path) -> None:
    with apache.name_server(version, tmp_path) as names, ours.broker(tmp_path, names.address) as broker:
        received = java_round_trip(version, tmp_path, names.address)
        assert {line["storeHost"] for line in received} == {f"/{broker.address}"}
        broker.stop()
        assert not apache.is_registered(broker.address, names.address), "it did not unregister"


def test_our_broker_registers_with_an_apache_name_server_and_ours_at_once(
    version: str, tmp_path: Path
) -> None:
    with apache.name_server(version, tmp_path) as theirs, ours.name_server(tmp_path) as mine:
        both = f"{theirs.address};{mine.address}"
        with ours.broker(tmp_path, both) as broker:
            assert apache.is_registered(broker.address, both)
            broker.stop()


QUEUES = 4
HALF_OF_EACH = {"apache-a": QUEUES // 2, "kourou-b": QUEUES // 2}
"""Dealt out in turn, each member reads from both brokers."""


@contextmanager
def a_broker_of_each_kind(kind: str, version: str, folder: Path) -> Iterator[str]:
    """The address of their name server, which is of that `kind`."""
    names = ours.name_server(folder) if kind == "ours" else apache.name_server(version, folder)
    with (
        names as registry,
        apache.broker(version, folder, registry.address, name="apache-a"),
        ours.broker(folder, registry.address, name="kourou-b"),
    ):
        yield registry.address


@pytest.mark.parametrize("kind", ["ours", "apache"])
def test_one_topic_lies_on_a_broker_of_each_kind_and_clients_of_each_kind_use_both(
    kind: str, version: str, tmp_path: Path
) -> None:
    received: list[str] = []
    with a_broker_of_each_kind(kind, version, tmp_path) as address:
        make_topic(address, "shared", QUEUES)
        with (
            java_member(version, tmp_path, address, "both", "shared", strategy="circle") as java,
            kourou.PushConsumer("both", address, start="earliest", assign=assign_in_turn) as consumer,
            kourou.Producer("senders", address, send_timeout=10.0) as producer,
        ):

            @consumer.on("shared")
            def note(message: kourou.ReceivedMessage) -> None:
                received.append(message.body.decode())

            consumer.start()
            wait_until(lambda: our_share(consumer) == HALF_OF_EACH, 30, "the queues were shared out")
            warm_up(producer, "shared", 2 * QUEUES, lambda: (len(java.bodies()), len(received)))
            warmed_up = len(java.bodies()), len(received)
            ours_went_to = Counter(
                producer.send(kourou.Message("shared", b"ours-%d" % n)).queue.broker_name for n in range(200)
            )
            with java_producer(version, tmp_path, address, "java-senders", "shared", millis=5) as sender:
                wait_until(lambda: len(sender.events("sent")) >= 200, 60, "Java had sent 200")
                sender.leave()
            # A name server that is slow to answer is one, in Java, and nothing was sent then.
            assert {line["status"] for line in sender.events("failed")} <= {"IllegalStateException"}
            sent = {line["body"] for line in sender.events("sent")} | {f"ours-{n}" for n in range(200)}

            def came() -> list[str]:
                return java.bodies()[warmed_up[0] :] + received[warmed_up[1] :]

            wait_until(lambda: len(came()) >= len(sent), 60, "everything came")
        assert Counter(came()) == Counter(sent)  # each once: nobody came or went meanwhile
        assert ours_went_to == {"apache-a": 100, "kourou-b": 100}
        assert java.bodies()[warmed_up[0] :], "the Java member had no queue"
        assert received[warmed_up[1] :], "ours had no queue"


def our_share(consumer: kourou.PushConsumer) -> Counter[str]:
    """How many queues of which broker."""
    return Counter(queue.broker_name for queue in consumer.positions() if queue.topic == "shared")
