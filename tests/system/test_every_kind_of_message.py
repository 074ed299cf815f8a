"""One of each kind of message through a real broker process, killed while some of them still wait."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import kourou
from tests.kourou_process import Serving, free_pair, serving_broker, serving_name_server

SETTINGS = """
flushDiskType=SYNC_FLUSH
enablePropertyFilter=true
recallMessageEnable=true
transactionTimeOut=1000
transactionCheckInterval=1000
messageDelayLevel=1s 4s 4s 4s
"""
PATIENCE_SECONDS = 25.0
WAIT_SECONDS = 4.0
EXPECTED = {b"a delay level", b"a named time", b"a half message", b"a retry"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class World:
    """A name server that stays, and a broker that is killed and comes back where it was."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        names = folder / "names"
        names.mkdir()
        self.name_server = stack.enter_context(serving_name_server(names)).address("listens on")
        self._settings = f"{SETTINGS}namesrvAddr={self.name_server}\nlistenPort={free_pair()}\n"
        self.broker: Serving = self._serve()

    def _serve(self) -> Serving:
        return self._stack.enter_context(serving_broker(self._folder, settings=self._settings))

    def kill_and_restart(self) -> None:
        self.broker.kill()
        self.broker = self._serve()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path, stack)


def test_what_waits_when_the_broker_is_killed_comes_all_the_same(world: World) -> None:
    came: queue.Queue[tuple[bytes, float]] = queue.Queue()
    with kourou.PushConsumer("first-try", world.name_server, start="earliest") as consumer:
        failed = queue.Queue[bytes]()

        @consumer.on("retried")
        def fail(message: kourou.ReceivedMessage) -> None:
            failed.put(message.body)
            raise kourou.RetryLater(kourou.DelayLevel(4))

        with kourou.Producer("shop", world.name_server) as producer:
            producer.send(kourou.Message("retried", b"a retry"))
            consumer.start()
            assert failed.get(timeout=PATIENCE_SECONDS) == b"a retry"
            time.sleep(0.5)  # it is handed back a moment after its handler has failed
            began = time.monotonic()
            producer.send(kourou.Message("later", b"a delay level"), delay=kourou.DelayLevel(2))
            producer.send(kourou.Message("later", b"a named time"), delay=WAIT_SECONDS)
            recalled = producer.send(kourou.Message("later", b"taken back"), delay=WAIT_SECONDS)
            producer.recall("later", recalled)
        with (
            kourou.TransactionProducer("bank", unknown, world.name_server) as bank,
            bank.transaction(kourou.Message("later", b"a half message")) as half,
        ):
            half.leave_unknown()
    world.kill_and_restart()
    with (
        kourou.PushConsumer("readers", world.name_server, start="earliest") as readers,
        kourou.PushConsumer("first-try", world.name_server, start="earliest") as again,
        kourou.TransactionProducer("bank", committed, world.name_server),
    ):
        readers.on("later")(lambda message: came.put((message.body, time.monotonic() - began)))
        again.on("retried")(lambda message: came.put((message.body, time.monotonic() - began)))
        readers.start()
        again.start()
        seen = [came.get(timeout=PATIENCE_SECONDS)]
        while {body for body, _ in seen} != EXPECTED:
            seen.append(came.get(timeout=PATIENCE_SECONDS))
        time.sleep(1.0)
        seen += [came.get() for _ in range(came.qsize())]
    assert b"taken back" not in [body for body, _ in seen]
    for body in EXPECTED - {b"a retry"}:  # where its group was is saved every five seconds: it may come twice
        [after] = [after for each, after in seen if each == body]
        assert after >= WAIT_SECONDS or body == b"a half message"


def test_dead_letters_order_filters_batches_and_requests_go_on_after_a_kill(world: World) -> None:
    with kourou.Producer("shop", world.name_server) as producer:
        producer.send_batch([kourou.Message("batch", b"%d" % number) for number in range(20)])
        for price in (1, 5, 9):
            producer.send(kourou.Message("prices", b"%d" % price, properties={"price": str(price)}))
        for state in (b"placed", b"paid", b"served"):
            producer.send(kourou.Message("states", state, keys="order-7"), key="order-7")
        producer.send(kourou.Message("cakes", b"a square wheel"))
    world.kill_and_restart()
    came: dict[str, queue.Queue[bytes]] = {
        topic: queue.Queue() for topic in ("batch", "prices", "states", "%DLQ%bakery")
    }
    with (
        kourou.Producer("shop", world.name_server) as producer,
        kourou.PushConsumer("bakery", world.name_server, start="earliest") as bakery,
        kourou.PushConsumer("readers", world.name_server, start="earliest") as readers,
    ):

        @bakery.on("cakes")
        def bake(message: kourou.ReceivedMessage) -> None:
            raise kourou.DeadLetter("wheels are round")

        readers.on("batch")(lambda message: came["batch"].put(message.body))
        readers.on("prices", sql="price BETWEEN 4 AND 10")(lambda message: came["prices"].put(message.body))
        readers.on("states", ordered=True)(lambda message: came["states"].put(message.body))
        readers.on("%DLQ%bakery")(lambda message: came["%DLQ%bakery"].put(message.body))
        readers.on("questions")(lambda message: _reply(producer, message))
        producer.send(kourou.Message("questions", b"is anybody there?"))
        bakery.start()
        readers.start()
        assert sorted(taken(came["batch"], 20)) == sorted(b"%d" % number for number in range(20))
        assert sorted(taken(came["prices"], 2)) == [b"5", b"9"]
        assert taken(came["states"], 3) == [b"placed", b"paid", b"served"]
        assert taken(came["%DLQ%bakery"], 1) == [b"a square wheel"]
        answer = producer.request(kourou.Message("questions", b"when?"), timeout=PATIENCE_SECONDS)
        assert answer.body == b"soon"
        found = producer.query("states", "order-7")
        assert [message.body for message in found] == [b"placed", b"paid", b"served"]


def _reply(producer: kourou.Producer, message: kourou.ReceivedMessage) -> None:
    if "CORRELATION_ID" in message.properties:
        producer.send(kourou.reply_to(message, b"soon"))


def taken(came: queue.Queue[bytes], count: int) -> list[bytes]:
    return [came.get(timeout=PATIENCE_SECONDS) for _ in range(count)]


def unknown(message: kourou.ReceivedMessage) -> kourou.TransactionState:
    return kourou.TransactionState.UNKNOWN


def committed(message: kourou.ReceivedMessage) -> kourou.TransactionState:
    return kourou.TransactionState.COMMIT
