"""Groups, for those who look after them."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.protocol.bodies import (
    ConsumerConnection,
    ConsumerData,
    ConsumerOffsets,
    GroupList,
    GroupTable,
    HeartbeatData,
    ProducerConnection,
    ProducerData,
    QueueOffsets,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.command import request as make_request
from kourou.protocol.headers import (
    DeleteGroup,
    GroupAsked,
    GroupNamed,
    ProducerGroupNamed,
    QueryOffset,
    ResetOffset,
    TopicNamed,
    UpdateOffset,
)
from tests.unit.broker.broker_world import COMMIT, OWN_SUBSCRIPTION, BrokerWorld, Peer, pull


@pytest.fixture
def started(world: BrokerWorld) -> BrokerWorld:
    world.start()
    world.make_topic("orders", 2)
    return world


def join(peer: Peer, client_id: str = "c@1", *, group: str = "readers", language: str = "JAVA") -> None:
    consumer = ConsumerData(
        group_name=group, subscription_data_set=[SubscriptionData(topic="orders", sub_version=1)]
    )
    body = HeartbeatData(
        client_id=client_id,
        consumer_data_set=[consumer],
        producer_data_set=[ProducerData(group_name="senders")],
    )
    heartbeat = make_request(RequestCode.HEART_BEAT, body=body.encode())
    heartbeat.language = language
    assert peer.begin(heartbeat).reply.code == 0


def commit(peer: Peer, queue_id: int, offset: int, group: str = "readers") -> None:
    header = UpdateOffset(group, "orders", queue_id, offset)
    assert peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header).code == 0


def committed(peer: Peer, queue_id: int, group: str = "readers") -> int | None:
    reply = peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, QueryOffset(group, "orders", queue_id, False))
    return int(reply.fields["offset"]) if reply.code == 0 else None


# ------------------------------------------------------------------------------------------------ settings


def save(peer: Peer, **settings: Any) -> Command:
    body = SubscriptionGroupConfig(**{"group_name": "readers", **settings}).encode()
    return peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


def test_a_saved_group_is_there_and_survives_a_restart(started: BrokerWorld) -> None:
    peer = started.connect()
    assert save(peer, retry_max_times=3, consume_enable=False).code == 0
    assert peer.pull(group="readers").code == 16
    started.stop()
    started.start()
    peer = started.connect()
    reply = peer.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupAsked("readers"))
    assert SubscriptionGroupConfig.decode(reply.body).retry_max_times == 3
    table = GroupTable.decode(peer.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
    assert not table.subscription_group_table["readers"].consume_enable
    assert "CID_RMQ_SYS_TRANS" in table.subscription_group_table


def test_attributes_are_added_and_taken_away(started: BrokerWorld) -> None:
    peer = started.connect()
    save(peer, attributes={"+a": "1", "+b": "2"})
    save(peer, attributes={"-a": "", "+c": "3"})
    assert started.broker.groups.named("readers").attributes == {"b": "2", "c": "3"}


@pytest.mark.parametrize("settings", [{"group_name": "no/path"}, {"retry_queue_nums": 70_000}])
def test_an_impossible_group_is_refused(started: BrokerWorld, settings: dict[str, Any]) -> None:
    assert save(started.connect(), **settings).code == 29
    assert "readers" not in started.broker.groups.all


def test_a_group_that_could_not_be_saved_is_not_there(started: BrokerWorld) -> None:
    peer = started.connect()
    started.files.capacity = 0
    assert save(peer).code == 14
    assert "readers" not in started.broker.groups.all


def test_an_unknown_group_is_not_shown(started: BrokerWorld) -> None:
    assert started.connect().ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupAsked("no")).code == 26


@pytest.mark.parametrize("how", [{"clean_offset": True}, {"remove_offset": True}])
def test_a_deleted_group_takes_its_offsets_along_when_asked_to(
    started: BrokerWorld, how: dict[str, bool]
) -> None:
    peer = started.connect()
    for group in ("readers", "others"):
        commit(peer, 0, 5, group)
    assert peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroup("readers")).code == 0
    assert "readers" not in started.broker.groups.all
    assert committed(peer, 0) == 5
    assert peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroup("readers", **how)).code == 0
    assert committed(peer, 0) is None
    assert committed(peer, 0, "others") == 5


def test_groups_of_the_system_stay(started: BrokerWorld) -> None:
    reply = started.connect().ask(
        RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroup("CID_RMQ_SYS_TRANS", True)
    )
    assert reply.code == 29


# -------------------------------------------------------------------------------------------- who is there


def test_consumers_are_listed_with_what_they_want(started: BrokerWorld) -> None:
    peer = started.connect()
    join(peer, language="GO")
    reply = peer.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, GroupNamed("readers"))
    found = ConsumerConnection.decode(reply.body)
    [connection] = found.connection_set
    assert (connection.client_id, connection.language) == ("c@1", "GO")
    assert connection.client_addr.startswith("127.0.0.1:")
    assert set(found.subscription_table) == {"orders"}
    assert peer.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, GroupNamed("no")).code == 206


def test_producers_are_listed(started: BrokerWorld) -> None:
    peer = started.connect()
    join(peer)
    reply = peer.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupNamed("senders"))
    assert [each.client_id for each in ProducerConnection.decode(reply.body).connection_set] == ["c@1"]
    assert peer.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupNamed("no")).code == 1


def test_the_groups_of_a_topic_are_those_that_read_it_or_once_did(started: BrokerWorld) -> None:
    peer = started.connect()
    join(peer)
    commit(peer, 0, 1, "once")
    reply = peer.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicNamed("orders"))
    assert GroupList.decode(reply.body).group_list == ["once", "readers"]


def test_all_offsets_are_written_as_java_writes_them(started: BrokerWorld) -> None:
    peer = started.connect()
    commit(peer, 1, 7)
    body = peer.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body
    assert b'"orders@readers":{1:7}' in body
    assert ConsumerOffsets.decode(body).offset_table["orders@readers"] == {1: 7}


# ------------------------------------------------------------------------------------------ offsets moved


def reset(peer: Peer, **more: Any) -> dict[int, int] | int:
    """Queue to offset, or the code of a refusal."""
    header = ResetOffset(**{"topic": "orders", "group": "readers", **more})
    reply = peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    if reply.code:
        return reply.code
    return {queue.queue_id: offset for queue, offset in QueueOffsets.decode(reply.body).offset_table.items()}


@pytest.fixture
def reader(started: BrokerWorld) -> Peer:
    """A member of the group, with five messages in queue 0, all consumed."""
    peer = started.connect()
    for number in range(5):
        assert peer.send("orders", b"%d" % number).code == 0
        started.pass_time(10)
    join(peer)
    commit(peer, 0, 5)
    return peer


def test_a_reset_group_is_told_by_its_next_pull(started: BrokerWorld, reader: Peer) -> None:
    assert reset(reader, timestamp=0) == {0: 0, 1: 0}
    assert committed(reader, 0) == 0
    told = reader.pull("orders", 0, 5, group="readers")
    assert told.code == 21
    assert told.fields["nextBeginOffset"] == "0"
    assert told.fields["maxOffset"] == "5"
    assert reader.pull("orders", 0, 0, group="readers").code == 0


def test_a_waiting_pull_is_told_at_once(started: BrokerWorld, reader: Peer) -> None:
    waiting = reader.begin(pull("orders", 0, 5, group="readers", wait_ms=15_000))
    assert not waiting.is_answered
    operator = started.connect()
    assert reset(operator, queue_id=0, offset=2) == {0: 2}
    assert waiting.reply.code == 21
    assert waiting.reply.fields["nextBeginOffset"] == "2"


def test_commits_from_before_the_reset_change_nothing(started: BrokerWorld, reader: Peer) -> None:
    reset(reader, queue_id=0, offset=1)
    commit(reader, 0, 5)
    told = reader.pull("orders", 0, 5, group="readers", sys_flag=OWN_SUBSCRIPTION | COMMIT, commit_offset=5)
    assert told.code == 21
    assert committed(reader, 0) == 1
    commit(reader, 0, 3)
    assert committed(reader, 0) == 3


def test_a_reset_goes_to_a_time(started: BrokerWorld, reader: Peer) -> None:
    now = started.clock.now_ms()
    found = reset(reader, queue_id=0, timestamp=now - 25_000)
    assert found == {0: 3}
    assert reset(reader, timestamp=-1) == {0: 5, 1: 0}


def test_a_group_that_is_away_can_be_reset(started: BrokerWorld, reader: Peer) -> None:
    reader.close()
    operator = started.connect()
    assert reset(operator, queue_id=0, offset=4) == {0: 4}
    assert committed(operator, 0) == 4


def test_another_group_is_not_told(started: BrokerWorld, reader: Peer) -> None:
    reset(reader, queue_id=0, offset=1)
    assert reader.pull("orders", 0, 0, group="others").code == 0


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"topic": "no"}, 17),
        ({"group": "no"}, 26),
        ({"queue_id": 0, "offset": 6}, 1),
        ({"queue_id": 2, "timestamp": 0}, 29),
    ],
)
def test_an_impossible_reset_is_refused(
    started: BrokerWorld, reader: Peer, more: dict[str, Any], code: int
) -> None:
    assert reset(reader, **more) == code
    assert committed(reader, 0) == 5


def test_members_can_be_left_to_reset_themselves(world: BrokerWorld) -> None:
    world.start(server_side_reset=False)
    world.make_topic("orders", 1)
    java, cpp = world.connect(), world.connect()
    for number in range(3):
        java.send("orders", b"%d" % number)
    assert reset(java) == 1  # never committed
    commit(java, 0, 2)
    assert reset(java) == 206
    join(java, "java")
    join(cpp, "cpp", language="CPP")
    java.told, cpp.told = [], []
    assert reset(java, timestamp=-1) == {0: 2}  # without force only backwards
    assert reset(java, timestamp=-1, is_force=True) == {0: 3}
    assert [each.code for each in java.told] == [RequestCode.RESET_CONSUMER_CLIENT_OFFSET] * 2
    assert b'{{"brokerName":"broker-a"' in java.told[-1].body
    assert b'{"offsetTable":[{' in cpp.told[-1].body
    assert committed(java, 0) == 2  # theirs to commit
