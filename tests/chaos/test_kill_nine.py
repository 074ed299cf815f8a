"""A broker that is killed while it is written to loses nothing that it acknowledged.

`make chaos KILLS=20` kills one twenty times; `make test` does it three times. A killed process leaves the
operating system's cache alone, so this shows recovery after a crash of the broker, not after a power cut.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import kourou
from tests.kourou_process import serving_all

KILLS = int(os.environ.get("KILLS", "3"))
SENDERS = 4
TOPIC = "chaos"


class Sender(threading.Thread):
    """Sends numbered messages until the broker is gone; keeps what was acknowledged, and where it lies."""

    def __init__(self, name: str, name_server: str) -> None:
        super().__init__(name=name, daemon=True)
        self._name_server = name_server
        self.acknowledged: dict[bytes, tuple[int, int]] = {}

    def run(self) -> None:
        with kourou.Producer("chaos-senders", self._name_server, retries=0) as producer:
            for number in range(1_000_000):
                body = f"{self.name}/{number}/".encode() + b"." * (number % 3000)
                try:
                    sent = producer.send(kourou.Message(TOPIC, body))
                except kourou.MQError:
                    return
                self.acknowledged[body] = (sent.queue.queue_id, sent.queue_offset)


@pytest.mark.slow
@pytest.mark.timeout(60 + 30 * KILLS)
def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", time.time_ns() % 100_000))
    chance = random.Random(seed)
    print(f"SEED={seed}")
    acknowledged: dict[bytes, tuple[int, int]] = {}
    for kill in range(1, KILLS + 1):
        with serving_all(tmp_path, "--sync-flush") as server:
            senders = [Sender(f"{kill}-{number}", server.name_server) for number in range(SENDERS)]
            for sender in senders:
                sender.start()
            time.sleep(chance.uniform(0.3, 1.5))
            server.kill()
            for sender in senders:
                sender.join(timeout=20)
                assert not sender.is_alive(), "a sender still waits for a broker that is gone"
        now = {body: place for sender in senders for body, place in sender.acknowledged.items()}
        assert now, f"nothing was acknowledged before kill {kill}:\n{server.log}"
        acknowledged |= now
        with serving_all(tmp_path, "--sync-flush") as server:
            stored = everything_stored(server.name_server)
            assert server.stop() == 0, server.log
        missing = [body[:40] for body, place in acknowledged.items() if stored.get(place) != body]
        assert not missing, f"{len(missing)} acknowledged messages are gone (SEED={seed}): {missing[:5]}"
        assert_gapless(stored)
        print(f"kill {kill} of {KILLS}: {len(acknowledged)} acknowledged, {len(stored)} stored, none lost")


def everything_stored(name_server: str) -> dict[tuple[int, int], bytes]:
    """Every message of the topic by queue and queue offset."""
    stored: dict[tuple[int, int], bytes] = {}
    with kourou.PullConsumer("chaos-reader", TOPIC, name_server, announce=False) as consumer:
        consumer.seek("earliest")
        while received := consumer.receive(1000, timeout=2.0):
            for message in received:
                place = (message.queue_id, message.queue_offset)
                assert place not in stored, f"{place} was handed out twice"
                stored[place] = message.body
    return stored


def assert_gapless(stored: dict[tuple[int, int], bytes]) -> None:
    """Each queue has every offset from 0 on."""
    lengths = Counter(queue_id for queue_id, _ in stored)
    gaps = [place for place in stored if place[1] >= lengths[place[0]]]
    assert not gaps
