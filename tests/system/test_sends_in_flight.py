"""What becomes of sends that are under way when their broker stops, or is killed.

    answered with OK   there
    unanswered         may be there, or not: the client says that it does not know
    one-way            nobody says anything: what the broker had not read is lost

The figures are printed (`pytest -s`); they are in docs/high-availability.md.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

import kourou
from tests.kourou_process import Serving, serving_broker, serving_name_server
from tests.system.slow_proxy import SlowProxy, slow_proxy

SECONDS = 1.0


@pytest.fixture
def names(tmp_path: Path) -> Iterator[str]:
    with serving_name_server(tmp_path) as server:
        yield server.address("listens on")


def stored(names: str) -> set[bytes]:
    """Every message there is."""
    found: set[bytes] = set()
    with kourou.PullConsumer("readers", "t", names) as consumer:
        consumer.seek("earliest")
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < 1.0:
            came = {message.body for message in consumer.receive(timeout=0.3)}
            if came - found:
                quiet_since = time.monotonic()
            found |= came
    return found


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_what_was_answered_is_there_and_what_was_one_way_may_not_be(
    names: str, tmp_path: Path, ending: str
) -> None:
    settings = f"namesrvAddr={names}\nlistenPort=0\nbrokerName=ends\n"
    with serving_broker(tmp_path, settings=settings) as broker:
        answered, one_way = sends_until_gone(names, broker, ending)
    with serving_broker(tmp_path, settings=settings):
        there = stored(names)
    lost = len(one_way - there)
    print(
        f"\n{ending}: {len(answered):,} answered, {len(answered - there)} of them lost; "
        f"{len(one_way):,} one-way, {lost:,} of them lost"
    )
    assert answered <= there
    assert len(answered) > 5
    assert len(one_way) > 5


def sends_until_gone(names: str, broker: Serving, ending: str) -> tuple[set[bytes], set[bytes]]:
    """Bodies that were answered with OK, and those nobody answers, up to the moment the broker goes."""
    answered: set[bytes] = set()
    one_way: set[bytes] = set()
    is_over = threading.Event()
    producer = kourou.Producer("senders", name_server=names, send_timeout=2.0)

    def send() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            body = b"answered %d" % number
            try:
                if producer.send(kourou.Message("t", body)).status is kourou.SendStatus.SEND_OK:
                    answered.add(body)
            except kourou.MQError:
                return

    def whisper() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            body = b"one-way %d" % number
            try:
                producer.send_one_way(kourou.Message("t", body))
                one_way.add(body)
            except kourou.MQError:
                return
            time.sleep(0.0005)  # the other thread has its turn

    with producer:
        producer.send(kourou.Message("t", b"first"))
        threads = [threading.Thread(target=send), threading.Thread(target=whisper)]
        for thread in threads:
            thread.start()
        time.sleep(SECONDS)
        if ending == "kill":
            broker.kill()
        else:
            broker.stop(signal.SIGTERM)
        is_over.set()
        for thread in threads:
            thread.join(20)
    return answered, one_way


def test_a_send_under_way_when_its_producer_closes_is_told_and_makes_no_new_connection() -> None:
    async def main(broker: kourou.LocalBroker, proxy: SlowProxy) -> None:
        producer = kourou.AsyncProducer(
            "senders", broker.name_server, address_map={broker.address: proxy.address}
        )
        await producer.send(kourou.Message("t", b"first"))
        proxy.delay = 5.0
        sending = asyncio.create_task(producer.send(kourou.Message("t", b"second")))
        await asyncio.sleep(0.2)
        before = proxy.connections
        await producer.close()
        with pytest.raises(kourou.ConnectionLost, match="closed"):
            await asyncio.wait_for(sending, 10)
        assert proxy.connections == before

    with kourou.LocalBroker(memory=True) as broker, slow_proxy(broker.address) as proxy:
        asyncio.run(main(broker, proxy))


@pytest.mark.parametrize("linger", [None, 0.005])
def test_what_a_producer_took_before_it_was_closed_is_sent_and_nothing_else(linger: float | None) -> None:
    """Threads that send all the time neither hold up the close nor are left without an answer."""
    with kourou.LocalBroker(memory=True) as broker:
        producer = kourou.Producer("senders", broker.name_server, linger=linger, in_flight_max=50)
        producer.send(kourou.Message("t", b"first"))
        futures: list[Future[kourou.SendResult]] = []

        def send() -> None:
            try:
                while True:
                    futures.append(producer.send_soon(kourou.Message("t", b"%d" % len(futures))))
            except kourou.ConfigError:
                return  # it is closed

        threads = [threading.Thread(target=send, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        began = time.monotonic()
        producer.close()
        assert time.monotonic() - began < 2.5, "it waited for its whole send_timeout"
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
        assert all(future.result(10).status is kourou.SendStatus.SEND_OK for future in futures)
