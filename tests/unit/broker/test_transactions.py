"""Half messages, how they end, and who is asked about them."""

from __future__ import annotations

import errno
import logging
from typing import Any, NamedTuple

import pytest

from kourou.broker.half_messages import done_mark, done_offsets
from kourou.protocol import message_id
from kourou.protocol.bodies import HeartbeatData, ProducerData
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import EndTransaction, ResumeCheck
from kourou.protocol.names import DISCARDED_HALF_TOPIC, HALF_DONE_TOPIC, HALF_TOPIC, TRANSACTION_GROUP
from kourou.protocol.record import Record, decode_all, pack_host
from tests.unit.broker.broker_world import BrokerWorld, Peer, send

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
PREPARED = 4
CHECK_SECONDS = 30


class Half(NamedTuple):
    """Where a half message is, as its sender was told."""

    queue_offset: int
    physical_offset: int


@pytest.fixture
def started(world: BrokerWorld) -> BrokerWorld:
    world.start()
    world.make_topic("orders")
    return world


@pytest.fixture
def producer(started: BrokerWorld) -> Peer:
    return producer_of(started)


def producer_of(world: BrokerWorld, group: str = "payers", client_id: str = "10.0.0.1@1") -> Peer:
    """A connected producer that has said so."""
    peer = world.connect()
    body = HeartbeatData(client_id=client_id, producer_data_set=[ProducerData(group_name=group)])
    assert peer.ask(RequestCode.HEART_BEAT, body=body.encode()).code == 0
    return peer


def prepare(
    world: BrokerWorld, peer: Peer, body: bytes = b"paid", *, group: str = "payers", **properties: Any
) -> Half:
    reply = peer.begin(half_of(world, body, group=group, **properties)).reply
    assert reply.code == 0, reply.remark
    return Half(
        int(reply.fields["queueOffset"]), message_id.parse_offset_id(reply.fields["msgId"]).physical_offset
    )


def half_of(
    world: BrokerWorld,
    body: bytes = b"paid",
    *,
    group: str = "payers",
    sys_flag: int = PREPARED,
    late_ms: int = 0,
    **properties: str,
) -> Command:
    return send(
        "orders",
        body,
        properties={"TRAN_MSG": "true", "PGROUP": group, **properties},
        sys_flag=sys_flag,
        producer_group=group,
        queue_id=1,
        born_timestamp=world.clock.now_ms() - late_ms,
    )


def ending(half: Half, outcome: int, *, group: str = "payers", **more: Any) -> EndTransaction:
    return EndTransaction(group, half.queue_offset, half.physical_offset, outcome, unique_id="x", **more)


def end(peer: Peer, half: Half, outcome: int, **more: Any) -> Command:
    return peer.ask(RequestCode.END_TRANSACTION, ending(half, outcome, **more))


def orders(peer: Peer) -> list[bytes]:
    return peer.bodies("orders", 1)


def checks(peer: Peer) -> list[Command]:
    """What the producer was asked since it was last looked at."""
    told, peer.told = peer.told, []
    assert all(each.code == RequestCode.CHECK_TRANSACTION_STATE and each.is_one_way for each in told)
    return told


def asked_about(check: Command) -> Half:
    return Half(int(check.fields["tranStateTableOffset"]), int(check.fields["commitLogOffset"]))


def stored(world: BrokerWorld, topic: str, queue_id: int = 0) -> list[Record]:
    """All there ever was in a queue."""
    records: list[Record] = []
    while True:
        result = world.broker.store.read(topic, queue_id, len(records), 32)
        if not result.messages:
            return records
        records += decode_all(b"".join(result.messages))


# ------------------------------------------------------------------------------------------- how one ends


def test_nobody_sees_a_half_message_before_it_is_committed(started: BrokerWorld, producer: Peer) -> None:
    half = prepare(started, producer)
    assert orders(producer) == []
    assert end(producer, half, COMMIT).code == 0
    assert orders(producer) == [b"paid"]


def test_what_is_rolled_back_is_never_seen(started: BrokerWorld, producer: Peer) -> None:
    half = prepare(started, producer)
    assert end(producer, half, ROLLBACK).code == 0
    started.pass_time(3 * CHECK_SECONDS)
    assert orders(producer) == []
    assert checks(producer) == []


