"""How things stand, in figures."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.native import native
from kourou.protocol import fastjson
from kourou.protocol.bodies import KVTable, TopicConfig, TopicTable
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers import GetConsumeStats, TopicNamed, UpdateOffset
from tests.unit.broker.broker_world import BrokerWorld, Peer


@pytest.fixture
def started(world: BrokerWorld) -> BrokerWorld:
    world.start()
    world.make_topic("orders", 2)
    return world


def offset_table(body: bytes) -> dict[int, dict[str, Any]]:
    return {
        queue["queueId"]: figures for queue, figures in fastjson.pairs(fastjson.loads(body)["offsetTable"])
    }


def test_all_topics_are_told(started: BrokerWorld) -> None:
    table = TopicTable.decode(started.connect().ask(RequestCode.GET_ALL_TOPIC_CONFIG).body)
    assert table.topic_config_table["orders"].read_queue_nums == 2
    assert table.data_version == started.broker.topics.data_version
    assert "TBW102" in table.topic_config_table


def test_one_topic_is_told(started: BrokerWorld) -> None:
    peer = started.connect()
    reply = peer.ask(RequestCode.GET_TOPIC_CONFIG, TopicNamed("orders"))
    assert TopicConfig.decode(reply.body).write_queue_nums == 2
    assert peer.ask(RequestCode.GET_TOPIC_CONFIG, TopicNamed("no")).code == 17


def test_topic_stats_have_every_queue_even_empty_ones(started: BrokerWorld) -> None:
    peer = started.connect()
    for _ in range(3):
        peer.send("orders")
    stored_ms = started.clock.now_ms()
    started.pass_time(60)
    reply = peer.ask(RequestCode.GET_TOPIC_STATS_INFO, TopicNamed("orders"))
    assert reply.body.startswith(b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:')
    assert offset_table(reply.body) == {
        0: {"lastUpdateTimestamp": stored_ms, "maxOffset": 3, "minOffset": 0},
        1: {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0},
    }
    assert peer.ask(RequestCode.GET_TOPIC_STATS_INFO, TopicNamed("no")).code == 17


def consume_stats(peer: Peer, **more: Any) -> dict[int, dict[str, Any]]:
    reply = peer.ask(RequestCode.GET_CONSUME_STATS, GetConsumeStats("readers", **more))
    assert reply.code == 0
    return offset_table(reply.body)


def test_consume_stats_say_how_far_a_group_is(started: BrokerWorld) -> None:
    peer = started.connect()
    for _ in range(4):
        peer.send("orders")
    stored_ms = started.clock.now_ms()
    assert consume_stats(peer) == {}
    peer.pull("orders", 0, 0, group="readers", message_count_max=3)
    peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateOffset("readers", "orders", 0, 2))
    expected = {
        0: {"brokerOffset": 4, "consumerOffset": 2, "lastTimestamp": stored_ms, "pullOffset": 3},
        1: {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0, "pullOffset": 0},
    }
    assert consume_stats(peer) == expected
    assert consume_stats(peer, topic="orders") == expected
    assert consume_stats(peer, topic_list="orders;no") == expected
    peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateOffset("readers", "orders", 0, 4))
    assert consume_stats(peer)[0]["pullOffset"] == 4


def test_the_broker_says_how_it_is(started: BrokerWorld) -> None:
    peer = started.connect()
    for _ in range(20):
        peer.send("orders")
    peer.pull("orders")
    started.pass_time(10)
    table = KVTable.decode(peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
    assert [float(each) for each in table["putTps"].split()] == pytest.approx([2.0, 2.0, 2.0], rel=0.1)
    assert table["getTransferedTps"] == table["getTransferredTps"]
    assert table["msgPutTotalTodayNow"] == table["msgGetTotalTodayNow"] == "20"
    assert table["msgPutTotalTodayMorning"] == table["msgPutTotalYesterdayMorning"] == "0"
    assert int(table["commitLogMaxOffset"]) == started.broker.store.wrote > 0
    assert table["brokerActive"] == "true"
    assert table["brokerVersionDesc"] == "V4_9_8"
    assert table["kourouNative"] == ("false" if native is None else "true")
    assert 0 <= float(table["commitLogDiskRatio"]) <= 1
    assert table["sendThreadPoolQueueSize"] == table["pullThreadPoolQueueHeadWaitTimeMills"] == "0"
    assert int(table["earliestMessageTimeStamp"]) <= started.clock.now_ms()


def test_days_are_counted_apart(started: BrokerWorld) -> None:
    peer = started.connect()
    for day in range(1, 3):
        peer.send("orders")
        started.clock.jump_ms(24 * 3600 * 1000)
        started.pass_time(11)
        table = KVTable.decode(peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
        assert table["msgPutTotalTodayMorning"] == str(day)
        assert table["msgPutTotalYesterdayMorning"] == str(day - 1)
