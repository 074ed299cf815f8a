"""Taking in another broker's log: the same bytes, the same queues, however they come."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from kourou.errors import Busy, Corrupt, DiskFault
from kourou.protocol.record import pack_host
from kourou.store.config import StoreConfig
from kourou.store.following import Follower
from kourou.store.store import Draft, Store
from tests.unit.store.two_stores import HOST, SEGMENT_BYTES, Two, everything, make


@pytest.mark.parametrize("size", [1, 7, 100, 1000, 5000, 1 << 20])
def test_bytes_may_be_cut_anywhere(size: int) -> None:
    two = Two()
    chance = random.Random(size)
    for number in range(60):
        body = chance.randbytes(chance.randrange(1, 900))
        two.send(
            body, queue_id=number % 3, properties=b"TAGS\x01T%d\x02KEYS\x01k%d\x02" % (number % 2, number)
        )
    two.copy(size)
    two.check()
    assert two.master.wrote > 3 * SEGMENT_BYTES


def test_messages_are_found_by_their_keys_on_a_slave() -> None:
    two = Two()
    two.send(b"one", properties=b"KEYS\x01needle\x02")
    two.copy()
    two.clock.advance(5)
    assert len(two.slave.find("orders", "needle", 10)) == 1


def test_of_several_messages_with_one_key_the_newest_is_found_first_whatever_kind_they_are() -> None:
    two = Two()
    for tags in (b"T", b"\xc3\xa9", b"T"):
        two.send(b"of tag %b" % tags, properties=b"TAGS\x01%b\x02KEYS\x01needle\x02" % tags)
    two.copy()
    two.clock.advance(5)
    assert two.slave.find("orders", "needle", 1) == two.master.find("orders", "needle", 1)
    assert len(two.slave.find("orders", "needle", 2)) == 2


def test_a_record_is_visible_only_when_it_is_there_as_a_whole() -> None:
    two = Two()
    two.send(b"whole")
    data = two.master.raw(0, 1 << 20)
    two.slave.take_raw(data[:-1])
    assert two.slave.max_offset("orders", 0) == 0
    assert two.follower.had == len(data) - 1
    two.slave.take_raw(data[-1:])
    two.clock.advance(0.01)
    assert two.slave.max_offset("orders", 0) == 1


def test_readers_see_no_more_than_the_master_lets_them() -> None:
    two = Two()
    two.slave.show_up_to(0)
    two.send(b"not yet")
    two.copy()
    assert two.slave.max_offset("orders", 0) == 0
    two.slave.show_up_to(two.master.wrote)
    assert two.slave.max_offset("orders", 0) == 1


def test_nothing_is_taken_from_senders_while_following() -> None:
    two = Two()
    with pytest.raises(Busy, match="it is a slave"):
        two.slave.append(Draft("orders", 0, b"mine", b"", 0, 0, 1, HOST, HOST))


def test_a_slave_that_is_closed_and_opened_goes_on_where_it_was() -> None:
    two = Two()
    for number in range(10):
        two.send(b"%d" % number * 50)
    data = two.master.raw(0, 1 << 20)
    two.slave.take_raw(data[:-30])  # the last one is torn
    two.slave.close()
    two.open()
    assert two.slave.wrote == two.slave.dispatched < len(data) - 30
    two.copy()
    two.check()


def test_after_kill_9_it_goes_on_too() -> None:
    two = Two()
    for number in range(40):
        two.send(b"%d" % number * 100)
    two.copy(777)
    two.files = two.files.crashed()
    two.open()
    two.send(b"more")
    two.copy()
    two.check()


def test_a_log_begun_in_the_middle_has_queues_that_begin_there() -> None:
    """A master of the original's gives an empty slave its newest file only."""
    two = Two()
    for number in range(60):
        two.send(b"%d" % number * 200)
    begin = two.master.wrote // SEGMENT_BYTES * SEGMENT_BYTES
    two.follower.begin_at(begin)
    two.copy()
    first = two.slave.min_offset("orders", 0)
    assert first > 0
    assert two.slave.max_offset("orders", 0) == 60
    read = two.slave.read("orders", 0, first, 32)
    assert b"".join(read.messages) == b"".join(two.master.read("orders", 0, first, 32).messages)


