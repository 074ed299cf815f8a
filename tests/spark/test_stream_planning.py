"""What a streaming query reads next, asked as Spark asks, against a real broker and without Spark."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

import kourou
from kourou.admin import Connection, topics
from kourou.errors import ConfigError, NotFound
from kourou.local.published import make_topic
from kourou.spark import stream as stream_module
from kourou.spark.data_loss import DataLoss
from kourou.spark.source import RocketMQDataSource
from kourou.spark.stream import TopicStreamReader

StreamReader = Callable[..., TopicStreamReader]
RowsBetween = Callable[[TopicStreamReader, dict[str, Any], dict[str, Any]], int]
NewTopic = Callable[..., str]
Fill = Callable[..., None]


def rows_of(offset: dict[str, Any]) -> int:
    return sum(
        place for brokers in offset.values() for queues in brokers.values() for place in queues.values()
    )


def latest(reader: TopicStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """As Spark asks: with the limit the reader itself has said."""
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def test_a_batch_is_limited_by_rows(stream_reader: StreamReader, new_topic: NewTopic, fill: Fill) -> None:
    topic = new_topic(2)
    fill(topic, [b"x"] * 30)
    reader = stream_reader(topic, startingOffsets="earliest", maxOffsetsPerTrigger="8")
    assert reader.getDefaultReadLimit() == ReadMaxRows(8)
    start = reader.initialOffset()
    seen = []
    while (end := latest(reader, start)) != start:
        seen.append(rows_of(end) - rows_of(start))
        start = end
    assert seen == [8, 8, 8, 6]
    assert rows_of(reader.latestOffset(reader.initialOffset(), ReadAllAvailable())) == 30  # Trigger.Once
    assert reader.reportLatestOffset() == reader.latestOffset(start, ReadAllAvailable())


def test_a_batch_is_limited_by_bytes(
    stream_reader: StreamReader, rows_between: RowsBetween, new_topic: NewTopic, fill: Fill
) -> None:
    topic = new_topic(1)
    fill(topic, [b"x" * 10_000] * 40)
    reader = stream_reader(topic, startingOffsets="earliest", maxBytesPerTrigger="100k")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(100 << 10)
    start = reader.initialOffset()
    end = latest(reader, start)
    assert 8 <= rows_of(end) <= 11
    assert rows_between(reader, start, end) == rows_of(end)


def test_little_is_waited_for_but_not_for_ever(
    stream_reader: StreamReader, new_topic: NewTopic, fill: Fill
) -> None:
    topic = new_topic(1)
    fill(topic, [b"x"] * 3)
    reader = stream_reader(
        topic, startingOffsets="earliest", minOffsetsPerTrigger="5", maxTriggerDelay="300ms"
    )
    assert reader.getDefaultReadLimit() == ReadMinRows(5)
    start = reader.initialOffset()
    assert latest(reader, start) == start
    time.sleep(0.35)
    assert rows_of(latest(reader, start)) == 3
    patient = stream_reader(topic, startingOffsets="earliest", minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    assert latest(patient, start) == start
    fill(topic, [b"x"] * 2)
    assert rows_of(latest(patient, start)) == 5


def test_available_now_ends_where_it_was_asked_to(
    stream_reader: StreamReader, new_topic: NewTopic, fill: Fill
) -> None:
    topic = new_topic(2)
    fill(topic, [b"x"] * 10)
    reader = stream_reader(topic, startingOffsets="earliest", maxOffsetsPerTrigger="6")
    reader.prepareForTriggerAvailableNow()
    fill(topic, [b"x"] * 10)
    start = reader.initialOffset()
    middle = latest(reader, start)
    end = latest(reader, middle)
    assert (rows_of(middle), rows_of(end)) == (6, 10)
    assert latest(reader, end) == end


@pytest.mark.parametrize(
    ("starting", "first"), [("earliest", 0), ("latest", 10), ('{"TOPIC": {"kourou": {"0": 4}}}', 4)]
)
def test_a_query_begins_where_its_options_say(
    stream_reader: StreamReader, new_topic: NewTopic, fill: Fill, starting: str, first: int
) -> None:
    topic = new_topic(1)
    fill(topic, [b"x"] * 10)
    reader = stream_reader(topic, startingOffsets=starting.replace("TOPIC", topic))
    assert reader.initialOffset() == {topic: {"kourou": {"0": first}}}


def test_a_query_goes_on_where_its_group_is(
    stream_reader: StreamReader, new_topic: NewTopic, fill: Fill, broker: kourou.LocalBroker
) -> None:
    topic = new_topic(1)
    fill(topic, [b"x"] * 10)
    with kourou.PullConsumer("was-here", topic, broker.name_server, announce=False) as consumer:
        consumer.commit(dict.fromkeys(consumer.queues(), 7))
    reader = stream_reader(topic, startingOffsets="group", groupId="was-here")
    assert reader.initialOffset() == {topic: {"kourou": {"0": 7}}}


def test_without_a_group_nothing_is_committed(
    stream_reader: StreamReader, new_topic: NewTopic, fill: Fill, broker: kourou.LocalBroker
) -> None:
    topic = new_topic(1)
    fill(topic, [b"x"] * 10)
    reader = stream_reader(topic, startingOffsets="earliest", groupIdPrefix="nobody")
    latest(reader, latest(reader, reader.initialOffset()))
    with kourou.PullConsumer("nobody", topic, broker.name_server, announce=False) as consumer:
        assert [consumer.committed(queue) for queue in consumer.queues()] == [None]


def test_a_topic_that_is_not_there_is_an_error_at_the_start(stream_reader: StreamReader) -> None:
    with pytest.raises(NotFound, match="no topic 'not-there'"):
        stream_reader("not-there").initialOffset()


def test_a_checkpoint_of_another_query_is_refused(stream_reader: StreamReader, new_topic: NewTopic) -> None:
    with pytest.raises(ConfigError, match="another query's"):
        stream_reader(new_topic(1)).latestOffset({"logOffset": 5}, ReadAllAvailable())


def test_a_queue_that_lost_its_end_is_a_loss(
    stream_reader: StreamReader, new_topic: NewTopic, fill: Fill
) -> None:
    topic = new_topic(1)
    fill(topic, [b"x"] * 5)
    ahead = {topic: {"kourou": {"0": 9}}}
    with pytest.raises(DataLoss, match="4 messages, offsets 5 to 8, of queue 0"):
        stream_reader(topic).latestOffset(ahead, ReadAllAvailable())
    tolerant = stream_reader(topic, failOnDataLoss="false")
    assert tolerant.latestOffset(ahead, ReadAllAvailable()) == ahead


def test_a_queue_that_was_taken_away_is_a_loss_if_it_was_not_read(
    stream_reader: StreamReader,
    new_topic: NewTopic,
    fill: Fill,
    broker: kourou.LocalBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_module, "DISCOVERY_SECONDS", 0.0)
    topic = new_topic(2)
    fill(topic, [b"x"] * 10)
    reader = stream_reader(topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = latest(reader, start)
    make_topic(broker.address, topic, 1)
    fill(topic, [b"x"] * 3)
    assert latest(reader, end) == {topic: {"kourou": {"0": 8, "1": 5}}}
    with pytest.raises(
        DataLoss, match=r"5 messages, offsets 0 to 4, of queue 1 of .* no such queue to read now"
    ):
        latest(reader, start)
    tolerant = stream_reader(topic, startingOffsets="earliest", failOnDataLoss="false")
    assert latest(tolerant, start) == {topic: {"kourou": {"0": 8, "1": 0}}}


def test_a_topic_that_was_deleted_is_a_loss(
    stream_reader: StreamReader,
    new_topic: NewTopic,
    fill: Fill,
    broker: kourou.LocalBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_module, "DISCOVERY_SECONDS", 0.0)
    topic = new_topic(1)
    fill(topic, [b"x"] * 10)
    reader = stream_reader(topic, startingOffsets="earliest")
    end = latest(reader, reader.initialOffset())
    with Connection(broker.name_server) as connection:
        topics.delete(connection, topic)
    with pytest.raises(DataLoss, match="10 messages, offsets 0 to 9, of queue 0 of"):
        latest(reader, end)


def test_a_query_outlives_its_broker(
    tmp_path: Path, rows_between: RowsBetween, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker goes and comes back with what it had; its queues stay where they were meanwhile."""
    monkeypatch.setattr(stream_module, "DISCOVERY_SECONDS", 0.0)
    with kourou.LocalBroker(memory=True) as name_server, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        settings = {
            "port": port,
            "broker_name": "second",
            "name_servers": (name_server.name_server,),
        }
        with kourou.LocalBroker(tmp_path / "second", **settings) as second:
            make_topic(second.address, "t", 1)
            with kourou.Producer("p", name_server.name_server) as producer:
                producer.send_all([kourou.Message("t", b"x")] * 5)
            source = RocketMQDataSource(
                {"namesrvAddr": name_server.name_server, "subscribe": "t", "startingOffsets": "earliest",
                 "groupId": "g"}
            )  # fmt: skip
            reader = source.streamReader(source.schema())
            assert isinstance(reader, TopicStreamReader)
            start = reader.initialOffset()
            end = latest(reader, start)
            assert end == {"t": {"second": {"0": 5}}}
        assert latest(reader, end) == end
        with kourou.LocalBroker(tmp_path / "second", **settings) as second:
            with kourou.Producer("p", name_server.name_server) as producer:
                _send_when_it_can(producer, 3)
            deadline = time.monotonic() + 20
            while (new_end := latest(reader, end)) == end and time.monotonic() < deadline:
                time.sleep(0.1)
            assert new_end == {"t": {"second": {"0": 8}}}
            assert rows_between(reader, end, new_end) == 3


