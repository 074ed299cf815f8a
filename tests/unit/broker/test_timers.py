"""Messages due at any time: precision, refusals, recalls, restarts, crashes, jumping clocks."""

from __future__ import annotations

from struct import pack
from typing import Any

import msgspec
import pytest

from kourou.broker import timers as timers_module
from kourou.doors.chance import Chance
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.headers import RecallMessage
from kourou.protocol.names import TIMER_TOPIC
from kourou.protocol.recall_handle import RecallHandle, parse_recall_handle
from kourou.store.store import Draft
from tests.unit.broker.broker_world import STORE, BrokerWorld, Peer, send

PENDING, PROGRESS = f"{STORE}/timers/pending", f"{STORE}/timers/progress.json"
DAY = 86_400


def timed(peer: Peer, delay_ms: int, body: bytes = b"later", **more: Any) -> Command:
    reply = peer.send(body=body, properties={"TIMER_DELAY_MS": str(delay_ms), "TAGS": "a"}, **more)
    assert reply.code == 0, reply.remark
    return reply


def recall(peer: Peer, handle: str, topic: str = "orders") -> Command:
    header = RecallMessage(topic=topic, recall_handle=handle, producer_group="senders")
    return peer.ask(RequestCode.RECALL_MESSAGE, header)


def leap(world: BrokerWorld, seconds: int, step: int = 6 * 3600) -> None:
    """A long time in no time: the wall clock leaps, and then has two seconds to be noticed."""
    for _ in range(seconds // step):
        world.clock.jump_ms((step - 2) * 1000)
        world.pass_time(2)


def delivered(world: BrokerWorld, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    return world.connect().bodies(topic, queue_id)


@pytest.mark.parametrize("delay_ms", [1, 37, 999, 1_500, 61_234])
def test_a_timed_message_comes_out_to_the_millisecond(world: BrokerWorld, peer: Peer, delay_ms: int) -> None:
    timed(peer, delay_ms)
    world.pass_time((delay_ms - 1) / 1000, step=max(0.001, delay_ms / 30_000))
    assert peer.bodies() == []
    world.pass_time(0.002, step=0.001)
    assert peer.bodies() == [b"later"]


@pytest.mark.parametrize(
    ("properties", "seconds"),
    [
        ({"TIMER_DELAY_SEC": "7"}, 7.0),
        ({"TIMER_DELAY_MS": "2500"}, 2.5),
        ({"TIMER_DELIVER_MS": "1700000004321"}, 4.321),
        ({"TIMER_DELAY_SEC": "3", "TIMER_DELAY_MS": "9000", "TIMER_DELIVER_MS": "1"}, 3.0),
        ({"TIMER_DELAY_MS": "3000", "TIMER_DELIVER_MS": "1"}, 3.0),
        ({"DELAY": "1", "TIMER_DELAY_SEC": "100"}, 1.0),
        ({"DELAY": "0", "TIMER_DELAY_SEC": "2"}, 2.0),
    ],
)
def test_each_way_to_name_a_time(
    world: BrokerWorld, peer: Peer, properties: dict[str, str], seconds: float
) -> None:
    world.clock.jump_ms(1_700_000_000_000 - world.clock.now_ms())
    assert peer.send(properties=properties).code == 0
    world.pass_time(seconds - 0.02, step=0.1)
    assert peer.bodies() == []
    world.pass_time(0.04, step=0.01)
    assert peer.bodies() == [b"hello"]


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "0"},
        {"TIMER_DELAY_MS": "-5000"},
        {"TIMER_DELIVER_MS": "1500000000000"},
        {"TIMER_DELAY_MS": "5000", "TIMER_OUT_MS": "1"},
    ],
)
def test_what_is_not_in_the_future_is_delivered_now(peer: Peer, properties: dict[str, str]) -> None:
    reply = peer.send(properties=properties)
    assert (reply.code, "recallHandle" in reply.fields) == (0, False)
    assert peer.bodies() == [b"hello"]


