"""Exactly once: whatever is staged, repeated, crashed and committed, each message is there once or not at
all."""

from __future__ import annotations

import errno
from random import Random

import pytest

from kourou.broker import sequences
from kourou.protocol.bodies import PERM_READ
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.extensions import StageCount, StagedReply, decode_decision
from kourou.protocol.names import STAGED_TOPIC
from tests.unit.broker.broker_world import BrokerWorld
from tests.unit.broker.staging_peer import StagingPeer, all_bodies, message, messages, state_of


@pytest.fixture
def staging(world: BrokerWorld) -> StagingPeer:
    world.start()
    world.make_topic("orders")
    return StagingPeer(world)


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(first, first + count)]


# ------------------------------------------------------------------------------------------- the three rules


def test_nobody_sees_what_is_staged_and_everybody_what_is_committed(
    world: BrokerWorld, staging: StagingPeer
) -> None:
    assert state_of(staging.stage(messages(numbered(0, 40)))) == "staged"
    assert state_of(staging.stage(messages(numbered(40, 10)))) == "staged"
    assert all_bodies(staging.peer) == []
    reply = staging.commit()
    assert state_of(reply) == "committed"
    assert reply.parse(StagedReply).messages == 50
    assert all_bodies(staging.peer) == numbered(0, 50)


def test_a_committed_message_is_like_one_that_was_sent(world: BrokerWorld, staging: StagingPeer) -> None:
    staging.stage([message(b"paid", queue_id=2, TAGS="new", KEYS="42 43")])
    staging.commit()
    [record] = staging.peer.records("orders", 2)
    table = record.property_table()
    assert (table["TAGS"], table["KEYS"], table["UNIQ_KEY"]) == ("new", "42 43", b"paid".hex().zfill(32))
    assert table["MSG_REGION"] == "DefaultRegion"
    assert (record.born_ms, record.sys_flag, record.queue_offset) == (1_600_000_000_000, 0, 0)
    assert record.damage() is None


def test_a_chunk_that_comes_again_is_confirmed_and_not_stored(
    world: BrokerWorld, staging: StagingPeer
) -> None:
    staging.stage(messages(numbered(0, 5)))
    before = world.broker.store.max_offset(STAGED_TOPIC, 0)
    assert state_of(staging.stage(messages(numbered(0, 5)), sequence=0)) == "repeated"
    assert world.broker.store.max_offset(STAGED_TOPIC, 0) == before
    staging.commit()
    assert all_bodies(staging.peer) == numbered(0, 5)


def test_a_chunk_is_refused_when_one_before_it_is_missing(world: BrokerWorld, staging: StagingPeer) -> None:
    staging.stage(messages(numbered(0, 5)))
    reply = staging.stage(messages(numbered(10, 5)), sequence=2)
    assert reply.code == ResponseCode.ILLEGAL_OPERATION
    assert "1 are missing" in (reply.remark or "")


def test_attempts_that_no_commit_names_never_were(world: BrokerWorld, staging: StagingPeer) -> None:
    killed = StagingPeer(world, stage="0.0", peer=staging.peer)
    killed.stage(messages(numbered(0, 7)))
    retried = StagingPeer(world, stage="0.1", peer=staging.peer)
    retried.stage(messages(reversed(numbered(0, 10))))  # in another order: a shuffle does that
    assert state_of(retried.commit()) == "committed"
    assert all_bodies(staging.peer) == list(reversed(numbered(0, 10)))
    assert world.broker.sequences.open_stages == 0


def test_a_transaction_is_committed_once_and_the_first_decision_stays(
    world: BrokerWorld, staging: StagingPeer
) -> None:
    staging.stage(messages(numbered(0, 3)))
    staging.commit()
    again = StagingPeer(world, stage="0.9", peer=staging.peer)
    assert state_of(again.stage(messages(numbered(0, 3)))) == "committed"
    reply = again.commit(StageCount("0.9", 1, 3))
    assert state_of(reply) == "committed"
    assert decode_decision(reply.body).brokers == {"broker-a": [StageCount("0.0", 1, 3)]}
    assert all_bodies(staging.peer) == numbered(0, 3)


