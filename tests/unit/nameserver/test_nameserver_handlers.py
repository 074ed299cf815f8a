"""Every request of the name server, from bytes to bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kourou.nameserver import kv as kv_module
from kourou.nameserver import routes as routes_module
from kourou.protocol.bodies import (
    BrokerMemberGroupReply,
    ClusterInfo,
    DataVersion,
    KVTable,
    QueueData,
    TopicList,
    TopicRouteData,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import (
    BrokerGroup,
    BrokerHeartbeat,
    BrokerIdentity,
    BrokerNamed,
    ClusterNamed,
    DeleteTopicFromNameServer,
    GetRoute,
    KvKey,
    KvNamespace,
    MinBrokerIdChanged,
    PutKv,
    TopicNamed,
)

A, B, C = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
CLUSTER = "DefaultCluster"


def identity(name: str = "broker-a", id: int = 0, address: str = A) -> BrokerIdentity:
    return BrokerIdentity(broker_name=name, broker_id=id, broker_address=address, cluster_name=CLUSTER)


def topics_in(reply: Command) -> list[str]:
    assert reply.code == ResponseCode.SUCCESS
    return sorted(TopicList.decode(reply.body).topic_list)


def route(desk: Any, topic: str, **how: Any) -> TopicRouteData | None:
    version = how.pop("version", 409)
    reply = desk.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute(topic=topic, **how), version=version)
    if reply.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    assert reply.code == ResponseCode.SUCCESS
    return TopicRouteData.decode(reply.body)


def test_all_requests_of_rocketmqs_name_server_are_in_the_table(desk: Any) -> None:
    assert set(desk.handlers) == {
        *(100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224),
        *(304, 311, 312, 313, 318, 319, 322, 327, 901, 904),
    }


# ------------------------------------------------------------------------------------------------ routes


def test_a_client_from_4_9_4_on_gets_quoted_broker_ids_and_an_older_one_bare_ones(desk: Any) -> None:
    desk.register("t", "u")
    ask = RequestCode.GET_ROUTEINFO_BY_TOPIC
    assert b'"brokerAddrs":{"0":"10.0.0.1:10911"}' in desk.ask(ask, GetRoute(topic="t"), version=401).body
    assert b'"brokerAddrs":{0:"10.0.0.1:10911"}' in desk.ask(ask, GetRoute(topic="t"), version=400).body
    standard = GetRoute(topic="t", accept_standard_json_only=True)
    assert b'{"0":"10.0.0.1:10911"}' in desk.ask(ask, standard, version=121).body


def test_a_binary_question_gets_a_binary_answer(desk: Any) -> None:
    desk.register("t", "u")
    reply = desk.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute(topic="t"), serialization=1)
    assert reply.serialization == 1
    assert json.loads(reply.body)["queueDatas"][0]["readQueueNums"] == 4


def test_an_unknown_topic_is_17_and_named(desk: Any) -> None:
    reply = desk.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute(topic="no\nsuch"))
    assert reply.code == ResponseCode.TOPIC_NOT_EXIST
    assert r"no\nsuch" in (reply.remark or "")


def test_a_route_without_a_topic_is_refused_by_the_fields_name(desk: Any) -> None:
    reply = desk.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "topic" in (reply.remark or "")


@pytest.mark.parametrize("version", [400, 401])
def test_what_is_answered_from_memory_is_what_is_in_the_tables(desk: Any, version: int) -> None:
    desk.register("t", "u")
    assert route(desk, "t", version=version) == desk.routes.route("t")
    desk.register(id=1, address=B)
    assert route(desk, "t", version=version) == desk.routes.route("t")
    desk.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, BrokerNamed(broker_name="broker-a"))
    assert route(desk, "t", version=version) == desk.routes.route("t")
    desk.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicFromNameServer(topic="t"))
    assert route(desk, "t", version=version) is None


def test_the_order_configuration_is_in_the_route_only_when_enabled(make_desk: Any) -> None:
    for enabled in (False, True):
        desk = make_desk(order_message_enable=enabled)
        desk.register("t", "u")
        assert not route(desk, "t").order_topic_conf  # type: ignore[union-attr]
        desk.ask(
            RequestCode.PUT_KV_CONFIG, PutKv(namespace="ORDER_TOPIC_CONFIG", key="t", value="broker-a:4")
        )
        assert bool(route(desk, "t").order_topic_conf) is enabled  # type: ignore[union-attr]
        desk.ask(RequestCode.DELETE_KV_CONFIG, KvKey(namespace="ORDER_TOPIC_CONFIG", key="t"))
        assert not route(desk, "t").order_topic_conf  # type: ignore[union-attr]


def test_a_setting_changed_remotely_shows_in_routes_that_were_encoded_before(desk: Any) -> None:
    desk.register("t", "u")
    desk.ask(RequestCode.PUT_KV_CONFIG, PutKv(namespace="ORDER_TOPIC_CONFIG", key="t", value="broker-a:4"))
    assert not route(desk, "t").order_topic_conf  # type: ignore[union-attr]
    desk.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true")
    assert route(desk, "t").order_topic_conf == "broker-a:4"  # type: ignore[union-attr]


def test_a_client_in_a_zone_is_shown_the_brokers_of_its_zone_and_those_without_master(desk: Any) -> None:
    desk.register("t", "u", zone_name="Z1")
    desk.register("t", "u", name="far", address=B, zone_name="z2")
    desk.register("t", "u", name="headless", id=1, address=C, zone_name="z2", enable_acting_master=True)
    near = route(desk, "t", zone_mode=True, zone_name="z1")
    assert near is not None
    assert {each.broker_name for each in near.broker_datas} == {"broker-a", "headless"}
    assert {each.broker_name for each in near.queue_datas} == {"broker-a", "headless"}
    assert len(route(desk, "t", zone_mode=False, zone_name="z1").broker_datas) == 3  # type: ignore[union-attr]


def test_routes_wait_until_brokers_had_time_to_register_when_asked_to(make_desk: Any) -> None:
    desk = make_desk(need_wait_for_service=True, wait_seconds_for_service=45)
    desk.register("t", "u")
    reply = desk.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute(topic="t"))
    assert (reply.code, "not ready" in (reply.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    desk.clock.advance(45)
    assert route(desk, "t") is not None


# ---------------------------------------------------------------------------------- brokers come and go


def test_a_slave_is_answered_its_masters_addresses(desk: Any) -> None:
    assert dict(desk.register("t", "u").fields) == {}
    assert dict(desk.register(id=1, address=B).fields) == {"masterAddr": A, "haServerAddr": "10.0.0.1:10912"}


def test_the_order_configuration_goes_out_with_a_registration(desk: Any) -> None:
    assert desk.register("t", "u").body == b""
    desk.ask(RequestCode.PUT_KV_CONFIG, PutKv(namespace="ORDER_TOPIC_CONFIG", key="t", value="broker-a:4"))
    assert KVTable.decode(desk.register("t", "u").body).table == {"t": "broker-a:4"}
    desk.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"returnOrderTopicConfigToBroker=false")
    assert desk.register("t", "u").body == b""


def test_a_wrong_crc_is_refused_and_nothing_is_registered(desk: Any) -> None:
    reply = desk.register("t", "u", crc=12345)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "crc32 not match: the header says 12345" in (reply.remark or "")
    assert route(desk, "t") is None
    assert desk.routes.broker_count == 0


def test_there_is_a_most_of_brokers(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "BROKERS_MAX", 1)
    desk.register("t", "u")
    reply = desk.register("t", "u", name="broker-b", address=B)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "register broker 'broker-b' failed: 1 brokers are here" in (reply.remark or "")
    assert desk.register("t", "u", counter=2).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("mapping", [b"7", b'"x"', b"[]", b'{"currIdMap":{"a":1}}', b'{"totalQueues":-1}'])
def test_a_registration_with_a_bad_static_topic_changes_nothing(desk: Any, mapping: bytes) -> None:
    body = (
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{"topicName":"t"},"u":{"topicName":"u"}},'
        b'"topicQueueMappingInfoMap":{"good":{},"stat":%b}}}'
    )
    reply = desk.register(body=body % mapping)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "static topic 'stat'" in (reply.remark or "")
    assert desk.routes.broker_count == 0
    assert desk.routes.members("broker-a") == {}
    assert desk.routes.cluster_info() == ClusterInfo()
    assert route(desk, "t") is None
    assert desk.register(body=body % b"{}").code == ResponseCode.SUCCESS


def test_the_order_configuration_never_outgrows_the_reply_to_a_registration(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_module, "VALUE_CHARACTERS_MAX", 2**20)
    values = [
        desk.ask(
            RequestCode.PUT_KV_CONFIG, PutKv(namespace="ORDER_TOPIC_CONFIG", key=f"k{n}", value="v" * 2**17)
        )
        for n in range(40)
    ]
    assert [each.code for each in values].count(ResponseCode.SUCCESS) == 31
    assert "'ORDER_TOPIC_CONFIG' would take" in (values[-1].remark or "")
    assert desk.register("t", "u").code == ResponseCode.SUCCESS


def test_a_broker_is_gone_as_soon_as_it_unregisters(desk: Any) -> None:
    desk.register("t", "u")
    assert desk.ask(RequestCode.UNREGISTER_BROKER, identity()).code == ResponseCode.SUCCESS
    assert route(desk, "t") is None


def test_a_broker_is_gone_as_soon_as_its_connection_is(desk: Any, make_peer: Any) -> None:
    peer, other = make_peer(), make_peer()
    desk.register("t", "u", peer=peer)
    desk.register("t", "u", peer=peer)
    desk.register("t", "u", name="broker-b", address=B, peer=other)
    peer.close("gone")
    left = route(desk, "t")
    assert left is not None
    assert [each.broker_name for each in left.broker_datas] == ["broker-b"]


def test_the_end_of_an_old_connection_does_not_take_a_broker_that_has_a_new_one(
    desk: Any, make_peer: Any
) -> None:
    old, new = make_peer(), make_peer()
    desk.register("t", "u", peer=old)
    desk.register("t", "u", peer=new)
    old.close("gone")
    assert route(desk, "t") is not None
    new.close("gone")
    assert route(desk, "t") is None


def test_a_silent_broker_expires_after_two_minutes_and_its_connection_is_closed(
    desk: Any, make_peer: Any
) -> None:
    peer = make_peer()
    desk.register("t", "u", peer=peer)
    desk.clock.advance(120)
    desk.brokers.scan()
    assert route(desk, "t") is not None
    desk.clock.advance(0.1)
    desk.brokers.scan()
    assert route(desk, "t") is None
    assert not peer.is_open


@pytest.mark.parametrize(
    ("code", "header"),
    [
        (RequestCode.QUERY_DATA_VERSION, identity()),
        (
            RequestCode.BROKER_HEARTBEAT,
            BrokerHeartbeat(cluster_name=CLUSTER, broker_address=A, broker_name="broker-a"),
        ),
        (RequestCode.REGISTER_BROKER, None),
    ],
)
def test_every_sign_of_life_counts(desk: Any, make_peer: Any, code: int, header: Any) -> None:
    peer = make_peer()
    desk.register("t", "u", peer=peer)
    for _ in range(5):
        desk.clock.advance(100)
        if header is None:
            desk.register("t", "u", peer=peer)
        else:
            assert desk.ask(code, header).code == ResponseCode.SUCCESS
        desk.brokers.scan()
    assert route(desk, "t") is not None


def test_a_broker_may_name_its_own_patience(desk: Any) -> None:
    desk.register("t", "u", heartbeat_timeout_ms=10_000)
    desk.clock.advance(10.1)
    desk.brokers.scan()
    assert route(desk, "t") is None


def test_a_wall_clock_that_jumps_expires_nobody(desk: Any) -> None:
    desk.register("t", "u")
    desk.clock.jump_ms(24 * 3600 * 1000)
    desk.brokers.scan()
    assert route(desk, "t") is not None


def test_the_data_version_is_changed_for_a_broker_nobody_knows_also_after_a_restart(desk: Any) -> None:
    ask, known = RequestCode.QUERY_DATA_VERSION, DataVersion(counter=1, timestamp=1)
    reply = desk.ask(ask, identity(), known.encode())
    assert (reply.fields["changed"], reply.body) == ("true", b"")
    desk.register("t", "u")
    reply = desk.ask(ask, identity(), known.encode())
    assert reply.fields["changed"] == "false"
    assert DataVersion.decode(reply.body) == known
    assert desk.ask(ask, identity(), DataVersion(counter=2).encode()).fields["changed"] == "true"
    assert desk.ask(ask, identity()).fields["changed"] == "true"
    desk.open()
    assert desk.ask(ask, identity(), known.encode()).fields["changed"] == "true"
    assert route(desk, "t") is None
    desk.register("t", "u")
    assert route(desk, "t") is not None


def test_cluster_and_members_are_listed_with_bare_ids(desk: Any) -> None:
    desk.register("t", "u")
    desk.register(id=1, address=B)
    reply = desk.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert b'{0:"10.0.0.1:10911",1:"10.0.0.2:10911"}' in reply.body
    info = ClusterInfo.decode(reply.body)
    assert info.cluster_addr_table == {CLUSTER: ["broker-a"]}
    assert info.broker_addr_table["broker-a"].broker_addrs == {0: A, 1: B}
    reply = desk.ask(
        RequestCode.GET_BROKER_MEMBER_GROUP, BrokerGroup(cluster_name=CLUSTER, broker_name="broker-a")
    )
    assert b'{0:"10.0.0.1:10911",1:"10.0.0.2:10911"}' in reply.body
    reply = desk.ask(RequestCode.GET_BROKER_MEMBER_GROUP, BrokerGroup(cluster_name="x", broker_name="y"))
    group = BrokerMemberGroupReply.decode(reply.body).broker_member_group
    assert (group.broker_addrs, group.broker_name, group.cluster) == ({}, "y", "x")  # type: ignore[union-attr]


def test_members_hear_of_a_new_lowest_id_when_asked_for(make_desk: Any) -> None:
    for enabled in (False, True):
        desk = make_desk(notify_min_broker_id_changed=enabled)
        desk.register("t", "u", enable_acting_master=True)
        desk.register(id=1, address=B, enable_acting_master=True)
        desk.register(id=2, address=C, enable_acting_master=True)
        assert desk.news == []
        desk.ask(RequestCode.UNREGISTER_BROKER, identity())
        if not enabled:
            assert desk.news == []
            continue
        assert {address for address, _ in desk.news} == {B, C}
        for _, news in desk.news:
            assert (news.code, news.is_one_way) == (RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, True)
            header = news.parse(MinBrokerIdChanged)
            assert (header.min_broker_id, header.min_broker_address) == (1, B)
            assert header.offline_broker_address == A


def test_write_permission_is_wiped_and_added_with_counts(desk: Any) -> None:
    desk.register("t", "u")
    named = BrokerNamed(broker_name="broker-a")
    assert desk.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, named).fields == {"wipeTopicCount": "2"}
    assert route(desk, "t").queue_datas[0].perm == 4  # type: ignore[union-attr]
    assert desk.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, named).fields == {"addTopicCount": "2"}
    assert route(desk, "t").queue_datas[0].perm == 6  # type: ignore[union-attr]


# ------------------------------------------------------------------------------------------------ topics


def test_topics_are_listed(desk: Any) -> None:
    desk.register("t", "u")
    desk.register("t", "v", name="broker-b", address=B, cluster="other")
    assert topics_in(desk.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)) == ["t", "u", "v"]
    assert topics_in(desk.ask(RequestCode.GET_TOPICS_BY_CLUSTER, ClusterNamed(cluster="other"))) == ["t", "v"]
    reply = desk.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert topics_in(reply) == ["DefaultCluster", "broker-a", "broker-b", "other"]
    assert TopicList.decode(reply.body).broker_addr == A
    for code in (311, 312, 313):
        assert topics_in(desk.ask(code)) == []


def test_topic_lists_can_be_switched_off(desk: Any) -> None:
    desk.register("t", "u")
    desk.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"enableTopicList=false\nenableAllTopicList=false")
    for code, header in (
        (206, None),
        (224, ClusterNamed(cluster=CLUSTER)),
        (311, None),
        (312, None),
        (313, None),
    ):
        reply = desk.ask(code, header)
        assert (reply.code, (reply.remark or "")[:7]) == (ResponseCode.SYSTEM_ERROR, "disable")
    assert topics_in(desk.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)) == ["DefaultCluster", "broker-a"]


def test_a_single_topic_is_put_in_place_and_taken_away(desk: Any) -> None:
    desk.register("t", "u")
    queues = QueueData(broker_name="broker-a", perm=6, read_queue_nums=2, write_queue_nums=2)
    body = TopicRouteData(queue_datas=[queues]).encode()
    assert desk.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, TopicNamed(topic="new"), body).code == 0
    assert route(desk, "new").queue_datas == [queues]  # type: ignore[union-attr]
    for header in (
        DeleteTopicFromNameServer(topic="new", cluster_name="elsewhere"),
        DeleteTopicFromNameServer(topic="new", cluster_name=CLUSTER),
    ):
        assert desk.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, header).code == 0
    assert route(desk, "new") is None


@pytest.mark.parametrize(
    ("topic", "perm", "remark"), [("a/b", 6, "a/b"), ("t", 99, "permission 99"), ("", 6, "blank")]
)
def test_a_bad_single_topic_is_refused_by_name(desk: Any, topic: str, perm: int, remark: str) -> None:
    desk.register("t", "u")
    queues = QueueData(broker_name="broker-a", perm=perm, read_queue_nums=2, write_queue_nums=2)
    body = TopicRouteData(queue_datas=[queues]).encode()
    reply = desk.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, TopicNamed(topic=topic), body)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert remark in (reply.remark or "")


# ------------------------------------------------------------------------- key-value and own configuration


def test_key_values_are_put_read_listed_and_deleted_and_outlive_a_restart(desk: Any) -> None:
    key = KvKey(namespace="n", key="k")
    reply = desk.ask(RequestCode.GET_KV_CONFIG, key)
    assert (reply.code, reply.remark) == (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: n Key: k")
    assert desk.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, KvNamespace(namespace="n")).code == 22
    assert desk.ask(RequestCode.PUT_KV_CONFIG, PutKv(namespace="n", key="k", value="v")).code == 0
    desk.open()
    assert desk.ask(RequestCode.GET_KV_CONFIG, key).fields == {"value": "v"}
    reply = desk.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, KvNamespace(namespace="n"))
    assert KVTable.decode(reply.body).table == {"k": "v"}
    assert desk.ask(RequestCode.DELETE_KV_CONFIG, key).code == 0
    desk.open()
    assert desk.ask(RequestCode.GET_KV_CONFIG, key).code == ResponseCode.QUERY_NOT_FOUND


def test_own_settings_are_shown_and_a_dangerous_one_is_16(desk: Any) -> None:
    assert b"listenPort=9876\n" in desk.ask(RequestCode.GET_NAMESRV_CONFIG).body
    reply = desk.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"kvConfigPath=/tmp/evil")
    assert reply.code == ResponseCode.NO_PERMISSION
    assert "kvConfigPath" in (reply.remark or "")
    assert desk.files.list("") == []
    assert desk.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"supportActingMaster=true").code == 0
    assert b"supportActingMaster=true\n" in desk.ask(RequestCode.GET_NAMESRV_CONFIG).body
    assert desk.ask(RequestCode.UPDATE_NAMESRV_CONFIG).code == 0
