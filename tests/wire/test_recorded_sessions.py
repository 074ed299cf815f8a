"""Every frame that real peers exchanged, read and written again by our protocol package.

The recordings lie in recorded/: Java clients 4.9.7 and 5.3.3, the C++, Go and Node clients, mqadmin and
Apache brokers, each talking to Apache's own name server and broker (tests/interop/recorder.py made them).
Both directions must decode; no field and no member a real peer sent may be lost on the way through our
structs unless it is named here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from kourou.protocol import bodies, fastjson, headers, record
from kourou.protocol.codes import RequestCode as Code
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command, decode, field_texts
from kourou.protocol.frame import FrameReader
from tests.interop.recorder import RECORDINGS, Session, load

PATHS = sorted(RECORDINGS.glob("*.jsonl"))
recordings = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)

# Fields that clients add to almost any request, and that mean nothing to us here.
IGNORED_FIELDS = {
    *("bname", "ns", "nsd", "oway", "lo"),  # 5.x: broker name, namespace, one-way, logical queue
    *("AccessKey", "OnsChannel", "Signature"),  # C++ signs with empty credentials; all fields stay readable
    *("groupSysFlag", "topicSysFlag"),  # 5.x pull replies repeat flags that the client knows already
}


class Shape(NamedTuple):
    """How a request and its successful reply are read."""

    request: type[msgspec.Struct] | None = None
    reply: type[msgspec.Struct] | None = None
    request_body: type[bodies.Body] | type[bodies.Value] | None = None
    reply_body: type[bodies.Body] | type[bodies.Value] | None = None


SHAPES: dict[int, Shape] = {
    Code.SEND_MESSAGE: Shape(headers.SendMessage, headers.SendReply),
    Code.PULL_MESSAGE: Shape(headers.PullMessage, headers.PullReply),
    Code.QUERY_CONSUMER_OFFSET: Shape(headers.QueryOffset, headers.OffsetReply),
    Code.UPDATE_CONSUMER_OFFSET: Shape(headers.UpdateOffset),
    Code.UPDATE_AND_CREATE_TOPIC: Shape(headers.CreateTopic),
    Code.GET_BROKER_RUNTIME_INFO: Shape(reply_body=bodies.KVTable),
    Code.GET_MAX_OFFSET: Shape(headers.QueueNamed, headers.OffsetReply),
    Code.GET_MIN_OFFSET: Shape(headers.QueueNamed, headers.OffsetReply),
    Code.HEART_BEAT: Shape(None, headers.HeartbeatReply, bodies.HeartbeatData),
    Code.UNREGISTER_CLIENT: Shape(headers.UnregisterClient),
    Code.GET_CONSUMER_LIST_BY_GROUP: Shape(headers.GroupNamed, reply_body=bodies.ConsumerList),
    Code.NOTIFY_CONSUMER_IDS_CHANGED: Shape(headers.GroupNamed),
    Code.PUT_KV_CONFIG: Shape(headers.PutKv),
    Code.GET_KV_CONFIG: Shape(headers.KvKey, headers.KvValue),
    Code.DELETE_KV_CONFIG: Shape(headers.KvKey),
    Code.REGISTER_BROKER: Shape(
        headers.RegisterBroker, headers.RegisterBrokerReply, reply_body=bodies.KVTable
    ),
    Code.UNREGISTER_BROKER: Shape(headers.BrokerIdentity),
    Code.GET_ROUTEINFO_BY_TOPIC: Shape(headers.GetRoute, reply_body=bodies.TopicRouteData),
    Code.GET_BROKER_CLUSTER_INFO: Shape(reply_body=bodies.ClusterInfo),
    Code.WIPE_WRITE_PERM_OF_BROKER: Shape(headers.BrokerNamed, headers.WipedReply),
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Shape(reply_body=bodies.TopicList),
    Code.SEND_MESSAGE_V2: Shape(headers.SendMessageV2, headers.SendReply),
    Code.SEND_BATCH_MESSAGE: Shape(headers.SendMessageV2, headers.SendReply),
    Code.QUERY_DATA_VERSION: Shape(
        headers.BrokerIdentity, headers.DataVersionReply, bodies.DataVersion, bodies.DataVersion
    ),
    Code.ADD_WRITE_PERM_OF_BROKER: Shape(headers.BrokerNamed, headers.AddedReply),
    Code.GET_BROKER_MEMBER_GROUP: Shape(headers.BrokerGroup, reply_body=bodies.BrokerMemberGroupReply),
    Code.BROKER_HEARTBEAT: Shape(headers.BrokerHeartbeat),
}


class Exchange(NamedTuple):
    """A request and what was answered, if anything was."""

    request: Command
    reply: Command | None


def test_the_recordings_hold_every_request_that_first_messages_need() -> None:
    seen = {exchange.request.code for path in PATHS for exchange in exchanges(path)}
    needed = {
        10,
        11,
        14,
        15,
        17,
        34,
        35,
        38,
        40,
        100,
        101,
        102,
        103,
        104,
        105,
        106,
        205,
        206,
        310,
        319,
        320,
        322,
    }
    assert needed | {327, 901, 904} <= seen


@recordings
def test_recorded_streams_split_into_the_frames_that_were_sent(path: Path) -> None:
    streams: dict[tuple[str, int, bool], list[bytes]] = defaultdict(list)
    for peer, connection, sent_by_client, data in load(path).frames:
        streams[peer, connection, sent_by_client].append(data)
    for sent in streams.values():
        reader = FrameReader()
        assert len(reader.feed(b"".join(sent))) == len(sent)
        assert reader.held_bytes == 0


@recordings
def test_recorded_commands_survive_decoding_and_encoding(path: Path) -> None:
    for command in commands(load(path)):
        again = decode(FrameReader().feed(command.encode())[0])
        assert _whole(again) == _whole(command)


def _whole(command: Command) -> tuple[object, ...]:
    header = (
        command.code,
        command.flag,
        command.opaque,
        command.language,
        command.version,
        command.remark or None,
    )
    return (*header, dict(command.fields), command.body, command.serialization)


@recordings
def test_recorded_headers_keep_every_field(path: Path) -> None:
    for request, reply in exchanges(path):
        shape = SHAPES.get(request.code, Shape())
        if shape.request is not None:
            _check_fields(request, shape.request)
        if shape.reply is not None and reply is not None and reply.code == ResponseCode.SUCCESS:
            _check_fields(reply, shape.reply)


def _check_fields(command: Command, kind: type[msgspec.Struct]) -> None:
    typed = field_texts(command.parse(kind))
    recorded = {
        name: text for name, text in command.fields.items() if name not in IGNORED_FIELDS and text != ""
    }
    for name, text in recorded.items():
        assert name in typed, f"{command}: {kind.__name__} loses {name}={text!r}"
        assert typed[name] == text or _as_boolean(text) == typed[name], f"{command}: {name}"


def _as_boolean(text: str) -> str | None:
    return {"0": "false", "1": "true"}.get(text)  # C++ writes its booleans as numbers


@recordings
def test_recorded_bodies_keep_every_member(path: Path) -> None:
    for request, reply in exchanges(path):
        shape = SHAPES.get(request.code, Shape())
        if shape.request_body is not None:
            _check_body(request.body, shape.request_body)
        if (
            shape.reply_body is not None
            and reply is not None
            and reply.body
            and reply.code == ResponseCode.SUCCESS
        ):
            _check_body(reply.body, shape.reply_body)


def _check_body(data: bytes, kind: type[bodies.Body] | type[bodies.Value]) -> None:
    body = kind.decode(data)
    assert kind.decode(body.encode()) == body
    assert kind.decode(body.encode_fastjson()) == body
    lost = sorted(_lost(fastjson.loads(data), fastjson.loads(body.encode()), kind.__name__))
    assert not lost, f"members lost: {lost}"


# What our structs leave out on purpose: only 5.x clients say it, and only to 5.x brokers.
LEFT_OUT = {"heartbeatFingerprint", "withoutSub", "useFakeBrokerAddr"}


def _lost(recorded: Any, ours: Any, where: str) -> Iterator[str]:
    """The paths of members that were recorded and are missing, or different, in what we would write."""
    if isinstance(recorded, dict) and isinstance(ours, dict):
        texts = {str(key): value for key, value in ours.items()}
        for key, value in recorded.items():
            if str(key) in texts:
                yield from _lost(value, texts[str(key)], f"{where}.{key}")
            elif key not in LEFT_OUT:
                yield f"{where}.{key}"
    elif isinstance(recorded, list) and isinstance(ours, list) and len(recorded) == len(ours):
        for index, (theirs, mine) in enumerate(zip(recorded, ours, strict=True)):
            yield from _lost(theirs, mine, f"{where}[{index}]")
    elif recorded != ours and not _is_cpp_habit(recorded, ours):
        yield f"{where}: {recorded!r} became {ours!r}"


def _is_cpp_habit(recorded: Any, ours: Any) -> bool:
    """C++ writes the ordinal where Java writes the name, and some numbers as text."""
    if str(recorded) == str(ours):
        return True
    return isinstance(recorded, int) and isinstance(ours, str) and ours.replace("_", "").isupper()


@recordings
def test_recorded_registrations_are_read_in_each_shape(path: Path) -> None:
    for request, _ in exchanges(path):
        if request.code != Code.REGISTER_BROKER:
            continue
        header = request.parse(headers.RegisterBroker)
        # A 5.3.3 broker with compressedRegister compresses the body and says compressed=false all the same.
        compressed = header.compressed or request.body.startswith(b"x")
        body = bodies.RegisterBrokerBody.decode_from(request.body, request.version, compressed)
        assert bodies.register_crc(request.body) == header.body_crc32
        topics = body.topic_table.topic_config_table
        assert topics
        assert all(name == topic.topic_name for name, topic in topics.items())
        if compressed:
            again = body.encode_compressed(request.version)
            assert bodies.RegisterBrokerBody.decode_compressed(again, request.version) == body


@recordings
def test_recorded_pull_replies_hold_whole_messages(path: Path) -> None:
    for request, reply in exchanges(path):
        if request.code != Code.PULL_MESSAGE or reply is None or reply.code != ResponseCode.SUCCESS:
            continue
        wanted = request.parse(headers.PullMessage)
        found = record.decode_all(reply.body)
        assert found
        for message in found:
            assert message.damage() is None
            assert message.topic_name() == wanted.topic
            assert message.plain_body()
            assert {"UNIQ_KEY", "KEYS", "TAGS", "number"} <= message.property_table().keys()


@recordings
def test_recorded_batches_hold_every_message(path: Path) -> None:
    for request, _ in exchanges(path):
        if request.code == Code.SEND_BATCH_MESSAGE:
            items = record.decode_batch(request.body)
            whose, _, _ = items[0].body.decode().rpartition("-")
            assert [item.body.decode() for item in items] == [f"{whose}-{n}" for n in range(4)]
            assert (
                record.encode_batch((item.flag, item.body, item.properties) for item in items) == request.body
            )


# --- reading recordings --------------------------------------------------------------------------------


def commands(session: Session) -> Iterator[Command]:
    for frame in session.frames:
        yield decode(FrameReader().feed(frame.data)[0])


@cache
def exchanges(path: Path) -> list[Exchange]:
    """Requests in the order they were made, from either side, each with its reply."""
    requests: list[tuple[tuple[str, int, bool, int], Command]] = []
    replies: dict[tuple[str, int, bool, int], Command] = {}
    session = load(path)
    for frame, command in zip(session.frames, commands(session), strict=True):
        asked_by_client = frame.sent_by_client != command.is_reply
        key = (frame.peer, frame.connection, asked_by_client, command.opaque)
        if command.is_reply:
            replies[key] = command
        else:
            requests.append((key, command))
    return [Exchange(command, replies.get(key)) for key, command in requests]