def test_numbers_below_the_last_decided_one_are_over(world: BrokerWorld, staging: StagingPeer) -> None:
    late = StagingPeer(world, number=6, peer=staging.peer)
    late.stage(messages(numbered(60, 1)))
    current = StagingPeer(world, number=7, peer=staging.peer)
    current.stage(messages(numbered(70, 1)))
    current.commit()
    assert state_of(late.stage(messages(numbered(61, 1)))) == "committed"
    assert state_of(late.commit()) == "committed"
    assert all_bodies(staging.peer) == numbered(70, 1)
    other = StagingPeer(world, producer="another", number=6, peer=staging.peer)
    assert state_of(other.stage(messages(numbered(90, 1)))) == "staged"


@pytest.mark.parametrize(
    "count", [StageCount("0.0", 2, 10), StageCount("0.0", 1, 11), StageCount("7.7", 1, 10)]
)
def test_a_commit_that_names_what_is_not_here_decides_nothing(
    world: BrokerWorld, staging: StagingPeer, count: StageCount
) -> None:
    staging.stage(messages(numbered(0, 10)))
    reply = staging.commit(count)
    assert reply.code == ResponseCode.ILLEGAL_OPERATION
    assert "is not committed" in (reply.remark or "")
    assert staging.state(count).code == ResponseCode.ILLEGAL_OPERATION
    assert state_of(staging.state()) == "open"
    assert state_of(staging.state(staging.count)) == "ready"
    assert state_of(staging.commit()) == "committed"
    assert all_bodies(staging.peer) == numbered(0, 10)


def test_what_is_aborted_is_gone_and_may_be_written_anew(world: BrokerWorld, staging: StagingPeer) -> None:
    staging.stage(messages(numbered(0, 3)))
    assert staging.abort().code == 0
    assert staging.commit().code == ResponseCode.ILLEGAL_OPERATION
    again = StagingPeer(world, stage="0.1", peer=staging.peer)
    again.stage(messages(numbered(0, 4)))
    assert state_of(again.commit()) == "committed"
    assert staging.abort().code == 0
    assert all_bodies(staging.peer) == numbered(0, 4)


def test_several_topics_queues_and_stages_make_one_transaction(
    world: BrokerWorld, staging: StagingPeer
) -> None:
    world.make_topic("payments")
    second = StagingPeer(world, stage="1.0", peer=staging.peer)
    staging.stage([message(b"a", 0), message(b"b", 1), message(b"c", 0)])
    staging.stage(messages([b"p"]), topic="payments")
    second.stage([message(b"d", 3)])
    assert staging.commit(staging.count, second.count).parse(StagedReply).messages == 5
    peer = staging.peer
    assert [all_bodies(peer, "orders", queue) for queue in range(4)] == [[b"a", b"c"], [b"b"], [], [b"d"]]
    assert all_bodies(peer, "payments") == [b"p"]


def test_a_delayed_message_waits_after_the_commit(world: BrokerWorld, staging: StagingPeer) -> None:
    staging.stage([message(b"now"), message(b"soon", DELAY="1")])
    staging.commit()
    assert all_bodies(staging.peer) == [b"now"]
    world.pass_time(3)
    assert all_bodies(staging.peer) == [b"now", b"soon"]


# ------------------------------------------------------------------------------------------ crashes and more


