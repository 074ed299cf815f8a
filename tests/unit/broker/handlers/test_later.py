"""How far messages that come back later are, as admin tools and other brokers ask."""

from __future__ import annotations

import pytest

from kourou.broker.handlers import later
from kourou.protocol import fastjson
from kourou.protocol.bodies import DelayOffsets, KVTable, TimerCheckpoint, TimerMetrics
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import request
from kourou.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from tests.unit.broker.broker_world import BrokerWorld


@pytest.fixture
def started(world: BrokerWorld) -> BrokerWorld:
    world.start()
    world.make_topic("orders", 2)
    world.make_topic("bills", 2)
    return world


def runtime(world: BrokerWorld) -> dict[str, str]:
    return dict(KVTable.decode(world.connect().ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table)


def test_delay_offsets_move_with_what_is_delivered(started: BrokerWorld) -> None:
    peer = started.connect()
    for _ in range(3):
        peer.send("orders", properties={"DELAY": "2"})
    peer.send("orders", properties={"DELAY": "3"})
    started.pass_time(9)
    assert DelayOffsets.decode(peer.ask(RequestCode.GET_ALL_DELAY_OFFSET).body).offset_table == {}
    started.pass_time(12)  # now the copies are on the disk
    body = peer.ask(RequestCode.GET_ALL_DELAY_OFFSET).body
    assert DelayOffsets.decode(body).offset_table == {2: 3, 3: 1}
    assert b'"offsetTable":{2:3,3:1}' in body  # numbers without quotes, as Java's readers want them
    assert fastjson.loads(body)["dataVersion"].keys() == {"counter", "stateVersion", "timestamp"}


def test_the_runtime_says_how_far_each_level_is(started: BrokerWorld) -> None:
    peer = started.connect()
    for _ in range(3):
        peer.send("orders", properties={"DELAY": "2"})
    table = runtime(started)
    assert table["scheduleMessageOffset_2"] == "0,3"
    assert table["scheduleMessageOffset_18"] == "0,0"
    started.pass_time(7)
    assert runtime(started)["scheduleMessageOffset_2"] == "3,3"
    assert started.broker.store.max_offset(SCHEDULE_TOPIC, 1) == 3


def test_the_runtime_says_how_many_timers_wait_and_how_fast_they_come_and_go(started: BrokerWorld) -> None:
    assert runtime(started)["timerCongestNum"] == "0"
    assert runtime(started)["timerReadBehind"] == "0"
    peer = started.connect()
    for seconds in (3, 3, 3, 3, 3, 600):
        peer.send("orders", properties={"TIMER_DELAY_SEC": str(seconds)})
    table = runtime(started)
    assert (table["timerCongestNum"], table["timerOffsetBehind"]) == ("6", "0")
    assert float(table["timerEnqueueTps"]) == 0.6
    started.pass_time(5)
    table = runtime(started)
    assert table["timerCongestNum"] == "1"
    assert float(table["timerDequeueTps"]) == 0.5
    started.pass_time(20)
    assert float(runtime(started)["timerDequeueTps"]) == 0.0


def test_the_timer_checkpoint_says_how_far_timers_are(started: BrokerWorld) -> None:
    peer = started.connect()
    for _ in range(4):
        peer.send("orders", properties={"TIMER_DELAY_SEC": "30"})
    body = peer.ask(RequestCode.GET_TIMER_CHECK_POINT).body
    assert len(body) == 56
    checkpoint = TimerCheckpoint.decode(body)
    assert checkpoint.timer_queue_offset == started.broker.store.max_offset(TIMER_TOPIC, 0) == 4
    assert checkpoint.last_read_ms == started.clock.now_ms()
    assert checkpoint.timer_log_flushed == 0


def test_timer_metrics_count_who_waits_by_topic(
    started: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(later, "RECORDS_A_TURN", 2)
    peer = started.connect()
    for topic, seconds in (("orders", 5), ("orders", 500), ("orders", 50_000), ("bills", 700), ("bills", 2)):
        peer.send(topic, properties={"TIMER_DELAY_SEC": str(seconds)})
    started.pass_time(6)
    waiting = peer.begin(request(RequestCode.GET_TIMER_METRICS))
    started.pass_time(1)
    metrics = TimerMetrics.decode(waiting.reply.body)
    assert {topic: each.count for topic, each in metrics.timing_count.items()} == {"orders": 2, "bills": 1}
    started.pass_time(800)
    waiting = started.connect().begin(request(RequestCode.GET_TIMER_METRICS))
    started.pass_time(1)
    metrics = TimerMetrics.decode(waiting.reply.body)
    assert {topic: each.count for topic, each in metrics.timing_count.items()} == {"orders": 1}


def test_a_broker_without_timers_says_so(world: BrokerWorld) -> None:
    world.start(timers_enabled=False)
    peer = world.connect()
    for code in (RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS):
        reply = peer.ask(code)
        assert reply.code == 1
        assert "timerWheelEnable=false" in (reply.remark or "")
