"""Frames and commands: however the bytes arrive, whatever they are."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kourou.errors import MQError, ProtocolError, Refused
from kourou.protocol import command, headers
from kourou.protocol.command import BINARY, JSON, Command
from kourou.protocol.frame import (
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    HEADER_BYTES_MIN,
    Frame,
    FrameReader,
    join,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=20)
frames = st.builds(
    Frame,
    st.integers(0, 255),
    st.binary(min_size=HEADER_BYTES_MIN, max_size=100),
    st.one_of(st.binary(max_size=100), st.just(bytes(3000))),
)
commands = st.builds(
    Command,
    st.integers(-0x8000, 0x7FFF),
    st.dictionaries(names, texts.filter(bool), max_size=8),
    st.binary(max_size=50),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(0, 3),
    remark=st.one_of(st.none(), texts.filter(bool)),
    language=st.sampled_from(command.LANGUAGES),
    version=st.integers(0, 0x7FFF),
    serialization=st.sampled_from([JSON, BINARY]),
)
KINDS = [
    kind for kind in vars(headers).values() if isinstance(kind, type) and issubclass(kind, headers.WireHeader)
]


def parts(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


@given(st.lists(frames, max_size=6), st.lists(st.integers(0, 2**16), max_size=20))
def test_frames_do_not_depend_on_how_bytes_arrive(sent: list[Frame], cuts: list[int]) -> None:
    data = b"".join(join(frame.serialization, frame.header, frame.body) for frame in sent)
    reader = FrameReader()
    assert [frame for part in parts(data, cuts) for frame in reader.feed(part)] == sent
    assert reader.held_bytes == 0


@given(
    st.lists(st.sampled_from([0, 3_000, 70_000, 200_000]), max_size=4),
    st.lists(st.integers(1, 150_000), min_size=1, max_size=8),
)
@settings(max_examples=50)
def test_a_large_frame_may_be_received_where_it_stays(sizes: list[int], reads: list[int]) -> None:
    sent = [Frame(size % 7, b"header of %d" % size, bytes([size % 251]) * size) for size in sizes]
    data = memoryview(b"".join(join(frame.serialization, frame.header, frame.body) for frame in sent))
    reader = FrameReader()
    received: list[Frame] = []
    turn = 0
    while data:
        size = min(reads[turn % len(reads)] + 100, len(data))
        turn += 1
        room = reader.room()
        if room is None:
            received += reader.feed(bytes(data[:size]))
        else:
            size = min(size, len(room))
            room[:size] = data[:size]
            received += reader.filled(size)
        data = data[size:]
        assert reader.held_bytes <= 200_000 + 100
    assert [(each.serialization, each.header, bytes(each.body)) for each in received] == [
        (each.serialization, each.header, each.body) for each in sent
    ]
    assert reader.held_bytes == 0


@given(st.lists(frames, min_size=1, max_size=3))
def test_frames_may_come_byte_by_byte(sent: list[Frame]) -> None:
    reader = FrameReader()
    data = b"".join(join(frame.serialization, frame.header, frame.body) for frame in sent)
    received = [frame for place in range(len(data)) for frame in reader.feed(data[place : place + 1])]
    assert received == sent


def outcome(pieces: list[bytes]) -> tuple[list[Frame], bool]:
    """The frames up to the first ProtocolError, and whether there was one."""
    reader, found = FrameReader(), []
    for piece in pieces:
        try:
            found += reader.feed(piece)
        except ProtocolError:
            return found, True
    return found, False


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_garbage_breaks_the_stream_or_not_however_it_arrives(garbage: bytes, cuts: list[int]) -> None:
    """Frames in front of the damage may be lost with it: the connection is closed either way."""
    assert outcome([garbage])[1] == outcome(parts(garbage, cuts))[1]


@given(st.binary(max_size=200))
def test_garbage_gives_commands_or_a_protocol_error(garbage: bytes) -> None:
    with suppress(ProtocolError):
        for frame in FrameReader().feed(garbage):
            command.decode(frame)


@given(st.sampled_from([JSON, BINARY]), st.one_of(st.binary(max_size=100), texts.map(str.encode)))
def test_a_garbled_header_gives_a_command_or_a_protocol_error(serialization: int, header: bytes) -> None:
    with suppress(ProtocolError):
        read_everything(command.decode(Frame(serialization, header, b"")))


@given(commands, st.data())
def test_a_damaged_command_gives_a_command_or_a_protocol_error(sent: Command, data: st.DataObject) -> None:
    damaged = bytearray(sent.encode())
    damaged[data.draw(st.integers(8, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ProtocolError):
        for frame in FrameReader().feed(bytes(damaged)):
            read_everything(command.decode(frame))


def read_everything(found: Command) -> None:
    assert isinstance(found.fields, dict)
    for kind in KINDS:
        with suppress(Refused):
            found.parse(kind)
    assert repr(found)


@given(
    st.text(st.sampled_from('{}[]:,"0123456789.eE+-\\ntrufalse '), max_size=60),
    st.sampled_from(KINDS),
)
@example('{"a":"' + "9" * 5000 + '"}', headers.SendMessageV2)
def test_garbled_fields_are_refused_and_nothing_worse(text: str, kind: type[headers.WireHeader]) -> None:
    header = b'{"code":10,"extFields":%b}' % text.encode()
    with suppress(MQError):
        command.decode(Frame(JSON, header, b"")).parse(kind)


@given(commands)
def test_a_command_is_read_as_it_was_written(sent: Command) -> None:
    [frame] = FrameReader().feed(sent.encode())
    read = command.decode(frame)
    for name in (
        "code",
        "opaque",
        "flag",
        "remark",
        "language",
        "version",
        "body",
        "serialization",
        "fields",
    ):
        assert getattr(read, name) == getattr(sent, name), name


@given(
    st.builds(
        headers.SendMessageV2,
        *(texts, texts, texts),
        *(st.integers(-(2**31), 2**31 - 1) for _ in range(3)),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(-(2**31), 2**31 - 1),
        properties=st.one_of(st.none(), texts.filter(bool).map(lambda text: f"K\x01{text}\x02")),
        batch=st.one_of(st.none(), st.booleans()),
    ),
    st.sampled_from([JSON, BINARY]),
)
def test_a_typed_header_is_read_as_it_was_written(header: headers.SendMessageV2, serialization: int) -> None:
    if serialization == BINARY and not (header.producer_group and header.topic and header.default_topic):
        return  # an empty text is absent in the binary form
    sent = Command(310, command.field_texts(header), serialization=serialization)
    [frame] = FrameReader().feed(sent.encode())
    assert command.decode(frame).parse(headers.SendMessageV2) == header


# ------------------------------------------------------------------------------------------------- memory

REAL_HEADER = b'{"code":310,"extFields":{},"flag":0,"language":"JAVA","opaque":7,"version":409}'


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">II", FRAME_BYTES_MAX - 4, 0) + bytes(100_000), id="a huge frame begins"),
        pytest.param(struct.pack(">II", 2**31, 2**23) + bytes(100_000), id="an impossible length"),
        pytest.param(bytes(range(256)) * 400, id="noise"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n" * 3000, id="another protocol"),
        pytest.param(join(JSON, REAL_HEADER) * 1000, id="a thousand small frames"),
        pytest.param(join(JSON, REAL_HEADER, bytes(1024)) * 100, id="a hundred sends"),
        pytest.param(join(JSON, REAL_HEADER, bytes(900_000))[:-1], id="all but a byte"),
        pytest.param(join(BINARY, bytes(HEADER_BYTES_MAX)), id="a header of zeros"),
    ],
)
def test_bytes_cost_at_most_four_times_their_size(data: bytes) -> None:
    reader = FrameReader()
    pieces = parts(data, list(range(0, len(data), 65_536)))
    tracemalloc.start()
    try:
        kept: list[Frame] = []
        with suppress(ProtocolError):
            for piece in pieces:
                kept += reader.feed(piece)
            for frame in kept:
                command.decode(frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 4 * len(data) + 4096, f"{peak / len(data):.1f} times {len(data)} bytes"


def test_deep_json_in_a_header_is_a_protocol_error() -> None:
    for text in (
        b"[" * 100_000,
        b'{"code":1,"extFields":' + b'{"a":' * 50_000,
        b'{"code":1,"x":' + b"[" * 200_000,
    ):
        with pytest.raises(ProtocolError):
            read_everything(command.decode(Frame(JSON, text, b"")))
