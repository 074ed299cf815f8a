"""Uses nobody meant, and somebody has: closing from two sides, forks, another loop, what is no message."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import kourou
from kourou.local.published import make_topic

TOPIC = "odd"


@pytest.fixture(scope="module")
def broker() -> Iterator[kourou.LocalBroker]:
    with kourou.LocalBroker(memory=True) as running:
        make_topic(running.address, TOPIC, 2)
        with kourou.Producer("shop", running.name_server) as producer:
            producer.send(kourou.Message(TOPIC, b"one espresso"))
        yield running


def test_who_closes_while_another_does_waits_for_the_same_end(broker: kourou.LocalBroker) -> None:
    """`close` lets `run_until_stopped` return, which closes as well: both wait for the handler at work."""
    handling, ended = threading.Event(), threading.Event()
    consumer = kourou.PushConsumer("both-sides", broker.name_server, start="earliest")

    @consumer.on(TOPIC)
    def handle(message: kourou.ReceivedMessage) -> None:
        handling.set()
        time.sleep(0.5)
        ended.set()

    running = threading.Thread(target=consumer.run_until_stopped, daemon=True)
    running.start()
    assert handling.wait(10)
    closing = threading.Thread(target=consumer.close, args=(10.0,), daemon=True)
    closing.start()
    closing.join(15)
    assert not closing.is_alive(), "close hangs"
    assert ended.is_set(), "close has not waited for the handler"
    running.join(15)
    assert not running.is_alive(), "run_until_stopped hangs"


def test_the_async_form_waits_for_the_same_end_too(broker: kourou.LocalBroker) -> None:
    async def main() -> None:
        handling, ended = asyncio.Event(), False
        consumer = kourou.AsyncPushConsumer("both-sides-async", broker.name_server, start="earliest")

        @consumer.on(TOPIC)
        async def handle(message: kourou.ReceivedMessage) -> None:
            nonlocal ended
            handling.set()
            await asyncio.sleep(0.3)
            ended = True

        running = asyncio.create_task(consumer.run_until_stopped())
        await asyncio.wait_for(handling.wait(), 10)
        closing = asyncio.create_task(consumer.close())
        await asyncio.wait_for(running, 10)
        assert ended
        await asyncio.wait_for(closing, 10)

    asyncio.run(main())


def test_a_second_start_does_not_keep_a_running_consumer_from_being_stopped(
    broker: kourou.LocalBroker,
) -> None:
    async def main() -> None:
        handling = asyncio.Event()
        consumer = kourou.AsyncPushConsumer("twice", broker.name_server, start="earliest")

        @consumer.on(TOPIC)
        async def handle(message: kourou.ReceivedMessage) -> None:
            handling.set()

        running = asyncio.create_task(consumer.run_until_stopped())
        await asyncio.wait_for(handling.wait(), 10)
        with pytest.raises(kourou.ConfigError, match="running already"):
            await consumer.start()
        consumer.stop()
        await asyncio.wait_for(running, 10)

    asyncio.run(main())


def test_what_could_not_start_does_not_run_until_somebody_stops_it() -> None:
    """It is closed, and nobody would ever stop it."""
    consumer = kourou.PushConsumer("nowhere", "127.0.0.1:1")
    consumer.on(TOPIC)(print)
    with pytest.raises(kourou.Unreachable):
        consumer.start()
    with pytest.raises(kourou.ConfigError, match="closed; make a new one"):
        consumer.run_until_stopped()
    consumer.close()

    async def main() -> None:
        consumer = kourou.AsyncPushConsumer("nowhere", "127.0.0.1:1")
        consumer.on(TOPIC)(print)
        with pytest.raises(kourou.Unreachable):
            await consumer.start()
        with pytest.raises(kourou.ConfigError, match="closed; make a new one"):
            await asyncio.wait_for(consumer.run_until_stopped(), 10)
        await consumer.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("make", "use"),
    [
        (kourou.PushConsumer, lambda consumer: (consumer.on(TOPIC)(print), consumer.start())),
        (kourou.LitePullConsumer, lambda consumer: (consumer.subscribe(TOPIC), consumer.poll())),
    ],
)
def test_what_is_used_after_its_end_leaves_no_thread_behind(
    broker: kourou.LocalBroker, make: Callable[..., Any], use: Callable[[Any], Any]
) -> None:
    consumer = make("too-late", broker.name_server)
    use(consumer)
    consumer.close()
    before = threading.active_count()
    for again in (consumer.start if make is kourou.PushConsumer else consumer.poll,) * 2:
        with pytest.raises(kourou.ConfigError, match="is closed; make a new one"):
            again()
    assert threading.active_count() <= before


def test_a_loop_that_was_not_entered_says_so_instead_of_waiting_for_ever(broker: kourou.LocalBroker) -> None:
    with pytest.raises(kourou.ConfigError, match="inside its `with`"):
        next(iter(kourou.Consumer("outside", TOPIC, broker.name_server)))
    with pytest.raises(kourou.ConfigError, match="inside its `with`"):
        asyncio.run(kourou.AsyncConsumer("outside", TOPIC, broker.name_server).receive())


def test_a_poll_of_nothing_says_what_to_call(broker: kourou.LocalBroker) -> None:
    with (
        kourou.LitePullConsumer("idle", broker.name_server) as consumer,
        pytest.raises(kourou.ConfigError, match="call `subscribe` or `assign`"),
    ):
        consumer.poll()


def test_a_topic_that_is_not_there_yet_is_waited_for_whatever_the_filter() -> None:
    arrived = threading.Event()
    with (
        kourou.LocalBroker(memory=True, property_filter=True) as broker,
        kourou.PushConsumer("early", broker.name_server, start="earliest") as consumer,
        kourou.Producer("shop", broker.name_server) as producer,
    ):
        consumer.on("tomorrow", sql="price > 3")(lambda message: arrived.set())
        consumer.start()
        producer.send(kourou.Message("tomorrow", b"a cake", properties={"price": "4"}))
        assert arrived.wait(20)


def test_a_broadcast_consumer_goes_on_after_what_it_has_handled_wherever_its_file_is(
    broker: kourou.LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    handled: list[bytes] = []

    def run_until(count: int) -> None:
        with kourou.PushConsumer(
            "caches", broker.name_server, broadcast=True, start="earliest", offsets_file="places.json"
        ) as consumer:

            @consumer.on("prices")
            def handle(message: kourou.ReceivedMessage) -> None:
                handled.append(message.body)
                if len(handled) >= count:
                    consumer.stop()

            consumer.run_until_stopped()

    with kourou.Producer("shop", broker.name_server) as producer:
        producer.send(kourou.Message("prices", b"espresso 2.40"))
        run_until(1)
        assert (tmp_path / "places.json").exists()
        producer.send(kourou.Message("prices", b"espresso 2.50"))
        run_until(2)
    assert handled == [b"espresso 2.40", b"espresso 2.50"]


def test_an_async_client_serves_the_event_loop_it_was_first_used_in(broker: kourou.LocalBroker) -> None:
    producer = kourou.AsyncProducer("shop", broker.name_server)

    async def send() -> None:
        await producer.send(kourou.Message(TOPIC, b"one espresso"))

    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(send())
        with pytest.raises(kourou.ConfigError, match="belongs to another event loop"):
            second.run(send())
        first.run(send())
        first.run(producer.close())


@pytest.mark.parametrize("kind", ["blocking", "transactions", "async"])
def test_a_broker_that_could_not_be_reached_is_probed_however_the_producer_is_used(
    broker: kourou.LocalBroker, kind: str
) -> None:
    """Without `with`, too: a broker nobody probes would be avoided for ever."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        settings: dict[str, Any] = {
            "address_map": {broker.address: f"127.0.0.1:{free.getsockname()[1]}"},
            "avoid_slow_brokers": "5",
            "probe_brokers": True,
            "send_timeout": 1.0,
        }
        message = kourou.Message(TOPIC, b"one espresso")

        def probed() -> bool:
            free.listen()
            free.settimeout(20)
            free.accept()[0].close()
            return True

        async def send() -> None:
            producer = kourou.AsyncProducer("shop", broker.name_server, **settings)
            with pytest.raises(kourou.Unreachable):
                await producer.send(message)
            assert await asyncio.to_thread(probed)
            await producer.close()

        def send_blocking() -> None:
            more = {"check": lambda _: kourou.TransactionState.COMMIT} if kind == "transactions" else {}
            make: Any = kourou.TransactionProducer if more else kourou.Producer
            producer = make("shop", name_server=broker.name_server, **more, **settings)
            with pytest.raises(kourou.Unreachable):
                producer.send(message)
            assert probed()
            producer.close()

        asyncio.run(send()) if kind == "async" else send_blocking()


