"""Typed bodies, and what peers make of them."""

from __future__ import annotations

import struct
import zlib

import pytest
from msgspec import UNSET

from kourou.errors import DecompressionLimit, ProtocolError
from kourou.protocol.bodies import (
    BrokerData,
    CheckClient,
    ConsumedDirectly,
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumerData,
    ConsumerList,
    ConsumerOffsets,
    ConsumeType,
    DataVersion,
    DelayOffsets,
    GroupTable,
    HeartbeatData,
    KVConfig,
    KVTable,
    LockedQueues,
    LockQueues,
    MessageModel,
    MessageQueue,
    ProducerData,
    QueueData,
    QueueOffsets,
    RegisterBrokerBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicList,
    TopicRouteData,
    TopicTable,
    register_crc,
)

QUEUE = MessageQueue(broker_name="b", queue_id=1, topic="t")
V4_9_8, V5_0_0 = 409, 413


# ------------------------------------------------------------------------------------------------- routes


def route() -> TopicRouteData:
    return TopicRouteData(
        broker_datas=[BrokerData(broker_addrs={0: "h:1", 3: "h:2"}, broker_name="b", cluster="c")],
        queue_datas=[QueueData(broker_name="b", perm=6, read_queue_nums=4, write_queue_nums=4)],
    )


def test_a_route_is_standard_json_for_clients_that_say_so_or_are_new_enough() -> None:
    assert b'"brokerAddrs":{"0":"h:1","3":"h:2"}' in route().encode_for(401)
    assert b'"brokerAddrs":{"0":"h:1","3":"h:2"}' in route().encode_for(121, accept_standard_json_only=True)
    assert b'"brokerAddrs":{0:"h:1",3:"h:2"}' in route().encode_for(400)


def test_a_route_never_holds_null() -> None:
    assert b"null" not in route().encode()
    assert b"null" not in route().encode_fastjson()
    assert b"orderTopicConf" not in route().encode()


def test_an_absent_member_is_false_and_stays_absent() -> None:
    read = TopicRouteData.decode(b'{"brokerDatas":[],"queueDatas":[],"orderTopicConf":null}')
    assert read.order_topic_conf is UNSET
    assert not read.order_topic_conf


def test_older_spellings_of_a_route_are_read() -> None:
    read = TopicRouteData.decode(
        b'{"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"topicSynFlag":0,"writeQueueNums":4}],'
        b'"brokerDatas":[{"brokerAddrs":{0:"h:1",3:"h:2"},"brokerName":"b","cluster":"c"}]}'
    )
    assert read == route()


def test_a_number_java_could_not_hold_is_refused() -> None:
    with pytest.raises(ProtocolError, match="QueueData"):
        QueueData.decode(b'{"brokerName":"b","perm":6,"readQueueNums":4294967296,"writeQueueNums":4}')


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (TopicList(topic_list=["t"]), b'{"topicList":["t"]}'),
        (TopicList(broker_addr="h:1"), b'{"brokerAddr":"h:1","topicList":[]}'),
        (KVTable(table={"k": "v"}), b'{"table":{"k":"v"}}'),
        (KVConfig(config_table={"n": {"k": "v"}}), b'{"configTable":{"n":{"k":"v"}}}'),
        (ConsumerList(consumer_id_list=["a@b"]), b'{"consumerIdList":["a@b"]}'),
        (DataVersion(counter=1, timestamp=2), b'{"counter":1,"stateVersion":0,"timestamp":2}'),
        (LockedQueues(locked=[QUEUE]), b'{"lockOKMQSet":[{"brokerName":"b","queueId":1,"topic":"t"}]}'),
        (
            LockQueues(client_id="c", consumer_group="g", mq_set=[QUEUE]),
            b'{"clientId":"c","consumerGroup":"g","mqSet":[{"brokerName":"b","queueId":1,"topic":"t"}],'
            b'"onlyThisBroker":false}',
        ),
    ],
)
def test_small_bodies_are_written_and_read(body: TopicList, text: bytes) -> None:
    assert body.encode() == text
    assert type(body).decode(text) == body


def test_a_queue_has_the_text_that_is_hashed() -> None:
    assert str(QUEUE) == "MessageQueue [topic=t, brokerName=b, queueId=1]"


