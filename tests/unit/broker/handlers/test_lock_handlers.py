"""Locking queues over the wire."""

from __future__ import annotations

import pytest

from kourou.protocol.bodies import ConsumerData, HeartbeatData, LockedQueues, LockQueues, MessageQueue
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from tests.unit.broker.broker_world import BrokerWorld, Peer


@pytest.fixture
def started(world: BrokerWorld) -> BrokerWorld:
    world.start()
    world.make_topic("orders", 4)
    return world


def member(world: BrokerWorld, client_id: str) -> Peer:
    peer = world.connect()
    body = HeartbeatData(client_id=client_id, consumer_data_set=[ConsumerData(group_name="readers")])
    assert peer.ask(RequestCode.HEART_BEAT, body=body.encode()).code == 0
    return peer


def wanted(client_id: str, *queue_ids: int, broker_name: str = "broker-a", topic: str = "orders") -> bytes:
    queues = [MessageQueue(topic=topic, broker_name=broker_name, queue_id=each) for each in queue_ids]
    return LockQueues(client_id=client_id, consumer_group="readers", mq_set=queues).encode()


def lock(peer: Peer, client_id: str, *queue_ids: int) -> list[int]:
    reply = peer.ask(RequestCode.LOCK_BATCH_MQ, body=wanted(client_id, *queue_ids))
    assert reply.code == 0
    return [queue.queue_id for queue in LockedQueues.decode(reply.body).locked]


def unlock(peer: Peer, client_id: str, *queue_ids: int) -> Command:
    return peer.ask(RequestCode.UNLOCK_BATCH_MQ, body=wanted(client_id, *queue_ids))


def test_members_lock_queues_and_give_them_back(started: BrokerWorld) -> None:
    one, two = member(started, "one"), member(started, "two")
    assert lock(one, "one", 0, 1) == [0, 1]
    assert lock(two, "two", 0, 2) == [2]
    assert unlock(one, "one", 0).code == 0
    assert lock(two, "two", 0) == [0]


def test_a_locked_queue_stays_locked_for_a_minute_after_its_owner_is_gone(started: BrokerWorld) -> None:
    one, two = member(started, "one"), member(started, "two")
    lock(one, "one", 0)
    one.close()
    started.pass_time(55)
    assert lock(two, "two", 0) == []
    started.pass_time(6)
    assert lock(two, "two", 0) == [0]


def test_the_broker_is_named_as_the_client_named_it(started: BrokerWorld) -> None:
    one = member(started, "one")
    reply = one.ask(RequestCode.LOCK_BATCH_MQ, body=wanted("one", 3, broker_name="elsewhere"))
    [queue] = LockedQueues.decode(reply.body).locked
    assert queue == MessageQueue(topic="orders", broker_name="elsewhere", queue_id=3)


def test_queues_that_do_not_exist_cannot_be_locked(started: BrokerWorld) -> None:
    one = member(started, "one")
    assert lock(one, "one", 3, 4, -1, 10**6) == [3]
    reply = one.ask(RequestCode.LOCK_BATCH_MQ, body=wanted("one", 0, topic="nothing"))
    assert LockedQueues.decode(reply.body).locked == []


def test_who_is_no_member_locks_nothing(started: BrokerWorld) -> None:
    stranger = started.connect()
    reply = stranger.ask(RequestCode.LOCK_BATCH_MQ, body=wanted("one", 0))
    assert reply.code == 206
    assert "no member of group readers" in (reply.remark or "")
    assert lock(member(started, "two"), "two", 0) == [0]


def test_nobody_locks_or_unlocks_in_anothers_name(started: BrokerWorld) -> None:
    one, two = member(started, "one"), member(started, "two")
    lock(one, "one", 0)
    assert unlock(two, "one", 0).code == 206
    assert lock(two, "two", 0) == []
    assert two.ask(RequestCode.LOCK_BATCH_MQ, body=wanted("one", 1)).code == 206


def test_one_way_unlocking_works(started: BrokerWorld) -> None:
    one, two = member(started, "one"), member(started, "two")
    lock(one, "one", 0)
    one.tell(RequestCode.UNLOCK_BATCH_MQ, body=wanted("one", 0))
    assert lock(two, "two", 0) == [0]
