"""A disk whose sync fails, once or for good: nothing is acknowledged any more, and the broker ends with 74.

After a failed sync the system may take the pages for clean though they never reached the disk: whoever syncs
again and believes the success has lost them. So one failure must be as final as many.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.chaos.clients import everything, make_topics, traffic
from tests.chaos.oracle import History, faults
from tests.kourou_process import PROGRAM, Serving, serving, serving_broker

QUEUES = [("orders", 0), ("orders", 1)]
STALL_SECONDS, LATE_SECONDS = 2.0, 1.5
"""The failing sync takes so long; answers of the sync before it have arrived after so long."""

FAILING = f"""
import errno, os, time
real_sync, failures = os.fdatasync, []
def sync(descriptor):
    if os.path.exists('disk-fails') and len(failures) < int(open('disk-fails').read()):
        failures.append(time.time())
        if len(failures) == 1:
            open('failed-at', 'w').write(repr(failures[0]))
            time.sleep({STALL_SECONDS})
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    real_sync(descriptor)
os.fdatasync = sync
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("times", [1, 1_000_000], ids=["once", "for ever"])
def test_a_failed_sync_is_the_end_of_all_acknowledging(tmp_path: Path, times: int) -> None:
    (tmp_path / "broker.conf").write_text("flushDiskType=SYNC_FLUSH\nlistenPort=0\n")
    history = History()
    arguments = ("broker", "-c", "broker.conf", "--data", "store")
    with serving(*arguments, folder=tmp_path, until="listens on", program=FAILING + PROGRAM) as server:
        address = server.address("listens on")
        make_topics(address, ["orders"], len(QUEUES))
        with traffic(address, "s", 3, QUEUES, history):
            wait_for_traffic(history, server)
            (tmp_path / "disk-fails").write_text(str(times))
            assert server.wait() == 74
    assert "Traceback" not in server.log, server.log
    assert "nothing is acknowledged any more" in server.log
    failed_at = float((tmp_path / "failed-at").read_text())
    history.write(tmp_path / "history")
    late = [line for line in acknowledgements(tmp_path / "history") if line > failed_at + LATE_SECONDS]
    assert not late, f"{len(late)} messages were acknowledged after a sync had failed"
    (tmp_path / "disk-fails").unlink()
    with serving_broker(tmp_path, settings="flushDiskType=SYNC_FLUSH\n") as server:
        found = faults(history, everything(server.address("listens on"), QUEUES), {})
        assert server.stop() == 0
    assert not found, found[:5]


def wait_for_traffic(history: History, server: Serving) -> None:
    deadline = time.monotonic() + 20
    while len(history.acknowledged) < 50:
        assert time.monotonic() < deadline, f"too little traffic: {server.log}"
        time.sleep(0.05)


def acknowledgements(path: Path) -> list[float]:
    """When each message was acknowledged."""
    operations = map(json.loads, path.read_text().splitlines())
    return [each["t"] for each in operations if (each["op"], each["result"]) == ("send", "ok")]
