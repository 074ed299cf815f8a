"""`stats`: volume, sizes, keys, tags and hot queues of topics, by window of time; once or as it happens.

Only what is counted is read: a schema without `body` would not know sizes, so the body comes along and goes
no further than its length.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kourou.errors import ConfigError
from kourou.spark.pipelines import picture
from kourou.spark.pipelines.reach import Reach
from kourou.spark.pipelines.report import Picture, Report, Rows
from kourou.spark.pipelines.running_query import trigger, wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NEEDED = (
    "topic string, brokerName string, queueId int, keys string, tags string, body binary, "
    "storeTimestamp timestamp"
)
TOP = 10
HOT = 2.0
"""A queue is hot that has more than so many times its fair share of a topic."""


@dataclass(frozen=True)
class TopicStats:
    topic: str
    messages: int
    bytes: int
    mean_bytes: float
    p50_bytes: int
    p99_bytes: int
    max_bytes: int
    keyed: int
    """Messages with a key."""
    different_keys: int
    """About."""
    tagged: int
    first: str
    last: str
    hot_queues: str
    """`broker/queue` of those with more than twice their share."""


@dataclass(frozen=True)
class Window:
    topic: str
    start_ms: int
    messages: int
    bytes: int


@dataclass
class Stats:
    topics: Sequence[TopicStats]
    windows: Sequence[Window]
    tags: Sequence[Mapping[str, object]]
    queues: Sequence[Mapping[str, object]]
    window: str
    batches: int = 0
    """Of a stream; 0 for a batch."""
    remarks: Sequence[str] = field(default_factory=list)

    def report(self, *, with_pictures: bool = False) -> Report:
        columns = tuple(TopicStats.__dataclass_fields__)
        tables = [
            Rows("topics", columns, [vars(topic) for topic in self.topics]),
            Rows("queues", ("topic", "broker_name", "queue_id", "messages", "share", "is_hot"), self.queues),
            Rows("tags", ("topic", "tags", "messages"), self.tags),
        ]
        pictures = []
        if with_pictures and self.windows:
            series: dict[str, list[tuple[int, float]]] = {}
            for window in self.windows:
                series.setdefault(window.topic, []).append((window.start_ms, float(window.messages)))
            png = picture.lines(f"Messages every {self.window}", series, "messages")
            pictures = [Picture(f"Messages every {self.window}", png)]
        return Report(
            title="stats",
            facts={
                "topics": len(self.topics),
                "messages": sum(topic.messages for topic in self.topics),
                "bytes": sum(topic.bytes for topic in self.topics),
                "window": self.window,
                **({"batches": self.batches} if self.batches else {}),
            },
            tables=[table for table in tables if table.rows],
            pictures=pictures,
            remarks=self.remarks,
            details={"windows": [vars(window) for window in self.windows]},
        )


def stats(
    spark: SparkSession,
    cluster: Reach | str,
    *,
    topics: Iterable[str],
    window: str = "1 minute",
    starting_timestamp: str | None = None,
) -> Stats:
    """What is in these topics now."""
    frame = Reach.of(cluster).read(
        spark,
        NEEDED,
        subscribe=_named(topics),
        startingTimestamp=starting_timestamp,
        startingOffsetsByTimestampStrategy=None if starting_timestamp is None else "latest",
    )
    return summed(frame, window)


def summed(frame: DataFrame, window: str) -> Stats:
    """The statistics of any frame with a message's columns: a lake's, for example."""
    from pyspark.sql import functions as f

    rows = frame.select(
        "topic",
        "brokerName",
        "queueId",
        "keys",
        "tags",
        "storeTimestamp",
        f.octet_length("body").alias("size"),
    ).cache()
    try:
        queues = _queues(rows)
        return Stats(_topics(rows, queues), _windows(rows, window), _tags(rows), queues, window)
    finally:
        rows.unpersist()


def _topics(rows: DataFrame, queues: Sequence[Mapping[str, object]]) -> list[TopicStats]:
    from pyspark.sql import functions as f

    found = (
        rows.groupBy("topic")
        .agg(
            f.count("*").alias("messages"),
            f.sum("size").alias("bytes"),
            f.avg("size").alias("mean"),
            f.percentile_approx("size", [0.5, 0.99], 10_000).alias("percentiles"),
            f.max("size").alias("largest"),
            f.count("keys").alias("keyed"),
            f.approx_count_distinct("keys").alias("different_keys"),
            f.count("tags").alias("tagged"),
            f.date_format(f.min("storeTimestamp"), "yyyy-MM-dd HH:mm:ss").alias("first"),
            f.date_format(f.max("storeTimestamp"), "yyyy-MM-dd HH:mm:ss").alias("last"),
        )
        .orderBy("topic")
        .collect()
    )
    return [
        TopicStats(
            row.topic,
            row.messages,
            row.bytes,
            row["mean"],
            row.percentiles[0],
            row.percentiles[1],
            row.largest,
            row.keyed,
            row.different_keys,
            row.tagged,
            row["first"],
            row["last"],
            ", ".join(
                f"{queue['broker_name']}/{queue['queue_id']}"
                for queue in queues
                if queue["topic"] == row.topic and queue["is_hot"]
            ),
        )
        for row in found
    ]


def _queues(rows: DataFrame) -> list[dict[str, object]]:
    found = rows.groupBy("topic", "brokerName", "queueId").count().orderBy("topic", "brokerName", "queueId")
    counts = {(row.topic, row.brokerName, row.queueId): row["count"] for row in found.collect()}
    return shares(counts)


def shares(counts: Mapping[tuple[str, str, int], int]) -> list[dict[str, object]]:
    """Each queue's share of its topic, and whether that is more than twice the fair one."""
    totals: dict[str, list[int]] = {}
    for (topic, _, _), count in counts.items():
        totals.setdefault(topic, []).append(count)
    return [
        {
            "topic": topic,
            "broker_name": broker,
            "queue_id": queue_id,
            "messages": count,
            "share": round(count / sum(totals[topic]), 4),
            "is_hot": len(totals[topic]) > 1 and count * len(totals[topic]) > HOT * sum(totals[topic]),
        }
        for (topic, broker, queue_id), count in sorted(counts.items())
    ]


