"""`kourou start`, as somebody types it."""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
import time
from pathlib import Path

import pytest

import kourou as library
from tests.kourou_process import kourou, serving_all
from tests.traffic import Sender, everything_stored

STOP_SECONDS_MAX = 30.0


def test_it_says_what_it_listens_on_and_what_to_try_and_that_works(tmp_path: Path) -> None:
    with serving_all(tmp_path) as server:
        name_server, broker = server.name_server, server.address("broker")
        fast = re.search(r"fast port (\S+:\d+)\)", server.printed)
        assert fast is not None
        assert int(fast[1].rpartition(":")[2]) == int(broker.rpartition(":")[2]) - 2
        assert "data         kourou-data\n" in server.printed
        send, tail = (
            shlex.split(line.strip())[1:]
            for line in server.printed.splitlines()
            if line.strip().startswith("kourou message")
        )
        assert name_server in send
        sent = kourou(*send, folder=tmp_path)
        assert (sent.returncode, sent.stderr) == (0, "")
        received = kourou(*tail, "--count", "1", folder=tmp_path)
        assert received.returncode == 0
        assert "hello, world" in received.stdout
        assert server.stop(signal.SIGINT) == 0
    assert (tmp_path / "kourou-data" / "store" / "commitlog").is_dir()
    assert server.log == ""


def test_it_is_ready_soon(tmp_path: Path) -> None:
    began = time.monotonic()
    with serving_all(tmp_path):
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("option", ["--log-level=warning", "--sync-flush"], ids=["async", "sync"])
def test_sigterm_under_load_drains_and_leaves_a_clean_store(tmp_path: Path, option: str) -> None:
    with serving_all(tmp_path, option) as server:
        senders = [Sender(str(number), server.name_server, "orders") for number in range(3)]
        for sender in senders:
            sender.start()
        while not all(sender.acknowledged for sender in senders):
            time.sleep(0.01)
        time.sleep(0.3)
        began = time.monotonic()
        assert server.stop() == 0, server.log
        assert time.monotonic() - began < STOP_SECONDS_MAX
        for sender in senders:
            sender.join(10)
    store = tmp_path / "kourou-data" / "store"
    assert not (store / "abort").exists()
    assert "Traceback" not in server.log
    acknowledged = {place: body for sender in senders for place, body in sender.acknowledged.items()}
    with serving_all(tmp_path, option) as server:
        stored = everything_stored(server.name_server, "orders")
    assert acknowledged.items() <= stored.items()
    assert len(set(stored.values())) == len(stored)


@pytest.mark.slow
def test_sigterm_soon_ends_a_broker_with_thousands_of_new_queues(tmp_path: Path) -> None:
    topics = [f"many-{number}" for number in range(4)]
    with serving_all(tmp_path) as server:
        queues = ("-r", "4000", "-w", "4000", "-n", server.name_server)
        for topic in topics:
            assert kourou("topic", "create", topic, *queues, folder=tmp_path).returncode == 0
        asyncio.run(send_to_each_queue(server.name_server, topics))
        began = time.monotonic()
        assert server.stop() == 0, server.log
        assert time.monotonic() - began < STOP_SECONDS_MAX
    store = tmp_path / "kourou-data" / "store"
    assert not (store / "abort").exists()
    assert len(list((store / "consumequeue").glob("*/*/*"))) == 16_000


async def send_to_each_queue(name_server: str, topics: list[str]) -> None:
    async with library.AsyncProducer("senders", name_server) as producer:
        for topic in topics:
            queues = await producer.queues(topic)
            for start in range(0, len(queues), 500):
                sends = (
                    producer.send(library.Message(topic, b"to each"), queue=queue)
                    for queue in queues[start : start + 500]
                )
                await asyncio.gather(*sends)
