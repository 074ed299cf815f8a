from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from kourou.client.assignment import assign_evenly
from kourou.client.consume_hooks import ConsumeAttempt
from kourou.client.delays import DelayLevel
from kourou.client.held_queue import HeldQueue
from kourou.client.offsets import Places
from kourou.client.outcomes import DeadLetter, RetryLater
from kourou.errors import ConfigError, Denied, Unreachable
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import ConsumerConnection, ConsumerList
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers import GroupNamed, OffsetReply, QueryOffset
from tests.unit.client.consuming_world import NAME_SERVER, ConsumingWorld, Member


@pytest.fixture
def world() -> Iterator[ConsumingWorld]:
    world = ConsumingWorld()
    world.make_topic("orders", queues=4)
    yield world
    world.close()


def committed(world: ConsumingWorld, queue_id: int = 0, topic: str = "orders", group: str = "billing") -> int:
    """What the broker keeps; -1 for nothing."""
    header = QueryOffset(group, topic, queue_id, set_zero_if_not_found=False)
    reply = world.peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
    return reply.parse(OffsetReply).offset if reply.code == 0 else -1


def raising(*failures: BaseException | None) -> Any:
    """A handler that fails in these ways, one after the other, and is content from then on."""
    left = list(failures)

    def handler(message: ReceivedMessage) -> None:
        failure = left.pop(0) if left else None
        if failure is not None:
            raise failure

    return handler


# ------------------------------------------------------------------------------------- messages and places


