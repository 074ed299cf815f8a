"""Letting go of what nobody needs."""

from __future__ import annotations

import pytest

from kourou.protocol.codes import RequestCode
from kourou.protocol.headers import TopicNamed
from tests.unit.broker.broker_world import STORE, BrokerWorld


def test_a_deleted_topic_is_gone_with_its_messages_and_offsets(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    peer.send("orders", b"one")
    peer.bodies()
    world.broker.offsets.commit("readers", "orders", 0, 1)
    assert peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicNamed("orders")).code == 0
    assert peer.pull("orders").code == 17
    assert world.broker.offsets.get("readers", "orders", 0) is None
    assert not world.files.exists(f"{STORE}/consumequeue/orders")
    peer.create_topic("orders")
    assert peer.send("orders", b"new").fields["queueOffset"] == "0"
    assert peer.bodies() == [b"new"]
    world.stop()
    world.start()
    assert world.connect().bodies() == [b"new"]


@pytest.mark.parametrize("name", ["TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", " "])
def test_topics_of_the_system_are_not_deleted(world: BrokerWorld, name: str) -> None:
    world.start()
    reply = world.connect().ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicNamed(name))
    assert reply.code == 29
    assert world.broker.topics.get("TBW102") is not None


def test_queues_of_topics_that_are_no_more_are_removed(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    peer.send("orders", b"one")
    peer.send("others", b"two")
    world.broker.topics.delete("others")
    assert peer.ask(RequestCode.CLEAN_UNUSED_TOPIC).code == 0
    assert not world.files.exists(f"{STORE}/consumequeue/others")
    assert peer.bodies() == [b"one"]


def test_log_files_past_their_time_are_removed_at_any_hour_when_asked(world: BrokerWorld) -> None:
    world.start(segment_bytes=64 * 1024, file_reserved_hours=1, delete_hours=frozenset())
    peer = world.connect()
    for _ in range(30):
        peer.send("orders", b"x" * 8000)
    world.pass_time(3700, step=60)
    assert world.broker.store.start == 0
    assert world.connect().ask(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
    world.pass_time(1)
    assert world.broker.store.start > 0
    reply = world.connect().pull("orders")
    assert reply.code == 21
    assert int(reply.fields["nextBeginOffset"]) == world.broker.store.min_offset("orders", 0) > 0


def test_queues_without_messages_are_forgotten_when_asked(world: BrokerWorld) -> None:
    world.start(segment_bytes=64 * 1024, file_reserved_hours=1, delete_hours=frozenset(range(24)))
    peer = world.connect()
    peer.send("old", b"x")
    for _ in range(30):
        peer.send("orders", b"x" * 8000)
    world.pass_time(3700, step=60)
    assert world.connect().ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE).code == 0
    assert not world.files.exists(f"{STORE}/consumequeue/old/0")
    assert world.files.exists(f"{STORE}/consumequeue/orders/0")
