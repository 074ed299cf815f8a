"""`latency`: how long messages take, as percentiles per topic and group, and a heat map over time.

    store         born ──▶ stored                  from the messages themselves: every message has both times
    delivery      sent ──▶ a handler begins        from the message trace, where clients write one
    handling      begins ──▶ ends                  likewise
    end to end    sent ──▶ handled                 the two together

Clocks of several machines are compared here: where they differ, so do these figures. A time below zero counts
as zero, and how many there were is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kourou.spark.pipelines import picture
from kourou.spark.pipelines.reach import Reach
from kourou.spark.pipelines.report import Picture, Report, Rows
from kourou.spark.pipelines.trace import handled_messages, has_trace, sent_messages, trace_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PERCENTILES = (0.5, 0.95, 0.99, 0.999)
ACCURACY = 10_000
COLUMNS_OF_MAP = 60
STORE, DELIVERY, HANDLING, END_TO_END = "store", "delivery", "handling", "end to end"
ORDER = (STORE, DELIVERY, HANDLING, END_TO_END)


@dataclass(frozen=True)
class Latency:
    """One measure of one topic (and group, except for `store`), in milliseconds."""

    measure: str
    topic: str
    group: str
    messages: int
    p50: float
    p95: float
    p99: float
    p999: float
    longest: float
    below_zero: int


@dataclass(frozen=True)
class HeatMap:
    """How many messages took how long, when: `counts[power][column]`, of 2**power milliseconds at most."""

    measure: str
    start_ms: int
    column_ms: int
    counts: Sequence[Sequence[int]]

    def png(self) -> bytes:
        columns = [
            datetime.fromtimestamp((self.start_ms + number * self.column_ms) / 1000, UTC).strftime("%H:%M:%S")
            for number in range(len(self.counts[0]))
        ]
        rows = [spoken_ms(2**power) for power in range(len(self.counts))]
        return picture.heat_map(
            f"How long messages took: {self.measure}", columns, rows, self.counts, "messages"
        )


@dataclass(frozen=True)
class Latencies:
    measures: Sequence[Latency]
    heat_map: HeatMap | None
    remarks: Sequence[str] = ()

    def report(self, *, with_pictures: bool = False) -> Report:
        columns = (
            *("measure", "topic", "group", "messages", "p50", "p95", "p99", "p999", "longest"),
            "below_zero",
        )
        pictures = []
        if with_pictures and self.heat_map is not None:
            pictures = [Picture(f"Heat map: {self.heat_map.measure}", self.heat_map.png())]
        return Report(
            title="latency",
            facts={"measures": len(self.measures), "unit": "milliseconds"},
            tables=[Rows("latencies", columns, [vars(measure) for measure in self.measures])],
            pictures=pictures,
            remarks=self.remarks,
        )


def latency(
    spark: SparkSession,
    cluster: Reach | str,
    *,
    topics: Iterable[str] = (),
    groups: Sequence[str] | None = None,
    starting_timestamp: str | None = None,
) -> Latencies:
    """How long the messages of these topics took to be stored and, by the trace, to be handled.

    Without topics: of all that the trace tells of. `starting_timestamp` leaves out what is older.
    """
    reach, names, remarks = Reach.of(cluster), sorted(set(topics)), []
    frames: list[DataFrame] = []
    kept: list[DataFrame] = []
    if names:
        frames.append(_stored(spark, reach, names, starting_timestamp))
    if has_trace(reach):
        kept.append(trace_lines(spark, reach, starting_timestamp).cache())
        frames.append(_traced(kept[0], names, groups))
    else:
        remarks.append("No client writes a message trace, so only the time until storage is known.")
    if not frames:
        return Latencies([], None, remarks)
    times = (frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])).cache()
    try:
        return Latencies(percentiles(times), heat_map(times), remarks)
    finally:
        for frame in (times, *kept):
            frame.unpersist()


def _stored(
    spark: SparkSession, reach: Reach, topics: Sequence[str], starting_timestamp: str | None
) -> DataFrame:
    """Columns of every frame here: measure, topic, group, at (when it began, ms), ms (how long it took)."""
    from pyspark.sql import functions as f

    born, stored = f.unix_millis("bornTimestamp"), f.unix_millis("storeTimestamp")
    return reach.read(
        spark,
        "topic string, bornTimestamp timestamp, storeTimestamp timestamp",
        subscribe=",".join(topics),
        startingTimestamp=starting_timestamp,
        startingOffsetsByTimestampStrategy=None if starting_timestamp is None else "latest",
    ).select(
        f.lit(STORE).alias("measure"),
        "topic",
        f.lit("").alias("group"),
        born.alias("at"),
        (stored - born).alias("ms"),
    )


def _traced(lines: DataFrame, topics: Sequence[str], groups: Sequence[str] | None) -> DataFrame:
    from pyspark.sql import functions as f

    sent, handled = sent_messages(lines), handled_messages(lines).where("isSuccess")
    if topics:
        sent = sent.where(sent.topic.isin(list(topics)))
    if groups is not None:
        handled = handled.where(handled.group.isin(list(groups)))
    measures = (
        (DELIVERY, "sentMs", "beganMs - sentMs"),
        (HANDLING, "beganMs", "spentMs"),
        (END_TO_END, "sentMs", "beganMs + spentMs - sentMs"),
    )
    three = f.array(
        *(
            f.struct(f.lit(name).alias("measure"), f.expr(begin).alias("at"), f.expr(took).alias("ms"))
            for name, begin, took in measures
        )
    )
    return (
        sent.join(handled, "msgId")
        .select("topic", "group", f.explode(three).alias("one"))
        .select("one.measure", "topic", "group", "one.at", "one.ms")
    )


# ---------------------------------------------------------------------------------------------- summing up


def percentiles(times: DataFrame) -> list[Latency]:
    from pyspark.sql import functions as f

    rows = (
        times.withColumn("shown", f.greatest(f.col("ms"), f.lit(0)))
        .groupBy("measure", "topic", "group")
        .agg(
            f.count("*").alias("messages"),
            f.percentile_approx("shown", list(PERCENTILES), ACCURACY).alias("percentiles"),
            f.max("shown").alias("longest"),
            f.count(f.when(f.col("ms") < 0, 1)).alias("below_zero"),
        )
        .collect()
    )
    found = [
        Latency(
            row.measure,
            row.topic,
            row.group,
            row.messages,
            p50=float(row.percentiles[0]),
            p95=float(row.percentiles[1]),
            p99=float(row.percentiles[2]),
            p999=float(row.percentiles[3]),
            longest=float(row.longest),
            below_zero=row.below_zero,
        )
        for row in rows
    ]
    return sorted(found, key=lambda each: (ORDER.index(each.measure), each.topic, each.group))


def heat_map(times: DataFrame) -> HeatMap | None:
    """Of end-to-end times where there are any, else of the times until storage."""
    from pyspark.sql import functions as f

    bounds = times.groupBy("measure").agg(f.min("at").alias("low"), f.max("at").alias("high")).collect()
    by_measure = {row.measure: row for row in bounds}
    chosen = next((by_measure[name] for name in (END_TO_END, STORE) if name in by_measure), None)
    if chosen is None:
        return None
    width = max(1, -(-(chosen.high - chosen.low + 1) // COLUMNS_OF_MAP))
    counts = (
        times.where(f.col("measure") == chosen.measure)
        .select(
            ((f.col("at") - chosen.low) / width).cast("int").alias("column"),
            f.ceil(f.log2(f.greatest(f.col("ms"), f.lit(1)))).cast("int").alias("power"),
        )
        .groupBy("column", "power")
        .count()
        .collect()
    )
    columns = max(row.column for row in counts) + 1
    grid = [[0] * columns for _ in range(max(row.power for row in counts) + 1)]
    for row in counts:
        grid[row.power][row.column] = row["count"]
    return HeatMap(chosen.measure, chosen.low, width, grid)


def spoken_ms(milliseconds: int) -> str:
    """
    >>> [spoken_ms(each) for each in (1, 512, 1024, 131072)]
    ['1 ms', '512 ms', '1 s', '2 min']
    """
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    seconds = milliseconds / 1000
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
