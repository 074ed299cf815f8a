"""Consumers that are fed by a real broker, over real sockets, with real threads."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

import kourou
from kourou.client import operations
from kourou.client.drive import BlockingDriver

_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[kourou.LocalBroker]:
    with kourou.LocalBroker() as running:
        yield running


@pytest.fixture
def topic(broker: kourou.LocalBroker) -> str:
    name = f"pushed-{next(_numbers)}"
    driver = BlockingDriver()
    driver.run(operations.create_topic(broker.address, operations.TopicSettings(name, 4, 4)))
    driver.close()
    return name


@pytest.fixture
def producer(broker: kourou.LocalBroker) -> Iterator[kourou.Producer]:
    with kourou.Producer("senders", broker.name_server) as running:
        yield running


def wait_until(happened: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_every_message_is_handled_once_by_several_threads(
    broker: kourou.LocalBroker, topic: str, producer: kourou.Producer
) -> None:
    for number in range(500):
        producer.send(kourou.Message(topic, b"%d" % number))
    seen: list[bytes] = []
    threads: set[int] = set()
    with kourou.PushConsumer("once", broker.name_server, start="earliest", threads=4) as consumer:

        @consumer.on(topic)
        def handle(message: kourou.ReceivedMessage) -> None:
            time.sleep(0.002)
            threads.add(threading.get_ident())
            seen.append(message.body)

        consumer.start()
        wait_until(lambda: len(seen) >= 500)
    assert Counter(seen) == Counter(b"%d" % number for number in range(500))
    assert 2 <= len(threads) <= 4


def test_a_slow_message_does_not_keep_the_others_waiting(
    broker: kourou.LocalBroker, topic: str, producer: kourou.Producer
) -> None:
    queue = producer.queues(topic)[0]
    for number in range(50):
        producer.send(kourou.Message(topic, b"%d" % number), queue=queue)
    seen: list[bytes] = []
    others_are_done = threading.Event()
    with kourou.PushConsumer("slow", broker.name_server, start="earliest") as consumer:

        @consumer.on(topic)
        def handle(message: kourou.ReceivedMessage) -> None:
            if message.body == b"0":
                assert others_are_done.wait(10)
            seen.append(message.body)
            if len(seen) == 49:
                others_are_done.set()

        consumer.start()
        wait_until(lambda: len(seen) == 50)
    assert seen[-1] == b"0"


def test_coroutines_are_handlers_of_the_async_form(
    broker: kourou.LocalBroker, topic: str, producer: kourou.Producer
) -> None:
    for number in range(100):
        producer.send(kourou.Message(topic, b"%d" % number))
    seen: list[bytes] = []

    async def run() -> None:
        done = asyncio.Event()
        async with kourou.AsyncPushConsumer("coroutines", broker.name_server, start="earliest") as consumer:

            @consumer.on(topic)
            async def handle(message: kourou.ReceivedMessage) -> None:
                await asyncio.sleep(0.001)
                if message.body == b"7" and message.reconsume_times == 0:
                    raise kourou.RetryLater(1)
                seen.append(message.body)
                if len(seen) == 100:
                    done.set()

            await consumer.start()
            async with asyncio.timeout(10):
                await done.wait()

    asyncio.run(run())
    assert Counter(seen) == Counter(b"%d" % number for number in range(100))


def test_a_plain_function_works_in_the_async_form_too(
    broker: kourou.LocalBroker, topic: str, producer: kourou.Producer
) -> None:
    producer.send(kourou.Message(topic, b"1"))
    threads: list[str] = []

    async def run() -> None:
        async with kourou.AsyncPushConsumer("plain", broker.name_server, start="earliest") as consumer:
            consumer.on(topic)(lambda message: threads.append(threading.current_thread().name))
            await consumer.start()
            async with asyncio.timeout(10):
                while not threads:
                    await asyncio.sleep(0.01)

    asyncio.run(run())
    assert threads[0] != threading.main_thread().name


@pytest.mark.parametrize("ordered", [False, True])
def test_a_loop_takes_messages_and_says_what_became_of_them(
    broker: kourou.LocalBroker, topic: str, producer: kourou.Producer, ordered: bool
) -> None:
    for number in range(20):
        producer.send(kourou.Message(topic, b"%d" % number), key="all")
    group = f"loop-{ordered}"
    seen: list[tuple[bytes, int]] = []
    with kourou.Consumer(
        group, topic, broker.name_server, ordered=ordered, start="earliest", ordered_pause=0.1
    ) as messages:
        for message in messages:
            with message.process():
                seen.append((message.body, message.reconsume_times))
                if message.body == b"3" and message.reconsume_times == 0:
                    raise kourou.RetryLater(0 if ordered else 1)
                if message.body == b"5":
                    raise kourou.DeadLetter
            if len(seen) == 21:
                break
    assert Counter(body for body, _ in seen) == Counter([*(b"%d" % number for number in range(20)), b"3"])
    if ordered:
        assert [int(body) for body, _ in seen] == [0, 1, 2, 3, *range(3, 20)]
    with kourou.PullConsumer("undertaker", f"%DLQ%{group}", broker.name_server) as letters:
        assert [letter.body for letter in letters.receive()] == [b"5"]


def test_an_async_loop_takes_messages_and_goes_on_where_it_stopped(
    broker: kourou.LocalBroker, topic: str, producer: kourou.Producer
) -> None:
    for number in range(10):
        producer.send(kourou.Message(topic, b"%d" % number))

    async def take(most: int) -> list[bytes]:
        taken: list[bytes] = []
        async with kourou.AsyncConsumer(
            "async-loop", topic, broker.name_server, start="earliest"
        ) as messages:
            async for message in messages:
                async with message.process():
                    taken.append(message.body)
                    if len(taken) == most:
                        break
        return taken

    first, second = asyncio.run(take(4)), asyncio.run(take(6))
    assert Counter(first + second) == Counter(b"%d" % number for number in range(10))


def test_a_message_is_told_once_what_became_of_it(
    broker: kourou.LocalBroker, topic: str, producer: kourou.Producer
) -> None:
    producer.send(kourou.Message(topic, b"1"))
    with kourou.Consumer("told", topic, broker.name_server, start="earliest") as messages:
        message = messages.receive(timeout=10)
        assert message is not None
        message.done()
        with pytest.raises(kourou.ConfigError, match="once"):
            message.retry()
        assert messages.receive(timeout=0.1) is None


def test_polled_messages_are_committed(
    broker: kourou.LocalBroker, topic: str, producer: kourou.Producer
) -> None:
    for number in range(10):
        producer.send(kourou.Message(topic, b"%d" % number))
    seen: list[bytes] = []
    with kourou.LitePullConsumer("polled", broker.name_server, start="earliest") as consumer:
        consumer.subscribe(topic)
        while len(seen) < 10:
            seen += [message.body for message in consumer.poll(3)]
        consumer.commit()
    producer.send(kourou.Message(topic, b"10"))

    async def poll() -> list[bytes]:
        async with kourou.AsyncLitePullConsumer("polled", broker.name_server, start="earliest") as again:
            again.subscribe(topic)
            return [message.body for message in await again.poll(32)]

    assert asyncio.run(poll()) == [b"10"]
    assert Counter(seen) == Counter(b"%d" % number for number in range(10))


def test_members_in_one_process_share_the_messages(
    broker: kourou.LocalBroker, topic: str, producer: kourou.Producer
) -> None:
    seen: dict[str, list[bytes]] = {"a": [], "b": []}
    with (
        kourou.PushConsumer("shared", broker.name_server) as a,
        kourou.PushConsumer("shared", broker.name_server) as b,
    ):
        a.on(topic)(lambda message: seen["a"].append(message.body))
        b.on(topic)(lambda message: seen["b"].append(message.body))
        a.start()
        b.start()
        wait_until(lambda: [sum(q.topic == topic for q in each.positions()) for each in (a, b)] == [2, 2])
        for number in range(40):
            producer.send(kourou.Message(topic, b"%d" % number))
        wait_until(lambda: len(seen["a"]) + len(seen["b"]) >= 40)
    assert (len(seen["a"]), len(seen["b"])) == (20, 20)


def test_run_until_stopped_ends_on_a_signal_and_on_stop(broker: kourou.LocalBroker, topic: str) -> None:
    for end in (lambda consumer: os.kill(os.getpid(), signal.SIGTERM), lambda consumer: consumer.stop()):
        with kourou.PushConsumer("stopped", broker.name_server) as consumer:
            consumer.on(topic)(print)
            threading.Timer(0.3, end, [consumer]).start()
            consumer.run_until_stopped()
            with pytest.raises(kourou.ConfigError, match="closed"):
                consumer.start()


def test_handlers_of_the_wrong_kind_are_told(broker: kourou.LocalBroker) -> None:
    consumer = kourou.PushConsumer("wrong", broker.name_server)

    async def coroutine(message: kourou.ReceivedMessage) -> None: ...

    with pytest.raises(kourou.ConfigError, match="AsyncPushConsumer"):
        consumer.on("orders")(coroutine)
    with pytest.raises(kourou.ConfigError, match="cannot be called"):
        consumer.on("orders")(3)  # type: ignore[type-var]
    with pytest.raises(kourou.ConfigError, match="batch_size"):
        consumer.on("orders", batch_size=0)(print)
    with pytest.raises(kourou.ConfigError, match="threads"):
        kourou.PushConsumer("wrong", broker.name_server, threads=0)
    with pytest.raises(kourou.ConfigError, match="ordered_failure"):
        kourou.PushConsumer("wrong", broker.name_server, ordered_failure="cry")  # type: ignore[arg-type]


def test_nothing_is_left_running_when_it_is_closed(broker: kourou.LocalBroker, topic: str) -> None:
    before = set(threading.enumerate())
    with kourou.PushConsumer("tidy", broker.name_server) as consumer:
        consumer.on(topic)(print)
        consumer.start()
        assert set(threading.enumerate()) - before
    wait_until(lambda: not set(threading.enumerate()) - before)


def test_without_anybody_there_it_says_so() -> None:
    with kourou.PushConsumer("alone", "127.0.0.1:1") as consumer:
        consumer.on("orders")(print)
        with pytest.raises(kourou.Unreachable):
            consumer.start()


@pytest.mark.parametrize("form", ["blocking", "async"])
def test_a_loop_gets_nothing_of_a_queue_that_is_somebody_else_s_by_now(
    form: str, broker: kourou.LocalBroker, topic: str, producer: kourou.Producer
) -> None:
    """What was read ahead of it is read by its new owner, and would be handled twice."""
    for number in range(200):
        producer.send(kourou.Message(topic, b"%d" % number))
    kind: Any = kourou.Consumer if form == "blocking" else kourou.AsyncConsumer

    async def run() -> list[bytes]:
        taken: list[bytes] = []

        async def take(consumer: Any, seconds: float) -> bool:
            received = consumer.receive(timeout=seconds)
            message = await received if form == "async" else received
            if message is not None:
                taken.append(message.body)
                message.done()
            return message is not None

        async def enter() -> Any:
            consumer = kind(f"handed-over-{form}", topic, broker.name_server, start="earliest")
            return await consumer.__aenter__() if form == "async" else consumer.__enter__()

        first = await enter()
        assert await take(first, 10)
        second = await enter()
        until = time.monotonic() + 10
        while [_queues_of(topic, each) for each in (first, second)] != [2, 2]:
            assert time.monotonic() < until, "the queues were not shared out"
            await asyncio.sleep(0.01)
        while any([await take(first, 0.5), await take(second, 0.5)]):
            pass
        for consumer in (first, second):
            closed = consumer.close()
            if form == "async":
                await closed
        return taken

    assert Counter(asyncio.run(run())) == Counter(b"%d" % number for number in range(200))


def test_threads_may_take_messages_while_their_loop_is_closed(
    broker: kourou.LocalBroker, topic: str, producer: kourou.Producer
) -> None:
    producer.send_all(kourou.Message(topic, b"%d" % number) for number in range(2000))
    for turn in range(5):
        consumer = kourou.Consumer(f"ended-{turn}", topic, broker.name_server, start="earliest")
        with consumer:
            threads = [threading.Thread(target=_take_all, args=(consumer,), daemon=True) for _ in range(4)]
            for thread in threads:
                thread.start()
            while not consumer.positions():
                time.sleep(0.01)
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive(), "it waits for a message that cannot come"


def _queues_of(topic: str, consumer: Any) -> int:
    return sum(queue.topic == topic for queue in consumer.positions())


def _take_all(consumer: kourou.Consumer) -> None:
    for message in consumer:
        message.done()
