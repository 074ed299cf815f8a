"""What is acknowledged is stored as asked, and what cannot be stored is not acknowledged."""

from __future__ import annotations

import errno

import pytest

from kourou.broker.broker import Broker
from kourou.doors.chance import Chance
from kourou.errors import DiskFault
from kourou.protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers import OffsetReply, QueueNamed, SendReply
from kourou.protocol.record import encode_batch
from tests.unit.broker.broker_world import STORE, BrokerWorld, Peer, pull, send


@pytest.fixture
def synced(world: BrokerWorld) -> Broker:
    broker = world.start(flush_disk_type="SYNC_FLUSH")
    world.make_topic("orders")
    return broker


def max_offset(peer: Peer) -> int:
    reply = peer.ask(RequestCode.GET_MAX_OFFSET, QueueNamed(topic="orders", queue_id=0))
    return reply.parse(OffsetReply).offset


# ------------------------------------------------------------------------------------------------ sync flush


def test_nothing_is_answered_or_seen_before_the_disk_has_it(world: BrokerWorld, synced: Broker) -> None:
    sender, reader = world.connect(), world.connect()
    world.disk.hold()
    sending = sender.begin(send(body=b"precious"))
    reading = reader.begin(pull(wait_ms=15_000))
    assert not sending.is_answered
    assert not reading.is_answered
    assert max_offset(reader) == 0
    assert reader.pull().code == 19
    world.disk.release()
    world.settle()
    assert sending.reply.code == 0
    assert reading.reply.code == 0
    assert max_offset(reader) == 1


def test_a_sync_vouches_only_for_what_was_written_before_it_began(world: BrokerWorld, synced: Broker) -> None:
    sender = world.connect()
    world.disk.hold()
    first = sender.begin(send(body=b"first"))
    second = sender.begin(send(body=b"second"))
    world.disk.finish_one()
    world.settle()
    assert (first.is_answered, second.is_answered) == (True, False)
    assert sender.bodies() == [b"first"]
    world.disk.release()
    world.settle()
    assert second.reply.code == 0
    assert sender.bodies() == [b"first", b"second"]


def test_what_was_answered_survives_a_power_cut(world: BrokerWorld, synced: Broker) -> None:
    sender = world.connect()
    answered = [sender.send(body=b"%d" % number).code for number in range(20)]
    world.disk.hold()
    lost = sender.begin(send(body=b"never acknowledged"))
    assert answered == [0] * 20
    assert not lost.is_answered
    for seed in range(10):
        world.crash()
        world.files = world.files.power_cut(Chance(seed))
        world.disk.release()
        world.start(flush_disk_type="SYNC_FLUSH")
        bodies = world.connect().bodies()
        assert bodies[:20] == [b"%d" % number for number in range(20)], f"seed {seed}"


def test_many_waiting_messages_share_one_sync(world: BrokerWorld, synced: Broker) -> None:
    sender = world.connect()
    sender.send()
    world.disk.hold()
    sender.begin(send(body=b"begins a sync"))
    syncs = world.files.counts["sync"]
    last = sender.begin(*[send(body=b"%d" % number) for number in range(100)])
    world.disk.release()
    world.settle()
    assert last.reply.code == 0
    assert world.files.counts["sync"] - syncs == 2


def test_a_message_that_does_not_want_to_wait_is_answered_before_the_sync(
    world: BrokerWorld, synced: Broker
) -> None:
    sender = world.connect()
    world.disk.hold()
    assert sender.send(properties={"WAIT": "false"}).code == 0
    assert max_offset(sender) == 0  # seen it is not, all the same


@pytest.mark.parametrize("name", ["DO_NOT_WAIT", "note", "X\x01WAIT"])
def test_a_property_that_only_looks_like_wait_false_does_not_weaken_durability(
    world: BrokerWorld, synced: Broker, name: str
) -> None:
    sender = world.connect()
    world.disk.hold()
    assert not sender.begin(send(properties=f"{name}\x01false\x02")).is_answered


def test_a_batch_is_answered_after_the_sync_as_a_single_message_is(
    world: BrokerWorld, synced: Broker
) -> None:
    sender = world.connect()
    world.disk.hold()
    body = encode_batch([(0, b"one", b""), (0, b"two", b"")])
    sending = sender.begin(send(body=body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True))
    assert not sending.is_answered
    world.disk.release()
    world.settle()
    assert sending.reply.code == 0


def test_a_sync_that_takes_too_long_is_said_and_the_message_counts_as_stored(
    world: BrokerWorld, synced: Broker
) -> None:
    sender = world.connect()
    world.disk.hold()
    sending = sender.begin(send(body=b"slow"))
    world.pass_time(4.5)
    assert not sending.is_answered
    world.pass_time(1)
    assert sending.reply.code == 10
    assert "not on the disk in time" in (sending.reply.remark or "")
    assert sending.reply.parse(SendReply).queue_offset == 0
    world.disk.release()
    world.settle()
    assert sender.bodies() == [b"slow"]


def test_async_flush_answers_and_shows_at_once(world: BrokerWorld) -> None:
    world.start()
    sender = world.connect()
    world.disk.hold()
    assert sender.send(body=b"quick").code == 0
    assert sender.bodies() == [b"quick"]


