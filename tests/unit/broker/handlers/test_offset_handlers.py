"""Where a group is in a queue, and where the queue begins and ends."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.headers import (
    OffsetReply,
    PullReply,
    QueryOffset,
    QueueNamed,
    SearchOffset,
    TimestampReply,
    UpdateOffset,
)
from tests.unit.broker.broker_world import STORE, BrokerWorld, Peer


def query(peer: Peer, *, topic: str = "orders", queue_id: int = 0, zero: bool | None = None) -> Command:
    header = QueryOffset(consumer_group="readers", topic=topic, queue_id=queue_id, set_zero_if_not_found=zero)
    return peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)


def commit(peer: Peer, offset: int, *, group: str = "readers", **more: Any) -> Command:
    usual = {"topic": "orders", "queue_id": 0, **more}
    header = UpdateOffset(consumer_group=group, commit_offset=offset, **usual)
    return peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)


def found(reply: Command) -> int:
    assert reply.code == 0, reply.remark
    return reply.parse(OffsetReply).offset


# ------------------------------------------------------------------------------------------------ committed


def test_what_was_committed_is_answered_also_after_going_back(peer: Peer) -> None:
    peer.send()
    assert commit(peer, 7).code == 0
    assert found(query(peer)) == 7
    assert commit(peer, 3).code == 0
    assert found(query(peer)) == 3


def test_a_commit_for_a_queue_that_is_closed_counts_and_one_that_never_was_does_not(
    peer: Peer, world: BrokerWorld
) -> None:
    world.make_topic("orders", queues=4)
    peer.send(queue_id=3)
    world.make_topic("orders", queues=2)
    assert commit(peer, 1, queue_id=3).code == 0
    assert commit(peer, 1, queue_id=9).code == 0
    assert found(query(peer, queue_id=3)) == 1
    assert query(peer, queue_id=9).code == 22


def test_a_commit_survives_a_restart_and_a_crash_some_seconds_later(peer: Peer, world: BrokerWorld) -> None:
    for _ in range(8):
        peer.send()
    commit(peer, 7)
    world.pass_time(6)
    world.crash()
    world.start()
    assert found(query(world.connect())) == 7
    commit(world.connect(), 8)
    world.stop()
    world.start()
    assert found(query(world.connect())) == 8


def test_after_a_power_cut_no_offset_is_beyond_its_queue(peer: Peer, world: BrokerWorld) -> None:
    for _ in range(3):
        peer.send()
    commit(peer, 3)
    world.pass_time(6)  # offsets are saved, and the log, flushed less often, is not on the disk
    world.lose_power()
    end = world.start().store.max_offset("orders", 0)
    assert end < 3
    assert found(query(world.connect())) == end


def test_after_rot_took_the_last_messages_no_offset_is_beyond_its_queue(
    peer: Peer, world: BrokerWorld
) -> None:
    for _ in range(3):
        peer.send()
    commit(peer, 3)
    end = world.broker.store.wrote
    world.stop()
    world.files.open(f"{STORE}/commitlog/{0:020d}").pwrite(b"####", end - 40)
    assert world.start().store.max_offset("orders", 0) == 2
    assert found(query(world.connect())) == 2
    assert world.broker.metrics.figures().value("rocketmq_corrupt_records_total") == 1


def test_a_reader_of_what_a_power_cut_took_goes_on_where_the_queue_does(
    peer: Peer, world: BrokerWorld
) -> None:
    for _ in range(4):
        peer.send()
    commit(peer, 1)
    world.pass_time(6)
    world.lose_power()
    end = world.start().store.max_offset("orders", 0)
    assert end < 4
    again = world.connect()
    for _ in range(4):
        again.send(body=b"new")
    commit(again, 4)  # what it had read before
    assert found(query(again)) == min(1, end)
    moved = again.pull(queue_offset=4)
    assert (moved.code, moved.parse(PullReply).next_begin_offset) == (21, end)
    assert len(again.records(queue_offset=end)) == 4
    commit(again, end + 4)
    assert found(query(again)) == end + 4


def test_a_new_group_on_a_young_topic_begins_with_its_first_message(peer: Peer) -> None:
    peer.send()
    assert found(query(peer)) == 0


def test_a_new_group_on_a_topic_that_outgrew_memory_is_left_to_its_own_policy(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(world.files), "memory_bytes", lambda _: 10_000)
    world.start()
    world.make_topic("orders")
    peer = world.connect()
    peer.send()
    assert found(query(peer)) == 0
    peer.send(body=bytes(10_000))
    assert query(peer).code == 22
    assert commit(peer, 0).code == 0
    assert found(query(peer)) == 0


@pytest.mark.parametrize("more", [{"zero": False}, {"queue_id": 3}, {"topic": "others"}], ids=str)
def test_who_has_no_offset_hears_exactly_that(peer: Peer, world: BrokerWorld, more: dict[str, Any]) -> None:
    peer.send()
    world.make_topic("others")
    reply = query(peer, **more)
    assert reply.code == 22
    assert "readers" in (reply.remark or "")


def test_negative_commits_change_nothing(peer: Peer) -> None:
    peer.send()
    commit(peer, 5)
    assert commit(peer, -1).code == 0
    assert found(query(peer)) == 5


@pytest.mark.parametrize("queue_id", [-1, 4])
def test_a_commit_for_a_queue_that_is_not_there_changes_nothing(
    peer: Peer, world: BrokerWorld, queue_id: int
) -> None:
    peer.send()
    commit(peer, 5, queue_id=queue_id)
    assert world.broker.offsets.get("readers", "orders", queue_id) is None


def test_a_commit_for_an_unknown_topic_is_refused(peer: Peer) -> None:
    reply = commit(peer, 5, topic="nowhere")
    assert reply.code == 17
    assert "'nowhere'" in (reply.remark or "")


def test_a_commit_for_a_group_that_may_not_make_itself_is_refused(world: BrokerWorld) -> None:
    world.start(auto_create_group=False)
    world.make_topic("orders")
    reply = commit(world.connect(), 5)
    assert reply.code == 26
    assert "'readers'" in (reply.remark or "")
    assert world.broker.offsets.get("readers", "orders", 0) is None


def test_a_commit_for_a_name_that_no_group_can_have_is_refused(peer: Peer) -> None:
    peer.send()
    reply = commit(peer, 5, group="a@b")
    assert reply.code == 26
    assert "'a@b'" in (reply.remark or "")


# ---------------------------------------------------------------------------------------- the queue's bounds


def ask_queue(peer: Peer, code: int, topic: str = "orders", queue_id: int = 0) -> Command:
    return peer.ask(code, QueueNamed(topic=topic, queue_id=queue_id))


def test_a_queue_begins_and_ends_somewhere(peer: Peer) -> None:
    for _ in range(3):
        peer.send(queue_id=1)
    assert found(ask_queue(peer, RequestCode.GET_MIN_OFFSET, queue_id=1)) == 0
    assert found(ask_queue(peer, RequestCode.GET_MAX_OFFSET, queue_id=1)) == 3


def test_a_queue_without_messages_begins_and_ends_at_zero(peer: Peer) -> None:
    peer.send(queue_id=1)
    for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
        assert found(ask_queue(peer, code, queue_id=2)) == 0


def test_the_time_of_the_oldest_message_is_told(peer: Peer, world: BrokerWorld) -> None:
    reply = ask_queue(peer, RequestCode.GET_EARLIEST_MSG_STORETIME)
    assert reply.parse(TimestampReply).timestamp == -1
    stored_ms = world.clock.now_ms()
    peer.send()
    world.pass_time(5)
    peer.send()
    reply = ask_queue(peer, RequestCode.GET_EARLIEST_MSG_STORETIME)
    assert reply.parse(TimestampReply).timestamp == stored_ms


@pytest.mark.parametrize(
    ("seconds", "boundary", "offset"),
    [
        (-1, None, 0),
        (0, None, 0),
        (5, None, 3),
        (10, None, 3),
        (11, None, 6),
        (-1, "UPPER", 0),
        (5, "upper", 2),
        (10, "UPPER", 5),
        (11, "UPPER", 5),
        (10, "LOWER", 3),
    ],
)
def test_an_offset_is_found_by_time(
    peer: Peer, world: BrokerWorld, seconds: int, boundary: str | None, offset: int
) -> None:
    began_ms = world.clock.now_ms()
    for _ in range(3):
        peer.send()
    world.pass_time(10)
    for _ in range(3):
        peer.send()
    header = SearchOffset(
        topic="orders", queue_id=0, timestamp=began_ms + 1000 * seconds, boundary_type=boundary
    )
    assert found(peer.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)) == offset