def test_what_the_master_has_damaged_is_kept_and_passed_over() -> None:
    two = Two()
    for number in range(5):
        two.send(b"message %d" % number)
    data = bytearray(two.master.raw(0, 1 << 20))
    second = data.index(b"message 1")
    data[second] ^= 0xFF
    two.slave.take_raw(bytes(data[: second + 50]))
    assert two.follower.had < second, "what may be damaged is not acknowledged"
    two.slave.take_raw(bytes(data[second + 50 :]))
    two.clock.advance(0.01)
    assert two.follower.had == len(data)
    assert [(each.start < second < each.end) for each in two.follower.damage] == [True]
    assert two.slave.max_offset("orders", 0) == 5
    assert everything(two.slave) == bytes(data)


def test_a_master_that_sends_no_records_at_all_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.store.following._UNREADABLE_BYTES_MAX", 4096)
    two = Two()
    for _ in range(4):
        two.slave.take_raw(b"\x01" * 1000)
    with pytest.raises(Corrupt, match="no valid record"):
        two.slave.take_raw(b"\x01" * 8000)
    assert two.follower.had == 0


def test_a_topic_that_was_deleted_and_made_again_begins_anew() -> None:
    two = Two()
    for number in range(4):
        two.send(b"old %d" % number)
        two.send(b"other", topic="other")
    two.copy()
    two.master.delete_topic("orders")
    two.send(b"new")
    two.send(b"other", topic="other")
    two.copy()
    assert two.slave.max_offset("orders", 0) == 1
    assert two.slave.max_offset("other", 0) == 5
    assert b"new" in b"".join(two.slave.read("orders", 0, 0).messages)


def test_a_full_disk_refuses_and_what_came_is_as_if_it_never_had() -> None:
    two = Two()
    two.send(b"one")
    two.copy()
    two.send(b"two")
    end = two.slave.wrote
    two.files.fail("pwrite", error=errno.ENOSPC)
    with pytest.raises(Busy, match="full"):
        two.copy()
    assert two.slave.wrote == end
    two.copy()
    two.check()


def test_a_broken_disk_ends_it() -> None:
    two = Two()
    two.send(b"one")
    two.files.fail("pwrite", error=errno.EIO, times=10)
    with pytest.raises(DiskFault):
        two.copy()
    assert two.slave.failed is not None


def test_leaving_takes_back_a_torn_record_and_takes_messages_from_then_on() -> None:
    two = Two()
    two.send(b"one")
    two.send(b"two")
    data = two.master.raw(0, 1 << 20)
    two.slave.take_raw(data[:-5])
    two.slave.leave_log()
    two.slave.refuse_appends(None)
    assert two.slave.max_offset("orders", 0) == 1
    appended = two.slave.append(Draft("orders", 0, b"mine", b"", 0, 0, 1, HOST, HOST))
    assert appended.queue_offset == 1
    assert appended.physical_offset < len(data) - 5
    two.slave.close()
    two.slave = make(two.files, two.clock)
    two.slave.open()
    assert two.slave.max_offset("orders", 0) == 2
    assert two.slave.damage == []


def test_under_sync_flush_a_record_is_visible_when_it_is_on_the_disk() -> None:
    jobs: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
    two = Two()
    two.slave.close()
    config = StoreConfig(root="store", commit_log_segment_bytes=SEGMENT_BYTES, flush="SYNC_FLUSH")
    slave = Store(
        config,
        files=two.files,
        clock=two.clock,
        defer=lambda work: work(),
        background=lambda job, done: jobs.append((job, done)),
    )
    slave.refuse_appends("slave")
    slave.open()
    slave.follow()
    told: list[int] = []
    slave.on_durable(lambda: told.append(slave.durable))
    two.send(b"one")
    slave.take_raw(two.master.raw(0, 1 << 20))
    assert (slave.durable, slave.max_offset("orders", 0)) == (0, 0)
    job, done = jobs.pop(0)
    job()
    done(None)
    two.clock.advance(0.01)
    assert (slave.durable, slave.max_offset("orders", 0)) == (two.master.wrote, 1)
    assert told == [two.master.wrote]


