"""A sync master and its slave, real processes, under traffic, and everything that can happen to the two.

    kill the slave      and start it again
    pause the slave     SIGSTOP, SIGCONT
    cut the link        connections break, or stay and nothing goes through, in one direction or both
    flapping link       broken and whole again, several times a second
    slow link           less than is written
    sync error          of the slave's disk (a failpoint): it stops, and is started again
                        sync error of the master: the same of the master's
    end at a place      of replication, of the slave or the master: it kills itself there (a failpoint)
    full disk           of the slave or the master; then there is room again (`disks`: each has a small one)
    clock               of either leaps, by a second or a month, forward or back, or to and fro; each keeps
                        its own time ever after, also when it leads next
    switch              kill -9 the master while the slave is in sync, start the slave as the master, and the
                        old master as its slave

After each the two are joined again, and in the end everything is looked at: what was acknowledged as stored
on both is there (I1 to I7), and the logs are the same bytes (I8). `python -m tests.chaos.replica_faults 50`
does so many; `make chaos` does, too.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from kourou.doors import failpoints
from kourou.doors.processes import free_port
from kourou.errors import MQError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.headers import SendReply
from kourou.remoting.blocking import BlockingClient
from tests.chaos.clients import (
    _send_request,
    everything,
    group_offset,
    make_topics,
    pulled,
)
from tests.chaos.clocks import WallClock
from tests.chaos.fault_proxy import FaultProxy, fault_proxy
from tests.chaos.oracle import History, Queue, Sent, faults
from tests.kourou_process import ServerFailed, Serving, serving_broker

TOPIC, QUEUES, SENDERS = "chaos", 4, 3
EVERY_QUEUE: list[Queue] = [(TOPIC, number) for number in range(QUEUES)]
SEGMENT_BYTES = 4 * 1024 * 1024
NOT_CONFIRMED = frozenset(
    {ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_DISK_TIMEOUT}
)
JOIN_SECONDS_MAX = 30.0
EXIT_OF_A_FAULTY_DISK = 74
CALL_SECONDS = 10.0

DISK_KINDS = ("full disk of the slave", "full disk of the master", "sync error of the master")
"""What needs disks that can be filled, and is not drawn at random."""
DISK_BYTES = 256 << 20
FULL_SECONDS = 1.0

KINDS = (
    "kill the slave",
    "pause the slave",
    "cut",
    "silent link",
    "one-way link",
    "flapping link",
    "slow link",
    "sync error",
    "clock of the master",
    "clock of the slave",
    "end at a place of the slave",
    "end at a place of the master",
)


class Sender(threading.Thread):
    """Sends to whoever is the master, again and again, and notes what came of it."""

    def __init__(self, name: str, pair: Pair) -> None:
        super().__init__(name=name, daemon=True)
        self._pair = pair
        self._number = 0
        self._last_ok = time.monotonic()

    def run(self) -> None:
        while not self._pair.is_over:
            with BlockingClient() as client, contextlib.suppress(MQError):
                while not self._pair.is_over:
                    self._send(client)
            time.sleep(0.02)

    def _send(self, client: BlockingClient) -> None:
        pair, number = self._pair, self._number
        self._number += 1
        queue = EVERY_QUEUE[number % QUEUES]
        body = f"{self.name}/{number}/".encode() + b"." * (number * 37 % 2000)
        properties = {"TAGS": f"tag{number % 3}", "UNIQ_KEY": f"{self.name}-{number}".rjust(32, "0")}
        message = Sent(self.name, number, queue, body, properties)
        pair.history.sends(message)
        try:
            reply = client.call(pair.master, _send_request(queue, [message], False), CALL_SECONDS)
        except MQError as error:
            pair.history.is_unknown(message, str(error))
            raise
        if reply.code == ResponseCode.SUCCESS:
            pair.history.was_acknowledged(message, reply.parse(SendReply).queue_offset)
            now = time.monotonic()
            pair.note_gap(now - self._last_ok)
            self._last_ok = now
            pair.count("acknowledged")
        else:
            pair.history.is_unknown(message, f"{reply.code} {reply.remark}")
            pair.count("stored, not confirmed" if reply.code in NOT_CONFIRMED else "refused")
            time.sleep(0.01)


class Reader(threading.Thread):
    """Reads from whoever is the master, and goes on where it was when that changes."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(name="reader", daemon=True)
        self._pair = pair

    def run(self) -> None:
        at = dict.fromkeys(EVERY_QUEUE, 0)
        while not self._pair.is_over:
            with BlockingClient() as client, contextlib.suppress(MQError):
                while not self._pair.is_over:
                    for queue in EVERY_QUEUE:
                        messages, at[queue] = pulled(client, self._pair.master, queue, at[queue])
                        self._pair.history.was_given(messages)
            time.sleep(0.02)


