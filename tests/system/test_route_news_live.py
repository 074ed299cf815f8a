"""A broker is added to processes that run; their clients find its queues without looking every 30 s."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import kourou
from kourou.admin import Connection, topics
from kourou.admin import cluster as clusters
from kourou.client import routes
from tests.kourou_process import serving_all, serving_broker

TOPIC, ADDED = "orders", "broker-b"
FOUND_SECONDS_MAX = 25.0
"""It takes one; the rest is for a machine that is busy with other tests."""


def test_running_clients_find_the_queues_of_another_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "REFRESH_SECONDS", 3600.0)  # so that only a name server's word can do it
    (tmp_path / "added").mkdir()
    with serving_all(tmp_path / "first") as first, asyncio.Runner() as runner:
        name_server = first.name_server
        kinds = ("blocking", "async", "consumer", "async pull")
        seen: dict[str, set[str]] = {kind: set() for kind in kinds}
        consumer = kourou.PushConsumer("billing", name_server, start="earliest")

        @consumer.on(TOPIC)
        def bill(message: kourou.ReceivedMessage) -> None:
            seen["consumer"].add(message.broker_name)

        blocking = kourou.Producer("shop", name_server)
        awaited = kourou.AsyncProducer("shop", name_server)

        def send() -> None:
            seen["blocking"].add(blocking.send(kourou.Message(TOPIC, b"1")).broker_name)
            seen["async"].add(runner.run(awaited.send(kourou.Message(TOPIC, b"2"))).broker_name)

        awaited_pull = kourou.AsyncPullConsumer("pulling-too", TOPIC, name_server)

        def receive() -> None:
            messages = runner.run(awaited_pull.receive(timeout=0.1))
            seen["async pull"].update(message.broker_name for message in messages)

        with consumer, blocking:
            send()
            consumer.start()
            receive()
            _wait(lambda: bool(seen["consumer"]), lambda: "nothing is consumed")
            assert all(len(brokers) == 1 for brokers in seen.values()), seen
            settings = f"brokerName={ADDED}\n"
            with serving_broker(tmp_path / "added", "-n", name_server, settings=settings):
                _make_at_the_added(name_server)

                def found() -> bool:
                    send()
                    receive()
                    return all(ADDED in brokers for brokers in seen.values())

                _wait(found, lambda: f"not everybody has found it: {seen}")
                runner.run(awaited.close())
                runner.run(awaited_pull.close())


def _make_at_the_added(name_server: str) -> None:
    with Connection(name_server) as connection:
        _wait(lambda: ADDED in _masters(connection), lambda: "the added broker is not known")
        wanted = topics.Wanted(TOPIC, read_queues=2, write_queues=2)
        topics.save(connection, wanted, [_masters(connection)[ADDED]])


def _masters(connection: Connection) -> dict[str, clusters.Node]:
    return {node.broker: node for node in clusters.masters(connection)}


def _wait(is_so: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + FOUND_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)
