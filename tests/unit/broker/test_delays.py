"""Delay levels: what waits where, when it comes out, and what restarts, crashes and odd clocks do to it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kourou.doors.chance import Chance
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers import QueueNamed
from kourou.protocol.names import SCHEDULE_TOPIC
from kourou.store.store import Draft
from tests.unit.broker.broker_world import STORE, BrokerWorld, Peer, pull, send

OFFSETS = f"{STORE}/config/delayOffset.json"


def max_offset(peer: Peer, topic: str, queue_id: int = 0) -> int:
    reply = peer.ask(RequestCode.GET_MAX_OFFSET, QueueNamed(topic=topic, queue_id=queue_id))
    return int(reply.fields["offset"])


def delayed(peer: Peer, level: int, body: bytes = b"later", **more: Any) -> None:
    reply = peer.send(body=body, properties={"DELAY": str(level), "TAGS": "a"}, **more)
    assert reply.code == 0, reply.remark


def saved_offsets(world: BrokerWorld) -> dict[str, int]:
    table: dict[str, int] = msgspec.json.decode(world.files.read(OFFSETS))["offsetTable"]
    return table


def test_a_delayed_message_waits_in_the_queue_of_its_level(peer: Peer) -> None:
    reply = peer.send(queue_id=2, body=b"later", properties={"DELAY": "3", "REAL_TOPIC": "elsewhere"})
    assert (reply.code, reply.fields["queueId"], reply.fields["queueOffset"]) == (0, "2", "0")
    assert "recallHandle" not in reply.fields
    assert peer.bodies("orders", 2) == []
    (record,) = peer.records(SCHEDULE_TOPIC, 2)
    assert (record.find(b"REAL_TOPIC"), record.find(b"REAL_QID")) == (b"orders", b"2")
    assert record.properties.count(b"REAL_TOPIC") == 1


def test_it_comes_out_when_it_is_due_and_not_a_moment_before(world: BrokerWorld, peer: Peer) -> None:
    delayed(peer, 1)
    world.pass_time(0.999, step=0.111)
    assert peer.bodies() == []
    world.pass_time(0.002, step=0.001)
    assert peer.bodies() == [b"later"]


def test_what_comes_out_is_the_message_that_was_sent(world: BrokerWorld, peer: Peer) -> None:
    properties = {"DELAY": "2", "TAGS": "t", "KEYS": "k", "UNIQ_KEY": "U1"}
    peer.send(queue_id=3, properties=properties, flag=7, reconsume_times=4, sys_flag=1)
    (waiting,) = peer.records(SCHEDULE_TOPIC, 1)
    world.pass_time(5.1)
    (record,) = peer.records("orders", 3)
    for name in ("body", "flag", "sys_flag", "born_ms", "born_host", "store_host", "reconsume_times"):
        assert getattr(record, name) == getattr(waiting, name), name
    assert (record.queue_id, record.queue_offset) == (3, 0)
    assert record.store_ms == waiting.store_ms + 5_000
    table = record.property_table()
    assert table["UNIQ_KEY"] == "U1"
    # As the original leaves them, and all the same it is not delayed again.
    assert (table["DELAY"], table["REAL_TOPIC"], table["REAL_QID"]) == ("2", "orders", "3")
    assert record.damage() is None
    assert peer.records("orders", 3, tags="t")
    assert not peer.records("orders", 3, tags="u")


def test_a_reader_who_waits_is_woken_by_it(world: BrokerWorld, peer: Peer) -> None:
    peer.send(body=b"first")
    delayed(peer, 1)
    waiting = world.connect().begin(pull(queue_offset=1, wait_ms=15_000))
    world.pass_time(0.9)
    assert not waiting.is_answered
    world.pass_time(0.2)
    assert waiting.reply.code == 0


@pytest.mark.parametrize(("level", "seconds"), [(1, 2), (2, 60), (3, 86_400), (18, 86_400), (999, 86_400)])
def test_levels_are_as_configured_and_the_last_one_is_the_most(
    world: BrokerWorld, level: int, seconds: int
) -> None:
    world.start(delay_levels_ms=(2_000, 60_000, 86_400_000))
    peer = world.connect()
    delayed(peer, level)
    assert max_offset(peer, SCHEDULE_TOPIC, min(level, 3) - 1) == 1
    [record] = peer.records(SCHEDULE_TOPIC, min(level, 3) - 1)
    assert record.find(b"DELAY") == b"%d" % min(level, 3)
    world.pass_time(seconds - 0.1, step=seconds / 10)
    assert max_offset(world.connect(), "orders") == 0
    world.pass_time(1.1)
    assert max_offset(world.connect(), "orders") == 1


def test_messages_of_a_level_keep_their_order_and_do_not_hold_up_others(
    world: BrokerWorld, peer: Peer
) -> None:
    for number in range(3):
        delayed(peer, 2, b"%d" % number)
    delayed(peer, 1, b"quick")
    world.pass_time(1.1)
    assert peer.bodies() == [b"quick"]
    world.pass_time(4)
    assert peer.bodies() == [b"quick", b"0", b"1", b"2"]


def test_more_than_one_turn_can_take_come_out_all_the_same(world: BrokerWorld, peer: Peer) -> None:
    for number in range(700):
        delayed(peer, 1, b"%d" % number)
    world.pass_time(1.2, step=0.1)
    found = [body for start in range(0, 700, 32) for body in peer.bodies("orders", 0, start)]
    assert found == [b"%d" % number for number in range(700)]


# ------------------------------------------------------------------------------------- restarts and crashes


def test_a_message_that_waits_survives_a_restart_and_comes_out_once(world: BrokerWorld, peer: Peer) -> None:
    delayed(peer, 1, b"early")
    world.pass_time(1.5)
    delayed(peer, 2, b"late")
    world.stop()
    assert saved_offsets(world) == {"1": 1}
    world.pass_time(60)
    world.start()
    world.pass_time(0.5)
    assert world.connect().bodies() == [b"early", b"late"]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_message_that_waits_survives_kill_nine(world: BrokerWorld, flush: str) -> None:
    world.start(flush_disk_type=flush)
    delayed(world.connect(), 2)
    world.pass_time(2)
    world.crash()
    world.start(flush_disk_type=flush)
    world.pass_time(2.5)
    assert world.connect().bodies() == []
    world.pass_time(1)
    assert world.connect().bodies() == [b"later"]


def test_kill_nine_after_delivery_may_deliver_twice_but_only_what_was_not_saved(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    delayed(peer, 1, b"saved")
    world.pass_time(21)  # flushed after ten seconds at the latest, and saved after another ten
    assert saved_offsets(world) == {"1": 1}
    delayed(peer, 1, b"not saved")
    world.pass_time(2)
    world.crash()
    world.start()
    world.pass_time(2)
    assert world.connect().bodies() == [b"saved", b"not saved", b"not saved"]


def test_an_offset_is_saved_only_when_the_copies_are_on_the_disk(world: BrokerWorld) -> None:
    world.start(delay_offsets_save_interval_ms=100)
    delayed(world.connect(), 1)
    world.pass_time(0.9)
    world.disk.hold()
    world.pass_time(5)
    assert world.connect().bodies() == [b"later"]  # written, and the disk hangs
    assert not world.files.exists(OFFSETS)
    world.disk.release()
    world.pass_time(12)
    assert saved_offsets(world) == {"1": 1}


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_takes_no_delayed_message_that_was_on_the_disk(world: BrokerWorld, seed: int) -> None:
    world.start(delay_offsets_save_interval_ms=300, flush_interval_ms=500, flush_least_pages=0)
    peer = world.connect()
    delayed(peer, 1, b"one")
    world.pass_time(0.8)
    delayed(peer, 2, b"two")
    world.pass_time(0.25 + seed / 20, step=0.05)
    known_flushed = world.broker.store.flushed
    world.files = world.files.power_cut(Chance(seed))
    world.crash()
    world.start()
    assert known_flushed > 0
    world.pass_time(8)
    assert set(world.connect().bodies()) == {b"one", b"two"}


def test_delay_offsets_have_the_originals_shape(world: BrokerWorld, peer: Peer) -> None:
    delayed(peer, 1)
    delayed(peer, 1)
    delayed(peer, 2)
    world.pass_time(6)
    world.stop()
    kept = msgspec.json.decode(world.files.read(OFFSETS))
    assert kept["offsetTable"] == {"1": 2, "2": 1}
    assert set(kept["dataVersion"]) >= {"counter", "timestamp"}


@pytest.mark.parametrize("table", ["{1:99,2:0}", '{"1":99,"2":-3}'])
def test_offsets_of_another_time_are_brought_into_what_the_queues_have(
    world: BrokerWorld, peer: Peer, table: str
) -> None:
    delayed(peer, 1, b"long ago")
    world.pass_time(2)
    delayed(peer, 2, b"waits")
    world.stop()
    world.files.write_atomically(OFFSETS, b'{"offsetTable":' + table.encode() + b"}")
    world.start()
    peer = world.connect()
    delayed(peer, 1, b"new")
    world.pass_time(6)
    assert peer.bodies() == [b"long ago", b"new", b"waits"]


def test_messages_of_a_level_that_is_no_longer_configured_come_out(world: BrokerWorld, peer: Peer) -> None:
    delayed(peer, 3)
    world.stop()
    world.start(delay_levels_ms=(1_000,))
    world.pass_time(10.5)
    assert world.connect().bodies() == [b"later"]


# ----------------------------------------------------------------------------------------- clocks and disks


def test_a_clock_set_back_delivers_at_once_and_new_messages_wait_as_long_as_ever(
    world: BrokerWorld, peer: Peer
) -> None:
    delayed(peer, 2, b"before")
    world.clock.jump_ms(-3_600_000)
    world.pass_time(1.1)
    assert peer.bodies() == [b"before"]
    delayed(peer, 2, b"after")
    world.pass_time(4.9)
    assert peer.bodies() == [b"before"]
    world.pass_time(0.2)
    assert peer.bodies() == [b"before", b"after"]


def test_a_clock_set_forward_is_noticed_within_a_second(world: BrokerWorld, peer: Peer) -> None:
    delayed(peer, 18)
    world.pass_time(0.3)
    world.clock.jump_ms(7_200_000)
    world.pass_time(1.0)
    assert peer.bodies() == [b"later"]


def test_with_sync_flush_nothing_is_delivered_before_it_is_on_the_disk(world: BrokerWorld) -> None:
    world.start(flush_disk_type="SYNC_FLUSH", sync_flush_timeout_ms=60_000)
    peer = world.connect()
    world.disk.hold()
    waiting = peer.begin(send(properties={"DELAY": "1"}))
    world.pass_time(3)
    assert not waiting.is_answered
    assert world.broker.store.max_offset("orders", 0) == 0
    world.disk.finish_one()
    world.pass_time(0.4, step=0.2)
    assert waiting.reply.code == 0
    level = world.broker.delays._levels[1]
    assert (level.next_offset, level.is_storing) == (0, True)  # the copy is written, not yet synced
    world.disk.release()
    world.pass_time(0.2)
    assert level.next_offset == 1
    assert peer.bodies() == [b"hello"]


def test_a_full_disk_delays_delivery_and_loses_nothing(world: BrokerWorld) -> None:
    world.start(segment_bytes=64 * 1024)
    peer = world.connect()
    for number in range(3):
        delayed(peer, 1, b"%d" % number + b"x" * 20_000)
    world.files.capacity = world.files.space(STORE).used
    world.pass_time(5)
    assert world.broker.store.max_offset("orders", 0) < 3
    world.files.capacity = 1 << 40
    world.pass_time(3)
    found = [body[:1] for start in range(3) for body in peer.bodies("orders", 0, start)[:1]]
    assert found == [b"0", b"1", b"2"]


def test_a_message_for_a_topic_that_is_gone_is_kept_for_it_and_said(
    world: BrokerWorld, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    delayed(peer, 1)
    table = world.broker.topics._table
    orders = table.pop("orders")
    world.pass_time(1.5)
    assert "topic orders, which is not there" in caplog.text
    table["orders"] = orders
    assert peer.bodies() == [b"later"]


@pytest.mark.parametrize(
    "bad",
    [
        b"DELAY\x011\x02",
        b"DELAY\x011\x02REAL_TOPIC\x01orders\x02REAL_QID\x01x\x02",
        b"DELAY\x011\x02REAL_TOPIC\x01../x\x02REAL_QID\x010\x02",
        b"DELAY\x011\x02REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010\x02",
    ],
)
def test_a_message_that_does_not_say_where_to_is_dropped_and_the_next_one_comes_out(
    world: BrokerWorld, peer: Peer, bad: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    host = bytes(8)
    world.broker.store.append(Draft(SCHEDULE_TOPIC, 0, b"bad", bad, 0, 0, 0, host, host))
    delayed(peer, 1, b"good")
    world.pass_time(1.5)
    assert peer.bodies() == [b"good"]
    assert "is dropped" in caplog.text
