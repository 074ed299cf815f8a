"""`restore`, against a real broker: what comes back is what was archived, in its queue and at its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kourou
import kourou.spark.pipelines.restore as restoring
from kourou.admin import Connection
from kourou.admin import topics as admin_topics
from kourou.errors import ConfigError
from kourou.local.published import make_topic
from kourou.protocol.bodies import MessageQueue
from kourou.spark.pipelines.archive import archive
from kourou.spark.pipelines.lake import Lake
from kourou.spark.pipelines.message_digest import given, message_digest
from kourou.spark.pipelines.queue_writer import Disturbed, QueueMessage, QueueWriter
from kourou.spark.pipelines.restore import QueueJob, messages_of, paired, restore, restore_queue

pytestmark = pytest.mark.timeout(600)

NewTopic = Callable[..., str]


@pytest.fixture(scope="module")
def archived(
    spark: SparkSession, broker: kourou.LocalBroker, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A lake with three queues of different messages, one of them large."""
    lake = tmp_path_factory.mktemp("archived") / "lake"
    make_topic(broker.address, "to-restore", 3)
    with kourou.Producer("restore-tests", broker.name_server) as producer:
        for number in range(60):
            body = b"x" * 2_000_000 if number == 33 else b"%d" % number
            message = kourou.Message(
                "to-restore",
                body,
                tags=f"tag{number % 3}",
                keys=[f"k{number}", "all"],
                properties={"colour": "grün" if number % 2 else "red"},
                flag=number,
            )
            producer.send(message, select=lambda queues, sent: queues[sent.flag % 2])
    archive(spark, broker.name_server, str(lake), topics=["to-restore"])
    return lake


@pytest.fixture
def elsewhere() -> Iterator[kourou.LocalBroker]:
    with kourou.LocalBroker(broker_name="another") as running:
        yield running


def everything(name_server: str, topic: str) -> dict[tuple[int, int], tuple[bytes, dict[str, str], int, int]]:
    with kourou.PullConsumer("look", topic, name_server) as consumer:
        found = {}
        while received := consumer.receive(100, timeout=1):
            for each in received:
                kept = given(each.properties)
                found[each.queue_id, each.queue_offset] = (each.body, kept, each.flag, each.born_at_ms)
        return found


def test_another_cluster_gets_every_message_in_its_queue_and_place_with_its_born_time(
    spark: SparkSession, broker: kourou.LocalBroker, archived: Path, elsewhere: kourou.LocalBroker
) -> None:
    planned = restore(spark, str(archived), elsewhere.name_server, dry_run=True)
    assert (planned.rows, planned.report().is_ok) == (60, True)
    restored = restore(spark, str(archived), elsewhere.name_server)
    assert restored.is_verified
    assert everything(elsewhere.name_server, "to-restore") == everything(broker.name_server, "to-restore")
    again = restore(spark, str(archived), elsewhere.name_server)
    assert again.was_done
    assert again.is_verified
    assert sum(queue.skipped for queue in again.queues) == 60, "nothing was sent a second time"


def test_a_restore_that_died_goes_on_where_it_was(
    spark: SparkSession, broker: kourou.LocalBroker, archived: Path, new_topic: NewTopic
) -> None:
    renamed = {"to-restore": new_topic(3)}
    lake = Lake(str(archived))
    with Connection(broker.name_server) as connection:
        jobs = restoring._planned(connection, lake, None, renamed, make_topics=True)
        path = restoring._journal_path(lake, broker.name_server, None, renamed)
        restoring._write_journal(path, restoring.Journal(0, None, tuple(jobs)))
        target = MessageQueue(topic=jobs[0].into_topic, broker_name=jobs[0].into_broker, queue_id=0)
        writer = QueueWriter(connection, restoring.GROUP, target, broker.address, 0)
        for message in list(messages_of(lake.folder, jobs[0]))[:7]:  # so much got done before it died
            writer.write(message)
    restored = restore(spark, lake.folder, broker.name_server, rename=renamed)
    assert [queue.skipped for queue in restored.queues] == [7, 0]
    assert restored.is_verified
    with Connection(broker.name_server) as connection:
        stats = admin_topics.stats(connection, renamed["to-restore"])
    assert [queue.messages for queue in stats.queues] == [30, 30, 0]


def test_a_message_of_somebody_else_stops_it(
    broker: kourou.LocalBroker, archived: Path, new_topic: NewTopic, producer: kourou.Producer
) -> None:
    topic = new_topic(1)
    queue = MessageQueue(topic=topic, broker_name="kourou", queue_id=0)
    with Connection(broker.name_server) as connection:
        writer = QueueWriter(connection, restoring.GROUP, queue, broker.address, 0)
        writer.write(QueueMessage(b"ours", {}, 0, 0))
        producer.send(kourou.Message(topic, b"another's"))
        with pytest.raises(Disturbed, match="at 2 where 1 was next"):
            writer.write(QueueMessage(b"ours", {}, 0, 0))


def test_only_what_is_missing_is_sent(
    spark: SparkSession, broker: kourou.LocalBroker, archived: Path, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    source = next(
        queue for file in Lake(str(archived)).files() for queue in file.queues if queue.queue_id == 1
    )
    job = QueueJob(
        "to-restore",
        source.broker_name,
        1,
        tuple(file.path for file in Lake(str(archived)).files()),
        30,
        topic,
        source.broker_name,
        0,
    )
    with Connection(broker.name_server) as connection:
        assert restore_queue(connection, str(archived), job)[0] == 0
        skipped, digest = restore_queue(connection, str(archived), job)
        stats = admin_topics.stats(connection, topic)
    assert skipped == 30
    assert [queue.messages for queue in stats.queues] == [0, 30, 0]
    assert len(digest) == 32


def test_what_does_not_fit_is_said_before_anything_is_sent(
    spark: SparkSession, broker: kourou.LocalBroker, archived: Path, new_topic: NewTopic, tmp_path: Path
) -> None:
    small = new_topic(1)
    with pytest.raises(ConfigError, match="has no queue 1"):
        restore(spark, str(archived), broker.name_server, rename={"to-restore": small})
    with pytest.raises(ConfigError, match="nothing of 'unheard-of'"):
        restore(spark, str(archived), broker.name_server, topics=["unheard-of"])
    with pytest.raises(ConfigError, match="is no lake"):
        restore(spark, str(tmp_path), broker.name_server)


def test_brokers_are_paired_by_name_and_then_in_turn() -> None:
    assert paired({"a", "b"}, {"b", "c"}, "t") == {"a": "c", "b": "b"}
    with pytest.raises(ConfigError, match="2 brokers"):
        paired({"a", "b"}, {"c"}, "t")


def test_a_digest_notices_what_differs() -> None:
    plain = message_digest(0, b"body", {"KEYS": "k"}, 0, 5)
    others = [
        message_digest(1, b"body", {"KEYS": "k"}, 0, 5),
        message_digest(0, b"Body", {"KEYS": "k"}, 0, 5),
        message_digest(0, b"body", {"KEYS": "l"}, 0, 5),
        message_digest(0, b"body", {"KEYS": "k"}, 1, 5),
        message_digest(0, b"body", {"KEYS": "k"}, 0, 6),
    ]
    assert len({plain, *others}) == 6
    assert given({"KEYS": "k", "DELAY": "3", "CLUSTER": "c", "own": "1"}) == {"KEYS": "k", "own": "1"}
