"""A broker that is killed while it is written to and read from loses nothing that it acknowledged or showed.

`make test` kills one twenty times, `make chaos KILLS=200` more often; SEED=… repeats a run as far as threads
allow. Every start is the examination of the kill before it. Some kills come while the broker is starting: a
recovery must survive one, too. A killed process leaves the operating system's cache alone, so this shows
recovery after a crash of the broker; power cuts are in tests/property/test_store_power_cut.py.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kourou.remoting.blocking import BlockingClient
from tests.chaos.clients import everything, found_by_key, group_offset, make_topics, traffic
from tests.chaos.oracle import History, Queue, faults
from tests.kourou_process import PROGRAM, Serving, serving_broker

KILLS = int(os.environ.get("KILLS", "20"))
TOPICS, QUEUES, SENDERS = 3, 4, 4
SECONDS_MAX = 1.0
EARLY_KILLS = 0.25
KEYS_A_KILL = 40
ACKNOWLEDGED_A_KILL, GIVEN_A_KILL = 10, 5
"""Fewer on average, and the run fails: too little has happened."""

SETTINGS = "flushDiskType=SYNC_FLUSH\nflushConsumerOffsetInterval=100\n"
EVERY_QUEUE: list[Queue] = [(f"chaos-{n}", q) for n in range(TOPICS) for q in range(QUEUES)]


@pytest.mark.slow
@pytest.mark.timeout(120 + 30 * KILLS)
def test_nothing_acknowledged_or_shown_is_lost_when_the_broker_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", time.time_ns() % 100_000))
    chance = random.Random(seed)
    history = History()
    for kill in range(1, KILLS + 1):
        with serving_broker(tmp_path, settings=SETTINGS) as server:
            address = server.address("listens on")
            if kill == 1:
                make_topics(address, sorted({topic for topic, _ in EVERY_QUEUE}), QUEUES)
            else:
                examine(address, history, chance, f"kill {kill - 1}, SEED={seed}")
            with traffic(address, f"{kill}", SENDERS, EVERY_QUEUE, history) as senders:
                time.sleep(chance.uniform(0.02, SECONDS_MAX))
                server.kill()
            refusals = [refusal for sender in senders for refusal in sender.refusals]
            assert not refusals, f"SEED={seed}: {refusals[:3]}"
        if chance.random() < EARLY_KILLS:
            kill_while_starting(tmp_path, chance.uniform(0.1, 0.8))
        print(f"kill {kill} of {KILLS}: {len(history.acknowledged)} acknowledged")
    with serving_broker(tmp_path, settings=SETTINGS) as server:
        address = server.address("listens on")
        examine(address, history, chance, f"the last kill, SEED={seed}")
        all_keys_are_found(address, history, seed)
        assert server.stop() == 0, server.log
    assert history.too_little(ACKNOWLEDGED_A_KILL * KILLS, GIVEN_A_KILL * KILLS) is None
    assert_quiet(server)
    print(f"{KILLS} kills, {len(history.acknowledged)} acknowledged, {len(history.given)} read: none lost")


def examine(address: str, history: History, chance: random.Random, when: str) -> None:
    with BlockingClient() as client:
        offsets = {queue: group_offset(client, address, queue) for queue in EVERY_QUEUE}
        found = faults(history, everything(address, EVERY_QUEUE), offsets)
        assert not found, f"{len(found)} faults after {when}: {found[:5]}"
        # The index is still being completed when the first request is answered.
        some = chance.sample(sorted(history.acknowledged), min(KEYS_A_KILL, len(history.acknowledged)))
        missing = await_keys(client, address, history, some)
        assert not missing, f"not found by their keys after {when}: {missing[:5]}"


def all_keys_are_found(address: str, history: History, seed: int) -> None:
    with BlockingClient() as client:
        missing = await_keys(client, address, history, list(history.acknowledged))
    assert not missing, f"{len(missing)} not found by their keys (SEED={seed}): {missing[:5]}"


def await_keys(client: BlockingClient, address: str, history: History, ids: list[str]) -> list[str]:
    """Those that are not found by their key, even after a while."""
    deadline = time.monotonic() + 10
    while True:
        ids = [each for each in ids if not is_found(client, address, history, each)]
        if not ids or time.monotonic() > deadline:
            return ids
        time.sleep(0.1)


def is_found(client: BlockingClient, address: str, history: History, identity: str) -> bool:
    place, key = history.acknowledged[identity], identity.replace("/", "-")
    return any(message.place == place for message in found_by_key(client, address, place[0], key))


def kill_while_starting(folder: Path, seconds: float) -> None:
    command = [sys.executable, "-c", PROGRAM, "broker", "-c", "broker.conf", "--data", "store"]
    with (folder / "broker.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=log)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.kill()
    process.wait()


def assert_quiet(server: Serving) -> None:
    assert "Traceback" not in server.log, server.log
    assert "damaged" not in server.log, server.log  # a kill tears nothing that was written
