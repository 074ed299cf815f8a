"""A disk with failpoints does what the usual one does, and comes past a named place at each step."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.doors import failpoints
from kourou.doors.failing_files import machine_files, place_of, with_failpoints
from kourou.doors.files import RealFiles
from kourou.doors.simulated_files import SimulatedFiles


@pytest.fixture
def passed() -> Iterator[list[str]]:
    """The places that are come past, in order."""
    places: list[str] = []
    for place in failpoints.POINTS:
        failpoints.arm(place, 1, places.append, is_repeated=True)
    yield places
    failpoints.disarm()


def test_an_atomic_write_comes_past_each_of_its_steps(tmp_path: Path, passed: list[str]) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    for files in (with_failpoints(RealFiles)(), with_failpoints(SimulatedFiles)()):
        files.make_folders(str(folder))
        del passed[:]
        files.write_atomically(f"{folder}/consumerOffset.json", b"{}")
        assert [place for place in passed if "any" not in place] == [
            "before-offset-snapshot-write",
            "after-offset-snapshot-write",
            "before-offset-snapshot-flush",
            "after-offset-snapshot-flush",
            "before-offset-snapshot-rename",
            "after-offset-snapshot-rename",
            "before-config-dir-fsync",
            "after-config-dir-fsync",
        ]
        assert files.read(f"{folder}/consumerOffset.json") == b"{}"


def test_an_error_before_a_step_leaves_it_undone(tmp_path: Path) -> None:
    files = with_failpoints(RealFiles)()
    path = str(tmp_path / "checkpoint")
    failpoints.arm("before-checkpoint-write", 1, failpoints.error)
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            files.open(path, create=True).pwrite(b"data", 0)
    finally:
        failpoints.disarm()
    assert files.read(path) == b""


@pytest.mark.parametrize(
    ("operation", "path", "place"),
    [
        ("pwrite", "store/commitlog/00000000000000000000", "append-pwrite"),
        ("sync_folder", "store/commitlog", "dir-fsync"),
        ("pwrite", "store/consumequeue/T/0/00000000000000000000", "consumequeue-write"),
        ("sync", "store/index/20260101000000000", "index-flush"),
        ("remove", "store/abort", "abort-file"),
        ("rename", "store/timers/pending", "timer-slot-rename"),
        ("pwrite", "store/lock", None),
        ("sync", "elsewhere/file", None),
    ],
)
def test_places_are_called_by_what_is_done_to_which_file(
    operation: str, path: str, place: str | None
) -> None:
    assert place_of(operation, path) == place


def test_without_the_variable_the_disk_is_the_usual_one() -> None:
    assert type(machine_files({})) is RealFiles
    files = machine_files({"KOUROU_FAILPOINT": "before-abort-file:1:error"})
    assert isinstance(files, RealFiles)
    assert type(files) is not RealFiles
    failpoints.disarm()