@pytest.mark.parametrize("turns", range(9))
def test_a_crash_while_messages_are_delivered_leaves_each_of_them_once(
    world: BrokerWorld, staging: StagingPeer, turns: int
) -> None:
    for first in range(0, 2_400, 800):
        staging.stage(messages(numbered(first, 800)))
    staging.begin_commit()
    world.pass_time(turns * 0.01, step=0.01)
    in_between = world.broker.store.max_offset("orders", 0)
    world.crash()
    world.start()
    world.pass_time(1, step=0.01)
    peer = world.connect()
    assert in_between < 2_400 or turns > 4
    assert all_bodies(peer) == numbered(0, 2_400)
    again = StagingPeer(world, peer=peer)
    assert state_of(again.commit(staging.count)) == "committed"
    assert all_bodies(peer) == numbered(0, 2_400)


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.77, 0.999])
def test_a_write_that_was_cut_short_is_finished(
    world: BrokerWorld, staging: StagingPeer, kept: float
) -> None:
    staging.stage(messages(numbered(0, 500)))
    start = world.broker.store.wrote
    staging.begin_commit()
    world.pass_time(0.01)
    decided = world.broker.sequences._decided["query"].at
    end = world.broker.store.wrote
    assert start == decided
    note_end = decided + 1_000
    cut = note_end + int((end - note_end) * kept)  # a kill in the middle of a pwrite leaves its beginning
    world.crash()
    log = world.files.open("store/commitlog/00000000000000000000")
    log.pwrite(bytes(end - cut), cut)
    world.start()
    world.pass_time(1, step=0.01)
    peer = world.connect()
    assert all_bodies(peer) == numbered(0, 500)


def test_what_was_staged_survives_a_crash_and_goes_on_where_it_was(
    world: BrokerWorld, staging: StagingPeer
) -> None:
    staging.stage(messages(numbered(0, 5)))
    staging.stage(messages(numbered(5, 5)))
    world.crash()
    world.start()
    again = StagingPeer(world)
    assert state_of(again.stage(messages(numbered(5, 5)), sequence=1)) == "repeated"
    assert again.stage(messages(numbered(5, 5)), sequence=3).code == ResponseCode.ILLEGAL_OPERATION
    assert state_of(again.stage(messages(numbered(10, 5)), sequence=2)) == "staged"
    assert state_of(again.commit(StageCount("0.0", 3, 15))) == "committed"
    assert all_bodies(again.peer) == numbered(0, 15)


def test_what_is_decided_on_a_synced_disk_survives_a_power_cut(world: BrokerWorld) -> None:
    world.start(flush_disk_type="SYNC_FLUSH")
    world.make_topic("orders")
    staging = StagingPeer(world)
    staging.stage(messages(numbered(0, 1_500)))
    staging.begin_commit()
    world.pass_time(0.01)
    world.lose_power()
    world.start(flush_disk_type="SYNC_FLUSH")
    world.pass_time(1, step=0.01)
    peer = world.connect()
    again = StagingPeer(world, peer=peer)
    if state_of(again.state()) == "open":  # the decision itself was lost: then nothing of it is there
        assert all_bodies(peer) == []
        again.commit(staging.count)
    assert all_bodies(peer) == numbered(0, 1_500)


def test_a_full_disk_in_the_middle_is_waited_out(world: BrokerWorld, staging: StagingPeer) -> None:
    staging.stage(messages(numbered(0, 1_200)))
    committing = staging.begin_commit()
    append, calls = world.broker.store.append, 0

    def full_now_and_then(draft: object) -> object:
        nonlocal calls
        calls += 1
        if calls in (300, 700):
            world.broker.store._refuse(OSError(errno.ENOSPC, "full"))
        return append(draft)  # type: ignore[arg-type]

    world.broker.sequences._expander.store.append = full_now_and_then  # type: ignore[assignment,method-assign]
    world.pass_time(5, step=0.01)
    assert committing.is_answered
    world.broker.store.append = append  # type: ignore[method-assign]
    assert all_bodies(staging.peer) == numbered(0, 1_200)
    assert state_of(StagingPeer(world, peer=staging.peer).commit(staging.count)) == "committed"


