"""Compile load.c and run it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from kourou.doors.processes import free_port
from tests.interop import apache

SOURCE = Path(__file__).with_name("load.c")
PROGRAMME = Path(__file__).resolve().parents[1] / ".cache" / "bench" / "load"


class GeneratorFailed(Exception):
    """There is no C compiler, or a run went wrong; the message says which."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run of the generator measured. Latencies are in microseconds."""

    messages: int
    handled: int
    seconds: float
    rate: float
    p50: float
    p90: float
    p99: float
    max: float
    errors: int
    cpu: float


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def programme() -> Path:
    """The compiled generator; built again when its source changed."""
    if not PROGRAMME.exists() or PROGRAMME.stat().st_mtime < SOURCE.stat().st_mtime:
        command = compiler()
        if command is None:
            raise GeneratorFailed(
                "no C compiler on PATH (cc, gcc or clang): install one to run the benchmark"
            )
        PROGRAMME.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([command, "-O2", "-o", str(PROGRAMME), str(SOURCE)], check=True)
    return PROGRAMME


def send(
    address: str,
    connections: int,
    depth: int,
    seconds: float,
    topic: str,
    queues: int,
    body_bytes: int,
    *,
    topics: int | None = None,
) -> Run:
    """With `topics` to so many of them in turn: `topic`0, `topic`1, ..."""
    more = {"LOAD_TOPICS": topics or 0}
    return _run("send", address, connections, depth, seconds, topic, queues, body_bytes, environment=more)


def fill(
    address: str,
    count: int,
    topic: str,
    queues: int,
    body_bytes: int,
    tags: int,
    *,
    topics: int | None = None,
) -> Run:
    """Send exactly `count` messages; TagA, TagB, ... take turns, and so do kinds 0, 1, ... (a property)."""
    more = {"LOAD_COUNT": count, "LOAD_TOPICS": topics or 0}
    return _run("send", address, 8, 32, 120.0, topic, queues, body_bytes, tags, environment=more)


def fill_timers(address: str, count: int, topic: str, queues: int, body_bytes: int, due_ms: int) -> Run:
    """Send exactly `count` messages to be delivered later: one each millisecond, from `due_ms` on."""
    more = {"LOAD_COUNT": count, "LOAD_DUE_MS": due_ms}
    return _run("send", address, 64, 16, 900.0, topic, queues, body_bytes, environment=more)


def fill_unconfirmed(address: str, count: int, topic: str, queues: int, body_bytes: int) -> Run:
    """Send exactly `count` messages to a master whose slave is away: each is stored, and answered with a
    status that says so, which counts as an error elsewhere."""
    more = {"LOAD_COUNT": count}
    return _run(
        "send", address, 8, 32, 120.0, topic, queues, body_bytes, 1, environment=more, is_checked=False
    )


def pull(
    address: str,
    connections: int,
    depth: int,
    seconds: float,
    topic: str,
    queues: int,
    messages: int,
    wanted: tuple[str, str] = ("TAG", "*"),
) -> Run:
    """`wanted` is the kind of filter, and its expression."""
    return _run("pull", address, connections, depth, seconds, topic, queues, messages, *wanted)


def deliver(address: str, rate: int, seconds: float, topic: str, queues: int, body_bytes: int) -> Run:
    """Send `rate` messages a second, and read them as they come; latencies are from the send to the reader.

    The topic must be new: its queues are read from their beginning.
    """
    return _run("deliver", address, rate, queues, seconds, topic, queues, body_bytes)


def look_up(address: str, connections: int, depth: int, seconds: float, prefix: str, topics: int) -> Run:
    """Ask for the routes of `prefix`0, `prefix`1, ... in turn."""
    return _run("route", address, connections, depth, seconds, prefix, topics)


def _run(
    mode: str,
    address: str,
    connections: int,
    depth: int,
    seconds: float,
    *more: object,
    environment: Mapping[str, int] = MappingProxyType({}),
    is_checked: bool = True,
) -> Run:
    host, port = address.rsplit(":", 1)
    arguments = [mode, host, port, connections, depth, seconds, *more]
    asked = os.environ | {name: str(value) for name, value in environment.items()}
    command = [str(programme()), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=asked, check=False)
    if done.returncode != 0:
        raise GeneratorFailed(f"{' '.join(map(str, arguments))}: {done.stderr.strip()}")
    run = Run(**json.loads(done.stdout))
    if run.errors and is_checked:
        raise GeneratorFailed(f"{' '.join(map(str, arguments))}: {run.errors} errors; {done.stderr.strip()}")
    return run


@contextmanager
def null_server() -> Iterator[str]:
    """A server that only answers: what the generator reaches against it is its own ceiling."""
    address = f"127.0.0.1:{free_port()}"
    command = [str(programme()), "null", *address.split(":")]
    with subprocess.Popen(command, preexec_fn=apache.die_with_parent) as process:
        try:
            while not apache.listens(address):
                time.sleep(0.01)
            yield address
        finally:
            process.kill()
