"""What it costs to be watched: sends to a broker whose metrics are fetched every second, and to one without.

    off        metricsExporterType=DISABLE
    scraped    metricsExporterType=PROM, /metrics fetched once a second: more often than Prometheus is told to

64 connections with 16 sends each on their way, bodies of 1 KiB, asynchronous flush. Both brokers run all the
time and take turns; a rate, and the CPU for a message, is compared with the other's of the same round: where
others use the machine, the CPU is what still tells. `python -m bench.metrics` runs this alone.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from bench import generator
from bench.process import cpu_seconds, let_disk_rest
from bench.servers import Server, make_topic, our_broker

TOPIC, QUEUES, BODY_BYTES = "BenchWatched", 8, 1024
CONNECTIONS, DEPTH = 64, 16
OFF, SCRAPED = "off", "scraped"
EVERY_SECONDS = 1.0


@dataclass(frozen=True)
class Figures:
    """Sends a second and CPU of the broker for each, in microseconds, by broker and round; how long a page
    took and how long it was, the medians."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)
    page_ms: float = 0.0
    page_bytes: int = 0

    @property
    def ratio(self) -> float:
        """The rate, scraped to off, the median over the rounds."""
        return _median_ratio(self.rates[SCRAPED], self.rates[OFF])

    @property
    def cpu_ratio(self) -> float:
        """What the same CPU is good for, scraped to off."""
        return _median_ratio(self.cpu_us[OFF], self.cpu_us[SCRAPED])


def _median_ratio(some: list[float], others: list[float]) -> float:
    return median(one / other for one, other in zip(some, others, strict=True))


def measure(folder: Path, *, rounds: int, seconds: float, tell: Callable[[str], None]) -> Figures:
    port = _free_port()
    watched_settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": port}
    figures = Figures({OFF: [], SCRAPED: []}, {OFF: [], SCRAPED: []})
    pages = Pages(f"http://127.0.0.1:{port}/metrics")
    with (
        our_broker(folder / OFF, metricsExporterType="DISABLE") as plain,
        our_broker(folder / SCRAPED, **watched_settings) as watched,
    ):
        for broker in (plain, watched):
            make_topic(broker, TOPIC, QUEUES)
            _send(broker, seconds)
        for number in range(rounds):
            turns = ((OFF, plain), (SCRAPED, watched))
            for name, broker in turns if number % 2 == 0 else reversed(turns):
                with pages.fetched_every_second() if name == SCRAPED else nullcontext():
                    rate, cpu_us = _send(broker, seconds)
                figures.rates[name].append(rate)
                figures.cpu_us[name].append(cpu_us)
    figures = replace(figures, page_ms=median(pages.took_ms), page_bytes=pages.size)
    tell(f"metrics: {figures.ratio:.3f} of the rate without them")
    return figures


def _send(broker: Server, seconds: float) -> tuple[float, float]:
    let_disk_rest()
    before = cpu_seconds(broker.pid)
    run = generator.send(broker.address, CONNECTIONS, DEPTH, seconds, TOPIC, QUEUES, BODY_BYTES)
    return run.rate, (cpu_seconds(broker.pid) - before) / max(run.handled, 1) * 1e6


class Pages:
    """Fetches /metrics now and then, on a thread of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.took_ms: list[float] = []
        self.size = 0

    @contextmanager
    def fetched_every_second(self) -> Iterator[None]:
        """From the beginning on, so that a short round has one, too; at the end a fetch is waited for."""
        over = threading.Event()
        fetching = threading.Thread(target=self._fetch_until, args=(over,))
        fetching.start()
        try:
            yield
        finally:
            over.set()
            fetching.join()

    def _fetch_until(self, over: threading.Event) -> None:
        while True:
            began = perf_counter()
            with urllib.request.urlopen(self._url, timeout=30) as page:
                self.size = len(page.read())
            took = perf_counter() - began
            self.took_ms.append(took * 1000)
            if over.wait(max(0.0, EVERY_SECONDS - took)):
                return


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def shown(figures: Figures) -> str:
    rates = ", ".join(
        f"{name} {median(taken):,.0f}/s ({median(figures.cpu_us[name]):.1f} µs)"
        for name, taken in figures.rates.items()
    )
    page = f"a page of {figures.page_bytes / 1024:.0f} KiB takes {figures.page_ms:.0f} ms under this load"
    return f"metrics: sends {rates}: {figures.ratio:.3f}x (by CPU {figures.cpu_ratio:.3f}x); {page}"


def as_json(figures: Figures) -> dict[str, Any]:
    return asdict(figures)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.metrics", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as folder:
        figures = measure(
            Path(folder),
            rounds=arguments.rounds,
            seconds=arguments.seconds,
            tell=lambda text: print(f"bench: {text}", file=sys.stderr, flush=True),
        )
    print(shown(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
