"""Rows of Spark into a topic and exactly once into one, and a stopped broker's files into rows.

    at least once    `delivery=at-least-once`: every row acknowledged
    exactly once     `delivery=exactly-once`: staged, committed, and readable
    store scan       table `commitlog` of as many messages with the CRC verdict, to `noop`
    memory           the rows of an Arrow batch in memory, to `noop`: what they are held against

A message has a body of 1 KiB; a broker runs on the same cores. Beside the rate stands what a message costs
in CPU time, of Spark and the broker together: on a machine with other work it says more than the rate.

    python -m bench.spark_sink [MESSAGES] [ROUNDS]
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bench.process import family_cpu_seconds
from bench.spark import DDL, ROOT, MemorySource
from tests.interop import ours

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "BenchSink"
QUEUES = 8


@dataclass(frozen=True)
class Figures:
    """By case: messages a second, and microseconds of CPU a message, of each round."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, case: str, other: str) -> float:
        """The median over the rounds."""
        return median(a / b for a, b in zip(self.rates[case], self.rates[other], strict=True))

    def cpu_ratio(self, case: str, other: str) -> float:
        return median(self.cpu_us[other]) / median(self.cpu_us[case])


def as_json(figures: Figures) -> dict[str, Any]:
    return asdict(figures)


def shown(figures: Figures) -> str:
    lines = [f"{'Spark sink and scan':<20} | {'msg/s':>10} | {'of memory':>9} | {'CPU us/msg':>10}"]
    lines.append("-" * len(lines[0]))
    for case, rates in figures.rates.items():
        lines.append(
            f"{case:<20} | {median(rates):>10,.0f} | {figures.ratio(case, 'memory'):>8.2f}x "
            f"| {median(figures.cpu_us[case]):>10.1f}"
        )
    return "\n".join(lines)


def measure(folder: Path, *, rounds: int, messages: int, tell: Callable[[str], None]) -> Figures:
    """Starts a broker and a Spark of its own; both are gone afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        part for part in (str(ROOT), os.environ.get("PYTHONPATH")) if part
    )
    import kourou.spark

    figures = Figures()
    spark = kourou.spark.session("bench-sink", master="local[2]", settings={"spark.log.level": "OFF"})
    spark.dataSource.register(MemorySource)
    try:
        with _topic_at(folder / "sink") as name_server:
            for number in range(rounds + 1):  # the first is for the compilers of Java
                for case, delivery in (("at least once", "at-least-once"), ("exactly once", "exactly-once")):
                    tell(f"Spark sink: {case}, {'warming up' if not number else f'round {number}'}")
                    took = _Timed()
                    _written(_memory(spark, messages), name_server, delivery)
                    took.note(figures, case, messages, keep=number > 0)
        with _topic_at(folder / "scan") as name_server:
            _written(_memory(spark, messages), name_server, "at-least-once")
        [log] = (folder / "scan").rglob("commitlog")
        for number in range(rounds + 1):
            tell(f"Spark: store scan, {'warming up' if not number else f'round {number}'}")
            took = _Timed()
            _noop(_memory(spark, messages))
            took.note(figures, "memory", messages, keep=number > 0)
            scan = spark.read.format("rocketmq").options(table="commitlog", storePath=str(log.parent))
            took = _Timed()
            _noop(scan.schema(f"{DDL}, verdict string, reason string").load())
            took.note(figures, "store scan", messages, keep=number > 0)
    finally:
        spark.stop()
    return figures


@contextmanager
def _topic_at(folder: Path) -> Iterator[str]:
    """A broker with the topic; the address of its name server."""
    from kourou.local.published import make_topic

    folder.mkdir(parents=True, exist_ok=True)
    with ours.name_server(folder) as name_server, ours.broker(folder, name_server.address) as broker:
        make_topic(broker.address, TOPIC, QUEUES)
        yield name_server.address


def _memory(spark: SparkSession, messages: int) -> DataFrame:
    return spark.read.format("bench-memory").option("rows", str(messages)).schema(DDL).load()


def _written(frame: DataFrame, name_server: str, delivery: str) -> None:
    rows = frame.select("body", "tags")
    writer = rows.write.format("rocketmq").options(namesrvAddr=name_server, topic=TOPIC, delivery=delivery)
    writer.mode("append").save()


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


class _Timed:
    """Time and CPU time of this process and all below it, from here on."""

    def __init__(self) -> None:
        self._began, self._cpu = perf_counter(), family_cpu_seconds()

    def note(self, figures: Figures, case: str, messages: int, *, keep: bool) -> None:
        seconds, cpu = perf_counter() - self._began, family_cpu_seconds() - self._cpu
        if keep:
            figures.rates.setdefault(case, []).append(messages / seconds)
            figures.cpu_us.setdefault(case, []).append(cpu / messages * 1e6)


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 400_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as folder:
        print(shown(measure(Path(folder), rounds=rounds, messages=messages, tell=print)))


if __name__ == "__main__":
    main()