class Pair:
    """Two brokers, the traffic, and the faults."""

    def __init__(self, folder: Path, seed: int, proxy: FaultProxy) -> None:
        self.folders = [folder / "one", folder / "two"]
        self._chance = random.Random(seed)
        self._seed = seed
        self._proxy = proxy
        self._ports = [free_ports(), free_ports()]
        self._clocks = [WallClock(folder / "clock") for folder in self.folders]
        self._master = 0  # which of the two
        self._open: list[contextlib.ExitStack] = [contextlib.ExitStack(), contextlib.ExitStack()]
        self._serving: list[Serving | None] = [None, None]
        self._lock = threading.Lock()
        self.history = History(keeps_operations=False)
        self.counters: Counter[str] = Counter()
        self.longest_gap = 0.0
        self.master = ""
        self.is_over = False

    # What the traffic tells.

    def count(self, what: str) -> None:
        with self._lock:
            self.counters[what] += 1

    def note_gap(self, seconds: float) -> None:
        with self._lock:
            self.longest_gap = max(self.longest_gap, seconds)

    # The two.

    def start(self) -> None:
        self._start(0, is_master=True)
        make_topics(self.master, [TOPIC], QUEUES)
        self._start(1, is_master=False)
        self._join()

    def _start(self, which: int, *, is_master: bool, environment: dict[str, str] | None = None) -> None:
        folder = self.folders[which]
        folder.mkdir(parents=True, exist_ok=True)
        settings = (
            f"brokerName=pair\nlistenPort={self._ports[which]}\nhaListenPort={self._ports[which] + 1}\n"
            "slaveTimeout=1500\nhaMetadataInterval=300\n"
            f"mappedFileSizeCommitLog={SEGMENT_BYTES}\nhaSecret=the two know each other\n"
            "cleanFileForciblyEnable=false\n"  # else a full disk makes room by deleting what is oldest
        )
        if is_master:
            settings += "brokerRole=SYNC_MASTER\n"
        else:
            settings += f"brokerRole=SLAVE\nbrokerId=1\nhaMasterAddress={self._proxy.address}\n"
        stack = self._open[which] = contextlib.ExitStack()
        environment = {**self._clocks[which].environment, **(environment or {})}
        serving = stack.enter_context(serving_broker(folder, settings=settings, environment=environment))
        self._serving[which] = serving
        if is_master:
            self._master = which
            self.master = serving.address("listens on")
            self._proxy.leads_to(f"127.0.0.1:{self._ports[which] + 1}")

    def _stop(self, which: int, how: Callable[[Serving], object]) -> None:
        serving = self._serving[which]
        assert serving is not None
        how(serving)
        self._open[which].close()
        self._serving[which] = None

    def _join(self) -> None:
        """Wait until sends are confirmed again."""
        deadline = time.monotonic() + JOIN_SECONDS_MAX
        confirmed = self.counters["acknowledged"]
        with BlockingClient() as client:
            number = 0
            while True:
                number += 1
                body = f"join-{time.monotonic_ns()}/{number}/".encode()
                name = body.split(b"/")[0].decode()
                message = Sent(name, number, EVERY_QUEUE[0], body, {"UNIQ_KEY": "j".rjust(32, "0")})
                self.history.sends(message)
                with contextlib.suppress(MQError):
                    reply = client.call(self.master, _send_request(EVERY_QUEUE[0], [message], False), 5)
                    if reply.code == ResponseCode.SUCCESS:
                        self.history.was_acknowledged(message, reply.parse(SendReply).queue_offset)
                        return
                self.history.is_unknown(message, "not confirmed")
                assert time.monotonic() < deadline, (
                    f"SEED={self._seed}: no slave within {JOIN_SECONDS_MAX} s ({confirmed} before): "
                    f"{[each and each.log[-800:] for each in self._serving]}"
                )
                time.sleep(0.05)

    # What can happen.

    def fault(self, kind: str) -> None:
        self.counters[kind] += 1
        slave = 1 - self._master
        if kind == "switch":
            self._switch()
        elif kind == "kill the slave":
            self._stop(slave, Serving.kill)
            time.sleep(self._chance.uniform(0.0, 0.3))
            self._start(slave, is_master=False)
        elif kind == "pause the slave":
            serving = self._serving[slave]
            assert serving is not None
            os.kill(serving.pid, signal.SIGSTOP)
            time.sleep(self._chance.uniform(0.2, 1.2))
            os.kill(serving.pid, signal.SIGCONT)
        elif kind == "sync error":
            self._stop(slave, Serving.kill)
            environment = {failpoints.VARIABLE: f"before-any-fdatasync:{self._chance.randrange(5, 15)}:error"}
            self._start(slave, is_master=False, environment=environment)
            self._ends_by_itself(slave)
            self._start(slave, is_master=False)
        elif kind.startswith("end at a place"):
            self._end_at_a_place(self._master if "master" in kind else slave)
        elif kind.startswith("clock"):
            clock = self._clocks[self._master if "master" in kind else slave]
            self.counters["leaps of a clock"] += clock.trouble(self._chance)
        elif kind == "sync error of the master":
            self._sync_error_of_the_master()
        elif kind in DISK_KINDS:
            self._full_disk(self._master if "master" in kind else slave)
        else:
            self._bad_link(kind)
        self._join()

    def _end_at_a_place(self, which: int) -> None:
        is_master = which == self._master
        places = failpoints.OF_THE_MASTER if is_master else failpoints.OF_THE_SLAVE
        place = self._chance.choice(sorted(places))
        nth = 1 if "handshake" in place else self._chance.randrange(1, 50)
        self._stop(which, Serving.kill)
        environment = {failpoints.VARIABLE: f"{place}:{nth}:kill"}
        with contextlib.suppress(ServerFailed):  # it came there before it listened
            self._start(which, is_master=is_master, environment=environment)
            self._ends_by_itself(which, -signal.SIGKILL)
        self.count(f"ended {place}")
        self._start(which, is_master=is_master)

    def _sync_error_of_the_master(self) -> None:
        """It ends by itself, with a code of its own; nothing is acknowledged meanwhile."""
        master = self._master
        self._stop(master, Serving.stop)  # so that it begins without a sync
        environment = {failpoints.VARIABLE: f"before-append-fdatasync:{self._chance.randrange(5, 8)}:error"}
        self._start(master, is_master=True, environment=environment)
        self._ends_by_itself(master)
        self._start(master, is_master=True)

    def _ends_by_itself(self, which: int, expected: int = EXIT_OF_A_FAULTY_DISK) -> None:
        serving = self._serving[which]
        assert serving is not None
        code = serving.wait()
        assert code == expected, f"SEED={self._seed}: it ended with {code}: {serving.log[-800:]}"
        self._stop(which, Serving.kill)

    def _full_disk(self, which: int) -> None:
        """Whoever runs on it is up all the time, and goes on by itself."""
        serving = self._serving[which]
        assert serving is not None
        what = "refused" if which == self._master else "stored, not confirmed"
        before = self.counters[what]
        filler = self.folders[which] / "store" / "filler"
        deadline = time.monotonic() + JOIN_SECONDS_MAX
        while self.counters[what] == before:  # until the blocks that were reserved ahead are used up
            fill_up(filler)
            assert time.monotonic() < deadline, f"SEED={self._seed}: nobody noticed that the disk is full"
        time.sleep(FULL_SECONDS)
        filler.unlink()
        assert serving.is_running, f"SEED={self._seed}: it ended: {serving.log[-800:]}"

    def _bad_link(self, kind: str) -> None:
        if kind == "flapping link":
            for _ in range(self._chance.randrange(3, 8)):
                self._proxy.cut()
                time.sleep(self._chance.uniform(0.02, 0.2))
                self._proxy.heal()
                time.sleep(self._chance.uniform(0.02, 0.3))
        elif kind == "cut":
            self._proxy.cut()
        elif kind == "silent link":
            self._proxy.silence()
        elif kind == "one-way link":
            is_there = self._chance.random() < 0.5
            self._proxy.silence(there=is_there, back=not is_there)
        else:
            self._proxy.slow(self._chance.choice([30_000, 100_000]))
        time.sleep(self._chance.uniform(0.2, 1.0))
        self._proxy.heal()

    def _switch(self) -> None:
        """While the slave is in sync; what was not confirmed by then may be set aside with the old master."""
        old = self._master
        self._stop(old, Serving.kill)
        self._stop(1 - old, Serving.stop)
        self._start(1 - old, is_master=True)
        self._start(old, is_master=False)

    # The end.

    @contextlib.contextmanager
    def traffic(self) -> Iterator[None]:
        threads: list[threading.Thread] = [*(Sender(f"s{n}", self) for n in range(SENDERS)), Reader(self)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.is_over = True
            for thread in threads:
                thread.join(CALL_SECONDS * 2)

    def examine(self) -> None:
        stored = everything(self.master, EVERY_QUEUE)
        with BlockingClient() as client:
            offsets = {queue: group_offset(client, self.master, queue) for queue in EVERY_QUEUE}
        found = faults(self.history, stored, offsets, has_gaps=True)
        assert not found, f"SEED={self._seed}: {len(found)} faults, the first: {found[:3]}"
        copies = Counter(message.id for message in stored)
        self.counters["sent"] = len(self.history.sent)
        self.counters["duplicates, of sends nobody knew of"] = sum(copies.values()) - len(copies)
        for which in (1 - self._master, self._master):
            self._stop(which, Serving.stop)
        logs = [log_of(folder) for folder in self.folders]
        assert logs[0] == logs[1], f"SEED={self._seed}: the logs differ (I8)"
        self.counters["log bytes, the same on both"] = sum(map(len, logs[0].values()))
        aside = [list((folder / "store" / "diverged").glob("*/manifest.json")) for folder in self.folders]
        self.counters["diverged ends set aside"] = sum(map(len, aside))

    def close(self) -> None:
        self.is_over = True
        for stack in self._open:
            stack.close()


def fill_up(path: Path) -> None:
    """Let not one block be left."""
    with path.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass
    time.sleep(0.05)


@contextlib.contextmanager
def small_disks(folders: list[Path]) -> Iterator[None]:
    """A disk of its own for the store of each; raises CannotMount where that is not allowed."""
    with contextlib.ExitStack() as mounted:
        for folder in folders:
            (folder / "store").mkdir(parents=True)
            target = str(folder / "store")
            command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "kourou-test", target]
            try:
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)
            except FileNotFoundError:
                raise CannotMount("there is no `mount` here") from None
            except subprocess.CalledProcessError as error:
                raise CannotMount(error.stderr.strip()) from None
            mounted.callback(subprocess.run, ["umount", "--lazy", target], check=True, timeout=20)
        yield


