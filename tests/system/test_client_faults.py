"""What a client does when the other side is down, goes down, comes back, or talks nonsense."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kourou
from kourou.client import operations
from kourou.client.drive import BlockingDriver
from tests.system.client_forms import Form, forms
from tests.unit.client.conversation import route_of


@pytest.fixture(params=["blocking", "async"])
def form(request: pytest.FixtureRequest) -> Iterator[Form]:
    with forms() as both:
        yield both[request.param]


@pytest.fixture
def broker() -> Iterator[kourou.LocalBroker]:
    with kourou.LocalBroker(broker_name="first") as running:
        yield running


def closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def peer(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """Something that listens, and does `talk` with everyone who connects, then hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    talk(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def reads_and_hangs_up(connection: socket.socket) -> None:
    connection.recv(65536)


def talks_nonsense(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def create(broker: kourou.LocalBroker, topic: str, queues: int = 4) -> None:
    driver = BlockingDriver()
    driver.run(operations.create_topic(broker.address, operations.TopicSettings(topic, queues, queues)))
    driver.close()


# ------------------------------------------------------------------------------------------- name servers


def test_without_a_name_server_the_error_says_what_to_do(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(kourou.ConfigError, match="NAMESRV_ADDR"), form.producer("shop"):
        pass


def test_the_environment_names_the_name_server(
    form: Form, broker: kourou.LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", broker.name_server)
    with form.producer("shop") as producer:
        assert producer.send(kourou.Message("orders", b"x")).status is kourou.SendStatus.SEND_OK


def test_no_name_server_listening_is_an_error_with_its_address(form: Form) -> None:
    address = closed_port()
    with (
        form.producer("shop", name_server=address) as producer,
        pytest.raises(kourou.Unreachable, match=f"no name server answers.*{address}") as failed,
    ):
        producer.send(kourou.Message("orders", b"x"))
    assert failed.value.exit_code == 5
    with pytest.raises(kourou.Unreachable), form.consumer("billing", "orders", name_server=address):
        pass


def test_a_dead_name_server_beside_a_living_one_does_not_matter(
    form: Form, broker: kourou.LocalBroker
) -> None:
    for _ in range(4):  # whichever is asked first
        names = f"{closed_port()};{broker.name_server}"
        with form.producer("shop", name_server=names) as producer:
            producer.send(kourou.Message("orders", b"x"))


def test_a_name_server_that_talks_nonsense_is_as_good_as_none(form: Form, broker: kourou.LocalBroker) -> None:
    with peer(talks_nonsense) as liar:
        with form.producer("shop", name_server=liar) as producer, pytest.raises(kourou.Unreachable):
            producer.send(kourou.Message("orders", b"x"))
        with form.producer("shop", name_server=f"{liar};{broker.name_server}") as producer:
            producer.send(kourou.Message("orders", b"x"))


def test_a_topic_nobody_knows_cannot_be_read(form: Form, broker: kourou.LocalBroker) -> None:
    with (
        pytest.raises(
            kourou.NotFound, match=r"no topic 'nowhere' at .*kourou topic create nowhere"
        ) as failed,
        form.consumer("billing", "nowhere", name_server=broker.name_server),
    ):
        pass
    assert failed.value.exit_code == 3


# ------------------------------------------------------------------------------------------------ brokers


def test_a_message_goes_to_another_broker_when_one_is_down(form: Form, broker: kourou.LocalBroker) -> None:
    with form.producer("shop", name_server=broker.name_server) as producer:
        with kourou.LocalBroker(broker_name="second", name_servers=(broker.name_server,)) as second:
            create(broker, "orders")
            create(second, "orders")
            results = [producer.send(kourou.Message("orders", b"x")) for _ in range(8)]
            assert {result.queue.broker_name for result in results} == {"first", "second"}
        results = [producer.send(kourou.Message("orders", b"x")) for _ in range(8)]
    assert {result.queue.broker_name for result in results} == {"first"}


def test_a_message_for_a_queue_that_is_down_fails_and_says_where(
    form: Form, broker: kourou.LocalBroker
) -> None:
    with form.producer("shop", name_server=broker.name_server) as producer:
        with kourou.LocalBroker(broker_name="second", name_servers=(broker.name_server,)) as second:
            create(second, "orders")
            queue = producer.queues("orders")[1]
        with pytest.raises(kourou.Unreachable, match=r"'orders' failed: 1 try .*\(second queue 1\)"):
            producer.send(kourou.Message("orders", b"x"), queue=queue, timeout=1.0)


def test_a_broker_that_hangs_up_mid_send_is_tried_and_named(form: Form) -> None:
    with peer(reads_and_hangs_up) as hasty:
        body = route_of({"hasty": {0: hasty}}).encode()

        def name_server(connection: socket.socket) -> None:
            from kourou.protocol.command import decode
            from kourou.protocol.frame import FrameReader

            reader = FrameReader()
            while data := connection.recv(65536):
                for frame in reader.feed(data):
                    connection.sendall(decode(frame).reply(body=body).encode())

        with (
            peer(name_server) as names,
            form.producer("shop", name_server=names, send_timeout=1.5) as producer,
            pytest.raises(
                kourou.Unreachable, match=r"sending to 'orders' failed: . tr.*hasty queue"
            ) as failed,
        ):
            producer.send(kourou.Message("orders", b"x"))
    assert failed.value.retryable


def test_producer_and_consumer_go_on_when_their_broker_has_come_back(
    form: Form, broker: kourou.LocalBroker, tmp_path: Path
) -> None:
    names: dict[str, Any] = {"broker_name": "second", "name_servers": (broker.name_server,)}
    second = kourou.LocalBroker(tmp_path / "second", **names)
    second.start()
    port = int(second.address.rpartition(":")[2])
    create(second, "orders")
    with (
        form.producer("shop", name_server=broker.name_server) as producer,
        form.consumer("billing", "orders", name_server=broker.name_server) as consumer,
    ):
        producer.send(kourou.Message("orders", b"before"))
        assert [message.body for message in consumer.receive()] == [b"before"]
        second.stop()
        with pytest.raises(kourou.Unreachable):
            producer.send(kourou.Message("orders", b"lost"), timeout=0.5)
        with pytest.raises(kourou.Unreachable):
            consumer.receive(timeout=0.5)
        with kourou.LocalBroker(tmp_path / "second", port=port, **names):
            deadline = time.monotonic() + 10
            received: list[kourou.ReceivedMessage] = []
            while time.monotonic() < deadline and not received:
                try:
                    producer.send(kourou.Message("orders", b"after"))
                    received = consumer.receive(timeout=1.0)
                except kourou.Unreachable:
                    continue
            assert {message.body for message in received} == {b"after"}


def test_a_topic_that_may_not_be_written_to_is_refused(form: Form, broker: kourou.LocalBroker) -> None:
    driver = BlockingDriver()
    driver.run(
        operations.create_topic(broker.address, operations.TopicSettings("sealed", 1, 1, permission=4))
    )
    driver.close()
    with (
        form.producer("shop", name_server=broker.name_server) as producer,
        pytest.raises(kourou.Denied, match="may not be written to: its permission is 4"),
    ):
        producer.send(kourou.Message("sealed", b"x"))


def test_closing_twice_is_harmless_and_a_closed_client_says_so(
    form: Form, broker: kourou.LocalBroker
) -> None:
    with form.producer("shop", name_server=broker.name_server) as producer:
        producer.send(kourou.Message("orders", b"x"))
        producer.close()
        producer.close()
        with pytest.raises(kourou.ConfigError, match="closed"):
            producer.send(kourou.Message("orders", b"x"))
    with form.consumer("billing", "orders", name_server=broker.name_server) as consumer:
        consumer.receive(timeout=0.1)
        consumer.close()
        consumer.close()
        with pytest.raises(kourou.ConfigError, match="closed"):
            consumer.receive()
