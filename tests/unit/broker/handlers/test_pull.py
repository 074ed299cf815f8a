"""Handing messages out: who may read what, and how the end of a queue is said."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.broker.handlers.pull import response_code
from kourou.protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import BINARY, Command
from kourou.protocol.headers import PullReply, QueryOffset
from kourou.protocol.record import decode_all
from kourou.store.store import ReadStatus
from tests.unit.broker.broker_world import COMMIT, OWN_SUBSCRIPTION, STORE, BrokerWorld, Peer, pull, send

FOUND, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21


def ends(reply: Command) -> tuple[int, str, int, int, int]:
    """Code, remark, and the three offsets; the fourth field is there in any case."""
    offsets = reply.parse(PullReply)
    assert offsets.suggest_which_broker_id == 0
    return (
        reply.code,
        reply.remark or "",
        offsets.next_begin_offset,
        offsets.min_offset,
        offsets.max_offset,
    )


# ------------------------------------------------------------------------------------- how a read may end


@pytest.mark.parametrize(
    ("status", "at_start", "further_on"),
    [
        ("FOUND", FOUND, FOUND),
        ("NO_MESSAGE_IN_QUEUE", NOT_FOUND, MOVED),
        ("OFFSET_TOO_SMALL", MOVED, MOVED),
        ("OFFSET_OVERFLOW_ONE", NOT_FOUND, NOT_FOUND),
        ("OFFSET_OVERFLOW_BADLY", MOVED, MOVED),
        ("OFFSET_FOUND_NULL", NOT_FOUND, NOT_FOUND),
        ("NO_MATCHED_MESSAGE", RETRY, RETRY),
        ("MESSAGE_WAS_REMOVING", RETRY, RETRY),
    ],
)
def test_every_end_of_a_read_has_the_originals_code(status: str, at_start: int, further_on: int) -> None:
    assert response_code(ReadStatus[status], 0) == at_start
    assert response_code(ReadStatus[status], 7) == further_on
    assert len(ReadStatus) == 8


def test_a_lite_pull_is_a_pull(peer: Peer) -> None:
    peer.send("orders", b"x")
    command = pull("orders")
    command.code = RequestCode.LITE_PULL_MESSAGE
    assert [record.body for record in decode_all(peer.begin(command).reply.body)] == [b"x"]


def test_messages_are_found_and_sent_as_they_lie_on_disk(peer: Peer, world: BrokerWorld) -> None:
    for number in range(5):
        peer.send("orders", b"%d" % number)
    reply = peer.pull("orders", 0, 1)
    assert ends(reply)[0] == FOUND
    assert ends(reply)[2:] == (5, 0, 5)
    records = decode_all(reply.body)
    assert [each.body for each in records] == [b"1", b"2", b"3", b"4"]
    first = records[0]
    assert world.broker.store.record_at(first.physical_offset) == first.data


@pytest.mark.parametrize(
    ("queue_offset", "end"),
    [
        (0, (NOT_FOUND, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)),
        (3, (MOVED, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)),
    ],
)
def test_a_queue_that_never_was_is_empty_for_whoever_begins_and_wrong_for_others(
    world: BrokerWorld, queue_offset: int, end: tuple[int, str, int, int, int]
) -> None:
    world.start()
    world.make_topic("orders")
    assert ends(world.connect().pull("orders", 2, queue_offset)) == end


@pytest.mark.parametrize(
    ("queue_offset", "end"),
    [
        (3, (NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3, 0, 3)),
        (4, (MOVED, "OFFSET_OVERFLOW_BADLY", 3, 0, 3)),
        (-1, (MOVED, "OFFSET_TOO_SMALL", 0, 0, 3)),
    ],
)
@pytest.mark.parametrize("serialization", [0, BINARY])
def test_an_offset_outside_the_queue_is_answered_with_a_good_one(
    peer: Peer, serialization: int, queue_offset: int, end: tuple[int, str, int, int, int]
) -> None:
    for _ in range(3):
        peer.send()
    reply = peer.pull("orders", 0, queue_offset, serialization=serialization)
    assert ends(reply) == end
    assert (reply.body, reply.serialization) == (b"", serialization)


def test_a_filter_that_drops_everything_moves_the_reader_on(peer: Peer) -> None:
    for _ in range(3):
        peer.send(properties={"TAGS": "new"})
    assert ends(peer.pull(tags="paid")) == (RETRY, "NO_MATCHED_MESSAGE", 3, 0, 3)


def test_a_filter_looks_at_800_entries_and_then_answers(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    for _ in range(9):
        peer.begin(*[send(properties={"TAGS": "new"}) for _ in range(100)])
    assert ends(peer.pull(tags="paid"))[:3] == (RETRY, "NO_MATCHED_MESSAGE", 800)
    assert ends(peer.pull(tags="paid", queue_offset=800))[:3] == (RETRY, "NO_MATCHED_MESSAGE", 900)


def test_what_retention_took_away_is_said_with_the_first_offset_that_is_left(world: BrokerWorld) -> None:
    sizes = {"segment_bytes": 64 * 1024, "consume_queue_bytes": 10 * 20}
    world.start(**sizes)
    peer = world.connect()
    for _ in range(100):
        peer.send("orders", b"x" * 2000)
    world.stop()
    world.files.remove(f"{STORE}/commitlog/{0:020}")
    world.start(**sizes)
    peer = world.connect()
    code, remark, following, least, most = ends(peer.pull("orders", 0, 0))
    assert (code, remark, most) == (MOVED, "OFFSET_TOO_SMALL", 100)
    assert 25 < least < 35
    assert following == least
    assert peer.records("orders", 0, following)[0].queue_offset == least


# ---------------------------------------------------------------------------------------- how much is sent


def test_no_more_messages_are_sent_than_asked_for_or_allowed(world: BrokerWorld) -> None:
    world.start(pull_messages_max=10)
    peer = world.connect()
    for _ in range(15):
        peer.send()
    assert len(peer.records(message_count_max=4)) == 4
    assert len(peer.records(message_count_max=32)) == 10
    assert len(peer.records(message_count_max=0)) == 1


def test_no_more_bytes_are_sent_than_allowed_but_always_one_message(world: BrokerWorld) -> None:
    world.start(pull_bytes_max=10_000)
    peer = world.connect()
    for size in (3000, 3000, 3000, 20_000, 100):
        peer.send("orders", b"x" * size)
    assert [each.body_length for each in peer.records()] == [3000, 3000, 3000]
    assert [each.body_length for each in peer.records(queue_offset=3)] == [20_000]


# -------------------------------------------------------------------------------------------------- filters


@pytest.mark.parametrize(
    ("tags", "bodies"),
    [
        ("*", [b"new", b"paid", b"", b"lost"]),
        ("", [b"new", b"paid", b"", b"lost"]),
        (None, [b"new", b"paid", b"", b"lost"]),
        ("paid", [b"paid"]),
        ("lost || new", [b"new", b"lost"]),
    ],
)
def test_a_tag_expression_chooses_messages(peer: Peer, tags: str | None, bodies: list[bytes]) -> None:
    for tag in ("new", "paid", "", "lost"):
        peer.send("orders", tag.encode() or b"-", properties={"TAGS": tag} if tag else {})
    found = [record.find(b"TAGS") or b"" for record in peer.records(tags=tags)]
    assert found == bodies


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        ({"tags": " || "}, 23, "names no tag"),
        ({"expression_type": "SQL92", "tags": "a > 1"}, 1, "does not support consumer to filter"),
    ],
)
def test_an_expression_that_cannot_be_used_is_refused(
    peer: Peer, more: dict[str, Any], code: int, words: str
) -> None:
    peer.send()
    reply = peer.pull(**more)
    assert reply.code == code
    assert words in (reply.remark or "")


# --------------------------------------------------------------------------- the checks, and their order


def test_a_broker_that_may_not_be_read_says_so_before_anything_else(world: BrokerWorld) -> None:
    world.start(permission=2, auto_create_group=False)
    reply = world.connect().pull("nowhere")
    assert reply.code == 16
    assert "brokerPermission is 2" in (reply.remark or "")


def test_an_unknown_group_is_refused_before_its_unknown_topic(world: BrokerWorld) -> None:
    world.start(auto_create_group=False)
    reply = world.connect().pull("nowhere", group="strangers")
    assert reply.code == 26
    assert "'strangers'" in (reply.remark or "")
    assert "autoCreateSubscriptionGroup" in (reply.remark or "")


def test_a_group_is_made_by_its_first_pull_and_kept(world: BrokerWorld) -> None:
    world.start()
    world.make_topic("orders")
    world.connect().pull(group="newcomers")
    world.crash()
    assert "newcomers" in world.start().groups.all


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        ({"group": "no blanks"}, 26, "'no blanks' has illegal characters"),
        ({"group": "disabled", "topic": "nowhere"}, 16, "disabled may not consume"),
        ({"topic": "nowhere"}, 17, "no topic 'nowhere'"),
        ({"topic": "write-only", "queue_id": 9}, 16, "'write-only' is not readable: its perm is 2"),
        ({"queue_id": 4}, 29, "queueId 4 is illegal: topic 'orders' has 4 read queues"),
        ({"queue_id": -1}, 29, "queueId -1 is illegal"),
    ],
)
def test_a_pull_that_may_not_be_is_refused_with_its_code_and_the_value(
    world: BrokerWorld, more: dict[str, Any], code: int, words: str
) -> None:
    broker = world.start()
    world.make_topic("orders")
    world.make_topic("write-only", perm=2)
    broker.groups.get_or_create("disabled").consume_enable = False
    reply = world.connect().pull(**more)
    assert reply.code == code
    assert words in (reply.remark or "")


# -------------------------------------------------------------------- by the subscription of a heartbeat


def heartbeat(
    peer: Peer,
    *tags: str,
    topic: str = "orders",
    group: str = "readers",
    version: int = 5,
    model: MessageModel = MessageModel.CLUSTERING,
) -> None:
    subscription = SubscriptionData(topic=topic, sub_string=" || ".join(tags) or "*", sub_version=version)
    consumer = ConsumerData(group_name=group, message_model=model, subscription_data_set=[subscription])
    body = HeartbeatData(client_id="10.0.0.1@1", consumer_data_set=[consumer]).encode()
    assert peer.ask(RequestCode.HEART_BEAT, body=body).code == 0


def by_heartbeat(peer: Peer, **more: Any) -> Command:
    """A pull that relies on what the group's heartbeats said."""
    return peer.begin(pull(tags=None, sys_flag=0, **{"subscription_version": 5, **more})).reply