@pytest.mark.parametrize("seed", range(12))
def test_however_it_goes_every_committed_message_is_there_once(world: BrokerWorld, seed: int) -> None:
    """Attempts, repetitions, crashes and late commits at random, against a list of what was committed."""
    chance = Random(seed)
    world.start()
    world.make_topic("orders")
    expected: list[bytes] = []
    for number in range(12):
        committed = False
        for attempt in range(4):
            rows = numbered(number * 1_000, chance.randint(1, 700))
            staging = StagingPeer(world, number=number, stage=f"0.{attempt}")
            half = len(rows) // 2
            chunks = [messages(part) for part in (rows[:half], rows[half:]) if part]
            for index, chunk in enumerate(chunks):
                staging.stage(chunk)
                if chance.random() < 0.2:
                    staging.stage(chunk, sequence=index)
            if chance.random() < 0.25:
                continue  # killed
            staging.begin_commit()
            if chance.random() < 0.4:
                world.pass_time(chance.randint(0, 3) * 0.01, step=0.01)
                world.crash()
                world.start()
            world.pass_time(0.1, step=0.01)
            reply = StagingPeer(world, number=number).commit(staging.count)
            assert state_of(reply) == "committed"
            [count] = decode_decision(reply.body).brokers["broker-a"]
            assert count == staging.count
            expected += rows
            committed = True
            break
        if not committed:
            StagingPeer(world, number=number).abort()
    assert all_bodies(world.connect()) == expected


# -------------------------------------------------------------------------------------------- bounded memory


def test_a_start_reads_from_the_newest_snapshot_on(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequences, "SNAPSHOT_AFTER_NOTES", 16)
    world.start()
    world.make_topic("orders")
    peer = world.connect()
    for number in range(40):
        staging = StagingPeer(world, producer=f"query{number % 5}", number=number, peer=peer)
        staging.stage(messages(numbered(number, 1)))
        staging.commit()
    left_open = StagingPeer(world, producer="open", peer=peer)
    left_open.stage(messages(numbered(90, 2)))
    notes = world.broker.store.max_offset(STAGED_TOPIC, 1)
    assert notes > 80
    world.stop()
    world.start()
    assert world.broker.sequences._notes_since < 40, "not everything was read again"
    assert world.broker.sequences.producers == 5
    peer = world.connect()
    for number in range(35, 40):
        late = StagingPeer(world, producer=f"query{number % 5}", number=number, peer=peer)
        assert state_of(late.stage(messages(numbered(number, 1)))) == "committed"
    assert state_of(StagingPeer(world, producer="open", peer=peer).commit(left_open.count)) == "committed"
    assert sorted(all_bodies(peer)) == numbered(0, 40) + numbered(90, 2)


def test_a_torn_snapshot_is_passed_over(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "SNAPSHOT_AFTER_NOTES", 1_000_000)
    world.start()
    world.make_topic("orders")
    peer = world.connect()
    for number in range(6):
        staging = StagingPeer(world, producer=f"query{number}", peer=peer)
        staging.stage(messages(numbered(number, 1)))
        staging.commit()
    world.broker.sequences._write_snapshot()
    monkeypatch.setattr("kourou.broker.staged_notes.PAGE_BYTES", 200)
    kept = world.broker.store.append_batch
    monkeypatch.setattr(world.broker.store, "append_batch", lambda drafts: kept(drafts[:-1]))
    world.broker.sequences._write_snapshot()  # its last page is missing
    world.settle()
    world.crash()
    world.start()
    assert world.broker.sequences.producers == 6


def test_open_stages_are_forgotten_after_a_day(world: BrokerWorld, staging: StagingPeer) -> None:
    staging.stage(messages(numbered(0, 5)))
    world.pass_time(23 * 3600, step=600)
    assert world.broker.sequences.open_stages == 1
    world.pass_time(2 * 3600, step=600)
    assert world.broker.sequences.open_stages == 0
    again = StagingPeer(world)
    assert again.commit(staging.count).code == ResponseCode.ILLEGAL_OPERATION


def test_producers_heard_of_longest_ago_are_forgotten_first(
    world: BrokerWorld, staging: StagingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequences, "PRODUCERS_MAX", 3)
    for name in ("a", "b", "c", "a", "d"):
        number = 1 if name == "a" else 0
        each = StagingPeer(world, producer=name, number=number, peer=staging.peer)
        if state_of(each.stage(messages([b"x"]))) == "staged":
            each.commit()
    assert world.broker.sequences.producers == 3
    assert state_of(StagingPeer(world, producer="d", peer=staging.peer).state()) == "committed"
    assert state_of(StagingPeer(world, producer="a", peer=staging.peer).state()) == "open"


