"""What brokers ask of a consumer, asked over the connection the consumer itself has made."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from kourou.client.answers import thread_stacks
from kourou.client.outcomes import RetryLater
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import (
    ConsumedDirectly,
    ConsumerRunningInfo,
    QueueOffsets,
    QueuePlaces,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import (
    ConsumeDirectly,
    GetConsumerStatus,
    GetRunningInfo,
    GroupNamed,
    ResetOffset,
)
from tests.unit.client.consuming_world import ConsumingWorld, queue_of


@pytest.fixture
def world() -> Iterator[ConsumingWorld]:
    world = ConsumingWorld()
    world.make_topic("orders", queues=2)
    yield world
    world.close()


def ask(
    world: ConsumingWorld, code: int, header: msgspec.Struct, body: bytes = b"", group: str = "billing"
) -> Command:
    """The broker's question to the first member of the group, and its answer."""
    members = world.broker.members.consumer_group(group)
    assert members is not None
    connection = next(iter(members.members))
    replies: list[Command | Exception] = []
    connection.call(request(code, header, body), 3000, replies.append)
    world.settle()
    (reply,) = replies
    assert isinstance(reply, Command)
    return reply


def test_it_says_how_far_it_is(world: ConsumingWorld) -> None:
    world.consumer().on("orders").start()
    world.send("orders", b"1", b"2")
    reply = ask(world, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatus("orders", "billing"))
    assert QueuePlaces.decode(reply.body).message_queue_table == {
        queue_of("orders", 0): 2,
        queue_of("orders", 1): 0,
    }


def test_it_says_how_it_is(world: ConsumingWorld) -> None:
    def fail(message: ReceivedMessage) -> None:
        raise RetryLater(1)

    member = world.consumer().on("orders", fail, tags="new", ordered=True).start()
    world.send("orders", b"1", properties={"TAGS": "new"})
    reply = ask(world, RequestCode.GET_CONSUMER_RUNNING_INFO, GetRunningInfo("billing"))
    info = ConsumerRunningInfo.decode(reply.body)
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.properties["PROP_CONSUMEORDERLY"] == "true"
    assert info.properties["PROP_CONSUMER_START_TIMESTAMP"] == str(member.engine.started_at_ms)
    assert info.mq_table[queue_of("orders")].cached_msg_count == 1
    assert info.mq_table[queue_of("orders")].locked
    figures = info.status_table["orders"]
    assert (figures.consume_failed_msgs, figures.consume_ok_tps) == (1, 0.0)
    assert figures.pull_tps > 0
    assert {each.topic: each.sub_string for each in info.subscription_set} == {
        "orders": "new",
        "%RETRY%billing": "*",
    }
    assert not info.jstack


def test_on_request_it_shows_the_stack_of_every_thread(world: ConsumingWorld) -> None:
    world.consumer().on("orders").start()
    reply = ask(world, RequestCode.GET_CONSUMER_RUNNING_INFO, GetRunningInfo("billing", jstack_enable=True))
    stacks = ConsumerRunningInfo.decode(reply.body).jstack
    assert "MainThread" in str(stacks)
    assert "test_on_request_it_shows_the_stack_of_every_thread" in str(stacks)
    assert "thread_stacks" in thread_stacks()


@pytest.mark.parametrize(
    ("failure", "result"),
    [(None, "CR_SUCCESS"), (RetryLater(), "CR_LATER"), (ValueError("no"), "CR_THROW_EXCEPTION")],
)
def test_it_takes_a_single_message_and_says_what_became_of_it(
    world: ConsumingWorld, failure: Exception | None, result: str
) -> None:
    def handler(message: ReceivedMessage) -> None:
        if failure is not None:
            raise failure

    world.send("orders", b"again")
    (record,) = world.peer.records("orders")
    member = world.consumer().on("orders", handler).start()
    member.received.clear()
    place = member.place()
    header = ConsumeDirectly("billing", broker_name="broker-a")
    reply = ask(world, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, record.data)
    consumed = ConsumedDirectly.decode(reply.body)
    assert consumed.consume_result == result
    assert ("ValueError: no" in str(consumed.remark)) == (result == "CR_THROW_EXCEPTION")
    assert member.bodies == [b"again"]
    assert member.place() == place


def test_a_message_nobody_handles_is_not_taken(world: ConsumingWorld) -> None:
    world.make_topic("payments", queues=1)
    world.send("payments", b"1")
    (record,) = world.peer.records("payments")
    world.consumer().on("orders").start()
    reply = ask(world, RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeDirectly("billing"), record.data)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "payments" in str(reply.remark)


def test_it_goes_on_where_an_administrator_says(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders").start()
    world.send("orders", b"1", b"2", b"3")
    body = QueueOffsets(offset_table={queue_of("orders", 0): 1, queue_of("orders", 7): 5}).encode_fastjson()
    reply = ask(world, RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffset("orders", "billing"), body)
    assert reply.code == 0
    assert member.bodies == [b"1", b"2", b"3", b"2", b"3"]


def test_it_goes_on_where_the_broker_says_when_the_group_was_reset_there(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders").start()
    world.send("orders", b"1", b"2")
    header = ResetOffset("orders", "billing", queue_id=0, offset=0)
    assert world.peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header).code == 0
    world.pass_time(1)
    assert member.bodies == [b"1", b"2", b"1", b"2"]


def test_questions_to_another_group_are_refused(world: ConsumingWorld) -> None:
    world.consumer().on("orders").start()
    reply = ask(world, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, GroupNamed("shipping"))
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "shipping" in str(reply.remark)
