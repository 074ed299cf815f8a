"""A disk that fills up under a running broker: sends are refused, reads go on, nothing acknowledged is lost.

The disk is a small tmpfs that the test mounts, so it needs the right to.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kourou
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import ResponseCode
from tests.kourou_process import serving_all
from tests.traffic import everything_stored

DISK_BYTES = 64 << 20
RESUME_SECONDS_MAX = 5.0
"""From the moment there is space again."""
TOPIC = "orders"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "kourou-test", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, text=True, timeout=20, check=False)
    except FileNotFoundError:
        pytest.skip("A FULL DISK IS NOT TESTED: there is no `mount` here; run it on Linux, as root")
    if mounted.returncode != 0:
        pytest.skip(f"A FULL DISK IS NOT TESTED: {mounted.stderr.strip()}; run it as root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=20)


def test_a_broker_on_a_full_disk_refuses_and_resumes_by_itself(tmp_path: Path, disk: Path) -> None:
    """The disk fills up before the first checkpoint was written, which then finds no room either."""
    filler = disk / "filler"
    with serving_all(tmp_path, "--data", str(disk / "data")) as server:
        with kourou.Producer("senders", server.name_server, retries=0) as producer:
            acknowledged = send_to_each_queue(producer)
            fill_up(filler)
            refusal = send_until_refused(producer, acknowledged)
            assert refusal.code == ResponseCode.SERVICE_NOT_AVAILABLE
            # By who noticed: the write that found no room, or the look at the disk every second.
            told = (
                f"the disk of {disk}/data/store is full (100 % used, 90 % allowed",
                f"the disk of {disk}/data/store/commitlog is 100 % used, and above 90 % (disk",
            )
            assert any(each in refusal.remark for each in told), refusal.remark
            time.sleep(2.5)  # the checkpoint is tried in vain
            assert sorted(everything_stored(server.name_server, TOPIC).values()) == sorted(acknowledged)
            with pytest.raises(kourou.Refused, match=r"is full|nothing is stored"):
                send(producer, big_body())
            filler.unlink()
            acknowledged.append(send_when_there_is_room(producer, b"last", time.monotonic()))
        assert server.stop() == 0, server.log
    assert "Traceback" not in server.log
    assert not (disk / "data" / "store" / "abort").exists()
    with serving_all(tmp_path, "--data", str(disk / "data")) as server:
        assert sorted(everything_stored(server.name_server, TOPIC).values()) == sorted(acknowledged)


def test_a_broker_stops_in_order_on_a_full_disk(tmp_path: Path, disk: Path) -> None:
    with serving_all(tmp_path, "--data", str(disk / "data")) as server:
        with kourou.Producer("senders", server.name_server, retries=0) as producer:
            acknowledged = send_to_each_queue(producer)
            fill_up(disk / "filler")
            send_until_refused(producer, acknowledged)
        assert server.stop() == 0, server.log
    assert "Traceback" not in server.log
    assert not (disk / "data" / "store" / "abort").exists()
    (disk / "filler").unlink()
    with serving_all(tmp_path, "--data", str(disk / "data")) as server:
        assert sorted(everything_stored(server.name_server, TOPIC).values()) == sorted(acknowledged)


def fill_up(path: Path) -> None:
    """Let not one block be left."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue


def send_to_each_queue(producer: kourou.Producer) -> list[bytes]:
    """So that each has its file, with a block for more entries."""
    return [send(producer, b"first of %d" % queue.queue_id, queue) for queue in producer.queues(TOPIC)]


def send(producer: kourou.Producer, body: bytes, queue: MessageQueue | None = None) -> bytes:
    producer.send(kourou.Message(TOPIC, body), queue=queue)
    return body


def send_until_refused(producer: kourou.Producer, acknowledged: list[bytes]) -> kourou.Refused:
    """Until the blocks that were reserved ahead are used up."""
    for _ in range(100):
        try:
            acknowledged.append(send(producer, big_body()))
        except kourou.Refused as refusal:
            return refusal
    raise AssertionError("100 MiB went onto a full disk")


def big_body() -> bytes:
    return os.urandom(1 << 20)  # which nobody can compress


def send_when_there_is_room(producer: kourou.Producer, body: bytes, since: float) -> bytes:
    """Again and again; it must be taken in time after `since`, when space returned."""
    while True:
        with contextlib.suppress(kourou.Refused):
            send(producer, body)
            seconds = time.monotonic() - since
            assert seconds < RESUME_SECONDS_MAX, f"taken only {seconds:.1f} s after space returned"
            return body
        seconds = time.monotonic() - since
        assert seconds < RESUME_SECONDS_MAX, f"still refused {seconds:.1f} s after space returned"
        time.sleep(0.1)
