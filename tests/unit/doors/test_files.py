"""The way to the disk: the real one, the one in memory and the simulated one do the same."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kourou.doors.files import Files, RealFile, RealFiles, is_full, make_lasting_folder
from kourou.doors.memory_files import MemoryFiles
from kourou.doors.simulated_files import SimulatedFiles


@pytest.fixture(params=["real", "memory", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    """A disk and an empty folder on it."""
    if request.param == "real":
        return RealFiles(), str(tmp_path)
    files = MemoryFiles() if request.param == "memory" else SimulatedFiles()
    files.make_folders("/tmp/folder")
    return files, "/tmp/folder"


def test_bytes_are_written_and_read_at_any_place(disk: tuple[Files, str]) -> None:
    files, folder = disk
    file = files.open(f"{folder}/a", create=True)
    file.pwrite(b"world", 10_005)
    file.pwrite(memoryview(b"hello"), 10_000)
    assert file.size() == 10_010
    assert file.pread(10, 10_000) == b"helloworld"
    assert file.pread(100, 10_005) == b"world"
    assert file.pread(4, 3) == bytes(4)
    assert file.pread(4, 20_000) == b""
    file.close()
    assert files.read(f"{folder}/a")[-10:] == b"helloworld"


def test_truncating_shortens_and_lengthens_with_zeros(disk: tuple[Files, str]) -> None:
    files, folder = disk
    file = files.open(f"{folder}/a", create=True)
    file.pwrite(b"x" * 9000, 0)
    file.truncate(5000)
    file.truncate(9000)
    assert file.pread(9000, 0) == b"x" * 5000 + bytes(4000)


def test_allocating_keeps_what_is_there_and_the_length_that_suffices(disk: tuple[Files, str]) -> None:
    files, folder = disk
    file = files.open(f"{folder}/a", create=True)
    file.pwrite(b"kept", 100)
    file.truncate(1 << 20)
    file.allocate(65536, at=4096)
    assert (file.size(), file.pread(4, 100)) == (1 << 20, b"kept")
    file.allocate(4096, at=1 << 20)
    assert file.size() == (1 << 20) + 4096


def test_holes_are_leapt_over(disk: tuple[Files, str]) -> None:
    files, folder = disk
    file = files.open(f"{folder}/a", create=True)
    file.truncate(1 << 22)
    assert file.data_from(0) == 1 << 22
    file.pwrite(b"here", 1 << 21)
    file.sync()
    assert (1 << 21) - 65536 <= file.data_from(0) <= 1 << 21
    assert file.data_from((1 << 21) + 2) == (1 << 21) + 2
    assert file.data_from((1 << 21) + 131072) == 1 << 22


def test_files_and_folders_are_listed_moved_and_removed(disk: tuple[Files, str]) -> None:
    files, folder = disk
    files.make_folders(f"{folder}/b/c")
    files.make_folders(f"{folder}/b/c")
    files.open(f"{folder}/z", create=True).close()
    files.open(f"{folder}/b/c/x", create=True).close()
    assert files.list(folder) == ["b", "z"]
    assert files.list(f"{folder}/nobody") == []
    assert (files.is_folder(f"{folder}/b"), files.is_folder(f"{folder}/z")) == (True, False)
    files.rename(f"{folder}/z", f"{folder}/a")
    files.rename(f"{folder}/b", f"{folder}/d")
    assert files.list(folder) == ["a", "d"]
    assert files.list(f"{folder}/d/c") == ["x"]
    files.sync_folder(folder)
    files.remove(f"{folder}/a")
    files.remove_folder(f"{folder}/d")
    assert files.list(folder) == []
    assert not files.exists(f"{folder}/d/c/x")


def test_what_is_not_there_is_an_error(disk: tuple[Files, str]) -> None:
    files, folder = disk
    for attempt in (
        lambda: files.open(f"{folder}/nobody"),
        lambda: files.open(f"{folder}/no/folder", create=True),
        lambda: files.read(f"{folder}/nobody"),
        lambda: files.remove(f"{folder}/nobody"),
        lambda: files.rename(f"{folder}/nobody", f"{folder}/x"),
        lambda: files.sync_folder(f"{folder}/nobody"),
    ):
        with pytest.raises(FileNotFoundError):
            attempt()


@pytest.mark.parametrize("path", ["file/below", "file/below/that"])
def test_there_is_nothing_below_a_plain_file(disk: tuple[Files, str], path: str) -> None:
    files, folder = disk
    files.open(f"{folder}/file", create=True).close()
    for attempt in (
        lambda: files.read(f"{folder}/{path}"),
        lambda: files.open(f"{folder}/{path}", create=True),
    ):
        with pytest.raises(NotADirectoryError):
            attempt()


def test_a_read_only_file_is_not_written_to(disk: tuple[Files, str]) -> None:
    files, folder = disk
    files.open(f"{folder}/a", create=True).pwrite(b"kept", 0)
    file = files.open(f"{folder}/a", read_only=True)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite(b"lost", 0)
    assert file.pread(4, 0) == b"kept"


def test_an_atomic_write_keeps_the_previous_generation(disk: tuple[Files, str]) -> None:
    files, folder = disk
    path = f"{folder}/topics.json"
    files.write_atomically(path, b"one")
    assert files.list(folder) == ["topics.json"]
    files.write_atomically(path, b"two")
    files.write_atomically(path, b"three")
    assert (files.read(path), files.read(path + ".bak")) == (b"three", b"two")
    files.write_atomically(path, b"four", keep_previous=False)
    assert (files.read(path), files.read(path + ".bak")) == (b"four", b"two")
    assert files.list(folder) == ["topics.json", "topics.json.bak"]


def test_an_atomic_write_that_was_interrupted_is_not_in_the_way_of_the_next(tmp_path: Path) -> None:
    files, path = RealFiles(), str(tmp_path / "a")
    files.write_atomically(path, b"one")
    for leftover in (".tmp", ".bak.tmp"):
        Path(path + leftover).write_bytes(b"half of something much longer")
    os.link(path, path + ".bak")  # a crash between the two renames leaves two names of one file
    files.write_atomically(path, b"two")
    assert (files.read(path), files.read(path + ".bak")) == (b"two", b"one")
    assert files.list(str(tmp_path)) == ["a", "a.bak"]


def test_where_there_are_no_hard_links_the_previous_generation_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    files, path = RealFiles(), str(tmp_path / "a")
    files.write_atomically(path, b"one")
    files.write_atomically(path, b"two")
    assert (files.read(path), files.read(path + ".bak")) == (b"two", b"one")


def test_short_writes_and_reads_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write, real_read = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real_write(fd, bytes(data)[:7], at))
    monkeypatch.setattr(os, "pread", lambda fd, size, at: real_read(fd, min(size, 5), at))
    file = RealFiles().open(str(tmp_path / "a"), create=True)
    file.pwrite(b"a sentence of more than seven bytes", 3)
    assert file.pread(35, 3) == b"a sentence of more than seven bytes"
    assert file.pread(100, 3) == b"a sentence of more than seven bytes"
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    with pytest.raises(OSError, match="write of 0 bytes"):
        file.pwrite(b"x", 0)


def test_a_system_that_cannot_reserve_is_made_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    path = tmp_path / "a"
    file = RealFiles().open(str(path), create=True)
    file.pwrite(b"kept", 1_500_000)
    file.truncate(4 << 20)
    file.allocate(2 << 20, at=1 << 20)
    file.sync()
    assert file.pread(4, 1_500_000) == b"kept"
    assert path.stat().st_blocks * 512 >= 2 << 20


def test_reserved_blocks_take_up_space_and_the_rest_of_the_file_does_not(tmp_path: Path) -> None:
    path = tmp_path / "a"
    file = RealFiles().open(str(path), create=True)
    file.truncate(1 << 30)
    assert path.stat().st_blocks == 0
    file.allocate(1 << 20)
    assert 1 << 20 <= path.stat().st_blocks * 512 <= 2 << 20
    assert path.stat().st_size == 1 << 30


def test_a_lock_is_held_once_and_given_back(disk: tuple[Files, str]) -> None:
    files, folder = disk
    lock = files.lock(f"{folder}/lock")
    assert lock is not None
    assert files.lock(f"{folder}/lock") is None
    assert files.read(f"{folder}/lock") == b"lock"
    assert files.lock(f"{folder}/lock") is None  # reading it has not given it away
    lock.release()
    lock.release()
    again = files.lock(f"{folder}/lock")
    assert again is not None
    again.release()


def test_the_lock_keeps_other_processes_out_the_way_java_does(tmp_path: Path) -> None:
    """A POSIX record lock on byte 0: what Java's FileChannel.tryLock(0, 1, false) takes."""
    path = str(tmp_path / "lock")
    attempt = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+b')\n"
        "try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
        "except OSError: sys.exit(7)\n"
    )
    lock = RealFiles().lock(path)
    assert lock is not None
    assert subprocess.run([sys.executable, "-c", attempt, path], check=False).returncode == 7
    lock.release()
    assert subprocess.run([sys.executable, "-c", attempt, path], check=False).returncode == 0


