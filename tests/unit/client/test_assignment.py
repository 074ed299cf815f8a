"""Which queues are whose. The expected shares of the table were worked out by the Java classes' rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.client.assignment import (
    Assign,
    assign_by_hash,
    assign_by_room,
    assign_evenly,
    assign_fixed,
    assign_in_turn,
    assign_near,
    in_order,
)
from kourou.errors import ConfigError
from kourou.protocol.bodies import MessageQueue


def queues(count: int, broker: str = "b", topic: str = "t") -> list[MessageQueue]:
    return [MessageQueue(topic=topic, broker_name=broker, queue_id=number) for number in range(count)]


def shares(assign: Assign, count: int, members: list[str]) -> list[list[int]]:
    """The numbers of each member's queues."""
    return [[queue.queue_id for queue in assign(queues(count), members, me)] for me in members]


@pytest.mark.parametrize(
    ("count", "members", "expected"),
    [
        (8, 1, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        (8, 2, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (8, 5, [[0, 1], [2, 3], [4, 5], [6], [7]]),
        (3, 3, [[0], [1], [2]]),
        (2, 4, [[0], [1], [], []]),
        (0, 2, [[], []]),
    ],
)
def test_evenly_in_one_piece_each(count: int, members: int, expected: list[list[int]]) -> None:
    assert shares(assign_evenly, count, [f"c{number}" for number in range(members)]) == expected


@pytest.mark.parametrize(
    ("count", "members", "expected"),
    [
        (8, 3, [[0, 3, 6], [1, 4, 7], [2, 5]]),
        (2, 3, [[0], [1], []]),
        (4, 1, [[0, 1, 2, 3]]),
    ],
)
def test_in_turn_like_cards(count: int, members: int, expected: list[list[int]]) -> None:
    assert shares(assign_in_turn, count, [f"c{number}" for number in range(members)]) == expected


def test_by_hash_few_queues_change_hands_when_a_member_leaves() -> None:
    members = [f"10.0.0.{number}@1" for number in range(5)]
    many = queues(1000)
    before = {queue: me for me in members for queue in assign_by_hash(many, members, me)}
    after = {queue: me for me in members[:-1] for queue in assign_by_hash(many, members[:-1], me)}
    assert {queue for queue in many if before[queue] != after[queue]} == {
        queue for queue in many if before[queue] == members[-1]
    }


def test_a_fixed_list_is_what_it_says() -> None:
    assign = assign_fixed(queues(2))
    assert assign(queues(8), ["a", "b"], "a") == queues(2)
    assert assign(queues(1), ["b"], "a") == queues(1)


def test_by_room_only_brokers_of_these_rooms_count() -> None:
    every = queues(3, "one@x") + queues(3, "two@x") + queues(2, "nowhere") + queues(2, "one@")
    members = ["a", "b"]
    assign = assign_by_room({"one"})
    assert [queue.queue_id for queue in assign(every, members, "a")] == [0, 2]
    assert [queue.queue_id for queue in assign(every, members, "b")] == [1]


def test_near_prefers_the_members_of_the_same_room() -> None:
    every = queues(4, "x1") + queues(4, "y1") + queues(2, "z1")
    assign = assign_near(lambda broker: broker[0], lambda member: member[0])
    members = ["x-1", "x-2", "y-1"]
    found = {
        me: [(queue.broker_name, queue.queue_id) for queue in assign(every, members, me)] for me in members
    }
    assert found == {
        "x-1": [("x1", 0), ("x1", 1), ("z1", 0)],
        "x-2": [("x1", 2), ("x1", 3), ("z1", 1)],
        "y-1": [("y1", 0), ("y1", 1), ("y1", 2), ("y1", 3)],
    }


def test_what_cannot_be_near_is_told() -> None:
    with pytest.raises(ConfigError, match="'b'"):
        assign_near(lambda broker: "", lambda member: "x")(queues(1), ["a"], "a")
    with pytest.raises(ConfigError, match="at least one room"):
        assign_by_room(())


STRATEGIES = [
    assign_evenly,
    assign_in_turn,
    assign_by_hash,
    assign_by_room({"r"}),
    assign_near(lambda broker: broker[0], lambda member: member[0]),
]


@pytest.mark.parametrize("assign", STRATEGIES)
def test_who_is_not_among_the_members_gets_nothing(assign: Assign) -> None:
    assert assign(queues(8, "r@b"), ["a", "b"], "c") == []


@pytest.mark.parametrize("assign", STRATEGIES)
@given(
    counts=st.lists(st.integers(0, 20), min_size=1, max_size=3),
    members=st.lists(st.text("abr", min_size=1, max_size=4), min_size=1, max_size=8, unique=True),
)
def test_every_queue_has_exactly_one_owner(assign: Assign, counts: list[int], members: list[str]) -> None:
    every = in_order(queue for number, count in enumerate(counts) for queue in queues(count, f"r@{number}"))
    owned = [queue for me in sorted(members) for queue in assign(every, sorted(members), me)]
    assert in_order(owned) == every


def test_queues_are_counted_by_topic_broker_and_number() -> None:
    mixed = queues(11, "b") + queues(2, "a") + queues(1, "z", topic="s")
    assert [(queue.topic, queue.broker_name, queue.queue_id) for queue in in_order(reversed(mixed))] == [
        ("s", "z", 0),
        ("t", "a", 0),
        ("t", "a", 1),
        *(("t", "b", number) for number in range(11)),
    ]
