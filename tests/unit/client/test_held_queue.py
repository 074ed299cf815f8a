from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from kourou.client.held_queue import HeldQueue
from kourou.client.operations import Subscription
from kourou.message import ReceivedMessage
from kourou.protocol import record
from kourou.protocol.bodies import MessageQueue
from tests.unit.client.conversation import stored


def held_queue() -> HeldQueue:
    queue = MessageQueue(topic="t", broker_name="a", queue_id=0)
    return HeldQueue(queue, Subscription("t", "*", 1), ordered=False)


def message(offset: int) -> ReceivedMessage:
    return record.to_received(record.decode(stored(offset, None)), "a")


@given(
    offsets=st.lists(st.integers(0, 60), unique=True, min_size=1, max_size=30).map(sorted),
    chance=st.randoms(use_true_random=False),
)
def test_the_place_is_always_before_the_first_message_that_is_not_done(
    offsets: list[int], chance: random.Random
) -> None:
    """Whatever the order in which handlers finish; offsets have gaps where the filter left some out."""
    held, messages = held_queue(), [message(offset) for offset in offsets]
    held.take(messages, 61)
    left = list(messages)
    chance.shuffle(messages)  # type: ignore[attr-defined]
    for done in messages:
        held.finish([done])
        left = [each for each in left if each is not done]
        assert held.commit_offset == (left[0].queue_offset if left else 61)
        assert (held.bytes_in_flight == 0) == (not left)
    assert held.messages_in_flight == held.span == 0


def test_before_the_first_look_there_is_no_place() -> None:
    held = held_queue()
    assert held.commit_offset is None
    held.fetch_offset = 7
    assert held.commit_offset == 7


def test_what_is_in_flight_is_measured() -> None:
    held = held_queue()
    messages = [message(offset) for offset in (3, 4, 9)]
    held.take(messages, 10)
    assert (held.messages_in_flight, held.span, held.bounds()) == (3, 6, (3, 9))
    assert held.bytes_in_flight == sum(each.size for each in messages)


def test_after_a_move_nothing_of_before_counts() -> None:
    held = held_queue()
    held.take([message(3)], 4)
    generation = held.generation
    assert held.counts(generation)
    assert held.goes_on(generation)
    held.move_to(0)
    assert not held.counts(generation)
    assert not held.goes_on(generation)
    assert (held.commit_offset, held.messages_in_flight, held.bytes_in_flight) == (0, 0, 0)


def test_an_ending_queue_hands_out_nothing_but_its_outcomes_count() -> None:
    held = held_queue()
    held.is_ending = True
    assert not held.goes_on(held.generation)
    assert held.counts(held.generation)
    held.is_dropped = True
    assert not held.counts(held.generation)


def test_what_is_in_flight_is_still_to_be_done_when_messages_behind_it_have_expired() -> None:
    held = held_queue()
    messages = [message(3), message(4)]
    held.take(messages, 5)
    generation = held.generation
    held.correct_to(90)
    assert held.counts(generation)
    assert (held.commit_offset, held.fetch_offset, held.messages_in_flight) == (3, 90, 2)
    held.finish(messages)
    assert held.commit_offset == 90


def test_what_is_not_done_is_read_again_when_a_queue_has_lost_its_end() -> None:
    held = held_queue()
    messages = [message(offset) for offset in (3, 4, 5, 6)]
    held.take(messages, 7)
    generation = held.generation
    held.finish(messages[:1])
    held.correct_to(6)  # it had 7 messages once, and what becomes the sixth is not what we hold as that
    assert not held.counts(generation)
    assert (held.commit_offset, held.fetch_offset, held.messages_in_flight) == (4, 4, 0)


def test_a_place_behind_the_end_of_a_queue_is_its_end() -> None:
    held = held_queue()
    held.fetch_offset = 12
    held.correct_to(9)
    assert (held.commit_offset, held.fetch_offset) == (9, 9)
    fresh = held_queue()
    fresh.correct_to(2)
    assert (fresh.commit_offset, fresh.fetch_offset) == (2, 2)
