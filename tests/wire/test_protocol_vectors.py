"""Bytes that RocketMQ's own classes produced, read and written by ours.

Source of every vector here: the reference classes of Apache RocketMQ 5.3.4-SNAPSHOT (commit 8fc57f1) and
4.9.9-SNAPSHOT with fastjson 1.2.83, run once and noted down; where a vector has another source, it says so.
"""

from __future__ import annotations

import zlib

import pytest

from kourou.protocol import command, frame, properties, record
from kourou.protocol.bodies import BrokerMemberGroupReply, ClusterInfo, QueueOffsets, TopicRouteData
from kourou.protocol.frame import FrameReader
from kourou.protocol.java_hash import tag_code
from kourou.protocol.message_id import parse_offset_id
from kourou.protocol.properties import parse

JSON_HEADER_OF_105 = (
    b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":409}'
)
BINARY_FRAME_OF_105 = bytes.fromhex(
    "00000027 01000021 0069 03 0199 00000007 00000000 00000000 0000000c 0005 746f706963 00000001 54 0102"
)
STORED_HELLO = bytes.fromhex(
    "0000006b daa320a7 3610a686 00000003 00000000 0000000000000009 00000000000003e8 00000000 0000018bcfe56800"
    "0a000001 00001388 0000018bcfe56801 7f000001 00002a9f 00000000 0000000000000000 00000005 68656c6c6f"
    "01 54 000a 5441475301546167 4102"
)
BATCH_ITEM_HI = bytes.fromhex("0000001c 00000000 00000000 00000000 00000002 6869 0004 4b017602")


def test_a_java_json_request_is_read() -> None:
    framed = frame.join(command.JSON, JSON_HEADER_OF_105)
    assert framed.startswith(bytes.fromhex("0000007f 0000007b 7b22"))
    [only] = FrameReader().feed(framed)
    request = command.decode(only)
    assert (request.code, request.opaque, request.version, request.language) == (105, 7, 409, "JAVA")
    assert request.fields == {"topic": "T"}


def test_a_binary_request_is_read() -> None:
    [only] = FrameReader().feed(BINARY_FRAME_OF_105)
    request = command.decode(only)
    assert (request.code, request.opaque, request.version, request.language) == (105, 7, 409, "PYTHON")
    assert (request.fields, request.body, request.is_reply) == ({"topic": "T"}, b"\x01\x02", False)


def test_a_binary_request_is_written() -> None:
    request = command.Command(105, {"topic": "T"}, b"\x01\x02", opaque=7, serialization=command.BINARY)
    assert request.encode() == BINARY_FRAME_OF_105


def test_a_stored_message_is_read() -> None:
    stored = record.decode(STORED_HELLO)
    assert (stored.topic, stored.body, stored.queue_id, stored.queue_offset) == (b"T", b"hello", 3, 9)
    assert (stored.physical_offset, stored.born_ms, stored.store_ms) == (1000, 1700000000000, 1700000000001)
    assert (stored.born_at(), stored.stored_at()) == (("10.0.0.1", 5000), ("127.0.0.1", 10911))
    assert stored.property_table() == {"TAGS": "TagA"}
    assert stored.offset_id() == "7F00000100002A9F00000000000003E8"
    assert stored.damage() is None


def test_a_stored_message_is_written() -> None:
    written = record.encode(
        b"T", 3, 0, 9, 1000, 0, 1700000000000, record.pack_host("10.0.0.1", 5000), 1700000000001,
        record.pack_host("127.0.0.1", 10911), 0, 0, b"hello", properties.encode({"TAGS": "TagA"}),
    )  # fmt: skip
    assert written == STORED_HELLO


def test_an_offset_id_names_a_broker_and_a_place() -> None:
    place = parse_offset_id("7F00000100002A9F00000000000003E8")
    assert (record.unpack_host(place.store_host), place.physical_offset) == (("127.0.0.1", 10911), 1000)


def test_a_batch_item_is_written_and_read() -> None:
    assert record.encode_batch([(0, b"hi", b"K\x01v\x02")]) == BATCH_ITEM_HI
    assert record.decode_batch(BATCH_ITEM_HI * 2) == [(0, b"hi", b"K\x01v\x02")] * 2


@pytest.mark.parametrize(("body", "crc"), [(b"hello", 907060870), (b"a", 1756872259)])
def test_the_crc_of_a_body_has_31_bits(body: bytes, crc: int) -> None:
    host = record.pack_host("127.0.0.1", 1)
    stored = record.decode(record.encode(b"T", 0, 0, 0, 0, 0, 0, host, 0, host, 0, 0, body, b""))
    assert stored.body_crc == crc == zlib.crc32(body) & 0x7FFFFFFF


@pytest.mark.parametrize(
    ("tag", "code"),
    [("TagA", 2598919), ("中文标签", 622041809), ("TAGXYZ1", -829927342), ("\U0001f600", 1772899)],
)
def test_the_code_of_a_tag_is_javas_hash(tag: str, code: int) -> None:
    assert tag_code(tag) == code


def test_properties_without_a_value_do_not_count() -> None:
    assert parse(b"A\x01\x02B\x01x\x02C\x01y") == {"B": "x", "C": "y"}


# The shapes below are those that fastjson 1.2.83 gave for the body classes of the same releases.


def test_a_route_with_bare_broker_ids_is_read_and_written() -> None:
    java = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"b",'
        b'"cluster":"c","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"b",'
        b'"perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    route = TopicRouteData.decode(java)
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}
    assert route.encode_for(client_version=333) == java
    assert route.encode_for(client_version=401) == java.replace(b"{0:", b'{"0":').replace(b",1:", b',"1":')


def test_cluster_info_is_read_and_written() -> None:
    java = (
        b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"h:10911"},"brokerName":"b","cluster":"c",'
        b'"enableActingMaster":false}},"clusterAddrTable":{"c":["b"]}}'
    )
    assert ClusterInfo.decode(java).encode_fastjson() == java


def test_a_broker_member_group_is_read_and_written() -> None:
    java = b'{"brokerMemberGroup":{"brokerAddrs":{0:"h:10911"},"brokerName":"b","cluster":"c"}}'
    assert BrokerMemberGroupReply.decode(java).encode_fastjson() == java


def test_offsets_by_queue_are_read_and_written() -> None:
    java = (
        b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"t"}:5,'
        b'{"brokerName":"b","queueId":2,"topic":"t"}:6}}'
    )
    assert QueueOffsets.decode(java).encode_fastjson() == java
