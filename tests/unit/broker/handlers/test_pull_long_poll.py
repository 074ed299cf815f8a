"""Readers that wait at the end of a queue."""

from __future__ import annotations

import pytest

from kourou.protocol.codes import RequestCode
from kourou.protocol.command import BINARY, Command
from kourou.protocol.headers import PullReply, QueryOffset
from kourou.protocol.record import decode_all
from tests.unit.broker.broker_world import (
    COMMIT,
    OWN_SUBSCRIPTION,
    SUSPEND,
    BrokerWorld,
    Peer,
    Waiting,
    pull,
)


@pytest.fixture
def reader(peer: Peer, world: BrokerWorld) -> Peer:
    """Somebody else than the sender, who has read everything there is: one message."""
    peer.send("orders", b"first")
    return world.connect()


def wait_at(reader: Peer, queue_offset: int, *, tags: str = "*", wait_ms: int = 15_000) -> Waiting:
    waiting = reader.begin(pull("orders", 0, queue_offset, tags=tags, wait_ms=wait_ms))
    assert not waiting.is_answered
    return waiting


def bodies(reply: Command) -> list[bytes]:
    return [record.body for record in decode_all(reply.body)]


@pytest.mark.parametrize("serialization", [0, BINARY])
def test_a_waiting_reader_is_woken_by_the_next_message(
    peer: Peer, reader: Peer, world: BrokerWorld, serialization: int
) -> None:
    waiting = reader.begin(pull("orders", 0, 1, wait_ms=15_000, serialization=serialization))
    world.pass_time(3)
    assert not waiting.is_answered
    peer.send("orders", b"second")
    assert waiting.reply.code == 0
    assert waiting.reply.serialization == serialization
    assert bodies(waiting.reply) == [b"second"]
    assert waiting.reply.parse(PullReply).next_begin_offset == 2


def test_messages_of_other_queues_do_not_wake_a_reader(peer: Peer, reader: Peer) -> None:
    waiting = wait_at(reader, 1)
    peer.send("orders", queue_id=1)
    peer.send("others", queue_id=0)
    assert not waiting.is_answered


def test_all_readers_of_a_queue_are_woken(peer: Peer, reader: Peer, world: BrokerWorld) -> None:
    waiting = [wait_at(each, 1) for each in (reader, reader, world.connect())]
    peer.send("orders", b"second")
    assert [bodies(each.reply) for each in waiting] == [[b"second"]] * 3


def test_a_reader_of_a_queue_that_never_was_is_woken_by_its_first_message(
    peer: Peer, reader: Peer, world: BrokerWorld
) -> None:
    waiting = reader.begin(pull("orders", 3, 0, wait_ms=15_000))
    assert not waiting.is_answered
    peer.send("orders", b"the very first", queue_id=3)
    assert bodies(waiting.reply) == [b"the very first"]


def test_a_message_for_others_does_not_wake_a_reader_but_moves_it_on(
    peer: Peer, reader: Peer, world: BrokerWorld
) -> None:
    waiting = wait_at(reader, 1, tags="paid")
    peer.send("orders", b"no", properties={"TAGS": "new"})
    assert not waiting.is_answered
    world.pass_time(16)
    assert waiting.reply.code == 19
    assert waiting.reply.parse(PullReply).next_begin_offset == 2  # it need not look at that one again


def test_the_message_it_wants_wakes_a_reader_that_let_others_pass(peer: Peer, reader: Peer) -> None:
    waiting = wait_at(reader, 1, tags="paid || lost")
    for tag in ("new", "new", "paid"):
        peer.send("orders", tag.encode(), properties={"TAGS": tag})
    assert bodies(waiting.reply) == [b"paid"]
    assert waiting.reply.parse(PullReply).next_begin_offset == 4


def test_a_reader_is_answered_with_nothing_when_its_time_is_up(reader: Peer, world: BrokerWorld) -> None:
    waiting = wait_at(reader, 1, wait_ms=15_000)
    world.pass_time(14.5)
    assert not waiting.is_answered
    world.pass_time(1)
    reply = waiting.reply
    assert (reply.code, reply.remark) == (19, "OFFSET_OVERFLOW_ONE")
    assert reply.parse(PullReply) == PullReply(0, 1, 0, 1)


