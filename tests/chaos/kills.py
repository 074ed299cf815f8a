"""A broker that is killed again and again while it is written to and read from, and what every start finds.

    at any time     kill -9 from outside, after a moment of traffic
    at a place      the broker kills itself at a failpoint of its disk: before or after the nth write, sync,
                    rename …, of any file or of one kind (`KOUROU_FAILPOINT`)
    at its start    while it recovers from the kill before

Every start is the examination of the kill before it: I1 to I7 of the oracle, and keys. A killed process
leaves the operating system's cache alone, so this shows recovery after a crash of the broker; power cuts are
in `power_cuts.py`.

`python -m tests.chaos.kills 1000` does so many, several brokers side by side; `make chaos KILLS=…` does, too.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from kourou.doors import failpoints
from kourou.remoting.blocking import BlockingClient
from tests.chaos.clients import everything, found_by_key, group_offset, make_topics, traffic
from tests.chaos.oracle import History, Queue, faults
from tests.kourou_process import PROGRAM, ServerFailed, Serving, serving_broker

KILLS_A_FOLDER = 10
"""Then a new one is begun: to examine all that was ever stored takes longer with every kill."""
TOPICS, QUEUES, SENDERS = 3, 4, 4
SECONDS_MAX = 0.6
EARLY_KILLS, KILLS_AT_A_PLACE = 0.2, 0.4
KEYS_A_KILL, KEYS_IN_THE_END = 40, 1000
ACKNOWLEDGED_A_KILL, GIVEN_A_KILL = 10, 5
"""Fewer on average, and the run fails: too little has happened."""

SETTINGS = "flushDiskType=SYNC_FLUSH\nflushConsumerOffsetInterval=100\nlistenPort=0\n"
EVERY_QUEUE: list[Queue] = [(f"chaos-{n}", q) for n in range(TOPICS) for q in range(QUEUES)]
OFTEN = ("append-pwrite", "append-fdatasync", "consumequeue-write", "any-write", "any-fdatasync")
SELDOM = ("any-rename", "offset-snapshot-write", "offset-snapshot-flush", "offset-snapshot-rename")
LATER = ("abort-file", "checkpoint-write", "checkpoint-flush", "consumequeue-flush", "config-dir-fsync")
"""Places that this traffic comes past: hundreds of times a second, some times, and later or at a start."""


class Killing:
    """One folder, and one broker after the other."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._seed = seed
        self._chance = random.Random(seed)
        self.history = History()
        self.kinds: Counter[str] = Counter()

    def kill(self, times: int) -> None:
        for number in range(1, times + 1):
            when = f"kill {number - 1}, SEED={self._seed}"
            if self._chance.random() < KILLS_AT_A_PLACE and number > 1:
                self._kill_at_a_place(number, when)
            else:
                self._kill_at_any_time(number, when)
            if self._chance.random() < EARLY_KILLS:
                self._kill_while_starting(self._chance.uniform(0.1, 0.8))

    def _kill_at_any_time(self, number: int, when: str) -> None:
        with serving_broker(self._folder, settings=SETTINGS) as server:
            address = server.address("listens on")
            if number == 1:
                make_topics(address, sorted({topic for topic, _ in EVERY_QUEUE}), QUEUES)
            else:
                self.examine(address, when)
            with traffic(address, f"{number}", SENDERS, EVERY_QUEUE, self.history) as senders:
                time.sleep(self._chance.uniform(0.02, SECONDS_MAX))
                server.kill()
            refusals = [refusal for sender in senders for refusal in sender.refusals]
            assert not refusals, f"SEED={self._seed}: {refusals[:3]}"
        self.kinds["at any time"] += 1

    def _kill_at_a_place(self, number: int, when: str) -> None:
        name = self._chance.choice((*OFTEN, *OFTEN, *SELDOM, *LATER))
        place = f"{self._chance.choice(('before', 'after'))}-{name}"
        nth = self._chance.randrange(1, 200) if name in OFTEN else self._chance.randrange(1, 4)
        nth = 1 if name in LATER else nth
        environment = {failpoints.VARIABLE: f"{place}:{nth}:kill"}
        try:
            with (
                serving_broker(self._folder, settings=SETTINGS, environment=environment) as server,
                traffic(server.address("listens on"), f"{number}", SENDERS, EVERY_QUEUE, self.history),
            ):
                is_killed_there = self._has_ended(server, SECONDS_MAX * 2)
                server.kill()
        except ServerFailed:  # it was killed before it listened
            is_killed_there = True
        self.kinds[f"at {name}" if is_killed_there else "at any time"] += 1

    def _has_ended(self, server: Serving, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while server.is_running and time.monotonic() < deadline:
            time.sleep(0.01)
        return not server.is_running

    def _kill_while_starting(self, seconds: float) -> None:
        command = [sys.executable, "-c", PROGRAM, "broker", "-c", "broker.conf", "--data", "store"]
        with (self._folder / "broker.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=self._folder, stdout=subprocess.DEVNULL, stderr=log)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.kill()
        process.wait()
        self.kinds["at its start"] += 1

    # What every start finds.

    def finish(self) -> None:
        """One more start, that is not killed."""
        with serving_broker(self._folder, settings=SETTINGS) as server:
            address = server.address("listens on")
            self.examine(address, f"the last kill, SEED={self._seed}", KEYS_IN_THE_END)
            assert server.stop() == 0, server.log
        assert "Traceback" not in server.log, server.log
        assert "damaged" not in server.log, server.log  # a kill tears nothing that was written

    def examine(self, address: str, when: str, keys: int = KEYS_A_KILL) -> None:
        with BlockingClient() as client:
            offsets = {queue: group_offset(client, address, queue) for queue in EVERY_QUEUE}
            found = faults(self.history, everything(address, EVERY_QUEUE), offsets)
            assert not found, f"{len(found)} faults after {when}: {found[:5]}"
            # The index is still being completed when the first request is answered.
            acknowledged = self.history.acknowledged
            some = self._chance.sample(sorted(acknowledged), min(keys, len(acknowledged)))
            missing = self._await_keys(client, address, some)
            assert not missing, f"not found by their keys after {when}: {missing[:5]}"

    def _await_keys(self, client: BlockingClient, address: str, ids: Iterable[str]) -> list[str]:
        """Those that are not found by their key, even after a while."""
        deadline = time.monotonic() + 10
        while True:
            ids = [each for each in ids if not self._is_found(client, address, each)]
            if not ids or time.monotonic() > deadline:
                return ids
            time.sleep(0.1)

    def _is_found(self, client: BlockingClient, address: str, identity: str) -> bool:
        place, key = self.history.acknowledged[identity], identity.replace("/", "-")
        return any(message.place == place for message in found_by_key(client, address, place[0], key))


def killed(times: int, seed: int) -> Counter[str]:
    """In a folder of its own: kills by their kind, and how much was promised."""
    with tempfile.TemporaryDirectory(prefix="kourou-kills-") as folder:
        killing = Killing(Path(folder), seed)
        killing.kill(times)
        killing.finish()
    history = killing.history
    lack = history.too_little(ACKNOWLEDGED_A_KILL * times, GIVEN_A_KILL * times)
    assert lack is None, lack
    counts = {"acknowledged": len(history.acknowledged), "read": len(history.given)}
    return killing.kinds + Counter(counts)


def killed_side_by_side(times: int, seed: int) -> Counter[str]:
    """So many kills, in several folders at a time."""
    parts = [min(KILLS_A_FOLDER, times - at) for at in range(0, times, KILLS_A_FOLDER)]
    total: Counter[str] = Counter()
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        for each in processes.map(killed, parts, range(seed, seed + len(parts))):
            total += each
            print(f"{kills_of(total)} kills, {total['acknowledged']} acknowledged, none lost", flush=True)
    return total


def kills_of(total: Counter[str]) -> int:
    return sum(count for kind, count in total.items() if kind.startswith("at "))


def report(total: Counter[str], seconds: float, seed: int) -> str:
    places = sum(count for kind, count in total.items() if kind.startswith("at ") and "-" in kind)
    return (
        f"{kills_of(total)} kills (seed {seed}): {total['at any time']} at any time, {places} at a place, "
        f"{total['at its start']} at the start; {total['acknowledged']} messages acknowledged, "
        f"{total['read']} read: none lost; {seconds:.0f} s"
    )


def main() -> None:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    seed = int(os.environ.get("SEED", time.time_ns() % 100_000))
    begin = time.monotonic()
    total = killed_side_by_side(times, seed)
    print(report(total, time.monotonic() - begin, seed))


if __name__ == "__main__":
    main()
