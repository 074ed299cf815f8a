"""Our own name server, broker and `kourou start`, for tests that put them beside Apache's parts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.interop import apache
from tests.kourou_process import ServerFailed, Serving, serving, serving_all

STARTUP_SECONDS_MAX = 60.0


@dataclass
class Part:
    """A running process of ours. `address` is the broker's for a broker, else the name server's."""

    address: str
    process: Serving
    folder: Path

    def stop(self) -> None:
        """End it the way an operator would; it must leave by itself, with 0, and without a stack trace."""
        code = self.process.stop()
        assert code == 0, f"ended with {code}:\n{self.process.log}"
        assert "Traceback" not in self.process.log, self.process.log


@dataclass
class Node(Part):
    """`kourou start`: `address` is its name server, `broker` its broker."""

    broker: str


@contextlib.contextmanager
def name_server(folder: Path, **settings: object) -> Iterator[Part]:
    values = {"listenPort": 0, "kvConfigPath": folder / "kvConfig.json", **settings}
    config = _properties(folder / "namesrv.conf", values)
    with serving("nameserver", "-c", config, folder=folder, until="listens on") as process:
        yield Part(process.address("listens on"), process, folder)


@contextlib.contextmanager
def broker(
    folder: Path,
    name_servers: str,
    *,
    name: str = "kourou-a",
    store: Path | None = None,
    port: int = 0,
    **settings: object,
) -> Iterator[Part]:
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
    arguments = ("broker", "-c", config, "-n", name_servers)
    with serving(*arguments, folder=folder, until="listens on") as process:
        part = Part(process.address("listens on"), process, store)
        _wait_until_registered(part, part.address, name_servers)
        yield part


@contextlib.contextmanager
def node(folder: Path, *options: str) -> Iterator[Node]:
    """`kourou start` on free ports."""
    with serving_all(folder, *options) as process:
        part = Node(process.name_server, process, folder / "kourou-data", process.address("broker"))
        _wait_until_registered(part, part.broker, part.address)
        yield part


def _properties(path: Path, values: dict[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return path


def _wait_until_registered(part: Part, broker: str, name_servers: str) -> None:
    def registered_or_ended() -> bool:
        return not part.process.is_running or apache.is_registered(broker, name_servers)

    wait_until(registered_or_ended, STARTUP_SECONDS_MAX, f"{broker} was registered")
    if not part.process.is_running:
        raise ServerFailed(f"it ended before it was registered:\n{part.process.log}")


def wait_until(happened: apache.Happened, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"{seconds} s passed before {what}"
        time.sleep(0.01)