def test_a_pull_without_a_subscription_needs_a_heartbeat(world: BrokerWorld) -> None:
    broker = world.start()
    world.make_topic("orders")
    world.make_topic("others")
    peer = world.connect()
    reply = by_heartbeat(peer)
    assert (reply.code, "readers has no member here" in (reply.remark or "")) == (24, True)
    heartbeat(peer, "new")
    reply = by_heartbeat(peer, topic="others")
    assert (reply.code, "subscribes to 'others'" in (reply.remark or "")) == (24, True)
    reply = by_heartbeat(peer, subscription_version=6)
    assert (reply.code, "subscription version 5, this pull has 6" in (reply.remark or "")) == (25, True)
    assert by_heartbeat(peer).code == NOT_FOUND
    assert by_heartbeat(peer, subscription_version=4).code == NOT_FOUND
    broker.groups.get_or_create("readers").consume_broadcast_enable = False
    heartbeat(peer, "new", model=MessageModel.BROADCASTING)
    reply = by_heartbeat(peer)
    assert (reply.code, "readers may not broadcast" in (reply.remark or "")) == (16, True)


def test_the_heartbeats_tags_choose_and_a_newer_heartbeat_changes_them(peer: Peer) -> None:
    for tag in ("new", "paid"):
        peer.send("orders", tag.encode(), properties={"TAGS": tag})
    heartbeat(peer, "new", version=5)
    assert [each.body for each in decode_all(by_heartbeat(peer).body)] == [b"new"]
    heartbeat(peer, "paid", version=6)
    assert [each.body for each in decode_all(by_heartbeat(peer).body)] == [b"paid"]
    heartbeat(peer, "new", version=5)  # a straggler's old one
    assert [each.body for each in decode_all(by_heartbeat(peer).body)] == [b"paid"]


