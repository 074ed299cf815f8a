"""The log files of a stopped broker as rows: every message, and every byte that is none."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import kourou
from kourou.doors.files import RealFiles
from kourou.protocol import record
from kourou.spark.columns import Choice
from kourou.spark.store_scan import SCHEMA, log_folder, log_pieces, put_together, scanned

pytestmark = pytest.mark.timeout(600)  # on a busy machine Spark takes its time to start a worker

Change = Callable[[bytearray, list[int]], None]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a broker that took 900 messages in files of 128 KiB, and was stopped."""
    folder = tmp_path_factory.mktemp("stopped")
    with (
        kourou.LocalBroker(folder, segment_bytes=128 * 1024) as broker,
        kourou.Producer("scan", broker.name_server) as producer,
    ):
        for i in range(900):
            body = b"%05d" % i + b"x" * (i % 700)
            producer.send(kourou.Message("scanned", body, keys=f"k{i}", tags="t", properties={"i": str(i)}))
        producer.send(kourou.Message("large", b"y" * 100_000))
    return store_of(folder)


def store_of(folder: Path) -> Path:
    [log] = folder.rglob("commitlog")
    return log.parent


def scan(store: Path, piece_bytes: int = 50_000, **options: Any) -> pa.Table:
    """All rows of a folder, piece after piece, without Spark."""
    files = RealFiles()
    pieces = log_pieces(files, log_folder(files, str(store)), piece_bytes)
    batches = itertools.chain.from_iterable(
        scanned(files, str(store), piece, Choice(SCHEMA), **options) for piece in pieces
    )
    return pa.Table.from_batches(batches, SCHEMA)


@pytest.fixture
def damaged(stopped: Path, tmp_path: Path) -> Callable[[Change], pa.Table]:
    """A scan of a copy in which something was changed: given the first log file, and where its records
    begin."""

    def make(change: Change, piece_bytes: int = 50_000) -> pa.Table:
        log = tmp_path / "commitlog"
        log.mkdir()
        for file in sorted((stopped / "commitlog").iterdir()):
            data = bytearray(file.read_bytes())
            if int(file.name) == 0:
                change(data, list(starts_of(data)))
            (log / file.name).write_bytes(data)
        return scan(tmp_path, piece_bytes)

    return make


def starts_of(data: bytearray) -> Iterator[int]:
    at = 0
    while (checked := record.check(data, at, len(data))).verdict is record.Verdict.OK:
        yield at
        at += checked.size


def verdicts(table: pa.Table) -> dict[str, int]:
    counted = table.group_by("verdict").aggregate([("verdict", "count")]).to_pylist()
    return {row["verdict"]: row["verdict_count"] for row in counted}


@pytest.mark.parametrize("piece_bytes", [1_000, 4_096, 50_000, 10**9])
def test_every_message_is_found_once_however_the_files_are_cut(stopped: Path, piece_bytes: int) -> None:
    table = scan(stopped, piece_bytes)
    assert verdicts(table) == {"ok": len(table)}
    rows = [row for row in table.to_pylist() if row["topic"] == "scanned"]
    assert sorted(row["body"][:5] for row in rows) == [b"%05d" % i for i in range(900)]
    assert all(row["indexed"] for row in rows)
    assert all(dict(row["properties"])["i"] == str(int(row["body"][:5])) for row in rows)
    places = [row["commitLogOffset"] for row in table.to_pylist()]
    assert places == sorted(set(places))
    [large] = [row for row in table.to_pylist() if row["topic"] == "large"]
    assert len(large["body"]) == 100_000


def test_a_flipped_bit_in_a_body_is_a_bad_crc(damaged: Any) -> None:
    def flip(data: bytearray, starts: list[int]) -> None:
        data[starts[7] + 90] ^= 1

    table = damaged(flip)
    assert verdicts(table)["bad-crc"] == 1
    [bad] = table.filter(pa.compute.equal(table["verdict"], "bad-crc")).to_pylist()
    assert bad["topic"] == "scanned"
    assert "CRC is" in bad["reason"]


@pytest.mark.parametrize("piece_bytes", [1_000, 50_000])
@pytest.mark.parametrize("which", [0, 1, 60, 120])
def test_destroyed_bytes_are_a_gap_and_the_next_record_is_found(
    damaged: Any, which: int, piece_bytes: int
) -> None:
    lost: list[tuple[int, int]] = []

    def destroy(data: bytearray, starts: list[int]) -> None:
        low, high = starts[which], starts[which + 3]
        lost.append((low, high))
        data[low:high] = b"\x5a" * (high - low)

    table = damaged(destroy, piece_bytes)
    [gap] = table.filter(pa.compute.equal(table["verdict"], "gap")).to_pylist()
    assert (gap["commitLogOffset"], gap["commitLogOffset"] + gap["recordBytes"]) == lost[0]
    assert gap["body"] is None
    assert "not a record" in gap["reason"]
    assert len(table) == len(scan_of(table)) + 1


