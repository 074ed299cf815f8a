"""Messages that a consumer hands back, and those sent to a retry topic: another try, or the dead letters."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.protocol.bodies import MessageQueue, SubscriptionGroupConfig
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.command import request as make_request
from kourou.protocol.headers import SendBack
from kourou.protocol.names import SCHEDULE_TOPIC
from kourou.protocol.record import Record
from tests.unit.broker.broker_world import BrokerWorld, Peer, send

RETRY, DEAD = "%RETRY%billing", "%DLQ%billing"


def hand_back(peer: Peer, record: Record, *, version: int = 409, **more: Any) -> Command:
    usual = {"physical_offset": record.physical_offset, "group": "billing", "delay_level": 0}
    command = make_request(RequestCode.CONSUMER_SEND_MSG_BACK, SendBack(**{**usual, **more}))
    command.version = version
    return peer.begin(command).reply


def configure(world: BrokerWorld, **settings: Any) -> None:
    world.broker.groups._table["billing"] = SubscriptionGroupConfig(group_name="billing", **settings)


@pytest.fixture
def sent(peer: Peer) -> Record:
    """A message of topic orders that a consumer has got."""
    reply = peer.send(queue_id=1, properties={"TAGS": "a", "KEYS": "k", "UNIQ_KEY": "U"}, flag=5)
    assert reply.code == 0
    (record,) = peer.records("orders", 1)
    return record


def test_the_first_retry_comes_after_ten_seconds_as_the_same_message(
    world: BrokerWorld, peer: Peer, sent: Record
) -> None:
    reply = hand_back(peer, sent)
    assert (reply.code, reply.remark, reply.fields) == (0, None, {})
    world.pass_time(9.9)
    assert peer.bodies(RETRY) == []
    world.pass_time(0.2)
    (again,) = peer.records(RETRY)
    for name in ("body", "flag", "sys_flag", "born_ms", "born_host"):
        assert getattr(again, name) == getattr(sent, name), name
    assert again.reconsume_times == 1
    table = again.property_table()
    assert table["RETRY_TOPIC"] == "orders"
    assert table["ORIGIN_MESSAGE_ID"] == sent.offset_id()
    assert (table["UNIQ_KEY"], table["KEYS"], table["TAGS"]) == ("U", "k", "a")
    assert (table["DELAY"], table["WAIT"]) == ("3", "false")
    topic = world.broker.topics.named(RETRY)
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)


def test_each_retry_waits_longer_and_the_origin_stays(world: BrokerWorld, peer: Peer, sent: Record) -> None:
    record, origin = sent, sent.offset_id()
    for times, seconds in ((1, 10), (2, 30), (3, 60), (4, 120)):
        assert hand_back(peer, record).code == 0
        world.pass_time(seconds - 0.1, step=seconds / 20)
        peer = world.connect()
        assert len(peer.records(RETRY)) == times - 1
        world.pass_time(0.2)
        record = peer.records(RETRY)[-1]
        assert record.reconsume_times == times
        table = record.property_table()
        assert (table["RETRY_TOPIC"], table["ORIGIN_MESSAGE_ID"]) == ("orders", origin)


def test_a_consumer_may_choose_the_level(world: BrokerWorld, peer: Peer, sent: Record) -> None:
    hand_back(peer, sent, delay_level=1)
    world.pass_time(1.1)
    assert len(peer.records(RETRY)) == 1
    hand_back(peer, sent, delay_level=40)
    assert len(peer.records(SCHEDULE_TOPIC, 17)) == 1


def test_the_level_of_a_much_tried_message_is_the_last(world: BrokerWorld, peer: Peer) -> None:
    peer.send(reconsume_times=16)
    (record,) = peer.records()
    assert hand_back(peer, record, max_reconsume_times=100).code == 0
    assert len(peer.records(SCHEDULE_TOPIC, 17)) == 1


@pytest.mark.parametrize(
    ("times", "header", "version", "group", "is_dead"),
    [
        (15, {}, 409, {}, False),
        (16, {}, 409, {}, True),
        (1, {}, 409, {"retry_max_times": 1}, True),
        (0, {}, 409, {"retry_max_times": 0}, True),
        (2, {"max_reconsume_times": 3}, 121, {"retry_max_times": 1}, False),
        (3, {"max_reconsume_times": 3}, 121, {}, True),
        (3, {"max_reconsume_times": 3}, 120, {}, False),  # so old a client is not asked
        (99, {"max_reconsume_times": 2_147_483_647}, 409, {}, False),
        (0, {"delay_level": -1}, 409, {}, True),
    ],
)
def test_after_enough_tries_it_is_a_dead_letter(
    world: BrokerWorld,
    peer: Peer,
    times: int,
    header: dict[str, int],
    version: int,
    group: dict[str, int],
    is_dead: bool,
) -> None:
    configure(world, **group)
    peer.send(reconsume_times=times)
    (record,) = peer.records()
    assert hand_back(peer, record, version=version, **header).code == 0
    dead = peer.records(DEAD) if DEAD in world.broker.topics.all else []
    assert len(dead) == is_dead


def test_a_dead_letter_is_there_at_once_and_readable(world: BrokerWorld, peer: Peer, sent: Record) -> None:
    hand_back(peer, sent, delay_level=-1)
    (dead,) = peer.records(DEAD)
    assert (dead.body, dead.reconsume_times, dead.queue_id) == (sent.body, 1, 0)
    assert dead.find(b"RETRY_TOPIC") == b"orders"
    assert dead.find(b"ORIGIN_MESSAGE_ID") == sent.offset_id().encode()
    topic = world.broker.topics.named(DEAD)
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)


def test_retries_are_spread_over_the_groups_retry_queues(
    world: BrokerWorld, peer: Peer, sent: Record
) -> None:
    configure(world, retry_queue_nums=4)
    for _ in range(40):
        assert hand_back(peer, sent, delay_level=1).code == 0
    world.pass_time(1.5)
    assert world.broker.topics.named(RETRY).write_queue_nums == 4
    assert all(peer.records(RETRY, queue_id) for queue_id in range(4))


def test_retries_stay_in_the_queues_there_are_when_the_group_asks_for_more_later(
    world: BrokerWorld, peer: Peer, sent: Record
) -> None:
    assert hand_back(peer, sent, delay_level=1).code == 0
    configure(world, retry_queue_nums=4)
    for _ in range(20):
        assert hand_back(peer, sent, delay_level=1).code == 0
    world.pass_time(1.5)
    queues = world.broker.topics.named(RETRY).read_queue_nums
    assert sum(len(peer.records(RETRY, queue_id)) for queue_id in range(queues)) == 21


def test_a_group_without_retry_queues_is_told_yes_and_nothing_is_stored(
    world: BrokerWorld, peer: Peer, sent: Record
) -> None:
    configure(world, retry_queue_nums=0)
    before = world.broker.store.wrote
    assert hand_back(peer, sent).code == 0
    assert world.broker.store.wrote == before
    assert RETRY not in world.broker.topics.all


def test_a_group_that_is_not_known_is_made_or_refused(world: BrokerWorld, peer: Peer) -> None:
    peer.send()
    (record,) = peer.records()
    hand_back(peer, record)
    assert "billing" in world.broker.groups.all
    world.stop()
    world.start(auto_create_group=False)
    reply = hand_back(world.connect(), record, group="other")
    assert (reply.code, "no consumer group 'other'" in (reply.remark or "")) == (26, True)


def test_refusals_of_a_send_back_name_what_is_wrong(world: BrokerWorld, peer: Peer, sent: Record) -> None:
    reply = hand_back(peer, sent, physical_offset=sent.physical_offset + 1)
    assert (reply.code, f"no message begins at {sent.physical_offset + 1}" in (reply.remark or "")) == (
        1,
        True,
    )
    reply = hand_back(peer, sent, physical_offset=-5)
    assert reply.code == 1
    reply = hand_back(peer, sent, group="no/group")
    assert (reply.code, "no/group" in (reply.remark or "")) == (26, True)
    world.make_topic(RETRY, 1, perm=4)
    reply = hand_back(peer, sent)
    assert (reply.code, "%RETRY%billing' is not writable" in (reply.remark or "")) == (16, True)


def test_a_broker_that_is_not_writable_takes_nothing_back(
    world: BrokerWorld, peer: Peer, sent: Record
) -> None:
    world.stop()
    world.start(permission=4)
    reply = hand_back(world.connect(), sent)
    assert (reply.code, "brokerPermission is 4" in (reply.remark or "")) == (16, True)


def test_a_send_back_is_answered_when_it_is_durable(world: BrokerWorld) -> None:
    world.start(flush_disk_type="SYNC_FLUSH", sync_flush_timeout_ms=2_000)
    peer = world.connect()
    peer.send()
    (record,) = peer.records()
    world.disk.hold()
    header = SendBack(physical_offset=record.physical_offset, group="billing", delay_level=0)
    waiting = peer.begin(make_request(RequestCode.CONSUMER_SEND_MSG_BACK, header))
    world.pass_time(1)
    assert not waiting.is_answered
    world.pass_time(1.5)
    assert waiting.reply.code == 1  # the consumer tries again: twice is better than not at all
    world.disk.release()


def test_a_timed_message_that_is_handed_back_is_not_timed_again(world: BrokerWorld, peer: Peer) -> None:
    peer.send(properties={"TIMER_DELAY_MS": "500"})
    world.pass_time(1)
    (record,) = peer.records()
    hand_back(peer, record, delay_level=1)
    world.pass_time(1.1)
    (again,) = peer.records(RETRY)
    assert again.find(b"TIMER_DELAY_MS") is None
    hand_back(peer, again, delay_level=-1)
    assert len(peer.records(DEAD)) == 1


def test_what_was_handed_back_survives_kill_nine(world: BrokerWorld, peer: Peer, sent: Record) -> None:
    hand_back(peer, sent)
    world.crash()
    world.start()
    world.pass_time(10.5)
    assert len(world.connect().records(RETRY)) == 1


# ------------------------------------------------------------------------------- sends to a retry topic (310)


@pytest.mark.parametrize(
    ("header", "version", "is_dead"),
    [
        ({"reconsume_times": 16}, 409, False),
        ({"reconsume_times": 17}, 409, True),
        ({"reconsume_times": 3, "max_reconsume_times": 2}, 409, True),
        ({"reconsume_times": 2, "max_reconsume_times": 2}, 409, False),
        ({"reconsume_times": 3, "max_reconsume_times": 2}, 100, False),
        ({}, 409, False),
    ],
)
def test_a_send_to_a_retry_topic_too_often_goes_to_the_dead_letters(
    world: BrokerWorld, peer: Peer, header: dict[str, Any], version: int, is_dead: bool
) -> None:
    world.make_topic(RETRY, 1)
    command = send(RETRY, properties={"DELAY": "1", "RETRY_TOPIC": "orders"}, **header)
    command.version = version
    assert peer.begin(command).reply.code == 0
    dead = peer.records(DEAD) if DEAD in world.broker.topics.all else []
    assert len(dead) == is_dead
    if is_dead:
        assert dead[0].find(b"DELAY") == b"-1"
        assert dead[0].reconsume_times == header["reconsume_times"]
    world.pass_time(1.1)
    assert len(peer.records(RETRY)) == (not is_dead)


def test_a_run_of_sends_to_a_retry_topic_is_looked_at_one_by_one(world: BrokerWorld, peer: Peer) -> None:
    world.make_topic(RETRY, 1)
    waiting = peer.begin_all([send(RETRY, reconsume_times=times) for times in (0, 99, 1)])
    assert [each.reply.code for each in waiting] == [0, 0, 0]
    assert (len(peer.records(RETRY)), len(peer.records(DEAD))) == (2, 1)


def test_an_orderly_group_has_no_retries_only_dead_letters(world: BrokerWorld, peer: Peer) -> None:
    world.make_topic(RETRY, 1)
    queue = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)
    world.broker.locks.lock("billing", "client", [queue])
    assert peer.send(RETRY, properties={"DELAY": "3"}).code == 0
    assert len(peer.records(DEAD)) == 1


def test_a_send_to_the_retry_topic_of_a_group_that_may_not_be_is_refused(world: BrokerWorld) -> None:
    world.start(auto_create_group=False)
    reply = world.connect().send("%RETRY%nobody")
    assert (reply.code, "no consumer group 'nobody'" in (reply.remark or "")) == (26, True)
