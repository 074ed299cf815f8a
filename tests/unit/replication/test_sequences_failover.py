"""Exactly once through a fail-over: the slave that becomes master has the log, and needs nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.broker.broker import Broker
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import ResponseCode
from kourou.protocol.extensions import StageCount
from tests.unit.broker.staging_peer import StagingPeer, all_bodies, messages, state_of
from tests.unit.replication.replica_world import ReplicaWorld


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(first, first + count)]


def staging(world: ReplicaWorld, broker: Broker, **more: Any) -> StagingPeer:
    return StagingPeer(world, peer=world.peer(broker), broker_name="pair", **more)


@pytest.fixture
def pair(replicas: ReplicaWorld) -> tuple[Broker, Broker]:
    master, slave = replicas.pair(broker_role="SYNC_MASTER")
    topic = TopicConfig(topic_name="orders", read_queue_nums=2, write_queue_nums=2)
    master.topics.save({"orders": topic})
    replicas.until(lambda: slave.topics.get("orders") is not None)
    return master, slave


def test_what_was_staged_at_the_old_master_is_committed_at_the_new_one(
    replicas: ReplicaWorld, pair: tuple[Broker, Broker]
) -> None:
    master, slave = pair
    old = staging(replicas, master)
    assert state_of(old.stage(messages(numbered(0, 50)))) == "staged"
    replicas.kill("master")
    replicas.run(slave.become_master(role="ASYNC_MASTER"))
    new = staging(replicas, slave)
    assert state_of(new.stage(messages(numbered(0, 50)), sequence=0)) == "repeated"
    assert state_of(new.stage(messages(numbered(50, 50)), sequence=1)) == "staged"
    assert state_of(new.commit(StageCount("0.0", 2, 100))) == "committed"
    assert all_bodies(new.peer) == numbered(0, 100)


@pytest.mark.parametrize("moments", range(5))
def test_what_was_decided_at_the_old_master_is_brought_to_its_end_by_the_new_one(
    replicas: ReplicaWorld, pair: tuple[Broker, Broker], moments: int
) -> None:
    master, slave = pair
    old = staging(replicas, master)
    for first in range(0, 1_200, 150):
        old.stage(messages(numbered(first, 150)))
    old.begin_commit()
    replicas.pass_time(moments * 0.01, step=0.01)
    replicas.kill("master")
    replicas.run(slave.become_master(role="ASYNC_MASTER"))
    replicas.pass_time(1, step=0.01)
    new = staging(replicas, slave)
    assert state_of(new.commit(old.count)) == "committed"
    assert all_bodies(new.peer) == numbered(0, 1_200)


def test_a_commit_that_was_answered_is_not_repeated_at_the_new_master(
    replicas: ReplicaWorld, pair: tuple[Broker, Broker]
) -> None:
    master, slave = pair
    for number in range(3):
        each = staging(replicas, master, number=number)
        each.stage(messages(numbered(number * 10, 10)))
        assert state_of(each.commit()) == "committed"
    replicas.kill("master")
    replicas.run(slave.become_master(role="ASYNC_MASTER"))
    for number in range(3):
        again = staging(replicas, slave, number=number, stage="0.9")
        assert state_of(again.stage(messages(numbered(number * 10, 10)))) == "committed"
        assert state_of(again.commit()) == "committed"
    assert all_bodies(again.peer) == numbered(0, 30)


def test_a_slave_takes_no_chunks(replicas: ReplicaWorld, pair: tuple[Broker, Broker]) -> None:
    _, slave = pair
    reply = staging(replicas, slave).stage(messages([b"x"]))
    assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