def test_a_half_message_lies_in_the_log_as_apache_writes_it(started: BrokerWorld, producer: Peer) -> None:
    prepare(started, producer, b"paid", UNIQ_KEY="A1", TAGS="new")
    [half] = stored(started, HALF_TOPIC)
    assert half.body == b"paid"
    assert half.sys_flag == 0
    assert half.queue_id == 0
    properties = half.property_table()
    assert properties["REAL_TOPIC"] == "orders"
    assert properties["REAL_QID"] == "1"
    assert properties["__transactionId__"] == "A1"
    assert properties["PGROUP"] == "payers"
    assert properties["TAGS"] == "new"


def test_the_committed_message_points_at_its_half_and_keeps_its_birth(
    started: BrokerWorld, producer: Peer
) -> None:
    half = prepare(started, producer, UNIQ_KEY="A1", TAGS="new")
    born_ms = started.clock.now_ms()
    started.pass_time(3)
    end(producer, half, COMMIT)
    [message] = producer.records("orders", 1)
    assert message.sys_flag == COMMIT
    assert message.prepared_offset == half.physical_offset
    assert message.born_ms == born_ms
    assert message.find(b"UNIQ_KEY") == b"A1"
    assert producer.records("orders", 1, tags="new") != []
    assert producer.records("orders", 1, tags="old") == []


def test_the_done_mark_is_one_number_under_tag_d(started: BrokerWorld, producer: Peer) -> None:
    for _ in range(3):
        half = prepare(started, producer)
        end(producer, half, ROLLBACK)
    marks = stored(started, HALF_DONE_TOPIC)
    assert [mark.body for mark in marks] == [b"0", b"1", b"2"]
    assert {mark.find(b"TAGS") for mark in marks} == {b"d"}


def test_a_half_message_is_recognised_without_the_flag_and_gets_its_group(started: BrokerWorld) -> None:
    peer = producer_of(started)
    command = send(
        "orders",
        properties={"TRAN_MSG": "TRUE"},
        producer_group="payers",
        queue_id=1,
        born_timestamp=started.clock.now_ms(),
    )
    assert peer.begin(command).reply.code == 0
    [half] = stored(started, HALF_TOPIC)
    assert half.find(b"PGROUP") == b"payers"
    assert orders(peer) == []


def test_half_messages_and_plain_ones_of_one_read_go_their_own_ways(started: BrokerWorld) -> None:
    peer = producer_of(started)
    commands = [
        send("orders", b"1", queue_id=1),
        half_of(started, b"2", sys_flag=0),
        send("orders", b"3", queue_id=1),
    ]
    assert [waiting.reply.code for waiting in peer.begin_all(commands)] == [0, 0, 0]
    assert orders(peer) == [b"1", b"3"]
    assert [half.body for half in stored(started, HALF_TOPIC)] == [b"2"]


def test_not_known_yet_gets_no_answer_and_changes_nothing(started: BrokerWorld, producer: Peer) -> None:
    half = prepare(started, producer)
    waiting = producer.begin(request(RequestCode.END_TRANSACTION, ending(half, UNKNOWN)))
    started.pass_time(5)
    assert not waiting.is_answered
    assert end(producer, half, COMMIT).code == 0


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
def test_a_transaction_ends_once(started: BrokerWorld, producer: Peer, outcome: int) -> None:
    half = prepare(started, producer)
    assert end(producer, half, outcome).code == 0
    for late in (COMMIT, ROLLBACK):
        reply = end(producer, half, late)
        assert reply.code == 1
        assert "ended already" in (reply.remark or "")
    assert orders(producer) == ([b"paid"] if outcome == COMMIT else [])
    assert len(stored(started, HALF_DONE_TOPIC)) == 1


def test_two_ends_in_one_read_are_one_end(started: BrokerWorld, producer: Peer) -> None:
    half = prepare(started, producer)
    commands = [request(RequestCode.END_TRANSACTION, ending(half, COMMIT)) for _ in range(2)]
    assert [waiting.reply.code for waiting in producer.begin_all(commands)] == [0, 1]
    assert orders(producer) == [b"paid"]


