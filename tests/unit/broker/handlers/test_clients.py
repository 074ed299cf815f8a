"""Clients that come and go."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kourou.protocol.bodies import (
    ConsumerConnection,
    ConsumerData,
    ConsumerList,
    ConsumeStats,
    HeartbeatData,
    KVTable,
    MessageModel,
    ProducerData,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import GetConsumeStats, GroupNamed, UnregisterClient
from tests.unit.broker.broker_world import BrokerWorld, Peer, pull

NOTIFY = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


@pytest.fixture
def started(world: BrokerWorld) -> BrokerWorld:
    world.start()
    world.make_topic("orders")
    return world


def heartbeat(
    peer: Peer,
    client_id: str,
    *,
    group: str = "readers",
    topics: tuple[str, ...] = ("orders",),
    model: MessageModel = MessageModel.CLUSTERING,
    producer_group: str | None = None,
) -> Command:
    subscriptions = [SubscriptionData(topic=topic, sub_version=1) for topic in topics]
    consumer = ConsumerData(group_name=group, message_model=model, subscription_data_set=subscriptions)
    producers = [ProducerData(group_name=producer_group)] if producer_group else []
    body = HeartbeatData(client_id=client_id, consumer_data_set=[consumer], producer_data_set=producers)
    return peer.ask(RequestCode.HEART_BEAT, body=body.encode())


def leave(peer: Peer, client_id: str, group: str = "readers") -> Command:
    header = UnregisterClient(client_id=client_id, consumer_group=group)
    return peer.ask(RequestCode.UNREGISTER_CLIENT, header)


def members(peer: Peer, group: str = "readers") -> list[str] | int:
    """The client ids, or the code of a refusal."""
    reply = peer.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GroupNamed(group))
    return sorted(ConsumerList.decode(reply.body).consumer_id_list) if reply.code == 0 else reply.code


def news(peer: Peer) -> list[str]:
    """The groups whose membership changed, as the peer was told since it was last asked."""
    told, peer.told = peer.told, []
    assert all(each.code == NOTIFY for each in told)
    assert all(each.is_one_way for each in told)
    return [each.fields["consumerGroup"] for each in told]


# --------------------------------------------------------------------------------------------- who is there


def test_the_member_list_names_everybody_who_sent_a_heartbeat(started: BrokerWorld) -> None:
    one, two = started.connect(), started.connect()
    assert heartbeat(one, "10.0.0.1@1").code == 0
    assert heartbeat(two, "10.0.0.2@1").code == 0
    assert heartbeat(two, "10.0.0.2@1").code == 0
    assert members(one) == ["10.0.0.1@1", "10.0.0.2@1"]


def test_a_group_without_members_is_no_list_but_a_refusal(started: BrokerWorld) -> None:
    peer = started.connect()
    reply = peer.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GroupNamed("readers"))
    assert reply.code == 1
    assert "no consumer for this group" in (reply.remark or "")
    assert "readers" in (reply.remark or "")
    heartbeat(peer, "c")
    leave(peer, "c")
    assert members(peer) == 1


def test_a_producers_heartbeat_makes_no_consumer(started: BrokerWorld) -> None:
    peer = started.connect()
    body = HeartbeatData(client_id="p", producer_data_set=[ProducerData(group_name="senders")])
    assert peer.ask(RequestCode.HEART_BEAT, body=body.encode()).code == 0
    assert members(peer, "senders") == 1
    assert [each.client_id for each in started.broker.members.producers("senders")] == ["p"]
    header = UnregisterClient(client_id="p", producer_group="senders")
    assert peer.ask(RequestCode.UNREGISTER_CLIENT, header).code == 0
    assert started.broker.members.producers("senders") == []


def test_one_connection_may_be_in_many_groups(started: BrokerWorld) -> None:
    peer = started.connect()
    heartbeat(peer, "c", group="first", producer_group="senders")
    heartbeat(peer, "c", group="second")
    peer.close()
    assert not started.broker.members.consumer_groups
    assert started.broker.members.producers("senders") == []


# ----------------------------------------------------------------------------------------- who is told of it


def test_all_members_are_told_at_once_when_somebody_joins_or_leaves(started: BrokerWorld) -> None:
    one, two = started.connect(), started.connect()
    heartbeat(one, "one")
    assert news(one) == ["readers"]
    heartbeat(two, "two")
    assert (news(one), news(two)) == (["readers"], ["readers"])
    leave(two, "two")
    assert (news(one), news(two)) == (["readers"], [])


def test_a_heartbeat_that_changes_nothing_tells_nobody(started: BrokerWorld) -> None:
    one, two = started.connect(), started.connect()
    heartbeat(one, "one")
    heartbeat(two, "two")
    news(one), news(two)
    heartbeat(one, "one")
    assert (news(one), news(two)) == ([], [])


def test_a_connection_that_closes_leaves_and_the_others_are_told(started: BrokerWorld) -> None:
    one, two = started.connect(), started.connect()
    heartbeat(one, "one")
    heartbeat(two, "two")
    news(one)
    two.close()
    assert news(one) == ["readers"]
    assert members(one) == ["one"]


def test_a_client_whose_heartbeats_stop_is_dropped_after_two_minutes(started: BrokerWorld) -> None:
    silent, lively = started.connect(), started.connect()
    heartbeat(silent, "silent")
    heartbeat(lively, "lively")
    news(lively)
    for _ in range(4):  # it reads on, so its connection is not idle; but a member says that it is one
        started.pass_time(29, step=1)
        heartbeat(lively, "lively")
        silent.begin(pull(group="readers"))
    assert members(lively) == ["lively", "silent"]
    started.pass_time(20, step=1)
    assert members(lively) == ["lively"]
    assert silent.is_lost
    assert news(lively) == ["readers"]


def test_a_changed_set_of_topics_is_told_and_topics_no_longer_named_are_dropped(started: BrokerWorld) -> None:
    one, two = started.connect(), started.connect()
    heartbeat(one, "one", topics=("orders", "bills"))
    heartbeat(two, "two", topics=("orders", "bills"))
    news(one), news(two)
    heartbeat(two, "two", topics=("orders",))
    assert (news(one), news(two)) == (["readers"], ["readers"])
    group = started.broker.members.consumer_group("readers")
    assert group is not None
    assert set(group.subscriptions) == {"orders"}


def test_broadcast_groups_are_not_told(started: BrokerWorld) -> None:
    one, two = started.connect(), started.connect()
    heartbeat(one, "one", model=MessageModel.BROADCASTING)
    heartbeat(two, "two", model=MessageModel.BROADCASTING)
    two.close()
    assert (news(one), news(two)) == ([], [])


@pytest.mark.parametrize("how", ["broker", "group"])
def test_telling_can_be_switched_off(world: BrokerWorld, how: str) -> None:
    broker = world.start(notify_members_changed=how != "broker")
    broker.groups.get_or_create("readers").notify_consumer_ids_changed_enable = how != "group"
    one, two, three = world.connect(), world.connect(), world.connect()
    for number, peer in enumerate((one, two, three)):
        heartbeat(peer, str(number))
    leave(two, "1")
    three.close()
    assert news(one) == []


# ------------------------------------------------------------------------------------------- the retry topic


def test_a_consumers_heartbeat_makes_its_group_and_retry_topic_and_registers_it(world: BrokerWorld) -> None:
    name_server = world.name_server()
    broker = world.start(name_server.address)
    heartbeat(world.connect(), "c")
    topic = broker.topics.named("%RETRY%readers")
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
    assert "%RETRY%readers" in name_server.routes.topics()
    assert "readers" in broker.groups.all


def test_a_group_that_may_not_make_itself_is_left_out_and_the_others_are_heard(
    world: BrokerWorld, caplog: pytest.LogCaptureFixture
) -> None:
    broker = world.start(auto_create_group=False)
    broker.groups.save(SubscriptionGroupConfig(group_name="known"))
    peer = world.connect()
    groups = [ConsumerData(group_name="readers"), ConsumerData(group_name="known")]
    body = HeartbeatData(client_id="c", consumer_data_set=groups).encode()
    reply = peer.ask(RequestCode.HEART_BEAT, body=body)
    assert (reply.code, reply.fields["IS_SUB_CHANGE"]) == (0, "true")
    assert members(peer) == 1
    assert members(peer, "known") == ["c"]
    assert "c does not join: no consumer group 'readers'" in caplog.text
    assert "%RETRY%readers" not in broker.topics.all


# ------------------------------------------------------------------------------------ what real peers write


def test_the_cpp_clients_numbers_for_names_and_text_for_versions_are_read(started: BrokerWorld) -> None:
    consumer: dict[str, Any] = {
        "groupName": "readers",
        "consumeType": 1,
        "messageModel": 0,
        "consumeFromWhere": 4,
        "subscriptionDataSet": [
            {
                "topic": "orders",
                "subString": "new",
                "subVersion": "1700000000000",
                "tagsSet": ["new"],
                "codeSet": ["108960"],
            }
        ],
    }
    body = msgspec.json.encode(
        {"clientID": "10.0.0.1@1", "consumerDataSet": [consumer], "producerDataSet": []}
    )
    reply = started.connect().ask(RequestCode.HEART_BEAT, body=body)
    assert reply.code == 0, reply.remark
    group = started.broker.members.consumer_group("readers")
    assert group is not None
    assert group.is_broadcast
    assert group.consume_type.name == "PUSH"
    assert group.consume_from.name == "FIRST_OFFSET"
    assert group.subscriptions["orders"].data.sub_version == 1_700_000_000_000


# ------------------------------------------------------------------------------------- the short heartbeat


def short_heartbeat(peer: Peer, client_id: str, *, fingerprint: int, whole: bool = False) -> bool:
    """Whether the broker asks for the whole after all."""
    subscriptions = [SubscriptionData(topic="orders", sub_string="a", sub_version=1)] if whole else []
    consumer = ConsumerData(group_name="readers", subscription_data_set=subscriptions)
    body = HeartbeatData(
        client_id=client_id,
        consumer_data_set=[consumer],
        heartbeat_fingerprint=fingerprint,
        without_sub=not whole,
    )
    reply = peer.ask(RequestCode.HEART_BEAT, body=body.encode())
    assert reply.code == 0
    assert reply.fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
    return reply.fields["IS_SUB_CHANGE"] == "true"


def test_a_short_heartbeat_keeps_what_the_whole_one_said(started: BrokerWorld) -> None:
    peer = started.connect()
    assert not short_heartbeat(peer, "c", fingerprint=7, whole=True)
    for _ in range(4):
        started.pass_time(60)
        assert not short_heartbeat(peer, "c", fingerprint=7)
    assert members(peer) == ["c"]
    group = started.broker.members.consumer_group("readers")
    assert group is not None
    assert group.subscriptions["orders"].data.sub_string == "a"


@pytest.mark.parametrize("known", [None, 8])
def test_the_whole_is_asked_for_when_the_short_one_means_nothing(
    started: BrokerWorld, known: int | None
) -> None:
    peer = started.connect()
    if known is not None:
        short_heartbeat(peer, "c", fingerprint=known, whole=True)
    assert short_heartbeat(peer, "c", fingerprint=7)
    assert not short_heartbeat(peer, "c", fingerprint=7, whole=True)
    assert not short_heartbeat(peer, "c", fingerprint=7)


# ---------------------------------------------------------------------------------- members that disagree


def subscribe(peer: Peer, client_id: str, tags: str, topic: str = "orders") -> Command:
    subscriptions = [
        SubscriptionData(topic=topic, sub_string=tags, sub_version=1),
        SubscriptionData(topic="%RETRY%readers", sub_version=1),
    ]
    consumer = ConsumerData(group_name="readers", subscription_data_set=subscriptions)
    body = HeartbeatData(client_id=client_id, consumer_data_set=[consumer])
    return peer.ask(RequestCode.HEART_BEAT, body=body.encode())


def test_members_that_subscribe_differently_are_complained_about_once_a_minute(
    started: BrokerWorld, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = started.connect(), started.connect()
    with caplog.at_level("WARNING"):
        for _ in range(3):
            assert subscribe(one, "one", "a").code == 0
            assert subscribe(two, "two", "b").code == 0
    [line] = [each.getMessage() for each in caplog.records if "subscribe differently" in each.getMessage()]
    assert "group readers" in line
    assert "two to orders (b) where one has orders (a)" in line
    group = started.broker.members.consumer_group("readers")
    assert group is not None
    assert group.has_different_subscriptions
    asked = GroupNamed(consumer_group="readers")
    assert ConsumerConnection.decode(
        one.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, asked).body
    ).different_subscriptions
    figures = KVTable.decode(one.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
    assert figures["groupsWithDifferentSubscriptions"] == "1"
    two.close()
    assert not group.has_different_subscriptions
    assert b"differentSubscriptions" not in one.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, asked).body


def test_while_members_disagree_all_their_topics_count(started: BrokerWorld) -> None:
    """What one of them no longer wants, another may not have read yet."""
    one, two = started.connect(), started.connect()
    for topic in ("orders", "other"):
        assert one.send(topic=topic).code == 0
        started.broker.offsets.commit("readers", topic, 0, 0)
    for peer, name, topic in ((one, "one", "orders"), (two, "two", "other")):
        assert subscribe(peer, name, "*", topic).code == 0
    reply = one.ask(RequestCode.GET_CONSUME_STATS, GetConsumeStats(consumer_group="readers"))
    assert {queue.topic for queue in ConsumeStats.decode(reply.body).offset_table} == {"orders", "other"}


def test_the_same_tags_in_another_order_are_the_same(world: BrokerWorld) -> None:
    world.start(refuse_different_subscriptions=True)
    world.make_topic("orders")
    one, two = world.connect(), world.connect()
    assert subscribe(one, "one", "a || b").code == 0
    assert subscribe(two, "two", "b||a").code == 0


def test_who_comes_second_with_another_subscription_can_be_refused(world: BrokerWorld) -> None:
    world.start(refuse_different_subscriptions=True)
    world.make_topic("orders")
    one, two = world.connect(), world.connect()
    assert subscribe(one, "one", "a").code == 0
    reply = subscribe(two, "two", "b")
    assert reply.code == 16
    assert "refuseDifferentSubscriptions" in (reply.remark or "")
    assert members(one) == ["one"]
    assert subscribe(one, "one", "c").code == 0  # alone, it may change its mind
    assert subscribe(two, "two", "c").code == 0


@pytest.mark.parametrize(
    ("consumers", "subscriptions"), [(1001, 0), (1, 10_001)], ids=["groups", "subscriptions"]
)
def test_an_oversized_heartbeat_is_refused_and_changes_nothing(
    started: BrokerWorld, consumers: int, subscriptions: int
) -> None:
    wanted = [SubscriptionData(topic=f"t{number}") for number in range(subscriptions)]
    data = [ConsumerData(group_name=f"g{n}", subscription_data_set=wanted) for n in range(consumers)]
    body = HeartbeatData(client_id="big", consumer_data_set=data).encode()
    reply = started.connect().ask(RequestCode.HEART_BEAT, body=body)
    assert reply.code == 1
    assert f"names {consumers} groups and {subscriptions} subscriptions" in (reply.remark or "")
    assert not started.broker.members.consumer_groups
    assert "g0" not in started.broker.groups.all


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"clientID":7}',
        b'{"consumerDataSet":[]}',
        b'{"clientID":"c","consumerDataSet":{}}',
    ],
)
def test_a_heartbeat_that_makes_no_sense_is_refused_on_an_open_connection(
    started: BrokerWorld, body: bytes
) -> None:
    peer = started.connect()
    reply = peer.ask(RequestCode.HEART_BEAT, body=body)
    if body != b'{"clientID":7}':  # fastjson, too, reads that as "7"
        assert reply.code == 1
    assert "inside the server" not in (reply.remark or "")
    assert heartbeat(peer, "c").code == 0


def test_one_unusable_subscription_lets_nothing_of_its_group_in(started: BrokerWorld) -> None:
    data = ConsumerData(
        group_name="readers",
        subscription_data_set=[SubscriptionData(topic="orders", sub_string=" || ")],
    )
    body = HeartbeatData(client_id="c", consumer_data_set=[data]).encode()
    peer = started.connect()
    reply = peer.ask(RequestCode.HEART_BEAT, body=body)
    assert reply.code == 23
    assert members(peer) == 1


@pytest.mark.parametrize(
    ("client_id", "producer"),
    [("", "shop"), ("c" * 513, "shop"), ("c", "../../x\n"), ("c", "g" * 256), ("c", "")],
)
def test_ids_and_producer_groups_that_no_client_has_are_refused(
    world: BrokerWorld, client_id: str, producer: str
) -> None:
    world.start()
    body = HeartbeatData(client_id=client_id, producer_data_set=[ProducerData(group_name=producer)]).encode()
    reply = world.connect().begin(Command(RequestCode.HEART_BEAT, {}, body)).reply
    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert all(character.isprintable() for character in reply.remark or "")
