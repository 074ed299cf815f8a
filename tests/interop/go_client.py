"""Run our small programme on the official Go client (go/), built once by `go build` under .cache/go.

    scenarios(folder, name_server, broker)   all its scenarios, and what each observed
    names()                                  the scenarios of go/*.go, read from the sources
    go_member(...)                           a push consumer that stays until it is told to go
    go_producer(...)                         a producer that sends whatever fails

Modules come through the Go module proxy on the first build, as go.mod and go.sum name them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.interop import apache
from tests.interop.member import Member
from tests.interop.ours import wait_until
from tests.interop.scenario_runs import Observed, observations

CLIENT = "v2.1.2"
SOURCES = Path(__file__).parent / "go"
CACHE = apache.CACHE.parent / "go"
RUN_SECONDS_MAX = 420.0


class GoUnavailable(Exception):
    """Go or the modules are missing; the message says which and what to do."""


def names() -> list[str]:
    sources = "".join(path.read_text() for path in sorted(SOURCES.glob("*.go")))
    return re.findall(r'\{"(go-[a-z0-9-]+)", ', sources)


def programme() -> Path:
    """The compiled programme; compiled anew when a source changed."""
    if shutil.which("go") is None:
        raise GoUnavailable("go not found on PATH: the official Go client needs Go 1.19 or later")
    CACHE.mkdir(parents=True, exist_ok=True)
    binary = CACHE / "interop"
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists() or binary.stat().st_mtime < newest:
            # Without C, the client finds its home where HOME says, and the binary runs everywhere.
            done = subprocess.run(
                ["go", "build", "-o", str(binary), "."],
                cwd=SOURCES,
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "CGO_ENABLED": "0"},
            )
            if done.returncode != 0:
                raise GoUnavailable(f"go build:\n{done.stdout}{done.stderr}")
    return binary


def scenarios(folder: Path, name_server: str, broker: str, *only: str) -> dict[str, Observed]:
    """All scenarios once, or `only` some, against a broker that is there."""
    said = run(folder, name_server, broker, *only, timeout=RUN_SECONDS_MAX)
    (folder / "observed.jsonl").write_text(said)  # for whoever wants to know why two differ
    return observations(said)


def run(folder: Path, *arguments: str, timeout: float = 120.0) -> str:
    """One run of the programme to its end; returns what it printed."""
    done = subprocess.run(
        [str(programme()), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        cwd=folder,
        env=_environment(folder),
        preexec_fn=apache.die_with_parent,
    )
    (folder / "go-errors.log").write_text(done.stderr)
    if done.returncode != 0:
        raise apache.PartFailed(f"go {' '.join(arguments)}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def _environment(home: Path, **more: str) -> dict[str, str]:
    """The client keeps logs, broadcast offsets and addresses of name servers below its home."""
    return {**os.environ, "HOME": str(home), **more}


@contextlib.contextmanager
def go_member(
    folder: Path,
    name_server: str,
    group: str,
    topic: str,
    *,
    instance: str = "go-member",
    orderly: bool = False,
    credentials: str = "",
) -> Iterator[Member]:
    arguments = ["member", name_server, group, topic, instance, *(["orderly"] if orderly else [])]
    with _running(folder, arguments, credentials) as member:
        wait_until(lambda: bool(member.events("started")), 60, "the Go member was there")
        yield member


@contextlib.contextmanager
def go_producer(
    folder: Path, name_server: str, topic: str, seconds: float, *, credentials: str = ""
) -> Iterator[Member]:
    """Sends ten times a second, whatever fails, until the time is over."""
    with _running(folder, ["keep-on", name_server, topic, str(seconds)], credentials) as member:
        yield member


@contextlib.contextmanager
def _running(folder: Path, arguments: list[str], credentials: str) -> Iterator[Member]:
    folder.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [str(programme()), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=folder,
        env=_environment(folder, CREDENTIALS=credentials),
        preexec_fn=apache.die_with_parent,
    )
    with Member(process) as member:
        yield member
