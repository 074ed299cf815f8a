"""What a slave left for later, being far behind: it is had at once, and seen to before it is needed."""

from __future__ import annotations

import errno
import random

import pytest

from kourou.errors import DiskFault
from kourou.store.store import Draft
from tests.unit.store.two_stores import HOST, SEGMENT_BYTES, Two, everything, make


def two_in_a_hurry(count: int = 60) -> Two:
    """A slave that has everything, and none of it in its queues."""
    two = Two()
    for number in range(count):
        two.send(b"%d" % number * 100, queue_id=number % 3, properties=b"KEYS\x01k%d\x02" % number)
    two.hurry(1000)
    return two


def test_what_is_left_for_later_is_had_at_once_and_seen_soon() -> None:
    two = two_in_a_hurry()
    assert two.follower.had == two.slave.wrote == two.master.wrote
    assert two.slave.max_offset("orders", 0) == 0
    two.clock.advance(1)
    two.check()
    assert len(two.slave.find("orders", "k59", 10)) == 1


def test_what_comes_next_goes_into_its_queue_after_it() -> None:
    two = two_in_a_hurry()
    two.send(b"the newest")
    two.hurry(is_far=False)
    assert two.slave.max_offset("orders", 0) == 0
    two.clock.advance(1)
    two.check()


def test_more_than_may_be_left_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.store.store.UNSTAGED_BYTES_MAX", 4000)
    monkeypatch.setattr("kourou.store.store.STAGE_BYTES", 500)
    two = Two()
    for number in range(60):
        for each in range(4):
            two.send(b"%d" % each * 300)
        two.hurry(500)
        assert two.follower.unstaged < 4600, number
    assert two.follower.unstaged > 0


def test_it_goes_on_while_more_keeps_coming_and_when_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.store.store.STAGE_BYTES", 500)
    two = two_in_a_hurry()
    two.send(b"more")
    left = two.follower.unstaged
    two.clock.advance(0.201)
    assert 0 < two.follower.unstaged < left
    two.clock.advance(0.3)
    assert two.follower.unstaged == 0


def test_what_keeps_coming_later_does_not_hold_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.store.store.STAGE_BYTES", 500)
    two = two_in_a_hurry()
    two.clock.advance(0.201)
    for number in range(100):
        two.send(b"%d" % number)
        two.hurry(is_far=False)
        two.clock.advance(0.004)
    assert two.follower.unstaged == 0
    two.clock.advance(0.01)
    two.check()


def test_a_full_disk_delays_it_and_no_more() -> None:
    two = Two()
    for number in range(30):
        two.send(b"%d" % number * 100)
    begin = two.master.wrote // SEGMENT_BYTES * SEGMENT_BYTES
    two.follower.begin_at(begin)  # a queue that begins in the middle needs room at once
    two.send(b"more")
    two.hurry()
    two.files.fail("open", error=errno.ENOSPC, times=3)
    two.clock.advance(0.3)
    assert two.follower.unstaged > 0
    assert two.slave.failed is None
    two.clock.advance(2)
    assert two.slave.dispatched == two.slave.wrote == two.master.wrote
    assert two.slave.max_offset("orders", 0) == 31


def test_kill_9_loses_none_of_it() -> None:
    two = two_in_a_hurry()
    two.files = two.files.crashed()
    two.open()
    two.copy()
    two.check()


def test_a_clean_stop_sees_to_it_first() -> None:
    two = two_in_a_hurry()
    two.slave.close()
    two.open()
    assert not two.slave.was_unclean
    two.check()


def test_a_slave_that_is_promoted_has_seen_to_it() -> None:
    two = two_in_a_hurry()
    two.slave.leave_log()
    two.slave.refuse_appends(None)
    appended = two.slave.append(Draft("orders", 0, b"mine", b"", 0, 0, 1, HOST, HOST))
    assert appended.queue_offset == 20
    assert everything(two.slave)[: two.master.wrote] == everything(two.master)


def test_damage_is_not_acknowledged_and_is_passed_over_later() -> None:
    two = Two()
    for number in range(30):
        two.send(b"message %02d" % number)
    data = bytearray(two.master.raw(0, 1 << 20))
    place = data.index(b"message 11")
    data[place] ^= 0xFF
    two.slave.take_raw(bytes(data[: place + 40]), is_far=True)
    assert two.follower.had < place
    two.slave.take_raw(bytes(data[place + 40 :]), is_far=True)
    assert two.follower.had == len(data)
    two.clock.advance(1)
    assert [(each.start < place < each.end) for each in two.follower.damage] == [True]
    assert two.slave.max_offset("orders", 0) == 30


@pytest.mark.parametrize("number", range(0, 20, 4))
def test_no_bit_of_a_crc_may_be_another(number: int) -> None:
    """Also such that its text means the same number, or begins a message that does not end."""
    two = Two()
    for each in range(20):
        two.send(b"message %02d" % each)
    data = bytearray(two.master.raw(0, 1 << 20))
    at = data.index(b"__CRC32#", data.index(b"message %02d" % number))
    at += random.Random(number).randrange(20)
    data[at] ^= 0x10
    two.slave.take_raw(bytes(data), is_far=True)
    two.clock.advance(1)
    assert [(each.start < at < each.end) for each in two.follower.damage] == [True]
    assert two.slave.max_offset("orders", 0) == 20


def test_a_topic_deleted_meanwhile_does_not_come_back() -> None:
    two = two_in_a_hurry()
    two.slave.delete_topic("orders")
    two.clock.advance(1)
    assert two.follower.unstaged == 0
    assert two.slave.topics() == {}
    two.master.delete_topic("orders")
    two.send(b"of its next life")
    two.copy()
    assert two.slave.max_offset("orders", 0) == 1


def test_a_record_longer_than_a_turn_is_put_in_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.store.store.STAGE_BYTES", 64)
    two = two_in_a_hurry(6)
    two.clock.advance(1)
    two.check()


def test_a_log_that_reads_otherwise_than_it_was_written_ends_it() -> None:
    two = two_in_a_hurry()
    (name,) = [each for each in two.files.list("store/commitlog") if int(each) == 0]
    file = two.files.open(f"store/commitlog/{name}")
    file.pwrite(bytes(200), 0)
    two.clock.advance(1)
    assert "does not read as it was written" in str(two.slave.failed)


def test_a_disk_that_cannot_read_it_ends_it() -> None:
    two = two_in_a_hurry()
    two.files.fail("pread", error=errno.EIO, times=100)
    two.clock.advance(1)
    assert two.slave.failed is not None
    with pytest.raises(DiskFault):
        two.slave.leave_log()
    two.slave = make(two.files.crashed(), two.clock)
    two.slave.open()
    two.check()