def _send_when_it_can(producer: kourou.Producer, count: int) -> None:
    for _ in range(count):
        for attempt in range(100):
            try:
                producer.send(kourou.Message("t", b"y"))
                break
            except kourou.MQError:
                assert attempt < 99
                time.sleep(0.1)


def test_a_task_waits_for_a_broker_that_comes_back(tmp_path: Path) -> None:
    import threading

    with kourou.LocalBroker(memory=True) as name_server, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        settings = {"port": port, "broker_name": "second", "name_servers": (name_server.name_server,)}
        options = {"namesrvAddr": name_server.name_server, "subscribe": "t"}
        second = kourou.LocalBroker(tmp_path / "second", **settings)
        second.start()
        make_topic(second.address, "t", 1)
        with kourou.Producer("p", name_server.name_server) as producer:
            producer.send_all([kourou.Message("t", b"x")] * 5)
        source = RocketMQDataSource(options)
        reader = source.reader(source.schema())
        planned = list(reader.partitions())
        second.stop()
        again = kourou.LocalBroker(tmp_path / "second", **settings)
        comeback = threading.Timer(1.0, again.start)
        comeback.start()
        try:
            assert sum(len(batch) for each in planned for batch in reader.read(each)) == 5  # type: ignore[arg-type]
        finally:
            comeback.join()
            again.stop()
        impatient = RocketMQDataSource({**options, "pullTimeoutMs": "700"})
        gone = impatient.reader(impatient.schema())
        began = time.monotonic()
        with pytest.raises(kourou.MQError):
            list(gone.read(planned[0]))
        assert time.monotonic() - began < 15


def test_a_process_that_spark_has_left_ends_without_a_word_and_shows_other_errors(
    stream_reader: StreamReader, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, *_: told.append(kind))
    reader = stream_reader(new_topic())
    reader.stop()
    sys.excepthook(BrokenPipeError, BrokenPipeError(), None)
    assert told == [BrokenPipeError], "it was asked to stop, and somebody may want to know"
    try:
        raise EOFError  # what the process sees where Spark's next word should be
    except EOFError:
        reader.stop()
    for error in (BrokenPipeError(), ValueError()):
        sys.excepthook(type(error), error, None)
    assert told == [BrokenPipeError, ValueError]