def test_every_message_is_handled_once(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders").start()
    for number in range(100):
        world.send("orders", b"%d" % number, queue_id=number % 4)
    assert sorted(member.bodies, key=int) == [b"%d" % number for number in range(100)]


def test_the_place_of_the_group_is_kept_every_five_seconds_and_at_the_end(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders").start()
    world.send("orders", b"1", b"2")
    world.pass_time(6)
    assert committed(world) == 2
    world.send("orders", b"3")
    member.close()
    assert committed(world) == 3


def test_the_place_is_before_the_first_message_that_is_not_done(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders").start()
    member.handlers.held = True
    world.send("orders", b"1", b"2", b"3")
    _, second, third = member.handlers.waiting
    for task in (third, second):
        member.handlers.begin(task)
        member.end(task)
    assert member.place() == 0
    member.work()
    assert member.place() == 3


def test_a_member_that_crashed_loses_nothing(world: ConsumingWorld) -> None:
    first = world.consumer().on("orders").start()
    first.handlers.held = True
    world.send("orders", b"1", b"2")
    first.work(1)
    first.crash()
    second = world.consumer().on("orders").start()
    assert b"2" in second.bodies


def test_only_wanted_tags_arrive_and_the_place_moves_past_the_others(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders", tags="new || paid").start()
    for tag in ("new", "old", "paid", "old"):
        world.send("orders", tag.encode(), properties={"TAGS": tag})
    assert member.bodies == [b"new", b"paid"]
    world.pass_time(30)  # the broker holds the pull for as long as nothing matches
    assert committed(world) == 4


def test_sql_filters_by_properties(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders", sql="amount > 100").start()
    for amount in (50, 150, 100, 101):
        world.send("orders", b"%d" % amount, properties={"amount": str(amount)})
    assert member.bodies == [b"150", b"101"]


def test_an_expression_the_broker_cannot_use_is_refused_at_the_start(world: ConsumingWorld) -> None:
    with pytest.raises(ConfigError, match="amount >"):
        world.consumer().on("orders", sql="amount > > 1").start()


def test_a_handler_may_take_several_messages_at_once(world: ConsumingWorld) -> None:
    world.send("orders", *[b"%d" % number for number in range(10)])
    member = world.consumer(start="earliest").on("orders", batch_size=4).start()
    assert member.batches == [4, 4, 2]


def test_a_handler_of_several_messages_may_say_of_each_what_became_of_it(world: ConsumingWorld) -> None:
    outcomes: dict[bytes, object] = {b"1": RetryLater(5), b"2": DeadLetter("never"), b"3": "done"}

    def handle(messages: list[ReceivedMessage]) -> list[object]:
        return [outcomes.get(message.body) for message in messages]

    world.send("orders", b"0", b"1", b"2", b"3")
    member = world.consumer(start="earliest").on("orders", handle, batch_size=4).start()
    assert world.peer.bodies("%DLQ%billing") == [b"2"]
    assert member.place() == 4
    outcomes.clear()
    world.pass_time(7.0)
    assert member.bodies == [b"0", b"1", b"2", b"3", b"1"]
    figures = member.engine.figures.of("orders")
    assert figures.told().consume_failed_msgs == 2


def test_hooks_hear_of_a_batch_that_failed_in_part_and_change_nothing(world: ConsumingWorld) -> None:
    class Hook:
        def __init__(self) -> None:
            self.failures: list[BaseException | None] = []

        def before_consume(self, attempt: ConsumeAttempt) -> None: ...

        def after_consume(self, attempt: ConsumeAttempt) -> None:
            self.failures.append(attempt.failure)

    hook, failure = Hook(), DeadLetter("never")
    world.send("orders", b"0", b"1")
    member = world.consumer(start="earliest", hooks=[hook])
    member.on("orders", lambda messages: [None, failure], batch_size=2).start()
    assert hook.failures == [failure]
    assert world.peer.bodies("%DLQ%billing") == [b"1"]


def test_outcomes_that_fit_no_message_are_a_failure_of_all(
    world: ConsumingWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.send("orders", b"0", b"1")
    member = world.consumer(start="earliest")
    member.on("orders", lambda messages: [ValueError("no")] if len(messages) > 1 else None, batch_size=2)
    member.start()
    world.pass_time(15.0)
    assert sorted(member.bodies) == [b"0", b"0", b"1", b"1"]
    assert "given 2 messages and returned 1 outcomes" in caplog.text


@pytest.mark.parametrize(("start", "expected"), [("earliest", [b"old", b"new"]), ("latest", [b"new"])])
def test_a_new_group_begins_where_it_says(world: ConsumingWorld, start: Any, expected: list[bytes]) -> None:
    world.send("orders", b"old")
    member = world.consumer(start=start)
    member.on("orders")
    # A broker answers 0 for a young queue, whatever one says; so ask it as if it were an old one.
    from kourou.client import operations

    real = operations.committed_offset
    try:
        operations.committed_offset = lambda *a, **k: real(*a, set_zero_if_not_found=False)  # type: ignore[assignment]
        member.start()
    finally:
        operations.committed_offset = real
    world.send("orders", b"new")
    assert member.bodies == expected


def test_a_consumer_that_has_started_knows_where_to_begin(world: ConsumingWorld) -> None:
    """So that a group which begins with what comes has all that is sent from then on."""
    engine = world.consumer(start="latest").on("orders").engine

    async def started() -> list[int | None]:
        await engine.start(world.network)
        return [held.fetch_offset for held in engine.held.values()]

    places = world.run(started())
    assert places
    assert None not in places


def test_a_start_does_not_wait_for_ever_to_be_told_where_to_begin(
    world: ConsumingWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def never(places: Places, held: HeldQueue) -> int:
        await asyncio.Event().wait()
        raise AssertionError

    with monkeypatch.context() as patched:
        patched.setattr(Places, "find", never)
        before = world.clock.monotonic()
        member = world.consumer().on("orders").start()
    assert 3.0 <= world.clock.monotonic() - before < 6.0
    assert "does not know yet where to begin" in caplog.text
    assert member.queues()


def test_a_new_group_may_begin_at_a_moment(world: ConsumingWorld) -> None:
    world.send("orders", b"old")
    world.pass_time(10)
    moment = datetime.fromtimestamp(world.clock.now_ms() / 1000, UTC)
    world.send("orders", b"new")
    member = world.consumer(start=moment).on("orders")
    world.broker.offsets.commit("billing", "orders", 0, 1)
    member.start()
    assert member.bodies == [b"new"]


def test_a_namespace_is_seen_by_the_brokers_alone(world: ConsumingWorld) -> None:
    world.make_topic("shop%orders", queues=1)
    world.pass_time(1)
    member = world.consumer(namespace="shop").on("orders", raising(RetryLater(1))).start()
    world.send("shop%orders", b"1")
    world.pass_time(3)
    assert [(message.topic, message.reconsume_times) for message in member.received] == [
        ("orders", 0),
        ("orders", 1),
    ]
    member.engine.pause(["orders"])
    world.pass_time(6)
    assert committed(world, topic="shop%orders", group="shop%billing") == 1


# --------------------------------------------------------------------------------------------- failing


def test_a_message_whose_handler_failed_comes_again_under_its_own_topic(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders", raising(ValueError("no"))).start()
    world.send("orders", b"1")
    world.pass_time(9)
    assert [message.reconsume_times for message in member.received] == [0]
    world.pass_time(4)
    assert [message.reconsume_times for message in member.received] == [0, 1]
    assert {message.topic for message in member.received} == {"orders"}


@pytest.mark.parametrize(
    ("failure", "seconds"), [(RetryLater(1), 1), (RetryLater(20), 30), (RetryLater(DelayLevel(4)), 30)]
)
def test_a_handler_says_when_to_try_again(world: ConsumingWorld, failure: RetryLater, seconds: int) -> None:
    member = world.consumer().on("orders", raising(failure)).start()
    world.send("orders", b"1")
    world.pass_time(seconds - 0.5)
    assert len(member.received) == 1
    world.pass_time(2)
    assert len(member.received) == 2


def test_a_message_becomes_a_dead_letter_after_the_last_retry(world: ConsumingWorld) -> None:
    failures = [RetryLater(1) for _ in range(10)]
    member = world.consumer(retries=2).on("orders", raising(*failures)).start()
    world.send("orders", b"1")
    world.pass_time(30)
    assert len(member.received) == 3
    assert world.peer.bodies("%DLQ%billing") == [b"1"]


def test_a_handler_may_give_up_at_once(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders", raising(DeadLetter("broken"))).start()
    world.send("orders", b"1", b"2")
    assert world.peer.bodies("%DLQ%billing") == [b"1"]
    assert member.place() == 2


def test_what_cannot_be_handed_back_is_tried_again_here(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders", raising(ValueError("no"))).start()
    member.handlers.held = True
    world.send("orders", b"1")
    world.stop()
    member.handlers.held = False
    member.work()
    world.pass_time(12)
    assert member.bodies == [b"1", b"1"]


def test_a_handler_that_does_not_return_does_not_keep_its_message_for_ever(world: ConsumingWorld) -> None:
    member = world.consumer(consume_timeout=60).on("orders").start()
    member.handlers.held = True
    world.send("orders", b"1")
    (stuck,) = member.handlers.waiting
    member.handlers.begin(stuck)
    world.pass_time(75)
    member.handlers.held = False
    world.pass_time(20)
    assert [message.reconsume_times for message in member.received] == [1]
    assert member.place() == 1
    member.end(stuck)  # it did return in the end: that no longer counts
    assert member.place() == 1


# ----------------------------------------------------------------------------------------- flow and pauses


def test_reading_pauses_while_too_many_messages_are_in_flight(world: ConsumingWorld) -> None:
    member = world.consumer(queue_messages_max=40).on("orders").start()
    member.handlers.held = True
    for number in range(100):
        world.send("orders", b"%d" % number)
    assert len(member.handlers.waiting) == 40
    member.handlers.held = False
    member.work()
    world.settle()
    world.settle()
    assert len(member.received) == 100


def test_reading_pauses_while_too_many_bytes_are_in_flight(world: ConsumingWorld) -> None:
    member = world.consumer(queue_bytes_max=5000).on("orders").start()
    member.handlers.held = True
    for _ in range(20):
        world.send("orders", bytes(1000))
    assert 4 <= len(member.handlers.waiting) <= 6


def test_reading_pauses_while_one_message_is_far_behind_the_others(world: ConsumingWorld) -> None:
    member = world.consumer(queue_span_max=50).on("orders").start()
    member.handlers.held = True
    world.send("orders", b"slow")
    (slow,) = member.handlers.waiting
    member.handlers.begin(slow)
    member.handlers.held = False
    for number in range(100):
        world.send("orders", b"%d" % number)
    assert 50 <= len(member.received) <= 51
    member.end(slow)
    world.settle()
    world.settle()
    assert len(member.received) == 101


def test_a_paused_topic_is_not_read_until_it_is_resumed(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders").start()
    world.send("orders", b"1")
    member.engine.pause(["orders"])
    world.send("orders", b"2")  # not even this one, for which a pull waits at the broker
    world.send("orders", b"3")
    world.pass_time(20)
    assert member.bodies == [b"1"]
    member.engine.resume([])
    world.settle()
    assert member.bodies == [b"1", b"2", b"3"]


def test_only_what_is_subscribed_can_be_paused(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders").start()
    with pytest.raises(ConfigError, match="payments"):
        member.engine.pause(["payments"])


# ---------------------------------------------------------------------------------------------- membership


def members(world: ConsumingWorld) -> list[str]:
    reply = world.peer.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GroupNamed("billing"))
    return sorted(ConsumerList.decode(reply.body).consumer_id_list) if reply.code == 0 else []


def test_members_share_the_queues_and_nobody_waits_for_long(world: ConsumingWorld) -> None:
    first = world.consumer().on("orders").start()
    assert first.queues() == [0, 1, 2, 3]
    second = world.consumer().on("orders").start()
    assert sorted(first.queues() + second.queues()) == [0, 1, 2, 3]
    assert len(first.queues()) == len(second.queues()) == 2
    second.close()
    world.pass_time(1)
    assert first.queues() == [0, 1, 2, 3]
    assert members(world) == [first.engine.client_id]


def test_the_queues_of_a_crashed_member_are_taken_over_within_three_seconds(world: ConsumingWorld) -> None:
    first = world.consumer().on("orders").start()
    second = world.consumer().on("orders").start()
    lost = second.queues()
    second.crash()
    world.pass_time(3)
    assert first.queues() == [0, 1, 2, 3]
    for queue_id in lost:
        world.send("orders", b"%d" % queue_id, queue_id=queue_id)
    assert sorted(first.bodies) == [b"%d" % queue_id for queue_id in lost]


def test_queues_that_change_hands_bring_nothing_twice_that_was_done(world: ConsumingWorld) -> None:
    first = world.consumer().on("orders").start()
    for queue_id in range(4):
        world.send("orders", b"%d" % queue_id, queue_id=queue_id)
    second = world.consumer().on("orders").start()
    third = world.consumer().on("orders").start()
    first.close()
    world.pass_time(3)
    assert len(first.received + second.received + third.received) == 4


def test_a_broker_that_restarts_is_read_again_within_three_seconds(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders").start()
    world.send("orders", b"before")
    world.restart_broker(away=40)
    world.pass_time(3)
    assert members(world) == [member.engine.client_id]
    world.send("orders", b"after")
    assert member.bodies == [b"before", b"after"]


def test_queues_added_to_a_topic_are_read(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders").start()
    assert world.peer.create_topic("orders", queues=6).code == 0
    world.pass_time(55)
    assert member.queues() == [0, 1, 2, 3, 4, 5]


def test_a_topic_that_does_not_exist_yet_is_waited_for(world: ConsumingWorld) -> None:
    member = world.consumer().on("payments").start()
    world.peer.create_topic("payments", queues=1)
    world.pass_time(3)
    world.send("payments", b"1")
    assert member.bodies == [b"1"]


def test_a_topic_may_be_added_while_it_runs(world: ConsumingWorld) -> None:
    world.make_topic("payments", queues=1)
    world.pass_time(1)
    member = world.consumer().on("orders").start()
    member.on("payments")
    world.pass_time(1)
    world.send("payments", b"1")
    assert member.bodies == [b"1"]
    reply = world.peer.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, GroupNamed("billing"))
    assert "payments" in ConsumerConnection.decode(reply.body).subscription_table


def test_taking_leave_is_told_to_the_broker(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders").start()
    assert members(world) == [member.engine.client_id]
    member.close()
    assert members(world) == []


# ---------------------------------------------------------------------------------------------- broadcast


def test_in_a_broadcast_group_everybody_gets_everything(world: ConsumingWorld) -> None:
    first = world.consumer(broadcast=True, offsets_file="home/1.json").on("orders").start()
    second = world.consumer(broadcast=True, offsets_file="home/2.json").on("orders").start()
    for queue_id in range(4):
        world.send("orders", b"%d" % queue_id, queue_id=queue_id)
    assert sorted(first.bodies) == sorted(second.bodies) == [b"0", b"1", b"2", b"3"]


def test_a_broadcast_consumer_keeps_its_place_in_a_file(world: ConsumingWorld) -> None:
    first = world.consumer(broadcast=True, start="earliest").on("orders").start()
    world.send("orders", b"1", b"2")
    first.close()
    world.send("orders", b"3")
    second = world.consumer(broadcast=True, start="earliest").on("orders").start()
    assert second.bodies == [b"3"]
    assert committed(world) == -1


def test_a_failed_message_of_a_broadcast_group_is_not_tried_again(world: ConsumingWorld) -> None:
    member = world.consumer(broadcast=True).on("orders", raising(ValueError("no"))).start()
    world.send("orders", b"1")
    world.pass_time(30)
    assert member.bodies == [b"1"]
    assert member.place() == 1


# --------------------------------------------------------------------------------------------- its life


def test_handlers_at_work_may_end_before_a_consumer_leaves(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders").start()
    member.handlers.held = True
    world.send("orders", b"1", b"2")
    running, _ = member.handlers.waiting
    member.handlers.begin(running)
    world.clock.later(5, lambda: member.handlers.end(running))
    member.close(drain=10)
    assert member.bodies == [b"1"]
    assert committed(world) == 1


def test_a_handler_that_takes_too_long_is_not_waited_for(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders").start()
    member.handlers.held = True
    world.send("orders", b"1")
    member.handlers.begin(member.handlers.waiting[0])
    began = world.clock.monotonic()
    member.close(drain=2)
    assert world.clock.monotonic() - began < 3
    assert committed(world) <= 0


def started_twice(member: Member) -> None:
    member.on("orders").start()
    member.start()


def without_handler(member: Member) -> None:
    member.start()


def two_handlers(member: Member) -> None:
    member.on("orders").on("orders")


def tags_and_sql(member: Member) -> None:
    member.on("orders", tags="a", sql="a = 1")


def no_filter(member: Member) -> None:
    member.on("orders", tags=" ")


def bad_topic(member: Member) -> None:
    member.on("no spaces allowed")


def started_after_the_end(member: Member) -> None:
    member.on("orders").close()
    member.start()


def added_after_the_end(member: Member) -> None:
    member.close()
    member.on("orders")


@pytest.mark.parametrize(
    ("misuse", "text"),
    [
        (started_twice, "running already"),
        (without_handler, "no handler"),
        (two_handlers, "has a handler already"),
        (tags_and_sql, "give one"),
        (no_filter, "leave it out"),
        (bad_topic, "no spaces allowed"),
        (started_after_the_end, "closed"),
        (added_after_the_end, "closed"),
    ],
)
def test_misuse_is_told(world: ConsumingWorld, misuse: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        misuse(world.consumer())


def test_a_member_that_no_broker_wants_is_told_so() -> None:
    world = ConsumingWorld(refuse_different_subscriptions=True)
    world.make_topic("orders", queues=1)
    world.pass_time(1)
    world.consumer().on("orders", tags="new").start()
    other = world.consumer().on("orders", tags="old")
    with pytest.raises(Denied, match="subscribe differently"):
        world.run(other.engine.start(world.network))
    world.close()


def test_without_a_name_server_it_does_not_start(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders")
    world.network.partition("127.0.0.1", int(NAME_SERVER.rpartition(":")[2]))
    with pytest.raises(Unreachable):
        world.run(member.engine.start(world.network))


def test_an_assignment_that_failed_once_is_asked_again(world: ConsumingWorld) -> None:
    fails = False

    def assign(queues: Any, members: Any, me: str) -> Any:
        if fails:
            raise RuntimeError("the list of rooms is away")
        return assign_evenly(queues, members, me)

    first = world.consumer(assign=assign).on("orders").start()
    fails = True
    world.consumer().on("orders").start()
    world.pass_time(3)
    assert len(first.queues()) == 4
    fails = False
    world.pass_time(3)
    assert len(first.queues()) == 2


def test_closing_while_it_starts_leaves_nothing_behind(world: ConsumingWorld) -> None:
    async def main() -> None:
        starting = asyncio.ensure_future(member.engine.start(world.network))
        await asyncio.sleep(0)
        await member.engine.stop(0.0)
        with pytest.raises(ConfigError, match="closed"):
            await starting

    member = world.consumer().on("orders")
    world.run(main())
    assert member.engine._timers == []
    assert not member.engine.is_started
