"""A topic on two brokers, one of which goes away and comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kourou.broker.broker import Broker
from tests.unit.broker.broker_world import send
from tests.unit.client.consuming_world import NAME_SERVER, ConsumingWorld, Member

SECOND = {"broker_name": "broker-b", "port": 10921, "store_path": "store-b"}


class TwoBrokers(ConsumingWorld):
    """`self.broker` is the first; `self.second` is the one that goes and comes."""

    def __init__(self) -> None:
        super().__init__()
        self.second: Broker | None = None
        self.bring_back()
        self.make_topic("orders", queues=2)
        self.on_second(lambda: self.make_topic("orders", queues=2))
        self.pass_time(2)

    def bring_back(self) -> None:
        first = self.broker
        self.second = self.start(NAME_SERVER, **self.settings, **SECOND)
        self.broker = first

    def take_away(self) -> None:
        assert self.second is not None
        self.run(self.second.stop())
        self.second = None
        self.settle()

    def on_second(self, work: Any) -> Any:
        first, self.broker = self.broker, self.second  # type: ignore[assignment]
        try:
            return work()
        finally:
            self.broker = first

    def send_to_second(self, *bodies: bytes, queue_id: int = 0) -> None:
        peer = self.on_second(self.connect)
        for body in bodies:
            assert peer.begin(send("orders", body, queue_id=queue_id)).reply.code == 0
        self.settle()
        peer.close()

    def close(self) -> None:
        if self.second is not None:
            second, self.second = self.second, None
            for member in self.consumers:
                member.close()
            self.run(second.stop())
        super().close()


@pytest.fixture
def world() -> Iterator[TwoBrokers]:
    world = TwoBrokers()
    yield world
    world.close()


def places(member: Member) -> list[tuple[str, int]]:
    return sorted(
        (queue.broker_name, queue.queue_id) for queue in member.engine.held if queue.topic == "orders"
    )


def test_the_queues_of_both_brokers_are_shared_out(world: TwoBrokers) -> None:
    first = world.consumer().on("orders").start()
    second = world.consumer().on("orders").start()
    world.pass_time(2)
    assert places(first) + places(second) == [
        ("broker-a", 0),
        ("broker-a", 1),
        ("broker-b", 0),
        ("broker-b", 1),
    ]


def test_a_broker_that_was_away_is_read_again_within_three_seconds_and_nothing_comes_twice(
    world: TwoBrokers,
) -> None:
    member = world.consumer().on("orders").start()
    world.send_to_second(b"b1", b"b2")
    world.send("orders", b"a1")
    world.take_away()
    world.pass_time(50)
    world.send("orders", b"a2")  # the other one goes on meanwhile
    world.pass_time(1)
    assert b"a2" in member.bodies
    world.bring_back()
    world.pass_time(3)
    world.send_to_second(b"b3")
    world.pass_time(1)
    assert Counter(member.bodies) == Counter([b"a1", b"a2", b"b1", b"b2", b"b3"])


def test_the_queues_of_a_broker_that_stays_away_are_given_up_in_the_end(world: TwoBrokers) -> None:
    member = world.consumer().on("orders").start()
    assert len(places(member)) == 4
    world.take_away()
    world.pass_time(100)
    assert len(places(member)) == 4
    world.pass_time(60)
    assert places(member) == [("broker-a", 0), ("broker-a", 1)]
