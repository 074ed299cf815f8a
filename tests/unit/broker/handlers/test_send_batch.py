"""Taking messages in, many at a time."""

from __future__ import annotations

from struct import pack

import pytest

from kourou.protocol.codes import RequestCode
from kourou.protocol.headers import SendReply
from kourou.protocol.record import encode_batch
from tests.unit.broker.broker_world import BrokerWorld, Peer, send

BATCH = RequestCode.SEND_BATCH_MESSAGE


def batch_of(*bodies: bytes, properties: bytes = b"") -> bytes:
    return encode_batch([(0, body, properties) for body in bodies])


def test_a_batch_becomes_messages_with_consecutive_offsets(peer: Peer) -> None:
    peer.send("orders", b"before", queue_id=1)
    items = [(1, b"one", b"TAGS\x01a\x02"), (2, b"two", b"TAGS\x01b\x02KEYS\x01k\x02"), (3, b"three", b"")]
    reply = peer.send("orders", encode_batch(items), code=BATCH, batch=True, queue_id=1)
    assert reply.code == 0
    records = peer.records("orders", 1, 1)
    assert [(each.queue_offset, each.flag, each.body) for each in records] == [
        (1, 1, b"one"),
        (2, 2, b"two"),
        (3, 3, b"three"),
    ]
    assert [each.find(b"TAGS") for each in records] == [b"a", b"b", None]
    assert all(each.find(b"CLUSTER") == b"DefaultCluster" for each in records)


def test_the_answer_to_a_batch_names_every_message(peer: Peer) -> None:
    reply = peer.send("orders", batch_of(b"one", b"two", b"three"), code=BATCH, batch=True)
    answered = reply.parse(SendReply)
    records = peer.records()
    assert answered.message_id.split(",") == [each.offset_id() for each in records]
    assert (answered.transaction_id or "").split(",") == [
        (each.find(b"UNIQ_KEY") or b"").decode() for each in records
    ]
    assert (answered.queue_id, answered.queue_offset) == (0, 0)


def test_unique_ids_that_the_messages_bring_along_are_kept(peer: Peer) -> None:
    items = [(0, b"one", b"UNIQ_KEY\x01AAA\x02"), (0, b"two", b"UNIQ_KEY\x01BBB\x02")]
    reply = peer.send("orders", encode_batch(items), code=BATCH, batch=True)
    assert reply.parse(SendReply).transaction_id == "AAA,BBB"


def test_the_cpp_clients_batch_under_the_code_of_a_single_message_is_a_batch(peer: Peer) -> None:
    reply = peer.send("orders", batch_of(b"one", b"two"), code=RequestCode.SEND_MESSAGE_V2, batch=True)
    assert len(reply.parse(SendReply).message_id.split(",")) == 2
    assert peer.bodies() == [b"one", b"two"]


def test_the_code_alone_makes_a_batch_too(peer: Peer) -> None:
    assert peer.send("orders", batch_of(b"one", b"two"), code=BATCH).code == 0
    assert peer.bodies() == [b"one", b"two"]


def with_wrong_size(body: bytes) -> bytes:
    return pack(">i", 1_000_000) + body[4:]


@pytest.mark.parametrize(
    "bad_end",
    [
        with_wrong_size(batch_of(b"last")),
        batch_of(b"last")[:-1],
        batch_of(b"last") + b"\0\0\0",
        batch_of(b"last")[:16] + pack(">i", -5) + batch_of(b"last")[20:],
        batch_of(b"last", properties=b"KEYS\x01\xff\xfe\x02"),
    ],
    ids=["too long", "cut off", "left over", "negative body", "not UTF-8"],
)
def test_a_batch_with_one_bad_message_is_refused_as_a_whole(
    peer: Peer, world: BrokerWorld, bad_end: bytes
) -> None:
    reply = peer.send("orders", batch_of(b"first", b"second") + bad_end, code=BATCH, batch=True)
    assert reply.code in (1, 13)
    assert "inside the server" not in (reply.remark or "")
    assert world.broker.store.wrote == 0
    assert peer.send("orders", batch_of(b"good"), code=BATCH).parse(SendReply).queue_offset == 0


@pytest.mark.parametrize(
    ("body", "topic", "words"),
    [
        (b"", "orders", "no body"),
        (batch_of(b"x" * 3000), "orders", "1 to 2048 bytes are taken"),
        (batch_of(*[b"x"] * 1025), "wide", "more than 1024 messages"),
        (batch_of(b"one"), "%RETRY%billing", "'%RETRY%billing' takes no batches"),
        (
            batch_of(b"one", properties=b"DELAY\x013\x02"),
            "orders",
            "a batch holds no delayed messages: property DELAY of one is '3'",
        ),
    ],
    ids=["empty", "too big", "too many", "retry topic", "delayed"],
)
def test_a_batch_that_cannot_be_taken_is_refused_with_the_value(
    world: BrokerWorld, body: bytes, topic: str, words: str
) -> None:
    world.start(message_bytes_max=1024 * 1024 if topic == "wide" else 2048)
    reply = world.connect().send(topic, body, code=BATCH, batch=True)
    assert reply.code in (1, 13)
    assert words in (reply.remark or "")
    assert world.broker.store.wrote == 0


def test_a_batch_that_is_to_be_delayed_as_a_whole_is_refused(peer: Peer, world: BrokerWorld) -> None:
    reply = peer.send("orders", batch_of(b"one"), code=BATCH, batch=True, properties={"DELAY": "1"})
    assert (reply.code, "a batch cannot be delayed" in (reply.remark or "")) == (13, True)
    assert world.broker.store.wrote == 0


def test_a_batch_and_a_single_message_of_one_write_keep_their_order(peer: Peer) -> None:
    peer.begin(send(body=b"1"), send(body=batch_of(b"2", b"3"), code=BATCH), send(body=b"4"))
    assert peer.bodies() == [b"1", b"2", b"3", b"4"]
