from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from kourou.client.answers import running_info
from kourou.client.consumer_settings import ConsumerSettings
from kourou.client.lite_pull_consumer import Polling
from kourou.doors.chance import Chance
from kourou.errors import ConfigError, NotFound, Unreachable
from kourou.protocol.bodies import ConsumerConnection
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import request
from kourou.protocol.headers import ConsumeDirectly, GroupNamed
from tests.unit.client.consuming_world import NAME_SERVER, ConsumingWorld, queue_of


@pytest.fixture
def world() -> Iterator[ConsumingWorld]:
    world = ConsumingWorld()
    world.make_topic("orders", queues=2)
    yield world
    world.close()


@pytest.fixture
def make(world: ConsumingWorld) -> Iterator[Any]:
    made: list[Polling] = []

    def make(auto_commit: bool = True, **settings: Any) -> Polling:
        polling = Polling(
            "billing",
            NAME_SERVER,
            ConsumerSettings(**settings),
            auto_commit=auto_commit,
            network=world.network,
            clock=world.clock,
            chance=Chance(7),
            files=world.files,
        )
        made.append(polling)
        return polling

    yield make
    for polling in made:
        world.run(polling.consuming.stop(0.0))


def poll(world: ConsumingWorld, polling: Polling, most: int = 32, timeout: float = 1.0) -> list[bytes]:
    return [message.body for message in world.run(polling.poll(most, timeout))]


def committed(world: ConsumingWorld, queue_id: int = 0) -> int | None:
    return world.broker.offsets.get("billing", "orders", queue_id)


def test_the_queues_of_a_topic_are_told_before_and_after_the_start(world: ConsumingWorld, make: Any) -> None:
    polling = make()
    queues = world.run(polling.queues("orders"))
    assert queues == (queue_of("orders", 0), queue_of("orders", 1))
    polling.assign(queues[1:])
    world.send("orders", b"1", queue_id=1)
    assert poll(world, polling) == [b"1"]
    assert world.run(polling.queues("orders")) == queues
    with pytest.raises(NotFound, match="no topic 'tea'"):
        world.run(polling.queues("tea"))
    world.run(polling.consuming.stop(0.0))
    with pytest.raises(ConfigError, match="closed"):
        world.run(polling.queues("orders"))


@pytest.mark.parametrize("queues", [None, 3, ["orders"], [("orders", 0)]])
def test_what_is_no_queue_is_not_assigned(make: Any, queues: Any) -> None:
    with pytest.raises(ConfigError, match="is no queue"):
        make().assign(queues)


def test_to_the_program_queues_are_without_their_namespace(world: ConsumingWorld, make: Any) -> None:
    world.make_topic("shop%orders", queues=2)
    polling = make(namespace="shop")
    (_, queue) = world.run(polling.queues("orders"))
    assert queue == queue_of("orders", 1)
    polling.assign([queue])
    world.send("shop%orders", b"1", queue_id=1)
    assert poll(world, polling) == [b"1"]
    assert polling.consuming.positions() == {queue: 0}
    world.run(polling.seek(queue, 1))
    polling.pause([queue])
    polling.resume([queue])
    assert polling.consuming.positions() == {queue: 1}


def test_administrators_see_that_it_is_polled(world: ConsumingWorld, make: Any) -> None:
    polling = make()
    polling.subscribe("orders")
    poll(world, polling)
    assert running_info(polling.consuming).properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"


def test_messages_are_polled_as_they_come(world: ConsumingWorld, make: Any) -> None:
    polling = make()
    polling.subscribe("orders")
    assert poll(world, polling) == []
    world.send("orders", b"1", b"2", b"3")
    assert poll(world, polling, most=2) == [b"1", b"2"]
    assert poll(world, polling, most=2) == [b"3"]


def test_a_first_poll_that_is_cancelled_is_not_the_end(world: ConsumingWorld, make: Any) -> None:
    """It starts the consumer, which goes on with the next poll."""

    async def give_up() -> None:
        waiting = asyncio.ensure_future(polling.poll(32, 5.0))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    polling = make()
    with pytest.raises(ConfigError, match="nothing is subscribed"):
        poll(world, polling)
    polling.subscribe("orders")
    world.run(give_up())
    assert poll(world, polling) == []
    world.send("orders", b"1")
    assert poll(world, polling) == [b"1"]


def test_a_poll_ends_when_something_comes(world: ConsumingWorld, make: Any) -> None:
    polling = make()
    polling.subscribe("orders")
    poll(world, polling)
    began = world.clock.monotonic()
    world.send("orders", b"1")
    assert poll(world, polling, timeout=20.0) == [b"1"]
    assert world.clock.monotonic() - began < 1


def test_what_was_polled_counts_as_done_with_the_next_poll(world: ConsumingWorld, make: Any) -> None:
    polling = make()
    polling.subscribe("orders")
    world.send("orders", b"1", b"2")
    poll(world, polling)
    world.pass_time(6)
    assert not committed(world)
    poll(world, polling)
    world.pass_time(6)
    assert committed(world) == 2


def test_the_members_share_the_queues(world: ConsumingWorld, make: Any) -> None:
    first, second = make(), make()
    for polling in (first, second):
        polling.subscribe("orders")
        poll(world, polling)
    world.pass_time(2)
    assert sorted([*first.consuming.positions(), *second.consuming.positions()]) == [
        queue_of("orders", 0),
        queue_of("orders", 1),
    ]


