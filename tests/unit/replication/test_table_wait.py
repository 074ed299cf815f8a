"""Topics and groups are said to be made when slaves have them."""

from __future__ import annotations

from kourou.broker.broker import Broker
from kourou.protocol.bodies import SubscriptionGroupConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import CreateTopic
from tests.unit.broker.broker_world import send
from tests.unit.replication.replica_world import ReplicaWorld


def making(name: str, queues: int = 3) -> Command:
    header = CreateTopic(topic=name, read_queue_nums=queues, write_queue_nums=queues, perm=6)
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def making_group(name: str) -> Command:
    body = SubscriptionGroupConfig(group_name=name, retry_max_times=3).encode()
    return request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


def promoted(replicas: ReplicaWorld, slave: Broker) -> Broker:
    replicas.kill("master")
    replicas.run(slave.become_master())
    return slave


async def _copy_again(slave: Broker, master: Broker) -> None:
    slave.replicating.metadata.follow(master.address)


def test_a_topic_is_made_when_the_slave_has_it_and_not_before(replicas: ReplicaWorld) -> None:
    master, slave = replicas.pair(broker_role="SYNC_MASTER")
    operator, sender = replicas.peer(master), replicas.peer(master)
    assert operator.begin(making("orders")).reply.code == ResponseCode.SUCCESS
    replicas.part("master", "slave")
    topic, group = operator.begin(making("later", 7)), operator.begin(making_group("readers"))
    replicas.pass_time(1.0)
    assert not topic.is_answered
    assert not group.is_answered
    replicas.join("master", "slave")
    replicas.until(lambda: topic.is_answered and group.is_answered)
    assert (topic.reply.code, group.reply.code) == (ResponseCode.SUCCESS, ResponseCode.SUCCESS)
    assert sender.send("orders").code == ResponseCode.SUCCESS
    heir = promoted(replicas, slave)
    assert heir.topics.named("later").write_queue_nums == 7
    assert heir.groups.named("readers").retry_max_times == 3


def test_nothing_else_waits_for_the_tables(replicas: ReplicaWorld) -> None:
    master, slave = replicas.pair(broker_role="SYNC_MASTER")
    operator = replicas.peer(master)
    assert operator.begin(making("orders")).reply.code == ResponseCode.SUCCESS
    slave.replicating.metadata.stop()  # it follows the log, and copies no topics
    waiting = operator.begin(making("later"))
    assert operator.begin(send("orders")).reply.code == ResponseCode.SUCCESS
    assert not waiting.is_answered
    replicas.pass_time(3.2)
    assert waiting.reply.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert "make it again" in (waiting.reply.remark or "")
    assert master.topics.get("later") is not None
    replicas.run(_copy_again(slave, master))
    again = operator.begin(making("later"))
    replicas.until(lambda: again.is_answered)
    assert again.reply.code == ResponseCode.SUCCESS
    assert slave.topics.get("later") is not None


def test_without_a_slave_it_is_made_and_said_to_be_here_alone(replicas: ReplicaWorld) -> None:
    master = replicas.add("master", broker_role="SYNC_MASTER")
    reply = replicas.peer(master).begin(making("orders")).reply
    assert reply.code == ResponseCode.SUCCESS
    assert "this master alone" in (reply.remark or "")


def test_whoever_waits_is_told_when_the_last_slave_goes(replicas: ReplicaWorld) -> None:
    master, _ = replicas.pair(broker_role="SYNC_MASTER")
    replicas.part("master", "slave")
    waiting = replicas.peer(master).begin(making("orders"))
    replicas.kill("slave")
    replicas.join("master", "slave")
    replicas.until(lambda: waiting.is_answered, 3.5)
    assert waiting.reply.code in (ResponseCode.SUCCESS, ResponseCode.FLUSH_SLAVE_TIMEOUT)
    assert waiting.reply.remark


def test_an_async_master_waits_for_nobody(replicas: ReplicaWorld) -> None:
    master, _ = replicas.pair(broker_role="ASYNC_MASTER")
    replicas.part("master", "slave")
    reply = replicas.peer(master).begin(making("orders")).reply
    assert (reply.code, reply.remark or "") == (ResponseCode.SUCCESS, "")


def test_two_slaves_can_be_asked_for_tables_too(replicas: ReplicaWorld) -> None:
    master, _ = replicas.pair(broker_role="SYNC_MASTER", in_sync_replicas=3)
    second = replicas.add("second", broker_role="SLAVE", broker_id=2, ha_master_address=master.ha_address)
    replicas.until(lambda: second.replicating.replica.is_following)
    replicas.part("master", "second")
    waiting = replicas.peer(master).begin(making("orders"))
    replicas.pass_time(1.0)
    assert not waiting.is_answered, "one slave was enough where two were asked for"
    replicas.join("master", "second")
    replicas.until(lambda: waiting.is_answered)
    assert waiting.reply.code == ResponseCode.SUCCESS


def test_a_slave_that_cannot_keep_the_topics_does_not_say_that_it_has_them(replicas: ReplicaWorld) -> None:
    master, slave = replicas.pair(broker_role="SYNC_MASTER")
    room, replicas.disks["slave"].capacity = replicas.disks["slave"].capacity, 1
    waiting = replicas.peer(master).begin(making("orders"))
    replicas.pass_time(1.0)
    assert not waiting.is_answered
    assert slave.topics.get("orders") is None
    replicas.disks["slave"].capacity = room
    replicas.until(lambda: waiting.is_answered)
    assert waiting.reply.code == ResponseCode.SUCCESS
    assert slave.topics.get("orders") is not None