# ------------------------------------------------------------------------------------------- registration


def registration(attributes: dict[str, str]) -> RegisterBrokerBody:
    topics = [
        TopicConfig(topic_name="orders", read_queue_nums=8, write_queue_nums=4, attributes=attributes),
        TopicConfig(topic_name="%RETRY%g", perm=4, topic_filter_type="MULTI_TAG"),
    ]
    return RegisterBrokerBody(
        filter_server_list=["h:9"],
        topic_table=TopicTable(
            data_version=DataVersion(counter=7, timestamp=1700000000000),
            topic_config_table={topic.topic_name: topic for topic in topics},
        ),
    )


def test_a_registration_comes_back_plain_and_compressed() -> None:
    body = registration({"+message.type": "FIFO"})
    assert RegisterBrokerBody.decode(body.encode()) == body
    assert RegisterBrokerBody.decode_compressed(body.encode_compressed(V4_9_8), V4_9_8) == body


def test_a_compressed_registration_of_5_0_ends_with_its_static_topics() -> None:
    body = registration({})
    body.topic_table.topic_queue_mapping_info_map = {"static": {"topic": "static", "currIdMap": {"0": 1}}}
    data = body.encode_compressed(V5_0_0)
    assert RegisterBrokerBody.decode_compressed(data, V5_0_0) == body
    with pytest.raises(ProtocolError, match="follow its end"):
        RegisterBrokerBody.decode_compressed(data, V4_9_8)


def test_a_compressed_registration_of_4_9_has_no_attributes() -> None:
    """Laid out by hand after the 4.9 branch's RegisterBrokerBody.encode."""
    parts = [b'{"counter":1,"timestamp":2}', struct.pack(">i", 1), b"t 4 8 6 SINGLE_TAG", b"[]"]
    plain = b"".join(part if len(part) == 4 else struct.pack(">i", len(part)) + part for part in parts)
    read = RegisterBrokerBody.decode_from(zlib.compress(plain), V4_9_8, compressed=True)
    assert read.topic_table.data_version == DataVersion(counter=1, timestamp=2)
    assert read.topic_table.topic_config_table == {
        "t": TopicConfig(topic_name="t", read_queue_nums=4, write_queue_nums=8)
    }


def test_a_registration_of_5_x_has_members_of_its_own() -> None:
    """As RocketMQ 5.x writes it, static topics with bare integer keys included."""
    read = RegisterBrokerBody.decode(
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"stateVersion":0,'
        b'"timestamp":2},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":3},"topicConfigTable":'
        b'{"t":{"attributes":{"+message.type":"FIFO"},"order":false,"perm":6,"readQueueNums":1,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"t","topicSysFlag":0,"writeQueueNums":1}},'
        b'"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{"t":{"bname":"b","currIdMap":{0:1},'
        b'"epoch":1,"topic":"t","totalQueues":1}}}}'
    )
    table = read.topic_table
    assert table.topic_config_table["t"].attributes == {"+message.type": "FIFO"}
    assert table.mapping_data_version == DataVersion(timestamp=3)
    assert table.topic_queue_mapping_info_map == {
        "t": {"bname": "b", "currIdMap": {"0": 1}, "epoch": 1, "topic": "t", "totalQueues": 1}
    }


def test_a_broker_before_3_0_11_sends_its_topics_alone() -> None:
    table = registration({}).topic_table
    assert RegisterBrokerBody.decode_from(table.encode(), 36).topic_table == table
    assert RegisterBrokerBody.decode_from(b"", V4_9_8) == RegisterBrokerBody()


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        struct.pack(">i", -1),
        struct.pack(">i", 100) + b"{}",
        struct.pack(">i", 2) + b"{}" + struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 2) + b"{}" + struct.pack(">i", -1),
        struct.pack(">i", 2) + b"{}" + struct.pack(">ii", 1, 5) + b"t 4 8",
        struct.pack(">i", 2)
        + b"{}"
        + struct.pack(">ii", 1, 18)
        + b"t x 8 6 SINGLE_TAG"
        + struct.pack(">i", 0),
        struct.pack(">i", 2) + b"{}" + struct.pack(">ii", 0, 2) + b"[]" + b"more",
    ],
)
def test_a_compressed_registration_that_lies_is_refused(plain: bytes) -> None:
    with pytest.raises(ProtocolError):
        RegisterBrokerBody.decode_compressed(zlib.compress(plain), V4_9_8)


