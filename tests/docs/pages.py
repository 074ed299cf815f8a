"""The documentation as a reader follows it: pages, the blocks on them, and running those in order.

    ```console            lines that start with `$ ` are typed into a shell, the others are what it printed;
                          `$ export NAME=VALUE` holds for the rest of the page
    ```python             run in one interpreter per page, top to bottom

A comment directly above a block says what is special about it:

    <!-- not executed: reason -->     the reader may type it, this machine does not
    <!-- background until "text" -->  goes on running under the blocks that follow, once it has printed text
    <!-- file: name -->               the reader saves it under this name; nothing is run

Every page gets an empty folder and free ports: RocketMQ's usual port numbers in a block are replaced by
free ones, so that a broker already running on this machine is left in peace.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kourou.doors.processes import free_port

ROOT = Path(__file__).parents[2]
SHELL_LANGUAGES = {"console", "bash", "sh", "shell"}
USUAL_PORTS = ("9876", "10911", "10909", "8080", "5557", "5558", "9877")
COMMAND_SECONDS_MAX = 240
READY_SECONDS_MAX = 60


def all_pages() -> list[Path]:
    """README, the other pages at the root, and everything under docs/."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


class Block(NamedTuple):
    line: int  # of the opening fence
    language: str
    text: str
    remark: str  # of the comment directly above, or ""

    @property
    def reason_not_to_run(self) -> str:
        return self._after("not executed:")

    @property
    def background_until(self) -> str:
        return self._after("background until").strip('"')

    @property
    def file_name(self) -> str:
        return self._after("file:")

    def _after(self, keyword: str) -> str:
        return self.remark.removeprefix(keyword).strip() if self.remark.startswith(keyword) else ""

    def commands(self) -> list[str]:
        """What the reader types: lines after `$ `, with `> ` lines continuing the one before."""
        commands: list[str] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                commands.append(line[2:])
            elif line.startswith("> ") and commands:
                commands[-1] += "\n" + line[2:]
        return commands


FENCED = re.compile(
    r"(?:^<!--\s*(?P<remark>.*?)\s*-->\n)?^(?P<fence>```+)(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=fence)\s*$",
    re.MULTILINE | re.DOTALL,
)


def blocks_in(markdown: str) -> list[Block]:
    return [
        Block(
            line=markdown.count("\n", 0, found.start("fence")) + 1,
            language=found["language"],
            text=found["text"],
            remark=found["remark"] or "",
        )
        for found in FENCED.finditer(markdown)
    ]


class BlockFailed(AssertionError):
    """A block of a page did not do what the page promises."""


class Reader:
    """Follows one page: types its commands and runs its Python, in one folder, in order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = {port: str(free) for port, free in zip(USUAL_PORTS, free_ports(), strict=True)}
        self._background: list[subprocess.Popen[bytes]] = []
        self._python: dict[str, Any] = {"__name__": "__main__"}
        self._environment = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"} | {
            "PATH": os.pathsep.join(
                (
                    str(self._put_free_ports_behind_kourou()),
                    str(Path(sys.executable).parent),
                    os.environ["PATH"],
                )
            ),
        }

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._background):
            _end(process)
        if (self._folder / "kourou-cluster").exists():  # a page that failed did not come to its end
            command = [str(self._folder / ".bin" / "kourou"), "cluster", "down"]
            subprocess.run(command, cwd=self._folder, capture_output=True, check=False)

    def follow(self, block: Block) -> None:
        """Run one block, or raise BlockFailed with all that it printed."""
        if block.reason_not_to_run:
            return
        block = block._replace(text=self._with_free_ports(block.text))
        if block.file_name:
            (self._folder / block.file_name).write_text(block.text)
        elif block.language == "python":
            self._run_python(block)
        elif block.background_until:
            self._start(block)
        elif block.language in SHELL_LANGUAGES:
            for command in block.commands():
                self._type(command, block)

    def _put_free_ports_behind_kourou(self) -> Path:
        """A folder with a `kourou` that listens on this page's ports where it would take the usual ones."""
        folder = self._folder / ".bin"
        folder.mkdir()
        kourou = folder / "kourou"
        kourou.write_text(
            f"""#!/bin/sh
case "$1" in
    start) shift; set -- start --name-server-port {self._ports["9876"]} --port {self._ports["10911"]} \
        --console-port {self._ports["8080"]} "$@" ;;
    nameserver) shift; set -- nameserver --port {self._ports["9876"]} "$@" ;;
    broker) shift; set -- broker --port {self._ports["10911"]} "$@" ;;
    cluster) [ "$2" != up ] || {{ shift 2; \
        set -- cluster up --name-server-port {self._ports["9876"]} --port 0 "$@"; }} ;;
esac
exec {Path(sys.executable).with_name("kourou")} "$@"
"""
        )
        kourou.chmod(0o755)
        return folder

    def _with_free_ports(self, text: str) -> str:
        for usual, free in self._ports.items():
            text = re.sub(rf"\b{usual}\b", free, text)
        return text

    def _type(self, command: str, block: Block) -> None:
        if exported := re.fullmatch(r"export (\w+)=(\S+)", command):
            self._environment[exported[1]] = exported[2]
            return
        with subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                printed, _ = process.communicate(timeout=COMMAND_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                _end(process)
                raise BlockFailed(
                    f"line {block.line}: still running after {COMMAND_SECONDS_MAX} s: {command}"
                ) from None
        if process.returncode != 0:
            story = printed.decode(errors="replace")
            raise BlockFailed(f"line {block.line}: exit code {process.returncode}: {command}\n{story}")

    def _start(self, block: Block) -> None:
        output = self._folder / f".background-{block.line}"
        with output.open("wb") as sink:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", "\n".join(block.commands())],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._background.append(process)
        deadline = time.monotonic() + READY_SECONDS_MAX
        while block.background_until not in (printed := output.read_text(errors="replace")):
            if process.poll() is not None or time.monotonic() > deadline:
                raise BlockFailed(
                    f"line {block.line}: never printed {block.background_until!r}, but:\n{printed}"
                )
            time.sleep(0.05)

    def _run_python(self, block: Block) -> None:
        source = "\n" * block.line + block.text  # so that a traceback names the page's line
        with contextlib.chdir(self._folder), java_in(self._folder):
            exec(compile(source, "page", "exec"), self._python)


@contextlib.contextmanager
def java_in(folder: Path) -> Iterator[None]:
    """Relative paths mean those in `folder`, also for a Spark that another test has started."""
    jvm = sys.modules["pyspark"].SparkContext._jvm if "pyspark" in sys.modules else None
    if jvm is None:  # the one that a page starts is started there
        yield
        return
    before = jvm.java.lang.System.getProperty("user.dir")
    try:
        _set_working_folder(jvm, str(folder))
        yield
    finally:
        _set_working_folder(jvm, before)


def _set_working_folder(jvm: Any, folder: str) -> None:
    hadoop = jvm.org.apache.hadoop
    jvm.java.lang.System.setProperty("user.dir", folder)
    files = hadoop.fs.FileSystem.get(hadoop.conf.Configuration())
    files.setWorkingDirectory(hadoop.fs.Path(folder))


def free_ports() -> Iterator[int]:
    """One free port for each of USUAL_PORTS; a broker's fast port is two below its main one."""
    while True:
        broker = free_port((-2,))
        name_server, *others = (free_port() for _ in range(len(USUAL_PORTS) - 2))
        found = (name_server, broker, broker - 2, *others)
        if len(set(found)) == len(USUAL_PORTS):
            return iter(found)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C to the whole group, as a person would; kill what does not listen."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
            return