def test_a_commit_nobody_took_is_an_error_and_can_be_repeated(world: ConsumingWorld, make: Any) -> None:
    polling = make(auto_commit=False)
    polling.subscribe("orders")
    poll(world, polling)
    world.send("orders", b"1", b"2")
    poll(world, polling)
    world.stop()
    with pytest.raises(Unreachable):
        world.run(polling.commit())
    world.start(NAME_SERVER, **world.settings)
    world.pass_time(3.0)
    world.run(polling.commit())
    assert committed(world) == 2


def test_without_auto_commit_only_commit_commits(world: ConsumingWorld, make: Any) -> None:
    polling = make(auto_commit=False)
    polling.subscribe("orders")
    world.send("orders", b"1", b"2")
    poll(world, polling)
    poll(world, polling)
    world.pass_time(20)
    assert committed(world) is None
    world.run(polling.commit())
    assert committed(world) == 2
    world.send("orders", b"3")
    poll(world, polling)
    poll(world, polling)
    world.run(polling.consuming.stop(0.0))
    assert committed(world) == 2


def test_assigned_queues_are_read_whoever_else_there_is(world: ConsumingWorld, make: Any) -> None:
    polling, other = make(), make()
    polling.assign([queue_of("orders", 1)])
    other.assign([queue_of("orders", 1), queue_of("orders", 0)])
    world.send("orders", b"0", queue_id=0)
    world.send("orders", b"1", queue_id=1)
    assert poll(world, polling) == [b"1"]
    assert sorted(poll(world, other) + poll(world, other)) == [b"0", b"1"]


def test_an_assigned_queue_that_is_not_there_is_named_and_read_when_it_appears(
    world: ConsumingWorld, make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    polling = make()
    polling.assign([queue_of("orders", 0), queue_of("orders", 5)])
    world.send("orders", b"0", queue_id=0)
    assert poll(world, polling) == [b"0"]
    assert caplog.text.count("has nothing to read from") == 1
    assert str(queue_of("orders", 5)) in caplog.text
    world.make_topic("orders", queues=6)
    world.send("orders", b"5", queue_id=5)
    world.pass_time(60)
    assert poll(world, polling) == [b"5"]


def test_seek_goes_elsewhere(world: ConsumingWorld, make: Any) -> None:
    polling = make()
    polling.subscribe("orders")
    world.send("orders", b"1", b"2")
    world.pass_time(5)
    moment = datetime.fromtimestamp(world.clock.now_ms() / 1000, UTC)
    world.pass_time(1)
    world.send("orders", b"3")
    queue = queue_of("orders")
    for where, expected in [
        (1, [b"2", b"3"]),
        ("earliest", [b"1", b"2", b"3"]),
        ("latest", []),
        (moment, [b"3"]),
    ]:
        world.run(polling.seek(queue, where))
        world.settle()
        assert poll(world, polling, timeout=0.5) == expected
    assert polling.consuming.positions()[queue] == 2  # the third was polled, and is not done yet


def test_a_paused_queue_is_not_polled(world: ConsumingWorld, make: Any) -> None:
    polling = make()
    polling.subscribe("orders")
    poll(world, polling)
    polling.pause([queue_of("orders", 0)])
    world.send("orders", b"0", queue_id=0)
    world.send("orders", b"1", queue_id=1)
    assert poll(world, polling) == [b"1"]

    async def resume() -> None:
        polling.resume([queue_of("orders", 0)])

    world.run(resume())
    assert poll(world, polling) == [b"0"]


def test_administrators_see_a_consumer_that_pulls(world: ConsumingWorld, make: Any) -> None:
    polling = make()
    polling.subscribe("orders", "new")
    poll(world, polling)
    reply = world.peer.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, GroupNamed("billing"))
    connection = ConsumerConnection.decode(reply.body)
    assert str(connection.consume_type) == "ConsumeType.PULL"
    assert list(connection.subscription_table) == ["orders"]


def test_it_takes_no_message_that_was_not_polled(world: ConsumingWorld, make: Any) -> None:
    polling = make()
    polling.subscribe("orders")
    world.send("orders", b"1")
    poll(world, polling)
    (record,) = world.peer.records("orders")
    group = world.broker.members.consumer_group("billing")
    assert group is not None
    replies: list[Any] = []
    command = request(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeDirectly("billing"), record.data)
    next(iter(group.members)).call(command, 3000, replies.append)
    world.settle()
    assert "polled" in str(replies[0].remark)


@pytest.mark.parametrize(
    ("misuse", "text"),
    [
        (
            lambda polling: (polling.subscribe("orders"), polling.assign([queue_of("orders")])),
            "another",
        ),
        (
            lambda polling: (polling.assign([queue_of("orders")]), polling.subscribe("orders")),
            "another",
        ),
        (lambda polling: polling.assign([]), "no queue"),
        (lambda polling: polling.pause([queue_of("orders")]), "not running"),
    ],
)
def test_misuse_is_told(make: Any, misuse: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        misuse(make())


def test_a_seek_needs_a_queue_that_is_ours_and_a_place(world: ConsumingWorld, make: Any) -> None:
    polling = make()
    polling.subscribe("orders")
    with pytest.raises(ConfigError, match="not read here"):
        world.run(polling.seek(queue_of("orders", 9), 0))
    with pytest.raises(ConfigError, match="from 0 on"):
        world.run(polling.seek(queue_of("orders", 0), -1))
    with pytest.raises(ConfigError, match="'yesterday'"):
        world.run(polling.seek(queue_of("orders", 0), "yesterday"))  # type: ignore[arg-type]
