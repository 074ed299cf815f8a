"""Our own name server, broker and `kourou start`, each a process of its own, run as a user runs them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.interop import apache

COMMAND = Path(sys.executable).with_name("kourou")
STARTUP_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 20.0


class PartFailed(Exception):
    """One of our processes did not come up or died; the message ends with its output."""


@dataclass
class Part:
    """A running process of ours. `address` is the broker's for a broker, else the name server's."""

    address: str
    process: subprocess.Popen[bytes]
    output: Path
    folder: Path

    def stop(self) -> None:
        """End it the way an operator would; it must leave by itself, with 0, and without a stack trace."""
        self.process.terminate()
        code = self.process.wait(STOP_SECONDS_MAX)
        assert code == 0, f"ended with {code}:\n{self.said()}"
        assert "Traceback" not in self.said(), self.said()

    def said(self) -> str:
        return self.output.read_text(errors="replace")


@dataclass
class Node(Part):
    """`kourou start`: `address` is its name server, `broker` its broker."""

    broker: str


@contextlib.contextmanager
def name_server(folder: Path, **settings: object) -> Iterator[Part]:
    port = apache.free_port()
    values = {"listenPort": port, "kvConfigPath": folder / "kvConfig.json", **settings}
    config = _properties(folder / "namesrv.conf", values)
    with _running(["nameserver", "-c", str(config)], folder, "nameserver") as (process, output):
        part = Part(f"127.0.0.1:{port}", process, output, folder)
        _wait_until_listening(part, part.address)
        yield part


@contextlib.contextmanager
def broker(
    folder: Path,
    name_servers: str,
    *,
    name: str = "kourou-a",
    store: Path | None = None,
    port: int | None = None,
    **settings: object,
) -> Iterator[Part]:
    port = port or apache.free_ports_in_a_row()
    store = store or folder / f"{name}-store"
    values = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": name,
        "brokerId": 0,
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "storePathRootDir": store,
        "mappedFileSizeCommitLog": 64 * 1024 * 1024,
        **settings,
    }
    config = _properties(folder / f"{name}.conf", values)
    with _running(["broker", "-c", str(config), "-n", name_servers], folder, name) as (process, output):
        part = Part(f"127.0.0.1:{port}", process, output, store)
        _wait_until_listening(part, part.address)
        _wait_until_registered(part, name_servers)
        yield part


@contextlib.contextmanager
def node(folder: Path, *options: str) -> Iterator[Node]:
    """`kourou start` on free ports."""
    names, port = apache.free_port(), apache.free_ports_in_a_row()
    data = folder / "kourou-data"
    command = ["start", "--data", str(data), "--name-server-port", str(names), "--port", str(port), *options]
    with _running(command, folder, "start") as (process, output):
        part = Node(f"127.0.0.1:{names}", process, output, data, f"127.0.0.1:{port}")
        _wait_until_listening(part, part.address)
        _wait_until_listening(part, part.broker)
        _wait_until_registered(part, part.address, part.broker)
        yield part


@contextlib.contextmanager
def _running(arguments: list[str], folder: Path, name: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / f"{name}.log"
    with open(output, "ab") as sink:
        process = subprocess.Popen(
            [str(COMMAND), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            preexec_fn=apache.die_with_parent,
        )
    try:
        yield process, output
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(STOP_SECONDS_MAX)


def _properties(path: Path, values: dict[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return path


def _wait_until_listening(part: Part, address: str) -> None:
    _wait(part, lambda: apache.listens(address), f"listened on {address}")


def _wait_until_registered(part: Part, name_servers: str, broker: str | None = None) -> None:
    _wait(part, lambda: apache.is_registered(broker or part.address, name_servers), "registered")


def _wait(part: Part, happened: apache.Happened, what: str) -> None:
    def happened_or_ended() -> bool:
        return part.process.poll() is not None or happened()

    wait_until(happened_or_ended, STARTUP_SECONDS_MAX, f"it {what}")
    if part.process.returncode is not None:
        raise PartFailed(f"ended with {part.process.returncode} before it {what}:\n{part.said()}")


def wait_until(happened: apache.Happened, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"{seconds} s passed before {what}"
        time.sleep(0.01)
