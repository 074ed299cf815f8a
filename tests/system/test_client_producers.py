"""Everything a producer can do, with a real broker, blocking and async."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

import kourou
from kourou.client import operations
from kourou.client.drive import BlockingDriver
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.java_hash import java_hash
from tests.system.client_forms import Form, forms

_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[kourou.LocalBroker]:
    with kourou.LocalBroker(
        recall_enabled=True, transaction_timeout_ms=200, transaction_check_interval_ms=200
    ) as running:
        yield running


@pytest.fixture(params=["blocking", "async"])
def form(request: pytest.FixtureRequest) -> Iterator[Form]:
    with forms() as both:
        yield both[request.param]


@pytest.fixture
def topic(broker: kourou.LocalBroker) -> str:
    name = f"topic-{next(_numbers)}"
    driver = BlockingDriver()
    driver.run(operations.create_topic(broker.address, operations.TopicSettings(name, 4, 4)))
    driver.close()
    return name


def bodies(broker: kourou.LocalBroker, topic: str, expected: int, seconds: float = 30.0) -> list[bytes]:
    return [message.body for message in received(broker, topic, expected, seconds)]


def received(
    broker: kourou.LocalBroker, topic: str, expected: int, seconds: float = 30.0
) -> list[kourou.ReceivedMessage]:
    """What is in a topic, read anew; for `expected` of 0, what came in a second."""
    found: list[kourou.ReceivedMessage] = []
    with kourou.PullConsumer(f"reader-{next(_numbers)}", topic, broker.name_server) as consumer:
        deadline = time.monotonic() + (seconds if expected else 1.0)
        while time.monotonic() < deadline and not (expected and len(found) >= expected):
            found += consumer.receive(timeout=0.2)
    return found


def producer(form: Form, broker: kourou.LocalBroker, **options: Any) -> Any:
    return form.producer("shop", name_server=broker.name_server, **options)


# --------------------------------------------------------------------------------------------------- later


@pytest.mark.parametrize(
    "delay",
    [1, 0.7, timedelta(milliseconds=900), "moment", kourou.DelayLevel(1)],
    ids=["seconds", "fraction", "timedelta", "datetime", "level"],
)
def test_a_delayed_message_comes_when_it_is_due_and_not_before(
    form: Form, broker: kourou.LocalBroker, topic: str, delay: Any
) -> None:
    if delay == "moment":
        delay = datetime.now(UTC) + timedelta(seconds=1)
    began = time.time()
    with producer(form, broker) as sender:
        sender.send(kourou.Message(topic, b"later"), delay=delay)
    assert bodies(broker, topic, 1) == [b"later"]
    assert time.time() - began >= 0.69


def test_a_moment_that_is_past_means_now(form: Form, broker: kourou.LocalBroker, topic: str) -> None:
    with producer(form, broker) as sender:
        sender.send(kourou.Message(topic, b"now"), delay=datetime(2020, 1, 1, tzinfo=UTC))
        sender.send(kourou.Message(topic, b"at once"), delay=0)
    assert sorted(bodies(broker, topic, 2, 1.0)) == [b"at once", b"now"]


def test_a_message_that_is_not_due_can_be_taken_back(
    form: Form, broker: kourou.LocalBroker, topic: str
) -> None:
    with producer(form, broker) as sender:
        first = sender.send(kourou.Message(topic, b"regretted"), delay=1.5)
        second = sender.send(kourou.Message(topic, b"regretted too"), delay=1.5)
        sender.send(kourou.Message(topic, b"meant"), delay=1.5)
        assert sender.recall(topic, first) == first.message_id
        assert sender.recall(topic, second.recall_handle) == second.message_id
        assert bodies(broker, topic, 1) == [b"meant"]
        time.sleep(0.3)
        assert bodies(broker, topic, 0) == [b"meant"]
        at_once = sender.send(kourou.Message(topic, b"at once"))
        with pytest.raises(kourou.ConfigError, match="only one that was sent with a delay"):
            sender.recall(topic, at_once)
        with pytest.raises(kourou.ConfigError, match="is not one that a send was answered with"):
            sender.recall(topic, "nonsense")


@pytest.mark.parametrize("delay", [-1, "soon", True, timedelta(days=-1), 400 * 24 * 3600])
def test_a_delay_that_means_nothing_is_an_error(
    form: Form, broker: kourou.LocalBroker, topic: str, delay: Any
) -> None:
    with producer(form, broker) as sender, pytest.raises(kourou.ConfigError, match="delay is"):
        sender.send(kourou.Message(topic, b"x"), delay=delay)


# ------------------------------------------------------------------------------------------------ in order


def test_messages_of_one_key_keep_their_order_in_java_s_queue(
    form: Form, broker: kourou.LocalBroker, topic: str
) -> None:
    with producer(form, broker) as sender:
        for number in range(20):
            sent = sender.send(kourou.Message(topic, b"%d" % number), key="order-42")
            assert sent.queue_id == abs(java_hash("order-42")) % 4
    assert bodies(broker, topic, 20) == [b"%d" % number for number in range(20)]


def test_a_function_can_choose_the_queue(form: Form, broker: kourou.LocalBroker, topic: str) -> None:
    with producer(form, broker) as sender:
        message = kourou.Message(topic, b"x", properties={"shelf": "2"})
        sent = sender.send(message, select=lambda queues, given: queues[int(given.properties["shelf"])])
        assert sent.queue_id == 2
        with pytest.raises(kourou.ConfigError, match="none of the 4 queues"):
            sender.send(message, select=lambda queues, given: "queue two")  # type: ignore[arg-type,return-value]
        with pytest.raises(kourou.ConfigError, match="order is 'loose'"):
            sender.send(message, key="a", order="loose")


# ----------------------------------------------------------------------------------------------- together


def test_many_messages_go_in_as_few_batches_as_they_fit_in(
    form: Form, broker: kourou.LocalBroker, topic: str
) -> None:
    with producer(form, broker, message_bytes_max=10_000) as sender:
        results = sender.send_all(
            kourou.Message(topic, b"%03d" % number + bytes(996)) for number in range(50)
        )
    assert 6 <= len(results) <= 8
    assert sum(len(result.message_id.split(",")) for result in results) == 50
    assert sorted(body[:3] for body in bodies(broker, topic, 50)) == [b"%03d" % n for n in range(50)]


def test_sends_nobody_waits_for_are_answered_all_the_same(
    form: Form, broker: kourou.LocalBroker, topic: str
) -> None:
    told: list[Any] = []
    with producer(form, broker) as sender:
        futures = [sender.send_soon(kourou.Message(topic, b"%d" % n), told.append) for n in range(200)]
        form.until(lambda: len(told) == 200)
    results = [future.result() for future in futures]
    assert len({result.message_id for result in results}) == 200
    assert set(told) == set(results)
    assert len(bodies(broker, topic, 200)) == 200


# ------------------------------------------------------------------------------------------- transactions


def never(message: kourou.ReceivedMessage) -> kourou.TransactionState:
    raise AssertionError(f"asked about {message}")


def test_a_transaction_is_visible_when_its_block_is_left(
    form: Form, broker: kourou.LocalBroker, topic: str
) -> None:
    with form.transactions("shop-tx", never, name_server=broker.name_server) as sender:
        with form.inside(sender.transaction(kourou.Message(topic, b"paid", keys="42"))) as transaction:
            assert bodies(broker, topic, 0) == []
            assert transaction.sent.status is kourou.SendStatus.SEND_OK
        (message,) = received(broker, topic, 1)
    assert (message.body, message.keys, message.message_id) == (b"paid", "42", transaction.message_id)


def test_a_transaction_left_by_an_exception_never_was(
    form: Form, broker: kourou.LocalBroker, topic: str
) -> None:
    with form.transactions("shop-tx", never, name_server=broker.name_server) as sender:
        with pytest.raises(ZeroDivisionError), form.inside(sender.transaction(kourou.Message(topic, b"no"))):
            _ = 1 // 0
        with form.inside(sender.transaction(kourou.Message(topic, b"no"))) as transaction:
            transaction.rollback()
        assert bodies(broker, topic, 0) == []


@pytest.mark.parametrize("state", [kourou.TransactionState.COMMIT, kourou.TransactionState.ROLLBACK])
def test_a_broker_asks_about_a_transaction_whose_end_nobody_told(
    form: Form, broker: kourou.LocalBroker, topic: str, state: kourou.TransactionState
) -> None:
    asked: list[str] = []

    def check(message: kourou.ReceivedMessage) -> kourou.TransactionState:
        asked.append(message.message_id)
        if len(asked) == 1:
            raise RuntimeError("the database is away")
        return state if len(asked) > 2 else kourou.TransactionState.UNKNOWN

    group = f"shop-{next(_numbers)}"
    with form.transactions(group, check, name_server=broker.name_server) as sender:
        with form.inside(sender.transaction(kourou.Message(topic, b"asked for", keys="7"))) as transaction:
            transaction.leave_unknown()
        form.until(lambda: len(asked) >= 3)
        if state is kourou.TransactionState.COMMIT:
            form.until(lambda: bodies(broker, topic, 1, 0.3) == [b"asked for"])
        else:
            form.until(lambda: len(asked) == 3)
            assert bodies(broker, topic, 0) == []
    assert set(asked) == {transaction.message_id}


def test_a_check_that_wants_to_end_the_program_is_asked_again(broker: kourou.LocalBroker, topic: str) -> None:
    asked: list[str] = []

    def check(message: kourou.ReceivedMessage) -> kourou.TransactionState:
        asked.append(message.message_id)
        if len(asked) == 1:
            raise SystemExit(3)
        return kourou.TransactionState.COMMIT

    group = f"shop-{next(_numbers)}"
    with kourou.TransactionProducer(group, check, broker.name_server) as producer:
        with producer.transaction(kourou.Message(topic, b"asked for")) as transaction:
            transaction.leave_unknown()
        deadline = time.monotonic() + 10
        while bodies(broker, topic, 1, 0.3) != [b"asked for"]:
            assert time.monotonic() < deadline, f"asked {len(asked)} times"


def test_a_new_producer_of_the_group_is_asked_what_the_old_one_left(
    form: Form, broker: kourou.LocalBroker, topic: str
) -> None:
    group = f"shop-{next(_numbers)}"
    with (
        form.transactions(group, never, name_server=broker.name_server) as sender,
        form.inside(sender.transaction(kourou.Message(topic, b"orphan"))) as transaction,
    ):
        transaction.leave_unknown()
    asked: list[str] = []

    def check(message: kourou.ReceivedMessage) -> kourou.TransactionState:
        asked.append(message.message_id)
        return kourou.TransactionState.COMMIT

    with form.transactions(group, check, name_server=broker.name_server):
        form.until(lambda: bodies(broker, topic, 1, 0.3) == [b"orphan"])
    assert asked[0] == transaction.message_id


# -------------------------------------------------------------------------------------- request and reply


def test_a_request_returns_what_a_consumer_replies(
    form: Form, broker: kourou.LocalBroker, topic: str
) -> None:
    over = threading.Event()

    def serve() -> None:
        with (
            kourou.PullConsumer("server", topic, broker.name_server) as consumer,
            kourou.Producer("server", broker.name_server) as replier,
        ):
            while not over.is_set():
                for message in consumer.receive(timeout=0.2):
                    replier.send(kourou.reply_to(message, message.body.upper()))

    server = threading.Thread(target=serve)
    server.start()
    try:
        with producer(form, broker) as sender:
            for question in (b"one", b"two", b"x" * 10_000):
                assert sender.request(kourou.Message(topic, question), 5.0).body == question.upper()
    finally:
        over.set()
        server.join()


def test_a_request_nobody_answers_times_out(form: Form, broker: kourou.LocalBroker, topic: str) -> None:
    with producer(form, broker) as sender, pytest.raises(kourou.TimedOut, match=r"nobody replied .* 0\.3 s"):
        sender.request(kourou.Message(topic, b"anybody?"), 0.3)
    (question,) = received(broker, topic, 1)
    with pytest.raises(kourou.ConfigError, match="is no request"):
        kourou.reply_to(_plain(form, broker, topic), b"what?")
    assert kourou.reply_to(question, b"late").topic.endswith("_REPLY_TOPIC")


def _plain(form: Form, broker: kourou.LocalBroker, topic: str) -> kourou.ReceivedMessage:
    with producer(form, broker) as sender:
        sender.send(kourou.Message(topic, b"plain"))
    return next(each for each in received(broker, topic, 2) if each.body == b"plain")


# ------------------------------------------------------------------------------------------- many threads


def test_sixteen_threads_may_share_a_producer(broker: kourou.LocalBroker, topic: str) -> None:
    ids: list[str] = []
    errors: list[BaseException] = []
    with kourou.Producer("shop", broker.name_server) as sender:

        def work() -> None:
            try:
                for number in range(50):
                    message = kourou.Message(topic, b"x")
                    if number % 3:
                        ids.append(sender.send(message).message_id)
                    else:
                        ids.append(sender.send_soon(message).result(5).message_id)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert not errors
    assert len(set(ids)) == 800
    assert len(received(broker, topic, 800)) == 800


# ----------------------------------------------------------------------------------------------- lingering


def test_messages_that_linger_go_in_few_requests_and_have_a_result_each(
    form: Form, broker: kourou.LocalBroker, topic: str
) -> None:
    requests: list[str] = []

    class Counting:
        def before_send(self, attempt: kourou.SendAttempt) -> None:
            requests.append(attempt.outgoing.message_id)

        def after_send(self, attempt: kourou.SendAttempt) -> None:
            pass

    told: list[Any] = []
    with producer(form, broker, linger=0.05, hooks=[Counting()]) as sender:
        futures = [sender.send_soon(kourou.Message(topic, b"%d" % n), told.append) for n in range(100)]
        sender.send_soon(kourou.Message(topic, b"alone"), told.append, key="special")
        form.until(lambda: len(told) == 101)
        results = [future.result() for future in futures]
        last = sender.send_soon(kourou.Message(topic, b"last"))
    assert last.result().status is kourou.SendStatus.SEND_OK  # closing waits for what is on its way
    assert len(requests) < 60
    places = {(result.queue, result.queue_offset): result.message_id for result in results}
    assert len(places) == 100
    found = received(broker, topic, 102)
    assert len(found) == 102
    for message in found:
        if message.body.isdigit():
            queue = kourou_queue(topic, message)
            assert places[queue, message.queue_offset] == message.message_id
            assert results[int(message.body)].offset_id == message.offset_id


def test_a_message_that_cannot_linger_and_one_that_is_told_badly_hold_up_nobody(
    form: Form, broker: kourou.LocalBroker, topic: str
) -> None:
    with producer(form, broker, linger=0.02, in_flight_max=2) as sender:
        for _ in range(3):
            with pytest.raises(kourou.ConfigError, match="has no body"):
                sender.send_soon(kourou.Message(topic, b""))
        told: list[Any] = []
        sender.send_soon(kourou.Message(topic, b"first"), lambda outcome: 1 / 0)
        sender.send_soon(kourou.Message(topic, b"second"), told.append)
        form.until(lambda: len(told) == 1)
    assert told[0].status is kourou.SendStatus.SEND_OK


def kourou_queue(topic: str, message: kourou.ReceivedMessage) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=message.broker_name, queue_id=message.queue_id)
