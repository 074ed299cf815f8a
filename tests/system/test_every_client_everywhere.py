"""Every kind of client, blocking and async, in clusters that want TLS, a namespace or signatures; and their
manners towards brokers: heartbeats, the second port, not too much at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import kourou
from kourou.broker.config import BrokerConfig
from kourou.client import presence
from kourou.doors.memory_files import MemoryFiles
from kourou.local.node import Node
from kourou.nameserver.config import NameServerConfig
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from tests import threads
from tests.remoting.certificates import Authority
from tests.system.client_forms import Form, forms
from tests.system.slow_proxy import slow_proxy
from tests.system.test_client_clusters import running

RECEIVE_SECONDS = 15.0

_numbers = count(1)


@pytest.fixture(params=["blocking", "async"])
def form(request: pytest.FixtureRequest) -> Iterator[Form]:
    with forms() as both:
        yield both[request.param]


# ----------------------------------------------------------------- one message, by each kind of consumer


def pulled(group: str, topic: str, name_server: str, **options: Any) -> kourou.ReceivedMessage:
    with kourou.PullConsumer(group, topic, name_server, **options) as consumer:
        (message,) = consumer.receive(timeout=RECEIVE_SECONDS)
        consumer.commit()
        return message


def polled(group: str, topic: str, name_server: str, **options: Any) -> kourou.ReceivedMessage:
    with kourou.LitePullConsumer(group, name_server, start="earliest", **options) as consumer:
        consumer.subscribe(topic)
        (message,) = consumer.poll(timeout=RECEIVE_SECONDS)
        return message


def looped(group: str, topic: str, name_server: str, **options: Any) -> kourou.ReceivedMessage:
    with kourou.Consumer(group, topic, name_server, start="earliest", **options) as messages:
        message = messages.receive(timeout=RECEIVE_SECONDS)
        assert message is not None
        message.done()
        return message


def pushed(group: str, topic: str, name_server: str, **options: Any) -> kourou.ReceivedMessage:
    found: list[kourou.ReceivedMessage] = []
    with kourou.PushConsumer(group, name_server, start="earliest", **options) as consumer:

        @consumer.on(topic)
        def take(message: kourou.ReceivedMessage) -> None:
            found.append(message)
            consumer.stop()

        too_late = threading.Timer(RECEIVE_SECONDS, consumer.stop)
        too_late.start()
        consumer.run_until_stopped()
        too_late.cancel()
    (message,) = found
    return message


async def async_pulled(group: str, topic: str, name_server: str, **options: Any) -> kourou.ReceivedMessage:
    async with kourou.AsyncPullConsumer(group, topic, name_server, **options) as consumer:
        (message,) = await consumer.receive(timeout=RECEIVE_SECONDS)
        await consumer.commit()
        return message


async def async_polled(group: str, topic: str, name_server: str, **options: Any) -> kourou.ReceivedMessage:
    async with kourou.AsyncLitePullConsumer(group, name_server, start="earliest", **options) as consumer:
        consumer.subscribe(topic)
        (message,) = await consumer.poll(timeout=RECEIVE_SECONDS)
        return message


async def async_looped(group: str, topic: str, name_server: str, **options: Any) -> kourou.ReceivedMessage:
    async with kourou.AsyncConsumer(group, topic, name_server, start="earliest", **options) as messages:
        message = await messages.receive(timeout=RECEIVE_SECONDS)
        assert message is not None
        message.done()
        return message


async def async_pushed(group: str, topic: str, name_server: str, **options: Any) -> kourou.ReceivedMessage:
    found: list[kourou.ReceivedMessage] = []
    async with kourou.AsyncPushConsumer(group, name_server, start="earliest", **options) as consumer:

        @consumer.on(topic)
        async def take(message: kourou.ReceivedMessage) -> None:
            found.append(message)
            consumer.stop()

        async with asyncio.timeout(RECEIVE_SECONDS):
            await consumer.run_until_stopped()
    (message,) = found
    return message


def blocking(receive: Callable[..., Coroutine[Any, Any, kourou.ReceivedMessage]]) -> Callable[..., Any]:
    def run(*arguments: Any, **options: Any) -> kourou.ReceivedMessage:
        return asyncio.run(receive(*arguments, **options))

    return run


RECEIVERS: dict[str, Callable[..., kourou.ReceivedMessage]] = {
    "PullConsumer": pulled,
    "LitePullConsumer": polled,
    "Consumer": looped,
    "PushConsumer": pushed,
    "AsyncPullConsumer": blocking(async_pulled),
    "AsyncLitePullConsumer": blocking(async_polled),
    "AsyncConsumer": blocking(async_looped),
    "AsyncPushConsumer": blocking(async_pushed),
}


class Locked:
    """A cluster that talks to nobody without TLS and a certificate."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        server, client = authority.issue("server", "127.0.0.1"), authority.issue("client")
        self.tls = kourou.ClientTls(trust=authority.ca, certificate=client.certificate, key=client.key)
        listening: dict[str, Any] = {
            "tls_mode": "enforcing",
            "tls_certificate": server.certificate,
            "tls_key": server.key,
            "tls_trust": authority.ca,
            "tls_client_certificate": "require",
        }
        self.node = Node(
            NameServerConfig(port=0, kv_config_path="/memory/kv.json", **listening),
            BrokerConfig(
                port=0,
                store_path="/memory/store",
                tls_to_others=True,
                tls_others_trust=authority.ca,
                tls_own_certificate=client.certificate,
                tls_own_key=client.key,
                **listening,
            ),
            MemoryFiles(),
        )

    @property
    def name_server(self) -> str:
        return self.node.name_server.address


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    cluster = Locked(tmp_path_factory.mktemp("certificates"))
    with running(cluster.node):
        yield cluster


