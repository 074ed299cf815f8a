"""A18 to A37: names, messages and places that lead elsewhere."""

from __future__ import annotations

import json
import time
import zlib
from typing import Any

import pytest

import kourou
from kourou.access.rules import HIDDEN_TOPICS
from kourou.broker.sql92 import SqlError, compile_sql
from kourou.errors import DecompressionLimit
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.compression import decompress
from kourou.protocol.headers import EndTransaction, UpdateOffset, ViewMessage
from kourou.protocol.names import NOT_SENDABLE
from tests.security.attackers import ADMIN, READER, SHOP, guard, honest_is_served, request, signed
from tests.unit.broker.broker_world import STORE, BrokerWorld, Peer, pull, send

PATHS = ["../../../../evil", "/etc/evil", "..", ".", "a/b", "a\\b", "C:x", "store/../../x"]
ODD = ["a\0b", "a\nb", "a\x1bb", "a\u202eb", "x" * 128, "x" * 256, "x" * 65_536, "", " ", "a b", "tést"]


def tree(world: BrokerWorld) -> set[str]:
    """Every folder and file there is."""
    found: set[str] = set()
    folders = [""]
    while folders:
        folder = folders.pop()
        for name in world.files.list(folder or "."):
            path = f"{folder}/{name}".lstrip("/")
            found.add(path)
            if world.files.is_folder(path):
                folders.append(path)
    return found


def create(peer: Peer, topic: str) -> int:
    fields = {"topic": topic, "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    return peer.begin(
        request(RequestCode.UPDATE_AND_CREATE_TOPIC, b"", **fields, topicFilterType="SINGLE_TAG")
    ).reply.code


@pytest.mark.parametrize("topic", PATHS)
def test_a18_a_topic_that_is_a_path_is_refused_and_no_file_appears(world: BrokerWorld, topic: str) -> None:
    world.start()
    peer = world.connect()
    before = tree(world)
    assert peer.begin(send(topic, b"x")).reply.code != 0
    assert create(peer, topic) != 0
    peer.begin(pull(topic))
    peer.begin(request(RequestCode.DELETE_TOPIC_IN_BROKER, b"", topic=topic))
    world.pass_time(1)
    assert {path for path in tree(world) - before if not path.startswith(f"{STORE}/")} == set()
    assert world.broker.topics.get(topic) is None


def test_a18_a_name_that_only_looks_dangerous_is_a_name_like_any_other(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    before = tree(world)
    for topic in ("con", "%2e%2e%2f"):
        assert peer.send(topic, b"x").code == 0
    assert {path for path in tree(world) - before if not path.startswith(f"{STORE}/")} == set()


@pytest.mark.parametrize("topic", ODD)
def test_a19_a_topic_with_odd_characters_or_too_long_is_refused(world: BrokerWorld, topic: str) -> None:
    world.start()
    peer = world.connect()
    assert peer.begin(send(topic, b"x")).reply.code != 0
    assert create(peer, topic) != 0
    assert honest_is_served(world)


@pytest.mark.parametrize("name", [*PATHS, *ODD[:4], "x" * 300])
def test_a20_groups_and_brokers_with_such_names_are_refused(world: BrokerWorld, name: str) -> None:
    world.start()
    peer = world.connect()
    before = len(world.broker.groups.all)
    consumer = {
        "groupName": name,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [],
    }
    body = json.dumps({"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": []}).encode()
    peer.begin(request(RequestCode.HEART_BEAT, body))
    group = json.dumps({"groupName": name}).encode()
    assert peer.begin(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group)).reply.code != 0
    assert len(world.broker.groups.all) == before
    if name == "C:x":  # real brokers have such names, and a name server makes no files of them
        return
    server = world.name_server()
    names = world.connect_to("127.0.0.1", 9876)
    fields = {"brokerName": name, "brokerAddr": "127.0.0.1:1", "clusterName": "c", "brokerId": "0"}
    assert names.begin(request(RequestCode.REGISTER_BROKER, b"", **fields)).reply.code != 0
    fields = {"brokerName": "b", "brokerAddr": "127.0.0.1:1", "clusterName": name, "brokerId": "0"}
    assert names.begin(request(RequestCode.REGISTER_BROKER, b"", **fields)).reply.code != 0
    assert server.routes.broker_count == 0


