"""Registrations of every shape are read; those that make no sense are refused with the value named."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from kourou.errors import MQError, Refused
from kourou.nameserver import registration as module
from kourou.nameserver.registration import read_registration
from kourou.nameserver.routes import Registration
from kourou.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicTable,
    register_crc,
)
from kourou.protocol.command import Command
from kourou.protocol.command import request as make_request
from kourou.protocol.headers import RegisterBroker

TABLE = TopicTable(
    data_version=DataVersion(counter=3, timestamp=1_700_000_000_000),
    topic_config_table={
        "orders": TopicConfig(topic_name="orders", read_queue_nums=8, write_queue_nums=8, perm=6),
        "%RETRY%g+orders": TopicConfig(topic_name="%RETRY%g+orders", read_queue_nums=1, write_queue_nums=1),
    },
)
BODY = RegisterBrokerBody(topic_table=TABLE)


def command(body: bytes = b"", version: int = 409, **fields: Any) -> Command:
    default: dict[str, Any] = {
        "broker_name": "broker-a",
        "broker_address": "10.0.0.1:10911",
        "cluster_name": "DefaultCluster",
        "broker_id": 0,
        "ha_server_address": "10.0.0.1:10912",
    }
    request = make_request(103, RegisterBroker(**{**default, **fields}), body)
    request.version = version
    return request


def topic(**fields: Any) -> bytes:
    return RegisterBrokerBody(
        topic_table=TopicTable(topic_config_table={"t": TopicConfig(**fields)})
    ).encode()


def static(mapping: object, name: str = "s") -> bytes:
    return RegisterBrokerBody(topic_table=TopicTable(topic_queue_mapping_info_map={name: mapping})).encode()


def read(request: Command) -> Registration:
    return read_registration(request)


def test_the_json_body_of_a_broker_is_read() -> None:
    body = BODY.encode()
    said = read(command(body, 479, body_crc32=register_crc(body), enable_acting_master=False, zone_name="z"))
    assert (said.cluster, said.name, said.id, said.address) == (
        "DefaultCluster",
        "broker-a",
        0,
        "10.0.0.1:10911",
    )
    assert said.version == TABLE.data_version
    assert said.topics == TABLE.topic_config_table
    assert (said.ha_address, said.acting_master, said.zone) == ("10.0.0.1:10912", False, "z")


@pytest.mark.parametrize("version", [409, 479])
def test_the_compressed_body_is_read_with_and_without_static_topics(version: int) -> None:
    body = BODY.encode_compressed(version)
    said = read(command(body, version, compressed=True, body_crc32=register_crc(body)))
    assert said.version == TABLE.data_version
    assert {name: each.read_queue_nums for name, each in said.topics.items()} == {
        "orders": 8,
        "%RETRY%g+orders": 1,
    }


def test_the_body_before_3_0_11_is_just_the_table() -> None:
    assert read(command(TABLE.encode(), 36)).topics == TABLE.topic_config_table


def test_a_registration_without_body_has_no_topics() -> None:
    said = read(command())
    assert said.topics == {}
    assert said.version == DataVersion()


def test_fastjsons_bare_keys_of_static_topics_are_read() -> None:
    body = (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"stateVersion":0,'
        b'"timestamp":1},"topicConfigTable":{},"topicQueueMappingInfoMap":{"st":{"bname":"broker-a",'
        b'"currIdMap":{0:0,1:1},"dirty":false,"epoch":1,"topic":"st","totalQueues":2}}}}'
    )
    assert read(command(body, 479)).mappings["st"]["currIdMap"] == {"0": 0, "1": 1}


@pytest.mark.parametrize(
    ("given", "expiry_ms"), [(None, None), (0, None), (-5, None), (10_000, 10_000), (1, 1000)]
)
def test_a_brokers_own_patience_counts_within_reason(given: int | None, expiry_ms: int | None) -> None:
    assert read(command(heartbeat_timeout_ms=given)).expiry_ms == expiry_ms


@pytest.mark.parametrize(
    "address",
    [
        "broker-1.example.com:10911",
        "[2001:db8::1]:10911",
        "127.0.0.1:1",
        "[fe80::1%eth0]:10911",
        "host_1:65535",
    ],
)
def test_addresses_that_can_be_reached_are_taken(address: str) -> None:
    assert read(command(broker_address=address)).address == address


@pytest.mark.parametrize(
    "address",
    [
        *("", "10.0.0.1", "10.0.0.1:", ":10911", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:x", "10.0.0.1:-1"),
        *("0.0.0.0:10911", "[::]:10911", "224.0.0.1:10911", "2001:db8::1:10911"),
        *("a b:10911", "a,b:10911", "a;b:10911", '"a":10911', "a/b:10911", " a:10911", "a\n:10911"),
        *("h" * 300 + ":1", "a\x1b[0m:1"),
    ],
)
def test_an_impossible_address_is_refused_by_name(address: str) -> None:
    with pytest.raises(Refused, match="broker address") as refused:
        read(command(broker_address=address))
    assert refused.value.code == 1
    assert "\x1b" not in refused.value.remark
    assert "\n" not in refused.value.remark


@pytest.mark.parametrize("field", ["broker_name", "cluster_name"])
@pytest.mark.parametrize(
    "name",
    ["", " ", ".", "..", "../../evil", "a/b", "a\\b", "a b", "a\nb", "a\0b", "a\u202eb", "a\x1bb", "n" * 256],
)
def test_an_illegal_name_is_refused_by_name(field: str, name: str) -> None:
    with pytest.raises(Refused, match=field.replace("_", " ")):
        read(command(broker_name=name) if field == "broker_name" else command(cluster_name=name))


@pytest.mark.parametrize("name", ["broker-a", "DefaultCluster", "host-1.example.com", "北京", "a_b%c|d"])
def test_names_that_real_brokers_have_are_taken(name: str) -> None:
    assert read(command(broker_name=name, cluster_name=name)).name == name


@pytest.mark.parametrize("zone", ["a b", "z" * 256, "a\x1bb"])
def test_an_illegal_zone_is_refused_by_name(zone: str) -> None:
    with pytest.raises(Refused, match="zone"):
        read(command(zone_name=zone))


def test_a_broker_may_be_in_no_zone() -> None:
    assert read(command(zone_name="")).zone == ""


@pytest.mark.parametrize(("broker_id", "remark"), [(-1, "broker id -1"), (2**63, "brokerId")])
def test_an_impossible_broker_id_is_refused_by_name(broker_id: int, remark: str) -> None:
    with pytest.raises(Refused, match=remark):
        read(command(broker_id=broker_id))


def test_a_wrong_crc_is_refused_with_both_values() -> None:
    body = BODY.encode()
    crc = register_crc(body)
    with pytest.raises(Refused, match=f"crc32 not match: the header says {crc ^ 1}, the body's is {crc}"):
        read(command(body, body_crc32=crc ^ 1))


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (topic(perm=-1), "topic 't' has permission -1"),
        (topic(perm=16), "topic 't' has permission 16"),
        (topic(read_queue_nums=-1), "-1 read"),
        (topic(write_queue_nums=65_536), "65536 write"),
        (
            RegisterBrokerBody(topic_table=TopicTable(topic_config_table={"a/b": TopicConfig()})).encode(),
            "topic 'a/b'",
        ),
        (static(7), "static topic 's': its mapping 7 is no object"),
        (static({"currIdMap": {"0": "many"}}), "static topic 's'.*makes no sense"),
        (static({"epoch": 2**63}), "static topic 's'.*makes no sense"),
        (static({"totalQueues": 65_536}), "static topic 's'.*has 65536 queues"),
        (static({}, name="a b"), "static topic 'a b'"),
        (RegisterBrokerBody(filter_server_list=["nowhere"]).encode(), "filter server .*nowhere"),
        (RegisterBrokerBody(filter_server_list=["h:1"] * 65).encode(), "65 filter servers"),
    ],
)
def test_bad_content_is_refused_by_name(body: bytes, remark: str) -> None:
    with pytest.raises(Refused, match=remark):
        read(command(body))


@pytest.mark.parametrize(
    "body",
    [
        *(b"{", b"[]", b"null0", b'"x"', b"\xff\xfe", b'{"topicConfigSerializeWrapper":7}'),
        b'{"topicConfigSerializeWrapper":' + b"[" * 100_000,
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{"perm":"six"}}}}',
        json.dumps({"topicConfigSerializeWrapper": {"dataVersion": {"counter": 2**70}}}).encode(),
    ],
)
def test_a_body_that_makes_no_sense_is_an_error_of_ours_and_nothing_else(body: bytes) -> None:
    with pytest.raises(MQError):
        read(command(body))


@pytest.mark.parametrize(
    "body",
    [
        b"not zlib",
        zlib.compress(b""),
        zlib.compress(b"\x7f\xff\xff\xff"),
        zlib.compress(b"\0\0\0\2{}" + b"\x7f\xff\xff\xff"),
        zlib.compress(bytes(64 * 1024 * 1024)),
        BODY.encode_compressed(409)[:-3],
    ],
)
def test_a_compressed_body_that_lies_is_an_error_of_ours_and_nothing_else(body: bytes) -> None:
    with pytest.raises(MQError):
        read(command(body, compressed=True))


def test_too_many_topics_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOPICS_MAX", 1)
    with pytest.raises(Refused, match="2 topics in one registration: at most 1"):
        read(command(BODY.encode()))
