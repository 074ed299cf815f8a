"""Messages into Parquet: written by the Python task that read them, and by Spark's own writer.

    topic, in the task          `archive`: pulled, decoded and written by one task; a row of JSON goes to Java
    topic, Spark's writer       `spark.read.format("rocketmq")` to `write.parquet`: all of it through Java
    store, in the task          `scan-store --recover`, over the files of the same broker, stopped
    store, Spark's writer       table `commitlog` to `write.parquet`

All with snappy or zstd as they come, a body of 1 KiB of noise and properties as a map; a broker runs on the
same cores while topics are read. CPU time is of Spark, its Python and the broker together.

    python -m bench.spark_archive [MESSAGES] [ROUNDS]
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bench.process import family_cpu_seconds
from bench.spark import ROOT, TOPIC, store
from tests.interop import ours

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAIRS = (
    ("topic, in the task", "topic, Spark's writer"),
    ("store, in the task", "store, Spark's writer"),
)
Work = Callable[[str], object]


@dataclass(frozen=True)
class Figures:
    """By case: messages a second, and microseconds of CPU a message, of each round."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, case: str, other: str) -> float:
        """The median over the rounds."""
        return median(a / b for a, b in zip(self.rates[case], self.rates[other], strict=True))


def as_json(figures: Figures) -> dict[str, Any]:
    return asdict(figures)


def shown(figures: Figures) -> str:
    lines = [f"{'to Parquet':<22} | {'msg/s':>10} | {'ratio':>6} | {'CPU us/msg':>10}"]
    lines.append("-" * len(lines[0]))
    for case, rates in figures.rates.items():
        ratio = next((f"{figures.ratio(*pair):.2f}x" for pair in PAIRS if pair[0] == case), "")
        lines.append(
            f"{case:<22} | {median(rates):>10,.0f} | {ratio:>6} | {median(figures.cpu_us[case]):>10.1f}"
        )
    return "\n".join(lines)


def measure(folder: Path, *, rounds: int, messages: int, tell: Callable[[str], None]) -> Figures:
    """Starts a broker and a Spark of its own; both are gone afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        part for part in (str(ROOT), os.environ.get("PYTHONPATH")) if part
    )
    import kourou.spark
    from kourou.spark.pipelines.archive import archive
    from kourou.spark.pipelines.scan_store import recovered

    figures = Figures()
    spark = kourou.spark.session("bench-archive", master="local[2]", settings={"spark.log.level": "OFF"})
    try:
        with ours.name_server(folder) as name_server, ours.broker(folder, name_server.address) as broker:
            tell(f"Spark: storing {messages:,} messages to archive")
            store(name_server.address, broker.address, messages)
            topic = {"namesrvAddr": name_server.address, "subscribe": TOPIC}
            works: tuple[Work, Work] = (
                lambda into: archive(spark, name_server.address, into, topics=[TOPIC], batch_bytes="8g"),
                lambda into: _written(spark, topic, into),
            )
            _compare(figures, PAIRS[0], works, rounds, messages, folder, tell)
        [log] = folder.rglob("commitlog")
        files = {"table": "commitlog", "storePath": str(log.parent)}
        works = (
            lambda into: recovered(spark, str(log.parent), into, "bench"),
            lambda into: _written(spark, files, into),
        )
        _compare(figures, PAIRS[1], works, rounds, messages, folder, tell)
    finally:
        spark.stop()
    return figures


def _compare(
    figures: Figures,
    cases: tuple[str, str],
    works: tuple[Work, Work],
    rounds: int,
    messages: int,
    folder: Path,
    tell: Callable[[str], None],
) -> None:
    for number in range(rounds + 1):  # the first is for the compilers of Java
        for case, work in zip(cases, works, strict=True):
            tell(f"Spark: {case}, {'warming up' if not number else f'round {number}'}")
            with tempfile.TemporaryDirectory(dir=folder) as into:
                began, cpu = perf_counter(), family_cpu_seconds()
                work(f"{into}/out")
                seconds, spent = perf_counter() - began, family_cpu_seconds() - cpu
            if number:
                figures.rates.setdefault(case, []).append(messages / seconds)
                figures.cpu_us.setdefault(case, []).append(spent / messages * 1e6)


def _written(spark: SparkSession, options: dict[str, str], into: str) -> None:
    spark.read.format("rocketmq").options(**options).load().write.partitionBy("topic").parquet(into)


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 400_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as folder:
        print(shown(measure(Path(folder), rounds=rounds, messages=messages, tell=print)))


if __name__ == "__main__":
    main()
