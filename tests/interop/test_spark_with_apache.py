"""Spark's source at Apache's broker: the same rows, filters, offsets and group as at ours.

What Spark would call is called here directly; that Spark itself calls it so is shown in tests/spark.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import kourou
from kourou.protocol.bodies import MessageQueue
from kourou.spark.access import ClusterAccess
from kourou.spark.pulls import STOCK, pull_size, shared_cluster
from kourou.spark.source import RocketMQDataSource
from kourou.spark.stream import TopicStreamReader
from tests.interop import apache
from tests.interop.ours import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC = "SparkReads"
QUEUES = 4
COUNT = 400


def rows(**options: str) -> list[dict[str, Any]]:
    source = RocketMQDataSource(options)
    reader = source.reader(source.schema())
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()  # type: ignore[union-attr]
    ]


def test_a_topic_of_an_apache_broker_is_a_table(version: str, tmp_path: Path) -> None:
    with (
        apache.name_server(version, tmp_path) as name_server,
        apache.broker(version, tmp_path, name_server.address, enablePropertyFilter="true") as broker,
    ):
        apache.mqadmin(
            version,
            tmp_path,
            f"updateTopic -n {name_server.address} -b {broker.address} -t {TOPIC} -r 4 -w 4",
        )
        send(name_server.address)
        base = {"namesrvAddr": name_server.address, "subscribe": TOPIC}
        cluster = shared_cluster(ClusterAccess(name_server=name_server.address))
        assert pull_size(cluster, broker.address) == STOCK

        wait_until(lambda: len(rows(**base)) == COUNT, 20, "all could be read")
        found = rows(**base)
        assert sorted(int(row["body"]) for row in found) == list(range(COUNT))
        assert len({row["msgId"] for row in found}) == COUNT
        for queue_id in range(QUEUES):
            places = [row["queueOffset"] for row in found if row["queueId"] == queue_id]
            assert places == list(range(COUNT // QUEUES))
        assert {row["tags"] for row in rows(**base, tags="even")} == {"even"}
        assert len(rows(**base, tags="even")) == COUNT // 2
        assert sorted(int(row["body"]) for row in rows(**base, filterSql="n BETWEEN 7 AND 9")) == [7, 8, 9]
        name = found[0]["brokerName"]
        place = json.dumps({TOPIC: {name: {"0": 95}}})
        assert len(rows(**base, startingOffsets=place, queueIds="0")) == 5
        moment = str(round(max(row["storeTimestamp"] for row in found).timestamp() * 1000) + 1000)
        assert rows(**base, startingTimestamp=moment) == []
        queues = rows(namesrvAddr=name_server.address, table="queues", subscribe=TOPIC)
        assert sum(row["messages"] for row in queues) == COUNT


def test_a_streaming_query_keeps_its_group_at_an_apache_broker(version: str, tmp_path: Path) -> None:
    with (
        apache.name_server(version, tmp_path) as name_server,
        apache.broker(version, tmp_path, name_server.address) as broker,
    ):
        apache.mqadmin(
            version,
            tmp_path,
            f"updateTopic -n {name_server.address} -b {broker.address} -t {TOPIC} -r 4 -w 4",
        )
        options = {"namesrvAddr": name_server.address, "subscribe": TOPIC, "groupId": "spark-readers"}
        send(name_server.address)
        base = {"namesrvAddr": name_server.address, "subscribe": TOPIC}
        wait_until(lambda: len(rows(**base)) == COUNT, 20, "all could be read")
        first = stream(**options, startingOffsets="latest")
        begun = first.initialOffset()
        send(name_server.address)
        wait_until(lambda: len(rows(**base)) == 2 * COUNT, 20, "all could be read")
        end = first.latestOffset(begun, ReadAllAvailable())
        again = stream(**options, startingOffsets="latest")
        assert again.initialOffset() == begun
        counted = [len(batch) for part in again.partitions(begun, end) for batch in again.read(part)]
        assert sum(counted) == COUNT
        again.latestOffset(end, ReadAllAvailable())

        def is_committed() -> bool:
            with kourou.PullConsumer("spark-readers", TOPIC, name_server.address, announce=False) as consumer:
                places = [consumer.committed(queue) for queue in consumer.queues()]
            return places == [2 * COUNT // QUEUES] * QUEUES

        wait_until(is_committed, 20, "the group was where Spark is")


def stream(**options: str) -> TopicStreamReader:
    source = RocketMQDataSource(options)
    reader = source.streamReader(source.schema())
    assert isinstance(reader, TopicStreamReader)
    return reader


def send(name_server: str) -> None:
    """The i-th message to queue i modulo four."""
    with kourou.Producer("spark-sends", name_server, send_timeout=10.0) as producer:
        wait_until(lambda: _is_routed(name_server), 30, "the topic was routed")
        with kourou.PullConsumer("looks", TOPIC, name_server, announce=False) as consumer:
            queues: list[MessageQueue] = sorted(consumer.queues())
        for queue_id, queue in enumerate(queues):
            messages = [
                kourou.Message(TOPIC, b"%d" % n, tags="odd" if n % 2 else "even", properties={"n": str(n)})
                for n in range(queue_id, COUNT, QUEUES)
            ]
            producer.send_all(messages, queue=queue)


def _is_routed(name_server: str) -> bool:
    with kourou.PullConsumer("looks", TOPIC, name_server, announce=False) as consumer:
        try:
            return len(consumer.queues()) == QUEUES
        except kourou.MQError:
            return False
