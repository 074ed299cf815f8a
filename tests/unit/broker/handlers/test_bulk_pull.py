"""A bulk pull brings what many pulls would have brought, and nothing they would not."""

from __future__ import annotations

from typing import Any

import pytest

import kourou
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import BINARY, Command
from kourou.protocol.extensions import BulkPull, Capabilities
from kourou.protocol.headers import PullReply
from kourou.protocol.record import Record, decode_all
from tests.unit.broker.broker_world import BrokerWorld, Peer, send

MEGABYTE = 1024 * 1024


def bulk(peer: Peer, queue_offset: int = 0, *, serialization: int = 0, **more: Any) -> Command:
    usual = {
        "consumer_group": "readers",
        "topic": "orders",
        "queue_id": 0,
        "queue_offset": queue_offset,
        "bytes_max": MEGABYTE,
    }
    return peer.ask(RequestCode.KOUROU_BULK_PULL, BulkPull(**{**usual, **more}), serialization=serialization)


def offsets(reply: Command) -> list[int]:
    return [record.queue_offset for record in decode_all(reply.body)]


def pulled_one_by_one(peer: Peer, **more: Any) -> list[Record]:
    found: list[Record] = []
    at = 0
    while True:
        reply = peer.pull("orders", 0, at, **more)
        found += decode_all(reply.body)
        header = reply.parse(PullReply)
        if header.next_begin_offset >= header.max_offset:
            return found
        at = header.next_begin_offset


@pytest.fixture
def full(world: BrokerWorld) -> Peer:
    world.start(property_filter=True)
    world.make_topic("orders", queues=2)
    peer = world.connect()
    for i in range(300):
        properties = {"TAGS": "even" if i % 2 == 0 else "odd", "amount": str(i), "UNIQ_KEY": f"{i:032X}"}
        peer.send("orders", b"body %d" % i * 20, properties=properties)
    return peer


def test_it_brings_everything_at_once_as_it_lies_in_the_log(full: Peer) -> None:
    reply = bulk(full)
    assert reply.code == 0
    assert [record.data for record in decode_all(reply.body)] == [
        record.data for record in pulled_one_by_one(full)
    ]
    header = reply.parse(PullReply)
    assert (header.next_begin_offset, header.min_offset, header.max_offset) == (300, 0, 300)


def test_it_stops_at_the_bytes_and_at_the_offset_asked_for(full: Peer) -> None:
    reply = bulk(full, bytes_max=20_000)
    assert 0 < len(reply.body) <= 20_000
    after = reply.parse(PullReply).next_begin_offset
    assert offsets(reply) == list(range(after))
    assert offsets(bulk(full, after, queue_offset_end=after + 77)) == list(range(after, after + 77))
    assert offsets(bulk(full, 5, bytes_max=1)) == [5], "one always comes"


@pytest.mark.parametrize(
    "wanted",
    [
        {"subscription": "even"},
        {"subscription": "even || odd"},
        {"subscription": "nothing"},
        {"subscription": "amount > 250 AND TAGS = 'odd'", "expression_type": "SQL92"},
    ],
)
def test_filters_are_those_of_a_pull(full: Peer, wanted: dict[str, Any]) -> None:
    expected = pulled_one_by_one(full, tags=wanted["subscription"], **_kind(wanted))
    reply = bulk(full, **wanted)
    assert offsets(reply) == [record.queue_offset for record in expected]
    assert reply.parse(PullReply).next_begin_offset == 300
    assert reply.code == (0 if expected else ResponseCode.PULL_RETRY_IMMEDIATELY)


def _kind(wanted: dict[str, Any]) -> dict[str, Any]:
    return {"expression_type": wanted["expression_type"]} if "expression_type" in wanted else {}


def test_without_bodies_the_rest_is_the_same(full: Peer) -> None:
    whole, heads = decode_all(bulk(full).body), decode_all(bulk(full, headers_only=True).body)
    assert len(heads) == 300
    for record, head in zip(whole, heads, strict=True):
        assert (head.body, head.body_crc) == (b"", record.body_crc)
        assert (head.topic, head.properties, head.queue_offset) == (
            record.topic,
            record.properties,
            record.queue_offset,
        )
        assert (head.born_ms, head.store_host, head.physical_offset) == (
            record.born_ms,
            record.store_host,
            record.physical_offset,
        )


def test_where_a_pull_has_nothing_neither_has_this(full: Peer) -> None:
    for at in (300, 301, 10_000):
        plain, many = full.pull("orders", 0, at), bulk(full, at)
        assert (many.code, many.remark) == (plain.code, plain.remark)
        assert many.parse(PullReply) == plain.parse(PullReply)
    assert bulk(full, queue_id=1).code == full.pull("orders", 1, 0).code


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 9}, ResponseCode.INVALID_PARAMETER),
        ({"subscription": "a >", "expression_type": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"bytes_max": 0}, ResponseCode.INVALID_PARAMETER),
        ({"bytes_max": 100 * MEGABYTE}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_what_a_pull_may_not_this_may_not(full: Peer, more: dict[str, Any], code: int) -> None:
    assert bulk(full, **more).code == code


def test_it_commits_nothing_and_waits_for_nothing(world: BrokerWorld, full: Peer) -> None:
    bulk(full)
    assert world.broker.offsets.get("readers", "orders", 0) is None


def test_what_is_not_on_the_disk_yet_is_not_handed_out(world: BrokerWorld) -> None:
    world.start(flush_disk_type="SYNC_FLUSH")
    world.make_topic("orders", queues=1)
    peer = world.connect()
    peer.send("orders", b"durable")
    world.disk.hold()
    world.connect().begin(send("orders", b"not yet"))
    assert [record.body for record in decode_all(bulk(peer).body)] == [b"durable"]
    world.disk.release()
    world.settle()
    assert [record.body for record in decode_all(bulk(peer).body)] == [b"durable", b"not yet"]


@pytest.mark.parametrize("serialization", [0, BINARY])
def test_a_client_can_ask_what_we_are(peer: Peer, serialization: int) -> None:
    reply = peer.ask(RequestCode.KOUROU_CAPABILITIES, serialization=serialization)
    said = reply.parse(Capabilities)
    assert said.kourou_version == kourou.__version__
    assert said.broker_name == "broker-a"
    assert said.bulk_pull_bytes_max >= MEGABYTE
    assert said.staged_chunk_bytes_max >= MEGABYTE


def test_it_can_be_asked_in_binary(full: Peer) -> None:
    assert offsets(bulk(full, serialization=BINARY)) == list(range(300))
