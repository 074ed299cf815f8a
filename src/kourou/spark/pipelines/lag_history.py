"""`lag-history`: how far groups were behind, in messages and in seconds, over time.

Brokers know only the present, so it is asked for again and again and kept in a folder; every run adds to it,
and the report is about all that is there.

    HISTORY/lag-<milliseconds>.parquet      at, group, topic, brokerName, queueId, lag, seconds

Seconds behind is the age of the backlog: how long ago the last message was stored that the group is done
with.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kourou.admin import groups as admin_groups
from kourou.admin.connection import Connection
from kourou.doors.clock import Clock, RealClock
from kourou.doors.files import RealFiles, make_lasting_folder
from kourou.errors import MQError, NotFound
from kourou.spark.pipelines import picture
from kourou.spark.pipelines.reach import Reach
from kourou.spark.pipelines.report import Picture, Report, Rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "at timestamp, group string, topic string, brokerName string, queueId int, lag bigint, seconds double"
)
KEPT_SAMPLES_MAX = 100
"""So many samples wait in memory before they are written."""
POINTS_MAX = 500

Progress = Callable[[int, int], None]
Wait = Callable[[float], object]


@dataclass(frozen=True)
class GroupLag:
    """One group in one topic, over all of the history."""

    group: str
    topic: str
    samples: int
    last: int
    peak: int
    last_seconds: float
    peak_seconds: float
    p95_seconds: float
    change: float
    """Messages a second by which the lag grew, or shrank, from the first to the last sample."""


@dataclass(frozen=True)
class LagHistory:
    history: str
    samples: int
    """Taken in this run."""
    groups: Sequence[GroupLag]
    in_messages: Mapping[str, Sequence[tuple[int, float]]]
    in_seconds: Mapping[str, Sequence[tuple[int, float]]]
    remarks: Sequence[str] = ()

    def pictures(self) -> list[Picture]:
        return [
            Picture("Lag in messages", picture.lines("Lag in messages", self.in_messages, "messages")),
            Picture("Lag in seconds", picture.lines("Age of the backlog", self.in_seconds, "seconds")),
        ]

    def report(self, *, with_pictures: bool = False) -> Report:
        columns = (
            *("group", "topic", "samples", "last", "peak", "last_seconds", "peak_seconds", "p95_seconds"),
            "change",
        )
        return Report(
            title="lag-history",
            facts={"history": self.history, "samples_taken": self.samples, "groups": len(self.groups)},
            tables=[Rows("groups", columns, [vars(group) for group in self.groups])],
            pictures=self.pictures() if with_pictures and self.in_messages else [],
            remarks=self.remarks,
        )


def lag_history(
    spark: SparkSession,
    cluster: Reach | str,
    history: str,
    *,
    groups: Sequence[str] | None = None,
    samples: int = 1,
    every: float = 10.0,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
) -> LagHistory:
    """Take so many samples, `every` seconds apart, of these groups or all, and tell of the whole history."""
    folder = os.path.abspath(history)
    remarks = take_samples(
        Reach.of(cluster),
        folder,
        groups,
        samples,
        every,
        (stop or threading.Event()).wait,
        RealClock(),
        progress,
    )
    return analysed(spark, folder, samples, groups, remarks)


# --------------------------------------------------------------------------------------------- sampling


def take_samples(
    reach: Reach,
    folder: str,
    groups: Sequence[str] | None,
    samples: int,
    every: float,
    wait: Wait,
    clock: Clock,
    progress: Progress | None = None,
) -> list[str]:
    """Ask so many times, and keep the answers; what could not be asked is told."""
    make_lasting_folder(RealFiles(), folder)
    waiting: list[dict[str, object]] = []
    remarks: dict[str, None] = {}
    with reach.connection() as connection:
        next_at = clock.monotonic()
        for number in range(1, samples + 1):
            rows, failed = sample(connection, groups, clock.now_ms())
            waiting += rows
            remarks.update(dict.fromkeys(failed))
            if number % KEPT_SAMPLES_MAX == 0 or number == samples:
                _keep(folder, waiting, clock.now_ms())
                waiting = []
            if progress is not None:
                progress(number, samples)
            next_at += every
            if number < samples and wait(max(0.0, next_at - clock.monotonic())):
                break
    _keep(folder, waiting, clock.now_ms())
    return list(remarks)


def sample(
    connection: Connection, groups: Sequence[str] | None, now_ms: int
) -> tuple[list[dict[str, object]], list[str]]:
    """How far each group is behind now: rows, and what went wrong."""
    names = groups if groups is not None else admin_groups.names(connection)
    rows: list[dict[str, object]] = []
    failed = []
    for outcome in connection.each(names, lambda group: admin_groups.lag(connection, group)):
        if outcome.result is None:
            if groups is not None or not isinstance(outcome.error, NotFound):
                failed.append(f"group '{outcome.of}': {outcome.error}")
            continue
        failed += [f"group '{outcome.of}': {missing}" for missing in outcome.result.missing]
        rows += [
            {
                "at": now_ms * 1000,
                "group": queue.group,
                "topic": queue.topic,
                "brokerName": queue.broker,
                "queueId": queue.queue_id,
                "lag": queue.lag,
                "seconds": queue.behind_ms(now_ms) / 1000,
            }
            for queue in outcome.result
        ]
    if groups is not None and failed and not rows:
        raise MQError("; ".join(failed))
    return rows, failed


def _keep(folder: str, rows: Sequence[Mapping[str, object]], now_ms: int) -> None:
    if not rows:
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = RealFiles()
    hidden = os.path.join(folder, f".lag-{now_ms}.tmp")
    pq.write_table(pa.Table.from_pylist(list(rows), schema=_schema()), hidden, compression="zstd")
    files.sync_all([hidden])
    files.rename(hidden, os.path.join(folder, f"lag-{now_ms}.parquet"))


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            ("at", pa.timestamp("us", tz="UTC")),
            *((name, pa.string()) for name in ("group", "topic", "brokerName")),
            *(("queueId", pa.int32()), ("lag", pa.int64()), ("seconds", pa.float64())),
        ]
    )


# -------------------------------------------------------------------------------------------- analysing


def read_history(spark: SparkSession, folder: str) -> DataFrame:
    """All samples ever kept in this folder."""
    names = [name for name in RealFiles().list(folder) if name.endswith(".parquet")]
    if not names:
        return spark.createDataFrame([], COLUMNS)
    return spark.read.schema(COLUMNS).parquet(*(os.path.join(folder, name) for name in names))


def analysed(
    spark: SparkSession,
    folder: str,
    samples: int,
    groups: Sequence[str] | None = None,
    remarks: Sequence[str] = (),
) -> LagHistory:
    from pyspark.sql import functions as f

    frame = read_history(spark, folder)
    if groups is not None:
        frame = frame.where(frame.group.isin(list(groups)))
    moments = (
        frame.groupBy("group", "topic", "at")
        .agg(f.sum("lag").alias("lag"), f.max("seconds").alias("seconds"))
        .cache()
    )
    found = (
        moments.groupBy("group", "topic")
        .agg(
            f.count("*").alias("samples"),
            f.max_by("lag", "at").alias("last"),
            f.max("lag").alias("peak"),
            f.max_by("seconds", "at").alias("last_seconds"),
            f.max("seconds").alias("peak_seconds"),
            f.expr("percentile(seconds, 0.95)").alias("p95_seconds"),
            f.min_by("lag", "at").alias("first"),
            (f.unix_millis(f.max("at")) - f.unix_millis(f.min("at"))).alias("milliseconds"),
        )
        .orderBy("group", "topic")
        .collect()
    )
    points = (
        moments.select("group", "topic", f.unix_millis("at").alias("ms"), "lag", "seconds")
        .orderBy("group", "topic", "ms")
        .collect()
    )
    moments.unpersist()
    in_messages: dict[str, list[tuple[int, float]]] = {}
    in_seconds: dict[str, list[tuple[int, float]]] = {}
    for row in points:
        name = f"{row.group}, {row.topic}"
        in_messages.setdefault(name, []).append((row.ms, float(row.lag)))
        in_seconds.setdefault(name, []).append((row.ms, row.seconds))
    return LagHistory(
        folder,
        samples,
        [
            GroupLag(
                row.group,
                row.topic,
                row.samples,
                row["last"],
                row.peak,
                row.last_seconds,
                row.peak_seconds,
                row.p95_seconds,
                (row["last"] - row["first"]) / (row.milliseconds / 1000) if row.milliseconds else 0.0,
            )
            for row in found
        ],
        {name: thinned(values) for name, values in in_messages.items()},
        {name: thinned(values) for name, values in in_seconds.items()},
        remarks,
    )


def thinned(points: Sequence[tuple[int, float]], most: int = POINTS_MAX) -> list[tuple[int, float]]:
    """At most so many points, the highest of each stretch: a peak stays one.

    >>> thinned([(1, 0.0), (2, 9.0), (3, 1.0), (4, 2.0)], 2)
    [(2, 9.0), (4, 2.0)]
    """
    if len(points) <= most:
        return list(points)
    step = -(-len(points) // most)
    return [max(points[at : at + step], key=lambda point: point[1]) for at in range(0, len(points), step)]
