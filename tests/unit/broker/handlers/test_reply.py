"""Replies on their way back to who asked."""

from __future__ import annotations

import pytest

from kourou.protocol.bodies import HeartbeatData, ProducerData
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.properties import parse
from tests.unit.broker.broker_world import BrokerWorld, Peer, Waiting, send

TOPIC = "DefaultCluster_REPLY_TOPIC"


@pytest.fixture
def started(world: BrokerWorld) -> BrokerWorld:
    world.start()
    return world


def asker(world: BrokerWorld, client_id: str = "asker@1") -> Peer:
    peer = world.connect()
    body = HeartbeatData(client_id=client_id, producer_data_set=[ProducerData(group_name="askers")])
    assert peer.ask(RequestCode.HEART_BEAT, body=body.encode()).code == 0
    return peer


def reply_to(
    peer: Peer,
    client_id: str | None = "asker@1",
    *,
    code: int = RequestCode.SEND_REPLY_MESSAGE_V2,
    topic: str = TOPIC,
) -> Waiting:
    properties = {"MSG_TYPE": "reply", "CORRELATION_ID": "c-1", "TTL": "3000"}
    if client_id is not None:
        properties["REPLY_TO_CLIENT"] = client_id
    return peer.begin(send(topic, b"the answer", properties=properties, code=code, producer_group="repliers"))


def accept(world: BrokerWorld, peer: Peer, code: int = 0) -> Command:
    """The pushed reply, which the asker answers with `code`."""
    [push] = peer.told
    peer.told = []
    assert push.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    assert not push.is_one_way
    peer.transport.write(push.reply(code=code).encode())
    world.settle()
    return push


def test_a_reply_reaches_who_asked(started: BrokerWorld) -> None:
    one, other = asker(started), asker(started, "asker@2")
    waiting = reply_to(started.connect())
    assert not waiting.is_answered
    push = accept(started, one)
    assert push.body == b"the answer"
    assert push.fields["topic"] == TOPIC
    assert push.fields["producerGroup"] == "repliers"
    assert push.fields["storeHost"] == "127.0.0.1:10911"
    assert push.fields["storeTimestamp"] == str(started.clock.now_ms())
    properties = parse(push.fields["properties"].encode())
    assert properties["CORRELATION_ID"] == "c-1"
    assert (properties["MSG_REGION"], properties["TRACE_ON"]) == ("DefaultRegion", "true")
    assert int(properties["PUSH_REPLY_TIME"]) == started.clock.now_ms()
    assert waiting.reply.code == 0
    assert other.told == []


def test_the_reply_is_stored_too(started: BrokerWorld) -> None:
    one, replier = asker(started), started.connect()
    waiting = reply_to(replier)
    accept(started, one)
    [record] = replier.records(TOPIC)
    assert record.body == b"the answer"
    assert (record.find(b"MSG_REGION"), record.find(b"TRACE_ON")) == (b"DefaultRegion", b"true")
    assert waiting.reply.fields["msgId"] == record.offset_id()
    assert waiting.reply.fields["queueOffset"] == "0"


def test_storing_replies_can_be_switched_off(world: BrokerWorld) -> None:
    world.start(store_replies=False)
    one, replier = asker(world), world.connect()
    waiting = reply_to(replier)
    accept(world, one)
    assert waiting.reply.code == 0
    assert waiting.reply.fields["msgId"] == "0"
    assert replier.records(TOPIC) == []


def test_a_client_that_does_not_take_it_is_a_failure(started: BrokerWorld) -> None:
    one = asker(started)
    waiting = reply_to(started.connect())
    accept(started, one, code=1)
    assert waiting.reply.code == 1
    assert "asker@1" in (waiting.reply.remark or "")


def test_a_client_that_says_nothing_is_a_failure_after_ten_seconds(started: BrokerWorld) -> None:
    asker(started)
    waiting = reply_to(started.connect())
    started.pass_time(9)
    assert not waiting.is_answered
    started.pass_time(2)
    assert waiting.reply.code == 1


def test_a_client_that_leaves_before_it_answers_is_a_failure(started: BrokerWorld) -> None:
    one = asker(started)
    waiting = reply_to(started.connect())
    one.close()
    assert waiting.reply.code == 1


@pytest.mark.parametrize(
    ("client_id", "why"), [("nobody@1", "channel of <nobody@1> not found"), (None, "REPLY_TO_CLIENT")]
)
def test_a_reply_for_nobody_is_refused(started: BrokerWorld, client_id: str | None, why: str) -> None:
    replier = started.connect()
    reply = reply_to(replier, client_id).reply
    assert reply.code == 1
    assert why in (reply.remark or "")
    [record] = replier.records(TOPIC)  # kept all the same, and told where
    assert reply.fields["msgId"] == record.offset_id()


def test_a_client_that_came_back_on_another_connection_is_found_there(started: BrokerWorld) -> None:
    old, new = asker(started), asker(started)
    old.close()
    waiting = reply_to(started.connect())
    accept(started, new)
    assert waiting.reply.code == 0


def test_a_closed_connection_does_not_take_a_name_with_it_that_is_anothers_now(started: BrokerWorld) -> None:
    old = asker(started)
    asker(started).close()
    assert reply_to(started.connect()).reply.code == 1  # heard last on the one that is gone
    body = HeartbeatData(client_id="asker@1", producer_data_set=[ProducerData(group_name="askers")])
    old.ask(RequestCode.HEART_BEAT, body=body.encode())
    waiting = reply_to(started.connect())
    accept(started, old)
    assert waiting.reply.code == 0


def test_topics_of_the_broker_alone_take_no_replies(started: BrokerWorld) -> None:
    asker(started)
    assert reply_to(started.connect(), topic="SELF_TEST_TOPIC").reply.code == 16
