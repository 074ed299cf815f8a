"""Of a checkpoint that was only half written the file is told, with the way out; whole ones are let be."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ConfigError, Corrupt
from kourou.spark.checkpoints import _is_commit, _is_metadata, _is_plan, check_checkpoint

METADATA = '{"id":"25e80d31-a8fd-4a34-b8ec-04bd7e1a0b1c"}'
PLAN = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{"a":"b"}}\n{"orders":{"a":{"0":5}}}'
PLAN_OF_NAMED_SOURCES = 'v2\n{"batchWatermarkMs":0}\n0:{"orders":{"a":{"0":5}}}\n1:-'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of a query that has done three batches."""
    (tmp_path / "metadata").write_text(METADATA)
    for folder, text in (("offsets", PLAN), ("commits", COMMIT)):
        (tmp_path / folder).mkdir()
        for batch in range(3):
            (tmp_path / folder / str(batch)).write_text(text)
            (tmp_path / folder / f".{batch}.crc").write_bytes(b"crc")
    return tmp_path


def test_a_whole_one_a_new_one_and_one_elsewhere_are_fine(checkpoint: Path) -> None:
    for location in (str(checkpoint), f"file://{checkpoint}", f"file:{checkpoint}"):
        check_checkpoint(location)
    check_checkpoint(str(checkpoint / "new"))
    with pytest.raises(ConfigError, match="metadata', which is a file; give it a folder"):
        check_checkpoint(str(checkpoint / "metadata"))
    (checkpoint / "metadata").write_text("")
    for location in (f"hdfs://{checkpoint}", f"s3a:{checkpoint}"):
        check_checkpoint(location)


@pytest.mark.parametrize(
    ("name", "left", "how", "way_out"),
    [
        ("metadata", "", "is empty", "another checkpointLocation"),
        ("metadata", METADATA[:20], "is only half written (20 bytes)", "put a copy of it back"),
        ("offsets/2", "", "is empty", "startingOffsets=group"),
        ("offsets/2", "v1", "is only half written (2 bytes)", "put a copy of it back"),
        ("offsets/1", PLAN[:-3], "is only half written", "put a copy of it back"),
        ("commits/2", "", "is empty", "remove it, and batch 2 is carried out once more"),
        ("commits/2", COMMIT[:-3], "is only half written", "remove it, and batch 2"),
    ],
)
def test_a_half_written_file_is_named_with_the_way_out(
    checkpoint: Path, name: str, left: str, how: str, way_out: str
) -> None:
    (checkpoint / name).write_text(left)
    for location in (str(checkpoint), f"file://{checkpoint}"):
        with pytest.raises(Corrupt) as caught:
            check_checkpoint(location)
        told = str(caught.value)
        assert f"'{checkpoint / name}' {how}" in told
        assert way_out in told
        assert len(told.splitlines()) == 1


def test_what_spark_does_not_read_again_is_not_looked_at(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "0").write_text("")
    (checkpoint / "commits" / "1").write_text("")
    (checkpoint / "offsets" / "notes.txt").write_text("")
    check_checkpoint(str(checkpoint))


def test_batches_are_ordered_as_numbers(checkpoint: Path) -> None:
    for batch in (9, 10):
        (checkpoint / "commits" / str(batch)).write_text(COMMIT)
    (checkpoint / "commits" / "9").write_text("")
    check_checkpoint(str(checkpoint))
    (checkpoint / "commits" / "10").write_text("")
    with pytest.raises(Corrupt, match=r"commits/10' is empty"):
        check_checkpoint(str(checkpoint))


def test_offsets_of_all_sources_are_taken_for_some() -> None:
    """Numbers, nothing yet, and whatever another source's offsets look like."""
    assert _is_plan(PLAN_OF_NAMED_SOURCES)
    assert _is_plan('v1\n{"batchWatermarkMs":0}\n51\n-\n{"logOffset":3}')
    assert _is_plan("v1\n\n51"), "without the second line, as Spark may leave it"
    assert _is_plan(f"{PLAN}\n"), "somebody has had it in an editor"
    assert all(_is_commit(text) for text in ("v1", "v1\n", 'v2\n{"stateUniqueIds":{}}'))


@given(st.integers(0, len(PLAN) - 1))
def test_no_beginning_of_a_plan_is_a_plan(length: int) -> None:
    assert not _is_plan(PLAN[:length])


@given(st.integers(0, len(METADATA) - 1))
def test_no_beginning_of_metadata_is_metadata(length: int) -> None:
    assert not _is_metadata(METADATA[:length])
