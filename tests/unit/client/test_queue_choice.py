from __future__ import annotations

from collections import Counter

from kourou.client.queue_choice import Turns, by_key
from kourou.doors.chance import Chance
from kourou.protocol.bodies import MessageQueue


def queues(topic: str = "t", brokers: str = "ab", count: int = 4) -> list[MessageQueue]:
    return [
        MessageQueue(topic=topic, broker_name=name, queue_id=number)
        for name in brokers
        for number in range(count)
    ]


def test_every_queue_gets_its_turn() -> None:
    turns = Turns(Chance(1))
    chosen = [turns.choose(queues()) for _ in range(16)]
    assert set(Counter(chosen).values()) == {2}
    assert chosen[:8] == chosen[8:]


def test_the_first_queue_is_a_matter_of_chance() -> None:
    assert len({Turns(Chance(seed)).choose(queues()) for seed in range(100)}) == 8


def test_topics_do_not_take_turns_from_each_other() -> None:
    turns = Turns(Chance(1))
    chosen = []
    for _ in range(8):
        chosen.append(turns.choose(queues("one")))
        turns.choose(queues("two"))
    assert len(set(chosen)) == 8


def test_the_broker_that_failed_is_avoided() -> None:
    turns = Turns(Chance(1))
    assert {turns.choose(queues(), avoid="a").broker_name for _ in range(50)} == {"b"}


def test_the_broker_that_failed_is_better_than_none() -> None:
    turns = Turns(Chance(1))
    assert len({turns.choose(queues(brokers="a"), avoid="a").queue_id for _ in range(8)}) > 1


def test_one_key_has_one_queue() -> None:
    assert len({by_key(queues(), "order-42") for _ in range(10)}) == 1
    assert len({by_key(queues(), f"order-{number}") for number in range(200)}) == 8


def test_a_key_s_queue_is_the_java_client_s() -> None:
    # Math.abs(key.hashCode() % n), printed by Java: the second hash is negative, the last is -2**31.
    for key, of_four, of_seven in [
        ("TagA", 3, 1),
        ("order-7", 0, 0),
        ("customer-4711", 2, 3),
        ("polygenelubricants", 0, 2),
    ]:
        assert by_key(queues(brokers="a"), key).queue_id == of_four
        assert by_key(queues(brokers="a", count=7), key).queue_id == of_seven
