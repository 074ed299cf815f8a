"""Clicks become sessions: a session of a user ends when nothing was clicked for half an hour.

    topic clicks ──▶ event time, watermark of 10 minutes ──▶ sessions ──▶ Parquet ──▶ SQL

Clicks come out of order. The watermark follows the newest click at a distance of ten minutes: a click that is
older than that is too late, is dropped, and is counted. A session is written when the watermark has passed
its end.

    python examples/clickstream_sessions.py localhost:9876
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

import kourou
import kourou.spark

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
GAP, WATERMARK = "30 minutes", "10 minutes"

Click = tuple[str, str, int]
"""Who, where, and how many minutes after noon."""

MORNING: list[Click] = [
    ("anna", "/coffee", 0),
    ("ben", "/tea", 1),
    ("anna", "/cart", 7),
    ("anna", "/beans", 3),  # out of order, and in time
    ("anna", "/pay", 12),
    ("ben", "/tea/green", 20),
    ("anna", "/coffee", 90),  # a second session
]
LATER: list[Click] = [
    ("ben", "/late", 25),  # older than the watermark: 10 minutes before the newest
    ("carla", "/coffee", 200),  # and this one ends all sessions before it
]


@dataclass(frozen=True)
class Outcome:
    sessions: list[Row]
    dropped: int
    """Clicks that came too late."""


def send_clicks(name_server: str, topic: str, clicks: Iterable[Click]) -> None:
    with kourou.Producer("shop", name_server) as producer:
        for user, page, minute in clicks:
            click = {"user": user, "page": page, "at": (NOON + timedelta(minutes=minute)).isoformat()}
            producer.send(kourou.Message(topic, json.dumps(click).encode(), keys=user), key=user)


def write_sessions(spark: SparkSession, name_server: str, topic: str, folder: str) -> int:
    """Read what is new, write the sessions that are over; returns how many clicks were too late."""
    clicks = (
        spark.readStream.format("rocketmq")
        .option("namesrvAddr", name_server)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("groupId", "sessions")
        .schema("body binary")
        .load()
        .select(
            f.from_json(f.col("body").cast("string"), "user string, page string, at timestamp").alias("click")
        )
        .select("click.*")
    )
    sessions = (
        clicks.withWatermark("at", WATERMARK)
        .groupBy("user", f.session_window("at", GAP).alias("session"))
        .agg(f.count("*").alias("clicks"), f.sort_array(f.collect_list("page")).alias("pages"))
        .select(
            "user",
            f.col("session.start").alias("start"),
            f.col("session.end").alias("end"),
            "clicks",
            "pages",
        )
    )
    query = (
        sessions.writeStream.format("parquet")
        .option("path", f"{folder}/sessions")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(
        state.numRowsDroppedByWatermark
        for progress in query.recentProgress
        for state in progress.stateOperators
    )


def run(spark: SparkSession, name_server: str, folder: str, topic: str = "clicks") -> Outcome:
    send_clicks(name_server, topic, MORNING)
    dropped = write_sessions(spark, name_server, topic, folder)
    send_clicks(name_server, topic, LATER)
    dropped += write_sessions(spark, name_server, topic, folder)
    spark.read.parquet(f"{folder}/sessions").createOrReplaceTempView("sessions")
    return Outcome(spark.sql("select * from sessions order by start, user").collect(), dropped)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(kourou.spark.session("clickstream"), sys.argv[1], folder)
    for session in outcome.sessions:
        times = f"{session.start:%H:%M}-{session.end:%H:%M}"
        print(f"{times}  {session.user:<6} {session.clicks} clicks: {', '.join(session.pages)}")
    print(f"{outcome.dropped} click came too late")
