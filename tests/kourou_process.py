"""The `kourou` command as a process: one that ends by itself, and one that serves until it is told not to."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from kourou.doors.processes import free_port

SECONDS_MAX = 20.0

PROGRAM = "import sys; from kourou.cli.main import main; sys.argv[0] = 'kourou'; main()"


def kourou(
    *arguments: str | Path,
    folder: Path,
    program: str = PROGRAM,
    environment: Mapping[str, str] | None = None,
    seconds: float = SECONDS_MAX,
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end, in `folder`."""
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=folder,
        env=_environment(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


class ServerFailed(Exception):
    """A server did not come up, or ended by itself; the message ends with what it said."""


class Serving:
    """A server process that has said what it listens on."""

    def __init__(self, process: subprocess.Popen[str], printed: str, log: Path) -> None:
        self._process = process
        self._log = log
        self.printed = printed

    def address(self, what: str) -> str:
        """The address printed after `what`."""
        found = re.search(rf"{what}\s+(\S+:\d+)", self.printed)
        assert found is not None, f"no address after {what!r} in:\n{self.printed}"
        return found[1].rstrip(";")

    @property
    def name_server(self) -> str:
        return self.address("name server")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """kill -9."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop; its exit code."""
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        return self._process.wait(SECONDS_MAX)


@contextlib.contextmanager
def serving(
    *arguments: str | Path,
    folder: Path,
    until: str,
    program: str = PROGRAM,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Serving]:
    """Run a server in `folder`, from the moment its output matches `until`; killed when it is still there."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{arguments[0]}.log"
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            cwd=folder,
            env=_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    watchdog = threading.Timer(SECONDS_MAX, process.kill)
    watchdog.start()
    try:
        printed = ""
        for line in process.stdout:
            printed += line
            if re.search(until, line):
                break
        else:
            raise ServerFailed(f"kourou did not come up; it said:\n{printed}{log.read_text()}")
        watchdog.cancel()
        yield Serving(process, printed, log)
    finally:
        watchdog.cancel()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
        process.stdout.close()


def serving_all(
    folder: Path, *options: str, program: str = PROGRAM
) -> contextlib.AbstractContextManager[Serving]:
    """`kourou start` on free ports, its data in `folder/kourou-data`."""
    ports = ("--name-server-port", "0", "--port", "0")
    return serving("start", *ports, *options, folder=folder, until="Ctrl-C", program=program)


def serving_broker(
    folder: Path,
    *options: str | Path,
    settings: str = "",
    environment: Mapping[str, str] | None = None,
) -> contextlib.AbstractContextManager[Serving]:
    """`kourou broker` with a configuration file, its data in `folder/store`."""
    config = folder / "broker.conf"
    if "listenPort" not in settings:
        settings += f"\nlistenPort={free_pair()}\n"
    config.write_text(settings)
    arguments = ("broker", "-c", config, "--data", folder / "store", *options)
    return serving(*arguments, folder=folder, until="listens on", environment=environment)


def serving_name_server(folder: Path) -> contextlib.AbstractContextManager[Serving]:
    config = folder / "namesrv.conf"
    config.write_text(f"kvConfigPath={folder}/namesrv/kvConfig.json\n")
    return serving("nameserver", "-c", config, "--port", "0", folder=folder, until="listens on")


def free_pair(host: str = "127.0.0.1") -> int:
    """A port that is free, as is the one two below it."""
    return free_port((-2,), host)


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    clean = {
        name: value
        for name, value in os.environ.items()
        if name == "KOUROU_NATIVE" or not name.startswith(("KOUROU_", "NAMESRV"))
    }
    return {**clean, **(more or {})}
