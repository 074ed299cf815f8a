"""`make demo`: a broker, two clients, a few thousand messages of every kind, and what came of them.

Everything is real and on this machine: `kourou start` in a process of its own on free ports, our client here,
and the official C++ client of RocketMQ, as the `rocketmq` wheel bundles it, where there is one.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

import kourou
from tests.interop.stock_clients import ClientFailed, cpp_client
from tools.demo_console import leave_console_running
from tools.demo_failover import fail_over
from tools.demo_kinds import DemoFailed, every_kind
from tools.demo_spark import with_spark

DATA = Path("kourou-data/demo")
TOPIC, STOCK_TOPIC = "espresso", "cappuccino"
THREADS, MESSAGES_A_THREAD = 8, 500
STOCK_MESSAGES = 200
BODY = b"one espresso, no sugar".ljust(256, b".")
START_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 20.0

console = Console(highlight=False)


def main() -> int:
    shutil.rmtree(DATA, ignore_errors=True)
    began = time.monotonic()
    console.print("\n[bold]Kourou[/] in a minute: a broker, our client, and one that nobody here wrote.\n")
    with running_server() as (process, name_server):
        with_our_client(name_server)
        every_kind(name_server, step)
        with_the_stock_client(name_server)
        with_spark(name_server, DATA / "spark", step)
        process.send_signal(signal.SIGINT)
        code = process.wait(STOP_SECONDS_MAX)
    step("Ctrl-C", f"drained and stopped with exit code {code}; the store is closed cleanly")
    if code != 0:
        raise DemoFailed(f"the server ended with exit code {code}")
    fail_over(step)
    summary(time.monotonic() - began)
    return leave_console_running(DATA)


@contextmanager
def running_server() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`kourou start` on free ports, and the name server's address."""
    command = [str(Path(sys.executable).with_name("kourou")), "start"]
    command += ["--data", str(DATA), "--name-server-port", "0", "--port", "0"]
    began = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        watchdog = threading.Timer(START_SECONDS_MAX, process.kill)
        watchdog.start()
        try:
            name_server, broker = announced_addresses(process)
            watchdog.cancel()
            took = time.monotonic() - began
            step(
                "kourou start",
                f"name server {name_server}, broker {broker}, ready after {took * 1000:.0f} ms",
            )
            yield process, name_server
        finally:
            watchdog.cancel()
            if process.poll() is None:
                process.kill()


def announced_addresses(process: subprocess.Popen[str]) -> tuple[str, str]:
    assert process.stdout is not None
    addresses: dict[str, str] = {}
    for line in process.stdout:
        if found := re.match(r"\s*(name server|broker)\s+(\S+:\d+)", line):
            addresses[found[1]] = found[2]
        if "Ctrl-C" in line:
            return addresses["name server"], addresses["broker"]
    raise DemoFailed("kourou start ended before it was ready; what it said is above")


class Timed(NamedTuple):
    messages: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.messages} messages in {self.seconds:.2f} s ({self.messages / self.seconds:,.0f}/s)"


def with_our_client(name_server: str) -> None:
    sent = send_with_threads(name_server)
    step("our client sends", f"{sent}, {THREADS} threads, each waiting for every answer")
    received = receive_all(name_server, THREADS * MESSAGES_A_THREAD)
    step("our client receives", f"{received}: none missing, none twice, and the one that made the topic")


def send_with_threads(name_server: str) -> Timed:
    faults: list[kourou.MQError] = []
    with kourou.Producer("demo", name_server) as producer:
        producer.send(kourou.Message(TOPIC, b"the first one makes the topic"))

        def send_share() -> None:
            try:
                for number in range(MESSAGES_A_THREAD):
                    producer.send(kourou.Message(TOPIC, BODY, tags="hot" if number % 2 else "cold"))
            except kourou.MQError as error:
                faults.append(error)

        threads = [threading.Thread(target=send_share) for _ in range(THREADS)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - began
    if faults:
        raise DemoFailed(f"a send failed: {faults[0]}")
    return Timed(THREADS * MESSAGES_A_THREAD, took)


def receive_all(name_server: str, expected: int) -> Timed:
    """Read the topic from its beginning; all of it must be there, and nothing twice."""
    with kourou.PullConsumer("demo", TOPIC, name_server) as consumer:
        began = time.monotonic()
        places: list[tuple[int, int]] = []
        while len(places) < expected + 1 and (received := consumer.receive(256, timeout=5.0)):
            places += [(message.queue_id, message.queue_offset) for message in received]
            consumer.commit()
        took = time.monotonic() - began
    if len(set(places)) != len(places) or len(places) != expected + 1:
        raise DemoFailed(f"{expected + 1} messages were stored, but {len(set(places))} came back")
    return Timed(len(places), took)


def with_the_stock_client(name_server: str) -> None:
    if importlib.util.find_spec("rocketmq") is None:
        step("stock client", "left out: the rocketmq wheel exists for Linux on x86-64 only")
        return
    with tempfile.TemporaryDirectory(prefix="kourou-demo-") as home:
        arguments = (name_server, "demo-stock", STOCK_TOPIC, str(STOCK_MESSAGES))
        produced = cpp_client(Path(home), "produce", *arguments)
        sent = sum(event["event"] == "sent" for event in produced)
        step(
            "stock C++ client sends",
            f"{STOCK_MESSAGES} messages: sync, async, one-way and ordered; {sent} answered",
        )
        consumed = cpp_client(Path(home), "push", *arguments, "20")
    bodies = {event["body"] for event in consumed if event["event"] == "received"}
    if len(bodies) != STOCK_MESSAGES:
        raise DemoFailed(f"the stock client sent {STOCK_MESSAGES} messages and received {len(bodies)}")
    step("stock C++ client receives", f"all {len(bodies)} of them, pushed to its listener")


def step(what: str, how: str) -> None:
    console.print(f"  [green]✓[/] [bold]{what:<26}[/] {how}", soft_wrap=True)


def summary(seconds: float) -> None:
    files = sorted(path for path in DATA.rglob("*") if path.is_file())
    on_disk = sum(path.stat().st_blocks * 512 for path in files)
    console.print(
        f"\n[bold]What is left[/], in RocketMQ's own format: {len(files)} files, {on_disk / 1e6:.1f} MB"
    )
    for path in (DATA / "store/commitlog", DATA / f"store/consumequeue/{TOPIC}", DATA / "store/config"):
        inside = sum(each.is_file() for each in path.rglob("*"))
        console.print(f"  {path}  ({inside} file{'s' * (inside != 1)})")
    console.print("\n[bold]Next[/]")
    for typed, why in (
        (f".venv/bin/kourou start --data {DATA}", "run it again: the messages are still there"),
        (
            f".venv/bin/kourou message tail -n localhost:9876 {TOPIC} --from earliest",
            "and watch them, from another terminal",
        ),
        (f"{DATA}/spark/payments.html", "what Spark made of the payments, with a picture"),
        ("docs/tutorial.md", "ten minutes with a cup of coffee"),
    ):
        console.print(f"  {typed:<73} {why}", soft_wrap=True)
    console.print(f"\nDone in {seconds:.0f} s.")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (DemoFailed, ClientFailed, kourou.MQError) as error:
        console.print(f"  [red]✗[/] {error}")
        sys.exit(1)
