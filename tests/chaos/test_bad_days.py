"""Days on which the disk is slow or full, or somebody sets the clock: told as it is, and over soon after.

A disk whose sync fails is in test_failing_disk.py and test_failpoints.py, with real processes and without.
"""

from __future__ import annotations

import pytest

from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import UpdateOffset
from kourou.protocol.record import Record, decode_all
from tests.chaos.power_cuts import quiet
from tests.unit.broker.broker_world import BrokerWorld, send

SETTINGS = {
    "segment_bytes": 8192,
    "consume_queue_bytes": 200,
    "flush_disk_type": "SYNC_FLUSH",
    "index_slots": 50,
    "index_entries": 200,
}
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


def everything(world: BrokerWorld) -> list[Record]:
    found: list[Record] = []
    store = world.broker.store
    for queue_id in store.topics().get("orders", []):
        at = store.min_offset("orders", queue_id)
        while at < store.max_offset("orders", queue_id):
            result = store.read("orders", queue_id, at, 32)
            found += decode_all(b"".join(result.messages))
            at = result.next_offset
    return found


def restarted(world: BrokerWorld) -> None:
    """After a kill."""
    world.crash()
    world.start(**SETTINGS)


# T7: a slow disk.


@pytest.mark.parametrize("seconds", [0.05, 1, 4.9, 30])
def test_a_stalled_disk_is_told_as_such_and_nothing_acknowledged_is_lost(seconds: float) -> None:
    with quiet():
        world = BrokerWorld()
        world.start(**SETTINGS)
        peer = world.connect()
        peer.create_topic("orders")
        world.disk.hold()
        waiting = {b"%d" % number: peer.begin(send(body=b"%d" % number)) for number in range(20)}
        assert not any(each.is_answered for each in waiting.values())
        assert everything(world) == []  # nobody sees what a power cut could take away
        world.pass_time(seconds)
        is_late = seconds > 5
        assert all(each.is_answered == is_late for each in waiting.values())
        world.disk.release()
        world.settle()
        expected = ResponseCode.FLUSH_DISK_TIMEOUT if is_late else ResponseCode.SUCCESS
        assert {each.reply.code for each in waiting.values()} == {expected}
        assert peer.send(body=b"after").code == ResponseCode.SUCCESS
        restarted(world)
        assert {record.body for record in everything(world)} == {*waiting, b"after"}
        world.close()


# T8: a full disk.


@pytest.mark.parametrize("room", range(0, 40_000, 2_500))
def test_a_full_disk_refuses_reads_go_on_and_sending_resumes_by_itself(room: int) -> None:
    with quiet():
        world = BrokerWorld()
        world.start(disk_warning_percent=100, disk_clean_forcibly_percent=100, **SETTINGS)
        peer = world.connect()
        peer.create_topic("orders")
        acknowledged = [b"first"]
        assert peer.send(body=b"first").code == 0
        world.files.capacity = world.files.used() + room
        refused = 0
        for number in range(150):
            body = b"%d " % number + b"." * 400
            reply = peer.send(body=body)
            if reply.code == ResponseCode.SUCCESS:
                acknowledged.append(body)
            else:
                assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE, (reply.code, reply.remark)
                refused += 1
            if number % 10 == 0:
                header = UpdateOffset(
                    consumer_group="readers", topic="orders", queue_id=0, commit_offset=number
                )
                peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
                world.pass_time(1.5)
            assert peer.pull().code == ResponseCode.SUCCESS  # reading goes on
        assert refused > 0
        world.files.capacity = 1 << 30
        world.pass_time(5)
        assert peer.send(body=b"room again").code == ResponseCode.SUCCESS
        acknowledged.append(b"room again")
        assert world.broker.fault is None
        restarted(world)
        assert [record.body for record in everything(world)] == acknowledged
        world.close()


# T9: clocks that jump.


@pytest.mark.parametrize(
    "jumps_ms",
    [
        [1_000],
        [-1_000],
        [HOUR_MS],
        [-HOUR_MS],
        [DAY_MS],
        [-DAY_MS],
        [-1_700_000_000_000],
        [30 * DAY_MS],
        [1_000, -1_000] * 25,
        [DAY_MS, -DAY_MS] * 5,
    ],
    ids=["+1s", "-1s", "+1h", "-1h", "+1d", "-1d", "1970", "+30d", "strobe 1 s", "strobe 1 d"],
)
def test_a_clock_that_jumps_loses_nothing_and_turns_nothing_round(jumps_ms: list[int]) -> None:
    settings = {**SETTINGS, "file_reserved_hours": 1, "delete_hours": frozenset(range(24))}
    with quiet():
        world = BrokerWorld()
        world.start(**settings)
        peer = world.connect()
        peer.create_topic("orders")
        sent: list[bytes] = []
        for jump_ms in (0, *jumps_ms, 0):
            world.clock.jump_ms(jump_ms)
            for _ in range(8):
                sent.append(b"%d " % len(sent) + b"." * 900)
                assert peer.send(body=sent[-1]).code == ResponseCode.SUCCESS
            world.pass_time(0.1)
        header = UpdateOffset(consumer_group="readers", topic="orders", queue_id=0, commit_offset=7)
        peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        world.pass_time(90)  # a round of retention falls into it, and offsets are saved
        found = everything(world)
        assert [record.body for record in found] == sent
        times = [record.store_ms for record in found]
        assert times == sorted(times)
        assert world.broker.offsets.get("readers", "orders", 0) == 7
        world.crash()
        world.start(**settings)
        assert [record.body for record in everything(world)] == sent
        assert world.broker.offsets.get("readers", "orders", 0) == 7
        world.close()


@pytest.mark.parametrize("jump_ms", [-DAY_MS, -HOUR_MS, 0, 500])
def test_a_timed_message_is_not_early_by_a_clock_that_jumps(jump_ms: int) -> None:
    with quiet():
        world = BrokerWorld()
        world.start(**SETTINGS)
        peer = world.connect()
        peer.create_topic("orders")
        due_ms = world.clock.now_ms() + 4_000
        peer.send(body=b"later", properties={"TIMER_DELIVER_MS": str(due_ms)})
        world.pass_time(1)
        world.clock.jump_ms(jump_ms)
        for _ in range(40):
            world.pass_time(0.1, step=0.1)
            assert not everything(world) or world.clock.now_ms() >= due_ms
        world.clock.jump_ms(-jump_ms)
        world.pass_time(5)
        assert [record.body for record in everything(world)] == [b"later"]
        world.close()
