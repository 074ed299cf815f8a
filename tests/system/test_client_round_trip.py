"""Our client and our broker, over real sockets: what is sent is what is received, blocking or async."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count, islice
from typing import Any

import pytest

import kourou
from kourou.client import operations
from kourou.client.drive import BlockingDriver
from kourou.client.steps import Call
from kourou.protocol.bodies import ConsumerList, ConsumerRunningInfo, MessageQueue
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import GetRunningInfo, GroupNamed
from tests.system.client_forms import Form, forms

_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[kourou.LocalBroker]:
    with kourou.LocalBroker() as running:
        yield running


@pytest.fixture(params=["blocking", "async"])
def form(request: pytest.FixtureRequest) -> Iterator[Form]:
    with forms() as both:
        yield both[request.param]


@pytest.fixture
def topic(broker: kourou.LocalBroker) -> str:
    """A topic of its own for each test, with four queues."""
    name = f"topic-{next(_numbers)}"
    driver = BlockingDriver()
    driver.run(operations.create_topic(broker.address, operations.TopicSettings(name, 4, 4)))
    driver.close()
    return name


def receive_all(consumer: Any, expected: int, seconds: float = 5.0) -> list[kourou.ReceivedMessage]:
    deadline = time.monotonic() + seconds
    received: list[kourou.ReceivedMessage] = []
    while len(received) < expected and time.monotonic() < deadline:
        received += consumer.receive(timeout=1.0)
    return received


def test_what_is_sent_is_what_is_received(form: Form, broker: kourou.LocalBroker, topic: str) -> None:
    message = kourou.Message(
        topic, "één espresso ☕".encode(), tags="new", keys=["42", "43"], properties={"colour": "röd"}, flag=9
    )
    with form.producer("shop", name_server=broker.name_server) as producer:
        sent = producer.send(message)
    assert sent.status is kourou.SendStatus.SEND_OK
    with form.consumer("billing", topic, name_server=broker.name_server) as consumer:
        (received,) = receive_all(consumer, 1)
    assert (received.topic, received.body, received.flag) == (topic, message.body, 9)
    assert (received.tags, received.keys, received.properties["colour"]) == ("new", "42 43", "röd")
    assert received.message_id == sent.message_id
    assert received.offset_id == sent.offset_id
    assert (received.broker_name, received.queue_id) == (sent.queue.broker_name, sent.queue.queue_id)
    assert received.queue_offset == sent.queue_offset
    assert received.born_host[0] == "127.0.0.1"


def test_a_thousand_messages_come_once_each_and_in_order_within_a_queue(
    form: Form, broker: kourou.LocalBroker, topic: str
) -> None:
    with form.producer("shop", name_server=broker.name_server) as producer:
        for number in range(1000):
            producer.send(kourou.Message(topic, b"%d" % number))
    with form.consumer("billing", topic, name_server=broker.name_server) as consumer:
        received = receive_all(consumer, 1000)
        assert consumer.receive(timeout=0) == []
    numbers = [int(message.body) for message in received]
    assert sorted(numbers) == list(range(1000))
    for queue_id in range(4):
        of_queue = [int(message.body) for message in received if message.queue_id == queue_id]
        assert len(of_queue) == 250
        assert of_queue == sorted(of_queue)


def test_large_bodies_arrive_as_they_were(form: Form, broker: kourou.LocalBroker, topic: str) -> None:
    body = b"espresso " * 200_000
    with form.producer("shop", name_server=broker.name_server) as producer:
        producer.send(kourou.Message(topic, body))
        producer.send(kourou.Message(topic, bytes(range(256)) * 12_000), timeout=10)
    with form.consumer("billing", topic, name_server=broker.name_server) as consumer:
        received = receive_all(consumer, 2)
    assert {len(message.body) for message in received} == {len(body), 256 * 12_000}
    assert all(message.sys_flag & 1 for message in received)


def test_messages_of_one_key_and_of_one_batch_stay_together(
    form: Form, broker: kourou.LocalBroker, topic: str
) -> None:
    with form.producer("shop", name_server=broker.name_server) as producer:
        for number in range(10):
            producer.send(kourou.Message(topic, b"k%d" % number, tags="keyed"), key="order-42")
        sent = producer.send_batch([kourou.Message(topic, b"b%d" % number) for number in range(10)])
    assert len(sent.message_id.split(",")) == 10
    with form.consumer("billing", topic, name_server=broker.name_server) as consumer:
        received = receive_all(consumer, 20)
    keyed = [message for message in received if message.tags == "keyed"]
    batch = [message for message in received if message.tags is None]
    assert [message.body for message in keyed] == [b"k%d" % number for number in range(10)]
    assert [message.body for message in batch] == [b"b%d" % number for number in range(10)]
    assert len({message.queue_id for message in keyed}) == len({message.queue_id for message in batch}) == 1
    assert [message.message_id for message in batch] == sent.message_id.split(",")


def test_a_named_queue_is_where_the_message_goes(form: Form, broker: kourou.LocalBroker, topic: str) -> None:
    with form.producer("shop", name_server=broker.name_server) as producer:
        queues = producer.queues(topic)
        assert [queue.queue_id for queue in queues] == [0, 1, 2, 3]
        assert producer.send(kourou.Message(topic, b"x"), queue=queues[2]).queue == queues[2]


def test_one_way_messages_arrive(form: Form, broker: kourou.LocalBroker, topic: str) -> None:
    with form.producer("shop", name_server=broker.name_server) as producer:
        for _ in range(20):
            producer.send_one_way(kourou.Message(topic, b"by the way"))
    with form.consumer("billing", topic, name_server=broker.name_server) as consumer:
        assert len(receive_all(consumer, 20)) == 20


def test_only_wanted_tags_are_received(form: Form, broker: kourou.LocalBroker, topic: str) -> None:
    with form.producer("shop", name_server=broker.name_server) as producer:
        for tag in ["Aa", "BB", "new", None, "paid"] * 5:  # "Aa" and "BB" have one hash
            producer.send(kourou.Message(topic, b"x", tags=tag))
    with form.consumer("billing", topic, name_server=broker.name_server, tags="BB || paid") as consumer:
        received = receive_all(consumer, 10)
        assert consumer.receive(timeout=0.2) == []
        positions = consumer.positions()
    assert sorted(str(message.tags) for message in received) == ["BB"] * 5 + ["paid"] * 5
    assert sum(positions.values()) == 25  # what was not wanted is passed by


def test_a_group_goes_on_after_what_it_committed(form: Form, broker: kourou.LocalBroker, topic: str) -> None:
    with form.producer("shop", name_server=broker.name_server) as producer:
        for number in range(20):
            producer.send(kourou.Message(topic, b"%d" % number))
    with form.consumer("billing", topic, name_server=broker.name_server) as consumer:
        first = consumer.receive(7)
        consumer.commit()
        consumer.receive(3)  # handed out, never committed
    with form.consumer("billing", topic, name_server=broker.name_server, start="latest") as consumer:
        rest = receive_all(consumer, 20 - len(first))
    assert sorted(int(message.body) for message in [*first, *rest]) == list(range(20))


def test_latest_begins_with_what_is_sent_from_now_on(
    form: Form, broker: kourou.LocalBroker, topic: str
) -> None:
    with form.producer("shop", name_server=broker.name_server) as producer:
        for _ in range(8):
            producer.send(kourou.Message(topic, b"old"))
        with form.consumer("billing", topic, name_server=broker.name_server, start="latest") as consumer:
            producer.send(kourou.Message(topic, b"new"))
            assert [message.body for message in receive_all(consumer, 1)] == [b"new"]


def test_one_can_begin_at_a_moment_and_seek(form: Form, broker: kourou.LocalBroker, topic: str) -> None:
    with form.producer("shop", name_server=broker.name_server) as producer:
        old = producer.send(kourou.Message(topic, b"old"), key="k")
        time.sleep(0.02)
        moment = datetime.now(UTC)
        time.sleep(0.02)
        producer.send(kourou.Message(topic, b"new"), key="k")
    with form.consumer("billing", topic, name_server=broker.name_server, start=moment) as consumer:
        assert [message.body for message in receive_all(consumer, 1)] == [b"new"]
        consumer.seek("earliest")
        assert [message.body for message in receive_all(consumer, 2)] == [b"old", b"new"]
        consumer.seek(old.queue_offset + 1, old.queue)
        assert [message.body for message in receive_all(consumer, 1)] == [b"new"]
        consumer.seek("latest")
        assert consumer.receive(timeout=0.2) == []


def test_an_offset_beyond_the_queue_is_corrected(form: Form, broker: kourou.LocalBroker, topic: str) -> None:
    with form.producer("shop", name_server=broker.name_server) as producer:
        sent = producer.send(kourou.Message(topic, b"one"))
        with form.consumer("billing", topic, name_server=broker.name_server) as consumer:
            consumer.seek(1_000_000, sent.queue)
            assert consumer.receive(timeout=0.5) == []
            assert consumer.positions()[sent.queue] == 1
            producer.send(kourou.Message(topic, b"two"), queue=sent.queue)
            assert [message.body for message in receive_all(consumer, 1)] == [b"two"]


def test_a_waiting_receive_is_woken_by_a_message(form: Form, broker: kourou.LocalBroker, topic: str) -> None:
    with kourou.Producer("shop", name_server=broker.name_server) as producer:
        producer.send(kourou.Message(topic, b"first"))  # so that the second one finds everything connected
        with form.consumer("billing", topic, name_server=broker.name_server) as consumer:
            receive_all(consumer, 1)
            timer = threading.Timer(0.3, producer.send, [kourou.Message(topic, b"second")])
            timer.start()
            began = time.monotonic()
            (received,) = consumer.receive(timeout=10.0)
            waited = time.monotonic() - began
            timer.join()
    assert received.body == b"second"
    assert 0.2 < waited < 2.0


def test_a_consumer_can_be_iterated(form: Form, broker: kourou.LocalBroker, topic: str) -> None:
    with form.producer("shop", name_server=broker.name_server) as producer:
        for number in range(50):
            producer.send(kourou.Message(topic, b"%d" % number))
    with form.consumer("billing", topic, name_server=broker.name_server) as consumer:
        received = list(islice(iter(consumer), 30))
        consumer.commit()
    with form.consumer("billing", topic, name_server=broker.name_server) as consumer:
        received += islice(iter(consumer), 20)
    assert sorted(int(message.body) for message in received) == list(range(50))


def test_a_topic_is_created_by_sending_to_it(form: Form, broker: kourou.LocalBroker) -> None:
    topic = f"born-{next(_numbers)}"
    with form.producer("shop", name_server=broker.name_server) as producer:
        producer.send(kourou.Message(topic, b"x"))
    with form.consumer("billing", topic, name_server=broker.name_server) as consumer:
        assert len(consumer.positions()) == 4
        assert len(receive_all(consumer, 1)) == 1


def test_a_member_of_a_group_is_seen_until_it_leaves(
    form: Form, broker: kourou.LocalBroker, topic: str
) -> None:
    with form.consumer("readers", topic, name_server=broker.name_server) as consumer:
        consumer.receive(timeout=0.1)
        assert len(members(broker, "readers")) == 1
    assert members(broker, "readers") == []


def members(broker: kourou.LocalBroker, group: str) -> list[str]:
    answer = asked(broker, request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GroupNamed(group)))
    return ConsumerList.decode(answer.body).consumer_id_list if answer.code == ResponseCode.SUCCESS else []


def asked(broker: kourou.LocalBroker, command: Command) -> Command:
    def ask() -> Any:
        return (yield Call(broker.address, command, 15.0))

    driver = BlockingDriver()
    answer: Command = driver.run(ask())
    driver.close()
    return answer


def test_a_consumer_that_waits_tells_administrators_how_it_is_and_how_far(
    form: Form, broker: kourou.LocalBroker, topic: str
) -> None:
    with form.producer("shop", name_server=broker.name_server) as producer:
        sent = producer.send(kourou.Message(topic, b"one espresso"))
    with form.consumer("asked", topic, name_server=broker.name_server) as consumer:
        assert len(receive_all(consumer, 1)) == 1
        consumer.commit()
        waiting = threading.Thread(target=lambda: consumer.receive(timeout=3.0))
        waiting.start()
        (member,) = members(broker, "asked")
        question = GetRunningInfo("asked", member, jstack_enable=True)
        told = asked(broker, request(RequestCode.GET_CONSUMER_RUNNING_INFO, question))
        info = ConsumerRunningInfo.decode(told.body)
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert len(info.mq_table) == 4
        assert info.mq_table[sent.queue].commit_offset == 1
        assert [each.topic for each in info.subscription_set] == [topic]
        assert "MainThread" in str(info.jstack)
        waiting.join()


# ------------------------------------------------------------------------------------- many at the same time


def test_one_producer_serves_sixteen_threads(broker: kourou.LocalBroker, topic: str) -> None:
    results: list[kourou.SendResult] = []
    with kourou.Producer("shop", name_server=broker.name_server) as producer:

        def work(thread: int) -> None:
            messages = (kourou.Message(topic, b"%d/%d" % (thread, number)) for number in range(50))
            results.extend(map(producer.send, messages))

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({result.message_id for result in results}) == 800
    assert len({(result.queue, result.queue_offset) for result in results}) == 800
    with kourou.PullConsumer("billing", topic, name_server=broker.name_server) as consumer:
        received = receive_all(consumer, 800)
    assert len({message.body for message in received}) == 800


def test_one_async_producer_serves_many_tasks(broker: kourou.LocalBroker, topic: str) -> None:
    async def run() -> list[kourou.SendResult]:
        async with kourou.AsyncProducer("shop", name_server=broker.name_server) as producer:
            return await asyncio.gather(
                *(producer.send(kourou.Message(topic, b"%d" % number)) for number in range(500))
            )

    results = asyncio.run(run())
    assert len({result.message_id for result in results}) == 500
    assert len({(result.queue, result.queue_offset) for result in results}) == 500


def test_a_queue_is_pulled_from_any_offset(form: Form, broker: kourou.LocalBroker, topic: str) -> None:
    with form.producer("shop", name_server=broker.name_server) as producer:
        queue = producer.queues(topic)[1]
        for number in range(5):
            producer.send(kourou.Message(topic, b"%d" % number), queue=queue)
    with form.consumer("puller", topic, name_server=broker.name_server) as consumer:
        assert queue in consumer.queues()
        pulled = consumer.pull(queue, 2, max_messages=2)
        assert [message.body for message in pulled.messages] == [b"2", b"3"]
        assert (pulled.next_offset, pulled.min_offset, pulled.max_offset) == (4, 0, 5)
        assert consumer.pull(queue, 5).messages == []
        assert consumer.pull(queue, 99).moved
        began = time.monotonic()
        assert consumer.pull_block_if_not_found(queue, 5, timeout=0.3).messages == []
        assert time.monotonic() - began > 0.2
        assert (consumer.offset_of(queue, "earliest"), consumer.offset_of(queue, "latest")) == (0, 5)
        assert consumer.committed(queue) is None
        consumer.commit({queue: 3})
        assert consumer.committed(queue) == 3
        with pytest.raises(kourou.ConfigError, match="is not one of topic"):
            consumer.pull(MessageQueue(topic="other", broker_name="kourou", queue_id=0), 0)
        with pytest.raises(kourou.ConfigError, match="offset"):
            consumer.pull(queue, -1)


def test_a_pull_consumer_filters_by_properties(form: Form) -> None:
    with kourou.LocalBroker(property_filter=True) as filtering:
        address = filtering.name_server
        with form.producer("shop", name_server=address) as producer:
            for amount in (50, 150, 200):
                producer.send(kourou.Message("bills", b"%d" % amount, properties={"amount": str(amount)}))
        with form.consumer("rich", "bills", name_server=address, sql="amount > 100") as consumer:
            assert sorted(message.body for message in receive_all(consumer, 2)) == [b"150", b"200"]
        with pytest.raises(kourou.ConfigError, match="give one"):
            form.consumer("both", "bills", name_server=address, sql="a = 1", tags="a").__enter__()


def test_a_broker_s_address_is_no_name_server_and_is_told_so() -> None:
    with (
        kourou.LocalBroker(memory=True) as broker,
        kourou.Producer("shop", name_server=broker.address) as producer,
        pytest.raises(kourou.Refused, match=f"{broker.address} is no name server"),
    ):
        producer.send(kourou.Message("orders", b"x"))