class CannotMount(Exception):
    """Disks that can be filled are not to be had here."""


def free_ports() -> int:
    """A port that is free, with the one two below it and the one above; no outgoing connection gets these."""
    return free_port((-2, 1))


def log_of(folder: Path) -> dict[str, bytes]:
    files = sorted((folder / "store" / "commitlog").iterdir())
    return {path.name: data for path in files if (data := path.read_bytes().rstrip(b"\0"))}


def under_fire(
    count: int, seed: int, kinds: tuple[str, ...] = (), *, disks: bool = False
) -> tuple[Counter[str], float]:
    """So many faults, those named first; what was counted, and the longest time without a confirmed send.

    With `disks` each has one of its own, which the `DISK_KINDS` need.
    """
    chance = random.Random(seed)
    rest = [chance.choice((*KINDS, "switch", "switch")) for _ in range(count - len(kinds))]
    with tempfile.TemporaryDirectory() as folder, fault_proxy() as proxy:
        pair = Pair(Path(folder), seed, proxy)
        with small_disks(pair.folders) if disks else contextlib.nullcontext():
            try:
                pair.start()
                with pair.traffic():
                    for kind in (*kinds, *rest):
                        time.sleep(chance.uniform(0.1, 0.4))
                        pair.fault(kind)
                    time.sleep(0.3)
                pair.examine()
            finally:
                pair.close()
        return pair.counters, pair.longest_gap


def report(counters: Counter[str], longest_gap: float, seed: int) -> str:
    lines = [f"  {what:<40}{count:>10,}" for what, count in sorted(counters.items())]
    lost = "  acknowledged as on both, and lost                0"
    return "\n".join(
        [
            f"replica faults, SEED={seed}",
            *lines,
            lost,
            f"  longest time without a confirmed send {longest_gap:>10.1f} s",
        ]
    )


def main() -> None:
    seed = int(os.environ.get("SEED", time.time_ns() % 100_000))
    counters, gap = under_fire(int(sys.argv[1]), seed)
    print(report(counters, gap, seed))


if __name__ == "__main__":
    main()
