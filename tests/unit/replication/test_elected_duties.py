"""A new master of an elected set knows all it inherited before it says anything that depends on it; and what
an old one did alone, which the others lack, does not count."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kourou.broker.broker import Broker
from kourou.broker.handlers import when_sure
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import request
from kourou.protocol.extensions import StageCount
from kourou.protocol.names import HALF_TOPIC, TRANSACTION_GROUP
from tests.unit.broker.broker_world import send
from tests.unit.broker.staging_peer import StagingPeer, all_bodies, messages, state_of
from tests.unit.broker.test_transactions import COMMIT, Half, ending, prepare
from tests.unit.replication.replica_world import ReplicaWorld

NAMES = ("one", "two", "three")
MEMBERS = tuple(f"127.0.0.{11 + number}:10911" for number in range(3))


@pytest.fixture
def replicas() -> Iterator[ReplicaWorld]:
    world = ReplicaWorld()
    for name in NAMES:
        world.add(name, broker_role="SYNC_MASTER", flush_disk_type="SYNC_FLUSH", election_members=MEMBERS)
    world.until(lambda: master(world) is not None and len(leading(world).replicating.status().links) == 2)
    topic = TopicConfig(topic_name="orders", read_queue_nums=2, write_queue_nums=2)
    leading(world).topics.save({"orders": topic})
    world.until(lambda: all(each.topics.get("orders") is not None for each in world.brokers.values()))
    yield world
    world.close()


def master(world: ReplicaWorld) -> str | None:
    for name, broker in world.brokers.items():
        if broker.role.is_master and broker.switching is not None and broker.switching.why_not() is None:
            return name
    return None


def leading(world: ReplicaWorld) -> Broker:
    name = master(world)
    assert name is not None, "nobody leads"
    return world.brokers[name]


def fail_over(world: ReplicaWorld) -> Broker:
    """Kill the master; the one that leads next, at the moment it does."""
    name = master(world)
    assert name is not None
    world.kill(name)
    return first_to_lead(world)


def first_to_lead(world: ReplicaWorld) -> Broker:
    for _ in range(3_000):
        if master(world) is not None:
            return leading(world)
        world.pass_time(0.01, step=0.01)
    raise AssertionError("nobody leads any more")


def staging(world: ReplicaWorld, broker: Broker) -> StagingPeer:
    return StagingPeer(world, peer=world.peer(broker), broker_name="pair")


def committed(world: ReplicaWorld) -> StagingPeer:
    """Ten messages, and not a moment more than it takes until their commit is answered."""
    peer = staging(world, leading(world))
    peer.stage(messages(numbered(0, 10)))
    committing = peer.begin_commit()
    while not committing.is_answered:
        world.pass_time(0.001, step=0.001)
    return peer


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(first, first + count)]


def test_chunks_that_are_not_shown_yet_are_not_missing(replicas: ReplicaWorld) -> None:
    old = staging(replicas, leading(replicas))
    assert state_of(old.stage(messages(numbered(0, 50)))) == "staged"
    broker = fail_over(replicas)
    assert not broker.replicating.has_duties, "the end it inherited is to be hidden, or nothing is tried here"
    new = staging(replicas, broker)
    refused = new.stage(messages(numbered(50, 50)), sequence=1)
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE, refused.remark
    replicas.until(lambda: broker.replicating.has_duties)
    assert state_of(new.stage(messages(numbered(50, 50)), sequence=1)) == "staged"
    assert state_of(new.commit(StageCount("0.0", 2, 100))) == "committed"
    assert all_bodies(new.peer) == numbered(0, 100)


def test_a_commit_that_is_not_shown_yet_is_not_repeated(replicas: ReplicaWorld) -> None:
    old = committed(replicas)
    broker = fail_over(replicas)
    assert not broker.replicating.has_duties
    new = staging(replicas, broker)
    while (reply := new.commit(old.count)).code == ResponseCode.SERVICE_NOT_AVAILABLE:
        replicas.pass_time(0.1)
    assert state_of(reply) == "committed"
    assert all_bodies(new.peer) == numbered(0, 10)


def test_how_far_deliveries_are_is_told_by_nobody_who_does_not_know(replicas: ReplicaWorld) -> None:
    staging(replicas, leading(replicas)).stage(messages([b"x"]))
    broker = fail_over(replicas)
    peer = replicas.peer(broker)
    told = (
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.GET_TIMER_METRICS,
    )
    waiting = {"rocketmq_half_messages", "rocketmq_timing_messages", "rocketmq_timer_dequeue_lag"}
    for code in told:
        assert peer.ask(code).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert not waiting & set(broker.metrics.figures().names)
    assert b"kourouOpenTransactions" not in peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body
    replicas.until(lambda: broker.replicating.has_duties)
    for code in told:
        assert peer.ask(code).code == ResponseCode.SUCCESS
    assert waiting <= set(broker.metrics.figures().names)
    assert b"kourouOpenTransactions" in peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body
    slave = next(each for each in replicas.brokers.values() if each is not broker)
    assert replicas.peer(slave).ask(told[2]).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert not waiting & set(slave.metrics.figures().names)


def test_whoever_steps_down_before_it_knows_writes_nothing_down(replicas: ReplicaWorld) -> None:
    staging(replicas, leading(replicas)).stage(messages([b"x"]))
    broker = fail_over(replicas)
    assert not broker.replicating.has_duties
    replicas.run(broker.become_idle())
    replicas.pass_time(1)
    assert not broker.replicating.has_duties
    assert broker.replicating.why_no_duties() is None, "a slave says that it is one"


def test_after_a_start_nothing_is_said_of_a_log_that_nobody_has_confirmed(replicas: ReplicaWorld) -> None:
    old = committed(replicas)
    for name in NAMES:
        replicas.kill(name)
    for name in NAMES:
        replicas.add(name)
    broker = first_to_lead(replicas)
    assert broker.store.dispatched == broker.store.wrote, "it has opened the log, and can read all of it"
    assert not broker.replicating.has_duties
    replicas.until(lambda: broker.replicating.has_duties)
    assert state_of(staging(replicas, broker).commit(old.count)) == "committed"
    assert all_bodies(replicas.peer(broker)) == numbered(0, 10)


def open_half(world: ReplicaWorld) -> Half:
    """A half message that all members have."""
    half = prepare(world, world.peer(leading(world)))
    world.pass_time(0.5)
    return half


@pytest.mark.parametrize("is_one_way", [True, False])
def test_an_end_of_a_transaction_waits_until_the_new_master_knows_its_inheritance(
    replicas: ReplicaWorld, is_one_way: bool
) -> None:
    half = open_half(replicas)
    broker = fail_over(replicas)
    assert not broker.replicating.has_duties
    peer = replicas.peer(broker)
    command = request(RequestCode.END_TRANSACTION, ending(half, COMMIT), flag=2 * is_one_way)
    sent = peer.begin(command)
    replicas.settle()
    assert not sent.is_answered
    replicas.until(lambda: broker.replicating.has_duties)
    replicas.until(lambda: all_bodies(replicas.peer(broker), queue_id=1) == [b"paid"])
    assert sent.is_answered is not is_one_way
    if not is_one_way:
        assert sent.reply.code == ResponseCode.SUCCESS, sent.reply.remark


def test_ends_that_wait_are_bounded_and_refused_by_one_that_does_not_lead_after_all(
    replicas: ReplicaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(when_sure, "KEPT_MAX", 2)
    half = open_half(replicas)
    broker = fail_over(replicas)
    assert not broker.replicating.has_duties
    peer = replicas.peer(broker)
    first, second, third = (
        peer.begin(request(RequestCode.END_TRANSACTION, ending(half, COMMIT))) for _ in range(3)
    )
    replicas.settle()
    assert not first.is_answered
    assert third.reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
    replicas.run(broker.become_idle())
    replicas.settle()
    assert {first.reply.code, second.reply.code} == {ResponseCode.SLAVE_NOT_AVAILABLE}


# ------------------------------------------------------------------------------------------------- done alone


def left_alone(world: ReplicaWorld) -> Broker:
    """Part the master from the others."""
    name = master(world)
    assert name is not None
    for other in NAMES:
        if other != name:
            world.part(name, other)
    return world.brokers[name]


def the_next_master(world: ReplicaWorld, old: Broker) -> Broker:
    """Who leads when the old one has seen that it does not, and all see each other again."""
    world.until(lambda: not old.role.is_master)
    world.until(lambda: master(world) is not None)
    for one in NAMES:
        for other in NAMES:
            if one != other:
                world.join(one, other)
    return leading(world)


DELAYED = [{"DELAY": "1"}, {"TIMER_DELAY_MS": "1000"}]


@pytest.mark.parametrize("properties", DELAYED, ids=["level", "timer"])
def test_what_was_delivered_by_a_master_left_alone_is_delivered_by_the_next(
    replicas: ReplicaWorld, properties: dict[str, str]
) -> None:
    peer = replicas.peer(leading(replicas))
    assert peer.begin(send("orders", b"later", properties=properties)).reply.code == 0
    replicas.pass_time(0.9)
    old = left_alone(replicas)
    before = (old.delays.offsets.offset_table, old.timers.progress.key)
    end = old.store.wrote
    replicas.pass_time(0.3, step=0.01)
    assert old.store.wrote > end, "the copy that nobody else has is to be there, or nothing is tried here"
    new = the_next_master(replicas, old)
    assert (old.delays.offsets.offset_table, old.timers.progress.key) == before
    replicas.until(lambda: all_bodies(replicas.peer(new)) == [b"later"])


def test_what_was_committed_at_a_master_left_alone_is_open_at_the_next(replicas: ReplicaWorld) -> None:
    """Were the old one's offset kept, it would take the transaction for ended when it leads again."""
    peer = replicas.peer(leading(replicas))
    half = prepare(replicas, peer)
    replicas.pass_time(0.5)
    old = left_alone(replicas)
    peer.begin(request(RequestCode.END_TRANSACTION, ending(half, COMMIT)))
    replicas.settle()
    assert old.transactions.open_count == 1, "it waits for the others"
    new = the_next_master(replicas, old)
    assert not old.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0)
    replicas.until(lambda: new.replicating.has_duties)
    assert new.transactions.open_count == 1
    replicas.until(lambda: old.replicating.has_master and old.store.wrote == new.store.wrote)
    replicas.pass_time(10)
    assert not new.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0)
    assert replicas.peer(new).ask(RequestCode.END_TRANSACTION, ending(half, COMMIT)).code == 0
    assert all_bodies(replicas.peer(new), queue_id=1) == [b"paid"]
