"""Everything that decodes what came over a wire, and what a client writes in a filter."""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64encode
from contextlib import suppress
from functools import cache
from struct import Struct, pack

import msgspec

from kourou.access.needs import needs_of
from kourou.access.signatures import is_signed
from kourou.broker.filters import make_filter, tag_codes
from kourou.broker.sql92 import SqlError, compile_sql, property_names
from kourou.errors import MQError, ProtocolError, Refused
from kourou.nameserver.registration import read_registration
from kourou.protocol import (
    access_messages,
    admin_bodies,
    admin_headers,
    bodies,
    command,
    extensions,
    fastjson,
    headers,
    java_properties,
    message_id,
    properties,
    record,
    switching,
)
from kourou.protocol.bodies import Body, RegisterBrokerBody, TimerCheckpoint, Value
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import BINARY, JSON, Command
from kourou.protocol.compression import Compression, compress, decompress
from kourou.protocol.frame import Frame, FrameReader
from kourou.protocol.headers import WireHeader
from kourou.protocol.recall_handle import parse_recall_handle
from kourou.protocol.staged import Chunk
from kourou.replication import ballots, handshake, stream
from tests.fuzz.target import Target
from tests.interop.recorder import RECORDINGS, load

MODULES = (headers, admin_headers, access_messages, switching, extensions, bodies, admin_bodies)
KINDS = tuple(
    dict.fromkeys(each for module in MODULES for each in vars(module).values() if isinstance(each, type))
)
HEADERS = tuple(each for each in KINDS if issubclass(each, WireHeader) and each is not WireHeader)
BODIES = tuple(each for each in KINDS if issubclass(each, (Body, Value)) and each not in (Body, Value))
PARTS = 8
INFLATED_BYTES_MAX = 256 * 1024
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))


@cache
def recorded_frames() -> tuple[bytes, ...]:
    """What real Java and C++ clients, brokers and mqadmin said, one example of each code, way and header."""
    found: dict[tuple[int, int, bool], bytes] = {}
    for path in sorted(RECORDINGS.glob("*.jsonl")):
        for each in load(path).frames:
            if len(each.data) <= 6_000:
                [frame] = FrameReader().feed(each.data)
                read = command.decode(frame)
                found.setdefault((read.code, read.serialization, read.is_reply), each.data)
    return tuple(found.values())


def recorded_commands() -> list[Command]:
    return [command.decode(frame) for each in recorded_frames() for frame in FrameReader().feed(each)]


# --------------------------------------------------------------------------------------- frames and headers


def feed_frames(data: bytes) -> None:
    with suppress(ProtocolError):
        for frame in FrameReader().feed(data):
            read_command(frame)


def feed_json_header(data: bytes) -> None:
    with suppress(ProtocolError):
        read_command(Frame(JSON, data, b""))


def feed_binary_header(data: bytes) -> None:
    with suppress(ProtocolError):
        read_command(Frame(BINARY, data, b""))


def read_command(frame: Frame) -> None:
    read = command.decode(frame)
    assert all(isinstance(text, str) for pair in read.fields.items() for text in pair)
    for kind in HEADERS:
        with suppress(Refused):
            read.parse(kind)
    with suppress(MQError):
        needs_of(read)
    is_signed(read.fields, read.body, b"secret")
    assert repr(read)
    with suppress(ProtocolError):
        [again] = FrameReader().feed(read.encode())
        assert command.decode(again).code == read.code


def header_seeds(serialization: int) -> list[bytes]:
    frames = [frame for each in recorded_frames() for frame in FrameReader().feed(each)]
    return [frame.header for frame in frames if frame.serialization == serialization]


# ------------------------------------------------------------------------------------------------- records


def feed_record(data: bytes) -> None:
    with suppress(ProtocolError):
        read_record(record.decode(data))
    with suppress(ProtocolError):
        record.decode_all(data)
    record.check(data, 0, len(data), True, 0)
    record.check(data, 0, len(data), False, 7)
    with suppress(ProtocolError):
        record.properties_of_each((data,))


def read_record(read: record.Record) -> None:
    read.damage()
    for look in (read.property_table, read.topic_name, read.born_at, read.stored_at, read.offset_id):
        with suppress(ProtocolError):
            look()
    assert isinstance(read.tag_code, int) or callable(read.tag_code)
    with suppress(ProtocolError):
        read.plain_body(INFLATED_BYTES_MAX)
    with suppress(ProtocolError):
        record.to_received(read, "a")


