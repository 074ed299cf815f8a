"""A Java client, consumer or producer, that stays until it is told to go."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.interop import apache
from tests.interop.ours import wait_until


class JavaMember:
    """What it has said so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in list(self._lines) if line["event"] == kind]

    def bodies(self) -> list[str]:
        return [line["body"] for line in self.events("end")]

    def tell(self, line: str) -> None:
        """Have it do what it does with a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def leave(self) -> None:
        """Shut down in good order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._reader.join(10)

    def crash(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"event"'):
                self._lines.append(json.loads(line))


@contextlib.contextmanager
def java_member(
    version: str,
    folder: Path,
    name_server: str,
    group: str,
    topic: str,
    *,
    orderly: bool = False,
    strategy: str = "average",
    millis: int = 5,
) -> Iterator[JavaMember]:
    mode = "orderly" if orderly else "concurrently"
    arguments = [name_server, group, topic, mode, strategy, str(millis)]
    with _running(version, folder, "Member", arguments) as member:
        yield member


@contextlib.contextmanager
def java_transaction_member(
    version: str, folder: Path, name_server: str, group: str, topic: str
) -> Iterator[JavaMember]:
    with _running(version, folder, "TransactionMember", [name_server, group, topic]) as member:
        yield member


@contextlib.contextmanager
def java_producer(
    version: str, folder: Path, name_server: str, group: str, topic: str, *, millis: int = 20
) -> Iterator[JavaMember]:
    """Sends one message after the other, whatever happens."""
    with _running(version, folder, "KeepsOn", [name_server, group, topic, str(millis)]) as member:
        yield member


@contextlib.contextmanager
def _running(version: str, folder: Path, main: str, arguments: list[str]) -> Iterator[JavaMember]:
    home = folder / "java-member"
    home.mkdir(exist_ok=True)
    process = subprocess.Popen(
        apache.java_command(version, main, home, *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=home,
        preexec_fn=apache.die_with_parent,
    )
    try:
        member = JavaMember(process)
        wait_until(lambda: bool(member.events("ready")), 240, "the Java member was ready")
        yield member
    finally:
        process.kill()
        process.wait(10)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
