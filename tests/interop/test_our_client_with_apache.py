"""Our client works against an all-Apache cluster; what it sends a Java client reads, and the other way."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

import kourou
from tests.interop import apache
from tests.interop.round_trip import PER_WAY, check_each_once, java_consume, java_send

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

LONG_BODY = b"x" * 10_000  # beyond the limit from which our producer compresses


def test_our_client_sends_and_receives_through_apache(version: str, tmp_path: Path) -> None:
    with (
        apache.name_server(version, tmp_path) as names,
        apache.broker(version, tmp_path, names.address) as broker,
    ):
        with kourou.Producer("senders", name_server=names.address, send_timeout=10.0) as producer:
            for n in range(PER_WAY):
                sent = producer.send(_message(n))
                assert sent.status is kourou.SendStatus.SEND_OK
            producer.send_one_way(_message(PER_WAY))
            producer.send_batch([_message(PER_WAY + 1), _message(PER_WAY + 2)])
            producer.send(kourou.Message("OurTopic", LONG_BODY, keys="long", tags="even"))
        received = _receive("OurTopic", names.address, PER_WAY + 4)
        bodies = [*(f"ours-{n}".encode() for n in range(PER_WAY + 3)), LONG_BODY]
        assert Counter(message.body for message in received) == Counter(bodies)
        for message in received:
            if message.body == LONG_BODY:
                assert message.keys == "long"
                continue
            number = message.body.decode().removeprefix("ours-")
            assert (message.keys, message.properties["number"]) == (f"ours-key-{number}", number)
            assert message.tags == ("even" if int(number) % 2 == 0 else "odd")
            assert message.store_host == _host(broker.address)

        read_by_java = java_consume(version, tmp_path, names.address, "OurTopic", PER_WAY + 4)
        assert Counter(line["body"].encode() for line in read_by_java) == Counter(bodies)
        check_each_once(
            [line for line in read_by_java if line["keys"] != "long"],
            [f"ours-{n}" for n in range(PER_WAY + 3)],
        )


def test_our_consumer_reads_what_java_sent_and_goes_on_where_it_stopped(version: str, tmp_path: Path) -> None:
    with (
        apache.name_server(version, tmp_path) as names,
        apache.broker(version, tmp_path, names.address),
    ):
        java_send(version, tmp_path, names.address, "JavaTopic", "sync")
        java_send(version, tmp_path, names.address, "JavaTopic", "batch")
        received = _receive("JavaTopic", names.address, 2 * PER_WAY)
        expected = [f"{way}-{n}".encode() for way in ("sync", "batch") for n in range(PER_WAY)]
        assert Counter(message.body for message in received) == Counter(expected)
        java_send(version, tmp_path, names.address, "JavaTopic", "async")
        again = _receive("JavaTopic", names.address, PER_WAY)
        assert sorted(message.body for message in again) == [f"async-{n}".encode() for n in range(PER_WAY)]
        odd = _receive("JavaTopic", names.address, PER_WAY // 2 * 3, group="odd", tags="odd")
        assert {message.tags for message in odd} == {"odd"}


def test_our_async_client_works_through_apache(version: str, tmp_path: Path) -> None:
    async def converse(name_server: str) -> list[bytes]:
        async with kourou.AsyncProducer("senders", name_server=name_server, send_timeout=10.0) as producer:
            await producer.send(_message(0))  # makes the topic
            await asyncio.gather(*(producer.send(_message(n)) for n in range(1, PER_WAY)))
        bodies: list[bytes] = []
        async with kourou.AsyncPullConsumer("readers", "OurTopic", name_server=name_server) as consumer:
            while len(bodies) < PER_WAY:
                got = await consumer.receive(timeout=10.0)
                assert got, "nothing came for 10 s"
                bodies += [message.body for message in got]
            await consumer.commit()
        return bodies

    with apache.name_server(version, tmp_path) as names, apache.broker(version, tmp_path, names.address):
        bodies = asyncio.run(converse(names.address))
    assert sorted(bodies) == [f"ours-{n}".encode() for n in range(PER_WAY)]


def _message(n: int) -> kourou.Message:
    tag = "even" if n % 2 == 0 else "odd"
    return kourou.Message(
        "OurTopic", f"ours-{n}".encode(), keys=f"ours-key-{n}", tags=tag, properties={"number": str(n)}
    )


def _receive(
    topic: str, name_server: str, count: int, *, group: str = "our-readers", tags: str = "*"
) -> list[kourou.ReceivedMessage]:
    received: list[kourou.ReceivedMessage] = []
    with kourou.PullConsumer(group, topic, name_server=name_server, tags=tags) as consumer:
        while len(received) < count:
            got = consumer.receive(timeout=10.0)
            assert got, f"nothing came for 10 s after {len(received)} of {count}"
            received += got
        assert consumer.receive(timeout=1.0) == []
        consumer.commit()
    return received


def _host(address: str) -> tuple[str, int]:
    host, port = address.rsplit(":", 1)
    return host, int(port)
