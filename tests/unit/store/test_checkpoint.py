"""What RocketMQ's checkpoint says, and what ours adds to it."""

from __future__ import annotations

import pytest

from kourou.doors.files import SimulatedFiles
from kourou.errors import StoreForeign
from kourou.store.checkpoint import Checkpoint, read_checkpoint, write_checkpoint


def test_a_checkpoint_comes_back() -> None:
    files = SimulatedFiles()
    checkpoint = Checkpoint(5000, 4000, 3000, 2000, 777, 900, 12)
    write_checkpoint(files, "/checkpoint", checkpoint)
    assert read_checkpoint(files, "/checkpoint") == checkpoint
    assert len(files.read("/checkpoint")) == 4096
    assert checkpoint.trusted_ms == 1000


def test_the_first_forty_bytes_are_as_rocketmq_has_them() -> None:
    data = Checkpoint(1_700_000_000_456, 1_700_000_000_123, 3, 4, 1024, 1152, 1).encode()
    assert (
        data[:40].hex() == "0000018bcfe569c80000018bcfe5687b000000000000000300000000000000040000000000000400"
    )


def test_a_checkpoint_of_apache_gives_its_times_and_no_mark() -> None:
    files = SimulatedFiles()
    data = b"".join(number.to_bytes(8, "big") for number in (9000, 8000, 7000, 6000, 5))
    files.open("/checkpoint", create=True).pwrite(data.ljust(4096, b"\0"), 0)
    checkpoint = read_checkpoint(files, "/checkpoint")
    assert checkpoint == Checkpoint(9000, 8000, 7000, 6000)
    assert (checkpoint.trusted_ms, checkpoint.last_record) == (5000, -1)


@pytest.mark.parametrize("content", [None, b"", b"short"])
def test_without_a_checkpoint_nothing_is_vouched_for(content: bytes | None) -> None:
    files = SimulatedFiles()
    if content is not None:
        files.open("/checkpoint", create=True).pwrite(content, 0)
    assert read_checkpoint(files, "/checkpoint") == Checkpoint()


def test_a_damaged_mark_is_not_believed_but_the_times_are() -> None:
    files = SimulatedFiles()
    write_checkpoint(files, "/checkpoint", Checkpoint(5000, 4000, 0, 0, 777, 900, 12))
    files.open("/checkpoint").pwrite(b"\x55", 75)
    assert read_checkpoint(files, "/checkpoint") == Checkpoint(5000, 4000)


def test_a_mark_of_a_newer_version_is_foreign() -> None:
    files = SimulatedFiles()
    files.open("/checkpoint", create=True).pwrite((bytes(64) + b"KOUROU\x00\x02").ljust(4096, b"\0"), 0)
    with pytest.raises(StoreForeign, match="format 2, and this Kourou knows up to 1"):
        read_checkpoint(files, "/checkpoint")
