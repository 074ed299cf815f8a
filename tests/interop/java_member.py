"""A Java client, consumer or producer, that stays until it is told to go."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.interop import apache
from tests.interop.member import Member
from tests.interop.ours import wait_until


class JavaMember(Member):
    """Tells of the begin and the end of each message it handles."""

    def bodies(self, kind: str = "end") -> list[str]:
        return super().bodies(kind)


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
    with JavaMember(process) as member:
        wait_until(lambda: bool(member.events("ready")), 240, "the Java member was ready")
        yield member