def test_a_fork_is_told_to_make_clients_of_its_own_and_does_its_parent_s_no_harm() -> None:
    """In a process of its own: the threads of a test runner are not to be forked."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().split() == ["ConfigError"] * 3 + ["closed"] * 3 + ["parent", "2"]


FORKED = """
import os, sys, kourou
with kourou.LocalBroker(memory=True) as broker:
    producer = kourou.Producer("shop", broker.name_server)
    producer.send(kourou.Message("orders", b"one"))
    pull = kourou.PullConsumer("pull", "orders", broker.name_server).__enter__()
    lite = kourou.LitePullConsumer("lite", broker.name_server, start="earliest")
    lite.subscribe("orders")
    while not lite.poll():
        pass
    child = os.fork()
    if not child:
        for use in (lambda: producer.send(kourou.Message("orders", b"child")), pull.receive, lite.poll):
            try:
                use()
            except kourou.MQError as error:
                print(type(error).__name__)
        for client in (producer, pull, lite):
            client.close()
            print("closed")
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    producer.send(kourou.Message("orders", b"two"))
    taken = []
    while len(taken) < 2:
        taken += pull.receive()
    print("parent", len(taken))
    for client in (producer, pull, lite):
        client.close()
"""


@pytest.mark.parametrize(
    ("use", "named"),
    [
        (lambda producer: producer.send("one espresso"), "'one espresso' is a str"),
        (lambda producer: producer.send(None), "is a NoneType"),
        (lambda producer: producer.send_soon(b"x"), "is a bytes"),
        (lambda producer: producer.send_one_way({"topic": "t"}), "is a dict"),
        (lambda producer: producer.request(7), "is a int"),
        (lambda producer: producer.send_batch(["a"]), "is a str"),
        (lambda producer: producer.send_all(["a"]), "is a str"),
        (lambda producer: producer.send_batch(kourou.Message(TOPIC, b"x")), "put it into a list"),
        (lambda producer: producer.send_all(kourou.Message(TOPIC, b"x")), "put it into a list"),
        (lambda producer: producer.send(kourou.Message(TOPIC, b"x"), queue=3), "queue is 3"),
        (lambda producer: producer.recall(TOPIC, None), "cannot be taken back"),
        (lambda producer: producer.send_batch(None), "None is given"),
        (lambda producer: producer.send_all(7), "7 is given"),
        (lambda producer: producer.send(kourou.Message(TOPIC, b"x"), select=3), "select is 3"),
        (lambda producer: producer.send_soon(kourou.Message(TOPIC, b"x"), 3), "then is 3"),
        (lambda producer: producer.view(TOPIC, None), "message_id is None"),
        (lambda producer: producer.query(TOPIC, 3), "key is 3"),
        (lambda producer: producer.query(TOPIC, "k", begin="today"), "begin is 'today'"),
        (lambda _: kourou.TransactionProducer("t", print, "127.0.0.1:1").transaction("x"), "is a str"),  # type: ignore[arg-type]
        (lambda _: kourou.reply_to(kourou.Message(TOPIC, b"x"), b"y"), "was received"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_message_is_named(
    broker: kourou.LocalBroker, use: Callable[[kourou.Producer], object], named: str
) -> None:
    with (
        kourou.Producer("shop", broker.name_server) as producer,
        pytest.raises(kourou.ConfigError, match=named),
    ):
        use(producer)


def test_a_batch_may_come_from_a_generator(broker: kourou.LocalBroker) -> None:
    with kourou.Producer("shop", broker.name_server) as producer:
        sent = producer.send_batch(kourou.Message(TOPIC, b"%d" % number) for number in range(3))
    assert sent.message_id.count(",") == 2


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"name_server": 9876}, "name_server has 9876 in it"),
        ({"name_server": ["127.0.0.1:1", None]}, "name_server has None in it"),
        ({"name_server": "http://127.0.0.1:9876"}, "is a URL"),
        ({"address_map": {"a:1": 2}}, "address_map is"),
        ({"address_map": "a:1"}, "address_map is"),
        ({"properties": ["rocketmq.namesrv.addr"]}, "properties is"),
        ({"telemetry": True}, "telemetry is True"),
        ({"assign": "evenly"}, "assign is 'evenly'"),
        ({"ordered_key": "id"}, "ordered_key is 'id'"),
        ({"offsets_file": 3}, "offsets_file is 3"),
        ({"namespace": 3}, "namespace is 3"),
        ({"route_cache": 3}, "route_cache is 3"),
        ({"hooks": 3}, "hooks is 3"),
        ({"hooks": [print]}, "hooks has .* in it, which has no before_consume"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(kourou.ConfigError, match=named):
        kourou.PushConsumer("group", **{"name_server": "127.0.0.1:1", **options})


def test_a_setting_of_a_producer_of_the_wrong_kind_is_named() -> None:
    options: dict[str, Any]
    for options, named in (
        ({"hooks": [print]}, "hooks has .* in it, which has no before_send"),
        ({"end_transaction_hooks": print}, "end_transaction_hooks is"),
        ({"retried_codes": 2}, "retried_codes is 2"),
    ):
        with pytest.raises(kourou.ConfigError, match=named):
            kourou.Producer("group", "127.0.0.1:1", **options)


def test_how_long_to_wait_is_a_number(broker: kourou.LocalBroker) -> None:
    wrong: Any = "a moment"
    with (
        kourou.PullConsumer("pull", TOPIC, broker.name_server) as pulling,
        kourou.LitePullConsumer("lite", broker.name_server) as polling,
        kourou.PushConsumer("push", broker.name_server) as pushed,
    ):
        polling.subscribe(TOPIC)
        pushed.on(TOPIC)(lambda message: None)
        pushed.start()
        for use in (
            lambda: pulling.receive(timeout=wrong),
            lambda: pulling.pull_block_if_not_found(pulling.queues()[0], 0, timeout=wrong),
            lambda: polling.poll(timeout=wrong),
            lambda: pushed.close(drain=wrong),
        ):
            with pytest.raises(kourou.ConfigError, match="is 'a moment', but must be a number"):
                use()
        with pytest.raises(kourou.ConfigError, match="give an offset for each queue"):
            pulling.commit(pulling.queues())  # type: ignore[arg-type]
        with pytest.raises(kourou.ConfigError, match="the filter of topic 'odd' is None"):
            kourou.PullConsumer("pull", TOPIC, broker.name_server, tags=None)  # type: ignore[arg-type]


def test_a_closed_producer_cannot_be_entered(broker: kourou.LocalBroker) -> None:
    producer = kourou.Producer("shop", broker.name_server)
    producer.close()
    with pytest.raises(kourou.ConfigError, match="closed; make a new one"), producer:
        pass

    async def main() -> None:
        producer = kourou.AsyncProducer("shop", broker.name_server)
        await producer.close()
        with pytest.raises(kourou.ConfigError, match="closed; make a new one"):
            async with producer:
                pass

    asyncio.run(main())


def test_queues_are_the_same_for_all_clients_of_a_namespace(broker: kourou.LocalBroker) -> None:
    names: dict[str, Any] = {"name_server": broker.name_server, "namespace": "shop"}
    chosen: list[kourou.MessageQueue] = []

    def first(queues: Any, message: kourou.Message) -> kourou.MessageQueue:
        chosen.append(queues[0])
        return chosen[0]

    with kourou.Producer("senders", **names) as producer:
        sent = producer.send(kourou.Message("orders", b"one"), select=first)
        assert sent.queue == chosen[0] == producer.queues("orders")[0]
        producer.send(kourou.Message("orders", b"two"), queue=sent.queue)
    assert sent.queue.topic == "orders"
    with kourou.PullConsumer("pull", "orders", **names) as consumer:
        assert sent.queue in consumer.queues()
        assert [message.body for message in consumer.pull(sent.queue, 0).messages] == [b"one", b"two"]
        consumer.commit({sent.queue: 1})
        assert consumer.committed(sent.queue) == 1
        assert consumer.offset_of(sent.queue, "latest") == 2
        consumer.seek(1, sent.queue)
        assert consumer.positions()[sent.queue] == 1


def test_a_queue_to_pull_from_is_one(broker: kourou.LocalBroker) -> None:
    with (
        kourou.PullConsumer("pull", TOPIC, broker.name_server) as consumer,
        pytest.raises(kourou.ConfigError, match="queue is 0"),
    ):
        consumer.pull(0, 0)  # type: ignore[arg-type]


class Billing:
    """An object that is called, and awaited."""

    def __init__(self) -> None:
        self.handled: list[bytes] = []

    async def __call__(self, message: kourou.ReceivedMessage) -> None:
        await asyncio.sleep(0)
        self.handled.append(message.body)


def test_an_object_whose_call_is_a_coroutine_function_is_awaited(broker: kourou.LocalBroker) -> None:
    async def main() -> None:
        billing = Billing()
        async with kourou.AsyncPushConsumer("objects", broker.name_server, start="earliest") as consumer:
            consumer.on("objects")(billing)
            await consumer.start()
            async with kourou.AsyncProducer("shop", broker.name_server) as producer:
                await producer.send(kourou.Message("objects", b"one espresso"))
            async with asyncio.timeout(20):
                while not billing.handled:
                    await asyncio.sleep(0.01)

    asyncio.run(main())
    with (
        kourou.PushConsumer("objects", broker.name_server) as consumer,
        pytest.raises(kourou.ConfigError, match="coroutine function; AsyncPushConsumer"),
    ):
        consumer.on("objects")(Billing())


def test_a_poll_ends_when_another_thread_closes_its_consumer(broker: kourou.LocalBroker) -> None:
    consumer = kourou.LitePullConsumer("closed-in-a-poll", broker.name_server)
    consumer.subscribe("nothing")
    consumer.poll(timeout=0.1)
    polled: list[list[kourou.ReceivedMessage]] = []
    polling = threading.Thread(target=lambda: polled.append(consumer.poll(timeout=60)), daemon=True)
    polling.start()
    time.sleep(0.2)
    consumer.close()
    polling.join(10)
    assert polled == [[]]
    with pytest.raises(kourou.ConfigError, match="closed; make a new one"):
        consumer.poll()


def test_an_async_poll_ends_too(broker: kourou.LocalBroker) -> None:
    async def main() -> None:
        consumer = kourou.AsyncLitePullConsumer("closed-in-a-poll", broker.name_server)
        consumer.subscribe("nothing")
        polling = asyncio.create_task(consumer.poll(timeout=60))
        await asyncio.sleep(0.2)
        await consumer.close()
        assert await asyncio.wait_for(polling, 10) == []

    asyncio.run(main())


def test_who_waits_for_a_consumer_that_is_closed_meanwhile_is_told() -> None:
    """It starts at a name server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        consumer = kourou.PushConsumer("impatient", address)
        consumer.on(TOPIC)(print)
        failures: list[BaseException] = []

        def start() -> None:
            try:
                consumer.start()
            except BaseException as failure:
                failures.append(failure)

        starting = threading.Thread(target=start, daemon=True)
        starting.start()
        time.sleep(0.3)
        consumer.close()
        starting.join(10)
    (failure,) = failures
    assert isinstance(failure, kourou.ConfigError), failure
    assert "closed" in str(failure)


