"""A LocalBroker that runs: a real name server and a real broker inside this process."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import kourou
from kourou.errors import ConfigError, MQError, StoreLocked, Unreachable
from tests import threads


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


def test_a_coroutine_enters_it_without_holding_up_its_event_loop() -> None:
    async def main() -> None:
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count_turns())
        async with kourou.LocalBroker(memory=True) as broker:
            assert turns, "the loop stood still"
            async with kourou.AsyncProducer("senders", broker.name_server) as producer:
                await producer.send(kourou.Message("orders", b"hello"))
        counting.cancel()
        with pytest.raises(MQError, match="is not running"):
            assert broker.name_server

    asyncio.run(main())


READY_SECONDS_MAX = 1.0


@pytest.mark.parametrize("memory", [False, True])
def test_it_is_ready_at_once(memory: bool) -> None:
    def seconds_to_start() -> float:
        broker = kourou.LocalBroker(memory=memory)
        began = time.monotonic()
        broker.start()
        try:
            return time.monotonic() - began
        finally:
            broker.stop()

    assert min(seconds_to_start() for _ in range(3)) <= READY_SECONDS_MAX  # the best: others work here, too


def test_a_new_process_has_one_as_soon_imports_included(tmp_path: Path) -> None:
    program = (
        "import time; began = time.process_time()\n"
        "import kourou\n"
        "with kourou.LocalBroker(memory=True): print(time.process_time() - began)"
    )
    # As an installed package has it: compiled. The first run compiles, and does not count. The time is the
    # processor's, 0.12 s on a machine that does nothing else; on one that does, its caches are others', too.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}

    def seconds() -> float:
        command = [sys.executable, "-c", program]
        return float(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)

    seconds()
    assert min(seconds() for _ in range(4)) <= 2 * READY_SECONDS_MAX


def test_one_in_memory_touches_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    broker = kourou.LocalBroker(memory=True, flush_disk_type="SYNC_FLUSH")
    with broker:
        send(broker, b"held")
        assert receive(broker) == [b"held"]
        assert not Path("/memory").exists()
        with pytest.raises(ConfigError, match="keeps everything in memory"):
            _ = broker.data
    assert list(tmp_path.iterdir()) == []
    with broker:  # the same object has the same memory
        assert receive(broker) == [b"held"]
    with kourou.LocalBroker(memory=True) as another, pytest.raises(MQError, match="orders"):
        receive(another)


def test_a_folder_and_memory_are_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give one of them"):
        kourou.LocalBroker(tmp_path, memory=True)


def test_it_is_gone_without_a_trace() -> None:
    before = threading.active_count()
    with kourou.LocalBroker() as broker:
        folder = Path(broker.data)
        name_server = broker.name_server
        assert folder.is_dir()
    assert not folder.exists()
    assert threads.no_more_than(before)
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
    before = threading.active_count()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        broker = kourou.LocalBroker(tmp_path, port=port)
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
            broker.start()
    assert threads.no_more_than(before)
    with kourou.LocalBroker(tmp_path) as other:  # the folder is free again
        send(other, b"x")


def test_one_folder_is_for_one_broker(tmp_path: Path) -> None:
    with kourou.LocalBroker(tmp_path) as first:
        with pytest.raises(StoreLocked, match=str(tmp_path)):
            kourou.LocalBroker(tmp_path).start()
        send(first, b"undisturbed")
