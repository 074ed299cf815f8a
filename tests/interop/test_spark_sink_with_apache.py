"""Spark's sink at Apache's broker, and the files of a stopped Apache broker as a table.

What Spark would call is called here directly; that Spark itself calls it so is shown in tests/spark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kourou
from kourou.errors import ConfigError
from kourou.local.published import Published
from kourou.spark.access import ClusterAccess
from kourou.spark.cluster import Cluster
from kourou.spark.outgoing import Rows
from kourou.spark.sending import Sender
from kourou.spark.source import RocketMQDataSource
from kourou.spark.staging import Committer, Stager, Transaction
from tests.interop import apache
from tests.interop.ours import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC = "SparkWrites"
COUNT = 3_000


def test_rows_are_written_to_an_apache_broker_and_found_in_its_files(version: str, tmp_path: Path) -> None:
    with (
        apache.name_server(version, tmp_path) as name_server,
        apache.broker(version, tmp_path, name_server.address) as broker,
    ):
        apache.mqadmin(
            version,
            tmp_path,
            f"updateTopic -n {name_server.address} -b {broker.address} -t {TOPIC} -r 4 -w 4",
        )
        wait_until(lambda: is_routed(name_server.address), 30, "the topic was routed")
        cluster = Cluster(ClusterAccess(name_server=name_server.address))
        sender = Sender(cluster, group="spark", patience_seconds=20)
        rows = Rows(topic=TOPIC, identity="query/0/0", now_ms=1_700_000_000_000)
        for start in range(0, COUNT, 1_000):
            sender.send(rows.take_in(batch(start, 1_000)))
        sender.send(rows.take_in(delayed()))
        sender.finish()
        assert sender.acknowledged == COUNT + 1
        refused(cluster)
        wait_until(
            lambda: len(Published(name_server.address).messages(TOPIC)) >= COUNT, 30, "all rows were visible"
        )
        found = Published(name_server.address).messages(TOPIC)
        at_once = [message for message in found if message.body != b"later"]
        assert sorted(int(message.body) for message in at_once) == list(range(COUNT))
        assert all(message.keys == f"k{int(message.body)}" for message in at_once)
        assert len({message.message_id for message in found}) == len(found)
        in_order: dict[int, list[int]] = {}
        for message in sorted(found, key=lambda each: each.queue_offset):
            if message.body != b"later":
                in_order.setdefault(message.queue_id, []).append(int(message.body))
        assert sorted(in_order) == [0, 1, 2, 3]
        assert all(bodies == sorted(bodies) for bodies in in_order.values())
        wait_until(
            lambda: any(each.body == b"later" for each in Published(name_server.address).messages(TOPIC)),
            30,
            "the delayed row was delivered",
        )
        cluster.close()
    [log] = [path for path in tmp_path.rglob("commitlog") if path.is_dir()]
    scanned = [row for row in scan(log.parent) if row["topic"] == TOPIC]
    assert {row["verdict"] for row in scanned} == {"ok"}
    assert all(row["indexed"] for row in scanned)
    assert sorted(int(row["body"]) for row in scanned if row["body"] != b"later") == list(range(COUNT))


def refused(cluster: Cluster) -> None:
    """Exactly once is not for this broker, and says so."""
    transaction = Transaction("query", 0)
    with pytest.raises(ConfigError, match="is not a Kourou broker, and cannot write exactly once"):
        Committer(cluster, transaction, 5).check_capable()
    stager = Stager(cluster, transaction, "0.0", patience_seconds=5)
    with pytest.raises(ConfigError, match="delivery=at-least-once"):
        stager.send(Rows(topic=TOPIC, identity="x", now_ms=1).take_in(batch(0, 10)))


def batch(first: int, count: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.RecordBatch.from_pydict(
        {
            "body": pa.array([b"%d" % number for number in numbers], pa.binary()),
            "keys": pa.array([f"k{number}" for number in numbers]),
            "properties": pa.array(
                [[("n", str(number))] for number in numbers], pa.map_(pa.string(), pa.string())
            ),
        }
    )


def delayed() -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": pa.array([b"later"]), "delayLevel": pa.array([1], pa.int32())})


def scan(store: Path) -> list[dict[str, Any]]:
    source = RocketMQDataSource({"table": "commitlog", "storepath": str(store)})
    reader = source.reader(source.schema())
    return [
        row
        for partition in reader.partitions()
        for rows in reader.read(partition)
        for row in rows.to_pylist()  # type: ignore[union-attr]
    ]


def is_routed(name_server: str) -> bool:
    with kourou.PullConsumer("looks", TOPIC, name_server, announce=False) as consumer:
        try:
            return len(consumer.queues()) == 4
        except kourou.MQError:
            return False
