"""The way to the disk: the real one and the simulated one do the same, and the simulated one can fail."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kourou.doors.chance import Chance
from kourou.doors.files import Files, RealFile, RealFiles, SimulatedFiles


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    """A disk and an empty folder on it."""
    if request.param == "real":
        return RealFiles(), str(tmp_path)
    files = SimulatedFiles()
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


# What only a simulated disk can do.


def test_a_full_disk_takes_what_fits_and_then_fails() -> None:
    files = SimulatedFiles(capacity=8192)
    file = files.open("/a", create=True)
    file.truncate(1 << 30)  # a hole takes up nothing
    assert files.space("/").free == 8192
    with pytest.raises(OSError, match="No space left") as failure:
        file.pwrite(b"x" * 10_000, 100)
    assert failure.value.errno == errno.ENOSPC
    assert file.pread(10_000, 100).rstrip(b"\0") == b"x" * (8192 - 100)
    with pytest.raises(OSError, match="No space left"):
        file.allocate(4096, at=8192)
    file.pwrite(b"y" * 8192, 0)  # what is there can be written again
    files.capacity = 1 << 20
    file.allocate(4096, at=8192)
    assert files.used() == 3 * 4096


def test_faults_strike_at_the_chosen_time() -> None:
    files = SimulatedFiles()
    file = files.open("/a", create=True)
    files.fail("sync", after=2, error=errno.EIO)
    file.sync()
    file.sync()
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()
    assert files.counts["sync"] == 4


def test_a_power_cut_keeps_what_was_synced_and_may_take_the_rest() -> None:
    files = SimulatedFiles()
    file = files.open("/a", create=True)
    file.pwrite(b"S" * 8192, 0)
    file.sync()
    files.sync_folder("/")
    file.pwrite(b"U" * 8192, 4096)
    outcomes = set()
    for seed in range(200):
        left = files.power_cut(Chance(seed)).read("/a")
        assert left[:4096] == b"S" * 4096
        assert set(left[4096:8192]) <= set(b"SU")
        assert set(left[8192:]) <= {0, *b"U"}
        outcomes.add((left[4096:8192].count(b"U"), len(left)))
    assert {count for count, _ in outcomes} >= {0, 512, 4096}
    assert {length for _, length in outcomes} == {8192, 12288}
    assert files.read("/a") == b"S" * 4096 + b"U" * 8192  # the disk itself goes on


def test_a_name_is_safe_once_its_folder_was_synced() -> None:
    files = SimulatedFiles()
    files.make_folders("/f")
    file = files.open("/f/a", create=True)
    file.pwrite(b"x", 0)
    file.sync()
    assert {files.power_cut(Chance(seed)).exists("/f/a") for seed in range(50)} == {True, False}
    files.sync_folder("/f")
    assert {files.power_cut(Chance(seed)).exists("/f/a") for seed in range(50)} == {True, False}
    files.sync_folder("/")
    assert {files.power_cut(Chance(seed)).exists("/f/a") for seed in range(50)} == {True}
    files.remove("/f/a")
    assert {files.power_cut(Chance(seed)).exists("/f/a") for seed in range(50)} == {True, False}


def test_an_atomic_write_leaves_the_old_or_the_new_content_wherever_the_power_fails() -> None:
    class Gone(Exception):
        pass

    seen = set()
    for step in range(12):
        files = SimulatedFiles()
        files.write_atomically("/a", b"old" * 2000)
        countdown = iter(range(step))

        def cut(operation: str, path: str, countdown: object = countdown) -> None:
            if next(countdown, None) is None:  # type: ignore[call-overload]
                raise Gone

        files.before = cut
        with contextlib.suppress(Gone):
            files.write_atomically("/a", b"new" * 3000)
        files.before = None
        for seed in range(30):
            after = files.power_cut(Chance(seed))
            content = after.read("/a")
            assert content in (b"old" * 2000, b"new" * 3000), f"step {step}, seed {seed}"
            seen.add(content[:3])
            if after.exists("/a.bak"):
                assert after.read("/a.bak") == b"old" * 2000
    assert seen == {b"old", b"new"}


def test_a_crashed_process_leaves_all_it_wrote_and_no_lock() -> None:
    files = SimulatedFiles()
    files.make_folders("/f")
    assert files.lock("/f/lock") is not None
    files.open("/f/a", create=True).pwrite(b"not synced", 0)
    after = files.crashed()
    assert after.read("/f/a") == b"not synced"
    assert after.lock("/f/lock") is not None
    after.open("/f/a").pwrite(b"NOT", 0)
    assert files.read("/f/a") == b"not synced"  # two disks from now on
    assert {after.power_cut(Chance(seed)).exists("/f/a") for seed in range(50)} == {True, False}


def test_what_is_about_to_happen_is_announced() -> None:
    files = SimulatedFiles()
    steps: list[tuple[str, str]] = []
    files.before = lambda operation, path: steps.append((operation, path))
    file = files.open("/a", create=True)
    file.pwrite(b"x", 0)
    file.sync()
    files.rename("/a", "/b")
    assert steps == [("open", "/a"), ("pwrite", "/a"), ("sync", "/a"), ("rename", "/a")]