@pytest.mark.parametrize("kind", [kourou.PushConsumer, kourou.LitePullConsumer])
def test_what_cannot_be_set_up_is_told_and_can_be_closed(kind: Any) -> None:
    consumer = kind("g", "127.0.0.1:1", tls=kourou.ClientTls(trust="/nowhere.pem"))
    consumer.on(TOPIC)(print) if kind is kourou.PushConsumer else consumer.subscribe(TOPIC)
    for _ in range(2):
        with pytest.raises(kourou.ConfigError, match=r"nowhere\.pem|closed"):
            consumer.start() if kind is kourou.PushConsumer else consumer.poll()
    consumer.close()


@pytest.mark.parametrize(
    ("assign", "named"),
    [
        (lambda queues, members, me: members[99], "assign failed: IndexError"),
        (lambda queues, members, me: None, "assign failed: TypeError"),
        (lambda queues, members, me: [me], "none of the 2 queues"),
    ],
)
def test_an_assignment_that_makes_no_sense_is_told(
    broker: kourou.LocalBroker, assign: Any, named: str
) -> None:
    with kourou.PushConsumer("badly-shared", broker.name_server, assign=assign) as consumer:
        consumer.on(TOPIC)(print)
        with pytest.raises(kourou.ConfigError, match=named):
            consumer.start()


