"""A master and its slave on the same cores: what waiting for the slave costs, and how soon it has caught up.

    sync        SYNC_MASTER, its slave acknowledges each write
    async       ASYNC_MASTER, its slave follows
    catch-up    a slave that was away comes back: MiB a second until it has everything

64 connections with 16 sends each on their way, bodies of 1 KiB, asynchronous flush. The pairs take turns, and
rates are compared with those of the same round. `python -m bench.replication` runs this alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

from bench import generator
from bench.process import let_disk_rest
from bench.servers import APACHE_VERSION, PATIENT, SEGMENT_BYTES, Server, make_topic
from kourou.errors import MQError
from kourou.protocol.bodies import KVTable
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import request
from kourou.remoting.blocking import BlockingClient
from tests.interop import apache, ours

TOPIC, QUEUES, BODY_BYTES = "BenchPair", 8, 1024
CONNECTIONS, DEPTH = 64, 16
SYNC, ASYNC, APACHE_SYNC = "kourou sync", "kourou async", f"Apache {APACHE_VERSION} sync"
FOLLOW_SECONDS_MAX, CATCH_UP_SECONDS_MAX = 60.0, 600.0
CATCH_UP_ROUNDS = 3
LOOK_SECONDS = 0.05  # a look costs the slave time that it needs for catching up


@dataclass(frozen=True)
class Figures:
    """Sends a second by pair and round; MiB a second of catching up."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    catch_up: dict[str, float] = field(default_factory=dict)

    def ratio(self, pair: str, other: str) -> float | None:
        """The median over the rounds; None when one of them was not measured."""
        if pair not in self.rates or other not in self.rates:
            return None
        return median(a / b for a, b in zip(self.rates[pair], self.rates[other], strict=True))


@dataclass(frozen=True)
class Pair:
    name: str
    master: Server
    slave: Callable[[], AbstractContextManager[str]]
    """Starts its slave, over the folder as it is; gives its address."""


def measure(
    folder: Path,
    *,
    rounds: int,
    seconds: float,
    catch_up_mib: int,
    with_apache: bool,
    tell: Callable[[str], None],
) -> Figures:
    figures = Figures()
    with ExitStack() as stack:
        pairs = [
            stack.enter_context(_ours(folder / "sync", SYNC, "SYNC_MASTER")),
            stack.enter_context(_ours(folder / "async", ASYNC, "ASYNC_MASTER")),
        ]
        if with_apache:
            pairs.append(stack.enter_context(_apache(folder / "apache")))
        for pair in pairs:
            make_topic(pair.master, TOPIC, QUEUES)
            with pair.slave() as slave:
                _until_caught_up(pair.master.address, slave, FOLLOW_SECONDS_MAX)
        _measure_sends(pairs, figures, rounds, seconds, tell)
        caught_up: dict[str, list[float]] = {}
        for number in range(CATCH_UP_ROUNDS):
            behind = [each for each in pairs if each.name != ASYNC]
            for pair in behind if number % 2 == 0 else reversed(behind):
                tell(f"{pair.name}: a slave catches up {catch_up_mib} MiB")
                caught_up.setdefault(pair.name, []).append(_catch_up(pair, catch_up_mib))
        figures.catch_up.update({name: median(rates) for name, rates in caught_up.items()})
    return figures


def _measure_sends(
    pairs: list[Pair], figures: Figures, rounds: int, seconds: float, tell: Callable[[str], None]
) -> None:
    """One pair's slave runs at a time: the others would take their share of the cores."""
    for number in range(rounds):
        for pair in pairs:
            tell(f"{pair.name}: round {number + 1}")
            with pair.slave() as slave:
                _until_caught_up(pair.master.address, slave, FOLLOW_SECONDS_MAX)
                let_disk_rest()
                run = generator.send(
                    pair.master.address, CONNECTIONS, DEPTH, seconds, TOPIC, QUEUES, BODY_BYTES
                )
                figures.rates.setdefault(pair.name, []).append(run.rate)


