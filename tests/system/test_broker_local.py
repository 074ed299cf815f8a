"""A LocalBroker that runs: a real name server and a real broker inside this process."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

import kourou
from kourou.errors import ConfigError, MQError, StoreLocked, Unreachable


def send(broker: kourou.LocalBroker, body: bytes, topic: str = "orders") -> None:
    with kourou.Producer("senders", broker.name_server) as producer:
        producer.send(kourou.Message(topic, body))


def receive(broker: kourou.LocalBroker, topic: str = "orders") -> list[bytes]:
    with kourou.PullConsumer("readers", topic, broker.name_server, announce=False) as consumer:
        consumer.seek("earliest")
        return [message.body for message in consumer.receive(100, timeout=1)]


def test_a_message_goes_in_and_comes_out() -> None:
    with kourou.LocalBroker() as broker:
        send(broker, b"hello")
        assert receive(broker) == [b"hello"]


def test_it_is_ready_soon_and_gone_without_a_trace() -> None:
    threads = threading.active_count()
    began = time.monotonic()
    with kourou.LocalBroker() as broker:
        assert time.monotonic() - began < 2
        folder = Path(broker.data)
        name_server = broker.name_server
        assert folder.is_dir()
    assert not folder.exists()
    assert threading.active_count() == threads
    with pytest.raises(Unreachable), kourou.Producer("senders", name_server) as producer:
        producer.send(kourou.Message("orders", b"too late"), timeout=1)


def test_a_folder_of_ones_own_is_kept(tmp_path: Path) -> None:
    with kourou.LocalBroker(tmp_path) as broker:
        send(broker, b"kept")
    assert not (tmp_path / "store" / "abort").exists()
    with kourou.LocalBroker(tmp_path) as broker:
        assert broker.data == str(tmp_path)
        assert receive(broker) == [b"kept"]


def test_two_of_them_do_not_know_each_other() -> None:
    with kourou.LocalBroker() as one, kourou.LocalBroker() as two:
        assert one.name_server != two.name_server
        send(one, b"for one")
        assert receive(one) == [b"for one"]
        with pytest.raises(MQError, match="orders"):
            receive(two)


def test_settings_are_the_brokers() -> None:
    with kourou.LocalBroker(auto_create_topic=False) as broker, pytest.raises(MQError, match="orders"):
        send(broker, b"nowhere to go")


def test_one_object_can_be_started_again() -> None:
    broker = kourou.LocalBroker()
    for _ in range(2):
        with broker:
            send(broker, b"x")
            with pytest.raises(MQError, match="running already"):
                broker.start()


def test_a_start_that_fails_leaves_nothing_running(tmp_path: Path) -> None:
    threads = threading.active_count()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        broker = kourou.LocalBroker(tmp_path, port=port)
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
            broker.start()
    assert threading.active_count() == threads
    with kourou.LocalBroker(tmp_path) as other:  # the folder is free again
        send(other, b"x")


def test_one_folder_is_for_one_broker(tmp_path: Path) -> None:
    with kourou.LocalBroker(tmp_path) as first:
        with pytest.raises(StoreLocked, match=str(tmp_path)):
            kourou.LocalBroker(tmp_path).start()
        send(first, b"undisturbed")
