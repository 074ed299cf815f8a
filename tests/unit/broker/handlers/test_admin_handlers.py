"""What admin tools ask of a broker: clients asked through it, groups compared and copied, lists saved."""

from __future__ import annotations

import pytest

from kourou.protocol.admin_bodies import (
    BrokerStatsData,
    ConsumerStatus,
    ConsumeStatsList,
    ConsumeTimeSpans,
    CorrectionOffsets,
    GroupConfigList,
    GroupForbiddenReply,
    GroupSubscription,
    HaStatus,
    ProducerTable,
    RequestModeWanted,
    TopicConfigList,
)
from kourou.protocol.admin_headers import (
    BrokerStatsAsked,
    CloneOffsets,
    ConsumerStatusAsked,
    ConsumeStatsAsked,
    CorrectionAsked,
    DirectConsumption,
    GroupForbidden,
    TopicAndGroup,
)
from kourou.protocol.bodies import (
    MessageQueue,
    QueuePlaces,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicList,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.command import request as make_request
from kourou.protocol.headers import GetRunningInfo, GroupAsked, SendReply
from tests.unit.broker.broker_world import OWN_SUBSCRIPTION, BrokerWorld, Peer, pull
from tests.unit.broker.handlers.test_group_handlers import commit, join

LONG_MAX = (1 << 63) - 1


@pytest.fixture
def started(world: BrokerWorld) -> BrokerWorld:
    world.start()
    world.make_topic("orders", 2)
    return world


@pytest.fixture
def peer(started: BrokerWorld) -> Peer:
    return started.connect()


def answer(client: Peer, code: int = 0, body: bytes = b"", remark: str | None = None) -> Command:
    """The client answers the last thing the broker asked of it."""
    asked = client.told[-1]
    reply = asked.reply(body=body, code=code, remark=remark)
    client.transport.write(reply.encode())
    return asked


# --------------------------------------------------------------------------------- clients asked through it


def test_a_member_tells_of_itself_through_the_broker(started: BrokerWorld, peer: Peer) -> None:
    member = started.connect()
    join(member, "c@1")
    header = GetRunningInfo("readers", "c@1", True)
    waiting = peer.begin(make_request(RequestCode.GET_CONSUMER_RUNNING_INFO, header))
    odd = b'{"mqTable":}'  # as the C++ client writes it when it has no queue
    asked = answer(member, body=odd)
    started.settle()
    assert asked.code == RequestCode.GET_CONSUMER_RUNNING_INFO
    assert asked.fields["jstackEnable"] == "true"
    assert waiting.reply.body == odd


def test_a_member_that_does_not_answer_is_said_to(started: BrokerWorld, peer: Peer) -> None:
    member = started.connect()
    join(member, "c@1")
    waiting = peer.begin(
        make_request(RequestCode.GET_CONSUMER_RUNNING_INFO, GetRunningInfo("readers", "c@1"))
    )
    started.pass_time(11)
    assert waiting.reply.code == ResponseCode.CONSUME_MSG_TIMEOUT


def test_a_member_that_leaves_while_it_is_asked_is_said_to(started: BrokerWorld, peer: Peer) -> None:
    member = started.connect()
    join(member, "c@1")
    waiting = peer.begin(
        make_request(RequestCode.GET_CONSUMER_RUNNING_INFO, GetRunningInfo("readers", "c@1"))
    )
    member.close()
    assert waiting.reply.code == ResponseCode.SYSTEM_ERROR
    assert "invoke consumer <readers> <c@1>" in (waiting.reply.remark or "")


def test_nobody_of_that_name_is_said_to_be_offline(peer: Peer) -> None:
    for code, header in (
        (RequestCode.GET_CONSUMER_RUNNING_INFO, GetRunningInfo("readers", "nobody")),
        (RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatusAsked("orders", "readers")),
    ):
        reply = peer.ask(code, header)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "online" in (reply.remark or "")


def test_a_message_is_handed_to_a_member_directly(started: BrokerWorld, peer: Peer) -> None:
    place = peer.send(body=b"again", queue_id=0).parse(SendReply).message_id
    member = started.connect()
    join(member, "c@1")
    header = DirectConsumption("readers", "c@1", place, topic="orders")
    waiting = peer.begin(make_request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header))
    asked = answer(member, body=b'{"consumeResult":"CR_SUCCESS"}')
    started.settle()
    assert b"again" in asked.body
    assert asked.fields["brokerName"] == "broker-a"
    assert asked.fields["topicSysFlag"] == "0"
    assert waiting.reply.body == b'{"consumeResult":"CR_SUCCESS"}'


