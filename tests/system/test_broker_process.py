"""`kourou broker` and `kourou nameserver` as processes of their own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import kourou as library
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import request
from kourou.protocol.headers import PullMessage, QueryOffset, SendMessageV2, UpdateOffset
from kourou.protocol.record import decode_all
from kourou.remoting.blocking import BlockingClient
from tests.kourou_process import (
    Serving,
    free_pair,
    kourou,
    serving_broker,
    serving_name_server,
)


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[str]:
    with serving_name_server(tmp_path) as running:
        yield running.address("listens on")


def broker_address(running: Serving) -> str:
    return running.address("listens on")


def send(client: BlockingClient, address: str, body: bytes, topic: str = "orders") -> int:
    """The code of the answer."""
    header = SendMessageV2(
        producer_group="g",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
    )
    return client.call(address, request(RequestCode.SEND_MESSAGE_V2, header, body)).code


def bodies(client: BlockingClient, address: str, topic: str = "orders") -> list[bytes]:
    found: list[bytes] = []
    while True:
        header = PullMessage(
            consumer_group="readers",
            topic=topic,
            queue_id=0,
            queue_offset=len(found),
            message_count_max=32,
            sys_flag=4,
            subscription="*",
        )
        reply = client.call(address, request(RequestCode.PULL_MESSAGE, header))
        if reply.code != 0:
            return found
        found += [record.body for record in decode_all(reply.body)]


def test_a_restart_keeps_messages_topics_and_offsets(tmp_path: Path, name_server: str) -> None:
    settings = f"brokerName=broker-a\nnamesrvAddr={name_server}\n"
    with serving_broker(tmp_path, settings=settings) as running:
        made = kourou("topic", "create", "wide", "-r", "16", "-w", "16", "-n", name_server, folder=tmp_path)
        assert made.returncode == 0, made.stderr
        with BlockingClient() as client:
            address = broker_address(running)
            assert [send(client, address, b"%d" % number) for number in range(100)] == [0] * 100
            commit = UpdateOffset(consumer_group="readers", topic="orders", queue_id=0, commit_offset=42)
            assert client.call(address, request(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0
        assert running.stop() == 0, running.log
        assert "Traceback" not in running.log
    with serving_broker(tmp_path, settings=settings) as running:
        address = broker_address(running)
        with BlockingClient() as client:
            assert bodies(client, address) == [b"%d" % number for number in range(100)]
            query = QueryOffset(consumer_group="readers", topic="orders", queue_id=0)
            reply = client.call(address, request(RequestCode.QUERY_CONSUMER_OFFSET, query))
            assert reply.fields["offset"] == "42"
        route = kourou("topic", "route", "wide", "-n", name_server, folder=tmp_path)
        assert route.returncode == 0
        assert "16" in route.stdout
        assert running.stop() == 0


def test_kill_nine_loses_nothing_that_was_acknowledged_under_sync_flush(
    tmp_path: Path, name_server: str
) -> None:
    settings = f"namesrvAddr={name_server}\nflushDiskType=SYNC_FLUSH\n"
    with serving_broker(tmp_path, settings=settings) as running:
        made = kourou("topic", "create", "made", "-n", name_server, folder=tmp_path)
        assert made.returncode == 0
        with BlockingClient() as client:
            address = broker_address(running)
            assert [send(client, address, b"%d" % number) for number in range(200)] == [0] * 200
        running.kill()
    assert (tmp_path / "store" / "abort").exists()
    with serving_broker(tmp_path, settings=settings) as running:
        assert "was not closed" in running.log
        with BlockingClient() as client:
            address = broker_address(running)
            assert bodies(client, address) == [b"%d" % number for number in range(200)]
            assert send(client, address, b"and on it goes") == 0
        assert kourou("topic", "route", "made", "-n", name_server, folder=tmp_path).returncode == 0
        assert running.stop() == 0
    assert not (tmp_path / "store" / "abort").exists()


def test_the_fast_port_takes_and_gives_messages(tmp_path: Path) -> None:
    with serving_broker(tmp_path) as running, BlockingClient() as client:
        host, _, port = broker_address(running).rpartition(":")
        fast = f"{host}:{int(port) - 2}"
        assert send(client, fast, b"quick") == 0
        assert bodies(client, fast) == [b"quick"]
        assert bodies(client, broker_address(running)) == [b"quick"]


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="THIS MACHINE HAS NO IPv6 LOOPBACK (::1): IPv6 IS NOT TESTED")
def test_a_broker_on_an_ipv6_address_serves_there(tmp_path: Path, name_server: str) -> None:
    settings = f"bindAddress=::1\nlistenPort={free_pair('::1')}\nnamesrvAddr={name_server}\n"
    with serving_broker(tmp_path, settings=settings) as running:
        assert broker_address(running).startswith("[::1]:")
        with library.Producer("senders", name_server) as producer:
            sent = producer.send(library.Message("orders", b"over IPv6"))
        with library.PullConsumer("readers", "orders", name_server) as consumer:
            consumer.seek("earliest")
            (message,) = consumer.receive(1, timeout=5)
        assert message.body == b"over IPv6"
        assert (message.queue_id, message.queue_offset) == (sent.queue.queue_id, sent.queue_offset)
        assert message.store_host[0] == "::1"
        assert running.stop() == 0


def test_printing_the_configuration_starts_nothing(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("brokerName=broker-a\nsendMessageThreadPoolNums=16\n")
    printed = kourou("broker", "-c", config, "-p", "--port", "7777", folder=tmp_path)
    assert printed.returncode == 0
    assert "brokerName=broker-a\n" in printed.stdout
    assert "listenPort=7777\n" in printed.stdout
    assert "without effect here: sendMessageThreadPoolNums" in printed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["broker.conf"]
