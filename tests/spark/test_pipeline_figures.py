"""`latency`, `lag-history`, `stats` and the audit of senders against receivers, against a real broker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kourou
from kourou.errors import ConfigError, MQError
from kourou.protocol.names import TRACE_TOPIC
from kourou.spark.pipelines.audit import audit_sides
from kourou.spark.pipelines.lag_history import lag_history
from kourou.spark.pipelines.latency import latency
from kourou.spark.pipelines.report import as_html
from kourou.spark.pipelines.stats import shares, stats, stream_stats

pytestmark = pytest.mark.timeout(600)

Fill = Callable[..., None]
NewTopic = Callable[..., str]
SENT_MS = 1_700_000_000_000
PNG = b"\x89PNG"


def pub(topic: str, number: int, at_ms: int) -> str:
    fields = (
        "Pub",
        at_ms,
        "DefaultRegion",
        "shop",
        topic,
        f"id-{topic}-{number}",
        "",
        "",
        "b",
        10,
        2,
        0,
        "o",
        "true",
    )
    return "\x01".join(map(str, fields)) + "\x02"


def handled(
    topic: str, number: int, group: str, at_ms: int, spent_ms: int, *, fine: bool = True, turn: int = 0
) -> str:
    request, message = f"r-{group}-{topic}-{number}-{turn}", f"id-{topic}-{number}"
    before = ("SubBefore", at_ms, "DefaultRegion", group, request, message, 0, "")
    after = ("SubAfter", request, message, spent_ms, str(fine).lower(), "", 0, at_ms + spent_ms, group)
    return "".join("\x01".join(map(str, fields)) + "\x02" for fields in (before, after))


@pytest.fixture(scope="module")
def traced(broker: kourou.LocalBroker) -> str:
    """A traced topic: message n was sent at n seconds, begun n milliseconds later, handled in 10."""
    topic = "traced"
    with kourou.Producer("trace-writer", broker.name_server) as producer:
        for number in range(1, 101):
            at_ms = SENT_MS + number * 1000
            lines = pub(topic, number, at_ms)
            if number != 50:
                lines += handled(topic, number, "billing", at_ms + number, 10)
            if number == 7:
                lines += handled(topic, number, "billing", at_ms + 500, 10, turn=1)
            if number == 9:
                lines += handled(topic, number, "billing", at_ms - 5, 3, fine=False, turn=1)
            producer.send(kourou.Message(TRACE_TOPIC, lines.encode()))
    return topic


def test_percentiles_are_those_of_the_known_delays(
    spark: SparkSession, broker: kourou.LocalBroker, traced: str
) -> None:
    found = latency(spark, broker.name_server)
    by_measure = {each.measure: each for each in found.measures if each.topic == traced}
    delivery, handling, whole = (by_measure[name] for name in ("delivery", "handling", "end to end"))
    assert (delivery.group, delivery.messages) == ("billing", 100)
    assert abs(delivery.p50 - 51) <= 1
    assert delivery.p95 == 96
    assert delivery.longest == 500
    assert (handling.p50, handling.p999) == (10, 10)
    assert whole.p95 == delivery.p95 + 10
    assert found.heat_map is not None
    assert sum(map(sum, found.heat_map.counts)) == 100
    report = found.report(with_pictures=True)
    assert report.pictures[0].png.startswith(PNG)
    assert "data:image/png;base64," in as_html(report)


def test_the_time_until_storage_is_known_of_every_message(
    spark: SparkSession, broker: kourou.LocalBroker, new_topic: NewTopic, fill: Fill
) -> None:
    topic = new_topic(2)
    fill(topic, [b"x"] * 30)
    found = latency(spark, broker.name_server, topics=[topic])
    (store,) = [each for each in found.measures if each.measure == "store"]
    assert (store.topic, store.messages) == (topic, 30)
    assert 0 <= store.p50 <= store.p999 <= store.longest < 60_000


def test_what_was_never_handled_or_more_than_once_is_told(
    spark: SparkSession, broker: kourou.LocalBroker, traced: str
) -> None:
    audited = audit_sides(spark, broker.name_server, topics=[traced], groups=["billing"])
    (side,) = audited.sides
    assert (side.sent, side.handled, side.never, side.more_than_once, side.failures) == (100, 99, 1, 1, 1)
    assert {(row["msgId"], row["what"]) for row in audited.examples} == {
        ("id-traced-50", "never handled"),
        ("id-traced-7", "handled more than once"),
    }
    assert not audited.is_ok


def test_lag_is_kept_over_time_and_every_run_adds_to_it(
    spark: SparkSession, broker: kourou.LocalBroker, new_topic: NewTopic, fill: Fill, tmp_path: Path
) -> None:
    topic, group, history = new_topic(2), f"lag-{tmp_path.name[-8:].strip('_')}", tmp_path / "history"
    fill(topic, [b"x"] * 40)
    with kourou.PullConsumer(group, topic, broker.name_server) as consumer:
        consumer.receive(10, timeout=5)
        consumer.commit()
        first = lag_history(spark, broker.name_server, str(history), groups=[group])
        (behind,) = [each for each in first.groups if each.topic == topic]
        left = behind.last
        assert 0 < left < 40
        assert behind.last_seconds >= 0
        while consumer.receive(100, timeout=1):
            consumer.commit()
    second = lag_history(spark, broker.name_server, str(history), groups=[group], samples=2, every=0.05)
    (gone,) = [each for each in second.groups if each.topic == topic]
    assert (gone.samples, gone.last, gone.peak) == (3, 0, left)
    assert gone.change < 0
    assert all(picture.png.startswith(PNG) for picture in second.report(with_pictures=True).pictures)
    with pytest.raises(MQError, match="nobody"):
        lag_history(spark, broker.name_server, str(history), groups=["nobody"])


def test_stats_count_messages_sizes_keys_tags_and_find_hot_queues(
    spark: SparkSession, broker: kourou.LocalBroker, new_topic: NewTopic, producer: kourou.Producer
) -> None:
    topic = new_topic(4)
    for number in range(40):
        message = kourou.Message(
            topic, b"x" * (number + 1), keys=f"k{number % 5}", tags="even" if number % 2 == 0 else None
        )
        producer.send(
            message, select=lambda queues, sent: queues[0 if len(sent.body) < 35 else len(sent.body) % 4]
        )
    found = stats(spark, broker.name_server, topics=[topic], window="10 minutes")
    (one,) = found.topics
    assert (one.messages, one.bytes, one.max_bytes) == (40, sum(range(41)), 40)
    assert (one.keyed, one.different_keys, one.tagged) == (40, 5, 20)
    assert one.hot_queues.endswith("/0")
    assert sum(window.messages for window in found.windows) == 40
    assert found.tags == [{"topic": topic, "tags": "even", "messages": 20}]
    assert found.report(with_pictures=True).pictures[0].png.startswith(PNG)
    with pytest.raises(ConfigError, match="window"):
        stats(spark, broker.name_server, topics=[topic], window="soon")


def test_streamed_stats_go_on_where_they_were(
    spark: SparkSession, broker: kourou.LocalBroker, new_topic: NewTopic, fill: Fill, checkpoint: str
) -> None:
    topic = new_topic(2)
    told: list[object] = []
    for _ in range(2):
        fill(topic, [b"abc"] * 20)
        counted = stream_stats(
            spark,
            broker.name_server,
            checkpoint,
            topics=[topic],
            window="1 hour",
            once=True,
            told=told.append,
        )
    assert sum(window.messages for window in counted.windows) in (20, 40)  # 20 when an hour has just begun
    assert sum(window.bytes for window in counted.windows) == 3 * sum(
        window.messages for window in counted.windows
    )
    assert len(told) == 2
    stopped = threading.Event()
    stopped.set()
    assert stream_stats(spark, broker.name_server, checkpoint, topics=[topic], stop=stopped).windows == []


def test_a_queue_is_hot_that_has_more_than_twice_its_share() -> None:
    rows = shares({("t", "b", 0): 70, ("t", "b", 1): 10, ("t", "b", 2): 20, ("alone", "b", 0): 5})
    assert [(row["topic"], row["queue_id"]) for row in rows if row["is_hot"]] == [("t", 0)]
