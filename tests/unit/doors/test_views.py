"""Parts of files seen without a copy."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kourou.doors import views
from kourou.doors.files import File, Files, RealFiles
from kourou.doors.simulated_files import SimulatedFiles
from kourou.doors.views import CHUNK_BYTES, OVERLAP_BYTES, WINDOW_BYTES, Windows

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="NOT LINUX: files are not viewed here, only read"
)


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    if request.param == "real":
        return RealFiles(), str(tmp_path)
    files = SimulatedFiles()
    files.make_folders("/tmp/folder")
    return files, "/tmp/folder"


def seen(file: File, size: int, at: int) -> bytes | None:
    view = file.view(size, at)
    return None if view is None else bytes(view)


def test_a_view_shows_what_a_read_gives(disk: tuple[Files, str]) -> None:
    files, folder = disk
    file = files.open(f"{folder}/a", create=True)
    file.truncate(3 * CHUNK_BYTES)
    file.pwrite(b"hello", CHUNK_BYTES - 2)
    for size, at in ((5, CHUNK_BYTES - 2), (1, 0), (2 * CHUNK_BYTES, 100), (4, 3 * CHUNK_BYTES - 4)):
        view = file.view(size, at)
        assert view is not None
        assert view == file.pread(size, at)
    file.close()


def test_a_view_shows_what_is_written_after_the_first_look(disk: tuple[Files, str]) -> None:
    files, folder = disk
    file = files.open(f"{folder}/a", create=True)
    file.truncate(CHUNK_BYTES)
    assert seen(file, 4, 0) == bytes(4)
    file.pwrite(b"news", 0)
    assert seen(file, 4, 0) == b"news"


def test_there_is_no_view_beyond_the_end(disk: tuple[Files, str]) -> None:
    files, folder = disk
    file = files.open(f"{folder}/a", create=True)
    assert file.view(1, 0) is None
    file.truncate(1000)
    assert file.view(1000, 0) is not None
    assert file.view(1001, 0) is None
    assert file.view(1, 2000) is None


def test_a_view_reaches_a_little_into_the_next_window(tmp_path: Path) -> None:
    file = RealFiles().open(str(tmp_path / "a"), create=True)
    file.truncate(3 * WINDOW_BYTES)
    file.pwrite(b"edge", WINDOW_BYTES - 2)
    assert seen(file, 4, WINDOW_BYTES - 2) == b"edge"
    assert seen(file, 2, WINDOW_BYTES) == b"ge"
    assert file.view(OVERLAP_BYTES + 4, WINDOW_BYTES - 4) is not None
    assert file.view(OVERLAP_BYTES + 5, WINDOW_BYTES - 4) is None


def test_the_windows_least_recently_used_go_first(tmp_path: Path) -> None:
    windows = Windows(limit=2)
    descriptors = []
    for name in "abc":
        descriptors.append(os.open(tmp_path / name, os.O_RDWR | os.O_CREAT))
        os.write(descriptors[-1], name.encode() * 10)
    a, b, c = descriptors
    looks = [bytes(windows.view(each, 1, 0) or b"") for each in (a, b, a, c, a)]
    assert looks == [b"a", b"b", b"a", b"c", b"a"]
    assert sorted(key[0] for key in windows._windows) == sorted([a, c])
    for each in descriptors:
        os.close(each)


def test_a_closed_file_is_mapped_no_more_and_what_was_seen_stays_readable(tmp_path: Path) -> None:
    files = RealFiles()
    file = files.open(str(tmp_path / "a"), create=True)
    file.pwrite(b"x" * 100, 0)
    view = file.view(100, 0)
    assert len(files._windows) == 1
    file.close()
    files.remove(str(tmp_path / "a"))
    assert len(files._windows) == 0
    assert view is not None
    assert bytes(view) == b"x" * 100


def test_where_the_system_cannot_be_asked_there_is_no_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "_MADV_POPULATE_READ", 9999)  # what an older system thinks of it: EINVAL
    files = RealFiles()
    file = files.open(str(tmp_path / "a"), create=True)
    file.pwrite(b"x" * 100, 0)
    assert file.view(10, 0) is None
    monkeypatch.undo()
    assert file.view(10, 0) is None  # it is not asked again
    assert file.pread(10, 0) == b"x" * 10


def test_a_disk_that_cannot_bring_the_bytes_gives_no_view_and_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(window: views._Window, start: int, stop: int) -> None:
        raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))

    file = RealFiles().open(str(tmp_path / "a"), create=True)
    file.pwrite(b"x" * 100, 0)
    monkeypatch.setattr(views._Window, "ask_for", refuse)
    assert file.view(10, 0) is None
    monkeypatch.undo()
    assert seen(file, 10, 0) == b"x" * 10


def test_what_was_asked_for_is_asked_for_again_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "VIEWS_UNTIL_ASKED_AGAIN", 3)
    files = RealFiles()
    file = files.open(str(tmp_path / "a"), create=True)
    file.pwrite(b"x" * 100, 0)
    file.view(10, 0)
    (window,) = files._windows._windows.values()
    window._asked.add(7)
    file.view(10, 0)
    assert window._asked == {0, 7}
    file.view(10, 0)
    assert window._asked == {0}  # all is forgotten, and what is seen now was asked for


CUT = """
import os, sys
from kourou.doors.files import RealFiles
file = RealFiles().open(sys.argv[1], create=True)
file.truncate(1 << 20)
file.pwrite(b"hello", 500_000)
assert bytes(file.view(5, 500_000)) == b"hello"
os.truncate(sys.argv[1], 4096)
assert file.view(5, 500_000) is None
assert file.pread(5, 500_000) == b""
os.truncate(sys.argv[1], 1 << 20)
assert bytes(file.view(5, 500_000)) == bytes(5)
"""


def test_a_file_that_somebody_cut_off_ends_no_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CUT, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr or f"ended by signal {-done.returncode}"