def _windows(rows: DataFrame, window: str) -> list[Window]:
    return _as_windows(_by_window(rows, window).orderBy("topic", "start").collect())


def _by_window(rows: DataFrame, window: str) -> DataFrame:
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    try:
        return (
            rows.groupBy("topic", f.window("storeTimestamp", window).alias("window"))
            .agg(f.count("*").alias("messages"), f.sum("size").alias("bytes"))
            .select("topic", f.unix_millis("window.start").alias("start"), "messages", "bytes")
        )
    except AnalysisException as error:
        said = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"a window of {window!r} cannot be: {said}; say '1 minute', or '10 seconds'"
        ) from None


def _as_windows(rows: Iterable[object]) -> list[Window]:
    return [Window(row.topic, row.start, row.messages, row.bytes) for row in rows]  # type: ignore[attr-defined]


def _tags(rows: DataFrame) -> list[dict[str, object]]:
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as f

    rank = f.row_number().over(Over.partitionBy("topic").orderBy(f.desc("messages"), "tags"))
    found = (
        rows.where("tags is not null")
        .groupBy("topic", "tags")
        .agg(f.count("*").alias("messages"))
        .withColumn("rank", rank)
        .where(f"rank <= {TOP}")
        .orderBy("topic", "rank")
        .collect()
    )
    return [{"topic": row.topic, "tags": row.tags, "messages": row.messages} for row in found]


# ------------------------------------------------------------------------------------------ as it happens


def stream_stats(
    spark: SparkSession,
    cluster: Reach | str,
    checkpoint: str,
    *,
    topics: Iterable[str],
    window: str = "1 minute",
    every: float = 5.0,
    starting: str = "earliest",
    once: bool = False,
    stop: threading.Event | None = None,
    told: Callable[[Sequence[Window]], None] | None = None,
) -> Stats:
    """Windows as they fill: `told` gets those that changed with each batch. Ends when `stop` is set.

    With `once` it ends when everything is counted that was there. `checkpoint` is the folder in which the
    query keeps its counts: the next one goes on with them.
    """
    from pyspark.sql import functions as f

    windows: dict[tuple[str, int], Window] = {}
    batches = 0
    rows = (
        Reach.of(cluster)
        .read_stream(spark, NEEDED, subscribe=_named(topics), startingOffsets=starting)
        .select("topic", "storeTimestamp", f.octet_length("body").alias("size"))
    )

    def changed(frame: DataFrame, _: int) -> None:
        nonlocal batches
        batches += 1
        found = _as_windows(frame.collect())
        windows.update({(each.topic, each.start_ms): each for each in found})
        if told is not None and found:
            told(sorted(found, key=lambda each: (each.topic, each.start_ms)))

    query = (
        _by_window(rows, window)
        .writeStream.outputMode("update")
        .foreachBatch(changed)
        .option("checkpointLocation", checkpoint)
        .trigger(**trigger(None if once else every))
        .start()
    )
    wait_for(query, stop)
    every_window = [windows[key] for key in sorted(windows)]
    return Stats([], every_window, [], [], window, batches)


def _named(topics: Iterable[str]) -> str:
    named = ",".join(topics)
    if not named:
        raise ConfigError("say which topics")
    return named