def test_what_comes_out_is_the_message_that_was_sent(world: BrokerWorld, peer: Peer) -> None:
    peer.send(queue_id=3, properties={"TIMER_DELAY_MS": "1500", "KEYS": "k"}, flag=7, reconsume_times=2)
    (waiting,) = peer.records(TIMER_TOPIC)
    assert peer.bodies("orders", 3) == []
    world.pass_time(1.6, step=0.1)
    (record,) = peer.records("orders", 3)
    for name in ("body", "flag", "sys_flag", "born_ms", "born_host", "store_host", "reconsume_times"):
        assert getattr(record, name) == getattr(waiting, name), name
    table = record.property_table()
    assert (table["REAL_TOPIC"], table["REAL_QID"], table["KEYS"]) == ("orders", "3", "k")
    assert int(table["TIMER_OUT_MS"]) == waiting.store_ms + 1_500
    assert int(table["TIMER_ENQUEUE_MS"]) == waiting.store_ms
    assert int(table["TIMER_DEQUEUE_MS"]) == record.store_ms == waiting.store_ms + 1_500
    assert record.damage() is None


def test_messages_come_out_in_the_order_of_their_times(world: BrokerWorld, peer: Peer) -> None:
    for delay_ms in (3_000, 1_000, 2_000, 1_001, 999, 2_000):
        timed(peer, delay_ms, b"%d" % delay_ms)
    world.pass_time(3.5, step=0.1)
    assert peer.bodies() == [b"999", b"1000", b"1001", b"2000", b"2000", b"3000"]


def test_a_later_message_with_an_earlier_time_is_not_held_up(world: BrokerWorld, peer: Peer) -> None:
    timed(peer, 60_000, b"slow")
    world.pass_time(5)
    timed(peer, 50, b"quick")
    world.pass_time(0.06, step=0.01)
    assert peer.bodies() == [b"quick"]


def test_many_due_at_one_moment_all_come_out(world: BrokerWorld, peer: Peer) -> None:
    waiting = peer.begin_all(
        send(body=b"%d" % number, properties={"TIMER_DELIVER_MS": str(world.clock.now_ms() + 5_000)})
        for number in range(900)
    )
    assert {each.reply.code for each in waiting} == {0}
    world.pass_time(5.2, step=0.05)
    found = [body for start in range(0, 900, 32) for body in peer.bodies("orders", 0, start)]
    assert found == [b"%d" % number for number in range(900)]
    assert len(world.broker.timers) == 0


