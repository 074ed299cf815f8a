"""SIGTERM to a broker under load: it answers what is in flight, says good-bye to the name server and leaves a
clean store, all within five seconds."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import kourou as library
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import request
from kourou.protocol.headers import PullMessage
from kourou.protocol.record import decode_all
from kourou.remoting.blocking import BlockingClient
from tests.kourou_process import kourou, serving_broker, serving_name_server
from tests.traffic import Sender, everything_stored

STOP_SECONDS_MAX = 20.0
SENDERS = 6
READERS = 4
POLLS = 4
SUSPEND = 2
SUBSCRIPTION = 4
EMPTY_QUEUE = 7


class LongPoll(threading.Thread):
    """Asks for messages as they come, and waits at the broker when there are none."""

    def __init__(self, address: str, topic: str, queue_id: int) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._topic = topic
        self._queue_id = queue_id
        self.received = 0
        self.answers: list[int] = []

    def run(self) -> None:
        offset = 0
        with BlockingClient() as client:
            while True:
                header = PullMessage(
                    consumer_group="pollers",
                    topic=self._topic,
                    queue_id=self._queue_id,
                    queue_offset=offset,
                    message_count_max=32,
                    sys_flag=SUSPEND | SUBSCRIPTION,
                    subscription="*",
                    suspend_timeout_ms=15_000,
                )
                try:
                    reply = client.call(self._address, request(RequestCode.PULL_MESSAGE, header), 30.0)
                except library.MQError:
                    return
                self.answers.append(reply.code)
                if reply.code == ResponseCode.SUCCESS:
                    found = decode_all(reply.body)
                    self.received += len(found)
                    offset = found[-1].queue_offset + 1


@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_broker_under_load_drains_within_five_seconds(tmp_path: Path, flush: str) -> None:
    with serving_name_server(tmp_path) as names:
        name_server = names.address("listens on")
        settings = f"namesrvAddr={name_server}\nflushDiskType={flush}\n"
        with serving_broker(tmp_path, settings=settings) as broker:
            address = broker.address("listens on")
            made = kourou("topic", "create", "orders", "-n", name_server, folder=tmp_path)
            assert made.returncode == 0, made.stderr
            assert kourou("topic", "create", "quiet", "-n", name_server, folder=tmp_path).returncode == 0
            senders = [Sender(str(number), name_server, "orders") for number in range(SENDERS)]
            readers = [LongPoll(address, "orders", number) for number in range(READERS)]
            waiting = [LongPoll(address, "quiet", EMPTY_QUEUE) for _ in range(POLLS)]
            for thread in (*senders, *readers, *waiting):
                thread.start()
            while not (all(each.acknowledged for each in senders) and all(each.received for each in readers)):
                time.sleep(0.01)
            time.sleep(0.5)
            began = time.monotonic()
            assert broker.stop() == 0, broker.log
            took = time.monotonic() - began
            assert took < STOP_SECONDS_MAX
            for thread in (*senders, *readers, *waiting):
                thread.join(10)
                assert not thread.is_alive()
        assert "Traceback" not in broker.log
        route = kourou("topic", "route", "orders", "-n", name_server, folder=tmp_path)
        assert route.returncode == 3, "the broker is still registered"
        checked = kourou("store", "check", tmp_path / "store", folder=tmp_path)
        assert checked.returncode == 0, checked.stdout
        assert not (tmp_path / "store" / "abort").exists()
        told = [ResponseCode.PULL_NOT_FOUND]  # they did wait, and heard in the end that nothing came
        assert [each.answers for each in waiting] == [told] * POLLS
        acknowledged = {place: body for sender in senders for place, body in sender.acknowledged.items()}
        with serving_broker(tmp_path, settings=settings) as broker:
            stored = everything_stored(name_server, "orders")
            broker.stop()
        assert acknowledged.items() <= stored.items()
