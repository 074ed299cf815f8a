"""What goes wrong in a program is a clear, typed error, or as documented: for every kind of consumer.

(Producers, name servers that talk nonsense and brokers that hang up: test_client_faults.py.)
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

import kourou
from kourou.local.published import make_topic

_numbers = count(1)

CONSUMERS: dict[str, Callable[..., Any]] = {
    "PushConsumer": lambda group, topic, **more: subscribed(kourou.PushConsumer(group, **more), topic),
    "AsyncPushConsumer": lambda group, topic, **more: subscribed(
        kourou.AsyncPushConsumer(group, **more), topic
    ),
    "Consumer": kourou.Consumer,
    "AsyncConsumer": kourou.AsyncConsumer,
    "PullConsumer": kourou.PullConsumer,
    "AsyncPullConsumer": kourou.AsyncPullConsumer,
    "LitePullConsumer": lambda group, topic, **more: polled(kourou.LitePullConsumer(group, **more), topic),
    "AsyncLitePullConsumer": lambda group, topic, **more: polled(
        kourou.AsyncLitePullConsumer(group, **more), topic
    ),
}


def subscribed(consumer: Any, topic: str) -> Any:
    consumer.on(topic)(lambda message: None)
    return consumer


def polled(consumer: Any, topic: str) -> Any:
    consumer.subscribe(topic)
    return consumer


@pytest.fixture(scope="module")
def broker() -> Iterator[kourou.LocalBroker]:
    with kourou.LocalBroker(memory=True, delay_levels_ms=(300,) * 18) as running:  # retries come soon
        yield running


@pytest.fixture
def topic(broker: kourou.LocalBroker) -> str:
    name = f"bad-{next(_numbers)}"
    make_topic(broker.address, name, 2)
    return name


@pytest.mark.parametrize("kind", CONSUMERS)
@pytest.mark.parametrize("name", ["", "white space", "ümlaut", "x" * 300, None, 7])
def test_a_name_that_cannot_be_is_refused_before_anything_is_asked(kind: str, name: Any) -> None:
    with pytest.raises(kourou.ConfigError):
        CONSUMERS[kind]("group", name, name_server="127.0.0.1:1")
    with pytest.raises(kourou.ConfigError):
        CONSUMERS[kind](name, "topic", name_server="127.0.0.1:1")


@pytest.mark.parametrize("kind", CONSUMERS)
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"name_server": "127.0.0.1:70000"}, "70000"),
        ({"name_server": "nowhere"}, "nowhere"),
        ({"name_server": "127.0.0.1:1", "tls": True}, "tls is True"),
        ({"name_server": "127.0.0.1:1", "access": "me"}, "access is 'me'"),
        ({"name_server": "127.0.0.1:1", "start": "yesterday"}, "yesterday"),
    ],
)
def test_a_setting_that_cannot_be_is_named(kind: str, options: dict[str, Any], named: str) -> None:
    with pytest.raises(kourou.ConfigError, match=named):
        CONSUMERS[kind]("group", "topic", **options)


@pytest.mark.parametrize("form", ["blocking", "async"])
def test_starting_twice_or_after_the_end_is_an_error(
    form: str, broker: kourou.LocalBroker, topic: str
) -> None:
    kind = kourou.PushConsumer if form == "blocking" else kourou.AsyncPushConsumer

    async def run() -> None:
        consumer: Any = subscribed(kind("twice", broker.name_server), topic)
        await done(consumer.start())
        with pytest.raises(kourou.ConfigError, match="running already"):
            await done(consumer.start())
        await done(consumer.close())
        await done(consumer.close())
        with pytest.raises(kourou.ConfigError, match="closed; make a new one"):
            await done(consumer.start())
        with pytest.raises(kourou.ConfigError, match="closed; make a new one"):
            consumer.on("another")(print)

    asyncio.run(run())


async def done(outcome: Any) -> Any:
    return await outcome if asyncio.iscoroutine(outcome) else outcome


def test_a_consumer_without_a_handler_is_told_so(broker: kourou.LocalBroker) -> None:
    with (
        kourou.PushConsumer("nobody", broker.name_server) as consumer,
        pytest.raises(kourou.ConfigError, match="no handler; add one with `on`"),
    ):
        consumer.start()


def test_two_handlers_for_one_topic_are_one_too_many(broker: kourou.LocalBroker) -> None:
    with kourou.PushConsumer("both", broker.name_server) as consumer:
        consumer.on("orders")(print)
        with pytest.raises(kourou.ConfigError, match="has a handler already"):
            consumer.on("orders")(print)


@pytest.mark.parametrize("kind", ["Consumer", "PullConsumer", "LitePullConsumer"])
def test_what_is_closed_brings_nothing_and_says_why(
    kind: str, broker: kourou.LocalBroker, topic: str
) -> None:
    with CONSUMERS[kind]("closed", topic, name_server=broker.name_server) as consumer:
        pass
    if kind == "Consumer":
        assert consumer.receive(timeout=1) is None
        assert list(consumer) == []
    else:
        with pytest.raises(kourou.ConfigError, match="closed"):
            consumer.poll() if kind == "LitePullConsumer" else consumer.receive()


@pytest.mark.parametrize("failure", [ValueError("no ink"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_handler_raises_its_message_comes_again_and_the_others_go_on(
    failure: BaseException, broker: kourou.LocalBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[bytes, int]] = []
    with (
        kourou.Producer("senders", broker.name_server) as producer,
        kourou.PushConsumer(f"raising-{topic}", broker.name_server, start="earliest", threads=1) as consumer,
        caplog.at_level(logging.ERROR, "kourou"),
    ):
        producer.send(kourou.Message(topic, b"bad"))
        producer.send(kourou.Message(topic, b"good"))

        @consumer.on(topic)
        def handle(message: kourou.ReceivedMessage) -> None:
            seen.append((message.body, message.reconsume_times))
            if message.body == b"bad" and message.reconsume_times == 0:
                raise failure

        consumer.start()
        until(lambda: {(b"bad", 0), (b"good", 0)} <= set(seen), 10)
        until(lambda: (b"bad", 1) in seen, 10)
    assert "the handler failed on" in caplog.text


def test_a_handler_that_never_returns_holds_up_neither_the_others_nor_the_end(
    broker: kourou.LocalBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[bytes] = []
    never = threading.Event()
    with kourou.Producer("senders", broker.name_server) as producer:
        producer.send(kourou.Message(topic, b"stuck"))
        for number in range(20):
            producer.send(kourou.Message(topic, b"%d" % number))
    consumer = kourou.PushConsumer(f"stuck-{topic}", broker.name_server, start="earliest", threads=2)

    @consumer.on(topic)
    def handle(message: kourou.ReceivedMessage) -> None:
        seen.append(message.body)
        if message.body == b"stuck":
            never.wait(60)

    consumer.start()
    until(lambda: len(set(seen)) == 21, 10)
    with caplog.at_level(logging.WARNING, "kourou"):
        began = time.monotonic()
        consumer.close(drain=0.5)
        assert time.monotonic() - began < 5
    assert "1 handlers did not end within 0.5 s" in caplog.text
    never.set()
    # It counts as not handled: the next member of the group gets it.
    with kourou.Consumer(f"stuck-{topic}", topic, broker.name_server) as messages:
        message = messages.receive(timeout=10)
        assert message is not None
        assert message.body == b"stuck"
        message.done()


def test_a_message_is_settled_once(broker: kourou.LocalBroker, topic: str) -> None:
    with kourou.Producer("senders", broker.name_server) as producer:
        producer.send(kourou.Message(topic, b"x"))
    with kourou.Consumer(f"once-{topic}", topic, broker.name_server, start="earliest") as messages:
        message = messages.receive(timeout=10)
        assert message is not None
        message.done()
        with pytest.raises(kourou.ConfigError, match="settled already"):
            message.retry()


def until(happened: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"not so within {seconds} s"
        time.sleep(0.01)
