"""What a cluster knows of itself, as tables."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

import kourou
from kourou.errors import ConfigError
from kourou.local.published import make_topic

Directly = Callable[..., list[dict[str, Any]]]
NewTopic = Callable[..., str]
Fill = Callable[..., None]


def test_topics_and_queues(directly: Directly, new_topic: NewTopic, fill: Fill) -> None:
    topic = new_topic(3, name="tables")
    fill(topic, [b"x"] * 7)
    (row,) = directly(topic, table="topics")
    assert (row["topic"], row["readQueues"], row["writeQueues"], row["perm"]) == (topic, 3, 3, 6)
    assert row["brokers"] == "kourou"
    queues = sorted(directly(topic, table="queues"), key=lambda each: each["queueId"])
    assert [each["messages"] for each in queues] == [3, 2, 2]
    assert all(each["lastTimestamp"] is not None for each in queues)
    assert {each["topic"] for each in directly(subscribePattern="tables-.*", table="topics")} == {topic}


def test_groups_their_lag_and_their_members(
    directly: Directly, new_topic: NewTopic, fill: Fill, broker: kourou.LocalBroker
) -> None:
    topic = new_topic(1)
    fill(topic, [b"x"] * 10)
    with kourou.PullConsumer("tables-group", topic, broker.name_server) as consumer:
        assert len(consumer.receive(4)) == 4
        consumer.commit()
        (lag,) = directly(table="lag", groupId="tables-group")
        assert (lag["topic"], lag["queueId"], lag["consumerOffset"], lag["lag"]) == (topic, 0, 4, 6)
        assert lag["lagSeconds"] >= 0
        (group,) = directly(table="groups", groupId="tables-group")
        assert (group["members"], group["lag"], group["topics"]) == (1, 6, topic)
        clients = directly(table="clients", groupId="tables-group")
        assert [(each["kind"], each["language"]) for each in clients] == [("consumer", "PYTHON")]
    assert "producer" in {each["kind"] for each in directly(table="clients")}


def test_traces_are_taken_apart(directly: Directly, new_topic: NewTopic, broker: kourou.LocalBroker) -> None:
    make_topic(broker.address, "own-traces", 1)
    topic = new_topic(1)
    with kourou.Producer("tracing", broker.name_server, trace="own-traces") as producer:
        sent = producer.send(kourou.Message(topic, b"x", keys="42"))
    (row,) = directly("own-traces", table="trace")
    assert (row["kind"], row["msgId"], row["topic"], row["keys"]) == ("Pub", sent.message_id, topic, "42")
    assert row["success"]
    assert row["group"] == "tracing"


def test_dead_letters_say_where_they_come_from(
    directly: Directly, new_topic: NewTopic, broker: kourou.LocalBroker, producer: kourou.Producer
) -> None:
    topic = new_topic(1)
    sent = producer.send(kourou.Message(topic, b"poison"))
    dead = threading.Event()
    with kourou.PushConsumer("tables-dead", broker.name_server) as consumer:

        @consumer.on(topic)
        def give_up(message: kourou.ReceivedMessage) -> None:
            dead.set()
            raise kourou.DeadLetter

        consumer.start()
        assert dead.wait(20)
        rows: list[dict[str, Any]] = []
        for _ in range(100):
            rows = directly(table="dlq", groupId="tables-dead")
            if rows:
                break
            threading.Event().wait(0.1)
    (row,) = rows
    assert (row["group"], row["originTopic"], row["body"]) == ("tables-dead", topic, b"poison")
    assert row["originMsgId"]
    assert row["msgId"] == sent.message_id
    assert row in directly(table="dlq")


def test_tables_are_there_for_sql(
    spark: SparkSession, broker: kourou.LocalBroker, new_topic: NewTopic, fill: Fill
) -> None:
    topic = new_topic(2)
    fill(topic, [b"x"] * 5)
    spark.sql("DROP TABLE IF EXISTS cluster_queues")
    spark.sql(
        "CREATE TABLE cluster_queues USING rocketmq "
        f"OPTIONS (namesrvAddr '{broker.name_server}', table 'queues')"
    )
    found = spark.sql(
        f"SELECT sum(messages) AS messages FROM cluster_queues WHERE topic = '{topic}'"
    ).collect()
    assert [row.messages for row in found] == [5]
    spark.sql("DROP TABLE cluster_queues")


@pytest.mark.parametrize(
    ("table", "expected"), [("topic", "did you mean topics?"), ("nonsense", "there are: topics, queues")]
)
def test_a_table_that_is_not_there_is_refused(directly: Directly, table: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected.replace("?", r"\?")):
        directly(table=table)