def test_a_registration_that_inflates_without_end_is_refused() -> None:
    with pytest.raises(DecompressionLimit):
        RegisterBrokerBody.decode_compressed(zlib.compress(bytes(64 * 1024 * 1024)), V4_9_8)


def test_a_registration_has_a_crc_of_31_bits() -> None:
    assert register_crc(b"a") == 1756872259


def test_a_data_version_moves_with_every_change() -> None:
    first = DataVersion(counter=1, timestamp=5)
    assert first.next(now_ms=9) == DataVersion(counter=2, timestamp=9)
    assert first != DataVersion(counter=1, timestamp=6)


# ---------------------------------------------------------------------------------------------- heartbeats


def heartbeat() -> HeartbeatData:
    subscription = SubscriptionData(code_set=[2598919], sub_string="TagA", tags_set=["TagA"], topic="t")
    consumer = ConsumerData(
        consume_type=ConsumeType.PUSH,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        group_name="g",
        message_model=MessageModel.BROADCASTING,
        subscription_data_set=[subscription],
    )
    return HeartbeatData(
        client_id="ip@1", consumer_data_set=[consumer], producer_data_set=[ProducerData(group_name="p")]
    )


def test_a_heartbeat_of_java_is_read_and_written() -> None:
    """Member by member as fastjson writes HeartbeatData of 5.x."""
    java = (
        b'{"clientID":"ip@1","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":'
        b'"CONSUME_PASSIVELY","groupName":"g","messageModel":"BROADCASTING","subscriptionDataSet":[{'
        b'"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA","subVersion":0,'
        b'"tagsSet":["TagA"],"topic":"t"}],"unitMode":false}],"heartbeatFingerprint":0,'
        b'"producerDataSet":[{"groupName":"p"}],"withoutSub":false}'
    )
    assert HeartbeatData.decode(java) == heartbeat()
    assert heartbeat().encode() == java


def test_a_heartbeat_of_the_cpp_client_is_read() -> None:
    """Ordinals, a quoted version, empty sets left out, a newline at the end."""
    read = HeartbeatData.decode(
        b'{"clientID":"ip@1","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"g",'
        b'"messageModel":0,"subscriptionDataSet":[{"subString":"TagA","subVersion":"1700000000000",'
        b'"topic":"t"}]}]}\n'
    )
    [consumer] = read.consumer_data_set
    assert consumer.consume_from_where is ConsumeFromWhere.FIRST_OFFSET
    assert (consumer.consume_type, consumer.message_model) == (ConsumeType.PUSH, MessageModel.BROADCASTING)
    assert consumer.subscription_data_set[0].sub_version == 1700000000000
    assert consumer.subscription_data_set[0].expression_type == "TAG"
    assert read.producer_data_set == []


