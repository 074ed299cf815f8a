"""`archive` and what belongs to it, against a real broker: every message once, whatever was there before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kourou
from kourou.errors import ConfigError, NotFound, StoreLocked
from kourou.spark.pipelines.archive import archive
from kourou.spark.pipelines.audit import audit_lake
from kourou.spark.pipelines.lake import Lake
from kourou.spark.pipelines.lake_frames import read_lake
from kourou.spark.pipelines.reach import Reach

pytestmark = pytest.mark.timeout(600)

Fill = Callable[..., None]
NewTopic = Callable[..., str]


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def bodies_in(spark: SparkSession, lake: Path) -> list[int]:
    return sorted(int(row.body) for row in read_lake(spark, str(lake)).select("body").collect())


def test_what_was_archived_is_all_there_and_the_next_run_adds_only_what_is_new(
    spark: SparkSession, broker: kourou.LocalBroker, new_topic: NewTopic, fill: Fill, tmp_path: Path
) -> None:
    topic, lake = new_topic(3), tmp_path / "lake"
    fill(topic, numbers(100), keys="k", tags="t", properties={"colour": "red"})
    first = archive(spark, broker.name_server, str(lake), topics=[topic])
    assert (first.rows, first.by_topic) == (100, {topic: 100})
    assert archive(spark, broker.name_server, str(lake), topics=[topic]).rows == 0
    fill(topic, numbers(50, 100))
    seen: list[tuple[int, int]] = []
    again = archive(
        spark, broker.name_server, str(lake), topics=[topic], progress=lambda *each: seen.append(each)
    )
    assert again.rows == 50
    assert seen == [(50, 50)]
    assert bodies_in(spark, lake) == list(range(150))
    rows = read_lake(spark, str(lake)).where("cast(cast(body as string) as int) < 100").collect()
    assert {row.topic for row in rows} == {topic}
    assert all(row.keys == "k" and row.properties["colour"] == "red" for row in rows)
    assert audit_lake(spark, str(lake), broker.name_server).is_ok
    assert "messages" in again.report().facts


def test_a_plain_spark_read_of_the_folder_sees_the_same_rows(
    spark: SparkSession, broker: kourou.LocalBroker, new_topic: NewTopic, fill: Fill, tmp_path: Path
) -> None:
    topic, lake = new_topic(2), tmp_path / "lake"
    fill(topic, numbers(20))
    archive(spark, broker.name_server, str(lake), topics=[topic])
    (lake / f"topic={topic}" / "date=2020-01-01").mkdir()
    (lake / f"topic={topic}" / "date=2020-01-01" / ".part-of-a-task-that-died.tmp").write_bytes(b"half")
    assert spark.read.parquet(str(lake)).count() == 20
    archive(spark, broker.name_server, str(lake), topics=[topic])
    assert not list(lake.rglob(".part*")), "what a task left is swept away"


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_the_table_formats_hold_the_same_rows_once(
    table_format: str,
    spark: SparkSession,
    broker: kourou.LocalBroker,
    new_topic: NewTopic,
    fill: Fill,
    tmp_path: Path,
) -> None:
    topic, lake = new_topic(2), tmp_path / "lake"
    for start in (0, 30):
        fill(topic, numbers(30, start))
        archive(spark, broker.name_server, str(lake), topics=[topic], table_format=table_format)
    with Lake(str(lake)).writing(table_format) as writing:
        writing.finish()  # as after a crash: what the table knows it is not told again
    if table_format == "delta":
        from deltalake import DeltaTable

        paths = DeltaTable(str(lake)).file_uris()
    else:
        from kourou.spark.pipelines.iceberg_table import IcebergTable

        paths = [task.file.file_path for task in IcebergTable(str(lake)).table().scan().plan_files()]
    assert spark.read.parquet(*paths).count() == 60
    assert bodies_in(spark, lake) == list(range(60))
    with pytest.raises(ConfigError, match=f"has the format {table_format}, not manifest"):
        archive(spark, broker.name_server, str(lake), topics=[topic])


def test_a_continuous_archive_goes_on_until_it_is_stopped_and_loses_nothing(
    spark: SparkSession, broker: kourou.LocalBroker, new_topic: NewTopic, fill: Fill, tmp_path: Path
) -> None:
    topic, lake, stop = new_topic(2), tmp_path / "lake", threading.Event()
    fill(topic, numbers(10))

    def progress(done: int, _: int) -> None:
        if done == 10:
            fill(topic, numbers(10, 10))
        if done >= 20:
            stop.set()

    done = archive(
        spark,
        broker.name_server,
        str(lake),
        pattern=f"{topic}.*",
        continuous=True,
        every=0.2,
        stop=stop,
        progress=progress,
    )
    assert done.rows == 20
    assert bodies_in(spark, lake) == list(range(20))


def test_a_run_that_is_stopped_keeps_what_it_has_committed_and_the_next_adds_the_rest(
    spark: SparkSession, broker: kourou.LocalBroker, new_topic: NewTopic, fill: Fill, tmp_path: Path
) -> None:
    topic, lake, stop = new_topic(1), tmp_path / "lake", threading.Event()
    fill(topic, numbers(30))
    few_at_a_time = Reach(broker.name_server, {"maxOffsetsPerTrigger": "10"})
    stopped = archive(
        spark, few_at_a_time, str(lake), topics=[topic], stop=stop, progress=lambda *_: stop.set()
    )
    assert (stopped.rows, stopped.commits) == (10, 1)
    assert archive(spark, few_at_a_time, str(lake), topics=[topic]).commits == 2
    assert bodies_in(spark, lake) == list(range(30))


def test_a_dry_run_says_what_there_is_to_do_and_makes_nothing(
    spark: SparkSession, broker: kourou.LocalBroker, new_topic: NewTopic, fill: Fill, tmp_path: Path
) -> None:
    topic = new_topic(2)
    fill(topic, numbers(7))
    planned = archive(spark, broker.name_server, str(tmp_path / "lake"), topics=[topic], dry_run=True)
    assert sum(queue.behind for queue in planned.queues) == 7
    assert planned.report().facts["messages"] == 7
    assert not (tmp_path / "lake").exists()


def test_one_lake_has_one_writer_at_a_time(
    spark: SparkSession, broker: kourou.LocalBroker, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(1)
    with (
        Lake(str(tmp_path / "lake")).writing(),
        pytest.raises(StoreLocked, match="another archive is writing"),
    ):
        archive(spark, broker.name_server, str(tmp_path / "lake"), topics=[topic])


def test_what_cannot_be_archived_is_said_in_one_line(
    spark: SparkSession, broker: kourou.LocalBroker, tmp_path: Path
) -> None:
    with pytest.raises(NotFound, match="no-such-topic"):
        archive(spark, broker.name_server, str(tmp_path / "lake"), topics=["no-such-topic"])
    with pytest.raises(ConfigError, match="by name, or by a pattern"):
        archive(spark, broker.name_server, str(tmp_path / "lake"))
    with pytest.raises(ConfigError, match="is no lake"):
        audit_lake(spark, str(tmp_path / "lake"))
