"""A recall has come up and its message not yet, when progress is saved and the broker is killed."""

from __future__ import annotations

from kourou.broker.timers import RECALL_AHEAD_MS
from tests.unit.broker.broker_world import BrokerWorld
from tests.unit.broker.test_timers import delivered, recall, timed


def test_what_is_saved_between_a_recall_and_its_message_does_not_lose_the_recall(world: BrokerWorld) -> None:
    world.start(recall_enabled=True)
    peer = world.connect()
    due_ms = world.clock.now_ms() + 5_000
    handle = timed(peer, 5_000).fields["recallHandle"]
    timed(peer, 60_000, b"another")  # so that something later is pending, too
    assert recall(peer, handle).code == 0
    world.clock.advance((due_ms - RECALL_AHEAD_MS + 1 - world.clock.now_ms()) / 1000)
    world.settle()
    assert len(world.broker.timers._recalled) == 1, "the recall has not come up: the test proves nothing"
    assert world.clock.now_ms() < due_ms
    world.broker.timers.save()
    world.crash()
    world.start(recall_enabled=True)
    world.pass_time(20)
    assert delivered(world) == []
    world.pass_time(60)
    assert delivered(world) == [b"another"]