def record_seeds() -> list[bytes]:
    bodies_and_flags = ((b"hello", 0), (zlib.compress(b"hello" * 50), 1), (b"", 0x30), (b"x" * 300, 8))
    texts = (properties.encode({"KEYS": "k1 k2", "TAGS": "a", "UNIQ_KEY": "7F" * 16}), b"")
    made = [
        record.encode(
            topic=b"orders",
            queue_id=3,
            flag=0,
            queue_offset=7,
            physical_offset=0,
            sys_flag=flag,
            born_ms=1_794_797_067_533,
            born_host=HOST if flag < 0x30 else HOST.rjust(20, b"\0"),
            store_ms=1_794_797_067_999,
            store_host=HOST if flag < 0x30 else HOST.rjust(20, b"\0"),
            reconsume_times=0,
            prepared_offset=0,
            body=body,
            properties=text,
            append_crc=crc,
        )
        for body, flag in bodies_and_flags
        for text in texts
        for crc in (True, False)
    ]
    pulled = [
        read.body for read in recorded_commands() if read.is_reply and read.body[4:8] == b"\xda\xa3\x20\xa7"
    ]
    return [*made, made[0] + made[4], *pulled]


def feed_properties(data: bytes) -> None:
    with suppress(ProtocolError):
        table = properties.parse(data)
        with suppress(ProtocolError):
            assert properties.parse(properties.encode(table)) == table
    for name in (b"KEYS", b"TAGS", b"a"):
        properties.find(data, name)
        properties.without(data, name)
        properties.find_each((data, None), name)
    properties.with_added(properties.terminated(data), b"a", b"b")
    with suppress(ProtocolError):
        text = java_properties.parse(data)
        assert java_properties.parse(java_properties.format(text)) == text


def feed_batch(data: bytes) -> None:
    with suppress(ProtocolError):
        items = record.decode_batch(data)
        assert sum(len(item.body) + len(item.properties) for item in items) <= len(data)


def feed_chunk(data: bytes) -> None:
    with suppress(ProtocolError):
        chunk = Chunk(data)
        assert len(chunk.queue_ids) == chunk.count


def chunk_seeds() -> list[bytes]:
    one = pack(">II", 1, 4) + pack(">iiqii", 0, 0, 5, 2, 4) + b"hi" + b"a\x01b\x02"
    two = (
        pack(">II", 2, 0) + pack(">iiii", 0, 1, 0, 0) + pack(">qq", 5, 6) + pack(">iiii", 1, 1, 0, 0) + b"ab"
    )
    return [one, two]


def feed_compressed(data: bytes) -> None:
    for kind in Compression:
        with suppress(ProtocolError):
            assert len(decompress(kind.sys_flag, data, INFLATED_BYTES_MAX)) <= INFLATED_BYTES_MAX


