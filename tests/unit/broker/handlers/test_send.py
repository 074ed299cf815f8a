"""Taking messages in, one at a time."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import BINARY
from kourou.protocol.headers import SendMessage, SendReply
from kourou.protocol.message_id import parse_offset_id
from kourou.protocol.names import HALF_TOPIC
from kourou.protocol.record import Record, decode_all, encode_batch, pack_host
from tests.unit.broker.broker_world import PORT, BrokerWorld, Peer, send


def stored(peer: Peer, topic: str = "orders", queue_id: int = 0) -> Record:
    """The newest message of a queue."""
    return peer.records(topic, queue_id)[-1]


# -------------------------------------------------------------------------------------- the ways to say it


@pytest.mark.parametrize("serialization", [0, BINARY])
def test_a_message_is_stored_as_it_was_sent_in_either_encoding(peer: Peer, serialization: int) -> None:
    reply = peer.send(
        "orders", b"a body", flag=5, sys_flag=1, properties={"KEYS": "42"}, serialization=serialization
    )
    assert (reply.code, reply.serialization) == (0, serialization)
    record = stored(peer)
    assert (record.body, record.flag, record.sys_flag & 1) == (b"a body", 5, 1)
    assert record.born_ms == 1_600_000_000_000
    assert record.property_table()["KEYS"] == "42"
    assert record.stored_at() == ("127.0.0.1", PORT)
    assert record.born_at() == peer.transport.local


def test_messages_of_a_topic_of_many_tags_say_so_as_the_originals_do(peer: Peer, world: BrokerWorld) -> None:
    """One alone, several at once, a batch, a half message that is committed later."""
    many = TopicConfig(topic_name="many", topic_filter_type="MULTI_TAG")
    world.broker.topics.save({"many": many})
    items = encode_batch([(0, b"batched", b"TAGS\x01c || d\x02")])
    peer.begin(
        *(send("many", b"%d" % number, sys_flag=1, properties={"TAGS": "a || b"}) for number in range(3)),
        send("orders", b"of a tag"),
        send("many", items, code=RequestCode.SEND_BATCH_MESSAGE, batch=True),
    )
    half = send("many", b"half", sys_flag=4, properties={"TRAN_MSG": "true", "PGROUP": "senders"})
    assert peer.begin(half).reply.code == 0
    assert [record.sys_flag & 0xF for record in peer.records("many")] == [3, 3, 3, 2]
    assert stored(peer).sys_flag & 0xF == 0
    [waiting] = decode_all(b"".join(world.broker.store.read(HALF_TOPIC, 0, 0, 1).messages))
    assert waiting.sys_flag & 0xF == 2


def test_the_older_request_with_long_names_does_the_same(peer: Peer) -> None:
    header = SendMessage(
        producer_group="senders",
        topic="orders",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=3,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties="TAGS\x01new\x02",
    )
    reply = peer.ask(RequestCode.SEND_MESSAGE, header, b"old style")
    assert reply.code == 0
    assert reply.parse(SendReply).queue_id == 3
    assert stored(peer, queue_id=3).body == b"old style"


def test_the_node_clients_bare_numbers_and_booleans_are_read(peer: Peer) -> None:
    fields = {"a": "g", "b": "orders", "c": "TBW102", "d": 4, "e": 2, "f": 0, "g": 1_600_000_000_000, "h": 0}
    more = {"i": "TAGS\x01new\x02", "j": 0, "k": False, "m": False}
    header = {"code": 310, "language": "JAVA", "version": 121, "flag": 0, "extFields": {**fields, **more}}
    reply = peer.begin_raw(header, b"from node").reply
    assert (reply.code, reply.fields["queueId"]) == (0, "2")
    assert stored(peer, queue_id=2).find(b"TAGS") == b"new"


def test_the_cpp_clients_zeros_and_ones_are_read_as_booleans(peer: Peer) -> None:
    fields = {
        **{"producerGroup": "g", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4"},
        **{"queueId": "1", "sysFlag": "0", "bornTimestamp": "5", "flag": "0", "properties": "TAGS\x01x\x02"},
        **{"reconsumeTimes": "0", "unitMode": "0", "batch": "0"},
    }
    header = {"code": 10, "language": "CPP", "version": 395, "flag": 0, "extFields": fields}
    reply = peer.begin_raw(header, b"from C++").reply
    assert reply.code == 0, reply.remark
    assert stored(peer, queue_id=1).body == b"from C++"


def test_a_one_way_send_is_stored_and_not_answered(peer: Peer) -> None:
    command = send("orders", b"quiet")
    command.flag = 2
    assert not peer.begin(command).is_answered
    assert peer.bodies() == [b"quiet"]


def test_the_fast_port_takes_messages_too(world: BrokerWorld) -> None:
    world.start()
    assert world.connect(fast=True).send("orders", b"fast").code == 0
    assert world.connect().bodies() == [b"fast"]


# ------------------------------------------------------------------------------------------------ the answer


def test_the_answer_says_where_the_message_lies(peer: Peer) -> None:
    first = peer.send("orders", b"one", queue_id=2)
    second = peer.send("orders", b"two", queue_id=2, properties={"UNIQ_KEY": "7F0000010007"})
    reply = second.parse(SendReply)
    assert (first.parse(SendReply).queue_offset, reply.queue_offset, reply.queue_id) == (0, 1, 2)
    assert reply.transaction_id == "7F0000010007"
    assert (second.fields["MSG_REGION"], second.fields["TRACE_ON"]) == ("DefaultRegion", "true")
    place = parse_offset_id(reply.message_id)
    assert place.store_host == pack_host("127.0.0.1", PORT)
    assert place.physical_offset == stored(peer, queue_id=2).physical_offset


def test_an_unusual_unique_id_does_not_break_the_answers_json(peer: Peer) -> None:
    reply = peer.send("orders", b"x", properties={"UNIQ_KEY": 'a"},"code":"9\\'})
    assert reply.code == 0
    assert reply.parse(SendReply).transaction_id == 'a"},"code":"9\\'


def test_all_messages_of_one_write_are_answered_each_under_its_own_number(peer: Peer) -> None:
    commands = [send("orders", b"%d" % number) for number in range(50)]
    last = peer.begin(*commands)
    assert last.reply.fields["queueOffset"] == "49"
    assert peer.bodies(queue_offset=40) == [b"%d" % number for number in range(40, 50)]


# --------------------------------------------------------------------------------------- properties as stored


def test_what_a_broker_adds_to_the_properties_is_there_once(peer: Peer) -> None:
    peer.send(properties={"KEYS": "1", "MSG_REGION": "elsewhere", "CLUSTER": "c", "TRACE_ON": "false"})
    record = stored(peer)
    assert record.properties.count(b"MSG_REGION\x01") == 1
    assert record.properties.count(b"TRACE_ON\x01") == 1
    assert record.properties.count(b"CLUSTER\x01") == 1
    table = record.property_table()
    assert (table["MSG_REGION"], table["TRACE_ON"], table["CLUSTER"]) == (
        "DefaultRegion",
        "true",
        "DefaultCluster",
    )
    assert table["KEYS"] == "1"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("WAIT\x01true\x02KEYS\x011\x02", None),
        ("KEYS\x011\x02WAIT\x01true\x02", None),
        ("KEYS\x011\x02WAIT\x01true", None),
        ("WAIT\x01true", None),
        ("NO_WAIT\x01true\x02WAIT\x01true\x02KEYS\x011\x02", None),
        ("KEYS\x011\x02WAIT\x01false\x02", "false"),
    ],
)
def test_wait_true_is_never_stored_and_wait_false_is(peer: Peer, sent: str, kept: str | None) -> None:
    assert peer.send(properties=sent).code == 0
    table = stored(peer).property_table()
    assert table.get("WAIT") == kept
    assert table.get("KEYS") == ("1" if "KEYS" in sent else None)
    assert table.get("NO_WAIT") == ("true" if "NO_WAIT" in sent else None)


def test_a_property_whose_name_only_ends_like_the_unique_ids_is_not_it(peer: Peer) -> None:
    reply = peer.send(properties={"OLD_UNIQ_KEY": "AAA", "UNIQ_KEY": "BBB"})
    assert reply.parse(SendReply).transaction_id == "BBB"
    assert stored(peer).property_table()["UNIQ_KEY"] == "BBB"
    assert peer.send(properties={"OLD_UNIQ_KEY": "AAA"}).parse(SendReply).transaction_id != "AAA"


def test_a_message_without_a_unique_id_gets_one_and_the_sender_hears_it(peer: Peer) -> None:
    replies = [peer.send("orders", b"x").parse(SendReply) for _ in range(2)]
    given = [record.property_table()["UNIQ_KEY"] for record in peer.records()]
    assert [reply.transaction_id for reply in replies] == given
    assert len(set(given)) == 2
    assert all(len(each) == 32 for each in given)


def test_a_property_whose_last_mark_is_missing_does_not_swallow_what_is_added(peer: Peer) -> None:
    peer.send(properties="KEYS\x0142")  # as 4.9.1 to 5.1.4 write it
    table = stored(peer).property_table()
    assert (table["KEYS"], table["CLUSTER"]) == ("42", "DefaultCluster")


# ------------------------------------------------------------------------------------------------- the queue


def test_a_negative_queue_id_lets_the_broker_choose_among_the_write_queues(world: BrokerWorld) -> None:
    world.start()
    world.make_topic("orders", read_queue_nums=8, write_queue_nums=3)
    peer = world.connect()
    chosen = {peer.send(queue_id=-1).parse(SendReply).queue_id for _ in range(60)}
    assert chosen == {0, 1, 2}


def test_a_queue_being_shrunk_away_is_still_written_to(world: BrokerWorld) -> None:
    world.start()
    world.make_topic("orders", read_queue_nums=4, write_queue_nums=2)
    assert world.connect().send(queue_id=3).code == 0


# ----------------------------------------------------------------------------------------------- the refusals

REFUSALS: list[tuple[dict[str, Any], int, str]] = [
    ({"topic": "no spaces"}, 29, "'no spaces' has illegal characters"),
    ({"topic": "../../etc"}, 29, "'../../etc' has illegal characters"),
    ({"topic": "t" * 128}, 29, "longer than 127"),
    ({"topic": "%RETRY%" + "g" * 121}, 29, "longer than 127"),
    ({"topic": " "}, 29, "blank"),
    ({"topic": "SCHEDULE_TOPIC_XXXX"}, 16, "'SCHEDULE_TOPIC_XXXX' is for the broker alone"),
    ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16, "RMQ_SYS_TRANS_HALF_TOPIC"),
    ({"topic": "OFFSET_MOVED_EVENT"}, 16, "OFFSET_MOVED_EVENT"),
    ({"topic": "TRANS_CHECK_MAX_TIME_TOPIC"}, 16, "TRANS_CHECK_MAX_TIME_TOPIC"),  # also while there is none
    ({"topic": "read-only"}, 16, "'read-only' is not writable: its perm is 4"),
    ({"queue_id": 4}, 29, "queueId 4 is illegal: topic 'orders' has 4 write and 4 read queues"),
    ({"body": b""}, 13, "no body"),
    ({"body": b"x" * 2049}, 13, "the body has 2049 bytes: 1 to 2048"),
    (
        {"properties": {"KEYS": "k" * 32_700}},
        13,
        "the properties have 32810 bytes with what a broker adds: at most 32746",
    ),
    ({"sys_flag": 4}, 13, "sysFlag 4 belongs to a transaction: only half messages can be sent"),
    ({"sys_flag": 8}, 13, "sysFlag 8 belongs to a transaction: only half messages can be sent"),
    ({"properties": {"DELAY": "soon"}}, 13, "property DELAY is 'soon': a whole number is needed"),
    ({"properties": {"TIMER_DELAY_SEC": "1.5"}}, 13, "property TIMER_DELAY_SEC is '1.5'"),
    ({"properties": {"TIMER_DELAY_MS": "9" * 19}}, 13, "property TIMER_DELAY_MS is '9999999999999999999'"),
    (
        {"properties": {"TIMER_DELAY_SEC": "3456001"}},
        13,
        "'3456001', a time 3456001 s from now: at most 3456000",
    ),
    ({"properties": {"DELAY": "1", "KEYS": "k" * 32_600}}, 13, "with what a delayed message needs"),
]


@pytest.mark.parametrize(("what", "code", "words"), REFUSALS, ids=[words for _, _, words in REFUSALS])
def test_a_refusal_has_its_code_and_names_the_value(
    world: BrokerWorld, what: dict[str, Any], code: int, words: str
) -> None:
    world.start(message_bytes_max=2048)
    world.make_topic("orders")
    world.make_topic("read-only", perm=4)
    peer = world.connect()
    reply = peer.send(**what)
    assert (reply.code, words in (reply.remark or "")) == (code, True), reply.remark
    assert world.broker.store.wrote == 0
    assert peer.send().code == 0  # and the connection is as good as before


@pytest.mark.parametrize(
    "properties",
    [
        {"NOT_TRAN_MSG": "true"},
        {"note": "DELAY"},
        {"X_DELAY": "3"},
        {"DELAY": "0"},
        {"TRAN_MSG": "false"},
    ],
)
def test_what_only_looks_like_a_delay_or_a_transaction_is_an_ordinary_message(
    peer: Peer, properties: dict[str, str]
) -> None:
    reply = peer.send(properties=properties)
    assert reply.code == 0, reply.remark


def test_the_largest_body_and_properties_are_taken(world: BrokerWorld) -> None:
    world.start(message_bytes_max=2048)
    peer = world.connect()
    assert peer.send(body=b"x" * 2048).code == 0
    assert peer.send(properties={"KEYS": "k" * 32_500}).code == 0
    assert [len(body) for body in peer.bodies()] == [2048, 5]


def test_a_broker_that_may_not_be_written_to_says_so(world: BrokerWorld) -> None:
    world.start(permission=4)
    reply = world.connect().send()
    assert reply.code == 16
    assert "broker broker-a is not writable: its brokerPermission is 4" in (reply.remark or "")


def test_a_field_that_is_no_number_is_named(peer: Peer) -> None:
    fields = {"a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": "two", "f": "0", "g": "1", "h": "0"}
    reply = peer.begin_raw({"code": 310, "extFields": fields}, b"x").reply
    assert reply.code == 1
    assert "e" in (reply.remark or "")
    assert "SEND_MESSAGE_V2" in (reply.remark or "")


# ------------------------------------------------------------------------------------------------- new topics


def test_an_unknown_topic_is_refused_when_topics_are_not_made_by_themselves(world: BrokerWorld) -> None:
    world.start(auto_create_topic=False)
    reply = world.connect().send("orders")
    assert reply.code == 17
    assert "no topic 'orders' on broker broker-a" in (reply.remark or "")
    assert "kourou topic create orders" in (reply.remark or "")


def test_a_send_makes_its_topic_with_as_many_queues_as_it_asks_for(peer: Peer, world: BrokerWorld) -> None:
    assert peer.send("narrow", default_topic_queue_nums=2).code == 0
    assert peer.send("wide", default_topic_queue_nums=100).code == 0
    made = {name: world.broker.topics.named(name) for name in ("narrow", "wide")}
    assert {name: (topic.write_queue_nums, topic.perm) for name, topic in made.items()} == {
        "narrow": (2, 6),
        "wide": (8, 6),
    }


def test_a_topic_made_by_a_send_is_on_disk_and_at_the_name_server_at_once(world: BrokerWorld) -> None:
    name_server = world.name_server()
    world.start(name_server.address)
    world.connect().send("orders")
    assert "orders" in name_server.routes.topics()
    world.crash()
    assert "orders" in world.start().topics.all


def test_a_send_makes_a_retry_topic_like_any_other_and_with_one_queue_where_none_are_made(
    world: BrokerWorld,
) -> None:
    world.start()
    peer = world.connect()
    assert peer.send("%RETRY%billing", default_topic_queue_nums=3, reconsume_times=2).code == 0
    assert world.broker.topics.named("%RETRY%billing").write_queue_nums == 3
    assert stored(peer, "%RETRY%billing").reconsume_times == 2
    assert peer.send("%RETRY%shipping", default_topic="nowhere").code == 0
    assert world.broker.topics.named("%RETRY%shipping").write_queue_nums == 1


def test_a_client_that_traces_makes_the_trace_topic(peer: Peer, world: BrokerWorld) -> None:
    assert peer.send("RMQ_SYS_TRACE_TOPIC").code == 0
    assert world.broker.topics.named("RMQ_SYS_TRACE_TOPIC").write_queue_nums == 4


def test_the_mark_of_a_popped_message_is_not_stored(peer: Peer) -> None:
    peer.send(properties="POP_CK\x010 0 0\x02colour\x01red\x02")
    properties = stored(peer).property_table()
    assert "POP_CK" not in properties
    assert properties["colour"] == "red"
