"""Producers and clusters that are not as simple as one broker at its own address."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import kourou
from kourou.broker.config import BrokerConfig
from kourou.client import operations
from kourou.client.drive import BlockingDriver
from kourou.local.node import Node
from kourou.nameserver.config import NameServerConfig
from tests.remoting.certificates import Authority
from tests.system.client_forms import Form, forms
from tests.system.slow_proxy import slow_proxy


@pytest.fixture(params=["blocking", "async"])
def form(request: pytest.FixtureRequest) -> Iterator[Form]:
    with forms() as both:
        yield both[request.param]


@pytest.fixture
def two() -> Iterator[tuple[kourou.LocalBroker, kourou.LocalBroker]]:
    """Two brokers, `one` and `two`, both known to the first one's name server, with topic `t` of 2 queues."""
    with (
        kourou.LocalBroker(broker_name="one") as first,
        kourou.LocalBroker(broker_name="two", name_servers=(first.name_server,)) as second,
    ):
        driver = BlockingDriver()
        for broker in (first, second):
            driver.run(operations.create_topic(broker.address, operations.TopicSettings("t", 2, 2)))
        driver.close()
        yield first, second


def key_of(producer: Any, broker_name: str) -> str:
    for number in range(100):
        if producer.send(kourou.Message("t", b"x"), key=f"key-{number}").broker_name == broker_name:
            return f"key-{number}"
    raise AssertionError("no key for that broker")


# ------------------------------------------------------------------------------------- its broker dies


def test_strict_order_waits_for_its_broker_and_normal_order_does_not(
    form: Form, two: tuple[kourou.LocalBroker, kourou.LocalBroker]
) -> None:
    first, second = two
    with form.producer("g", name_server=first.name_server, send_timeout=1.0) as producer:
        key = key_of(producer, "two")
        second.stop()
        for _ in range(3):
            with pytest.raises(kourou.Unreachable, match=r"two queue \d"):
                producer.send(kourou.Message("t", b"strict"), key=key)
        sent = producer.send(kourou.Message("t", b"normal"), key=key, order="normal")
        assert sent.broker_name == "one"
        assert (producer.itself if form.name == "async" else producer).moved_keys == 1
        for _ in range(8):
            assert producer.send(kourou.Message("t", b"anywhere")).broker_name == "one"


# -------------------------------------------------------------------------------------------- slow brokers