def feed_ids(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for parse in (message_id.parse_offset_id, message_id.parse_unique_id, parse_recall_handle):
        with suppress(ProtocolError):
            parse(text)


# -------------------------------------------------------------------------------------------------- bodies


def feed_json(data: bytes) -> None:
    with suppress(ProtocolError):
        document = fastjson.loads(data)
        with suppress(ProtocolError):
            fastjson.pairs(document)


def feed_bodies(data: bytes) -> None:
    """All that read for themselves, and some of those that are like each other."""
    part = zlib.crc32(data) % PARTS
    for number, kind in enumerate(BODIES):
        if "decode" not in vars(kind) and number % PARTS != part:
            continue
        with suppress(ProtocolError):
            kind.decode(data)
    with suppress(ProtocolError):
        TimerCheckpoint.decode(data)
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # as documented; see its caller
        extensions.decode_decision(data)


def body_seeds() -> list[bytes]:
    bodies_said = [read.body for read in recorded_commands() if read.body[:1] in (b"{", b"[")]
    return [*bodies_said, *(kind().encode() for kind in BODIES if not needed(kind)), bytes(56)]


def needed(kind: type[msgspec.Struct]) -> bool:
    return any(each.required for each in msgspec.structs.fields(kind))


def feed_registration(data: bytes) -> None:
    for fields in ({}, {"compressed": "true"}):
        for version in (407, 479):
            request = Command(RequestCode.REGISTER_BROKER, {**REGISTRATION, **fields}, data, version=version)
            with suppress(MQError):
                read_registration(request)
    with suppress(ProtocolError):
        RegisterBrokerBody.decode_from(zlib.compress(data), 479, compressed=True)


REGISTRATION = {
    "brokerName": "a",
    "clusterName": "c",
    "brokerAddr": "127.0.0.1:10911",
    "brokerId": "0",
    "haServerAddr": "127.0.0.1:10912",
}


def registration_seeds() -> list[bytes]:
    said = []
    for path in sorted(RECORDINGS.glob("broker-registers-*.jsonl")):
        for each in load(path).frames:
            [read] = map(command.decode, FrameReader().feed(each.data))
            if read.code == RequestCode.REGISTER_BROKER:
                said.append(read.body)
    return [*said, *(zlib.decompress(body) for body in said if body[:1] == b"\x78")]


# ------------------------------------------------------------------------------------------------- filters

MESSAGES: tuple[dict[str, str], ...] = (
    {},
    {"a": "1", "b": "x", "TAGS": "t"},
    {"a": "-2.5e300", "b": "", "c": "true"},
    {"a": "9" * 5_000, "b": "'", "c": "NaN"},
)


def feed_sql(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    try:
        matches = compile_sql(text)
        property_names(text)
    except SqlError:
        return
    for message in MESSAGES:
        assert matches(message.get) in (True, False)


def feed_tags(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    kind, _, expression = text.partition("\n")
    with suppress(Refused):
        tag_codes(text)
    with suppress(Refused):
        assert isinstance(make_filter(kind, expression).matches(7, record_seeds()[0]), bool)


SQL_SEEDS = (
    "a > 3 AND b = 'x' OR NOT (c IS NULL)",
    "a BETWEEN 1 AND 10 AND b NOT IN ('x', 'y''z', '中')",
    "a IS NOT NULL AND b CONTAINS 'x' AND c STARTSWITH 'y' AND d NOT ENDSWITH 'z'",
    "TRUE OR a = 1.5e3 OR a <> -2 OR a >= 0x1F",
    "(((a = 1)))",
)
SQL_WORDS = (
    "AND OR NOT BETWEEN IN IS NULL TRUE FALSE CONTAINS STARTSWITH ENDSWITH ( ) , = <> >= - + 'x' 1.5 9e9 a"
)

# ------------------------------------------------------------------------------------ between our own nodes


def feed_words(data: bytes) -> None:
    with suppress(ProtocolError):
        said = handshake.decode(data)
        assert handshake.decode(handshake.encode(said)) == said
    with suppress(ProtocolError):
        envelope = ballots.decoded(data)
        assert not ballots.is_signed(envelope, "secret") or envelope.proof


def word_seeds() -> list[bytes]:
    record_said = ballots.Record(3, 1, "127.0.0.1:10911", frozenset({"127.0.0.1:10911"}))
    ballot = ballots.Ballot(3, record_said)
    messages: tuple[ballots.Message, ...] = (
        ballots.Ask(3, True, ballots.Position(2, 100)),
        ballots.Vote(3, False, True, ballot, ballots.Position(2, 100)),
        ballots.Propose(record_said, 1),
        ballots.Taken(3, 1, 1, True, 3),
        ballots.HandOver(3),
    )
    envelopes = [ballots.encoded(ballots.Envelope("a", "127.0.0.1:1", each)) for each in messages]
    return [*envelopes, *map(handshake.encode, words_of_both())]


def words_of_both() -> list[handshake.Words]:
    master = handshake.MasterHello(
        cluster_name="DefaultCluster",
        broker_name="broker-a",
        member="127.0.0.1:10911",
        term=1,
        start=0,
        end=1_000,
        segment_bytes=1 << 30,
        nonce="00" * 16,
    )
    slave = handshake.SlaveHello(
        cluster_name="DefaultCluster",
        broker_name="broker-a",
        member="127.0.0.2:10911",
        broker_id=1,
        term=1,
        start=0,
        end=0,
        segment_bytes=1 << 30,
        nonce="00" * 16,
    )
    compare = handshake.Compare([(0, 100, 1), (100, 50, 2)])
    return [
        *(master, slave, handshake.Accepted(), handshake.Refusal("no"), compare),
        *(handshake.Compared([True, False]), handshake.Begin(0)),
    ]


def feed_stream(data: bytes) -> None:
    """In both forms, whole and in pieces: the same comes out."""
    for header in (stream.FRAME, stream.OUR_FRAME):
        assert _log_bytes(header, [data]) == _log_bytes(header, [data[:5], data[5:19], data[19:]])
    for report in (stream.REPORT, stream.OUR_REPORT):
        reader = stream.ReportReader(report)
        for piece in (data[:3], data[3:]):
            reader.feed(piece)
    reading = stream.WordsReader()
    reading.feed(data)
    with suppress(ProtocolError):
        while (text := reading.next()) is not None:
            handshake.decode(text)


def _log_bytes(header: Struct, pieces: list[bytes]) -> bytes | None:
    reader = stream.FrameReader(header, lambda *_: None)
    try:
        return b"".join(chunk for piece in pieces for chunk in reader.feed(piece))
    except ProtocolError:
        return None


def stream_seeds() -> list[bytes]:
    log = record_seeds()[0]
    return [
        stream.FRAME.pack(0, len(log)) + log + stream.FRAME.pack(len(log), 0),
        stream.OUR_FRAME.pack(0, len(log), 1, 0) + log + stream.OUR_FRAME.pack(len(log), -1, 1, len(log)),
        stream.GREETING + b"".join(stream.words(handshake.encode(each)) for each in words_of_both()[1:]),
        stream.REPORT.pack(0) + stream.REPORT.pack(100),
        stream.OUR_REPORT.pack(1, 0) + stream.OUR_REPORT.pack(1, 100),
    ]


JSON_WORDS = (
    b'"code":',
    b'"extFields":{',
    b'"language":"JAVA"',
    b'"$ref":"$.a[0]"',
    b"{0:1}",
    b"Set[1]",
    b"1L",
)
PROPERTY_WORDS = (b"KEYS\x01", b"TAGS\x01", b"\x02", b"__CRC32#\x01")

WIRE_TARGETS = (
    Target("frames", feed_frames, lambda: list(recorded_frames()), JSON_WORDS, examples=80),
    Target("header-json", feed_json_header, lambda: header_seeds(JSON), JSON_WORDS, examples=80),
    Target("header-binary", feed_binary_header, lambda: header_seeds(BINARY), JSON_WORDS, examples=80),
    Target("record", feed_record, record_seeds, PROPERTY_WORDS),
    Target(
        "properties",
        feed_properties,
        lambda: [b"KEYS\x01a b\x02TAGS\x01t\x02", b"a=b\\\n c\n#x\nd:e"],
        PROPERTY_WORDS,
    ),
    Target(
        "batch",
        feed_batch,
        lambda: [
            record.encode_batch([(0, b"one", b"TAGS\x01a\x02"), (1, b"", b"")]),
            record.encode_batch([]),
        ],
    ),
    Target("staged-chunk", feed_chunk, chunk_seeds),
    Target("compressed", feed_compressed, lambda: [compress(b"hello " * 99, kind) for kind in Compression]),
    Target(
        "ids",
        feed_ids,
        lambda: [b"7F0000012A9F0000000000000000", b"7F" * 16, urlsafe_b64encode(b"v1 t b 17 7F00")],
    ),
    Target("json", feed_json, body_seeds, JSON_WORDS),
    Target("bodies", feed_bodies, body_seeds, JSON_WORDS, examples=60),
    Target("registration", feed_registration, registration_seeds, JSON_WORDS, examples=60),
    Target(
        "sql92", feed_sql, lambda: [text.encode() for text in SQL_SEEDS], tuple(SQL_WORDS.encode().split())
    ),
    Target(
        "tags",
        feed_tags,
        lambda: [b"a || b", b"*", b"TAG\na||b", b"SQL92\na = 1"],
        (b"||", b"TAG\n", b"SQL92\n"),
    ),
    Target("handshake", feed_words, word_seeds, JSON_WORDS),
    Target("ha-stream", feed_stream, stream_seeds, (stream.GREETING, stream.FRAME.pack(-1, 20))),
)
