"""Messages to send, and messages received."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kourou.errors import ConfigError, DecompressionLimit
from kourou.message import Message, ReceivedMessage
from kourou.protocol import record
from kourou.protocol.compression import Compression, compress

HOST = record.pack_host("127.0.0.1", 10911)


def received(body: bytes = b"hi", properties: bytes = b"", sys_flag: int = 0) -> ReceivedMessage:
    stored = record.encode(b"orders", 3, 7, 42, 1000, sys_flag, 11, HOST, 12, HOST, 2, 0, body, properties)
    return record.to_received(record.decode(stored), "broker-a")


def test_tags_and_keys_are_properties() -> None:
    message = Message("orders", b"x", tags="new", keys=["42", "43"], properties={"colour": "red"})
    assert message.properties == {"colour": "red", "TAGS": "new", "KEYS": "42 43"}
    assert (message.tags, message.keys) == ("new", "42 43")


def test_messages_are_equal_when_all_their_parts_are() -> None:
    assert Message("t", b"x", tags="a") == Message("t", bytearray(b"x"), properties={"TAGS": "a"})
    assert Message("t", b"x") != Message("t", b"y")
    assert Message("t", b"x", flag=1) != Message("t", b"x")
    assert Message("t", b"x") != "t"


def test_a_message_shows_what_it_is() -> None:
    assert repr(Message("t", b"x", tags="a", flag=1)) == "Message('t', b'x', tags='a', flag=1)"
    assert repr(Message("t", bytes(1000), properties={"p": "v"})) == (
        "Message('t', <1000 bytes>, properties={'p': 'v'})"
    )


def test_a_message_does_not_share_its_properties_with_the_caller() -> None:
    given = {"a": "b"}
    message = Message("t", properties=given)
    given["a"] = "c"
    assert message.properties == {"a": "b"}


def test_empty_tags_and_keys_are_none() -> None:
    message = Message("t", tags="", keys=[])
    assert (message.tags, message.keys, message.properties) == (None, None, {})


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"topic": ""}, "cannot exist"),
        ({"topic": "a b"}, "cannot exist"),
        ({"topic": "t" * 128}, "1 to 127 characters"),
        ({"topic": "%RETRY%" + "g" * 249}, "1 to 255 characters"),
        ({"topic": 5}, "give its name as a str"),
        ({"body": "text"}, r"encode it: text\.encode\(\)"),
        ({"body": 5}, "bytes are needed"),
        ({"flag": 2**31}, "signed 32-bit"),
        ({"tags": "a\x01b"}, "U.0001"),
        ({"keys": ["a b"]}, "spaces separate keys"),
        ({"keys": ["a", 5]}, r"str\(5\)"),
        ({"properties": {"a": "b\x02c"}}, "property 'a'"),
        ({"properties": ["a"]}, "texts by name"),
        ({"properties": {"a\x01": "b"}}, "property name"),
        ({"properties": {"a": ""}}, "leave it out"),
        ({"properties": {"": "a"}}, "leave it out"),
        ({"properties": {"a": 5}}, r"str\(5\)"),
        ({"properties": {"a": "\ud800"}}, "not valid Unicode"),
        ({"tags": "x", "properties": {"TAGS": "y"}}, "given twice"),
    ],
)
def test_what_could_not_be_stored_is_refused_by_name(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Message(**{"topic": "t", "body": b"", **arguments})


def test_retry_topics_may_be_longer() -> None:
    assert len(Message("%RETRY%" + "g" * 248).topic) == 255


def test_a_received_message_knows_where_it_lay() -> None:
    message = received()
    assert (message.topic, message.body, message.broker_name) == ("orders", b"hi", "broker-a")
    assert (message.queue_id, message.queue_offset, message.physical_offset) == (3, 42, 1000)
    assert (message.born_at_ms, message.stored_at_ms, message.reconsume_times) == (11, 12, 2)
    assert message.born_host == message.store_host == ("127.0.0.1", 10911)
    assert (message.flag, message.sys_flag) == (7, 0)


def test_a_received_message_is_known_by_the_id_its_producer_gave_it() -> None:
    assert received(properties=b"UNIQ_KEY\x01ABC\x02").message_id == "ABC"
    assert received().message_id == received().offset_id == "7F00000100002A9F00000000000003E8"


def test_a_received_message_has_its_properties() -> None:
    message = received(properties=b"TAGS\x01new\x02KEYS\x0142 43\x02a\x01b")
    assert message.properties == {"TAGS": "new", "KEYS": "42 43", "a": "b"}
    assert (message.tags, message.keys) == ("new", "42 43")


def test_a_compressed_body_is_inflated() -> None:
    plain = b"hello " * 1000
    message = received(compress(plain), sys_flag=Compression.ZLIB.sys_flag)
    assert message.body == plain


def test_a_body_that_inflates_without_end_is_refused() -> None:
    message = received(compress(bytes(5 * 1024 * 1024)), sys_flag=Compression.ZLIB.sys_flag)
    with pytest.raises(DecompressionLimit):
        _ = message.body


def test_a_received_message_travels_between_processes() -> None:
    message = received(properties=b"TAGS\x01new\x02")
    copy = pickle.loads(pickle.dumps(message))
    assert (copy.topic, copy.body, copy.tags, copy.broker_name) == ("orders", b"hi", "new", "broker-a")


def test_a_received_message_shows_where_it_came_from() -> None:
    assert repr(received()) == (
        "ReceivedMessage('orders', queue_id=3, queue_offset=42, "
        "message_id='7F00000100002A9F00000000000003E8')"
    )
