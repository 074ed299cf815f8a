"""Our client beside others, in one run against one broker of ours: what it weighs, and how fast it is.

    official   `rocketmq-python-client` 5.1.2, Apache's newest: weighed only, it talks another protocol
    C++ wheel  `rocketmq` 0.4.4, the official C++ client in Python's clothes
    naive      bench/naive.py, asyncio streams with one request at a time per connection; it has one, as
               clients of RocketMQ do, or (only shown) as many as requests are in flight

Every program runs in a process of its own (client_programs.py) and has about one core: the broker has the
other. What is weighed is installed by pip into environments under .cache/, once.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench import generator
from bench.servers import OURS, Server, make_topic
from tests.interop import ours

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "clients"
OFFICIAL_PACKAGE = "rocketmq-python-client==5.1.2"
OFFICIAL, CPP, NAIVE, NAIVE_MANY = "official 5.1.2", "C++ wheel", "naive", "naive, 256 connections"

QUEUES, IDLE_QUEUES = 8, 64
SENDERS, THREADS = 256, 16
SEND_TOPIC, PUSH_TOPIC, IDLE_TOPIC = "BenchClientSend", "BenchClientPush", "BenchClientIdle"
MIB = 1024 * 1024

IMPORTS = {
    OURS: "import kourou; kourou.Producer; kourou.PushConsumer; kourou.Message",
    OFFICIAL: "import rocketmq; from rocketmq import Producer, PushConsumer, Message",
}


@dataclass(frozen=True)
class Weight:
    """What `pip install` puts on the disk, without compiled files, and what importing a client takes."""

    megabytes: float
    packages: int
    import_ms: float
    resident_mib: float


@dataclass(frozen=True)
class Rate:
    """Messages a second, and how many a second of the client's CPU is good for."""

    rate: float
    per_cpu_second: float


@dataclass(frozen=True)
class Figures:
    weights: dict[str, Weight]
    client_megabytes: float
    """Of ours: what of it a client loads, msgspec included. The rest is name server, broker and tools."""
    send: dict[str, Rate]
    push: dict[str, Rate]
    threads: dict[str, Rate]
    idle_percent: float
    notes: list[str] = field(default_factory=list)


def measure(folder: Path, *, quick: bool, tell: Callable[[str], None]) -> Figures:
    rounds, seconds, stored = (1, 0.5, 5_000) if quick else (3, 3.0, 200_000)
    notes: list[str] = []
    tell("clients: what they weigh")
    weights = {} if quick else _weights(notes)
    with_cpp = not quick and importlib.util.find_spec("rocketmq") is not None
    if not with_cpp:
        notes.append("the C++ wheel is not measured: left out, or there is none for this machine")
    with (
        ours.name_server(folder / "ours") as names,
        ours.broker(folder / "ours", names.address, mappedFileSizeCommitLog=1024 * MIB) as broker,
    ):
        server = Server(OURS, broker.address, broker.process.pid)
        for topic, queues in ((SEND_TOPIC, QUEUES), (PUSH_TOPIC, QUEUES), (IDLE_TOPIC, IDLE_QUEUES)):
            make_topic(server, topic, queues)
        generator.fill(broker.address, stored, PUSH_TOPIC, QUEUES, 1024, 10)
        run = _Runner(folder, rounds, tell, notes)
        send = run.all(
            "send, 256 in flight",
            {
                OURS: ("ours-async", names.address, SEND_TOPIC, seconds, SENDERS),
                NAIVE: ("naive", broker.address, SEND_TOPIC, seconds, SENDERS),
                NAIVE_MANY: ("naive-many", broker.address, SEND_TOPIC, seconds, SENDERS),
            }
            | ({CPP: ("cpp-async", names.address, SEND_TOPIC, seconds, SENDERS)} if with_cpp else {}),
        )
        threads = run.all(
            "blocking send, 16 threads",
            {OURS: ("ours-threads", names.address, SEND_TOPIC, seconds, THREADS)}
            | ({CPP: ("cpp-threads", names.address, SEND_TOPIC, seconds, THREADS)} if with_cpp else {}),
        )
        push = run.all(
            "push consume",
            {OURS: ("ours-push", names.address, PUSH_TOPIC, stored, 120)}
            | ({CPP: ("cpp-push", names.address, PUSH_TOPIC, stored, 120)} if with_cpp else {}),
        )
        idle = run.one("ours-idle", names.address, IDLE_TOPIC, 1.0 if quick else 20.0, IDLE_QUEUES)
        idle_percent = 100 * idle["cpu"] / idle["seconds"]
        tell(f"idle consumer of {IDLE_QUEUES} queues: {idle_percent:.2f} % of a core")
    return Figures(weights, _client_megabytes(), send, push, threads, idle_percent, notes)