def test_a_sql_subscription_is_refused_when_it_is_used(peer: Peer) -> None:
    peer.send()
    subscription = SubscriptionData(
        topic="orders", expression_type="SQL92", sub_string="a > 1", sub_version=5
    )
    consumer = ConsumerData(group_name="readers", subscription_data_set=[subscription])
    body = HeartbeatData(client_id="c", consumer_data_set=[consumer]).encode()
    peer.ask(RequestCode.HEART_BEAT, body=body)
    reply = by_heartbeat(peer)
    assert (reply.code, "SQL92" in (reply.remark or "")) == (1, True)


# ------------------------------------------------------------------------------------- commits on the way


def committed(peer: Peer, queue_id: int = 0) -> int | None:
    query = QueryOffset(
        consumer_group="readers", topic="orders", queue_id=queue_id, set_zero_if_not_found=False
    )
    reply = peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, query)
    return int(reply.fields["offset"]) if reply.code == 0 else None


def test_a_pull_with_the_commit_flag_commits_and_one_without_does_not(peer: Peer) -> None:
    for _ in range(4):
        peer.send()
    peer.pull(commit_offset=2)
    assert committed(peer) is None
    peer.pull(sys_flag=OWN_SUBSCRIPTION | COMMIT, commit_offset=3)
    assert committed(peer) == 3
    peer.pull(sys_flag=OWN_SUBSCRIPTION | COMMIT, commit_offset=-1)  # the Node client's "none yet"
    assert committed(peer) == 3


def test_a_refused_pull_commits_nothing(peer: Peer) -> None:
    peer.send()
    assert peer.pull(queue_id=9, sys_flag=OWN_SUBSCRIPTION | COMMIT, commit_offset=3).code == 29
    assert committed(peer, queue_id=9) is None
