"""A transaction whose master goes while its end is on the way to the next one."""

from __future__ import annotations

import pytest

from kourou.protocol.bodies import TopicConfig
from kourou.protocol.names import HALF_TOPIC, TRANSACTION_GROUP
from tests.unit.broker.test_transactions import COMMIT, end, prepare
from tests.unit.replication.replica_world import ReplicaWorld


@pytest.mark.parametrize("records", [2, 3])
def test_what_was_committed_at_the_old_master_is_not_open_at_the_new_one(
    replicas: ReplicaWorld, records: int
) -> None:
    """The half message, what was committed, and perhaps the mark that says so, have come over."""
    master = replicas.add("master", broker_role="ASYNC_MASTER")
    topic = TopicConfig(topic_name="orders", read_queue_nums=2, write_queue_nums=2)
    master.topics.save({"orders": topic})
    peer = replicas.peer(master)
    half = prepare(replicas, peer)
    assert end(peer, half, COMMIT).code == 0
    places = master.store.places_of(0, master.store.wrote)
    assert len(places) == 3
    last, size = places[records - 1]
    slave = replicas.add("slave", broker_role="SLAVE", broker_id=1)
    slave.store.follow()
    slave.store.take_raw(master.store.raw(0, last + size))
    replicas.kill("master")
    replicas.run(slave.become_master())
    assert slave.replicating.has_duties
    assert slave.transactions.open_count == 0
    assert replicas.peer(slave).bodies("orders", 1) == [b"paid"]


def test_what_an_old_master_ended_alone_does_not_count_as_ended_at_the_new_one(
    replicas: ReplicaWorld,
) -> None:
    """It hands over what consumers committed; how far its transactions are is nothing of the kind."""
    old, new = replicas.pair(broker_role="ASYNC_MASTER")
    topic = TopicConfig(topic_name="orders", read_queue_nums=2, write_queue_nums=2)
    old.topics.save({"orders": topic})
    peer = replicas.peer(old)
    half = prepare(replicas, peer)
    replicas.until_same(old, new)
    replicas.until(lambda: new.topics.get("orders") is not None)
    replicas.part("master", "slave")
    assert end(peer, half, COMMIT).code == 0
    old.store.sync()
    replicas.run(new.become_master())
    replicas.join("master", "slave")
    replicas.run(old.become_slave(1, new.address, new.ha_address))
    assert old.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0) == 1
    replicas.until(lambda: not old.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0))
    replicas.pass_time(5)
    assert not new.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0)
    assert end(replicas.peer(new), half, COMMIT).code == 0
    assert replicas.peer(new).bodies("orders", 1) == [b"paid"]