@pytest.mark.parametrize("handler", [lambda: None, lambda message, context: None, int.__add__])
def test_a_handler_takes_the_message_and_nothing_else(handler: Any) -> None:
    for kind in (kourou.PushConsumer, kourou.AsyncPushConsumer):
        with pytest.raises(kourou.ConfigError, match="it is called with the message alone"):
            kind("g", "127.0.0.1:1").on(TOPIC)(handler)


def test_an_app_runs_in_the_main_thread() -> None:
    app = kourou.App("127.0.0.1:1", group="g")
    app.on(TOPIC)(print)
    with ThreadPoolExecutor() as pool, pytest.raises(kourou.ConfigError, match="the main thread alone"):
        pool.submit(app.run).result(10)


@pytest.mark.parametrize("seconds", [float("inf"), 1e9])
def test_nobody_can_wait_for_longer_than_ten_days(broker: kourou.LocalBroker, seconds: float) -> None:
    """Whatever the system makes of it: some of what it waits with takes no more than 24."""
    with (
        kourou.Producer("shop", broker.name_server) as producer,
        kourou.PullConsumer("pull", TOPIC, broker.name_server) as consumer,
    ):
        for use in (
            lambda: producer.send(kourou.Message(TOPIC, b"x"), timeout=seconds),
            lambda: producer.request(kourou.Message(TOPIC, b"x"), seconds),
            lambda: consumer.receive(timeout=seconds),
            lambda: kourou.Producer("shop", broker.name_server, send_timeout=seconds),
            lambda: kourou.PushConsumer("push", broker.name_server, drain_seconds=seconds),
        ):
            with pytest.raises(kourou.ConfigError, match="864000 at most"):
                use()


@pytest.mark.parametrize("timeout", ["soon", float("nan")])
def test_how_long_a_loop_waits_is_a_number(broker: kourou.LocalBroker, timeout: Any) -> None:
    with (
        kourou.Consumer("impatient", TOPIC, broker.name_server) as messages,
        pytest.raises(kourou.ConfigError, match="timeout is"),
    ):
        messages.receive(timeout=timeout)
