"""`audit`: is everything there, once, and in order? A lake against its brokers, or senders against receivers.

    lake against broker     per queue: the offsets the lake says it has read, the rows in its files, and the
                            messages the broker still has of them, compared by count and by digest
    sent against handled    per topic and group, from the message trace: what was sent and never handled, what
                            was handled more than once

What is counted comes from Spark; what it means is decided by the pure functions at the end of this file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kourou.admin import topics as admin_topics
from kourou.errors import NotFound
from kourou.spark.offsets import Queue, to_json
from kourou.spark.pipelines.lake import Lake, QueueRange
from kourou.spark.pipelines.lake_frames import read_lake
from kourou.spark.pipelines.reach import Reach
from kourou.spark.pipelines.report import Report, Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES_MAX = 20
COMPARED = (
    "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, keys string, "
    "tags string, body binary, bornTimestamp timestamp"
)


class Counted(NamedTuple):
    """What is in one queue, as somebody has counted it."""

    rows: int = 0
    distinct: int = 0
    first: int | None = None
    last: int | None = None
    disordered: int = 0
    """Rows whose offset is not above that of the row before them."""
    digest: int = 0


class Bounds(NamedTuple):
    low: int
    high: int


@dataclass(frozen=True)
class QueueVerdict:
    """One queue of a lake."""

    topic: str
    broker_name: str
    queue_id: int
    read: int
    """Offsets the lake has read."""
    rows: int
    distinct: int
    missing: int
    duplicates: int
    disordered: int
    compared: int
    """Messages the broker still has of those."""
    differs: bool
    """What the broker has is not what the lake has."""
    behind: int
    """Messages at the broker that the lake has not read yet."""

    @property
    def is_ok(self) -> bool:
        return not (self.missing or self.duplicates or self.disordered or self.differs)


@dataclass(frozen=True)
class LakeAudit:
    lake: str
    queues: Sequence[QueueVerdict]
    is_filtered: bool = False

    @property
    def is_ok(self) -> bool:
        return all(queue.is_ok for queue in self.queues)

    def report(self) -> Report:
        columns = (
            *("topic", "broker_name", "queue_id", "read", "rows", "distinct", "missing", "duplicates"),
            *("disordered", "compared", "differs", "behind", "is_ok"),
        )
        return Report(
            title="audit",
            facts={
                "lake": self.lake,
                "queues": len(self.queues),
                "messages": sum(queue.rows for queue in self.queues),
                "compared_with_broker": sum(queue.compared for queue in self.queues),
                "missing": sum(queue.missing for queue in self.queues),
                "duplicates": sum(queue.duplicates for queue in self.queues),
                "disordered": sum(queue.disordered for queue in self.queues),
            },
            tables=[Rows("queues", columns, [vars(queue) | {"is_ok": queue.is_ok} for queue in self.queues])],
            is_ok=self.is_ok,
        )


# ---------------------------------------------------------------------------------- lake against broker


def audit_lake(
    spark: SparkSession,
    lake: str,
    cluster: Reach | str | None = None,
    *,
    topics: Sequence[str] | None = None,
    is_filtered: bool = False,
) -> LakeAudit:
    """Hold a lake against its own commits and, where a cluster is named, against what the brokers still have.

    `is_filtered` says that the archive left messages out on purpose (`tags`, `filterSql`): then offsets
    without a message are as they should be.
    """
    source = Lake(lake)
    source.format()
    ranges = _ranges(source, topics)
    counted = _counted_lake(spark, source, topics)
    bounds: dict[Queue, Bounds] = {}
    at_broker: dict[Queue, Counted] = {}
    in_lake: dict[Queue, Counted] = {}
    if cluster is not None:
        reach = Reach.of(cluster)
        bounds = _bounds(reach, sorted({queue.topic for queue in ranges}))
        shared = common(ranges, bounds)
        at_broker, in_lake = _compared(spark, reach, source, shared)
    verdicts = [
        judged(
            queue,
            ranges[queue],
            counted.get(queue, Counted()),
            bounds.get(queue),
            at_broker.get(queue, Counted()),
            in_lake.get(queue, Counted()),
            is_filtered=is_filtered,
        )
        for queue in sorted(ranges)
    ]
    return LakeAudit(source.folder, verdicts, is_filtered)


def _ranges(lake: Lake, topics: Sequence[str] | None) -> dict[Queue, list[QueueRange]]:
    ranges: dict[Queue, list[QueueRange]] = {}
    for commit in lake.commits():
        for one in commit.ranges:
            if topics is None or one.topic in topics:
                ranges.setdefault(one.queue, []).append(one)
    return ranges


def _counted_lake(spark: SparkSession, lake: Lake, topics: Sequence[str] | None) -> dict[Queue, Counted]:
    """What the files hold, and whether rows within a file are in order."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    frame = read_lake(spark, lake, topics)
    if "_metadata" in frame.columns or lake.files(topics):
        in_file = Window.partitionBy("file", "brokerName", "queueId").orderBy("place")
        ordered = frame.select(
            "topic",
            "brokerName",
            "queueId",
            "queueOffset",
            f.col("_metadata.file_path").alias("file"),
            f.col("_metadata.row_index").alias("place"),
        ).withColumn("before", f.lag("queueOffset").over(in_file))
    else:
        return {}
    rows = (
        ordered.groupBy("topic", "brokerName", "queueId")
        .agg(
            f.count("*").alias("rows"),
            f.countDistinct("queueOffset").alias("distinct"),
            f.min("queueOffset").alias("first"),
            f.max("queueOffset").alias("last"),
            f.count(f.when(f.col("queueOffset") <= f.col("before"), 1)).alias("disordered"),
        )
        .collect()
    )
    return {
        Queue(row.topic, row.brokerName, row.queueId): Counted(
            row.rows, row.distinct, row["first"], row["last"], row.disordered
        )
        for row in rows
    }


