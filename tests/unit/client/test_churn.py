"""Members come, leave and crash, and the broker restarts while messages flow: nothing is lost or orphaned."""

from __future__ import annotations

from collections import Counter

import pytest

from kourou.doors.chance import Chance
from tests.unit.client.consuming_world import ConsumingWorld, Member

QUEUES = 8


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_churn(seed: int, ordered: bool) -> None:
    chance = Chance(seed)
    world = ConsumingWorld()
    world.make_topic("orders", queues=QUEUES)
    world.pass_time(1)
    present: list[Member] = []
    everybody: list[Member] = []
    sent: list[bytes] = []

    def join() -> None:
        member = world.consumer().on("orders", ordered=ordered)
        present.append(member)
        everybody.append(member)
        member.start()

    def send() -> None:
        for queue_id in range(QUEUES):
            sent.append(b"%d" % len(sent))
            world.send("orders", sent[-1], queue_id=queue_id)

    join()
    for turn in range(20):
        if len(present) < 2 or (len(present) < 6 and chance.random() < 0.6):
            join()
        else:
            member = present.pop(chance.randrange(len(present)))
            member.crash() if chance.random() < 0.5 else member.close()
        send()
        world.pass_time(2)
        if turn in (7, 14):
            world.restart_broker(away=chance.uniform(0, 8))
            world.pass_time(3)
    # A crashed member's ordered queues are locked for as long as its locks last: it may still be at work.
    world.pass_time(65 if ordered else 3)
    owned = Counter(queue_id for member in present for queue_id in member.queues())
    assert owned == Counter(range(QUEUES)), f"seed {seed}"
    send()
    world.pass_time(1)
    handled = {body for member in everybody for body in member.bodies}
    assert sorted(set(sent) - handled, key=int) == [], f"seed {seed}"
    world.close()
