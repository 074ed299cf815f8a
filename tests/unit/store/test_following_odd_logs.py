"""A store that follows another's log: what it makes of unusual records, and what of it a restart finds."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from kourou.errors import Busy
from kourou.store.recovery import Recovered, recover
from tests.unit.store.two_stores import SEGMENT_BYTES, Two


def begun_in_the_middle(two: Two) -> None:
    """The slave has none of the first files."""
    for number in range(60):
        two.send(b"%d" % number * 100, topic="other")
    two.follower.begin_at(two.master.wrote // SEGMENT_BYTES * SEGMENT_BYTES)


def restart(two: Two, *, cleanly: bool) -> None:
    if cleanly:
        two.slave.close()
    else:
        two.files = two.files.crashed()
    two.open()
    two.clock.advance(2)


def bodies(two: Two, name: bytes) -> list[int]:
    slave = two.slave
    found = slave.read("orders", 0, slave.min_offset("orders", 0), 32).messages
    data = b"".join(map(bytes, found))
    return [number for number in range(32) if b"%b-%d." % (name, number) in data]


@pytest.mark.parametrize("cleanly", [True, False])
@pytest.mark.parametrize("in_the_middle", [True, False])
@pytest.mark.parametrize("seconds", [0.001, 20.0])
def test_a_topic_that_was_made_again_on_the_master_has_its_new_messages_after_a_restart(
    cleanly: bool, in_the_middle: bool, seconds: float
) -> None:
    two = Two()
    if in_the_middle:
        begun_in_the_middle(two)
    for number in range(20):
        two.send(b"old-%d." % number)
    two.copy()
    two.clock.advance(seconds)
    two.master.delete_topic("orders")
    for number in range(5):
        two.send(b"new-%d." % number)
    two.copy()
    two.clock.advance(seconds)
    assert two.slave.max_offset("orders", 0) == 5
    restart(two, cleanly=cleanly)
    assert (two.slave.min_offset("orders", 0), two.slave.max_offset("orders", 0)) == (0, 5)
    assert bodies(two, b"new") == [0, 1, 2, 3, 4]
    assert bodies(two, b"old") == []
    two.send(b"new-5.")
    two.copy()
    assert bodies(two, b"new") == [0, 1, 2, 3, 4, 5]


def test_a_slave_that_began_in_the_middle_of_the_log_does_not_build_everything_again_at_each_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[Recovered] = []

    def noted(*given: Any, **more: Any) -> Recovered:
        found.append(recover(*given, **more))
        return found[-1]

    monkeypatch.setattr("kourou.store.store.recover", noted)
    two = Two()
    for number in range(200):
        two.send(b"old-%d." % number * 5)
    two.follower.begin_at(two.master.wrote // SEGMENT_BYTES * SEGMENT_BYTES)
    for number in range(4):
        two.send(b"new-%d." % number)
    two.copy()
    two.clock.advance(1)
    restart(two, cleanly=True)
    assert not found[-1].is_rebuilt
    assert two.slave.max_offset("orders", 0) == 204


def test_a_queue_that_found_no_room_to_begin_at_its_offset_begins_there_when_there_is() -> None:
    two = Two()
    for number in range(200):
        two.send(b"old-%d." % number * 5)
    begin = two.master.wrote // SEGMENT_BYTES * SEGMENT_BYTES
    two.follower.begin_at(begin)
    two.send(b"new-0.")
    first = int.from_bytes(two.master.raw(begin, 28)[20:28], "big")
    two.files.fail("pwrite", after=1, error=errno.ENOSPC)  # the log's own write comes first
    with pytest.raises(Busy):
        two.copy()
    two.clock.advance(2)
    two.send(b"new-1.")
    two.copy()
    two.clock.advance(1)
    assert two.slave.min_offset("orders", 0) == first
    assert two.slave.max_offset("orders", 0) == 202
    assert two.slave.dispatched == two.slave.wrote


def test_what_came_before_a_queue_that_found_no_room_is_not_lost_and_not_taken_twice() -> None:
    two = Two()
    for number in range(200):
        two.send(b"old-%d." % number * 5)
        two.send(b"old-%d." % number * 5, topic="more")
    two.follower.begin_at(two.master.wrote // SEGMENT_BYTES * SEGMENT_BYTES)
    two.files.fail("pwrite", after=2, error=errno.ENOSPC)  # the log's, the first queue's
    with pytest.raises(Busy):
        two.copy()
    two.clock.advance(2)
    two.send(b"new-0.")
    two.send(b"new-0.", topic="more")
    two.copy()
    two.clock.advance(1)
    assert two.slave.dispatched == two.slave.wrote
    for topic in ("orders", "more"):
        first = two.slave.min_offset(topic, 0)
        assert 0 < first < two.slave.max_offset(topic, 0) == 201
        assert two.slave.entries(topic, 0, first, 300) == two.master.entries(topic, 0, first, 300)


def test_a_short_unique_id_with_a_tag_behind_it_is_not_taken_for_a_usual_one() -> None:
    two = Two()
    for _ in range(3):
        two.send(b"usual", properties=b"UNIQ_KEY\x01%b\x02" % (b"A" * 32))
    two.send(b"tagged", properties=b"UNIQ_KEY\x01%b\x02TAGS\x01abcdef\x02" % (b"B" * 20))
    two.copy()
    two.check()