def _bounds(reach: Reach, topics: Sequence[str]) -> dict[Queue, Bounds]:
    found = {}
    with reach.connection() as connection:
        for topic in topics:
            try:
                stats = admin_topics.stats(connection, topic)
            except NotFound:
                continue  # gone since: the lake is what is left of it
            for queue in stats.queues:
                found[Queue(topic, queue.broker, queue.queue_id)] = Bounds(queue.min_offset, queue.max_offset)
    return found


def _compared(
    spark: SparkSession, reach: Reach, lake: Lake, shared: Mapping[Queue, Bounds]
) -> tuple[dict[Queue, Counted], dict[Queue, Counted]]:
    """The shared part of each queue: as the broker has it, and as the lake has it."""
    if not shared:
        return {}, {}
    from pyspark.sql import functions as f

    assigned: dict[str, dict[str, list[int]]] = {}
    for queue in sorted(shared):
        assigned.setdefault(queue.topic, {}).setdefault(queue.broker_name, []).append(queue.queue_id)
    at_broker = reach.read(
        spark,
        COMPARED,
        assign=json.dumps(assigned),
        startingOffsets=json.dumps(to_json({queue: bounds.low for queue, bounds in shared.items()})),
        endingOffsets=json.dumps(to_json({queue: bounds.high for queue, bounds in shared.items()})),
    )
    bounds = spark.createDataFrame(
        [(*queue, *both) for queue, both in shared.items()],
        "topic string, brokerName string, queueId int, low bigint, high bigint",
    )
    in_lake = (
        read_lake(spark, lake, sorted(assigned))
        .join(f.broadcast(bounds), ["topic", "brokerName", "queueId"])
        .where("queueOffset >= low and queueOffset < high")
    )
    return digests(at_broker), digests(in_lake)


def digests(frame: DataFrame) -> dict[Queue, Counted]:
    """Rows, distinct offsets, and a digest of what every message is, by queue."""
    from pyspark.sql import functions as f

    row = f.xxhash64("queueOffset", "msgId", "keys", "tags", "body", "bornTimestamp")
    found = (
        frame.groupBy("topic", "brokerName", "queueId")
        .agg(
            f.count("*").alias("rows"),
            f.countDistinct("queueOffset").alias("distinct"),
            f.bit_xor(row).alias("digest"),
        )
        .collect()
    )
    return {
        Queue(each.topic, each.brokerName, each.queueId): Counted(
            each.rows, each.distinct, digest=each.digest
        )
        for each in found
    }


# ------------------------------------------------------------------------------------ sent against handled


@dataclass(frozen=True)
class SideVerdict:
    """What one group made of one topic, by the word of the clients."""

    topic: str
    group: str
    sent: int
    handled: int
    """Different messages handled well at least once."""
    never: int
    """Sent, and never handled well."""
    more_than_once: int
    failures: int
    """Times that handling failed."""
    unknown: int
    """Handled, and nobody said that they were sent."""


@dataclass(frozen=True)
class SidesAudit:
    sides: Sequence[SideVerdict]
    examples: Sequence[Mapping[str, object]] = ()

    @property
    def is_ok(self) -> bool:
        return not any(side.never or side.more_than_once for side in self.sides)

    def report(self) -> Report:
        columns = ("topic", "group", "sent", "handled", "never", "more_than_once", "failures", "unknown")
        return Report(
            title="audit",
            facts={
                "sent": sum(side.sent for side in self.sides),
                "never_handled": sum(side.never for side in self.sides),
                "handled_more_than_once": sum(side.more_than_once for side in self.sides),
            },
            tables=[
                Rows("sides", columns, [vars(side) for side in self.sides]),
                Rows("examples", ("topic", "group", "msgId", "handled", "what"), self.examples),
            ],
            is_ok=self.is_ok,
        )


