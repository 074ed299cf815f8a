"""A folder written by our broker is read by Apache's, and the other way: the format on disk is one.

Whether the writer was stopped or killed (kill -9), the reader finds every message by its place in its queue,
by its place in the log, by its key and by its time; consumers get each once; and senders go on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kourou.protocol.record import Record, decode_all
from tests.interop import apache, ours
from tests.interop.round_trip import PER_WAY, check_each_once, java_consume, java_send

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC = "Moved"
QUEUES = 4  # what a Java producer asks for when a topic is made for it
BODIES = [f"{way}-{n}" for way in ("sync", "batch") for n in range(PER_WAY)]
ENDINGS = ("stopped", "killed")

PULL_MESSAGE, QUERY_MESSAGE, SEARCH_BY_TIME, EARLIEST_TIME, VIEW_MESSAGE = 11, 12, 29, 32, 33


@pytest.mark.parametrize("ending", ENDINGS)
def test_apache_goes_on_with_a_folder_of_ours(version: str, ending: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with ours.name_server(tmp_path) as names:
        with ours.broker(tmp_path, names.address, name="mover", store=store) as broker:
            fill(version, tmp_path, names.address)
            if ending == "killed":
                broker.process.kill()
            else:
                broker.stop()
        with apache.broker(version, tmp_path, names.address, name="mover", store=store) as broker:
            check_all_is_found(broker.address)
            check_consumers_and_senders_go_on(version, tmp_path, names.address)


@pytest.mark.parametrize("ending", ENDINGS)
def test_we_go_on_with_a_folder_of_apache(version: str, ending: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with ours.name_server(tmp_path) as names:
        with apache.broker(version, tmp_path, names.address, name="mover", store=store) as broker:
            fill(version, tmp_path, names.address)
            if ending == "killed":
                broker.kill()
            else:
                broker.stop()
        with ours.broker(tmp_path, names.address, name="mover", store=store) as broker:
            check_all_is_found(broker.address)
            check_consumers_and_senders_go_on(version, tmp_path, names.address)
            broker.stop()


def fill(version: str, folder: Path, name_server: str) -> None:
    java_send(version, folder, name_server, TOPIC, "sync")
    java_send(version, folder, name_server, TOPIC, "batch")


def check_consumers_and_senders_go_on(version: str, folder: Path, name_server: str) -> None:
    check_each_once(java_consume(version, folder, name_server, TOPIC, len(BODIES)), BODIES)
    java_send(version, folder, name_server, TOPIC, "async")
    received = java_consume(version, folder, name_server, TOPIC, PER_WAY)
    check_each_once(received, [f"async-{n}" for n in range(PER_WAY)])


def check_all_is_found(address: str) -> None:
    queues = {queue: by_offset(address, queue) for queue in range(QUEUES)}
    records = [record for queue in queues.values() for record in queue]
    assert sorted(record.body.decode() for record in records) == sorted(BODIES)
    ours.wait_until(
        lambda: all(is_found_by_key(address, record) for record in records), 10, "all keys are there"
    )
    for record in records:
        assert by_place(address, record.physical_offset) == record.body
        assert record.damage() is None
    for queue, inside in queues.items():
        check_found_by_time(address, queue, inside)


def by_offset(address: str, queue: int) -> list[Record]:
    """All messages of a queue, pulled from its beginning."""
    records: list[Record] = []
    while True:
        header, body = ask(
            address,
            PULL_MESSAGE,
            consumerGroup="movers",
            topic=TOPIC,
            queueId=queue,
            queueOffset=len(records),
            maxMsgNums=32,
            sysFlag=4,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription="*",
            subVersion=0,
        )
        if header["code"] != 0:
            return records
        records += decode_all(body)
        assert [record.queue_offset for record in records] == list(range(len(records)))


def by_place(address: str, physical_offset: int) -> bytes:
    header, body = ask(address, VIEW_MESSAGE, offset=physical_offset)
    assert header["code"] == 0, header
    [record] = decode_all(body)
    return record.body


def is_found_by_key(address: str, record: Record) -> bool:
    key = (record.find(b"KEYS") or b"").decode()
    fields = {"topic": TOPIC, "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 2**62}
    header, body = ask(address, QUERY_MESSAGE, **fields)
    # After a crash Apache puts the last message it finds in the index there once more.
    return header["code"] == 0 and {found.body for found in decode_all(body)} == {record.body}


def check_found_by_time(address: str, queue: int, records: list[Record]) -> None:
    def search(time_ms: int) -> int:
        header, _ = ask(address, SEARCH_BY_TIME, topic=TOPIC, queueId=queue, timestamp=time_ms)
        return int(header["extFields"]["offset"])

    for record in records:  # 4.9 finds any of several of one moment
        assert records[search(record.store_ms)].store_ms == record.store_ms
    if records:
        header, _ = ask(address, EARLIEST_TIME, topic=TOPIC, queueId=queue)
        assert int(header["extFields"]["timestamp"]) == records[0].store_ms
        assert search(0) == 0


def ask(address: str, code: int, **fields: Any) -> tuple[dict[str, Any], bytes]:
    """The header and the body of an answer."""
    answer = apache.ask(address, code, fields={name: str(value) for name, value in fields.items()})
    body_at = 4 + int.from_bytes(answer[1:4], "big")
    return json.loads(answer[4:body_at]), answer[body_at:]