def scan_of(table: pa.Table) -> pa.Table:
    return table.filter(pa.compute.equal(table["verdict"], "ok"))


def test_a_length_that_lies_costs_one_record(damaged: Any, stopped: Path) -> None:
    def lie(data: bytearray, starts: list[int]) -> None:
        data[starts[20] : starts[20] + 4] = (95).to_bytes(4, "big")

    table = damaged(lie)
    assert verdicts(table) == {"ok": len(scan(stopped)) - 1, "gap": 1}


def test_zeros_in_the_middle_are_a_gap(damaged: Any, stopped: Path) -> None:
    def wipe(data: bytearray, starts: list[int]) -> None:
        data[starts[30] : starts[35]] = bytes(starts[35] - starts[30])

    assert verdicts(damaged(wipe)) == {"ok": len(scan(stopped)) - 5, "gap": 1}


def test_a_record_cut_off_at_the_end_of_the_log_is_torn(damaged: Any, tmp_path: Path, stopped: Path) -> None:
    kept: list[int] = []

    def cut(data: bytearray, starts: list[int]) -> None:
        data[starts[-1] + 100 :] = bytes(len(data) - starts[-1] - 100)
        kept.append(len(starts) - 1)

    def only_first(data: bytearray, starts: list[int]) -> None:
        cut(data, starts)

    damaged(only_first)
    for file in sorted((tmp_path / "commitlog").iterdir())[1:]:
        file.unlink()
    assert verdicts(scan(tmp_path)) == {"ok": kept[0], "torn": 1}


def test_a_message_without_an_entry_is_not_indexed(stopped: Path, tmp_path: Path) -> None:
    (tmp_path / "commitlog").symlink_to(stopped / "commitlog")
    queues = tmp_path / "consumequeue"
    for file in sorted((stopped / "consumequeue").rglob("*")):
        copy = queues / file.relative_to(stopped / "consumequeue")
        if file.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            data = bytearray(file.read_bytes())
            if file.parent.name == "0" and file.parent.parent.name == "scanned":
                data[20 * 5 : 20 * 7] = bytes(40)  # its entries 5 and 6
            copy.write_bytes(data)
    table = scan(tmp_path)
    missing = [row for row in table.to_pylist() if row["indexed"] is False]
    assert [(row["topic"], row["queueId"], row["queueOffset"]) for row in missing] == [
        ("scanned", 0, 5),
        ("scanned", 0, 6),
    ]


def test_without_the_verdict_no_crc_is_compared(damaged: Any, tmp_path: Path) -> None:
    def flip(data: bytearray, starts: list[int]) -> None:
        data[starts[7] + 90] ^= 1

    damaged(flip)
    assert verdicts(scan(tmp_path, verify=False)) == {"ok": len(scan(tmp_path))}


def test_small_files_share_a_task_and_nothing_is_left_out(stopped: Path) -> None:
    files = RealFiles()
    pieces = list(log_pieces(files, log_folder(files, str(stopped)), 1 << 20))
    assert len(pieces) > 3, "files of 128 KiB"
    tasks = list(put_together(pieces, 300_000))
    assert [piece for task in tasks for piece in task] == pieces
    assert 1 < len(tasks) < len(pieces)
    for task in tasks:
        assert len(task) == 1 or sum(piece.end - piece.start for piece in task) <= 300_000


# -------------------------------------------------------------------------------------------- through Spark


def test_spark_reads_a_stopped_store_with_the_columns_asked_for(spark: SparkSession, stopped: Path) -> None:
    reader = spark.read.format("rocketmq").option("table", "commitlog").option("storePath", str(stopped))
    frame = reader.option("targetPartitionBytes", "64k").load()
    assert frame.where("verdict = 'ok' AND topic = 'scanned'").count() == 900
    assert frame.columns == SCHEMA.names
    few = reader.schema("topic string, queueOffset bigint, verdict string").load()
    assert few.where("topic = 'scanned'").count() == 900


def test_a_folder_in_use_and_one_that_is_none_are_refused(
    spark: SparkSession, broker: kourou.LocalBroker, new_topic: Any, fill: Any, tmp_path: Path
) -> None:
    fill(new_topic(), [b"x"])
    reader = spark.read.format("rocketmq").option("table", "commitlog")
    with pytest.raises(Exception, match="is in use by a running broker: stop it, or scan a copy"):
        reader.option("storePath", str(store_of(Path(broker.data)))).load().count()
    with pytest.raises(Exception, match="has no folder commitlog"):
        reader.option("storePath", str(tmp_path)).load().count()
    with pytest.raises(Exception, match="there is no folder"):
        reader.option("storePath", str(tmp_path / "nowhere")).load().count()
    with pytest.raises(Exception, match="which folder"):
        spark.read.format("rocketmq").option("table", "commitlog").load().count()