class Signed(kourou.Credentials):
    """Credentials that remember what they signed."""

    codes: list[int]

    def sign(self, command: Command, signed_ms: int | None = None) -> None:
        super().sign(command, signed_ms)
        self.codes.append(command.code)


@pytest.mark.parametrize("kind", RECEIVERS)
def test_every_consumer_talks_tls_signs_and_has_a_namespace(kind: str, locked: Locked) -> None:
    signed = Signed("someone", "a secret")
    object.__setattr__(signed, "codes", [])
    options: dict[str, Any] = {"tls": locked.tls, "namespace": f"space{next(_numbers)}", "access": signed}
    with kourou.Producer("shop", locked.name_server, **options) as producer:
        producer.send(kourou.Message("orders", b"secret", tags="new"))
    assert RequestCode.SEND_MESSAGE_V2 in signed.codes
    signed.codes.clear()
    message = RECEIVERS[kind]("billing", "orders", locked.name_server, **options)
    assert (message.topic, message.body) == ("orders", b"secret")
    pulls = {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
    assert pulls & set(signed.codes)
    assert {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.HEART_BEAT} <= set(signed.codes)
    # Where there is no such namespace there is no such topic.
    with kourou.Producer("shop", locked.name_server, tls=locked.tls) as producer:
        assert producer.query(f"{options['namespace']}%orders", "nobody") == []
        with pytest.raises(kourou.NotFound):
            producer.query("orders", "nobody")


@pytest.mark.parametrize("kind", RECEIVERS)
def test_a_consumer_without_a_certificate_is_told_that_it_cannot_get_through(
    kind: str, locked: Locked
) -> None:
    with pytest.raises(kourou.Unreachable):
        RECEIVERS[kind]("billing", "orders", locked.name_server)


# ----------------------------------------------------------------------------------- towards the brokers


def test_an_idle_producer_stays_known_to_its_brokers(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[float] = []
    make: Any = vars(presence)["request"]

    def count_beats(code: int, *arguments: Any, **more: Any) -> Command:
        # The group tells this producer's from those of a client another test may have left behind.
        if code == RequestCode.HEART_BEAT and b'"idle_shop"' in more["body"]:
            beats.append(time.monotonic())
        return make(code, *arguments, **more)

    monkeypatch.setattr(presence, "request", count_beats)
    monkeypatch.setattr(presence, "HEARTBEAT_SECONDS", 0.1)
    before = threading.active_count()
    with kourou.LocalBroker(memory=True) as broker:
        with form.producer("idle_shop", name_server=broker.name_server) as producer:
            producer.send(kourou.Message("orders", b"one"))
            form.until(lambda: len(beats) >= 4)
        after = len(beats)
        time.sleep(0.3)
        assert len(beats) == after
    assert threads.no_more_than(before)


def test_the_vip_channel_is_the_brokers_second_port(form: Form) -> None:
    tried: list[kourou.SendAttempt] = []

    class Hook:
        def before_send(self, attempt: kourou.SendAttempt) -> None:
            tried.append(attempt)

        def after_send(self, attempt: kourou.SendAttempt) -> None: ...

    with kourou.LocalBroker(memory=True) as broker:
        port = int(broker.address.rpartition(":")[2])
        options: dict[str, Any] = {"vip_channel": True, "hooks": [Hook()]}
        with form.producer("shop", name_server=broker.name_server, **options) as producer:
            assert producer.send(kourou.Message("orders", b"quick")).status is kourou.SendStatus.SEND_OK
            producer.send_one_way(kourou.Message("orders", b"quicker"))
    assert [attempt.address for attempt in tried] == [f"127.0.0.1:{port - 2}"]


@pytest.mark.parametrize("limit", [{"in_flight_max": 10}, {"in_flight_bytes_max": 10_000}])
def test_who_sends_faster_than_the_broker_answers_waits(form: Form, limit: dict[str, int]) -> None:
    with (
        kourou.LocalBroker(memory=True) as broker,
        slow_proxy(broker.address) as proxy,
        form.producer(
            "shop", name_server=broker.name_server, address_map={broker.address: proxy.address}, **limit
        ) as producer,
    ):
        producer.send(kourou.Message("orders", b"first"))
        proxy.delay = 1.0
        began = time.monotonic()
        ten = [producer.send_soon(kourou.Message("orders", b"x" * 1000)) for _ in range(10)]
        assert time.monotonic() - began < 0.9  # there was room for these
        more = [producer.send_soon(kourou.Message("orders", b"x" * 1000)) for _ in range(10)]
        assert time.monotonic() - began >= 0.9  # and for those only when these were answered
        form.until(lambda: all(each.done() for each in ten + more))
        assert all(each.result().status is kourou.SendStatus.SEND_OK for each in ten + more)


def test_who_finds_no_room_in_time_is_told(form: Form) -> None:
    with (
        kourou.LocalBroker(memory=True) as broker,
        slow_proxy(broker.address) as proxy,
        form.producer(
            "shop",
            name_server=broker.name_server,
            address_map={broker.address: proxy.address},
            in_flight_max=1,
        ) as producer,
    ):
        producer.send(kourou.Message("orders", b"first"))
        proxy.delay = 1.0
        kept = producer.send_soon(kourou.Message("orders", b"x"))
        with pytest.raises(kourou.Busy, match="in_flight_max"):
            producer.send_soon(kourou.Message("orders", b"x"), timeout=0.2)
        form.until(kept.done)