# ------------------------------------------------------------------------------------------------ a full disk


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_full_disk_refuses_lets_read_and_resumes_by_itself(world: BrokerWorld, flush: str) -> None:
    world.start(flush_disk_type=flush)
    world.make_topic("orders")
    peer = world.connect()
    peer.send(body=b"before")
    world.pass_time(12)  # it is not a disk that was full from the beginning
    world.files.capacity = world.files.used()
    big = b"x" * 4_000_000
    refused = [reply for _ in range(8) if (reply := peer.send(body=big)).code != 0]
    assert {reply.code for reply in refused} == {14}
    assert "the disk of store is full" in (refused[0].remark or "")
    assert "resumes by itself" in (refused[0].remark or "")
    assert peer.bodies()[0] == b"before"
    world.pass_time(30)  # long enough for whatever else the broker writes by itself
    assert world.broker.fault is None
    stored = max_offset(peer)
    world.files.capacity = 1 << 40
    world.pass_time(2)
    reply = peer.send(body=b"after")
    assert reply.code == 0
    assert reply.parse(SendReply).queue_offset == stored
    assert world.broker.fault is None


def test_a_topic_that_finds_no_room_on_the_disk_is_not_there(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    world.files.capacity = world.files.used()
    reply = peer.create_topic("big-new-topic")
    assert reply.code == 14
    assert "topics.json" in (reply.remark or "")
    assert "No space left" in (reply.remark or "")
    assert "big-new-topic" not in world.broker.topics.all
    world.files.capacity = 1 << 40
    assert peer.create_topic("big-new-topic").code == 0


def test_a_new_group_reads_from_a_full_disk_and_is_saved_when_there_is_room(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    peer.send(body=b"readable")
    world.files.capacity = world.files.used()
    subscription = SubscriptionData(topic="orders")
    consumer = ConsumerData(group_name="newcomers", subscription_data_set=[subscription])
    heartbeat = HeartbeatData(client_id="c", consumer_data_set=[consumer])
    assert peer.ask(RequestCode.HEART_BEAT, body=heartbeat.encode()).code == 0
    assert [each.body for each in peer.records(group="newcomers")] == [b"readable"]
    world.files.capacity = 1 << 40
    assert peer.create_topic("another").code == 0
    peer.pull(group="others")
    world.crash()
    broker = world.start()
    assert "newcomers" in broker.groups.all
    assert "%RETRY%newcomers" in broker.topics.all


def test_offsets_that_find_no_room_are_kept_and_written_later(world: BrokerWorld) -> None:
    broker = world.start()
    world.make_topic("orders")
    world.connect().send()
    world.files.fail("pwrite", error=errno.ENOSPC, times=1)
    broker.offsets.commit("readers", "orders", 0, 1)
    world.pass_time(6)
    world.pass_time(6)
    world.crash()
    assert world.start().offsets.get("readers", "orders", 0) == 1


# ---------------------------------------------------------------------------------------------- a failed disk


def test_after_a_failed_sync_nothing_is_acknowledged_any_more(world: BrokerWorld, synced: Broker) -> None:
    peer = world.connect()
    assert peer.send(body=b"safe").code == 0
    world.files.fail("sync", error=errno.EIO)
    reply = peer.send(body=b"lost")
    assert reply.code == 14
    assert "errno 5" in (reply.remark or "")
    assert "nothing is acknowledged any more" in (reply.remark or "")
    later = peer.send(body=b"later")
    assert later.code != 0
    assert "nothing is acknowledged any more" in (later.remark or "")
    assert peer.bodies() == [b"safe"]


def test_a_broker_whose_disk_failed_says_what_to_end_with(world: BrokerWorld, synced: Broker) -> None:
    assert world.broker.fault is None
    world.files.fail("sync", error=errno.EIO)
    world.connect().send()
    fault = synced.fault
    assert isinstance(fault, DiskFault)
    assert fault.exit_code == 74
    assert STORE in str(fault)
    world.stop()
    assert world.files.exists(f"{STORE}/abort")  # the next start examines the store


def test_a_write_that_fails_is_the_end_too(world: BrokerWorld) -> None:
    broker = world.start()
    world.make_topic("orders")
    peer = world.connect()
    world.files.fail("pwrite", error=errno.EIO)
    assert peer.send().code == 14
    assert broker.fault is not None


def test_a_stopped_broker_leaves_a_clean_folder_and_a_started_one_finds_it(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    peer.send(body=b"kept")
    assert world.files.exists(f"{STORE}/abort")
    world.stop()
    assert not world.files.exists(f"{STORE}/abort")
    world.start()
    assert world.connect().bodies() == [b"kept"]


def test_what_is_in_flight_when_a_broker_stops_is_answered(world: BrokerWorld, synced: Broker) -> None:
    peer = world.connect()
    world.disk.hold()
    sending = peer.begin(send(body=b"just in time"))
    world.clock.later(0.5, world.disk.release)
    world.stop()
    assert sending.reply.code == 0
    world.start()
    assert world.connect().bodies() == [b"just in time"]
