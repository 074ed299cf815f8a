"""Time, disk, sockets and chance are reached through `kourou.doors`, and nowhere else.

Crash, power-cut and simulation tests put their own clock, disk and network behind the same code; one stray
`time.time()` and a simulated run no longer repeats. Import contracts keep out whole modules; this test reads
the sources and finds the single calls: `open`, `os.rename`, `pathlib.Path`, `datetime.now`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "kourou"

CLOCK = "take a Clock (kourou.doors.clock): now_ms(), monotonic(), later(), every()"
PAUSE = "ask a Clock (kourou.doors.clock) for later(); only remoting lets the loop turn"
FILES = "take a Files (kourou.doors.files): open(), read(), write_atomically(), list(), remove(), …"
SCRATCH = "leave temporary folders to LocalBroker; a part is given its folder"
NETWORK = "leave sockets to kourou.remoting, which reaches them through kourou.doors.network"
CHANCE = "take a Chance (kourou.doors.chance): a seeded random.Random, and secret_bytes()"

DOORS = {
    "time": CLOCK,
    "datetime.datetime.now": CLOCK,
    "datetime.datetime.today": CLOCK,
    "datetime.datetime.utcnow": CLOCK,
    "datetime.date.today": CLOCK,
    "sched": CLOCK,
    "asyncio.sleep": PAUSE,
    "open": FILES,
    "io.open": FILES,
    "io.FileIO": FILES,
    "os": FILES,
    "pathlib.Path": FILES,
    "pathlib.PosixPath": FILES,
    "shutil": FILES,
    "tempfile": SCRATCH,
    "glob": FILES,
    "mmap": FILES,
    "fcntl": FILES,
    "socket": NETWORK,
    "socketserver": NETWORK,
    "select": NETWORK,
    "selectors": NETWORK,
    "ssl": NETWORK,
    "http": NETWORK,
    "urllib.request": NETWORK,
    "asyncio.open_connection": NETWORK,
    "asyncio.start_server": NETWORK,
    "random": CHANCE,
    "secrets": CHANCE,
    "uuid": CHANCE,
    "os.urandom": CHANCE,
}
# Methods that reach the outside by whatever object they are called on.
METHODS = {
    **dict.fromkeys(("read_text", "write_text", "read_bytes", "write_bytes", "iterdir"), FILES),
    **dict.fromkeys(("create_server", "create_connection", "create_datagram_endpoint"), NETWORK),
    **dict.fromkeys(("sock_recv", "sock_sendall", "sock_connect", "sock_accept"), NETWORK),
}
# What of those modules touches neither disk nor network nor clock.
HARMLESS = {
    *(
        f"os.path.{name}"
        for name in ("join", "split", "splitext", "basename", "dirname", "normpath", "isabs")
    ),
    *("os.path.abspath", "os.path.expanduser", "os.path.relpath", "os.path.commonpath"),
    *("os.PathLike", "os.fspath", "os.strerror", "os.sep", "os.name", "os.getpid", "os.getppid"),
    "os.register_at_fork",
    *("os.environ", "os.getenv", "os.cpu_count", "os.uname", "os.getuid", "os.kill", "os.getcwd"),
    *("http.HTTPStatus", "ssl.SSLContext", "ssl.SSLError"),
}
# Who is trusted with what: the doors with everything, the owner of sockets with sockets and the event loop,
# the command line with what a person sees (the time of day) and names (the files to read and write), and some
# files with the one thing they are for.
TRUSTED = {
    "doors/": {CLOCK, PAUSE, FILES, SCRATCH, NETWORK, CHANCE},
    "remoting/": {NETWORK, PAUSE},
    "cli/": {CLOCK, PAUSE, FILES, SCRATCH},
    "client/drive.py": {PAUSE},
    "local/local_broker.py": {SCRATCH},
    "native/__init__.py": {FILES},  # looks at the sources it was compiled from, in a working tree
    "console/server.py": {NETWORK},  # hands a socket that `remoting` has opened to the web server
    "spark/java.py": {FILES, SCRATCH},  # looks for a Java on this machine
    "spark/pipelines/quiet.py": {FILES},  # turns away what the JVM writes to our terminal
}


def test_the_world_is_reached_through_the_doors_only() -> None:
    strays = [
        f"{path.relative_to(SOURCES.parent)}:{stray.line}: {stray.name}: {stray.instead}"
        for path in sorted(SOURCES.rglob("*.py"))
        for stray in strays_in(path.read_text(), path.relative_to(SOURCES).as_posix())
    ]
    assert not strays, "reached past the doors:\n  " + "\n  ".join(strays)


class Stray(NamedTuple):
    line: int
    name: str
    instead: str


def strays_in(source: str, path: str) -> list[Stray]:
    """Every use, in the module at `path` below the package, of something that has a door of its own."""
    trusted = {door for place, doors in TRUSTED.items() if path.startswith(place) for door in doors}
    return [stray for stray in _uses(ast.parse(source)) if stray.instead not in trusted]


def _uses(tree: ast.Module) -> Iterator[Stray]:
    imported = _imported_names(tree)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in inner:
            name = _full_name(node, imported)
            instead = _door_of(name)
            if instead is None and isinstance(node, ast.Attribute):
                instead = METHODS.get(node.attr)
            if instead is not None:
                yield Stray(node.lineno, name or f".{node.attr}", instead)  # type: ignore[union-attr]


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """What each imported name stands for: `from os import path as p` gives {"p": "os.path"}."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                names[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _full_name(node: ast.expr, imported: dict[str, str]) -> str:
    """`datetime.datetime.now` for `dt.now` after `from datetime import datetime as dt`; "" when unknown."""
    if isinstance(node, ast.Attribute):
        owner = _full_name(node.value, imported)
        return f"{owner}.{node.attr}" if owner else ""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):  # a name of one's own may be `open`
        return imported.get(node.id, "open" if node.id == "open" else "")
    return ""