def test_only_the_half_message_itself_can_be_ended(started: BrokerWorld, producer: Peer) -> None:
    half = prepare(started, producer)
    other = prepare(started, producer)
    plain = producer.send("orders", b"plain", queue_id=1)
    place = message_id.parse_offset_id(plain.fields["msgId"]).physical_offset
    wrong = {
        "another producer group's": end(producer, half, COMMIT, group="thieves"),
        "another commitLogOffset": end(producer, Half(half.queue_offset, other.physical_offset), COMMIT),
        "no half message": end(producer, Half(99, half.physical_offset), COMMIT),
        "another commitLogOffset ": end(producer, Half(0, place), COMMIT),
        "no half message ": end(producer, Half(-1, half.physical_offset), COMMIT),
        "another transaction's": end(producer, half, COMMIT, transaction_id="another"),
        "commitOrRollback is 7": end(producer, half, 7),
    }
    for why, reply in wrong.items():
        assert reply.code == 1, why
        assert why.strip() in (reply.remark or "")
    assert orders(producer) == [b"plain"]
    assert end(producer, half, COMMIT).code == 0


def test_properties_of_a_former_life_do_not_make_it_another(started: BrokerWorld, producer: Peer) -> None:
    first = prepare(started, producer, b"first")
    started.pass_time(CHECK_SECONDS + 1)  # asked about, and so copied
    second = prepare(
        started,
        producer,
        b"second",
        TRAN_PREPARED_QUEUE_OFFSET=str(first.queue_offset),
        TRANSACTION_CHECK_TIMES="14",
    )
    assert end(producer, second, COMMIT).code == 0
    assert orders(producer) == [b"second"]
    assert stored(started, HALF_TOPIC)[-1].find(b"TRANSACTION_CHECK_TIMES") is None


