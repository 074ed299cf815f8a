"""Streaming queries of a real Spark against a real broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import kourou
from kourou.local.published import make_topic

NewTopic = Callable[..., str]
Fill = Callable[..., None]
Committed = Callable[[str, str], dict[int, int]]


@pytest.fixture
def stream(spark: SparkSession, broker: kourou.LocalBroker) -> Callable[..., DataFrame]:
    def read(topic: str | None = None, **options: str) -> DataFrame:
        reader = spark.readStream.format("rocketmq").option("namesrvAddr", broker.name_server)
        if topic is not None:
            reader = reader.option("subscribe", topic)
        return reader.options(**options).load()

    return read


@pytest.fixture
def committed(broker: kourou.LocalBroker) -> Committed:
    """Where a group is, as the broker tells."""

    def ask(group: str, topic: str) -> dict[int, int]:
        with kourou.PullConsumer(group, topic, broker.name_server, announce=False) as consumer:
            places = {queue.queue_id: consumer.committed(queue) for queue in consumer.queues()}
        return {queue_id: place for queue_id, place in places.items() if place is not None}

    return ask


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def started(frame: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    """Into files, which survive a restart; with Trigger.AvailableNow unless said otherwise."""
    return (
        frame.select("topic", "queueId", "queueOffset", "body")
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**(trigger or {"availableNow": True}))
        .start()
    )


def run(frame: DataFrame, folder: Path) -> StreamingQuery:
    query = started(frame, folder)
    assert query.awaitTermination(50)
    return query


def written(spark: SparkSession, folder: Path) -> list[int]:
    rows = spark.read.parquet(str(folder / "out")).collect()
    assert len({(row.topic, row.queueId, row.queueOffset) for row in rows}) == len(rows)
    return sorted(int(row.body) for row in rows)


def test_batches_keep_to_the_limit_and_the_group_is_where_spark_is(
    stream: Callable[..., DataFrame],
    spark: SparkSession,
    new_topic: NewTopic,
    fill: Fill,
    committed: Committed,
    tmp_path: Path,
) -> None:
    topic = new_topic(2)
    fill(topic, numbered(50))
    frame = stream(topic, startingOffsets="earliest", groupId="g-limit", maxOffsetsPerTrigger="20")
    query = run(frame, tmp_path)
    assert [progress.numInputRows for progress in query.recentProgress] == [20, 20, 10]
    assert written(spark, tmp_path) == list(range(50))
    # Spark never commits the last batch of Trigger.AvailableNow by itself; the group must not lag behind.
    assert sum(committed("g-limit", topic).values()) == 50
    fill(topic, numbered(5, 50))
    query = run(frame, tmp_path)
    assert [progress.numInputRows for progress in query.recentProgress] == [5]
    assert written(spark, tmp_path) == list(range(55))
    assert sum(committed("g-limit", topic).values()) == 55


def test_new_queues_are_found_and_read_from_their_beginning(
    stream: Callable[..., DataFrame],
    spark: SparkSession,
    new_topic: NewTopic,
    producer: kourou.Producer,
    broker: kourou.LocalBroker,
    tmp_path: Path,
) -> None:
    topic = new_topic(1)
    producer.send(kourou.Message(topic, b"0"))
    frame = stream(subscribePattern=f"{topic}|{topic}-later", startingOffsets="earliest", groupId="g-new")
    query = started(frame, tmp_path, processingTime="100 milliseconds")
    query.processAllAvailable()
    make_topic(broker.address, topic, 3)
    make_topic(broker.address, f"{topic}-later", 1)
    with kourou.Producer("fresh-routes", broker.name_server) as fresh:
        for body in numbered(6, 1):
            fresh.send(kourou.Message(topic, body))
        fresh.send(kourou.Message(f"{topic}-later", b"7"))
    _until(lambda: len(written(spark, tmp_path)) == 8)
    query.stop()
    assert written(spark, tmp_path) == list(range(8))
    assert len(spark.read.parquet(str(tmp_path / "out")).select("queueId").distinct().collect()) == 3


def test_a_query_that_fails_in_its_first_batch_goes_on_where_it_began(
    stream: Callable[..., DataFrame], new_topic: NewTopic, fill: Fill, committed: Committed, checkpoint: str
) -> None:
    """Trap 2, with Spark: it asks for "latest" again, and must not be told what that is by then."""
    topic, taken = new_topic(2), list[int]()
    fill(topic, numbered(10, 1000))
    frame = stream(topic, groupId="g-first", startingOffsets="latest").select("body")

    def fail(batch: DataFrame, number: int) -> None:
        raise RuntimeError(f"batch {number} is not done")

    def take(batch: DataFrame, number: int) -> None:
        taken.extend(int(row.body) for row in batch.collect())

    first = frame.writeStream.foreachBatch(fail).option("checkpointLocation", checkpoint).start()
    _until(lambda: len(committed("g-first", topic)) == 2)  # where it began, kept before Spark hears it
    fill(topic, numbered(4))
    with pytest.raises(StreamingQueryException, match="batch 0 is not done"):
        first.awaitTermination(60)
    fill(topic, numbered(50, 4))
    again = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
    assert again.trigger(availableNow=True).start().awaitTermination(60)
    assert sorted(taken) == list(range(54))


def _until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    import time

    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)