def audit_sides(
    spark: SparkSession,
    cluster: Reach | str,
    *,
    topics: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    starting_timestamp: str | None = None,
) -> SidesAudit:
    """What producers said they sent against what consumers said they handled, from the message trace."""
    from kourou.spark.pipelines.trace import handled_messages, sent_messages, trace_lines

    lines = trace_lines(spark, Reach.of(cluster), starting_timestamp).cache()
    sent, handled = sent_messages(lines), handled_messages(lines)
    if topics is not None:
        sent = sent.where(sent.topic.isin(list(topics)))
    if groups is not None:
        handled = handled.where(handled.group.isin(list(groups)))
    try:
        return compared_sides(sent, handled)
    finally:
        lines.unpersist()


def compared_sides(sent: DataFrame, handled: DataFrame) -> SidesAudit:
    """`sent` has topic and msgId; `handled` has group, msgId and isSuccess, one row for each time.

    A group answers for the topics of which it has handled anything.
    """
    from pyspark.sql import functions as f

    times = handled.groupBy("group", "msgId").agg(
        f.count(f.when(f.col("isSuccess"), 1)).alias("handled"),
        f.count(f.when(~f.col("isSuccess"), 1)).alias("failures"),
    )
    messages = sent.select("topic", "msgId").dropDuplicates(["msgId"])
    known = times.join(messages, "msgId", "left")
    of_group = known.where("topic is not null").select("group", "topic").distinct()
    every = (
        of_group.join(messages, "topic")
        .join(times, ["group", "msgId"], "left")
        .fillna(0, ["handled", "failures"])
        .cache()
    )
    counts = (
        every.groupBy("topic", "group")
        .agg(
            f.count("*").alias("sent"),
            f.count(f.when(f.col("handled") > 0, 1)).alias("handled"),
            f.count(f.when(f.col("handled") == 0, 1)).alias("never"),
            f.count(f.when(f.col("handled") > 1, 1)).alias("more_than_once"),
            f.sum("failures").alias("failures"),
        )
        .orderBy("topic", "group")
        .collect()
    )
    unknown = {
        row.group: row["count"] for row in known.where("topic is null").groupBy("group").count().collect()
    }
    odd = (
        every.where("handled != 1")
        .select(
            "topic",
            "group",
            "msgId",
            "handled",
            f.when(f.col("handled") == 0, "never handled").otherwise("handled more than once").alias("what"),
        )
        .orderBy("topic", "group", "msgId")
        .limit(EXAMPLES_MAX)
        .collect()
    )
    every.unpersist()
    sides = [
        SideVerdict(
            row.topic,
            row.group,
            row.sent,
            row.handled,
            row.never,
            row.more_than_once,
            row.failures,
            unknown.get(row.group, 0),
        )
        for row in counts
    ]
    return SidesAudit(sides, [row.asDict() for row in odd])


# -------------------------------------------------------------------------------------------- what it means


def common(
    ranges: Mapping[Queue, Sequence[QueueRange]], bounds: Mapping[Queue, Bounds]
) -> dict[Queue, Bounds]:
    """Of each queue what the lake has read and the broker still has: one stretch of offsets."""
    shared = {}
    for queue, read in ranges.items():
        if queue in bounds:
            low = max(bounds[queue].low, min(one.start for one in read))
            high = min(bounds[queue].high, max(one.end for one in read))
            if low < high:
                shared[queue] = Bounds(low, high)
    return shared


def judged(
    queue: Queue,
    ranges: Sequence[QueueRange],
    lake: Counted,
    bounds: Bounds | None,
    at_broker: Counted,
    in_lake: Counted,
    *,
    is_filtered: bool,
) -> QueueVerdict:
    """`at_broker` and `in_lake` are of the stretch that both have; `lake` is of all."""
    read = covered(ranges)
    return QueueVerdict(
        *queue,
        read=read,
        rows=lake.rows,
        distinct=lake.distinct,
        missing=0 if is_filtered else max(0, read - lake.distinct),
        duplicates=lake.rows - lake.distinct,
        disordered=lake.disordered,
        compared=at_broker.rows,
        differs=not is_filtered and (at_broker.rows, at_broker.digest) != (in_lake.rows, in_lake.digest),
        behind=0 if bounds is None else max(0, bounds.high - max(one.end for one in ranges)),
    )


def covered(ranges: Sequence[QueueRange]) -> int:
    """How many different offsets the ranges of one queue hold.

    >>> covered([QueueRange("t", "b", 0, 0, 10), QueueRange("t", "b", 0, 8, 12)])
    12
    """
    total, reached = 0, -1
    for one in sorted(ranges, key=lambda each: each.start):
        total += max(0, one.end - max(one.start, reached))
        reached = max(reached, one.end)
    return total
