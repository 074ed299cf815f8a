"""Topics made to order."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.errors import Refused
from kourou.protocol.admin_bodies import TopicConfigList
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.command import request as make_request
from kourou.protocol.headers import CreateTopic
from kourou.remoting.answer import Answer
from tests.unit.broker.broker_world import BrokerWorld, Peer

CREATE = RequestCode.UPDATE_AND_CREATE_TOPIC


def create(peer: Peer, **settings: Any) -> Command:
    usual = {"topic": "orders", "read_queue_nums": 8, "write_queue_nums": 8, "perm": 6}
    return peer.ask(CREATE, CreateTopic(**{**usual, **settings}))


def test_a_topic_is_made_as_ordered_and_kept(peer: Peer, world: BrokerWorld) -> None:
    reply = create(peer, read_queue_nums=8, write_queue_nums=4, perm=6, order=True, topic_sys_flag=1)
    assert reply.code == 0
    world.crash()
    topic = world.start().topics.named("orders")
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (8, 4, 6)
    assert (topic.order, topic.topic_sys_flag, topic.topic_filter_type) == (True, 1, "SINGLE_TAG")


def test_a_topic_that_is_there_is_changed(peer: Peer, world: BrokerWorld) -> None:
    create(peer)
    assert peer.send(queue_id=7).code == 0
    create(peer, read_queue_nums=2, write_queue_nums=2)
    assert peer.send(queue_id=7).code == 29
    create(peer, perm=4)
    assert peer.send(queue_id=0).code == 16


def test_it_is_answered_when_the_name_servers_know(world: BrokerWorld) -> None:
    one, two = world.name_server(9876), world.name_server(9877)
    world.start(one.address, two.address)
    reply = create(world.connect())
    assert reply.code == 0
    for name_server in (one, two):
        route = name_server.routes.route("orders")
        assert route is not None
        assert [queues.write_queue_nums for queues in route.queue_datas] == [8]


def test_it_waits_for_a_slow_name_server_but_not_for_ever(world: BrokerWorld) -> None:
    def keep_silent(request: Command, answer: Answer) -> None:
        pass

    world.listener({RequestCode.REGISTER_BROKER: keep_silent})
    world.start("127.0.0.1:9876")
    header = CreateTopic(topic="orders", read_queue_nums=8, write_queue_nums=8, perm=6)
    waiting = world.connect().begin(make_request(CREATE, header))
    world.pass_time(1.5)
    assert not waiting.is_answered
    world.pass_time(1)
    assert waiting.reply.code == ResponseCode.SYSTEM_ERROR
    assert "topic 'orders' is made, but not registered: no name server answered" in (
        waiting.reply.remark or ""
    )
    assert world.broker.topics.get("orders") is not None


def test_one_name_server_that_answers_is_enough(world: BrokerWorld) -> None:
    one = world.name_server(9876)
    world.start(one.address, "127.0.0.1:9877")
    waiting = world.connect().begin(
        make_request(CREATE, CreateTopic(topic="orders", read_queue_nums=8, write_queue_nums=8, perm=6))
    )
    world.pass_time(3)
    assert waiting.reply.code == 0


def test_attributes_are_set_and_taken_away(peer: Peer, world: BrokerWorld) -> None:
    create(peer, attributes="+message.type=FIFO,+reserve.time=7")
    assert world.broker.topics.all["orders"].attributes == {"message.type": "FIFO", "reserve.time": "7"}
    create(peer, attributes="-reserve.time")
    assert world.broker.topics.all["orders"].attributes == {"message.type": "FIFO"}
    create(peer)
    assert world.broker.topics.all["orders"].attributes == {"message.type": "FIFO"}


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ("+message.type=URGENT", "message.type is 'URGENT', but must be"),
        ("+queue.type=BatchCQ", "queue.type is 'BatchCQ', but must be: SimpleCQ"),
        ("+colour=red", "no attribute 'colour'"),
        ("message.type=FIFO", "is not +name=value or -name"),
        ("+message.type", "is not +name=value or -name"),
        ("-message.type=FIFO", "is not +name=value or -name"),
        ("+reserve.time=soon", "must be a number"),
    ],
)
def test_an_attribute_that_cannot_be_is_refused(peer: Peer, attributes: str, words: str) -> None:
    reply = create(peer, attributes=attributes)
    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert words in (reply.remark or "")


def test_a_filter_type_that_no_broker_knows_is_refused_and_both_others_are_kept(
    peer: Peer, world: BrokerWorld
) -> None:
    reply = create(peer, topic_filter_type="ANY TAG")
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "topicFilterType is 'ANY TAG', but must be: SINGLE_TAG, MULTI_TAG" in (reply.remark or "")
    many = TopicConfigList(topic_config_list=[TopicConfig(topic_name="orders", topic_filter_type="TAGS")])
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=many.encode()).code == 1
    assert world.broker.topics.get("orders") is None
    assert create(peer, topic_filter_type="MULTI_TAG").code == 0
    assert world.broker.topics.all["orders"].topic_filter_type == "MULTI_TAG"


def test_a_name_servers_refusal_is_not_kept_from_whoever_made_the_topic(world: BrokerWorld) -> None:
    def refuse(request: Command, answer: Answer) -> None:
        raise Refused(ResponseCode.SYSTEM_ERROR, "one queue too many")

    world.listener({RequestCode.REGISTER_BROKER: refuse})
    world.start("127.0.0.1:9876")
    reply = create(world.connect())
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "127.0.0.1:9876" in (reply.remark or "")
    assert "one queue too many" in (reply.remark or "")


def test_a_name_server_that_answers_nonsense_does_not_keep_it_waiting(world: BrokerWorld) -> None:
    def babble(request: Command, answer: Answer) -> None:
        answer(request.reply(body=b"{not json"))

    world.listener({RequestCode.REGISTER_BROKER: babble})
    world.start("127.0.0.1:9876")
    assert create(world.connect()).code == 0


def test_without_name_servers_it_is_answered_at_once(peer: Peer) -> None:
    assert create(peer).code == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"topic": "a/b"}, "'a/b' has illegal characters"),
        ({"topic": "TBW102"}, "'TBW102' belongs to the system"),
        ({"topic": "rmq_sys_mine"}, "'rmq_sys_mine' belongs to the system"),
        ({"topic": "DefaultCluster"}, "'DefaultCluster' belongs to the system"),
        ({"topic": "broker-a"}, "'broker-a' belongs to the system"),
        ({"read_queue_nums": 0}, "readQueueNums is 0"),
        ({"write_queue_nums": 65_536}, "1 to 65535 queues"),  # more, and name servers would refuse it
        ({"write_queue_nums": 1_000_000}, "writeQueueNums is 1000000"),
        ({"perm": 8}, "perm is 8"),
    ],
)
def test_an_impossible_topic_is_refused_with_the_value(
    peer: Peer, world: BrokerWorld, settings: dict[str, Any], words: str
) -> None:
    before = dict(world.broker.topics.all)
    reply = create(peer, **settings)
    assert reply.code == 29
    assert words in (reply.remark or "")
    assert world.broker.topics.all == before