class _Runner:
    """Runs client programs, those of one case by turns."""

    def __init__(self, folder: Path, rounds: int, tell: Callable[[str], None], notes: list[str]) -> None:
        self._home = folder / "home"  # the C++ library insists on writing logs there
        self._home.mkdir(parents=True)
        self._rounds = rounds
        self._tell = tell
        self._notes = notes

    def all(self, case: str, programs: dict[str, tuple[Any, ...]]) -> dict[str, Rate]:
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in programs}
        for number in range(self._rounds):
            for name in programs if number % 2 == 0 else reversed(programs):
                try:
                    runs[name].append(self.one(*programs[name]))
                except ProgramFailed as failure:
                    if name == OURS:
                        raise
                    self._notes.append(f"{case}: {name} failed: {failure}")
        rates = {name: _medians(taken) for name, taken in runs.items() if taken}
        self._tell(f"{case}: " + ", ".join(f"{name} {rate.rate:,.0f}/s" for name, rate in rates.items()))
        return rates

    def one(self, *arguments: Any) -> dict[str, float]:
        command = [sys.executable, "-m", "bench.client_programs", *map(str, arguments)]
        environment = {**os.environ, "HOME": str(self._home)}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False
        )
        if done.returncode != 0:
            raise ProgramFailed(f"{arguments[0]} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return told


class ProgramFailed(Exception):
    """A client program did not do what it is there for."""


def _medians(taken: list[dict[str, float]]) -> Rate:
    return Rate(
        median(each["messages"] / each["seconds"] for each in taken),
        median(each["messages"] / max(each["cpu"], 1e-6) for each in taken),
    )


# ------------------------------------------------------------------------------------------- what it weighs


def _weights(notes: list[str]) -> dict[str, Weight]:
    found = {}
    for name, install in ((OURS, _install_ours), (OFFICIAL, _install_official)):
        try:
            python = install()
        except subprocess.CalledProcessError as failure:
            notes.append(f"{name} is not weighed, pip says: {failure.stderr.strip()[-200:]}")
            continue
        found[name] = _weight(python, IMPORTS[name])
    return found


def _install_ours() -> Path:
    wheels = CACHE / "wheels"
    _run(sys.executable, "-m", "pip", "-q", "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, ROOT)
    newest = max(wheels.glob("kourou-*.whl"), key=lambda wheel: wheel.stat().st_mtime)
    python = _environment("kourou")
    _pip_into(python, "--force-reinstall", "-c", ROOT / "constraints.txt", newest)
    return python


def _install_official() -> Path:
    python = _environment("official")
    _pip_into(python, OFFICIAL_PACKAGE)
    return python


def _environment(name: str) -> Path:
    python = CACHE / name / "bin" / "python"
    if not python.exists():
        _run(sys.executable, "-m", "venv", "--without-pip", CACHE / name)
    return python


def _pip_into(python: Path, *arguments: Any) -> None:
    _run(sys.executable, "-m", "pip", "--python", python, "-q", "install", *arguments)


def _run(*command: Any) -> None:
    subprocess.run([str(each) for each in command], check=True, capture_output=True, text=True, timeout=600)


# Not `ru_maxrss` where it can be avoided: on Linux a new program inherits it from the process that started
# it, and a bench that has held ten million messages is large. (On macOS it counts bytes and begins anew.)
PEAK = """
import pathlib, resource
status = pathlib.Path("/proc/self/status")
if status.exists():
    peak_kib = int(status.read_text().partition("VmHWM:")[2].split()[0])
else:
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(took, peak_kib)
"""


def _weight(python: Path, program: str) -> Weight:
    (packages,) = (python.parents[1] / "lib").glob("python*/site-packages")
    files = [path for path in packages.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    # As a program pays for it: a new process. The time is the processor's, so that a busy machine says the
    # same; what the interpreter itself takes is in the memory, and not in the time.
    timed = f"import time; began = time.process_time()\n{program}\ntook = time.process_time() - began\n{PEAK}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    runs = []
    for _ in range(6):
        done = subprocess.run(
            [python, "-c", timed], env=environment, capture_output=True, text=True, check=True
        )
        runs.append(tuple(map(float, done.stdout.split())))
        time.sleep(0.1)
    return Weight(
        sum(path.stat().st_size for path in files) / 1e6,
        len(list(packages.glob("*.dist-info"))),
        1000 * min(seconds for seconds, _ in runs[1:]),  # the first one compiles
        median(kib for _, kib in runs[1:]) / 1024,
    )


def _client_megabytes() -> float:
    """The source files a client program has loaded, and all of msgspec."""
    program = (
        f"{IMPORTS[OURS]}; kourou.AsyncProducer; kourou.TransactionProducer; kourou.LitePullConsumer\n"
        "import os, sys, pathlib, msgspec\n"
        "own = [m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'kourou' and m.__file__]\n"
        "beside = pathlib.Path(msgspec.__file__).parent.rglob('*')\n"
        "other = [p for p in beside if p.is_file() and p.suffix != '.pyc']\n"
        "print(sum(os.path.getsize(path) for path in [*own, *other]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return int(done.stdout) / 1e6


# --------------------------------------------------------------------------------------------- what is shown


def shown(figures: Figures) -> str:
    lines = [f"{'client':<28} | {OURS:>12} | {'other':>12} |", "-" * 62]
    mine, official = figures.weights.get(OURS), figures.weights.get(OFFICIAL)
    for label, attribute in (
        ("installed, MB", "megabytes"),
        ("packages", "packages"),
        ("import, ms", "import_ms"),
        ("memory after import, MiB", "resident_mib"),
    ):
        if mine is not None:
            other = "" if official is None else f"{getattr(official, attribute):,.1f}"
            lines.append(f"{label:<28} | {getattr(mine, attribute):>12,.1f} | {other:>12} | {OFFICIAL}")
    lines.append(f"{'of it, what a client loads':<28} | {figures.client_megabytes:>12,.1f} | {'':>12} |")
    for label, rates in (
        ("send 1 KiB, 256 in flight", figures.send),
        ("blocking send, 16 threads", figures.threads),
        ("push consume 1 KiB", figures.push),
    ):
        others = [name for name in rates if name != OURS] or [""]
        for name in others:
            other = f"{rates[name].rate:,.0f}" if name else ""
            lines.append(f"{label:<28} | {rates[OURS].rate:>12,.0f} | {other:>12} | {name}")
    lines.append(f"{'idle, 64 queues, % of a core':<28} | {figures.idle_percent:>12,.2f} | {'':>12} |")
    return "\n".join([*lines, *figures.notes])


def as_json(figures: Figures) -> dict[str, Any]:
    return asdict(figures)


def from_json(told: dict[str, Any]) -> Figures:
    def rates(case: str) -> dict[str, Rate]:
        return {name: Rate(**values) for name, values in told[case].items()}

    return Figures(
        weights={name: Weight(**values) for name, values in told["weights"].items()},
        client_megabytes=told["client_megabytes"],
        send=rates("send"),
        push=rates("push"),
        threads=rates("threads"),
        idle_percent=told["idle_percent"],
        notes=told["notes"],
    )