@pytest.mark.parametrize(
    ("setting", "properties", "code", "words"),
    [
        ({}, {"TIMER_DELAY_SEC": "3456001"}, 13, "'3456001', a time 3456001 s from now: at most 3456000 s"),
        ({}, {"TIMER_DELIVER_MS": "soon"}, 13, "property TIMER_DELIVER_MS is 'soon'"),
        ({}, {"TIMER_DELAY_MS": "1e3"}, 13, "property TIMER_DELAY_MS is '1e3'"),
        ({"timer_seconds_max": 10}, {"TIMER_DELAY_MS": "10001"}, 13, "timerMaxDelaySec"),
        ({"timers_enabled": False}, {"TIMER_DELAY_MS": "100"}, 1, "timerWheelEnable=false"),
        ({}, {"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "orders+x"}, 13, "TIMER_DELIVER_MS is '1'"),
    ],
)
def test_a_time_that_cannot_be_is_refused_with_its_value(
    world: BrokerWorld, setting: dict[str, Any], properties: dict[str, str], code: int, words: str
) -> None:
    world.start(**setting)
    reply = world.connect().send(properties=properties)
    assert (reply.code, words in (reply.remark or "")) == (code, True), reply.remark
    assert world.broker.store.wrote == 0


# ------------------------------------------------------------------------------------------------ far ahead


def test_forty_days_are_waited_for_by_storing_the_message_anew(world: BrokerWorld, peer: Peer) -> None:
    timed(peer, 40 * DAY * 1000)
    world.clock.jump_ms(-1_000)
    leap(world, 40 * DAY)
    assert delivered(world) == []
    records = world.connect().records(TIMER_TOPIC)
    assert len(records) == 27  # each waits 36 hours, half of what the log is kept for
    assert records[-1].find(b"TIMER_ROLL_TIMES") == b"26"
    assert world.clock.now_ms() - records[-1].store_ms < 72 * 3600 * 1000
    world.pass_time(1.01, step=0.1)
    assert delivered(world) == [b"later"]


def test_where_the_log_is_kept_for_a_short_time_messages_are_stored_anew_more_often(
    world: BrokerWorld,
) -> None:
    world.start(file_reserved_hours=2)
    timed(world.connect(), 5 * 3600 * 1000)
    leap(world, 5 * 3600 + 60, step=60)
    peer = world.connect()
    assert len(peer.records(TIMER_TOPIC)) == 5
    assert peer.bodies() == [b"later"]


def test_a_message_that_the_log_forgot_is_said_to_be_lost(
    world: BrokerWorld, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    timed(peer, 1_000)
    world.broker.timers._pending.add(world.clock.now_ms() + 500, 123_456)
    world.pass_time(1.5)
    assert peer.bodies() == [b"later"]
    assert "the message at 123456" in caplog.text


# ------------------------------------------------------------------------------------- restarts and crashes


def test_what_waits_survives_a_restart_and_comes_out_once(world: BrokerWorld, peer: Peer) -> None:
    timed(peer, 1_000, b"early")
    world.pass_time(2)
    timed(peer, 5_000, b"late")
    timed(peer, 3_600_000, b"much later")
    world.stop()
    world.start()
    assert len(world.broker.timers) == 2
    world.pass_time(5.1)
    assert delivered(world) == [b"early", b"late"]
    world.stop()
    world.pass_time(3_600, step=600)
    world.start()
    world.pass_time(0.2)
    assert delivered(world) == [b"early", b"late", b"much later"]
    world.stop()
    world.start()
    world.pass_time(1)
    assert delivered(world) == [b"early", b"late", b"much later"]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_waits_survives_kill_nine(world: BrokerWorld, flush: str) -> None:
    world.start(flush_disk_type=flush)
    peer = world.connect()
    timed(peer, 5_000, b"one")
    timed(peer, 3 * 3600 * 1000, b"two")
    world.pass_time(2)
    world.crash()
    world.start(flush_disk_type=flush)
    world.pass_time(2.9)
    assert delivered(world) == []
    world.pass_time(0.2)
    assert delivered(world) == [b"one"]
    world.crash()
    world.start(flush_disk_type=flush)
    world.pass_time(3 * 3600, step=300)
    assert [each for each in delivered(world) if each == b"two"] == [b"two"]


def test_kill_nine_after_delivery_may_deliver_twice_but_only_what_was_not_saved(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    timed(peer, 1_000, b"saved")
    world.pass_time(21)
    timed(peer, 1_000, b"not saved")
    world.pass_time(2)
    world.crash()
    world.start()
    world.pass_time(2)
    assert delivered(world) == [b"saved", b"not saved", b"not saved"]


def test_what_comes_while_a_broker_gets_ready_is_delivered_too(world: BrokerWorld, peer: Peer) -> None:
    """Its port is open before it begins to deliver."""
    timers = world.broker.timers
    timers.stop()
    timers.load()
    timed(peer, 500)
    timers.start()
    world.pass_time(1)
    assert peer.bodies() == [b"later"]


def test_progress_is_saved_only_when_the_copies_are_on_the_disk(world: BrokerWorld) -> None:
    world.start(delay_offsets_save_interval_ms=100)
    due_ms = world.clock.now_ms() + 1_000
    timed(world.connect(), 1_000)
    world.pass_time(0.9)
    world.disk.hold()
    world.pass_time(5)
    assert delivered(world) == [b"later"]
    assert msgspec.json.decode(world.files.read(PROGRESS))["deliveredBeforeMs"] <= due_ms
    world.disk.release()
    world.pass_time(12)
    assert msgspec.json.decode(world.files.read(PROGRESS))["deliveredBeforeMs"] > due_ms


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_takes_no_timed_message_that_was_on_the_disk(world: BrokerWorld, seed: int) -> None:
    world.start(delay_offsets_save_interval_ms=300, flush_interval_ms=500, flush_least_pages=0)
    peer = world.connect()
    timed(peer, 1_000, b"one")
    timed(peer, 1_700, b"two")
    timed(peer, 60_000, b"three")
    world.pass_time(0.8)
    world.pass_time(seed / 5, step=0.1)
    world.files = world.files.power_cut(Chance(seed))
    world.crash()
    world.start()
    world.pass_time(61)
    assert set(delivered(world)) == {b"one", b"two", b"three"}


def test_the_list_of_who_waits_is_written_as_it_grows_and_saves_reading_the_queue(
    world: BrokerWorld, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers_module, "NEW_TIMERS_MIN", 10)
    for number in range(12):
        timed(peer, 60_000 + number, b"%d" % number)
    assert not world.files.exists(PENDING)
    world.pass_time(11)
    assert world.files.exists(PENDING)
    timed(peer, 60_100, b"last")
    world.crash()
    world.start()
    assert world.broker.timers._written == 12
    assert len(world.broker.timers) == 13
    world.pass_time(62)
    assert delivered(world) == [*(b"%d" % number for number in range(12)), b"last"]


def test_the_list_is_not_written_twice_at_the_same_time(world: BrokerWorld, peer: Peer) -> None:
    timed(peer, 60_000)
    world.disk.hold()
    world.broker.timers._write_pending_later()
    timed(peer, 70_000)
    world.broker.timers.save_pending()  # as at stop, while the thread is at it
    assert not world.files.exists(PENDING)
    world.disk.release()
    assert world.files.exists(PENDING)
    world.stop()
    world.start()
    assert len(world.broker.timers) == 2


@pytest.mark.parametrize("damage", ["cut", "gone", "all gone"])
def test_without_its_files_a_start_reads_the_whole_queue(world: BrokerWorld, peer: Peer, damage: str) -> None:
    timed(peer, 1_000, b"done")
    timed(peer, 300_000, b"waits")
    world.pass_time(120)
    peer = world.connect()
    peer.send(body=b"now")  # the log shows that somebody was there until now
    world.stop()
    if damage == "cut":
        world.files.open(PENDING).truncate(20)
    else:
        world.files.remove(PENDING)
    if damage == "all gone":
        world.files.remove_folder(f"{STORE}/timers")
    world.start()
    assert len(world.broker.timers) == 1
    world.pass_time(181)
    assert delivered(world) == [b"done", b"now", b"waits"]


def test_a_list_newer_than_the_log_does_no_harm(world: BrokerWorld, peer: Peer) -> None:
    """After a power cut the list may name places that others have taken."""
    peer.send(body=b"plain")
    timed(peer, 2_000, b"timed")
    (plain,) = peer.records("orders")
    (waiting,) = peer.records(TIMER_TOPIC)
    pending = world.broker.timers._pending
    pending.add(world.clock.now_ms() + 500, plain.physical_offset)  # a message of another topic
    pending.add(world.clock.now_ms() + 9_000, waiting.physical_offset)  # another time
    world.pass_time(10)
    assert peer.bodies() == [b"plain", b"timed"]


# --------------------------------------------------------------------------------------- an Apache folder


def apache_timer(out_ms: int, body: bytes) -> Draft:
    host = b"\x7f\0\0\1\0\0\0\1"
    properties = b"TAGS\x01t\x02TIMER_OUT_MS\x01%d\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02" % out_ms
    return Draft(TIMER_TOPIC, 0, body, properties, 0, 0, 0, host, host, 0, 0)


def test_timers_of_an_apache_folder_are_taken_over_and_its_files_left_alone(
    world: BrokerWorld, peer: Peer
) -> None:
    now_ms = world.clock.now_ms()
    world.make_topic("orders")
    world.broker.timers.stop()
    for out_ms, body in ((now_ms - 5_000, b"done"), (now_ms + 2_000, b"waits"), (now_ms + 90_000, b"far")):
        world.broker.store.append(apache_timer(out_ms, body))
    world.settle()
    world.stop()
    world.files.remove_folder(f"{STORE}/timers")
    check = pack(">7q", now_ms, 0, 3, 0, 0, 0, 0).ljust(4096, b"\0")
    world.files.write_atomically(f"{STORE}/config/timercheck", check)
    world.start()
    world.pass_time(3)
    assert delivered(world) == [b"waits"]
    world.stop()
    world.start()
    world.pass_time(88)
    assert delivered(world) == [b"waits", b"far"]
    assert world.files.read(f"{STORE}/config/timercheck") == check


# ---------------------------------------------------------------------------------------- clocks and disks


def test_times_are_those_of_the_wall_clock_whichever_way_it_jumps(world: BrokerWorld, peer: Peer) -> None:
    timed(peer, 10_000)
    world.clock.jump_ms(-5_000)
    world.pass_time(14.9)
    assert peer.bodies() == []
    world.pass_time(0.2)
    assert peer.bodies() == [b"later"]
    timed(peer, 3_600_000, b"second")
    world.clock.jump_ms(3_600_000)
    world.pass_time(1.1)
    assert peer.bodies() == [b"later", b"second"]


def test_a_clock_that_leaps_a_month_delivers_everything_in_order(world: BrokerWorld, peer: Peer) -> None:
    for hours in (50, 1, 30, 700):
        timed(peer, hours * 3_600_000, b"%d" % hours)
    world.clock.jump_ms(32 * DAY * 1000)
    world.pass_time(1.5)
    assert peer.bodies() == [b"1", b"30", b"50", b"700"]


def test_a_full_disk_delays_delivery_and_loses_nothing(world: BrokerWorld) -> None:
    world.start(segment_bytes=64 * 1024)
    peer = world.connect()
    for number in range(3):
        timed(peer, 1_000 + number, b"%d" % number + b"x" * 20_000)
    world.files.capacity = world.files.space(STORE).used
    world.pass_time(5)
    assert world.broker.store.max_offset("orders", 0) < 3
    world.files.capacity = 1 << 40
    world.pass_time(3)
    found = [body[:1] for start in range(3) for body in peer.bodies("orders", 0, start)[:1]]
    assert found == [b"0", b"1", b"2"]


def test_with_sync_flush_a_copy_counts_once_it_is_on_the_disk(world: BrokerWorld) -> None:
    world.start(flush_disk_type="SYNC_FLUSH", sync_flush_timeout_ms=60_000)
    peer = world.connect()
    timed(peer, 1_000)
    world.disk.hold()
    world.pass_time(2)
    assert (len(world.broker.timers), peer.bodies()) == (1, [])
    world.disk.release()
    world.pass_time(0.1)
    assert (len(world.broker.timers), peer.bodies()) == (0, [b"later"])


# ----------------------------------------------------------------------------------------------- taking back


@pytest.fixture
def recalling(world: BrokerWorld) -> Peer:
    world.start(recall_enabled=True)
    return world.connect()


def test_the_answer_to_a_timed_send_has_a_handle(peer: Peer, world: BrokerWorld) -> None:
    reply = timed(peer, 5_000)
    handle = parse_recall_handle(reply.fields["recallHandle"])
    due_ms = world.clock.now_ms() + 5_000
    assert handle == RecallHandle("orders", "broker-a", due_ms + 1, reply.fields["transactionId"])
    assert "recallHandle" not in peer.send().fields


def test_a_recalled_message_never_comes_out_and_others_do(world: BrokerWorld, recalling: Peer) -> None:
    first = timed(recalling, 5_000, b"first")
    timed(recalling, 5_000, b"second")
    reply = recall(recalling, first.fields["recallHandle"])
    assert (reply.code, reply.fields["msgId"]) == (0, first.fields["transactionId"])
    assert reply.fields["MSG_REGION"] == "DefaultRegion"
    world.pass_time(6)
    assert recalling.bodies() == [b"second"]
    assert recalling.bodies("orders", 0, 1) == []
    world.pass_time(10)
    assert world.broker.timers._recalled == {}


@pytest.mark.parametrize("when", [0.0, 4.9, 3_000.0])
def test_a_recall_survives_kill_nine(world: BrokerWorld, recalling: Peer, when: float) -> None:
    first = timed(recalling, 3_600_000 if when > 5 else 5_000)
    assert recall(recalling, first.fields["recallHandle"]).code == 0
    world.pass_time(when, step=max(0.5, when / 100))
    world.crash()
    world.start()
    world.pass_time(3_700, step=20)
    assert delivered(world) == []


def test_a_recall_of_a_message_weeks_ahead_is_carried_along_with_it(
    world: BrokerWorld, recalling: Peer
) -> None:
    first = timed(recalling, 20 * DAY * 1000)
    leap(world, DAY)
    assert recall(recalling, first.fields["recallHandle"]).code == 0
    leap(world, 20 * DAY)
    assert delivered(world) == []


def test_a_recall_of_an_unknown_message_succeeds_and_changes_nothing(
    world: BrokerWorld, recalling: Peer
) -> None:
    timed(recalling, 2_000)
    handle = RecallHandle("orders", "broker-a", world.clock.now_ms() + 2_001, "NOBODY")
    assert recall(recalling, handle.encode()).code == 0
    world.pass_time(3)
    assert recalling.bodies() == [b"later"]


def test_a_recall_of_another_topic_touches_nothing(world: BrokerWorld, recalling: Peer) -> None:
    first = timed(recalling, 2_000)
    world.make_topic("bills")
    reply = recall(recalling, first.fields["recallHandle"], topic="bills")
    assert (reply.code, "of topic 'orders', and the request of topic 'bills'" in (reply.remark or "")) == (
        604,
        True,
    )
    handle = parse_recall_handle(first.fields["recallHandle"])._replace(topic="bills")
    assert recall(recalling, handle.encode(), topic="bills").code == 0
    world.pass_time(3)
    assert recalling.bodies() == [b"later"]


@pytest.mark.parametrize(
    ("handle", "topic", "code", "words"),
    [
        ("no handle", "orders", 604, "recall handle 'no handle'"),
        ("", "orders", 604, "recall handle ''"),
        (RecallHandle("orders", "other", 1_900_000_000_000, "U"), "orders", 604, "of broker 'other'"),
        (RecallHandle("orders", "broker-a", 1_600_000_000_000, "U"), "orders", 604, "was due"),
        (RecallHandle("orders", "broker-a", 1_900_000_000_000, "U"), "orders", 604, "later than any"),
        (RecallHandle("nowhere", "broker-a", 1_700_000_010_000, "U"), "nowhere", 17, "no topic 'nowhere'"),
    ],
)
def test_a_handle_that_cannot_be_is_refused(
    world: BrokerWorld, recalling: Peer, handle: str | RecallHandle, topic: str, code: int, words: str
) -> None:
    world.make_topic("orders")
    text = handle if isinstance(handle, str) else handle.encode()
    reply = recall(recalling, text, topic)
    assert (reply.code, words in (reply.remark or "")) == (code, True), reply.remark
    assert reply.fields == {"MSG_REGION": "DefaultRegion"}


def test_recalls_are_for_those_who_switched_them_on(world: BrokerWorld, peer: Peer) -> None:
    first = timed(peer, 2_000)
    reply = recall(peer, first.fields["recallHandle"])
    assert (reply.code, "recallMessageEnable=false" in (reply.remark or "")) == (16, True)
    world.pass_time(3)
    assert peer.bodies() == [b"later"]


def test_a_broker_that_is_not_writable_takes_no_recalls(world: BrokerWorld) -> None:
    world.start(recall_enabled=True, permission=4)
    reply = recall(world.connect(), RecallHandle("orders", "broker-a", 1_700_000_010_000, "U").encode())
    assert (reply.code, "brokerPermission is 4" in (reply.remark or "")) == (14, True)


def test_a_time_that_has_rotten_in_the_queue_does_not_keep_a_message_for_ever(
    world: BrokerWorld, peer: Peer
) -> None:
    timed(peer, 3_000)
    world.pass_time(1)
    world.stop()
    world.files.remove(PENDING)
    world.files.open(f"{STORE}/consumequeue/{TIMER_TOPIC}/0/{0:020d}").pwrite(b"\x40", 12)
    world.start()
    world.pass_time(3)
    assert delivered(world) == [b"later"]