def test_an_end_after_its_own_immunity_waits_to_be_asked(started: BrokerWorld, producer: Peer) -> None:
    half = prepare(started, producer, CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    started.pass_time(11)
    assert end(producer, half, COMMIT).code == 604
    assert end(producer, half, ROLLBACK).code == 604
    assert end(producer, half, COMMIT, from_check=True).code == 0
    assert orders(producer) == [b"paid"]


def test_an_immunity_below_the_usual_one_is_the_usual_one(started: BrokerWorld, producer: Peer) -> None:
    half = prepare(started, producer, CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    started.pass_time(5)
    assert end(producer, half, COMMIT).code == 0


def test_transactions_can_be_switched_off(world: BrokerWorld) -> None:
    world.start(reject_transactions=True)
    world.make_topic("orders")
    peer = world.connect()
    reply = peer.begin(half_of(world)).reply
    assert reply.code == 16
    assert "rejectTransactionMessage" in (reply.remark or "")


@pytest.mark.parametrize("sys_flag", [4, 8, 12])
def test_the_flags_of_a_transaction_without_its_property_are_refused(
    started: BrokerWorld, producer: Peer, sys_flag: int
) -> None:
    assert producer.send("orders", sys_flag=sys_flag).code == 13


def test_a_consumer_that_sends_one_on_to_be_tried_again_begins_no_transaction(
    started: BrokerWorld, producer: Peer
) -> None:
    started.broker.topics.ensure("%RETRY%readers", 1, 6)
    producer.send(
        "%RETRY%readers",
        properties={"TRAN_MSG": "true", "PGROUP": "payers", "DELAY": "3"},
        sys_flag=PREPARED,
        reconsume_times=1,
    )
    assert stored(started, HALF_TOPIC) == []


# --------------------------------------------------------------------------------------- being asked about


def test_an_old_half_message_is_asked_about(started: BrokerWorld, producer: Peer) -> None:
    half = prepare(started, producer, UNIQ_KEY="A1", KEYS="k")
    started.pass_time(CHECK_SECONDS + 1)
    [check] = checks(producer)
    assert check.fields["msgId"] == check.fields["transactionId"] == "A1"
    [message] = decode_all(check.body)
    assert message.topic == b"orders"
    assert message.queue_id == 1
    assert message.body == b"paid"
    assert message.find(b"PGROUP") == b"payers"
    assert asked_about(check) == Half(message.queue_offset, message.physical_offset)
    assert asked_about(check) != half
    assert end(producer, asked_about(check), COMMIT, from_check=True).code == 0
    started.pass_time(3 * CHECK_SECONDS)
    assert orders(producer) == [b"paid"]
    assert checks(producer) == []


def test_a_young_one_is_left_alone(started: BrokerWorld, producer: Peer) -> None:
    started.pass_time(CHECK_SECONDS - 3)
    prepare(started, producer)
    started.pass_time(5)
    assert checks(producer) == []
    started.pass_time(CHECK_SECONDS)
    assert len(checks(producer)) == 1


def test_an_immunity_of_its_own_is_respected(started: BrokerWorld, producer: Peer) -> None:
    half = prepare(started, producer, b"slow", CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    prepare(started, producer, b"usual")
    started.pass_time(CHECK_SECONDS + 1)
    assert [decode_all(check.body)[0].body for check in checks(producer)] == [b"usual"]
    assert end(producer, half, COMMIT).code == 0  # though it was moved meanwhile
    assert orders(producer) == [b"slow"]


def test_it_is_asked_about_once_its_own_immunity_is_over(started: BrokerWorld, producer: Peer) -> None:
    prepare(started, producer, b"slow", CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    started.pass_time(95)
    assert checks(producer) == []
    started.pass_time(CHECK_SECONDS)
    assert [decode_all(check.body)[0].body for check in checks(producer)] == [b"slow"]


def test_producers_are_asked_in_turn_and_only_those_of_the_group(started: BrokerWorld) -> None:
    one, two = producer_of(started), producer_of(started, client_id="10.0.0.2@1")
    stranger = producer_of(started, group="others", client_id="10.0.0.3@1")
    for number in range(6):
        prepare(started, one, b"%d" % number)
    started.pass_time(CHECK_SECONDS + 1)
    assert len(checks(one)) == len(checks(two)) == 3
    assert checks(stranger) == []


def test_another_producer_is_asked_when_one_is_gone(started: BrokerWorld) -> None:
    one, two = producer_of(started), producer_of(started, client_id="10.0.0.2@1")
    prepare(started, one)
    started.pass_time(CHECK_SECONDS + 1)
    asked = one if checks(one) else two
    other = two if asked is one else one
    asked.close()
    started.pass_time(2 * CHECK_SECONDS)
    questions = checks(other)
    assert questions
    assert end(other, asked_about(questions[-1]), COMMIT, from_check=True).code == 0
    assert orders(other) == [b"paid"]


def test_a_late_end_by_its_first_place_ends_the_copy(started: BrokerWorld, producer: Peer) -> None:
    half = prepare(started, producer)
    started.pass_time(2 * CHECK_SECONDS + 1)
    first, second = map(asked_about, checks(producer))
    assert end(producer, half, COMMIT).code == 0
    for late in (half, first, second):
        assert end(producer, late, COMMIT, from_check=True).code == 1
    started.pass_time(2 * CHECK_SECONDS)
    assert checks(producer) == []
    assert orders(producer) == [b"paid"]


def test_a_question_counts_itself_and_readers_see_no_notes_of_ours(
    started: BrokerWorld, producer: Peer
) -> None:
    prepare(started, producer)
    started.pass_time(2 * CHECK_SECONDS + 1)
    asked = checks(producer)
    for number, check in enumerate(asked, 1):
        [told] = decode_all(check.body)
        assert told.find(b"TRANSACTION_CHECK_TIMES") == b"%d" % number
        assert told.find(b"WAIT") == b"false"
        assert told.find(b"TRAN_PREPARED_QUEUE_OFFSET") is None
    assert end(producer, asked_about(asked[-1]), COMMIT, from_check=True).code == 0
    [record] = producer.records("orders", 1)
    assert record.find(b"TRANSACTION_CHECK_TIMES") == b"2"
    assert record.find(b"TRAN_PREPARED_QUEUE_OFFSET") is None


def test_nobody_is_asked_for_ever(world: BrokerWorld, caplog: pytest.LogCaptureFixture) -> None:
    world.start(transaction_checks_max=3, transaction_check_interval_ms=10_000)
    world.make_topic("orders")
    producer = producer_of(world)
    half = prepare(world, producer, UNIQ_KEY="A1")
    with caplog.at_level(logging.WARNING):
        world.pass_time(70)
    assert len(checks(producer)) == 3
    [kept] = stored(world, DISCARDED_HALF_TOPIC)
    assert kept.body == b"paid"
    assert kept.find(b"REAL_TOPIC") == b"orders"
    assert kept.find(b"TRANSACTION_CHECK_TIMES") == b"3"
    assert any(
        "A1" in each.getMessage() and DISCARDED_HALF_TOPIC in each.getMessage() for each in caplog.records
    )
    assert end(producer, half, COMMIT).code == 1
    assert orders(producer) == []
    assert world.broker.topics.get(DISCARDED_HALF_TOPIC) is not None


def test_without_a_producer_it_ends_in_the_same_place(world: BrokerWorld) -> None:
    world.start(transaction_checks_max=2)
    world.make_topic("orders")
    peer = world.connect()
    prepare(world, peer)
    world.pass_time(5 * CHECK_SECONDS)
    assert len(stored(world, DISCARDED_HALF_TOPIC)) == 1


def test_a_sender_with_a_clock_ahead_is_asked_all_the_same(started: BrokerWorld, producer: Peer) -> None:
    started.clock.jump_ms(3_600_000)
    prepare(started, producer)
    started.clock.jump_ms(-3_600_000)
    started.pass_time(CHECK_SECONDS + 1)
    assert len(checks(producer)) == 1


def test_a_sender_with_a_clock_days_behind_is_asked_before_anything_is_discarded(
    started: BrokerWorld, producer: Peer
) -> None:
    assert producer.send("orders", properties={"TRAN_MSG": "true", "PGROUP": "payers"}, queue_id=1).code == 0
    started.pass_time(CHECK_SECONDS + 1)
    [check] = checks(producer)
    assert end(producer, asked_about(check), COMMIT, from_check=True).code == 0


def test_many_are_checked_in_turns_of_bounded_work(started: BrokerWorld, producer: Peer) -> None:
    for number in range(700):
        prepare(started, producer, b"%d" % number)
    started.clock.advance(CHECK_SECONDS + 7)
    seen = [len(checks(producer))]
    assert started.broker.transactions.is_checking
    while started.broker.transactions.is_checking:
        started.settle()
        started.clock.advance(0)
        seen.append(len(checks(producer)))
    started.settle()
    seen.append(len(checks(producer)))
    assert sum(seen) == 700
    assert max(seen) <= 128


# ---------------------------------------------------------------------------------- stopping and starting


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("how", ["stop", "crash"])
def test_transactions_go_on_after_a_restart(world: BrokerWorld, flush: str, how: str) -> None:
    world.start(flush_disk_type=flush)
    world.make_topic("orders")
    producer = producer_of(world)
    committed = prepare(world, producer, b"committed")
    rolled_back = prepare(world, producer, b"rolled back")
    still_open = prepare(world, producer, b"open")
    end(producer, committed, COMMIT)
    end(producer, rolled_back, ROLLBACK)
    restart(world, how, flush_disk_type=flush)
    producer = producer_of(world)
    assert orders(producer) == [b"committed"]
    for finished in (committed, rolled_back):
        assert end(producer, finished, COMMIT).code == 1
    world.pass_time(CHECK_SECONDS + 1)
    [check] = checks(producer)
    assert decode_all(check.body)[0].body == b"open"
    restart(world, how, flush_disk_type=flush)
    producer = producer_of(world)
    assert (
        end(producer, still_open, COMMIT).code == 1
    )  # its copy stands for it, and this broker never saw both
    assert end(producer, asked_about(check), COMMIT, from_check=True).code == 0
    world.pass_time(2 * CHECK_SECONDS)
    assert checks(producer) == []
    assert orders(producer) == [b"committed", b"open"]


def restart(world: BrokerWorld, how: str, **settings: Any) -> None:
    if how == "stop":
        world.stop()
    else:
        world.crash()
    world.start(**settings)


def test_a_done_mark_lost_with_the_power_is_written_anew(world: BrokerWorld) -> None:
    """The log ends with the committed message, its mark did not reach the disk."""
    world.start()
    world.make_topic("orders")
    producer = producer_of(world)
    half = prepare(world, producer)
    end(producer, half, COMMIT)
    cut_last_record(world)
    world.start()
    producer = producer_of(world)
    assert len(stored(world, HALF_DONE_TOPIC)) == 1
    assert end(producer, half, COMMIT).code == 1
    world.pass_time(2 * CHECK_SECONDS)
    assert checks(producer) == []
    assert orders(producer) == [b"paid"]


def test_a_copy_parted_from_its_mark_by_a_power_cut_still_takes_over(world: BrokerWorld) -> None:
    world.start()
    world.make_topic("orders")
    producer = producer_of(world)
    half = prepare(world, producer)
    world.pass_time(CHECK_SECONDS - 1)
    world.disk.hold()
    world.pass_time(1)
    [check] = checks(producer)
    cut_last_record(world)
    world.start()
    producer = producer_of(world)
    assert len(stored(world, HALF_DONE_TOPIC)) == 1
    assert end(producer, half, COMMIT).code == 1
    world.pass_time(CHECK_SECONDS + 1)
    [again] = checks(producer)
    assert asked_about(again) != asked_about(check)
    assert end(producer, asked_about(check), COMMIT, from_check=True).code == 0
    assert end(producer, asked_about(again), COMMIT, from_check=True).code == 1
    assert orders(producer) == [b"paid"]


def test_a_commit_lost_with_the_power_though_its_mark_is_there_is_asked_about_again(
    world: BrokerWorld,
) -> None:
    lose_a_commit(world)
    producer = producer_of(world)
    assert orders(producer) == []
    world.pass_time(CHECK_SECONDS + 1)
    [check] = checks(producer)
    restart(world, "crash")
    producer = producer_of(world)
    assert end(producer, asked_about(check), COMMIT, from_check=True).code == 0
    world.pass_time(2 * CHECK_SECONDS)
    assert checks(producer) == []
    assert orders(producer) == [b"paid"]


def test_what_is_open_again_is_so_once_however_often_the_broker_is_killed(world: BrokerWorld) -> None:
    """The mark that is alone is found by each start, until a checkpoint is behind it."""
    lose_a_commit(world)
    for _ in range(3):
        restart(world, "crash")
    producer = producer_of(world)
    world.pass_time(CHECK_SECONDS + 1)
    [check] = checks(producer)
    assert end(producer, asked_about(check), COMMIT, from_check=True).code == 0
    world.pass_time(2 * CHECK_SECONDS)
    assert checks(producer) == []
    assert orders(producer) == [b"paid"]


@pytest.mark.parametrize("lost", ["a copy", "a copy and its mark"])
@pytest.mark.parametrize("is_committed", [False, True])
def test_when_a_copy_is_lost_with_the_power_the_next_one_alone_stands_for_the_transaction(
    world: BrokerWorld, lost: str, is_committed: bool
) -> None:
    """half ─▶ copy ─▶ copy of the copy: what lay between the first and the last is gone."""
    producer, copy, mark = copied_and_not_flushed(world)
    world.pass_time(CHECK_SECONDS)
    assert len(stored(world, HALF_TOPIC)) == 3
    if is_committed:
        assert end(producer, asked_about(checks(producer)[-1]), COMMIT, from_check=True).code == 0
    size = copy.size if lost == "a copy" else mark.physical_offset + mark.size - copy.physical_offset
    crash_without(world, copy.physical_offset, size)
    world.start()
    producer = producer_of(world)
    for _ in range(3):
        world.pass_time(CHECK_SECONDS)
        asked = checks(producer)
        assert len(asked) <= 1
        for check in asked:
            assert end(producer, asked_about(check), COMMIT, from_check=True).code == 0
    assert orders(producer) == [b"paid"]


def test_a_copy_that_lost_its_end_with_the_power_takes_over_from_nothing(world: BrokerWorld) -> None:
    producer, copy, mark = copied_and_not_flushed(world)
    prepare(world, producer, b"another")
    torn_at = copy.physical_offset + copy.size - 6
    crash_without(world, torn_at, mark.physical_offset + mark.size - torn_at)
    world.start()
    producer = producer_of(world)
    world.pass_time(CHECK_SECONDS + 1)
    asked = {decode_all(check.body)[0].body: check for check in checks(producer)}
    assert asked.keys() == {b"paid", b"another"}
    assert end(producer, asked_about(asked[b"paid"]), COMMIT, from_check=True).code == 0
    assert orders(producer) == [b"paid"]


def test_a_mark_that_is_left_of_a_lost_transaction_says_nothing_of_the_next_one_there(
    world: BrokerWorld,
) -> None:
    world.start()
    world.make_topic("orders")
    producer = producer_of(world)
    start = world.broker.store.wrote
    world.disk.hold()
    end(producer, prepare(world, producer), COMMIT)
    [committed] = stored(world, "orders", 1)
    crash_without(world, start, committed.physical_offset + committed.size - start)
    world.start()
    producer = producer_of(world)
    half = prepare(world, producer)
    assert half.queue_offset == 0
    end(producer, half, COMMIT)
    restart(world, "crash")
    producer = producer_of(world)
    world.pass_time(2 * CHECK_SECONDS)
    assert checks(producer) == []
    assert orders(producer) == [b"paid"]


def test_progress_after_a_crash_is_kept_also_beyond_where_the_queues_ended_then(world: BrokerWorld) -> None:
    """What a group may not commit, because it read messages that are lost, does not bind the broker."""
    world.start()
    world.make_topic("orders")
    for life in range(2):
        producer = producer_of(world)
        for _ in range(3):
            end(producer, prepare(world, producer), COMMIT)
        world.pass_time(CHECK_SECONDS + 1)
        for topic in (HALF_TOPIC, HALF_DONE_TOPIC):
            assert world.broker.offsets.get(TRANSACTION_GROUP, topic, 0) == 3 * (life + 1)
        restart(world, "crash")


def test_a_sender_whose_clock_is_days_behind_is_asked_as_often_as_others(world: BrokerWorld) -> None:
    world.start(transaction_checks_max=5)
    world.make_topic("orders")
    producer = producer_of(world)
    assert producer.begin(half_of(world, late_ms=10 * 24 * 3_600_000)).reply.code == 0
    for _ in range(4):
        world.pass_time(CHECK_SECONDS)
        [check] = checks(producer)
    assert end(producer, asked_about(check), COMMIT, from_check=True).code == 0
    assert orders(producer) == [b"paid"]


def test_a_delayed_message_waits_from_its_commit_on(started: BrokerWorld, producer: Peer) -> None:
    half = prepare(started, producer, DELAY="2")
    started.pass_time(4)
    assert end(producer, half, COMMIT).code == 0
    started.pass_time(4)
    assert orders(producer) == []
    started.pass_time(2)
    assert orders(producer) == [b"paid"]
    assert end(producer, half, COMMIT).code == 1


def copied_and_not_flushed(world: BrokerWorld) -> tuple[Peer, Record, Record]:
    """A producer that is asked about its transaction: the copy that was made for that, and its mark."""
    world.start()
    world.make_topic("orders")
    producer = producer_of(world)
    prepare(world, producer)
    world.pass_time(CHECK_SECONDS - 1)
    world.disk.hold()
    world.pass_time(1)
    _, copy = stored(world, HALF_TOPIC)
    [mark] = stored(world, HALF_DONE_TOPIC)
    return producer, copy, mark


def lose_a_commit(world: BrokerWorld) -> None:
    """Start again after a power cut that took a committed message, and left the mark behind it."""
    world.start()
    world.make_topic("orders")
    producer = producer_of(world)
    half = prepare(world, producer)
    world.disk.hold()
    end(producer, half, COMMIT)
    [committed] = stored(world, "orders", 1)
    crash_without(world, committed.physical_offset, committed.size)
    world.start()


def cut_last_record(world: BrokerWorld) -> None:
    """Crash, and take the last record off the log, as a power cut may."""
    start = world.broker.store.last_start
    crash_without(world, start, world.broker.store.wrote - start)


def crash_without(world: BrokerWorld, start: int, size: int) -> None:
    """Crash, and find nothing where these bytes of the log were."""
    world.crash()
    world.disk.release()
    log = world.files.open("store/commitlog/" + "0" * 20)
    log.pwrite(bytes(size), start)
    log.sync()
    log.close()


def test_a_tick_that_the_disk_refused_leaves_the_transaction_open(
    started: BrokerWorld, producer: Peer
) -> None:
    half = prepare(started, producer)
    started.files.fail("pwrite", error=errno.ENOSPC)
    assert end(producer, half, COMMIT).code == 14
    assert orders(producer) == []
    started.pass_time(2)
    assert end(producer, half, COMMIT).code == 0
    assert orders(producer) == [b"paid"]


def test_progress_is_kept_as_offsets_of_the_transaction_group(started: BrokerWorld, producer: Peer) -> None:
    for _ in range(5):
        end(producer, prepare(started, producer), COMMIT)
    started.pass_time(CHECK_SECONDS + 1)
    assert started.broker.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0) == 5
    assert started.broker.offsets.get(TRANSACTION_GROUP, HALF_DONE_TOPIC, 0) == 5


def test_progress_is_not_kept_before_the_disk_has_it(world: BrokerWorld) -> None:
    world.start()
    world.make_topic("orders")
    producer = producer_of(world)
    half = prepare(world, producer)
    world.pass_time(15)
    world.disk.hold()
    end(producer, half, COMMIT)
    end(producer, prepare(world, producer), COMMIT)
    assert world.broker.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0) in (None, 0)
    world.disk.release()
    world.pass_time(CHECK_SECONDS)
    assert world.broker.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0) == 2


def test_marks_of_apache_5_are_read(started: BrokerWorld, producer: Peer) -> None:
    halves = [prepare(started, producer) for _ in range(4)]
    mark = done_mark(0, started.clock.now_ms(), pack_host("127.0.0.1", 10911))
    mark.body = b"0,1,3,"
    started.broker.store.append(mark)
    started.settle()
    restart(started, "stop")
    producer = producer_of(started)
    assert [end(producer, half, COMMIT).code for half in halves] == [1, 1, 0, 1]
    assert done_offsets(stored(started, HALF_DONE_TOPIC)[0]) == [0, 1, 3]


# ------------------------------------------------------------------------------------------------- resuming


def discard(world: BrokerWorld, producer: Peer) -> Record:
    """A transaction that nobody knew anything about, and was given up."""
    prepare(world, producer, b"forgotten", UNIQ_KEY="A1")
    world.pass_time(3 * CHECK_SECONDS)
    [discarded] = stored(world, DISCARDED_HALF_TOPIC)
    checks(producer)
    return discarded


def resume(peer: Peer, offset_id: str | None) -> Command:
    return peer.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheck(offset_id, DISCARDED_HALF_TOPIC))