def test_the_machine_tells_its_space_memory_and_times(disk: tuple[Files, str]) -> None:
    files, folder = disk
    space = files.space(folder)
    assert 0 <= space.used <= space.total
    assert 0 < space.free <= space.total
    assert files.memory_bytes() >= 1 << 28
    files.open(f"{folder}/a", create=True).pwrite(b"x", 0)
    assert files.modified_ms(f"{folder}/a") >= 0


def test_real_files_close_once(tmp_path: Path) -> None:
    file = RealFiles().open(str(tmp_path / "a"), create=True)
    assert isinstance(file, RealFile)
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pread(1, 0)


def test_many_files_and_folders_are_synced_and_what_is_gone_is_passed_over(disk: tuple[Files, str]) -> None:
    files, folder = disk
    for number in range(40):
        files.make_folders(f"{folder}/{number}")
        files.open(f"{folder}/{number}/file", create=True).close()
    paths = [path for number in range(41) for path in (f"{folder}/{number}", f"{folder}/{number}/file")]
    files.sync_all(paths)
    files.sync_all([])
    if isinstance(files, SimulatedFiles):
        assert (files.counts["sync"], files.counts["sync_folder"]) == (40, 40)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The inodes that the kernel is asked to bring to the disk, in order. The simulated disk notices where we
    forget to ask for it; whether the real one asks the kernel, only this."""
    asked: list[int] = []
    for name in ("fsync", "fdatasync"):
        if (real := getattr(os, name, None)) is None:
            continue  # macOS has no fdatasync

        def sync(descriptor: int, real: Callable[[int], None] = real) -> None:
            asked.append(os.fstat(descriptor).st_ino)
            real(descriptor)

        monkeypatch.setattr(os, name, sync)
    return asked


def test_the_kernel_is_asked_for_each_sync(tmp_path: Path, synced: list[int]) -> None:
    files, folder = RealFiles(), str(tmp_path)
    file = files.open(f"{folder}/log", create=True)
    file.pwrite(b"hello", 0)
    file.sync()
    assert synced == [os.stat(f"{folder}/log").st_ino]
    synced.clear()
    files.sync_folder(folder)
    assert synced == [os.stat(folder).st_ino]
    synced.clear()
    files.sync_all([f"{folder}/log", folder])
    assert sorted(synced) == sorted([os.stat(f"{folder}/log").st_ino, os.stat(folder).st_ino])
    file.close()


def test_an_atomic_write_syncs_the_content_and_then_the_folder(tmp_path: Path, synced: list[int]) -> None:
    files = RealFiles()
    for content in (b"first", b"second"):
        synced.clear()
        files.write_atomically(f"{tmp_path}/topics.json", content)
        assert synced[0] == os.stat(f"{tmp_path}/topics.json").st_ino  # it has the name only after that
        assert synced[-1] == os.stat(tmp_path).st_ino


def test_many_syncs_are_under_way_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(tmp_path / f"{number}") for number in range(64)]
    for path in paths:
        RealFiles().open(path, create=True).close()
    side_by_side = threading.Barrier(4, timeout=30)  # breaks, and fails the test, when they come one by one
    monkeypatch.setattr("kourou.doors.files._sync_descriptor", lambda _: side_by_side.wait())
    RealFiles().sync_all(paths)


def test_an_error_of_one_sync_among_many_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(tmp_path / f"{number}") for number in range(64)]
    for path in paths:
        RealFiles().open(path, create=True).close()
    syncs = itertools.count()

    def fail_late(_: int) -> None:
        if next(syncs) == 50:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("kourou.doors.files._sync_descriptor", fail_late)
    with pytest.raises(OSError, match="Input/output error"):
        RealFiles().sync_all(paths)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, ""), True),
        (OSError(errno.EDQUOT, ""), True),
        (OSError(errno.EIO, ""), False),
        (ValueError(), False),
        (None, False),
    ],
)
def test_a_full_disk_is_told_from_a_broken_one(error: BaseException | None, expected: bool) -> None:
    assert is_full(error) is expected


def test_a_lasting_folder_is_synced_into_each_folder_above_it() -> None:
    files = SimulatedFiles()
    files.make_folders("/a")
    steps: list[tuple[str, str]] = []
    files.before = lambda operation, path: steps.append((operation, path))
    make_lasting_folder(files, "/a/b/c")
    assert steps == [
        *(("make_folder", "/a/b"), ("sync_folder", "/a")),
        *(("make_folder", "/a/b/c"), ("sync_folder", "/a/b")),
    ]
    make_lasting_folder(files, "/a/b/c")
    assert len(steps) == 4