def test_too_many_open_stages_are_refused_until_some_end(
    world: BrokerWorld, staging: StagingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequences, "OPEN_STAGES_MAX", 2)
    staging.stage(messages([b"a"]))
    other = StagingPeer(world, producer="other", peer=staging.peer)
    other.stage(messages([b"b"]))
    third = StagingPeer(world, producer="third", peer=staging.peer)
    reply = third.stage(messages([b"c"]))
    assert (reply.code, "2 stages wait" in (reply.remark or "")) == (ResponseCode.SYSTEM_BUSY, True)
    other.abort()
    assert state_of(third.stage(messages([b"c"]))) == "staged"


# ------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("chunk", "said"),
    [
        ([message(b"x", queue_id=4)], "has 4 write queues"),
        ([message(b"x", queue_id=-1)], "has 4 write queues"),
        ([message(b"")], "bodies of 0 to 0 bytes"),
        ([message(b"x", TRAN_MSG="true")], "half messages cannot be staged"),
        ([message(b"x", DELAY="soon")], "DELAY is 'soon'"),
        ([message(b"x", long="y" * 32_500)], "properties of"),
    ],
)
def test_what_could_not_be_stored_later_is_refused_at_once(
    world: BrokerWorld, staging: StagingPeer, chunk: list, said: str
) -> None:
    reply = staging.stage(chunk)
    assert reply.code != 0
    assert said in (reply.remark or "")
    assert world.broker.sequences.open_stages == 0


@pytest.mark.parametrize(
    "body",
    [b"", b"\0" * 7, b"\0" * 64, b"\xff" * 64, b"\0\0\0\1" + b"\0" * 28, b"\0\0\0\1\0\0\0\5" + b"\1" * 60],
)
def test_bytes_that_are_no_chunk_are_refused(staging: StagingPeer, body: bytes) -> None:
    assert staging.raw_stage(body).code == ResponseCode.MESSAGE_ILLEGAL


def test_unknown_readonly_and_internal_topics_are_refused(world: BrokerWorld, staging: StagingPeer) -> None:
    world.make_topic("museum", perm=PERM_READ)
    replies = {
        topic: staging.stage(messages([b"x"]), topic=topic)
        for topic in ("nowhere", "museum", STAGED_TOPIC, "RMQ_SYS_TRANS_HALF_TOPIC")
    }
    assert replies["nowhere"].code == ResponseCode.TOPIC_NOT_EXIST
    assert "kourou topic create nowhere" in (replies["nowhere"].remark or "")
    assert replies["museum"].code == ResponseCode.NO_PERMISSION
    assert replies[STAGED_TOPIC].code == ResponseCode.TOPIC_NOT_EXIST
    assert replies["RMQ_SYS_TRANS_HALF_TOPIC"].code != 0
    assert staging.peer.pull(STAGED_TOPIC, 0).code == ResponseCode.TOPIC_NOT_EXIST


def test_odd_names_and_decisions_are_refused(world: BrokerWorld, staging: StagingPeer) -> None:
    odd = StagingPeer(world, producer="a\x01b", peer=staging.peer)
    assert odd.stage(messages([b"x"])).code == ResponseCode.INVALID_PARAMETER
    negative = StagingPeer(world, number=-1, peer=staging.peer)
    assert negative.stage(messages([b"x"])).code == ResponseCode.INVALID_PARAMETER
    reply = staging.peer.ask(RequestCode.KOUROU_COMMIT_STAGED, staging.header, b"{")
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL


def test_the_staged_topic_is_not_cleaned_away(world: BrokerWorld, staging: StagingPeer) -> None:
    staging.stage(messages(numbered(0, 3)))
    staging.peer.ask(RequestCode.CLEAN_UNUSED_TOPIC)
    assert state_of(staging.commit()) == "committed"
    assert all_bodies(staging.peer) == numbered(0, 3)
