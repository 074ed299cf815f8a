"""Rows of Spark into topics, against a real broker: every column, every option, what cannot be written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import kourou
from kourou.client.queue_choice import by_key
from kourou.protocol.bodies import MessageQueue
from tests.interop.ours import wait_until

pytestmark = pytest.mark.timeout(600)  # on a busy machine Spark takes its time to start a worker

Write = Callable[..., None]


@pytest.fixture
def write(broker: kourou.LocalBroker) -> Write:
    """A batch write of a DataFrame."""

    def save(frame: DataFrame, topic: str | None = None, **options: str) -> None:
        writer = frame.write.format("rocketmq").option("namesrvAddr", broker.name_server).mode("append")
        if topic is not None:
            writer = writer.option("topic", topic)
        writer.options(**options).save()

    return save


def rows_of(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: (row.queueId, row.queueOffset))


BOTH = pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])


@BOTH
def test_every_column_becomes_part_of_the_message(
    spark: SparkSession, new_topic: Any, source: Any, write: Write, delivery: str
) -> None:
    topic = new_topic(queues=4)
    rows = [
        (f"body {i}".encode(), f"k{i} all", "even" if i % 2 == 0 else None, {"n": str(i), "ö": "ü"})
        for i in range(50)
    ]
    frame = spark.createDataFrame(
        rows, "body binary, keys string, tags string, properties map<string,string>"
    )
    write(frame, topic, delivery=delivery)
    found = rows_of(source(topic))
    assert sorted(bytes(row.body) for row in found) == sorted(body for body, *_ in rows)
    by_body = {bytes(row.body): row for row in found}
    for body, keys, tags, properties in rows:
        row = by_body[body]
        assert (row.keys, row.tags) == (keys, tags)
        assert {name: row.properties[name] for name in properties} == properties
    assert len({row.msgId for row in found}) == 50
    assert all(len(row.msgId) == 32 for row in found)


@BOTH
def test_rows_that_were_read_can_be_written_as_they_are(
    new_topic: Any, fill: Any, source: Any, write: Write, delivery: str
) -> None:
    first, second = new_topic(queues=3), new_topic(queues=3)
    fill(first, [b"%d" % i for i in range(60)], keys="key", tags="tag", properties={"colour": "red"})
    write(source(first), second, delivery=delivery)
    original, copied = rows_of(source(first)), rows_of(source(second))

    def content(row: Row) -> tuple[Any, ...]:
        own = {name: value for name, value in row.properties.items() if name == "colour"}
        return row.queueId, row.queueOffset, row.msgId, row.keys, row.tags, bytes(row.body), own, row.flag

    assert [content(row) for row in copied] == [content(row) for row in original]
    assert all(copy.bornTimestamp >= row.bornTimestamp for copy, row in zip(copied, original, strict=True))


@BOTH
def test_born_times_can_be_kept(
    spark: SparkSession, new_topic: Any, source: Any, write: Write, delivery: str
) -> None:
    topic = new_topic(queues=1)
    moments = [datetime(2020, 1, 1 + i, 12, 30, 15, 250_000, tzinfo=UTC) for i in range(5)]
    frame = spark.createDataFrame(
        [(b"x", moment) for moment in moments], "body binary, bornTimestamp timestamp"
    )
    write(frame, topic, delivery=delivery, keepBornTimestamp="true")
    found = source(topic).selectExpr("unix_millis(bornTimestamp) AS ms").collect()
    assert sorted(row.ms for row in found) == [int(moment.timestamp() * 1000) for moment in moments]


@BOTH
def test_one_sharding_key_has_one_queue_and_it_is_the_clients(
    spark: SparkSession, broker: kourou.LocalBroker, new_topic: Any, source: Any, write: Write, delivery: str
) -> None:
    topic = new_topic(queues=4)
    keys = [f"order-{i % 9}" for i in range(90)]
    frame = spark.createDataFrame(
        [(str(i).encode(), key) for i, key in enumerate(keys)], "body binary, shardingKey string"
    )
    write(frame.coalesce(1), topic, delivery=delivery)
    found = rows_of(source(topic))
    queues = [MessageQueue(topic=topic, broker_name="kourou", queue_id=i) for i in range(4)]
    for row in found:
        key = keys[int(row.body)]
        assert row.queueId == by_key(queues, key).queue_id
        assert row.properties["__SHARDINGKEY"] == key
    for queue_id in range(4):
        in_queue = [int(row.body) for row in found if row.queueId == queue_id]
        assert in_queue == sorted(in_queue), "a queue keeps the order of the rows"


@BOTH
def test_topic_queue_and_id_of_a_row_are_respected(
    spark: SparkSession, new_topic: Any, source: Any, write: Write, delivery: str
) -> None:
    one, two = new_topic(queues=2), new_topic(queues=2)
    rows = [(one, 1, "A" * 32, b"a"), (two, 0, None, b"b"), (one, None, "", b"c"), (two, 1, "B" * 32, b"d")]
    frame = spark.createDataFrame(rows, "topic string, queueId int, msgId string, body binary")
    write(frame, delivery=delivery)
    of_one, of_two = rows_of(source(one)), rows_of(source(two))
    assert {(bytes(row.body), row.queueId) for row in of_two} == {(b"b", 0), (b"d", 1)}
    assert {bytes(row.body): row.msgId for row in (*of_one, *of_two)} | {b"b": "", b"c": ""} == {
        b"a": "A" * 32,
        b"b": "",
        b"c": "",
        b"d": "B" * 32,
    }


@BOTH
def test_a_row_can_be_delivered_later(
    spark: SparkSession, new_topic: Any, source: Any, write: Write, delivery: str
) -> None:
    topic = new_topic()
    soon = datetime.now(tz=UTC) + timedelta(seconds=3)
    rows = [(b"now", None, None), (b"level", 2, None), (b"moment", None, soon)]
    frame = spark.createDataFrame(rows, "body binary, delayLevel int, deliverAt timestamp")
    write(frame, topic, delivery=delivery)
    times = source(topic).selectExpr(
        "CAST(body AS STRING) AS body",
        "unix_millis(storeTimestamp) AS stored",
        "unix_millis(storeTimestamp) - unix_millis(bornTimestamp) AS waited",
    )
    wait_until(lambda: source(topic).count() == 3, 100, "all rows were delivered")
    found = {row.body: row for row in times.collect()}
    assert sorted(found) == ["level", "moment", "now"]
    assert found["level"].waited >= 4_900  # level 2 is five seconds
    assert found["moment"].stored >= int(soon.timestamp() * 1000)


def test_a_text_is_a_body_and_sql_writes_too(
    spark: SparkSession, broker: kourou.LocalBroker, new_topic: Any, source: Any, write: Write
) -> None:
    topic = new_topic()
    write(spark.createDataFrame([("grüße",)], "body string"), topic)
    table = f"out_{topic.replace('-', '_')}"
    where = f"namesrvAddr '{broker.name_server}', topic '{topic}'"
    spark.sql(
        f"CREATE TEMPORARY VIEW view_{table} (body BINARY, keys STRING) USING rocketmq OPTIONS ({where})"
    )
    spark.sql(f"INSERT INTO view_{table} VALUES (CAST('hello' AS BINARY), 'k')")
    spark.sql(f"CREATE TABLE {table} (body BINARY, keys STRING) USING rocketmq OPTIONS ({where})")
    # Spark does not tell a Python sink the options of a table of its catalog, only those of the statement.
    said = f"namesrvAddr = '{broker.name_server}', topic = '{topic}'"
    spark.sql(f"INSERT INTO {table} WITH ({said}) VALUES (CAST('table' AS BINARY), 'k')")
    with pytest.raises(Exception, match=r"where is the cluster|does not tell the options of this table"):
        spark.sql(f"INSERT INTO {table} VALUES (CAST('lost' AS BINARY), 'k')")
    assert sorted(bytes(row.body).decode() for row in source(topic).collect()) == ["grüße", "hello", "table"]


def test_the_same_transaction_twice_is_written_once(
    spark: SparkSession, new_topic: Any, source: Any, write: Write
) -> None:
    topic = new_topic()
    frame = spark.range(1000).selectExpr("CAST(id AS STRING) AS body")
    for _ in range(2):
        write(frame, topic, delivery="exactly-once", transactionId=f"job-{topic}", transactionNumber="7")
    assert source(topic).count() == 1000
    write(frame, topic, delivery="exactly-once", transactionId=f"job-{topic}", transactionNumber="8")
    assert source(topic).count() == 2000


@BOTH
def test_a_query_writes_each_batch_and_a_restarted_one_goes_on(
    spark: SparkSession,
    broker: kourou.LocalBroker,
    new_topic: Any,
    fill: Any,
    source: Any,
    checkpoint: str,
    delivery: str,
) -> None:
    first, second = new_topic(), new_topic()

    def copy() -> None:
        stream = (
            spark.readStream.format("rocketmq")
            .option("namesrvAddr", broker.name_server)
            .option("subscribe", first)
            .option("startingOffsets", "earliest")
            .load()
        )
        query = (
            stream.writeStream.format("rocketmq")
            .option("namesrvAddr", broker.name_server)
            .option("topic", second)
            .option("delivery", delivery)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(150)

    fill(first, [b"%d" % i for i in range(300)])
    copy()
    fill(first, [b"%d" % i for i in range(300, 500)])
    copy()
    copy()
    found = source(second).select("body", "msgId").collect()
    assert sorted(int(row.body) for row in found) == list(range(500))
    assert len({row.msgId for row in found}) == 500


def test_rows_of_a_task_that_was_stopped_in_the_middle_are_not_there(
    spark: SparkSession,
    broker: kourou.LocalBroker,
    new_topic: Any,
    fill: Any,
    source: Any,
    checkpoint: str,
) -> None:
    """Its writer sees its input end as if that was all of it."""
    first, second = new_topic(queues=1), new_topic()
    fill(first, [b"%d" % i for i in range(2_000)])
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")

    def start(pause: float) -> StreamingQuery:
        def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                time.sleep(pause)
                yield batch

        stream = (
            spark.readStream.format("rocketmq")
            .options(namesrvAddr=broker.name_server, subscribe=first, startingOffsets="earliest")
            .load()
            .select("body")
            .mapInArrow(slowly, "body binary")
        )
        return (
            stream.writeStream.format("rocketmq")
            .options(namesrvAddr=broker.name_server, topic=second, delivery="exactly-once")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )

    try:
        query = start(0.1)
        wait_until(lambda: open_stages(broker) > 0, 150, "something was staged")
        query.stop()
        assert source(second).count() == 0
        assert start(0.0).awaitTermination(150)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert sorted(int(row.body) for row in source(second).collect()) == list(range(2_000))
    assert open_stages(broker) == 0


def open_stages(broker: kourou.LocalBroker) -> int:
    node = broker._node
    assert node is not None
    return node.broker.sequences.open_stages


# ------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("columns", "row", "options", "said"),
    [
        ("value binary", (b"x",), {}, "there is no column 'body' to write"),
        ("body binary, kees string", (b"x", "k"), {}, "column 'kees' cannot be written; did you mean keys?"),
        ("body int", (1,), {}, "column body is int32"),
        ("body binary", (None,), {}, "row 0 has no body"),
        ("body binary", (b"",), {}, "row 0 has an empty body"),
        ("body binary, keys string", (b"x", "a\x01b"), {}, "U+0001 or U+0002"),
        ("body binary, queueId int", (b"x", 9), {}, "queue 9: there is no such queue"),
        ("body binary", (b"x",), {"topic": "no such topic"}, "topic"),
        ("body binary", (b"x",), {"topic": "no-such-topic"}, "kourou topic create no-such-topic"),
        ("body binary", (b"x",), {"delivery": "twice"}, "must be at-least-once or exactly-once"),
        ("body binary", (b"x",), {"delivry": "exactly-once"}, "did you mean delivery?"),
        ("body binary", (b"x",), {"transactionNumber": "1"}, "needs transactionId"),
        ("body binary, topic string", (b"x", None), {"topic": ""}, "row 0 has no topic"),
        ("body binary", (b"x",), {"topic": ""}, "where to? Give the option topic"),
    ],
)
def test_what_cannot_be_written_is_told_in_one_line(
    spark: SparkSession,
    new_topic: Any,
    write: Write,
    columns: str,
    row: Any,
    options: dict[str, str],
    said: str,
) -> None:
    frame = spark.createDataFrame([row], columns)
    with pytest.raises(Exception) as failed:  # what Spark makes of it differs
        write(frame, **{"topic": new_topic(), **options})
    assert said in str(failed.value)


def test_a_topic_cannot_be_overwritten(
    spark: SparkSession, broker: kourou.LocalBroker, new_topic: Any
) -> None:
    frame = spark.createDataFrame([(b"x",)], "body binary")
    writer = frame.write.format("rocketmq").option("namesrvAddr", broker.name_server)
    with pytest.raises(Exception, match="cannot be overwritten"):
        writer.option("topic", new_topic()).mode("overwrite").save()


def test_a_row_that_a_broker_refuses_fails_the_task_with_its_place(
    spark: SparkSession, new_topic: Any, write: Write
) -> None:
    topic = new_topic(queues=1)
    frame = spark.createDataFrame([(b"x" * (4 * 1024 * 1024 + 1),)], "body binary")
    with pytest.raises(Exception) as failed:
        write(frame, topic)
    assert f"topic '{topic}', broker kourou, queue 0: 1 rows not written" in str(failed.value)
    assert "maxMessageSize" in str(failed.value)
