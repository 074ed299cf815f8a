"""`scan-store`: what is in the files of a stopped broker, ours or Apache's, and what is wrong with it.

    log files ──▶ tasks: find records, compare CRCs, look into the consume queues ──▶ every one that is not
    right
                                                                                └──▶ a lake of all that are

A message is not right that cannot be read, has another CRC than it should, or that no consume queue leads to,
so that no consumer would ever see it. What is whole can be written to a lake, from which `restore` puts it
into a new cluster. Nothing in the folder is changed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from kourou.doors.clock import RealClock
from kourou.errors import ConfigError
from kourou.spark.offsets import Queue
from kourou.spark.pipelines import picture
from kourou.spark.pipelines.lake import Lake, LakeFile, QueueRange
from kourou.spark.pipelines.report import Picture, Report, Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOOKED_AT = (
    "topic string, queueId int, queueOffset bigint, msgId string, keys string, commitLogOffset bigint, "
    "recordBytes int, verdict string, reason string, indexed boolean"
)
SHOWN_MAX = 50
UNINDEXED = "unindexed"


@dataclass(frozen=True)
class Fault:
    """One message that is not right, or bytes that are none."""

    verdict: str
    """bad-crc, gap, torn, or unindexed."""
    place: int
    """In the log."""
    bytes: int
    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    message_id: str | None
    keys: str | None
    reason: str


@dataclass(frozen=True)
class Recovered:
    lake: str
    messages: int
    files: int
    by_topic: Mapping[str, int]


@dataclass(frozen=True)
class Scanned:
    folder: str
    records: int
    bytes: int
    counts: Mapping[str, int]
    """By verdict."""
    by_topic: Mapping[str, int]
    faults: Sequence[Fault]
    """All of them, in the order of the log."""
    recovered: Recovered | None
    seconds: float

    @property
    def is_ok(self) -> bool:
        return not self.faults

    def report(self, *, with_pictures: bool = False) -> Report:
        pictures = []
        if with_pictures and self.by_topic:
            png = picture.bars("Messages in the log", dict(sorted(self.by_topic.items())), "messages")
            pictures = [Picture("Messages by topic", png)]
        columns = ("verdict", "place", "bytes", "topic", "queue_id", "queue_offset", "message_id", "reason")
        facts = {
            "folder": self.folder,
            "records": self.records,
            "bytes": self.bytes,
            **{verdict.replace("-", "_"): number for verdict, number in sorted(self.counts.items())},
            "seconds": round(self.seconds, 1),
            "megabytes_a_second": round(self.bytes / max(self.seconds, 1e-9) / 1e6, 1),
        }
        if self.recovered is not None:
            facts |= {"recovered_to": self.recovered.lake, "recovered": self.recovered.messages}
        hidden = len(self.faults) - SHOWN_MAX
        return Report(
            title="scan-store",
            facts=facts,
            tables=[Rows("faults", columns, [vars(fault) for fault in self.faults[:SHOWN_MAX]])],
            pictures=pictures,
            remarks=[f"… and {hidden} more: -o json has them all"] if hidden > 0 else [],
            is_ok=self.is_ok,
            details={"all_faults": [vars(fault) for fault in self.faults]},
        )


def scan_store(
    spark: SparkSession, folder: str, *, recover: str | None = None, broker_name: str = "recovered"
) -> Scanned:
    """Look at every byte of the log in a broker's data folder; with `recover`, write what is whole to that
    lake.

    `broker_name` is the name its queues get there. Raises ConfigError when the folder is no store or the lake
    has something in it, StoreLocked while a broker runs on it.
    """
    clock = RealClock()
    began = clock.monotonic()
    root = os.path.abspath(folder)
    counts, by_topic, records, size = _counted(spark, root)
    faults = _faults(spark, root) if any(name != "ok" for name in counts) else []
    rescued = None if recover is None else recovered(spark, root, recover, broker_name)
    return Scanned(root, records, size, counts, by_topic, faults, rescued, clock.monotonic() - began)


def _table(spark: SparkSession, root: str) -> DataFrame:
    from pyspark.sql import functions as f

    reader = spark.read.format("rocketmq").options(table="commitlog", storePath=root).schema(LOOKED_AT)
    is_lost = (f.col("verdict") == "ok") & (f.col("indexed") == f.lit(False))
    return reader.load().withColumn("verdict", f.when(is_lost, UNINDEXED).otherwise(f.col("verdict")))


def _counted(spark: SparkSession, root: str) -> tuple[dict[str, int], dict[str, int], int, int]:
    from pyspark.sql import functions as f

    rows = (
        _table(spark, root)
        .groupBy("verdict", "topic")
        .agg(f.count("*").alias("records"), f.sum("recordBytes").alias("bytes"))
        .collect()
    )
    counts: dict[str, int] = {"ok": 0}
    by_topic: dict[str, int] = {}
    for row in rows:
        counts[row.verdict] = counts.get(row.verdict, 0) + row.records
        if row.topic is not None:
            by_topic[row.topic] = by_topic.get(row.topic, 0) + row.records
    return counts, by_topic, sum(by_topic.values()), sum(row.bytes for row in rows)


def _faults(spark: SparkSession, root: str) -> list[Fault]:
    rows = _table(spark, root).where("verdict != 'ok'").orderBy("commitLogOffset").collect()
    return [
        Fault(
            row.verdict,
            row.commitLogOffset,
            row.recordBytes,
            row.topic,
            row.queueId,
            row.queueOffset,
            row.msgId,
            row.keys,
            row.reason or "its consume queue does not lead to it",
        )
        for row in rows
    ]


def recovered(spark: SparkSession, root: str, folder: str, broker_name: str) -> Recovered:
    from kourou.spark.pipelines.archive_source import Part
    from kourou.spark.pipelines.store_archive_source import NAME, StoreArchiveSource

    lake = Lake(folder)
    if lake.last_commit() is not None:
        raise ConfigError(f"the lake '{lake.folder}' has something in it already; name an empty folder")
    run = f"scan-{RealClock().now_ms()}"
    spark.dataSource.register(StoreArchiveSource)
    with lake.writing() as writing:
        rows = (
            spark.read.format(NAME)
            .options(storePath=root, lakeFolder=lake.folder, lakeBroker=broker_name, lakeRun=run)
            .load()
            .collect()
        )
        parts = sorted(
            (msgspec.json.decode(row.part, type=Part) for row in rows), key=lambda part: part.batch
        )
        files = [file for part in parts for file in part.files]  # in the order of the log, and so of offsets
        writing.commit(run, 0, ranges_of(files), files)
    by_topic: dict[str, int] = {}
    for file in files:
        by_topic[file.topic] = by_topic.get(file.topic, 0) + file.rows
    return Recovered(lake.folder, sum(by_topic.values()), len(files), by_topic)


def ranges_of(files: Sequence[LakeFile]) -> list[QueueRange]:
    """Of every queue in these files: from its first offset to its last."""
    spans: dict[Queue, tuple[int, int]] = {}
    for file in files:
        for part in file.queues:
            queue = Queue(file.topic, part.broker_name, part.queue_id)
            first, last = spans.get(queue, (part.first, part.last))
            spans[queue] = (min(first, part.first), max(last, part.last))
    return [QueueRange(*queue, first, last + 1) for queue, (first, last) in sorted(spans.items())]
