"""Apache's own benchmark as the client: its `Producer` and its `Consumer`, against our broker and Apache's.

    produce   64 threads, each with one send on its way, 1 KiB: what `Producer` says of its second ten seconds
    consume   a push consumer with a backlog: what `Consumer` says of its first ten; by the second it may have
              read everything, so that it is not asked to

Both are JVMs on the same two cores as the broker, and take most of them: what a broker saves, they get.
Maven Central has the programmes of 4.7.0 and of no later 4.x (`rocketmq-example`); they run on the client of
the version of the broker.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench import generator
from bench.process import let_disk_rest
from bench.servers import APACHE, APACHE_VERSION, OURS, Server, brokers, make_topic
from tests.interop import apache

EXAMPLE_VERSION = "4.7.0"
EXAMPLE = f"rocketmq-example-{EXAMPLE_VERSION}.jar"
PACKAGE = "org.apache.rocketmq.example.benchmark"
HEAP = "512m"
ROUNDS = 2
REPORT_SECONDS = 10.0
SEND_TOPIC, CONSUME_TOPIC, QUEUES = "BenchProduce", "BenchConsume", 8
BACKLOG, BACKLOG_BODY_BYTES = 4_000_000, 128
PRODUCE, CONSUME = "Producer", "Consumer"
REPORT = {PRODUCE: 2, CONSUME: 1}
"""Which report counts."""


@dataclass(frozen=True)
class Figures:
    """Messages a second by programme, system and round."""

    rates: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def ratio(self, programme: str) -> float:
        row = self.rates[programme]
        return median(mine / other for mine, other in zip(row[OURS], row[APACHE], strict=True))


def measure(folder: Path, *, rounds: int = ROUNDS, tell: Callable[[str], None]) -> Figures:
    figures = Figures({PRODUCE: {}, CONSUME: {}})
    with brokers(folder, with_apache=True) as systems:
        for system in systems:
            make_topic(system, SEND_TOPIC, QUEUES)
            make_topic(system, CONSUME_TOPIC, QUEUES)
            tell(f"{system.system}: {BACKLOG:,} messages to consume")
            for _ in range(4):
                generator.fill(system.address, BACKLOG // 4, CONSUME_TOPIC, QUEUES, BACKLOG_BODY_BYTES, 1)
        for number in range(rounds):
            for system in systems if number % 2 == 0 else reversed(systems):
                for programme, options in (
                    (PRODUCE, ("-t", SEND_TOPIC, "-w", "64", "-s", "1024")),
                    (CONSUME, ("-t", CONSUME_TOPIC, "-g", f"bench_{number}", "-p", "false")),
                ):
                    let_disk_rest()
                    rate = _reported(folder, system, programme, options)
                    if programme == CONSUME and rate * REPORT_SECONDS > BACKLOG:
                        raise generator.GeneratorFailed("the backlog ended before the Consumer's report")
                    figures.rates[programme].setdefault(system.system, []).append(rate)
                    tell(f"Apache's {programme} against {system.system}: {rate:,.0f}/s")
    return figures


def _reported(folder: Path, server: Server, programme: str, options: tuple[str, ...]) -> float:
    """What it says of itself, in the report that counts; each is of ten seconds."""
    home = folder / "client"
    home.mkdir(parents=True, exist_ok=True)
    output = home / "output.log"
    command = ["java", f"-Xms{HEAP}", f"-Xmx{HEAP}", f"-Duser.home={home}", "-cp", _classpath()]
    with open(output, "wb") as sink:
        process = subprocess.Popen(
            [*command, f"{PACKAGE}.{programme}", "-n", server.name_server, *options],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=home,
            env={**os.environ, "ROCKETMQ_HOME": str(home)},
            preexec_fn=apache.die_with_parent,
        )
    try:
        deadline = time.monotonic() + REPORT_SECONDS * (REPORT[programme] + 2)
        while len(reports := _rates(output.read_text(errors="replace"))) < REPORT[programme]:
            if process.poll() is not None or time.monotonic() > deadline:
                raise apache.PartFailed(
                    f"Apache's {programme} reported nothing:\n{output.read_text()[-2000:]}"
                )
            time.sleep(0.1)
        return reports[REPORT[programme] - 1]
    finally:
        process.kill()
        process.wait()


def _rates(said: str) -> list[float]:
    return [float(found) for found in re.findall(r"TPS: (\d+)", said)]


def _classpath() -> str:
    """The programmes, and the client they run on; fetched on first use, then kept."""
    folder = apache.CACHE / "example"
    if not (folder / EXAMPLE).exists():
        command = ["mvn", "-q", "-B", "-f", str(apache.JAVA_SOURCES / "pom.xml"), "dependency:copy"]
        options = [
            f"-Dartifact=org.apache.rocketmq:rocketmq-example:{EXAMPLE_VERSION}",
            f"-DoutputDirectory={folder}",
        ]
        done = subprocess.run(command + options, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise apache.ApacheUnavailable(f"Maven could not fetch {EXAMPLE}:\n{done.stdout[-2000:]}")
    return f"{folder / EXAMPLE}:{apache.jars(APACHE_VERSION)}"


def shown(figures: Figures) -> str:
    lines = [f"{'Apache' + chr(39) + 's own benchmark':<28}{OURS:>14}{APACHE:>16}{'ratio':>8}"]
    for programme, row in figures.rates.items():
        ours, theirs = (median(row[system]) for system in (OURS, APACHE))
        lines.append(
            f"{programme + ', messages/s':<28}{ours:>14,.0f}{theirs:>16,.0f}{figures.ratio(programme):>7.2f}x"
        )
    return "\n".join(lines)


def as_json(figures: Figures) -> dict[str, Any]:
    return asdict(figures)


def from_json(values: dict[str, Any]) -> Figures:
    return Figures(**values)