def test_a_reader_may_not_wait_longer_than_its_connection_is_allowed_to_be_silent(
    reader: Peer, world: BrokerWorld
) -> None:
    waiting = wait_at(reader, 1, wait_ms=10_000_000)
    world.pass_time(110)
    assert waiting.reply.code == 19
    assert not reader.is_lost


@pytest.mark.parametrize(("queue_offset", "code"), [(0, 0), (2, 21), (-1, 21)])
def test_only_a_reader_at_the_end_waits(reader: Peer, queue_offset: int, code: int) -> None:
    assert reader.pull("orders", 0, queue_offset, wait_ms=15_000).code == code


def test_a_reader_that_does_not_want_to_wait_does_not(reader: Peer) -> None:
    assert reader.pull("orders", 0, 1).code == 19
    assert reader.pull("orders", 0, 1, suspend_timeout_ms=15_000).code == 19  # a time, but no flag


def test_with_long_polling_switched_off_a_reader_waits_a_second(world: BrokerWorld) -> None:
    world.start(long_polling=False)
    world.make_topic("orders")
    waiting = world.connect().begin(pull(wait_ms=15_000))
    world.pass_time(0.5)
    assert not waiting.is_answered
    world.pass_time(1)
    assert waiting.reply.code == 19


def test_a_reader_whose_connection_closed_is_forgotten(peer: Peer, reader: Peer, world: BrokerWorld) -> None:
    wait_at(reader, 1)
    assert len(world.broker.long_poll) == 1
    reader.close()
    peer.send("orders", b"second")
    world.pass_time(1)
    assert len(world.broker.long_poll) == 0


def test_waiting_readers_are_answered_when_the_broker_stops(reader: Peer, world: BrokerWorld) -> None:
    waiting = wait_at(reader, 1)
    world.stop()
    assert waiting.reply.code == 19
    assert reader.is_lost


def test_a_reader_commits_when_it_begins_to_wait_and_only_then(
    peer: Peer, reader: Peer, world: BrokerWorld
) -> None:
    flags = OWN_SUBSCRIPTION | SUSPEND | COMMIT
    waiting = reader.begin(pull("orders", 0, 1, sys_flag=flags, suspend_timeout_ms=15_000, commit_offset=1))
    offsets = world.broker.offsets
    assert offsets.get("readers", "orders", 0) == 1
    offsets.commit("readers", "orders", 0, 0)  # somebody goes back meanwhile
    peer.send("orders", b"second")
    assert waiting.is_answered
    assert offsets.get("readers", "orders", 0) == 0


def test_thousands_of_waiting_readers_do_not_hold_back_their_connection(
    peer: Peer, reader: Peer, world: BrokerWorld
) -> None:
    world.make_topic("wide", queues=5000)
    last = reader.begin(*[pull("wide", queue_id, 0, wait_ms=15_000) for queue_id in range(5000)])
    query = QueryOffset(consumer_group="readers", topic="orders", queue_id=0)
    assert reader.ask(RequestCode.QUERY_CONSUMER_OFFSET, query).code == 0
    peer.send("wide", b"for the last", queue_id=4999)
    assert bodies(last.reply) == [b"for the last"]
    assert len(world.broker.long_poll) == 4999


def test_a_large_message_reaches_all_who_wait_for_it_without_crowding_anybody_out(world: BrokerWorld) -> None:
    world.start()
    sender = world.connect()
    sender.create_topic("orders", 1)
    peers = [world.connect() for _ in range(24)]
    waiting = [peer.begin(pull("orders", wait_ms=15_000)) for peer in peers]
    board = world.broker._servers[0]._board
    board._unread_bytes_max = 2_000_000  # 24 answers of 200 KB are more than may be unread at once
    sender.send("orders", bytes(200_000))
    assert not all(each.is_answered for each in waiting)
    world.pass_time(2, 0.02)
    assert [len(each.reply.body) // 200_000 for each in waiting] == [1] * 24
    assert not any(peer.is_lost for peer in peers)
