"""A topic copied into another under fire: driver, executors, Python workers and broker are killed at random,
and each row is there once.

`KILLS=100 make chaos` kills more often. `SEED=…` repeats an order of kills.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from pathlib import Path

import pytest

import kourou
from kourou.local.published import Published, make_topic
from tests.kourou_process import free_pair
from tests.spark.shooting import (
    KILLS,
    PATIENCE_SECONDS,
    SEED,
    TIMEOUT_SECONDS,
    Program,
    broker_on,
    victims,
)

USUAL = ("worker", "broker", "worker", "driver", "broker")
SOURCE, TARGET, QUEUES = "from", "to", 3
ROWS_A_BATCH, ROWS_A_KILL = 200, 600


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_whatever_is_killed_each_row_is_written_once(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    master, to_kill = victims(USUAL, chance)
    ports = (free_pair(), free_pair())
    name_server = f"127.0.0.1:{ports[0]}"
    sent = 0
    with contextlib.ExitStack() as brokers:
        running = brokers.enter_context(broker_on(tmp_path, ports))
        for topic in (SOURCE, TARGET):
            make_topic(f"127.0.0.1:{ports[1]}", topic, QUEUES)
        sent = send(name_server, sent)
        arguments = (master, name_server, SOURCE, TARGET, str(tmp_path / "checkpoint"), str(ROWS_A_BATCH))
        copier = Program("tests.spark.sink_program", *arguments, done="batch")
        try:
            for victim in to_kill:
                copier.wait_for_a_batch()
                sent = send(name_server, sent)
                time.sleep(chance.random() * 0.3)  # anywhere in the batch that follows
                if victim == "broker":
                    running.kill()
                    running = brokers.enter_context(broker_on(tmp_path, ports))
                else:
                    copier.kill(victim, chance)
            wait_until_copied(name_server, copier)
        finally:
            copier.kill_all()
        written = Counter(message.body for message in Published(name_server).messages(TARGET))
        expected = {b"%d:%d" % place for place in places(name_server)}
        assert set(written) == expected, f"seed {SEED}: {len(expected - set(written))} rows are missing"
        twice = {row: count for row, count in written.items() if count > 1}
        assert not twice, f"seed {SEED}: written more than once: {twice}"
        assert len(expected) >= sent
    print(f"\n{KILLS} kills, {len(expected)} rows, each there once (seed {SEED})")


def send(name_server: str, first: int) -> int:
    """Some more messages; how many were sent by now. One whose answer was lost may be there twice."""
    messages = [kourou.Message(SOURCE, b"%d" % number) for number in range(first, first + ROWS_A_KILL)]
    with kourou.Producer("sink-kills", name_server) as producer:
        producer.send_all(messages)
    return first + ROWS_A_KILL


def places(name_server: str) -> set[tuple[int, int]]:
    """Where the messages of the source are: queue and offset of each."""
    return {(message.queue_id, message.queue_offset) for message in Published(name_server).messages(SOURCE)}


def wait_until_copied(name_server: str, copier: Program) -> None:
    wanted, deadline = len(places(name_server)), time.monotonic() + PATIENCE_SECONDS
    while len(Published(name_server).messages(TARGET)) < wanted:
        assert time.monotonic() < deadline, f"seed {SEED}: not copied:\n{''.join(copier.lines[-20:])}"
        copier.start_if_dead()
        time.sleep(0.2)
