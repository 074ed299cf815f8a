"""A1 to A17: frames, headers and connections that are not as they should be.

Those that need real sockets are in `tests/remoting/test_real_sockets.py`, under their numbers too.
"""

from __future__ import annotations

import json
import time

import pytest

from kourou.access.control import Sender
from kourou.errors import ProtocolError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import BINARY, decode
from kourou.protocol.frame import Frame
from tests.security.attackers import (
    SHOP,
    guard,
    honest_is_served,
    raw,
    raw_header,
    request,
    signed,
    strike,
)
from tests.unit.broker.broker_world import BrokerWorld, send

MIB = 1 << 20


@pytest.mark.parametrize("length", [0xFFFFFFFF, -5, 0, 3])
def test_a1_an_impossible_length_closes_the_connection(world: BrokerWorld, length: int) -> None:
    world.start()
    assert strike(world, raw(length)).is_lost
    assert honest_is_served(world)


def test_a2_a_byte_above_the_largest_frame_closes_the_connection(world: BrokerWorld) -> None:
    world.start()
    assert strike(world, raw(16 * MIB + 1)).is_lost
    assert honest_is_served(world)


def test_a3_a_large_frame_that_never_comes_is_waited_for_30_seconds(world: BrokerWorld) -> None:
    world.start()
    evil = world.connect()
    evil.send("orders", b"x")
    evil.transport.write(raw(16 * MIB - 4, 100, b"{"))
    world.pass_time(25)
    assert not evil.is_lost
    world.pass_time(10)
    assert evil.is_lost


@pytest.mark.parametrize("serialization", [0, *range(2, 256, 23), 255])
def test_a4_a_header_that_does_not_fit_or_is_of_no_known_kind_closes_the_connection(
    world: BrokerWorld, serialization: int
) -> None:
    world.start()
    header_bytes = 97 if serialization == 0 else 96
    assert strike(world, raw(100, serialization << 24 | header_bytes, bytes(96))).is_lost


@pytest.mark.parametrize(
    "header",
    [
        *(b"", b"null", b"[1]", b"17", b'"x"'),
        b'{"a":' * 100_000,
        b'{"code":1,"extFields":' + b"[" * 100_000,
    ],
)
def test_a5_a_header_that_is_no_object_or_too_deep_is_refused_quickly(
    world: BrokerWorld, header: bytes
) -> None:
    world.start()
    began = time.monotonic()
    assert strike(world, raw_header(header)).is_lost
    assert time.monotonic() - began < 10.0


def test_a6_of_a_key_given_twice_the_one_that_is_signed_is_the_one_that_acts(world: BrokerWorld) -> None:
    """JSON readers may differ here; ours agree with each other, so nothing can be smuggled past a check."""
    peer = guard(world)
    command = signed(send("Orders", b"x", properties="UNIQ_KEY\x01A\x02"))
    fields = dict(command.fields)
    text = json.dumps({"code": 310, "opaque": 5, "extFields": fields}).replace(
        '"b": "Orders"', '"b": "Secret", "b": "Orders"'
    )
    frame = Frame(0, text.encode(), b"x")
    assert decode(frame).fields["b"] == "Orders"
    peer.transport.write(raw_header(text.encode(), b"x"))
    world.settle()
    assert world.broker.store.max_offset("Secret", 0) == 0
    swapped = text.replace('"b": "Secret", "b": "Orders"', '"b": "Orders", "b": "Secret"')
    with pytest.raises(Exception, match="No permission"):
        world.broker.access.control.check(decode(Frame(0, swapped.encode(), b"x")), Sender("127.0.0.1"))


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":NaN}',
        b'{"code":1e999}',
        b'{"code":' + b"9" * MIB + b"}",
        b'{"code":10.5}',
        b'{"code":2147483648}',
        b'{"code":10,"remark":"\xff\xfe"}',
        b'\xef\xbb\xbf{"code":10}',
        b'{"code":10,"opaque":1' + b"0" * 400 + b"}",
    ],
)
def test_a7_numbers_and_texts_that_are_none_are_refused(world: BrokerWorld, header: bytes) -> None:
    world.start()
    assert strike(world, raw_header(header)).is_lost
    assert honest_is_served(world)


@pytest.mark.parametrize(
    "fields",
    [
        b"\x00\x00\x00\xff\x00\x01a\x00\x00\x00\x01b",  # the map is said to be longer than it is
        b"\x00\x00\x00\x03\x00\x05topic",  # a key longer than the map
        b"\x00\x00\x00\x09\xff\xfftopicxx",  # a negative key length
        b"\x00\x00\x00\x0b\x00\x05topic\x7f\xff\xff\xff",  # a value of two gigabytes
        b"\xff\xff\xff\xff",  # a negative map length
    ],
)
def test_a8_a_binary_header_whose_lengths_lie_is_refused(world: BrokerWorld, fields: bytes) -> None:
    world.start()
    header = b"\x00\x69\x00\x01\x99\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x00" + fields
    data = raw(4 + len(header), BINARY << 24 | len(header), header)
    assert strike(world, data).is_lost


@pytest.mark.parametrize(
    "fields",
    [
        {f"k{number}": "v" for number in range(100_000)},
        {"k" * 60_000: "v"},
        {"": "v"},
        {"a\0b": "v"},
    ],
    ids=["many", "long", "empty", "nul"],
)
def test_a9_fields_without_end_or_name_are_refused_where_they_are_kept(
    world: BrokerWorld, fields: dict[str, str]
) -> None:
    guard(world)
    began = time.monotonic()
    text = json.dumps({"code": 105, "opaque": 1, "extFields": fields}).encode()
    with pytest.raises(ProtocolError):
        world.broker.access.control.check(decode(Frame(0, text, b"")), Sender("127.0.0.1"))
    strike(world, raw_header(text))
    assert time.monotonic() - began < 10.0


@pytest.mark.parametrize("code", [-1, 2**31 - 1, 31_999])
def test_a10_an_unknown_code_is_answered_so_and_a_reply_nobody_asked_for_is_dropped(
    world: BrokerWorld, code: int
) -> None:
    world.start()
    peer = world.connect()
    assert peer.begin(request(code)).reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    unasked = request(RequestCode.SEND_MESSAGE_V2)
    unasked.flag = 1
    assert not peer.begin(unasked).is_answered
    assert not peer.is_lost


def test_a10_a_one_way_change_by_a_stranger_changes_nothing(world: BrokerWorld) -> None:
    peer = guard(world)
    for by in (None, SHOP):
        command = request(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            b"",
            topic="Made",
            readQueueNums="1",
            writeQueueNums="1",
            perm="6",
            topicFilterType="SINGLE_TAG",
        )
        command.flag = 2
        peer.begin(command if by is None else signed(command, by))
        world.pass_time(6)
    assert world.broker.topics.get("Made") is None


def test_a13_too_many_connections_of_one_address_are_turned_away(world: BrokerWorld) -> None:
    world.start(connections_per_peer_max=100)
    peers = [world.connect() for _ in range(130)]
    world.settle()
    lost = [peer for peer in peers if peer.is_lost]
    assert len(lost) == 30
    peers[0].close()
    assert honest_is_served(world)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
        bytes(range(255, 0, -1)),
    ],
)
def test_a14_another_protocol_is_hung_up_on_at_once(world: BrokerWorld, data: bytes) -> None:
    world.start()
    assert strike(world, data).is_lost
    assert honest_is_served(world)
