"""Traps of Spark itself, each as a regression test: what went wrong with other sources must not with ours.

The numbers are those of the list in `docs/spark.md`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.streaming.datasource import ReadAllAvailable

import kourou
from kourou.spark.data_loss import DataLoss
from kourou.spark.reader import TopicReader
from kourou.spark.stream import TopicStreamReader

NewTopic = Callable[..., str]
Fill = Callable[..., None]
Source = Callable[..., DataFrame]
RowsBetween = Callable[[TopicStreamReader, dict[str, Any], dict[str, Any]], int]


# ------------------------------------------------------------------------------------ 1: leaking filters


def test_filters_of_one_query_do_not_leak_into_the_next(
    source: Source, new_topic: NewTopic, fill: Fill
) -> None:
    topic = new_topic(4)
    fill(topic, [b"x"] * 100)
    frame = source(topic, "queueId int, queueOffset bigint")
    assert frame.filter("queueId = 1").count() == 25
    assert frame.count() == 100
    assert frame.filter("queueId = 3 or queueId = 1").count() == 50
    both = frame.filter("queueId = 1").union(frame.filter("queueId = 2")).groupBy("queueId").count()
    assert {row.queueId: row["count"] for row in both.collect()} == {1: 25, 2: 25}
    one = frame.filter("queueId = 1").alias("one")
    joined = one.join(frame.alias("all"), ["queueId", "queueOffset"])
    assert joined.count() == 25


def test_nothing_is_pushed_down() -> None:
    assert TopicReader.pushFilters is DataSourceReader.pushFilters


# ------------------------------------------------------------------------------- 2: the start is forgotten


@pytest.mark.parametrize("start", [{"startingOffsets": "latest"}, {"startingTimestamp": "now"}])
def test_the_start_survives_a_crash_before_the_first_batch_is_done(
    stream_reader: Callable[..., TopicStreamReader],
    rows_between: RowsBetween,
    new_topic: NewTopic,
    fill: Fill,
    start: dict[str, str],
) -> None:
    topic = new_topic(2)
    fill(topic, [b"before"] * 10)
    group = f"g-{topic}"
    if "startingTimestamp" in start:
        import time

        time.sleep(0.01)
        start = {"startingTimestamp": str(round(time.time() * 1000))}
    first = stream_reader(topic, groupId=group, **start)
    begun = first.initialOffset()
    assert first.initialOffset() == begun
    fill(topic, [b"after"] * 4)
    end = first.latestOffset(begun, ReadAllAvailable())
    fill(topic, [b"much later"] * 90)
    again = stream_reader(topic, groupId=group, **start)  # Spark was killed, and starts the query once more
    assert again.initialOffset() == begun
    assert rows_between(again, again.initialOffset(), end) == 4


def test_a_new_query_begins_where_its_options_say_and_not_where_an_old_one_began(
    stream_reader: Callable[..., TopicStreamReader], new_topic: NewTopic, fill: Fill
) -> None:
    topic = new_topic(1)
    group = f"g-{topic}"
    old = stream_reader(topic, groupId=group, startingOffsets="latest")
    begun = old.initialOffset()
    fill(topic, [b"x"] * 5)
    end = old.latestOffset(begun, ReadAllAvailable())
    old.latestOffset(end, ReadAllAvailable())  # batch 0 is done, and Spark says so
    fill(topic, [b"x"] * 5)
    new = stream_reader(topic, groupId=group, startingOffsets="latest")
    assert new.initialOffset() == {topic: {"kourou": {"0": 10}}}


def test_a_start_beyond_the_end_is_a_loss_and_not_an_empty_batch(
    stream_reader: Callable[..., TopicStreamReader], new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    reader = stream_reader(topic)
    with pytest.raises(DataLoss, match="94 messages, offsets 106 to 199"):
        reader.partitions({topic: {"kourou": {"0": 200}}}, {topic: {"kourou": {"0": 106}}})
    tolerant = stream_reader(topic, failOnDataLoss="false")
    assert tolerant.partitions({topic: {"kourou": {"0": 200}}}, {topic: {"kourou": {"0": 106}}}) == []


# Trap 3, the commit that misses the last batch: test_streaming.py. Trap 4, the writer: the sink's tests.

# ------------------------------------------------------------------------------------- 5: offsets as text


def test_offsets_have_one_text(
    stream_reader: Callable[..., TopicStreamReader], new_topic: NewTopic, fill: Fill
) -> None:
    topics = sorted(new_topic(12, name="text") for _ in range(2))
    for topic in topics:
        fill(topic, [b"x"] * 12)
    reader = stream_reader(",".join(reversed(topics)), startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    shuffled = json.loads(json.dumps({topic: end[topic] for topic in reversed(topics)}))
    assert json.dumps(reader.latestOffset(shuffled, ReadAllAvailable())) == json.dumps(end)
    assert list(end) == topics
    assert list(end[topics[0]]["kourou"]) == [str(number) for number in range(12)]


# ----------------------------------------------------------------------------------- 6: a plan is kept


def test_a_table_of_the_catalog_sees_what_is_new(
    spark: SparkSession, broker: kourou.LocalBroker, new_topic: NewTopic, fill: Fill
) -> None:
    """A DataFrame keeps the plan of its first use, and with it the end it had then; a table plans anew."""
    topic = new_topic(1)
    fill(topic, [b"x"] * 3)
    spark.sql("DROP TABLE IF EXISTS planned_anew")
    spark.sql(
        "CREATE TABLE planned_anew USING rocketmq "
        f"OPTIONS (namesrvAddr '{broker.name_server}', subscribe '{topic}')"
    )
    assert spark.sql("SELECT count(*) FROM planned_anew").first()[0] == 3  # type: ignore[index]
    fill(topic, [b"x"] * 2)
    assert spark.sql("SELECT count(*) FROM planned_anew").first()[0] == 5  # type: ignore[index]
    spark.sql("DROP TABLE planned_anew")


def test_a_table_with_columns_of_its_own_says_what_is_missing(
    spark: SparkSession, broker: kourou.LocalBroker, new_topic: NewTopic
) -> None:
    """Trap 10. Where the schema is the user's, it cannot bring the options along."""
    spark.sql("DROP TABLE IF EXISTS own_columns")
    spark.sql(
        "CREATE TABLE own_columns (topic string) USING rocketmq "
        f"OPTIONS (namesrvAddr '{broker.name_server}', subscribe '{new_topic(1)}')"
    )
    with pytest.raises(PySparkException, match="create it without a list of columns"):
        spark.sql("SELECT * FROM own_columns").collect()
    spark.sql("DROP TABLE own_columns")