def test_a_discarded_transaction_can_be_asked_about_again(world: BrokerWorld) -> None:
    world.start(transaction_checks_max=1)
    world.make_topic("orders")
    producer = producer_of(world)
    discarded = discard(world, producer)
    reply = resume(producer, discarded.offset_id())
    assert reply.code == 0, reply.remark
    world.pass_time(CHECK_SECONDS)
    [check] = checks(producer)
    assert end(producer, asked_about(check), COMMIT, from_check=True).code == 0
    assert orders(producer) == [b"forgotten"]


def test_a_resumed_transaction_survives_a_kill(world: BrokerWorld) -> None:
    world.start(transaction_checks_max=1)
    world.make_topic("orders")
    producer = producer_of(world)
    resume(producer, discard(world, producer).offset_id())
    world.crash()
    world.start(transaction_checks_max=1)
    world.make_topic("orders")
    producer = producer_of(world)
    world.pass_time(CHECK_SECONDS)
    [check] = checks(producer)
    assert end(producer, asked_about(check), ROLLBACK, from_check=True).code == 0
    assert orders(producer) == []


def test_a_transaction_that_is_open_is_not_resumed_twice(world: BrokerWorld) -> None:
    world.start(transaction_checks_max=1)
    world.make_topic("orders")
    producer = producer_of(world)
    discarded = discard(world, producer)
    assert resume(producer, discarded.offset_id()).code == 0
    again = resume(producer, discarded.offset_id())
    assert again.code == 1
    assert "is open already" in (again.remark or "")