@pytest.mark.parametrize("offset_id", ["", "nonsense", "7F00000100002A9F0000000000000999"])
def test_a_message_that_is_not_there_is_handed_to_nobody(peer: Peer, offset_id: str) -> None:
    header = DirectConsumption("readers", "c@1", offset_id)
    assert peer.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header).code == ResponseCode.SYSTEM_ERROR


def test_how_far_members_are_by_their_own_word(started: BrokerWorld, peer: Peer) -> None:
    first, second = started.connect(), started.connect()
    join(first, "c@1")
    join(second, "c@2")
    waiting = peer.begin(
        make_request(
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatusAsked("orders", "readers")
        )
    )
    queue = MessageQueue(broker_name="broker-a", queue_id=1, topic="orders")
    answer(first, body=QueuePlaces(message_queue_table={queue: 7}).encode_fastjson())
    answer(second, body=b"{not json")
    started.settle()
    status = ConsumerStatus.decode(waiting.reply.body)
    assert status.consumer_table == {"c@1": {queue: 7}}


def test_every_producer_that_is_connected_is_listed(started: BrokerWorld, peer: Peer) -> None:
    client = started.connect()
    join(client, "c@1")
    started.pass_time(2)
    table = ProducerTable.decode(peer.ask(RequestCode.GET_ALL_PRODUCER_INFO).body)
    (info,) = table.data["senders"]
    assert (info.client_id, info.language) == ("c@1", "JAVA")
    assert abs(started.clock.now_ms() - 2_000 - info.last_update_timestamp) < 1_000


# -------------------------------------------------------------------------------------------------- groups


def test_topics_and_subscription_of_a_group_are_told(started: BrokerWorld, peer: Peer) -> None:
    join(peer, "c@1")
    commit(peer, 0, 0)
    topics = TopicList.decode(peer.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, GroupAsked("readers")).body)
    assert topics.topic_list == ["orders"]
    told = GroupSubscription.decode(
        peer.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, TopicAndGroup("readers", "orders")).body
    )
    assert told.subscription_data
    assert told.subscription_data.topic == "orders"
    nothing = GroupSubscription.decode(
        peer.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, TopicAndGroup("readers", "prices")).body
    )
    assert not nothing.subscription_data


def test_how_late_a_group_is_in_time(started: BrokerWorld, peer: Peer) -> None:
    for _ in range(3):
        peer.send(queue_id=0)
        started.pass_time(10)
    commit(peer, 0, 1)
    spans = ConsumeTimeSpans.decode(
        peer.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, TopicAndGroup("readers", "orders")).body
    ).consume_time_span_set
    first, empty = spans
    assert first.max_time_stamp - first.min_time_stamp == pytest.approx(20_000, abs=1_000)
    assert first.consume_time_stamp == first.min_time_stamp
    assert first.delay_time == pytest.approx(20_000, abs=1_500)
    assert (empty.min_time_stamp, empty.max_time_stamp, empty.delay_time) == (-1, -1, -1)
    reply = peer.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, TopicAndGroup("readers", "nowhere"))
    assert reply.code == ResponseCode.TOPIC_NOT_EXIST


def test_the_least_offset_of_all_groups_is_found_and_nothing_is_forgotten(peer: Peer) -> None:
    for _ in range(9):
        peer.send(queue_id=0)
    for group, offset in (("a", 3), ("b", 5), ("left-out", 1), ("behind", 2)):
        commit(peer, 0, offset, group)

    def corrected(compare: str) -> dict[int, int]:
        header = CorrectionAsked("orders", compare, "left-out,behind")
        reply = peer.ask(RequestCode.QUERY_CORRECTION_OFFSET, header)
        return CorrectionOffsets.decode(reply.body).correction_offsets

    assert corrected("b") == {0: 3}
    assert corrected("behind") == {0: LONG_MAX}
    assert corrected("nobody") == {0: 3}
    assert corrected("left-out") == {0: LONG_MAX}  # the original had forgotten it with the first question


@pytest.mark.parametrize("topic", ["orders", None])
def test_a_group_goes_on_where_another_one_is(started: BrokerWorld, peer: Peer, topic: str | None) -> None:
    for _ in range(4):
        peer.send(queue_id=1)
    commit(peer, 1, 3)
    header = CloneOffsets("readers", "copy", topic, True)
    assert peer.ask(RequestCode.CLONE_GROUP_OFFSET, header).code == 0
    assert started.broker.offsets.get("copy", "orders", 1) == 3
    assert started.broker.offsets.get("copy", "orders", 0) is None
    assert started.broker.groups.get("copy") is not None