@pytest.mark.parametrize("by", ["C, if it is there", "Python"])
@pytest.mark.parametrize("seed", range(8))
def test_the_quick_way_makes_what_the_plain_way_makes(
    seed: int, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kind of message, in any order: the same queues, the same keys."""
    if by == "Python":
        monkeypatch.setattr("kourou.store.following.native", None)
    quick, plain = Two(), Two()
    plain.master = quick.master
    chance = random.Random(seed)
    hosts = (HOST, pack_host("::1", 10911))
    for number in range(150):
        kind = chance.randrange(7)
        unique = b"UNIQ_KEY\x01%032d\x02" % number
        properties = {
            0: unique,
            1: unique + b"TAGS\x01T%d\x02" % (number % 3),
            2: b"TAGS\x01T\x02" + unique + b"KEYS\x01a b%d\x02" % number,
            3: b"KEYS\x01only%d\x02" % number,
            4: b"",
            5: unique + b"DELAY\x013\x02",
            6: b"X\x01UNIQ_KEY\x02" + unique,
        }[kind]
        topic = "SCHEDULE_TOPIC_XXXX" if kind == 5 else chance.choice(["one", "two", "a" * 100])
        sys_flag = chance.choice([0, 0, 0, 4, 8, 12])
        born = chance.choice(hosts)
        sys_flag |= 0x10 if len(born) > 8 else 0
        quick.master.append(
            Draft(topic, chance.randrange(3), b"body", properties, 0, sys_flag, 1, born, HOST)
        )
    sizes = [chance.randrange(1, 3000) for _ in range(400)]
    copy_in(quick, sizes)
    with monkeypatch.context() as patched:
        patched.setattr(Follower, "_take_usual", lambda *_: None)
        copy_in(plain, sizes)
    for two in (quick, plain):
        two.clock.advance(5)
        two.check()
    assert _keys(quick.slave) == _keys(plain.slave) != {}


def copy_in(two: Two, sizes: list[int]) -> None:
    for size in sizes:
        data = two.master.raw(two.slave.wrote, size)
        if not data:
            break
        two.slave.take_raw(data)
    two.copy()


def _keys(store: Store) -> dict[str, int]:
    """How many messages are found by each key."""
    wanted = [*(f"{number:032d}" for number in range(150)), *(f"b{number}" for number in range(150)), "a"]
    found = {
        f"{topic}/{key}": len(store.find(topic, key, 64))
        for topic in ("one", "two", "a" * 100)
        for key in wanted
    }
    return {name: count for name, count in found.items() if count}


@pytest.mark.parametrize("more", [0, 40])
def test_all_is_visible_though_what_fills_up_a_file_came_last(more: int) -> None:
    two = Two()
    while two.master.wrote < SEGMENT_BYTES:
        two.send(b"x" * 700)
    two.slave.take_raw(two.master.raw(0, SEGMENT_BYTES))
    if more:  # of a record that never came as a whole
        two.slave.take_raw(two.master.raw(SEGMENT_BYTES, more))
    two.clock.advance(0.01)
    two.slave.leave_log()
    assert two.slave.dispatched == two.slave.wrote == SEGMENT_BYTES
    two.slave.refuse_appends(None)
    before = two.slave.max_offset("orders", 0)
    two.slave.append(Draft("orders", 0, b"ours", b"", 0, 0, 1, HOST, HOST))
    assert two.slave.dispatched == two.slave.wrote > SEGMENT_BYTES
    assert two.slave.max_offset("orders", 0) == before + 1