def _door_of(name: str) -> str | None:
    """The advice for the longest known beginning of a dotted name."""
    while name:
        if name in HARMLESS:
            return None
        if name in DOORS:
            return DOORS[name]
        name = name.rpartition(".")[0]
    return None


@pytest.mark.parametrize(
    ("source", "instead"),
    [
        ("import time\ntime.time()", CLOCK),
        ("import time as t\nt.sleep(1)", CLOCK),
        ("from time import monotonic\nstart = monotonic()", CLOCK),
        ("import time\ndef f(now=time.time_ns): ...", CLOCK),
        ("from datetime import datetime\ndatetime.now()", CLOCK),
        ("import datetime as d\nd.datetime.utcnow()", CLOCK),
        ("import asyncio\nasync def f(): await asyncio.sleep(1)", PAUSE),
        ("with open('x') as f: ...", FILES),
        ("import os\nos.rename('a', 'b')", FILES),
        ("import os\nos.path.exists('a')", FILES),
        ("from os import fsync as sync\nsync(3)", FILES),
        ("from pathlib import Path\nPath('a').mkdir()", FILES),
        ("def f(path): return path.read_text()", FILES),
        ("import tempfile\ntempfile.mkdtemp()", SCRATCH),
        ("import socket\nsocket.create_connection(('::1', 1))", NETWORK),
        ("import asyncio\nasync def f(): await asyncio.start_server(print)", NETWORK),
        ("async def f(loop): await loop.create_server(print)", NETWORK),
        ("import random\nrandom.random()", CHANCE),
        ("import secrets\nsecrets.token_bytes()", CHANCE),
        ("import os\nos.urandom(8)", CHANCE),
        ("import uuid\nuuid.uuid4()", CHANCE),
    ],
)
def test_a_call_past_the_doors_is_found(source: str, instead: str) -> None:
    assert [stray.instead for stray in strays_in(source, "broker/broker.py")] == [instead]


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.path.join('a', 'b'), os.getpid(), os.environ['HOME']",
        "import datetime\ndatetime.timedelta(seconds=1)",
        "from pathlib import PurePath\nPurePath('a')",
        "import asyncio\nasyncio.get_running_loop().call_soon(print)",
        "from kourou.doors.files import Files\ndef f(files: Files): files.open('a', create=True)",
        "def f(clock): clock.now_ms()",
        "class Door:\n    def open(self): ...\nDoor().open()",
    ],
)
def test_what_does_not_leave_the_process_is_left_alone(source: str) -> None:
    assert strays_in(source, "broker/broker.py") == []


def test_each_owner_is_trusted_with_its_own_door_alone() -> None:
    source = "import socket, time\nsocket.socket()\ntime.time()\nopen('a')"
    found = {
        path: {stray.instead for stray in strays_in(source, path)}
        for path in (
            "doors/clock.py",
            "remoting/server.py",
            "cli/main.py",
            "client/drive.py",
            "store/store.py",
        )
    }
    assert found == {
        "doors/clock.py": set(),
        "remoting/server.py": {CLOCK, FILES},
        "cli/main.py": {NETWORK},
        "client/drive.py": {NETWORK, CLOCK, FILES},
        "store/store.py": {NETWORK, CLOCK, FILES},
    }
