"""`scan-store`, over the files of a real broker that was stopped and then harmed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kourou
from kourou.errors import ConfigError
from kourou.local.published import make_topic
from kourou.spark.pipelines.lake_frames import read_lake
from kourou.spark.pipelines.restore import restore
from kourou.spark.pipelines.scan_store import scan_store

pytestmark = pytest.mark.timeout(600)

MESSAGES = 60


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a broker that has taken some messages and was stopped."""
    folder = tmp_path_factory.mktemp("stopped")
    with kourou.LocalBroker(folder, broker_name="old", segment_bytes=64 * 1024) as broker:
        make_topic(broker.address, "kept", 2)
        with kourou.Producer("p", broker.name_server) as producer:
            for number in range(MESSAGES):
                producer.send(kourou.Message("kept", b"message %04d" % number, keys=f"k{number}"))
    return folder / "store"


def test_a_healthy_store_has_no_faults_and_can_be_put_into_another_cluster(
    spark: SparkSession, stopped: Path, tmp_path: Path
) -> None:
    scanned = scan_store(spark, str(stopped), recover=str(tmp_path / "lake"))
    assert (scanned.records, scanned.counts, scanned.faults) == (MESSAGES, {"ok": MESSAGES}, [])
    assert scanned.recovered is not None
    assert scanned.recovered.by_topic == {"kept": MESSAGES}
    rows = read_lake(spark, str(tmp_path / "lake")).select("body").collect()
    assert sorted(bytes(row.body) for row in rows) == [b"message %04d" % number for number in range(MESSAGES)]
    with kourou.LocalBroker() as another:
        restored = restore(spark, str(tmp_path / "lake"), another.name_server)
        assert (restored.rows, restored.is_verified) == (MESSAGES, True)
    with pytest.raises(ConfigError, match="has something in it"):
        scan_store(spark, str(stopped), recover=str(tmp_path / "lake"))


def test_every_fault_is_listed_and_the_rest_recovered(
    spark: SparkSession, stopped: Path, tmp_path: Path
) -> None:
    harmed = tmp_path / "store"
    shutil.copytree(stopped, harmed)
    log = harmed / "commitlog" / ("0" * 20)
    with log.open("r+b") as file:
        data = file.read()
        file.seek(data.index(b"message 0007"))
        file.write(b"MESSAGE")  # another body than its CRC says
        start = data.index(b"message 0021")
        file.seek(start - 200 if start > 200 else 0)
        file.write(b"\xff" * 150)  # what was a record, or the end of one, is none any more
    (harmed / "consumequeue" / "kept" / "1" / ("0" * 20)).unlink()
    scanned = scan_store(spark, str(harmed), recover=str(tmp_path / "lake"))
    by_verdict = {fault.verdict: fault for fault in scanned.faults}
    assert set(by_verdict) >= {"bad-crc", "gap", "unindexed"}
    assert by_verdict["bad-crc"].topic == "kept"
    assert by_verdict["bad-crc"].keys == "k7"
    assert all(fault.queue_id == 1 for fault in scanned.faults if fault.verdict == "unindexed")
    assert scanned.counts["unindexed"] >= MESSAGES // 2 - 3
    assert not scanned.is_ok
    assert scanned.recovered is not None
    lost = sum(number for verdict, number in scanned.counts.items() if verdict in ("bad-crc",))
    assert scanned.recovered.messages == scanned.records - lost
    assert MESSAGES - 4 <= scanned.recovered.messages < MESSAGES
    report = scanned.report(with_pictures=True)
    assert not report.is_ok
    assert len(report.details["all_faults"]) == len(scanned.faults)  # type: ignore[arg-type]


def test_what_is_no_store_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="no folder commitlog"):
        scan_store(spark, str(tmp_path))
