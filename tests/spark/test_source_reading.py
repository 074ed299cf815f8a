"""What a batch read brings for each option, from a real broker, without Spark in between."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import kourou
from kourou.admin import Connection, brokers, topics
from kourou.broker.handlers.bulk_pull import without_bodies as bulk_pull_without_bodies
from kourou.errors import ConfigError, MQError, NotFound, Refused, Unreachable
from kourou.local.published import make_topic
from kourou.protocol.bodies import MessageQueue
from kourou.spark import pulls
from kourou.spark.access import ClusterAccess
from kourou.spark.data_loss import DataLoss
from kourou.spark.pulls import STOCK, pull_size, shared_cluster
from kourou.spark.source import RocketMQDataSource
from kourou.spark.stream import TopicStreamReader

BROKER = "kourou"  # as a LocalBroker is named
Directly = Callable[..., list[dict[str, Any]]]
NewTopic = Callable[..., str]
Fill = Callable[..., None]


def bodies(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["body"]) for row in rows)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


@pytest.fixture
def topic(new_topic: NewTopic, producer: kourou.Producer, broker: kourou.LocalBroker) -> str:
    """Two queues; 0 to 19 in the first, 100 to 109 in the second."""
    name = new_topic(2)
    for queue_id, first, count in ((0, 0, 20), (1, 100, 10)):
        queue = MessageQueue(topic=name, broker_name=BROKER, queue_id=queue_id)
        for body in numbered(count, first):
            producer.send(kourou.Message(name, body), queue=queue)
    return name


def test_several_topics_are_read_at_once(directly: Directly, new_topic: NewTopic, fill: Fill) -> None:
    first, second = new_topic(name="one"), new_topic(name="two")
    fill(first, numbered(3))
    fill(second, numbered(2, 10))
    assert bodies(directly(f"{first},{second}")) == [0, 1, 2, 10, 11]


def test_topics_are_found_by_a_pattern(directly: Directly, new_topic: NewTopic, fill: Fill) -> None:
    first, second = new_topic(name="pattern-a"), new_topic(name="pattern-b")
    fill(first, numbered(3))
    fill(second, numbered(2, 10))
    assert bodies(directly(subscribePattern="pattern-[ab]-.*")) == [0, 1, 2, 10, 11]
    assert directly(subscribePattern="no-such-topic") == []


def test_queues_are_assigned(directly: Directly, topic: str) -> None:
    assert bodies(directly(assign=json.dumps({topic: [1]}))) == list(range(100, 110))
    assert bodies(directly(assign=json.dumps({topic: {BROKER: [0]}}))) == list(range(20))
    with pytest.raises(ConfigError, match="names queue 7 of"):
        directly(assign=json.dumps({topic: [7]}))


def test_queue_ids_choose(directly: Directly, topic: str) -> None:
    assert bodies(directly(topic, queueIds="1")) == list(range(100, 110))


def test_a_read_begins_and_ends_at_offsets(directly: Directly, topic: str) -> None:
    place = json.dumps({topic: {BROKER: {"0": 5, "1": -2}}})
    end = json.dumps({topic: {BROKER: {"0": 7, "1": -1}}})
    assert bodies(directly(topic, startingOffsets=place, endingOffsets=end)) == [5, 6, *range(100, 110)]
    assert directly(topic, startingOffsets="latest") == []
    assert directly(topic, endingOffsets="earliest") == []
    partly = json.dumps({topic: {BROKER: {"0": 18}}})
    assert bodies(directly(topic, startingOffsets=partly)) == [18, 19, *range(100, 110)]
    with pytest.raises(ConfigError, match="queue 9 of"):
        directly(topic, startingOffsets=json.dumps({topic: {BROKER: {"9": 5}}}))


def test_a_start_behind_the_last_message_is_a_loss(directly: Directly, topic: str) -> None:
    """Of a group, or of somebody who noted it: in a store that has lost its end, or under a wrong name."""
    beyond = json.dumps({topic: {BROKER: {"0": 30}}})
    with pytest.raises(DataLoss, match=r"10 messages, offsets 20 to 29, of queue 0 .* ends at 20 now"):
        directly(topic, startingOffsets=beyond)
    assert bodies(directly(topic, startingOffsets=beyond, failOnDataLoss="false")) == list(range(100, 110))
    at_the_end = json.dumps({topic: {BROKER: {"0": 20}}})
    assert bodies(directly(topic, startingOffsets=at_the_end)) == list(range(100, 110))


def test_a_namespace_is_seen_by_the_brokers_alone(
    directly: Directly, broker: kourou.LocalBroker, stream_reader: Callable[..., TopicStreamReader]
) -> None:
    make_topic(broker.address, "shop%spaced", 1)
    with kourou.Producer("spaced", broker.name_server, namespace="shop") as producer:
        producer.send_all([kourou.Message("spaced", body) for body in numbered(3)])
    rows = directly("spaced", namespace="shop")
    assert (bodies(rows), {row["topic"] for row in rows}) == ([0, 1, 2], {"spaced"})
    assert bodies(directly(namespace="shop", subscribePattern="sp.ced")) == [0, 1, 2]
    reader = stream_reader("spaced", namespace="shop", groupId="spaced", startingOffsets="earliest")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.latestOffset(end, ReadAllAvailable())
    assert end == {"spaced": {BROKER: {"0": 3}}}
    with kourou.PullConsumer("shop%spaced", "shop%spaced", broker.name_server, announce=False) as consumer:
        assert [consumer.committed(queue) for queue in consumer.queues()] == [3]


def test_a_read_begins_and_ends_at_moments(directly: Directly, topic: str, producer: kourou.Producer) -> None:
    rows = directly(topic)
    after = max(row["storeTimestamp"] for row in rows)
    moment = str(round(after.timestamp() * 1000) + 1)
    threading.Event().wait(0.02)
    producer.send(
        kourou.Message(topic, b"999"), queue=MessageQueue(topic=topic, broker_name=BROKER, queue_id=0)
    )
    assert bodies(directly(topic, startingTimestamp=moment)) == [999]
    assert bodies(directly(topic, endingTimestamp=moment)) == bodies(rows)
    of_one = json.dumps({topic: {BROKER: {"0": int(moment)}}})
    assert bodies(directly(topic, startingOffsetsByTimestamp=of_one)) == [*range(100, 110), 999]
    assert bodies(directly(topic, endingOffsetsByTimestamp=of_one, queueIds="0")) == list(range(20))
    with pytest.raises(ConfigError, match="no message stored at"):
        directly(topic, startingTimestamp=moment, startingOffsetsByTimestampStrategy="error")


def test_a_read_begins_where_a_group_is(directly: Directly, topic: str, broker: kourou.LocalBroker) -> None:
    queue = MessageQueue(topic=topic, broker_name=BROKER, queue_id=0)
    with kourou.PullConsumer("where-a-group-is", topic, broker.name_server, announce=False) as consumer:
        consumer.commit({queue: 15})
    found = directly(topic, startingOffsets="group", groupId="where-a-group-is")
    assert bodies(found) == [15, 16, 17, 18, 19, *range(100, 110)]
    assert bodies(directly(topic, endingOffsets="group", groupId="where-a-group-is", queueIds="0")) == list(
        range(15)
    )


def test_tags_are_chosen_by_the_broker(directly: Directly, new_topic: NewTopic, fill: Fill) -> None:
    name = new_topic(2)
    fill(name, numbered(10), tags="new")
    fill(name, numbered(10, 10), tags="paid")
    fill(name, numbered(10, 20), tags="gone")
    assert bodies(directly(name, tags="new || paid")) == list(range(20))
    assert directly(name, tags="never") == []


def test_sql_chooses_by_properties(
    directly: Directly, new_topic: NewTopic, producer: kourou.Producer
) -> None:
    name = new_topic(2)
    producer.send_all([kourou.Message(name, b"%d" % n, properties={"amount": str(n)}) for n in range(40)])
    assert bodies(directly(name, filterSql="amount BETWEEN 5 AND 7")) == [5, 6, 7]
    with pytest.raises(Refused, match="amount"):
        directly(name, filterSql="amount BETWEEN")


def test_columns_and_their_types_are_the_schema_s(
    directly: Directly, new_topic: NewTopic, fill: Fill
) -> None:
    name = new_topic(1)
    fill(name, [b"x" * 100], tags="t", keys="k", properties={"own": "1"})
    row = directly(name)[0]
    assert row["topic"] == name
    assert row["brokerName"] == BROKER
    assert (row["queueId"], row["queueOffset"], row["tags"], row["keys"]) == (0, 0, "t", "k")
    assert dict(row["properties"])["own"] == "1"
    assert dict(row["properties"])["UNIQ_KEY"] == row["msgId"]
    assert row["bornTimestamp"] <= row["storeTimestamp"]
    raw = directly(name, properties="raw")[0]["properties"]
    assert "own\x011" in raw
    assert "CRC32" not in raw
    narrow = directly(name, pa.schema([("queueOffset", pa.int64()), ("properties", pa.string())]))
    assert narrow == [{"queueOffset": 0, "properties": raw}]


def test_bodies_come_inflated_and_never_beyond_their_bound(
    directly: Directly, new_topic: NewTopic, broker: kourou.LocalBroker
) -> None:
    name = new_topic(1)
    with kourou.Producer("compressing", broker.name_server, compress_over=100) as producer:
        producer.send(kourou.Message(name, b"z" * 50_000))
    row = directly(name, verifyCrc="true")[0]
    assert row["body"] == b"z" * 50_000
    assert row["sysFlag"] & 1
    with pytest.raises(MQError, match="inflates beyond 10240 bytes"):
        directly(name, maxInflatedBytes="10k")


def test_retries_and_dead_letters_of_the_group_are_read_too(
    directly: Directly, topic: str, broker: kourou.LocalBroker, producer: kourou.Producer
) -> None:
    make_topic(broker.address, "%RETRY%readers", 1)
    make_topic(broker.address, "%DLQ%readers", 1)
    for internal, body in (("%RETRY%readers", b"555"), ("%DLQ%readers", b"666")):
        producer.send(kourou.Message(internal, body))
    assert bodies(directly(topic, queueIds="0", groupId="readers", includeRetry="true")) == [*range(20), 555]
    assert bodies(directly(topic, queueIds="0", groupId="readers", includeDlq="true")) == [*range(20), 666]
    assert bodies(directly(subscribePattern=".*readers", includeDlq="true")) == [666]
    assert directly(topic, queueIds="7", groupId="nobody", includeDlq="true") == []


def test_delayed_and_undecided_messages_are_not_seen(
    directly: Directly, new_topic: NewTopic, broker: kourou.LocalBroker
) -> None:
    name = new_topic(1)
    check = lambda message: kourou.TransactionState.UNKNOWN  # noqa: E731
    with kourou.TransactionProducer("undecided", check, broker.name_server) as producer:
        with producer.transaction(kourou.Message(name, b"1")):
            assert directly(name) == []
        with pytest.raises(RuntimeError), producer.transaction(kourou.Message(name, b"2")):
            raise RuntimeError("rolled back")
        producer.send(kourou.Message(name, b"4"), delay=600)
    assert bodies(directly(name)) == [1]


def test_partitions_are_cut_and_put_together(
    new_topic: NewTopic, fill: Fill, broker: kourou.LocalBroker
) -> None:
    name = new_topic(4)
    fill(name, [b"%0500d" % number for number in range(400)])
    base = {"namesrvAddr": broker.name_server, "subscribe": name}

    def tasks(**options: str) -> list[int]:
        source = RocketMQDataSource({**base, **options})
        reader = source.reader(source.schema())
        partitions = reader.partitions()
        assert [each.ranges for each in partitions] == [each.ranges for each in reader.partitions()]  # type: ignore[attr-defined]
        return [sum(len(batch) for batch in reader.read(each)) for each in partitions]  # type: ignore[arg-type]

    assert tasks() == [400]
    assert sum(tasks(targetPartitionBytes="20k")) == 400
    assert len(tasks(targetPartitionBytes="20k")) > 8
    assert len(tasks(minPartitions="3")) >= 3
    assert max(tasks(maxRecordsPerPartition="30")) <= 30


@pytest.mark.parametrize("pull_batch", [None, "32", "3"])
@pytest.mark.parametrize("size", [10, 3000])
def test_messages_come_once_and_in_order_however_they_are_pulled(
    directly: Directly, new_topic: NewTopic, fill: Fill, pull_batch: str | None, size: int
) -> None:
    name = new_topic(2)
    fill(name, [b"%0*d" % (size, number) for number in range(700)])
    options = {} if pull_batch is None else {"pullBatchSize": pull_batch}
    rows = directly(name, **options)
    for queue_id in (0, 1):
        offsets = [row["queueOffset"] for row in rows if row["queueId"] == queue_id]
        assert offsets == list(range(len(offsets)))
    assert bodies(rows) == list(range(700))


def test_our_own_broker_gives_more_than_32_messages_at_once(
    directly: Directly,
    new_topic: NewTopic,
    fill: Fill,
    broker: kourou.LocalBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = shared_cluster(ClusterAccess(name_server=broker.name_server))
    assert pull_size(cluster, broker.address).bulk_bytes > 0
    assert (
        pull_size(shared_cluster(ClusterAccess(name_server=broker.name_server)), broker.name_server) == STOCK
    )
    name = new_topic(1)
    fill(name, numbered(500))
    asked: list[int] = []
    launch = pulls._Pulling._launch
    monkeypatch.setattr(
        pulls._Pulling, "_launch", lambda self, stretch: (asked.append(1), launch(self, stretch))[1]
    )
    assert len(directly(name)) == 500
    assert len(asked) == 1


def test_bodies_nobody_wants_are_not_sent(
    directly: Directly, new_topic: NewTopic, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[tuple[int, int]] = []

    def without_bodies(records: bytes) -> bytes:
        sent = bulk_pull_without_bodies(records)
        left.append((len(records), len(sent)))
        return sent

    monkeypatch.setattr("kourou.broker.handlers.bulk_pull.without_bodies", without_bodies)
    name = new_topic(1)
    fill(name, [b"%020000d" % number for number in range(300)])
    narrow = directly(name, pa.schema([("queueOffset", pa.int64()), ("msgId", pa.string())]))
    assert [row["queueOffset"] for row in narrow] == list(range(300))
    assert len({row["msgId"] for row in narrow}) == 300
    had, sent = map(sum, zip(*left, strict=True))
    assert had > 150 * 20_000  # most of it: how large messages are is seen with the first of them
    assert sent < had / 50


def test_a_topic_that_is_not_there_is_named(directly: Directly) -> None:
    with pytest.raises(NotFound, match="no topic 'no-such-topic'"):
        directly("no-such-topic")


def test_a_name_server_that_is_not_there_is_named(directly: Directly) -> None:
    with pytest.raises(Unreachable, match="no name server answers"):
        directly(
            "t",
            namesrvAddr="127.0.0.1:1",
            **{"fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "5"},
        )


def test_what_retention_took_before_the_read_is_an_error_or_a_gap(tmp_path: Path) -> None:
    with kourou.LocalBroker(tmp_path / "small", segment_bytes=64 * 1024, file_reserved_hours=0) as own:
        make_topic(own.address, "t", 1)
        with kourou.Producer("p", own.name_server) as producer:
            for first in range(0, 300, 20):
                producer.send_all([kourou.Message("t", b"%01000d" % n) for n in range(first, first + 20)])
        place = json.dumps({"t": {BROKER: {"0": 0}}})
        options = {"namesrvAddr": own.name_server, "subscribe": "t", "startingOffsets": place}
        source = RocketMQDataSource(options)
        reader = source.reader(source.schema())
        planned = list(reader.partitions())
        stream = RocketMQDataSource(options).streamReader(source.schema())
        start = stream.initialOffset()
        end = stream.latestOffset(start, ReadAllAvailable())
        expire(own, 1)
        with pytest.raises(
            DataLoss, match=r"offsets 0 to \d+, of queue 0 of 't' at kourou: the queue begins at"
        ):
            stream.partitions(start, end)
        with pytest.raises(
            DataLoss, match=r"offsets 0 to \d+, of queue 0 of 't' at kourou: the queue begins at"
        ):
            source.reader(source.schema()).partitions()
        with pytest.raises(DataLoss, match="failOnDataLoss"):
            list(reader.read(planned[0]))
        tolerant = RocketMQDataSource({**options, "failOnDataLoss": "false"})
        reading = tolerant.reader(tolerant.schema())
        rows = [row for each in planned for batch in reading.read(each) for row in batch.to_pylist()]  # type: ignore[union-attr]
        assert [row["queueOffset"] for row in rows] == list(range(rows[0]["queueOffset"], 300))
        assert rows[0]["queueOffset"] > 0
        streaming = tolerant.streamReader(tolerant.schema())
        left = [
            row["queueOffset"]
            for each in streaming.partitions(start, end)
            for batch in streaming.read(each)
            for row in batch.to_pylist()  # type: ignore[union-attr]
        ]
        assert left == list(range(left[0], 300)), "by now even more may be gone"
        assert left[0] > 0


def expire(broker: kourou.LocalBroker, least: int) -> None:
    """Let old files of the log go, as retention does, until a queue begins at `least` or later."""
    with Connection(broker.name_server) as connection:
        deadline = connection.clock.monotonic() + 20
        while topics.stats(connection, "t").queues[0].min_offset < least:
            assert connection.clock.monotonic() < deadline
            brokers.delete_expired_log(connection, broker.address)
            threading.Event().wait(0.05)
