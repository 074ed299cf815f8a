"""`kourou bench`: a load test of a cluster: how many messages a second, and how long each of them takes.

One process with an event loop sends, keeps so many messages in flight, and (with `--consume`) reads them
back. That is what one Python program can do; to see what a cluster can do, run several.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING

import click

from kourou.cli.changing import RATE, SOME_TIME
from kourou.cli.connection import client_access, cluster_at, name_server_option
from kourou.cli.exit_codes import FAILED
from kourou.cli.output import Row, counted, format_option, note, show
from kourou.errors import MQError

if TYPE_CHECKING:
    from kourou.admin import Connection

TOPIC = "kourou-bench"
STAMP = Struct(">d")
DRAIN_SECONDS_MAX = 30.0
COLUMNS = (
    "what",
    "messages",
    "seconds",
    "per_second",
    "mb_per_second",
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "max_ms",
)

Told = Callable[[int], None]


@dataclass
class Figures:
    """What one side of the load saw."""

    what: str
    latencies_ms: list[float] = field(default_factory=list)
    failed: int = 0
    first: float = 0.0
    last: float = 0.0

    def note(self, begun: float, now: float) -> None:
        self.latencies_ms.append((now - begun) * 1000)
        self.first = self.first or now
        self.last = now

    def row(self, size: int, seconds: float) -> Row:
        count = len(self.latencies_ms)
        ordered = sorted(self.latencies_ms)
        return {
            "what": self.what,
            "messages": count,
            "failed": self.failed,
            "seconds": round(seconds, 3),
            "per_second": round(count / seconds, 1) if seconds else 0.0,
            "mb_per_second": round(count * size / seconds / 1e6, 2) if seconds else 0.0,
            **{f"p{percent}_ms": _percentile(ordered, percent) for percent in (50, 95, 99)},
            "max_ms": round(ordered[-1], 2) if ordered else None,
        }


def _percentile(ordered: list[float], percent: int) -> float | None:
    if not ordered:
        return None
    return round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)], 2)


@click.command()
@click.option("-t", "--topic", help="An existing topic; else one is made for it, and deleted again.")
@click.option(
    "--queues", type=click.IntRange(1, 1024), default=8, show_default=True, help="Of the topic made for it."
)
@click.option("--messages", type=click.IntRange(1), help="Send so many.")
@click.option("--duration", type=SOME_TIME, help="Send for so long: 30s, 5m.  [default: 10s]")
@click.option(
    "--size", type=click.IntRange(8, 4 * 1024 * 1024), default=1024, show_default=True, help="Bytes a body."
)
@click.option(
    "--in-flight", type=click.IntRange(1, 4096), default=64, show_default=True, help="At the same time."
)
@click.option("--rate", type=RATE, help="At most so many a second.")
@click.option("--consume", is_flag=True, help="Also read them back, and measure from sending to reading.")
@name_server_option
@format_option
def bench(
    topic: str | None,
    queues: int,
    messages: int | None,
    duration: float | None,
    size: int,
    in_flight: int,
    rate: float | None,
    consume: bool,
    name_server: str,
    output: str,
) -> int:
    """Load a cluster with messages, and say how many a second it took and how long each took."""
    seconds = duration if duration is not None or messages is not None else 10.0
    plan = Plan(topic or TOPIC, messages, seconds, size, in_flight, rate, consume)
    with cluster_at(name_server) as connection:
        if topic is None:
            _make_topic(connection, queues)
        try:
            with _progress(plan) as told:
                sent, read, took = asyncio.run(_load(plan, name_server, told))
        finally:
            if topic is None:
                with suppress(MQError):  # the figures count, not the tidying up
                    _delete_topic(connection)
    rows = [sent.row(size, took)]
    if read is not None:
        rows.append(read.row(size, max(read.last - read.first, 0.001)))
    show(rows, COLUMNS, output, ("failed",))
    if sent.failed:
        note(f"{counted(sent.failed, 'message')} not sent")
    return FAILED if sent.failed else 0


@dataclass(frozen=True)
class Plan:
    """What is to be done."""

    topic: str
    messages: int | None
    seconds: float | None
    size: int
    in_flight: int
    rate: float | None
    consume: bool


def _make_topic(connection: Connection, queues: int) -> None:
    from kourou.admin import topics

    for outcome in topics.save(connection, topics.Wanted(TOPIC, queues, queues), topics.targets(connection)):
        if outcome.error is not None:
            raise outcome.error


def _delete_topic(connection: Connection) -> None:
    from kourou.admin import topics

    topics.delete(connection, TOPIC)


async def _load(plan: Plan, name_server: str, told: Told) -> tuple[Figures, Figures | None, float]:
    sent = Figures("send")
    if not plan.consume:
        took = await _send(plan, name_server, sent, told)
        return sent, None, took
    read = Figures("send to read")
    ready, done = asyncio.Event(), asyncio.Event()
    reading = asyncio.create_task(_read(plan, name_server, sent, read, ready, done))
    await ready.wait()
    took = await _send(plan, name_server, sent, told)
    done.set()
    await reading
    return sent, read, took


async def _send(plan: Plan, name_server: str, sent: Figures, told: Told) -> float:
    from kourou.client import AsyncProducer
    from kourou.message import Message

    begun = time.perf_counter()
    given_out = 0
    rest = bytes(plan.size - STAMP.size)

    def is_over() -> bool:
        if plan.messages is not None and given_out >= plan.messages:
            return True
        return plan.seconds is not None and time.perf_counter() - begun >= plan.seconds

    async with AsyncProducer("kourou-bench", name_server, **client_access()) as producer:

        async def worker() -> None:
            nonlocal given_out
            while not is_over():
                number = given_out
                given_out += 1
                if plan.rate is not None:
                    await asyncio.sleep(max(0.0, begun + number / plan.rate - time.perf_counter()))
                at = time.perf_counter()
                try:
                    await producer.send(Message(plan.topic, STAMP.pack(at) + rest))
                except MQError as error:
                    sent.failed += 1
                    if sent.failed == 1:
                        note(f"a message was not sent: {error}")
                else:
                    sent.note(at, time.perf_counter())
                    told(len(sent.latencies_ms))

        await asyncio.gather(*(worker() for _ in range(plan.in_flight)))
    return time.perf_counter() - begun


async def _read(
    plan: Plan, name_server: str, sent: Figures, read: Figures, ready: asyncio.Event, done: asyncio.Event
) -> None:
    from kourou.client import AsyncPullConsumer

    async with AsyncPullConsumer(
        "TOOLS_CONSUMER", plan.topic, name_server, start="latest", announce=False, **client_access()
    ) as consumer:
        await consumer.seek("latest")
        ready.set()
        give_up = None
        while not (done.is_set() and len(read.latencies_ms) >= len(sent.latencies_ms)):
            for message in await consumer.receive(1024, 0.5):
                read.note(STAMP.unpack_from(message.body)[0], time.perf_counter())
            if done.is_set():
                give_up = give_up or time.perf_counter() + DRAIN_SECONDS_MAX
                if time.perf_counter() > give_up:
                    missing = len(sent.latencies_ms) - len(read.latencies_ms)
                    note(f"{counted(missing, 'message')} did not come back in time")
                    return


@contextmanager
def _progress(plan: Plan) -> Iterator[Told]:
    """A bar on stderr where somebody looks; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    begun = time.perf_counter()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("0 messages", total=plan.messages)
        last = 0.0

        def told(count: int) -> None:
            nonlocal last
            now = time.perf_counter()
            if now - last >= 0.1:
                last = now
                seconds = max(now - begun, 0.1)
                total = plan.messages
                if total is None and plan.seconds:
                    total = max(count, round(count * plan.seconds / seconds))
                said = f"{counted(count, 'message')}, {count / seconds:.0f}/s"
                bar.update(task, completed=count, total=total, description=said)

        yield told