def test_a_slow_broker_is_isolated_and_used_again_when_it_is_well(
    two: tuple[kourou.LocalBroker, kourou.LocalBroker],
) -> None:
    first, second = two
    with (
        slow_proxy(second.address) as proxy,
        kourou.Producer(
            "g", first.name_server, avoid_slow_brokers="5", address_map={second.address: proxy.address}
        ) as producer,
    ):
        assert {producer.send(kourou.Message("t", b"x")).broker_name for _ in range(8)} == {"one", "two"}
        proxy.delay = 2.0
        while producer.send(kourou.Message("t", b"slow")).broker_name != "two":
            pass
        seconds, failed = [], 0
        until = time.monotonic() + 3.0
        while time.monotonic() < until:
            began = time.monotonic()
            try:
                producer.send(kourou.Message("t", b"x"))
            except kourou.MQError:
                failed += 1
            seconds.append(time.monotonic() - began)
        assert failed <= len(seconds) / 1000
        assert sorted(seconds)[len(seconds) * 99 // 100] <= 0.2
        proxy.delay = 0.0
        deadline = time.monotonic() + 8.0
        while producer.send(kourou.Message("t", b"well")).broker_name != "two":
            assert time.monotonic() < deadline, "it is never used again"
            time.sleep(0.01)


# ----------------------------------------------------------------------------------------- other addresses


def test_a_broker_behind_a_wall_is_found_at_the_name_server_s_host(form: Form) -> None:
    # 192.0.2.1 is no place anybody can reach; the broker listens on loopback, as one in a container might.
    with (
        kourou.LocalBroker(advertised_host="192.0.2.1") as broker,
        form.producer("g", name_server=broker.name_server, send_timeout=2.0) as producer,
    ):
        # Where packets vanish instead of being refused, the first look takes all the time there is.
        with contextlib.suppress(kourou.Unreachable):
            producer.send(kourou.Message("t", b"perhaps too late"))
        assert producer.send(kourou.Message("t", b"found")).status is kourou.SendStatus.SEND_OK


def test_consumers_and_one_way_sends_find_a_broker_behind_a_wall_too(form: Form) -> None:
    with kourou.LocalBroker(advertised_host="192.0.2.1", property_filter=True) as broker:
        with form.producer("g", name_server=broker.name_server, send_timeout=5.0) as producer:
            producer.send_one_way(kourou.Message("t", b"found", properties={"price": "4"}))
            with form.consumer("pull", "t", name_server=broker.name_server) as consumer:
                assert [message.body for message in consumer.receive(timeout=10)] == [b"found"]
        for number, sql in enumerate([None, "price > 3"]):
            received = threading.Event()
            with kourou.PushConsumer(f"push{number}", broker.name_server, start="earliest") as pushed:
                pushed.on("t", sql=sql)(lambda message, received=received: received.set())
                pushed.start()
                assert received.wait(10)


def test_name_servers_may_be_told_by_an_address_server(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with kourou.LocalBroker() as broker, page(broker.name_server) as (domain, asked):
        properties = {"rocketmq.namesrv.domain": domain, "rocketmq.namesrv.domain.subgroup": "unit-7"}
        with form.producer("g", properties=properties) as producer:
            assert producer.send(kourou.Message("t", b"x")).status is kourou.SendStatus.SEND_OK
    assert asked == ["/rocketmq/unit-7"]


class page:
    """An address server with this page; enters as its `host:port` and the paths it was asked for."""

    def __init__(self, text: str) -> None:
        asked: list[str] = []
        self._asked = asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(text.encode() + b"\n")

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> tuple[str, list[str]]:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"127.0.0.1:{self._server.server_port}", self._asked

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_known_topics_work_without_a_name_server_even_after_a_restart(form: Form, tmp_path: Path) -> None:
    cache = tmp_path / "routes.json"
    with kourou.LocalBroker() as broker:
        with form.producer("g", name_server=broker.name_server, route_cache=cache) as producer:
            producer.send(kourou.Message("t", b"x"))
        time.sleep(0.1)
        with form.producer("g", name_server=broker.name_server, route_cache=cache) as producer:
            producer.send(kourou.Message("t", b"its own route, not the default topic's"))
        with form.producer("g", name_server="127.0.0.1:1", route_cache=cache) as producer:
            assert producer.send(kourou.Message("t", b"x")).status is kourou.SendStatus.SEND_OK
            with pytest.raises(kourou.Unreachable, match="no name server answers"):
                producer.send(kourou.Message("unknown", b"x"))


# ------------------------------------------------------------------------------------------------- secrecy


def test_everybody_may_talk_tls_and_show_a_certificate(form: Form, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.issue("server", "127.0.0.1")
    client = authority.issue("client")
    listening: dict[str, Any] = {
        "tls_mode": "enforcing",
        "tls_certificate": server.certificate,
        "tls_key": server.key,
        "tls_trust": authority.ca,
        "tls_client_certificate": "require",
    }
    node = Node(
        NameServerConfig(port=0, kv_config_path=str(tmp_path / "kv.json"), **listening),
        BrokerConfig(
            port=0,
            store_path=str(tmp_path / "store"),
            tls_to_others=True,
            tls_others_trust=authority.ca,
            tls_own_certificate=client.certificate,
            tls_own_key=client.key,
            **listening,
        ),
    )
    with running(node):
        tls = kourou.ClientTls(trust=authority.ca, certificate=client.certificate, key=client.key)
        with form.producer("g", name_server=node.name_server.address, tls=tls) as producer:
            assert producer.send(kourou.Message("t", b"secret")).status is kourou.SendStatus.SEND_OK
        nobody = kourou.ClientTls(trust=authority.ca)
        with (
            form.producer("g", name_server=node.name_server.address, tls=nobody) as producer,
            pytest.raises(kourou.Unreachable),
        ):
            producer.send(kourou.Message("t", b"secret"))


class running:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._node.start(), self._loop).result(10)

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._node.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


# ------------------------------------------------------------------------------------- finding what was sent


def test_a_message_is_found_by_its_key_and_by_both_its_ids(form: Form) -> None:
    with kourou.LocalBroker() as broker, form.producer("g", name_server=broker.name_server) as producer:
        sent = producer.send(kourou.Message("t", b"wanted", keys=["order-42", "table-7"]))
        producer.send(kourou.Message("t", b"other", keys="order-43"))
        deadline = time.monotonic() + 5
        while not (found := producer.query("t", "table-7")) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [message.body for message in found] == [b"wanted"]
        assert producer.view("t", sent.message_id).body == b"wanted"
        assert producer.view("t", sent.offset_id).body == b"wanted"
        assert producer.query("t", "nobody") == []
        with pytest.raises(kourou.NotFound, match="no message"):
            producer.view("t", "0" * 32)
