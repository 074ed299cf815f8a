"""The way to other processes: started apart from us, known again by their number and when they began.

A process number alone is not a name: the system gives it to another program in time. So a process is what
has this number *and* began at that moment.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

LOOK_SECONDS = 0.05
QUIET_PORTS = (12_000, 32_000)


class Process(NamedTuple):
    """One that was started; it may have ended since."""

    number: int
    began: str
    """As the system tells it, to the tick; empty where it does not."""


def start(command: Sequence[str], log: str, environment: Mapping[str, str]) -> Process:
    """Run a program that goes on without us; what it prints is added to the file `log`."""
    with open(log, "ab") as output:
        child = subprocess.Popen(  # noqa: S603  # our own interpreter with a module of ours
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(environment),
            start_new_session=True,  # Ctrl-C in our terminal is not for it
        )
    child.returncode = 0  # it goes on without us: nobody is to be warned that we do not wait for it
    return Process(child.pid, _began(child.pid))


def is_running(process: Process) -> bool:
    """Whether it is still there, and still the same."""
    if process.number <= 0:  # to the system, 0 means: we ourselves and all who belong to us
        return False
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.number, os.WNOHANG)  # one of our own that has ended is not there any more
    try:
        os.kill(process.number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _began(process.number) == process.began


def is_paused(process: Process) -> bool:
    return _state(process.number) in {"T", "t"}


def tell(process: Process, number: signal.Signals) -> bool:
    """Send a signal; False when it is not there to get it."""
    if not is_running(process):
        return False
    try:
        os.kill(process.number, number)
    except ProcessLookupError:
        return False
    return True


def wait_for_end(processes: Iterable[Process], seconds: float) -> list[Process]:
    """Those that are still running after so long."""
    left, deadline = list(processes), time.monotonic() + seconds
    while left and time.monotonic() < deadline:
        left = [each for each in left if is_running(each)]
        if left:
            time.sleep(LOOK_SECONDS)
    return left


def listens(port: int, host: str = "127.0.0.1", seconds: float = 0.2) -> bool:
    """Whether somebody takes connections there."""
    try:
        with socket.create_connection((host, port), timeout=seconds):
            return True
    except OSError:
        return False


def free_port(beside: Sequence[int] = (), host: str = "127.0.0.1") -> int:
    """A port that is free, as are those at these distances from it.

    It is below those that outgoing connections get: none of them takes it before a server does.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        port = random.randrange(*QUIET_PORTS)
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for distance in (0, *beside):
                held.enter_context(socket.socket(family)).bind((host, port + distance))
            return port


def _began(number: int) -> str:
    return _stat(number, 19)


def _state(number: int) -> str:
    return _stat(number, 0)


def _stat(number: int, field: int) -> str:
    """A field of Linux's own table, counted after the name; nothing elsewhere."""
    try:
        with open(f"/proc/{number}/stat", encoding="ascii", errors="replace") as table:
            return table.read().rpartition(")")[2].split()[field]
    except (OSError, IndexError):
        return ""