def _catch_up(pair: Pair, mib: int) -> float:
    """The slave is away: its master takes messages without it."""
    begin = _log_end(pair.master.address)
    while _log_end(pair.master.address) - begin < mib << 20:
        left = (mib << 20) - (_log_end(pair.master.address) - begin)
        generator.fill_unconfirmed(pair.master.address, max(1000, left // 1300), TOPIC, QUEUES, BODY_BYTES)
    master_end = _log_end(pair.master.address)  # nobody sends any more
    grown = master_end - begin
    let_disk_rest()
    with pair.slave() as slave:
        started = None
        deadline = perf_counter() + CATCH_UP_SECONDS_MAX
        while (end := _log_end(slave)) < master_end:
            if started is None and end > begin:
                started = perf_counter()  # connecting and starting Java are not what is measured
                grown = master_end - end
            if perf_counter() > deadline:
                raise generator.GeneratorFailed(f"{pair.name}: the slave never caught up")
            sleep(LOOK_SECONDS)
        return grown / (1 << 20) / (perf_counter() - (started or perf_counter()) or 1e-9)


def _log_end(address: str) -> int:
    """-1 of a broker that listens and is not ready yet."""
    with BlockingClient() as client:
        reply = client.call(address, request(RequestCode.GET_BROKER_RUNTIME_INFO), 20)
    return int(KVTable.decode(reply.body).table["commitLogMaxOffset"]) if reply.body else -1


def _until_caught_up(master: str, slave: str, seconds: float) -> None:
    """Until the slave has everything, and is there to acknowledge what comes."""
    deadline = perf_counter() + seconds
    while _log_end(slave) < _log_end(master) or not _confirms(master):
        if perf_counter() > deadline:
            raise generator.GeneratorFailed(f"the slave at {slave} never followed {master}")
        sleep(0.1)


def _confirms(master: str) -> bool:
    """Whether a send is answered with success: of a sync master, when a slave has it."""
    try:
        generator.fill(master, 1, TOPIC, QUEUES, 100, 1)
    except (generator.GeneratorFailed, MQError):
        return False
    return True


@contextmanager
def _ours(folder: Path, name: str, role: str) -> Iterator[Pair]:
    (folder / "slave").mkdir(parents=True, exist_ok=True)
    names = ours.name_server(folder)
    with names as name_server:
        settings: dict[str, Any] = {"brokerRole": role, "mappedFileSizeCommitLog": SEGMENT_BYTES}
        with ours.broker(folder, name_server.address, name="pair", **settings) as master:

            @contextmanager
            def slave() -> Iterator[str]:
                more: dict[str, Any] = {
                    "brokerRole": "SLAVE",
                    "brokerId": 1,
                    "mappedFileSizeCommitLog": SEGMENT_BYTES,
                }
                with ours.broker(folder / "slave", name_server.address, name="pair", **more) as part:
                    yield part.address
                    part.stop()

            yield Pair(name, Server(name, master.address, master.process.pid), slave)


@contextmanager
def _apache(folder: Path) -> Iterator[Pair]:
    folder.mkdir(parents=True, exist_ok=True)
    common: dict[str, Any] = {
        "name": "pair",
        "quick": False,
        "heap": "768m",
        "mappedFileSizeCommitLog": SEGMENT_BYTES,
        **PATIENT,
    }
    with apache.name_server(APACHE_VERSION, folder) as names:
        settings = {**common, "brokerRole": "SYNC_MASTER", "slaveTimeout": 30_000}
        with apache.broker(APACHE_VERSION, folder, names.address, **settings) as master:

            @contextmanager
            def slave() -> Iterator[str]:
                more = {**common, "brokerRole": "SLAVE", "brokerId": 1}
                with apache.broker(APACHE_VERSION, folder / "slave", names.address, **more) as part:
                    yield part.address
                    part.stop()

            yield Pair(APACHE_SYNC, Server(APACHE_SYNC, master.address, master.process.pid), slave)


def shown(figures: Figures) -> str:
    lines = [f"{'a pair on these cores':<28}{'sends/s (median)':>20}{'catch-up MiB/s':>18}"]
    for pair, rates in figures.rates.items():
        caught_up = figures.catch_up.get(pair)
        lines.append(f"{pair:<28}{median(rates):>20,.0f}{f'{caught_up:,.0f}' if caught_up else '-':>18}")
    return "\n".join(lines)


def as_json(figures: Figures) -> dict[str, Any]:
    return asdict(figures)


def from_json(values: dict[str, Any]) -> Figures:
    return Figures(**values)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.replication", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--catch-up-mib", type=int, default=2048)
    parser.add_argument("--no-apache", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as folder:
        figures = measure(
            Path(folder),
            rounds=arguments.rounds,
            seconds=arguments.seconds,
            catch_up_mib=arguments.catch_up_mib,
            with_apache=not arguments.no_apache,
            tell=lambda text: print(f"bench: {text}", file=sys.stderr, flush=True),
        )
    print(shown(figures))
    for pair, other in ((SYNC, ASYNC), (SYNC, APACHE_SYNC)):
        ratio = figures.ratio(pair, other)
        if ratio is not None:
            print(f"{pair} / {other}: {ratio:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