def test_a_heartbeat_of_the_go_client_is_read() -> None:
    """Codes as text, nulls for empty sets, a version in nanoseconds."""
    read = HeartbeatData.decode(
        b'{"clientID":"ip@1","producerDataSet":null,"consumerDataSet":[{"groupName":"g","consumeType":'
        b'"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        b'"subscriptionDataSet":[{"classFilterMode":false,"topic":"t","subString":"TagA","tagsSet":null,'
        b'"codeSet":["2598919"],"subVersion":1700000000000000000,"expressionType":"TAG"}],"unitMode":false}]}'
    )
    [consumer] = read.consumer_data_set
    assert consumer.message_model is MessageModel.CLUSTERING
    assert consumer.subscription_data_set[0].code_set == [2598919]
    assert consumer.subscription_data_set[0].tags_set == []


@pytest.mark.parametrize(("written", "name"), [("1", "CR_LATER"), ('"CR_LATER"', "CR_LATER")])
def test_what_became_of_a_message_is_read_by_its_name_and_by_its_number(written: str, name: str) -> None:
    """Java members write the name, Go members the number."""
    read = ConsumedDirectly.decode(
        b'{"order":false,"autoCommit":true,"consumeResult":%b,"remark":"","spentTimeMills":3}'
        % written.encode()
    )
    assert (read.consume_result, read.spent_time_mills) == (name, 3)


@pytest.mark.parametrize("written", ["6", "-1", "true", "[]"])
def test_a_result_that_there_is_not_is_refused(written: str) -> None:
    with pytest.raises(ProtocolError):
        ConsumedDirectly.decode(b'{"consumeResult":%b}' % written.encode())


@pytest.mark.parametrize("value", ["7", "-1", '"ELSEWHERE"', "[]"])
def test_an_unknown_enum_is_refused(value: str) -> None:
    with pytest.raises(ProtocolError):
        ConsumerData.decode(f'{{"groupName":"g","messageModel":{value}}}'.encode())


def test_enums_are_read_in_any_case() -> None:
    read = ConsumerData.decode(b'{"groupName":"g","messageModel":"Broadcasting"}')
    assert read.message_model is MessageModel.BROADCASTING


def test_an_unknown_place_to_start_from_does_not_keep_a_client_out() -> None:
    read = ConsumerData.decode(b'{"groupName":"g","consumeFromWhere":"UNKOWN"}')
    assert read.consume_from_where is ConsumeFromWhere.LAST_OFFSET


def test_enums_are_written_as_names() -> None:
    connection = ConsumerConnection(consume_type=ConsumeType.PULL, message_model=MessageModel.CLUSTERING)
    assert b'"consumeType":"CONSUME_ACTIVELY"' in connection.encode()
    assert b'"messageModel":"CLUSTERING"' in connection.encode_fastjson()


def test_a_subscription_to_be_checked_is_read() -> None:
    read = CheckClient.decode(
        b'{"clientId":"c","group":"g","subscriptionData":{"topic":"t","subString":"a > 1"}}'
    )
    assert (read.client_id, read.subscription_data.sub_string) == ("c", "a > 1")


# ------------------------------------------------------------------------------------------------ offsets


def test_consumer_offsets_have_bare_queue_ids_on_apache_disks() -> None:
    """As in a `consumerOffset.json` of 4.9.8, tab-indented."""
    read = ConsumerOffsets.decode(
        b'{\n\t"offsetTable":{"T@g":{0:250,1:9\n\t\t},"U@g":{"2":9223372036854775807}}\n}'
    )
    assert read.offset_table == {"T@g": {0: 250, 1: 9}, "U@g": {2: 2**63 - 1}}
    assert ConsumerOffsets(offset_table={"T@g": {0: 5}}).encode() == b'{"offsetTable":{"T@g":{"0":5}}}'
    assert ConsumerOffsets(offset_table={"T@g": {0: 5}}).encode_fastjson() == b'{"offsetTable":{"T@g":{0:5}}}'


def test_delay_offsets_are_read() -> None:
    assert DelayOffsets.decode(b'{"offsetTable":{1:5,18:7}}').offset_table == {1: 5, 18: 7}


def test_groups_keep_what_5_x_knows_of_them() -> None:
    read = GroupTable.decode(
        b'{"dataVersion":{"counter":1,"timestamp":2},"subscriptionGroupTable":{"g":{"groupName":"g",'
        b'"groupRetryPolicy":{"type":"CUSTOMIZED"},"retryMaxTimes":3}}}'
    )
    assert read.subscription_group_table == {"g": SubscriptionGroupConfig(group_name="g", retry_max_times=3)}
    assert GroupTable.decode(read.encode()) == read


def test_offsets_by_queue_are_a_list_for_cpp_and_a_map_for_java() -> None:
    body = QueueOffsets(offset_table={QUEUE: 5})
    assert body.encode() == b'{"offsetTable":[{"brokerName":"b","offset":5,"queueId":1,"topic":"t"}]}'
    assert body.encode_fastjson() == b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"t"}:5}}'
    assert QueueOffsets.decode(body.encode()) == QueueOffsets.decode(body.encode_fastjson()) == body
    assert QueueOffsets.decode(b'{"offsetTable":{}}') == QueueOffsets.decode(b"{}") == QueueOffsets()


@pytest.mark.parametrize(
    "text", [b"[]", b'{"offsetTable":5}', b'{"offsetTable":{"x":5}}', b'{"offsetTable":[{}]}']
)
def test_offsets_by_something_else_are_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        QueueOffsets.decode(text)
