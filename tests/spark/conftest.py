"""What all Spark tests share: one Spark, one real broker, and a quick way to fill a topic.

spark          one session for the whole run: starting one takes seconds
broker         a real broker with its files in a folder of its own
new_topic      makes a topic nobody else uses: new_topic(queues=4)
fill           fill(topic, bodies, ...) sends, and returns when all is stored
source         source(topic, **options): spark.read of it, with the name server said already
no_spark_left  nothing to ask for: stops all queries a test has left running
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import kourou
from kourou.local.published import make_topic
from kourou.spark import session
from kourou.spark.access import ClusterAccess
from kourou.spark.pulls import shared_cluster
from kourou.spark.schema import spark_schema
from kourou.spark.source import RocketMQDataSource
from kourou.spark.stream import TopicStreamReader

TIMEOUT_SECONDS = 900
"""For a test with everything it needs: on a busy machine Spark alone takes a minute to start."""

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For a few rows it costs more to compile a query than to carry it out."""

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, little memory, everything on loopback and in a temporary folder."""
    folder = tmp_path_factory.mktemp("spark")
    started = session(
        "kourou-tests",
        master="local[2]",
        settings={
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.sql.streaming.pollingDelay": "10ms",
            **INTERPRETED,
            "spark.log.level": "OFF",
        },
    )
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def no_spark_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A failed test must not leave a query running in the Spark all others use."""
    yield
    if "spark" in request.fixturenames:
        started: SparkSession = request.getfixturevalue("spark")
        for query in started.streams.active:
            query.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kourou.LocalBroker]:
    """One for all; a test that stops or breaks its broker makes its own."""
    with kourou.LocalBroker(tmp_path_factory.mktemp("broker"), property_filter=True) as running:
        yield running


@pytest.fixture
def new_topic(broker: kourou.LocalBroker) -> Callable[..., str]:
    def make(queues: int = 2, name: str = "topic") -> str:
        topic = f"{name}-{next(_numbers)}"
        make_topic(broker.address, topic, queues)
        return topic

    return make


@pytest.fixture(scope="session")
def producer(broker: kourou.LocalBroker) -> Iterator[kourou.Producer]:
    with kourou.Producer("spark-tests", broker.name_server) as running:
        yield running


@pytest.fixture
def fill(producer: kourou.Producer, broker: kourou.LocalBroker) -> Callable[..., None]:
    """Sends bodies to a topic: the i-th to queue i modulo the number of queues."""

    def send(topic: str, bodies: Sequence[bytes], **message: Any) -> None:
        cluster = shared_cluster(ClusterAccess(name_server=broker.name_server))
        queues = [cluster.wire(queue) for queue in cluster.queues(topic, fresh=True)]
        for number, queue in enumerate(queues):
            own = [kourou.Message(topic, body, **message) for body in bodies[number :: len(queues)]]
            if own:
                producer.send_all(own, queue=queue)

    return send


@pytest.fixture
def source(spark: SparkSession, broker: kourou.LocalBroker) -> Callable[..., DataFrame]:
    """A batch read of a topic."""

    def read(topic: str | None = None, schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("rocketmq").option("namesrvAddr", broker.name_server)
        if topic is not None:
            reader = reader.option("subscribe", topic)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**options).load()

    return read


@pytest.fixture
def directly(broker: kourou.LocalBroker) -> Callable[..., list[dict[str, Any]]]:
    """Reads as Spark would have us, but in this process and without Spark: directly(topic, **options)."""

    def read(
        topic: str | None = None, schema: pa.Schema | None = None, **options: str
    ) -> list[dict[str, Any]]:
        said = {"namesrvAddr": broker.name_server, **options}
        if topic is not None:
            said["subscribe"] = topic
        return [row for task in tasks_of(said, schema) for row in task]

    return read


def tasks_of(options: dict[str, str], schema: pa.Schema | None = None) -> list[list[dict[str, Any]]]:
    """The rows of each task of a batch read."""
    source = RocketMQDataSource(options)
    reader = source.reader(source.schema() if schema is None else spark_schema(schema))
    return [
        [row for batch in reader.read(partition) for row in batch.to_pylist()]  # type: ignore[union-attr]
        for partition in reader.partitions()
    ]


@pytest.fixture
def stream_reader(broker: kourou.LocalBroker) -> Callable[..., TopicStreamReader]:
    """What Spark keeps in a process of its own for a query; a new one is what a restart gives."""

    def make(topic: str, **options: str) -> TopicStreamReader:
        source = RocketMQDataSource({"namesrvAddr": broker.name_server, "subscribe": topic, **options})
        reader = source.streamReader(source.schema())
        assert isinstance(reader, TopicStreamReader)
        return reader

    return make


@pytest.fixture
def rows_between() -> Callable[[TopicStreamReader, dict[str, Any], dict[str, Any]], int]:
    """How many rows a batch from here to there has."""

    def count(reader: TopicStreamReader, start: dict[str, Any], end: dict[str, Any]) -> int:
        return sum(len(batch) for part in reader.partitions(start, end) for batch in reader.read(part))

    return count


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
