"""What only a simulated disk can do: fill up, fail and lose its power at the chosen moment."""

from __future__ import annotations

import contextlib
import errno

import pytest

from kourou.doors.chance import Chance
from kourou.doors.simulated_files import SimulatedFiles


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
