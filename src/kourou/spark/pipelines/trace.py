"""The message trace as two frames: what was sent, and how each handling of it went.

One handling is two lines of the trace, its begin and its end, which belong together by request and message
id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.admin import topics as admin_topics
from kourou.protocol.names import TRACE_TOPIC
from kourou.spark.pipelines.reach import Reach

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRACED = (
    "kind string, time timestamp, group string, topic string, msgId string, spentMs bigint, success boolean, "
    "requestId string"
)


def has_trace(reach: Reach) -> bool:
    """Whether there is a trace topic at all."""
    with reach.connection() as connection:
        return admin_topics.exists(connection, TRACE_TOPIC)


def trace_lines(spark: SparkSession, reach: Reach, starting_timestamp: str | None = None) -> DataFrame:
    """The lines of the trace. Both frames are made of them, so keep them: `.cache()`."""
    return reach.read(
        spark,
        TRACED,
        table="trace",
        startingTimestamp=starting_timestamp,
        startingOffsetsByTimestampStrategy=None if starting_timestamp is None else "latest",
    )


def sent_messages(lines: DataFrame) -> DataFrame:
    """msgId, topic, sentMs (since 1970): one row for each message, its first send."""
    from pyspark.sql import functions as f

    return (
        lines.where("kind = 'Pub' and success")
        .groupBy("msgId")
        .agg(f.min_by("topic", "time").alias("topic"), f.unix_millis(f.min("time")).alias("sentMs"))
    )


def handled_messages(lines: DataFrame) -> DataFrame:
    """group, msgId, beganMs, spentMs, isSuccess: one row for each time a message was handled to an end."""
    from pyspark.sql import functions as f

    begins, ends = f.col("kind") == "SubBefore", f.col("kind") == "SubAfter"
    return (
        lines.where(begins | ends)
        .groupBy("requestId", "msgId")
        .agg(
            f.max(f.when(begins, f.col("group"))).alias("group"),
            f.unix_millis(f.min(f.when(begins, f.col("time")))).alias("beganMs"),
            f.max(f.when(ends, f.col("spentMs"))).alias("spentMs"),
            f.max(f.when(ends, f.col("success"))).alias("isSuccess"),
        )
        .where("beganMs is not null and isSuccess is not null")
    )
