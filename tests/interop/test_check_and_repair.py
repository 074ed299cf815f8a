"""`kourou store` on folders that Apache brokers write, and read again after a repair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kourou.protocol.record import Record, decode_all
from tests.interop import apache, ours
from tests.interop.test_store_folders import (
    BODIES,
    PULL_MESSAGE,
    QUEUES,
    TOPIC,
    ask,
    check_all_is_found,
    fill,
    is_found_by_key,
)
from tests.kourou_process import kourou

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

LOG = f"commitlog/{0:020d}"


def report_of(command: str, store: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = kourou("store", command, store, *options, "-o", "json", folder=store.parent)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_a_folder_of_apache_is_clean(version: str, ending: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with (
        ours.name_server(tmp_path) as names,
        apache.broker(version, tmp_path, names.address, name="mover", store=store) as broker,
    ):
        fill(version, tmp_path, names.address)
        if ending == "killed":
            broker.kill()
        else:
            broker.stop()
    code, report = report_of("check", store)
    assert code == 0, report["findings"]
    assert report["is_closed"] == (ending == "stopped")
    assert report["counts"]["records"] >= len(BODIES)
    assert report["counts"]["queue_entries"] >= len(BODIES)
    assert report["counts"]["index_entries"] >= len(BODIES)


def test_apache_goes_on_with_a_folder_that_was_repaired(version: str, tmp_path: Path) -> None:
    """Its own recovery would have cut the log at the bad record, and lost all that follows."""
    store = tmp_path / "store"
    with ours.name_server(tmp_path) as names:
        with apache.broker(version, tmp_path, names.address, name="mover", store=store) as broker:
            fill(version, tmp_path, names.address)
            broker.stop()
        lost = BODIES[3]
        garble(store, lost)
        code, report = report_of("repair", store, "--yes")
        assert code == 0, report["findings"]
        with apache.broker(version, tmp_path, names.address, name="mover", store=store) as broker:
            records = [record for queue in range(QUEUES) for record in whole_queue(broker.address, queue)]
            found = sorted(record.body.decode() for record in records)
            assert found == sorted(body for body in BODIES if body != lost)
            assert all(is_found_by_key(broker.address, record) for record in records)
            broker.stop()
    code, report = report_of("check", store)
    assert code == 0, report["findings"]


def whole_queue(address: str, queue: int) -> list[Record]:
    """The messages of a queue; one that stands for a lost neighbour as well comes once."""
    header, body = ask(
        address,
        PULL_MESSAGE,
        consumerGroup="movers",
        topic=TOPIC,
        queueId=queue,
        queueOffset=0,
        maxMsgNums=32,
        sysFlag=4,
        commitOffset=0,
        suspendTimeoutMillis=0,
        subscription="*",
        subVersion=0,
    )
    assert header["code"] == 0, header
    return list({record.queue_offset: record for record in decode_all(body)}.values())


def garble(store: Path, body: str) -> None:
    path = store / LOG
    with path.open("r+b") as log:
        start = log.read(1 << 20).index(body.encode())
        log.seek(start)
        log.write(b"?")


def test_our_own_folder_after_a_repair_is_read_by_apache(version: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with ours.name_server(tmp_path) as names:
        with ours.broker(tmp_path, names.address, name="mover", store=store) as broker:
            fill(version, tmp_path, names.address)
            broker.stop()
        for derived in (store / "consumequeue" / "Moved" / "0").iterdir():
            derived.write_bytes(b"\xff" * derived.stat().st_size)
        code, report = report_of("repair", store, "--yes")
        assert code == 0, report["findings"]
        with apache.broker(version, tmp_path, names.address, name="mover", store=store) as broker:
            check_all_is_found(broker.address)