# --------------------------------------------------------------------------- 7: a package that fails to load


def test_a_missing_extra_hides_nobody_else_s_source(tmp_path: Path) -> None:
    """One `pyspark_*` package that cannot be imported would hide all others from Spark."""
    broken = tmp_path / "pyarrow.py"
    broken.write_text("raise ImportError('not installed')")
    script = "import pyspark_rocketmq; print(pyspark_rocketmq.DefaultSource.name())"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
    )
    assert said.stdout.strip() == "rocketmq"


# ------------------------------------------------------------------------------- 8: partitions by replay


def test_a_batch_planned_again_has_the_same_partitions(
    stream_reader: Callable[..., TopicStreamReader], new_topic: NewTopic, fill: Fill
) -> None:
    topic = new_topic(3)
    fill(topic, [b"x" * (number % 7 * 100 + 1) for number in range(300)])
    options = {"targetPartitionBytes": "10k", "startingOffsets": "earliest"}
    first = stream_reader(topic, **options)
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    planned = [part.ranges for part in first.partitions(start, end)]  # type: ignore[attr-defined]
    fill(topic, [b"x" * 5000] * 50)
    again = stream_reader(topic, **options)
    assert [part.ranges for part in again.partitions(start, end)] == planned  # type: ignore[attr-defined]
    assert len(planned) > 3


# ------------------------------------------------------------------------------ 9: speculative execution


def test_speculation_is_off(spark: SparkSession) -> None:
    assert spark.conf.get("spark.speculation") == "false"