def test_only_what_was_discarded_can_be_resumed(world: BrokerWorld) -> None:
    world.start(transaction_checks_max=1)
    world.make_topic("orders")
    producer = producer_of(world)
    producer.send("orders", b"an ordinary one", queue_id=1)
    [ordinary] = stored(world, "orders", 1)
    for offset_id, words in (
        (ordinary.offset_id(), f"no message of topic {DISCARDED_HALF_TOPIC}"),
        ("7F00000100002A9F00000000000F4240", f"no message of topic {DISCARDED_HALF_TOPIC}"),
        ("nonsense", "msgId"),
        (None, "msgId"),
    ):
        reply = resume(producer, offset_id)
        assert reply.code == 1
        assert words in (reply.remark or "")
    assert stored(world, HALF_TOPIC) == []


def test_the_mark_of_a_half_message_that_is_lost_does_not_end_the_next_one_there(
    started: BrokerWorld,
) -> None:
    """A power cut may take a half message from an unflushed log and leave the mark behind it."""
    host = pack_host("127.0.0.1", 10911)
    for offset in range(3):
        started.broker.store.append(done_mark(offset, started.clock.now_ms(), host))
    for _ in range(2):  # the mark is still there at the next start
        started.settle()
        started.stop()
        started.start()
        producer = producer_of(started)
        half = prepare(started, producer)
        assert end(producer, half, COMMIT).code == 0
    half = prepare(started, producer, b"left open")
    started.settle()
    started.stop()
    started.start()
    producer = producer_of(started)
    assert end(producer, half, COMMIT).code == 0
    assert orders(producer) == [b"paid", b"paid", b"left open"]
