from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kourou.client.outcomes import DeadLetter, RetryLater
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import LockedQueues, LockQueues
from kourou.protocol.codes import RequestCode
from tests.unit.client.consuming_world import ConsumingWorld, queue_of


@pytest.fixture
def world() -> Iterator[ConsumingWorld]:
    world = ConsumingWorld()
    world.make_topic("orders", queues=2)
    yield world
    world.close()


def failing_on(body: bytes, failure: BaseException, times: int = 1_000_000) -> Any:
    """A handler that fails on one message, so often."""
    left = [times]

    def handler(message: ReceivedMessage) -> None:
        if message.body == body and left[0]:
            left[0] -= 1
            raise failure

    return handler


def test_the_messages_of_a_queue_are_handled_in_their_order(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders", ordered=True).start()
    for number in range(100):
        world.send("orders", b"%d" % number, queue_id=number % 2)
    for queue_id in range(2):
        of_queue = [int(message.body) for message in member.received if message.queue_id == queue_id]
        assert of_queue == list(range(queue_id, 100, 2))


def test_a_failed_message_holds_up_its_queue_and_no_other(world: ConsumingWorld) -> None:
    handler = failing_on(b"bad", ValueError("no"), times=2)
    member = world.consumer().on("orders", handler, ordered=True).start()
    world.send("orders", b"bad", b"behind")
    world.send("orders", b"other", queue_id=1)
    assert member.bodies == [b"bad", b"other"]
    world.pass_time(1.5)
    assert member.bodies == [b"bad", b"other", b"bad"]
    world.pass_time(1.5)
    assert member.bodies == [b"bad", b"other", b"bad", b"bad", b"behind"]
    assert [message.reconsume_times for message in member.received if message.body == b"bad"] == [0, 1, 2]


def test_an_ordered_handler_says_how_long_its_queue_waits(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders", failing_on(b"bad", RetryLater(20), 1), ordered=True).start()
    world.send("orders", b"bad")
    world.pass_time(19)
    assert len(member.received) == 1
    world.pass_time(2)
    assert len(member.received) == 2


def test_a_bad_message_does_not_block_its_queue_for_ever(world: ConsumingWorld) -> None:
    member = world.consumer(retries=3).on("orders", failing_on(b"bad", ValueError("no")), ordered=True)
    member.start()
    world.send("orders", b"bad", b"behind")
    world.pass_time(5)
    assert member.bodies == [b"bad"] * 4 + [b"behind"]
    assert world.peer.bodies("%DLQ%billing") == [b"bad"]
    assert member.place() == 2


def test_a_bad_message_may_be_skipped(world: ConsumingWorld) -> None:
    member = world.consumer(retries=1, ordered_failure="skip")
    member.on("orders", failing_on(b"bad", ValueError("no")), ordered=True).start()
    world.send("orders", b"bad", b"behind")
    world.pass_time(3)
    assert member.bodies == [b"bad", b"bad", b"behind"]
    assert world.peer.pull("%DLQ%billing").code != 0


def test_a_queue_may_be_blocked_on_purpose(world: ConsumingWorld) -> None:
    member = world.consumer(retries=1, ordered_failure="block")
    member.on("orders", failing_on(b"bad", ValueError("no")), ordered=True).start()
    world.send("orders", b"bad", b"behind")
    world.pass_time(60)
    assert set(member.bodies) == {b"bad"}
    assert len(member.bodies) > 50


def test_an_ordered_handler_may_give_up_at_once(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders", failing_on(b"bad", DeadLetter()), ordered=True).start()
    world.send("orders", b"bad", b"behind")
    assert member.bodies == [b"bad", b"behind"]
    assert world.peer.bodies("%DLQ%billing") == [b"bad"]


def test_of_an_ordered_batch_nothing_behind_what_failed_counts_as_handled(world: ConsumingWorld) -> None:
    tries: list[list[bytes]] = []

    def handle(messages: list[ReceivedMessage]) -> list[object]:
        tries.append([message.body for message in messages])
        failures = {b"1": RetryLater(5) if len(tries) == 1 else DeadLetter("never")}
        return [failures.get(message.body) for message in messages]

    world.send("orders", b"0", b"1", b"2")
    member = world.consumer(start="earliest").on("orders", handle, ordered=True, batch_size=3).start()
    assert (tries, member.place()) == ([[b"0", b"1", b"2"]], 1)
    world.pass_time(6.0)
    assert tries == [[b"0", b"1", b"2"], [b"1", b"2"], [b"2"]]
    assert world.peer.bodies("%DLQ%billing") == [b"1"]
    assert member.place() == 3


def test_dead_letters_are_tried_again_until_the_broker_has_them(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders", failing_on(b"bad", DeadLetter()), ordered=True).start()
    member.handlers.held = True
    world.send("orders", b"bad", b"behind")
    world.stop()
    member.handlers.held = False
    member.work()
    world.pass_time(10)
    assert b"behind" not in member.bodies
    world.start("127.0.0.1:9876", **world.settings)
    world.pass_time(25)
    assert member.bodies[-1] == b"behind"
    assert b"bad" in world.peer.bodies("%DLQ%billing")


# ----------------------------------------------------------------------------------------------- locks


def test_a_queue_locked_by_another_client_is_not_read(world: ConsumingWorld) -> None:
    locked = [queue_of("orders", 0), queue_of("orders", 1)]
    world.broker.locks.lock("billing", "a-java-client", locked)
    member = world.consumer().on("orders", ordered=True).start()
    world.send("orders", b"1")
    world.pass_time(30)
    assert member.bodies == []
    world.broker.locks.unlock("billing", "a-java-client", locked)
    world.pass_time(2)
    assert member.bodies == [b"1"]


def test_locks_are_renewed_for_as_long_as_the_queue_is_ours(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders", ordered=True).start()
    world.pass_time(300)
    for queue_id in range(2):
        assert world.broker.locks.owner("billing", "orders", queue_id) == member.engine.client_id


def test_a_queue_that_changes_hands_waits_for_the_handler_at_work(world: ConsumingWorld) -> None:
    first = world.consumer().on("orders", ordered=True).start()
    first.handlers.held = True
    world.send("orders", b"1", b"2", queue_id=1)
    (task,) = first.handlers.waiting
    first.handlers.begin(task)
    second = world.consumer().on("orders", ordered=True).start()
    world.pass_time(10)
    assert second.queues() == [1] or second.queues() == [0]
    moved = second.queues()[0]
    if moved == 1:
        assert second.bodies == []  # assigned, but not locked: the first is still at work
    first.end(task)
    world.pass_time(2)
    assert first.bodies + second.bodies == [b"1", b"2"]


def test_taking_leave_gives_the_locks_back(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders", ordered=True).start()
    member.close()
    assert world.broker.locks.owner("billing", "orders", 0) is None


def test_after_losing_its_lock_it_goes_on_where_the_group_is_by_then(world: ConsumingWorld) -> None:
    member = world.consumer().on("orders", ordered=True).start()
    world.send("orders", b"1")
    world.broker.locks.unlock("billing", member.engine.client_id, [queue_of("orders")])
    world.broker.locks.lock("billing", "somebody else", [queue_of("orders")])
    world.pass_time(25)  # noticed with the next renewal
    world.send("orders", b"2", b"3")
    world.pass_time(1)
    assert member.bodies == [b"1"]
    world.broker.offsets.commit("billing", "orders", 0, 2)  # the other one did the second message
    world.broker.locks.unlock("billing", "somebody else", [queue_of("orders")])
    world.pass_time(3)
    assert member.bodies == [b"1", b"3"]


def test_nothing_further_is_begun_of_a_queue_whose_lock_cannot_be_renewed(world: ConsumingWorld) -> None:
    """Whoever reaches the broker gets it after a minute: also in the middle of a run it is not ours then."""
    world.send("orders", b"1", b"2", b"3")
    member = world.consumer(start="earliest").on("orders", ordered=True)
    member.handlers.held = True
    member.start()
    (task,) = member.handlers.waiting
    assert len(task.units) == 3
    member.handlers.begin(task)
    host, port = world.broker.address.rsplit(":", 1)
    world.network.partition(host, int(port))
    world.pass_time(50)
    member.end(task)  # it took so long with the first of them
    assert member.bodies == [b"1"]
    assert not member.handlers.waiting
    world.network.heal(host, int(port))
    world.pass_time(5)
    member.work()
    assert member.bodies == [b"1", b"2", b"3"]
    assert member.place() == 3


def test_messages_that_come_again_are_ordered_only_when_everything_is(world: ConsumingWorld) -> None:
    world.make_topic("payments", queues=1)
    world.pass_time(1)
    mixed = world.consumer().on("orders", ordered=True).on("payments").start()
    assert [held.ordered for queue, held in mixed.engine.held.items() if queue.topic == "%RETRY%billing"] == [
        False
    ]
    all_ordered = world.consumer("strict").on("orders", ordered=True).start()
    assert [
        held.ordered for queue, held in all_ordered.engine.held.items() if queue.topic == "%RETRY%strict"
    ] == [True]


def test_a_broadcast_consumer_needs_no_locks(world: ConsumingWorld) -> None:
    first = world.consumer(broadcast=True, offsets_file="a.json").on("orders", ordered=True).start()
    second = world.consumer(broadcast=True, offsets_file="b.json").on("orders", ordered=True).start()
    world.send("orders", b"1", b"2")
    assert first.bodies == second.bodies == [b"1", b"2"]


def test_the_broker_is_asked_under_the_clients_own_name(world: ConsumingWorld) -> None:
    world.consumer().on("orders", ordered=True).start()
    wanted = LockQueues(client_id="me", consumer_group="billing", mq_set=[queue_of("orders")])
    reply = world.peer.ask(RequestCode.LOCK_BATCH_MQ, body=wanted.encode())
    assert reply.code != 0 or LockedQueues.decode(reply.body).locked == []


def key_of(message: ReceivedMessage) -> str | None:
    """`a3` is of key `a`; one that begins with a digit is of none."""
    key = message.body[:1].decode()
    return key if key.isalpha() else None


def test_with_keys_a_failed_message_holds_up_those_of_its_key_alone(world: ConsumingWorld) -> None:
    handler = failing_on(b"a1", ValueError("no"), times=2)
    member = world.consumer(ordered_key=key_of).on("orders", handler, ordered=True).start()
    world.send("orders", b"a1", b"b1", b"a2", b"c1", b"b2")
    assert member.bodies == [b"a1", b"b1", b"c1", b"b2"]
    world.send("orders", b"a3", b"b3")
    assert member.bodies[4:] == [b"b3"]
    world.pass_time(1.5)
    assert member.bodies[5:] == [b"a1"]
    world.pass_time(1.5)
    assert member.bodies[6:] == [b"a1", b"a2", b"a3"]
    assert [message.reconsume_times for message in member.received if message.body == b"a1"] == [0, 1, 2]


def test_the_place_of_a_queue_stays_before_a_key_that_is_held_up(world: ConsumingWorld) -> None:
    handler = failing_on(b"a1", ValueError("no"), times=1)
    member = world.consumer(ordered_key=key_of).on("orders", handler, ordered=True).start()
    world.send("orders", b"b1", b"a1", b"b2", b"b3")
    assert member.bodies == [b"b1", b"a1", b"b2", b"b3"]
    member.close()
    assert member.place() == 1


def test_a_bad_message_of_a_key_becomes_a_dead_letter_and_the_key_goes_on(world: ConsumingWorld) -> None:
    handler = failing_on(b"a1", ValueError("no"))
    member = world.consumer(retries=1, ordered_key=key_of).on("orders", handler, ordered=True).start()
    world.send("orders", b"a1", b"a2", b"b1")
    assert member.bodies == [b"a1", b"b1"]
    world.pass_time(1.5)
    assert member.bodies == [b"a1", b"b1", b"a1", b"a2"]
    assert world.peer.bodies("%DLQ%billing") == [b"a1"]


def test_a_message_without_a_key_holds_up_all_behind_it(world: ConsumingWorld) -> None:
    handler = failing_on(b"1", ValueError("no"), times=1)
    member = world.consumer(ordered_key=key_of).on("orders", handler, ordered=True).start()
    world.send("orders", b"1", b"b1")
    assert member.bodies == [b"1"]
    world.pass_time(1.5)
    assert member.bodies == [b"1", b"1", b"b1"]


def test_a_key_that_cannot_be_told_holds_up_all_behind_it_and_loses_nothing(world: ConsumingWorld) -> None:
    member = world.consumer(ordered_key=lambda message: message.properties["order"])
    member.on("orders", failing_on(b"2", ValueError("no"), times=2), ordered=True).start()
    world.send("orders", b"1", b"2", b"3")
    assert member.bodies == [b"1", b"2"]
    world.pass_time(3)
    assert member.bodies == [b"1", b"2", b"2", b"2", b"3"]
    assert member.place() == 3


def test_a_key_may_be_a_number(world: ConsumingWorld) -> None:
    member = world.consumer(ordered_key=lambda message: int(message.body) % 2)  # type: ignore[arg-type]
    member.on("orders", failing_on(b"0", ValueError("no"), times=1), ordered=True).start()
    world.send("orders", b"0", b"1", b"2")
    assert member.bodies == [b"0", b"1"]
    world.pass_time(2)
    assert member.bodies == [b"0", b"1", b"0", b"2"]