def test_all_groups_of_a_broker_are_told_how_far_they_are(started: BrokerWorld, peer: Peer) -> None:
    for _ in range(5):
        peer.send(queue_id=0)
    commit(peer, 0, 2)
    found = ConsumeStatsList.decode(
        peer.ask(RequestCode.GET_BROKER_CONSUME_STATS, ConsumeStatsAsked(False)).body
    )
    assert found.total_diff == 3
    assert found.broker_addr == started.broker.address
    (stats,) = next(entry["readers"] for entry in found.consume_stats_list if "readers" in entry)
    assert sorted(progress.consumer_offset for progress in stats.offset_table.values()) == [0, 2]
    ordered = ConsumeStatsList.decode(
        peer.ask(RequestCode.GET_BROKER_CONSUME_STATS, ConsumeStatsAsked(True)).body
    )
    assert ordered.total_diff == 0


def test_a_group_is_kept_from_a_topic_and_that_lasts(started: BrokerWorld, peer: Peer) -> None:
    peer.send(queue_id=0)
    commit(peer, 0, 0)
    reading = pull("orders", 0, 0, group="readers", sys_flag=OWN_SUBSCRIPTION)
    assert peer.begin(reading).reply.code == 0

    def forbid(readable: bool | None) -> GroupForbiddenReply:
        header = GroupForbidden("readers", "orders", readable)
        return GroupForbiddenReply.decode(peer.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header).body)

    assert forbid(False).readable is False
    reply = peer.begin(pull("orders", 0, 0, group="readers", sys_flag=OWN_SUBSCRIPTION)).reply
    assert reply.code == ResponseCode.NO_PERMISSION
    started.crash()
    started.start()
    peer = started.connect()
    assert forbid(None).readable is False
    assert forbid(True).readable is True
    assert peer.begin(pull("orders", 0, 0, group="readers", sys_flag=OWN_SUBSCRIPTION)).reply.code == 0
    assert started.broker.groups.kept.forbidden_table == {}


def test_groups_are_read_by_pulling(peer: Peer) -> None:
    commit(peer, 0, 0)
    pulling = RequestModeWanted(consumer_group="readers", topic="orders", mode="PULL").encode()
    assert peer.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=pulling).code == 0
    popping = RequestModeWanted(consumer_group="readers", topic="orders", mode="POP").encode()
    assert peer.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=popping).code == ResponseCode.NO_PERMISSION
    kept = peer.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    assert (kept.code, kept.body) == (0, b'{"messageRequestModeMap":{}}')


# --------------------------------------------------------------------------------------------- lists, figures


def test_many_topics_are_made_at_once_or_none(started: BrokerWorld, peer: Peer) -> None:
    good = [TopicConfig(topic_name=name, read_queue_nums=3, write_queue_nums=3) for name in ("a", "b")]
    wanted = TopicConfigList(topic_config_list=good)
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=wanted.encode()).code == 0
    assert started.broker.topics.all["b"].read_queue_nums == 3
    bad = TopicConfigList(topic_config_list=[TopicConfig(topic_name="c"), TopicConfig(topic_name="TBW102")])
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=bad.encode()).code != 0
    assert started.broker.topics.get("c") is None


def test_many_groups_are_saved_at_once(started: BrokerWorld, peer: Peer) -> None:
    wanted = GroupConfigList(
        group_config_list=[
            SubscriptionGroupConfig(group_name="one", retry_max_times=3, attributes={"+a": "b"})
        ]
    )
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=wanted.encode()).code == 0
    assert started.broker.groups.all["one"].retry_max_times == 3
    assert started.broker.groups.all["one"].attributes == {"a": "b"}


def test_the_brokers_own_topics_are_told(peer: Peer) -> None:
    topics = TopicList.decode(peer.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).body).topic_list
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a"} <= set(topics)
    assert "orders" not in topics


def test_one_figure_is_told_or_said_not_to_be(peer: Peer) -> None:
    peer.send(queue_id=0)
    reply = peer.ask(RequestCode.VIEW_BROKER_STATS_DATA, BrokerStatsAsked("TOPIC_PUT_NUMS", "orders"))
    assert BrokerStatsData.decode(reply.body).stats_minute.sum == 1
    reply = peer.ask(RequestCode.VIEW_BROKER_STATS_DATA, BrokerStatsAsked("TOPIC_PUT_NUMS", "prices"))
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "not exist" in (reply.remark or "")


def test_a_master_without_replicas_says_so(peer: Peer) -> None:
    status = HaStatus.decode(peer.ask(RequestCode.GET_BROKER_HA_STATUS).body)
    assert status.master
    assert status.ha_connection_info == []