def test_a20_a_client_id_is_text_and_nothing_else(
    world: BrokerWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.start()
    peer = world.connect()
    body = json.dumps({"clientID": "../../x\n\x1b[31m", "producerDataSet": [{"groupName": "g"}]}).encode()
    peer.begin(request(RequestCode.HEART_BEAT, body))
    assert "\x1b" not in caplog.text
    assert honest_is_served(world)


@pytest.mark.parametrize("topic", sorted(NOT_SENDABLE))
def test_a21_a_topic_of_the_brokers_own_is_not_sent_to(world: BrokerWorld, topic: str) -> None:
    world.start()
    peer = world.connect()
    assert peer.begin(send(topic, b"x")).reply.code != 0
    assert world.broker.store.max_offset(topic, 0) == 0


@pytest.mark.parametrize("topic", ["%RETRY%other-group", "%DLQ%other-group"])
def test_a22_the_retries_of_a_group_are_for_those_who_may_be_in_it(world: BrokerWorld, topic: str) -> None:
    peer = guard(world)
    world.make_topic(topic, queues=1)
    reply = peer.begin(signed(pull(topic, group="my-group"))).reply
    assert reply.code == ResponseCode.NO_PERMISSION
    own = topic.replace("other-group", "my-group")
    world.make_topic(own, queues=1)
    assert peer.begin(signed(pull(own, group="my-group"))).reply.code != ResponseCode.NO_PERMISSION


def test_a23_sends_make_no_more_topics_than_is_allowed(world: BrokerWorld) -> None:
    world.start(auto_created_topics_max=10)
    peer = world.connect()
    codes = [peer.begin(send(f"flood-{number}", b"x")).reply.code for number in range(30)]
    assert codes.count(0) == 10
    assert 0 not in codes[10:]


def test_a24_a_bomb_is_stopped_and_a_broker_does_not_even_look(world: BrokerWorld) -> None:
    bomb = zlib.compress(bytes(64 << 20), 9)
    with pytest.raises(DecompressionLimit):
        decompress(1, bomb)
    world.start()
    peer = world.connect()
    began = time.monotonic()
    for body in (bomb, bomb[:50], b"\xff" * 100):
        assert peer.begin(send("orders", body, sys_flag=1)).reply.code == 0
    assert time.monotonic() - began < 5.0
    assert len(peer.records()) == 3


@pytest.mark.parametrize("sys_flag", [0x10, 0x20, 0x30, 0x7FFFFFFF, -1])
def test_a25_a_flag_about_hosts_does_not_change_how_they_are_written(
    world: BrokerWorld, sys_flag: int
) -> None:
    world.start()
    peer = world.connect()
    reply = peer.begin(send("orders", b"x", sys_flag=sys_flag)).reply
    if reply.code == 0:
        records = peer.records()
        assert [record.body for record in records] == [b"x"]
        assert records[0].offset_id().startswith("7F000001")
    assert honest_is_served(world)


FORGED = {
    "REAL_TOPIC": "Secret",
    "REAL_QID": "7",
    "__transactionId__": "forged",
    "TIMER_OUT_MS": "1",
    "TIMER_ENQUEUE_MS": "1",
    "__CRC32#": "0000000000",
}


def test_a26_what_only_a_broker_writes_is_not_believed_from_a_client(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    assert peer.begin(send("orders", b"x", properties=FORGED)).reply.code == 0
    (record,) = peer.records()
    assert record.topic == b"orders"
    assert world.broker.store.max_offset("Secret", 0) == 0
    assert world.broker.store.rot.lost == 0
    world.stop()
    world.start()
    assert [record.body for record in world.connect().records()] == [b"x"], "its checksum is our own"


@pytest.mark.parametrize(
    "properties", ["A", "A\x01", "\x01\x02", "A\x01b\x01c\x02", "\x02\x02\x02", "A\x01b"]
)
def test_a26_properties_without_their_separators_do_no_harm(world: BrokerWorld, properties: str) -> None:
    world.start()
    peer = world.connect()
    peer.begin(send("orders", b"x", properties=properties))
    assert honest_is_served(world)
    world.stop()
    world.start()
    assert honest_is_served(world)


BATCHES = [
    b"\x7f\xff\xff\xff" + bytes(40),
    b"\x00\x00\x00\x00" + bytes(40),
    b"\xff\xff\xff\xff" + bytes(40),
    b"\x00\x00\x00\x1c" + bytes(4) + bytes(8) + b"\x7f\xff\xff\xff" + b"hi\x00\x00",
    bytes(3),
]


@pytest.mark.parametrize("body", BATCHES)
def test_a27_a_batch_whose_lengths_lie_is_refused_as_a_whole(world: BrokerWorld, body: bytes) -> None:
    world.start()
    peer = world.connect()
    peer.send("orders", b"before")
    good = b"\x00\x00\x00\x18" + bytes(4) + bytes(8) + b"\x00\x00\x00\x02hi\x00\x00"
    for code in (RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2):
        assert peer.begin(send("orders", good + body, code=code, batch=True)).reply.code != 0
    assert len(peer.records()) == 1


@pytest.mark.parametrize(
    ("change", "is_taken"),
    [({"queue_id": -1}, True), ({"queue_id": 2**31 - 1}, False), ({"queue_id": 4}, False)],
)
def test_a28_a_queue_that_is_not_there_is_refused(
    world: BrokerWorld, change: dict[str, Any], is_taken: bool
) -> None:
    world.start()
    world.make_topic("orders", queues=4)
    assert (world.connect().begin(send("orders", b"x", **change)).reply.code == 0) is is_taken


@pytest.mark.parametrize("queue_offset", [-1, -(2**63), 2**63 - 1, 10**6])
@pytest.mark.parametrize("count", [0, -1, 2**31 - 1])
def test_a28_a_pull_for_anything_is_answered_within_bounds(
    world: BrokerWorld, queue_offset: int, count: int
) -> None:
    world.start()
    peer = world.connect()
    for _ in range(3):
        peer.send("orders", b"x" * 1000)
    reply = peer.pull("orders", 0, queue_offset, message_count_max=count)
    assert len(reply.body) < 32 << 20
    assert reply.fields["minOffset"] == "0"


@pytest.mark.parametrize(
    ("properties", "is_taken"),
    [
        ({"DELAY": "-1"}, True),
        ({"DELAY": "99"}, True),
        ({"TIMER_DELIVER_MS": "1"}, True),
        ({"TIMER_DELIVER_MS": "253402300799000"}, False),
        ({"TIMER_DELAY_SEC": "99999999999999999999"}, False),
        ({"TIMER_DELAY_MS": "9223372036854775807"}, False),
    ],
)
def test_a29_a_time_in_the_past_is_now_and_one_too_far_away_is_refused(
    world: BrokerWorld, properties: dict[str, str], is_taken: bool
) -> None:
    world.start()
    reply = world.connect().begin(send("orders", b"x", properties=properties)).reply
    assert (reply.code == 0) is is_taken, reply.remark


def test_a30_the_host_in_an_offset_id_is_nobody_to_call(world: BrokerWorld) -> None:
    """The broker takes the place in its log and nothing else from it; our client calls known brokers only."""
    world.start()
    peer = world.connect()
    assert peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(offset=10**9)).code != 0
    with kourou.LocalBroker() as broker, kourou.Producer("g", broker.name_server) as producer:
        producer.send(kourou.Message("t", b"x"))
        began = time.monotonic()
        with pytest.raises(kourou.MQError):
            producer.view("t", "0A000001" + "00002A9F" + "0" * 16)
        assert time.monotonic() - began < 2.0, "nobody was called"


@pytest.mark.parametrize(
    ("queue_id", "queue_offset"), [(0, 10**12), (0, -5), (10**6, 3), (-1, 3), (0, 2**63 - 1)]
)
def test_a31_a_commit_that_cannot_be_does_not_hide_messages(
    world: BrokerWorld, queue_id: int, queue_offset: int
) -> None:
    world.start()
    peer = world.connect()
    peer.send("orders", b"first")
    header = UpdateOffset(
        consumer_group="readers", topic="orders", queue_id=queue_id, commit_offset=queue_offset
    )
    peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    peer.send("orders", b"second")
    assert b"second" in [record.body for record in peer.records("orders", 0, 1)]
    world.stop()
    world.start()
    assert honest_is_served(world)


def half(world: BrokerWorld, peer: Peer, group: str = "shop") -> EndTransaction:
    properties = {"TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": "A1"}
    sent = peer.begin(send("orders", b"x", properties=properties, sys_flag=4, producer_group=group)).reply
    return EndTransaction(
        producer_group=group,
        half_queue_offset=int(sent.fields["queueOffset"]),
        physical_offset=int(sent.fields["msgId"][16:], 16),
        outcome=8,
        unique_id="A1",
        transaction_id="A1",
    )


def test_a32_only_the_half_message_meant_is_ended_and_only_once(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    plain = peer.send("orders", b"plain")
    true = half(world, peer)
    changed: list[dict[str, Any]] = [
        {"producer_group": "other"},
        {"half_queue_offset": 7},
        {"physical_offset": int(plain.fields["msgId"][16:], 16)},
        {"half_queue_offset": -1},
        {"physical_offset": 2**62},
    ]
    for change in changed:
        forged = EndTransaction(**{**{f: getattr(true, f) for f in true.__struct_fields__}, **change})
        assert peer.ask(RequestCode.END_TRANSACTION, forged).code != 0, change
    assert len(peer.records()) == 1
    assert peer.ask(RequestCode.END_TRANSACTION, true).code == 0
    assert peer.ask(RequestCode.END_TRANSACTION, true).code != 0
    assert len(peer.records()) == 2


def test_a33_answers_about_transactions_nobody_asked_about_change_nothing(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    for number in range(500):
        forged = EndTransaction(
            producer_group="g", half_queue_offset=number, physical_offset=number, outcome=8, from_check=True
        )
        assert peer.ask(RequestCode.END_TRANSACTION, forged).code != 0
    assert honest_is_served(world)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 10_000 + "a = 1" + ")" * 10_000,
        "a = 'x" + "x" * 1_000_000 + "'",
        " AND ".join(["a = 1"] * 5_000),
        "NOT " * 5_000 + "a = 1",
        "a CONTAINS '" + "%" * 5_000 + "'",
        "a = 99999999999999999999999999",
        "a =~ '(a+)+$'",
    ],
    ids=["deep", "long", "wide", "not", "contains", "overflow", "regex"],
)
def test_a34_an_sql_expression_without_end_is_refused_in_no_time(expression: str) -> None:
    began = time.monotonic()
    with pytest.raises(SqlError):
        compile_sql(expression)
    assert time.monotonic() - began < 5.0


def test_a34_a_search_in_a_text_takes_linear_time() -> None:
    matches = compile_sql("a CONTAINS 'aaaaaaaaaaaaaaaab' AND a NOT STARTSWITH 'b'")
    began = time.monotonic()
    matches({"a": "a" * 20_000}.get)
    assert time.monotonic() - began < 5.0


def test_a35_too_many_tags_are_refused_and_those_that_hash_alike_are_told_apart(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    peer.send("orders", b"1", properties={"TAGS": "Aa"})
    peer.send("orders", b"2", properties={"TAGS": "BB"})
    assert peer.pull(tags=" || ".join(f"t{number}" for number in range(10_000))).code != 0
    assert len(peer.records(tags="Aa")) == 2, "the hash is one: the client compares the tag itself"
    with kourou.LocalBroker() as broker:
        with kourou.Producer("g", broker.name_server) as producer:
            producer.send_batch([kourou.Message("t", tag.encode(), tags=tag) for tag in ("Aa", "BB")])
        with kourou.PullConsumer("c", "t", name_server=broker.name_server, tags="Aa") as consumer:
            found = [
                message.body for queue in consumer.queues() for message in consumer.pull(queue, 0).messages
            ]
        assert found == [b"Aa"]


def test_a22_a_key_that_may_not_read_a_topic_does_not_read_it_by_message_id(world: BrokerWorld) -> None:
    peer = guard(world)
    for topic, expected in (("Orders", 0), ("Secret", ResponseCode.NO_PERMISSION)):
        stored = peer.begin(signed(send(topic, b"x"), ADMIN)).reply
        place = str(int(stored.fields["msgId"][16:], 16))
        view = request(RequestCode.VIEW_MESSAGE_BY_ID, b"", offset=place)
        assert peer.begin(signed(view, SHOP)).reply.code == expected
        back = request(RequestCode.CONSUMER_SEND_MSG_BACK, b"", offset=place, group="g", delayLevel="1")
        assert peer.begin(signed(back, SHOP)).reply.code == expected


@pytest.mark.parametrize("topic", sorted(HIDDEN_TOPICS))
def test_a22_messages_that_are_not_out_yet_are_for_administrators(world: BrokerWorld, topic: str) -> None:
    peer = guard(world)
    refused = peer.begin(signed(pull(topic, group="g"), READER)).reply
    assert refused.code == ResponseCode.NO_PERMISSION
    assert peer.begin(signed(pull(topic, group="g"), ADMIN)).reply.code != ResponseCode.NO_PERMISSION


def test_a22_a_half_message_cannot_be_handed_back_to_see_it_before_its_time(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    true = half(world, peer)
    fields = {"offset": str(true.physical_offset), "group": "g", "delayLevel": "1"}
    reply = peer.begin(request(RequestCode.CONSUMER_SEND_MSG_BACK, b"", **fields)).reply
    assert reply.code != 0
    assert "no group can subscribe" in (reply.remark or "")
