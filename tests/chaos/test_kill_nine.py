"""A broker that is killed while it is written to loses nothing that it acknowledged.

`make chaos KILLS=20` kills one twenty times; `make test` does it three times. A killed process leaves the
operating system's cache alone, so this shows recovery after a crash of the broker, not after a power cut.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.kourou_process import serving_all
from tests.traffic import Place, Sender, everything_stored

KILLS = int(os.environ.get("KILLS", "3"))
SENDERS = 4
TOPIC = "chaos"


@pytest.mark.slow
@pytest.mark.timeout(60 + 30 * KILLS)
def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", time.time_ns() % 100_000))
    chance = random.Random(seed)
    print(f"SEED={seed}")
    acknowledged: dict[Place, bytes] = {}
    for kill in range(1, KILLS + 1):
        with serving_all(tmp_path, "--sync-flush") as server:
            senders = [Sender(f"{kill}-{number}", server.name_server, TOPIC) for number in range(SENDERS)]
            for sender in senders:
                sender.start()
            time.sleep(chance.uniform(0.3, 1.5))
            server.kill()
            for sender in senders:
                sender.join(timeout=20)
                assert not sender.is_alive(), "a sender still waits for a broker that is gone"
        now = {place: body for sender in senders for place, body in sender.acknowledged.items()}
        assert now, f"nothing was acknowledged before kill {kill}:\n{server.log}"
        acknowledged |= now
        with serving_all(tmp_path, "--sync-flush") as server:
            stored = everything_stored(server.name_server, TOPIC)
            assert server.stop() == 0, server.log
        missing = [body[:40] for place, body in acknowledged.items() if stored.get(place) != body]
        assert not missing, f"{len(missing)} acknowledged messages are gone (SEED={seed}): {missing[:5]}"
        assert_gapless(stored)
        print(f"kill {kill} of {KILLS}: {len(acknowledged)} acknowledged, {len(stored)} stored, none lost")


def assert_gapless(stored: dict[Place, bytes]) -> None:
    """Each queue has every offset from 0 on."""
    lengths = Counter(queue_id for queue_id, _ in stored)
    gaps = [place for place in stored if place[1] >= lengths[place[0]]]
    assert not gaps
