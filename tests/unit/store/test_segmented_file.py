"""Files of fixed length under one growing offset."""

from __future__ import annotations

import pytest

from kourou.doors.chance import Chance
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import Corrupt, StoreForeign
from kourou.store.segment import OpenFiles, Segment, segment_name
from kourou.store.segmented_file import SegmentedFile


def whole(files: SimulatedFiles, limit: int | None = None) -> SegmentedFile:
    files.make_folders("/f")
    return SegmentedFile(files, OpenFiles(files, limit), "/f", 100)


def test_bytes_run_across_segments_which_are_made_at_full_length() -> None:
    files = SimulatedFiles()
    file = whole(files)
    file.write(bytes(range(250)), 0)
    assert files.list("/f") == [segment_name(base) for base in (0, 100, 200)]
    assert {len(files.read(f"/f/{name}")) for name in files.list("/f")} == {100}
    assert file.read(120, 60) == bytes(range(60, 180))
    assert file.read(100, 240) == bytes(range(240, 250)).ljust(60, b"\0")  # to the end of the last
    assert file.read(10, 300) == b""


def test_a_whole_may_begin_above_zero() -> None:
    file = whole(SimulatedFiles())
    file.write(b"x" * 10, 530)
    assert (file.start, file.bases) == (500, [500])
    assert file.read(10, 530) == b"x" * 10
    assert file.read(10, 0) == b""


def test_loading_finds_what_was_written() -> None:
    files = SimulatedFiles()
    whole(files).write(b"abc" * 60, 100)
    files.make_folders("/f/a folder is not looked at")
    file = whole(files)
    file.load("aSize")
    assert (file.start, file.bases) == (100, [100, 200])
    assert file.read(180, 100) == b"abc" * 60


def test_an_empty_file_is_forgiven_only_at_the_end() -> None:
    files = SimulatedFiles()
    whole(files).write(b"abc", 0)
    files.open(f"/f/{segment_name(100)}", create=True)
    file = whole(files)
    file.load("aSize")
    assert file.bases == [0]
    assert files.list("/f") == [segment_name(0)]
    files.open(f"/f/{segment_name(100)}", create=True)
    files.open(f"/f/{segment_name(200)}", create=True).truncate(100)
    with pytest.raises(StoreForeign, match="set aSize to the value"):
        whole(files).load("aSize")


def test_a_gap_between_segments_is_an_error() -> None:
    files = SimulatedFiles()
    whole(files).write(bytes(300), 0)
    files.remove(f"/f/{segment_name(100)}")
    with pytest.raises(Corrupt, match=f"{segment_name(100)} is missing"):
        whole(files).load("aSize")


def test_cutting_zeroes_the_rest_and_removes_what_follows() -> None:
    files = SimulatedFiles()
    file = whole(files)
    file.write(b"x" * 300, 0)
    file.cut(150)
    assert files.list("/f") == [segment_name(0), segment_name(100)]
    assert files.read(f"/f/{segment_name(100)}") == b"x" * 50 + bytes(50)
    file.cut(100)
    assert file.bases == [0]
    file.cut(0)  # the first stays
    assert files.read(f"/f/{segment_name(0)}") == bytes(100)


def test_few_files_are_open_at_a_time_and_the_last_used_stay() -> None:
    files = SimulatedFiles()
    file = whole(files, limit=2)
    file.write(b"x" * 400, 0)
    opened: list[str] = []
    files.before = lambda operation, path: opened.append(path) if operation == "open" else None
    for at in (200, 300, 200, 300, 0, 300, 200):
        file.read(1, at)
    assert [path[-3:] for path in opened] == ["000", "200"]


def test_a_segment_knows_where_its_data_ends() -> None:
    files = SimulatedFiles()
    segment = Segment(OpenFiles(files), "/a", 0, 100_000)
    segment.create()
    assert segment.data_end() == 0
    segment.write(b"x", 50_000)
    segment.write(b"y", 20)
    assert (segment.data_end(), segment.data_from(0), segment.data_from(60_000)) == (50_001, 0, 100_000)
    segment.zero_from(20)
    assert segment.data_end() == 0


def test_no_power_cut_during_a_cut_leaves_a_gap() -> None:
    for seed in range(40):
        files = SimulatedFiles()
        file = whole(files)
        file.write(b"x" * 600, 0)
        files.sync_all([f"/f/{name}" for name in files.list("/f")])
        files.sync_folder("/f")
        files.sync_folder("/")
        file.cut(150)
        left = files.power_cut(Chance(seed))
        found = whole(left)
        found.load("aSize")  # raises Corrupt at a gap
        assert found.bases[:2] == [0, 100]
