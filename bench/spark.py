"""Topics into Spark, beside an Arrow source that has all of it in memory, and one that reads row by row.

    topic        our source, a broker on the same cores; every column materialised and dropped (`noop`)
    memory       a Python source that hands out one prepared Arrow batch again and again: what Spark can take
    row by row   a Python source that reads with our pull consumer, and makes a tuple of each message
    floor        micro-batches of Spark's own source, in Java: what the engine needs for a round
    micro-batch  100 messages of two queues, two tasks

A message has a body of 1 KiB and six properties. Rates are compared with those of the same round,
micro-batches, by their median, with the floor of the same round. Beside a rate stands what a message costs in
CPU time, of Spark, its Python and the broker together: on a machine with other work it says more than the
rate.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import kourou
from bench.process import family_cpu_seconds
from tests.interop import ours

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[1]
TOPIC = "BenchSpark"
QUEUES = 8
BODY_BYTES = 1024
COLUMNS = ("topic", "queueId", "queueOffset", "keys", "tags", "properties", "body")
DDL = (
    "topic string, queueId int, queueOffset bigint, keys string, tags string, "
    "properties map<string,string>, body binary"
)
BATCH_ROWS = 2500
ROW_BY_ROW_SHARE = 10
TRIGGER_ROWS = 100
WARM_TRIGGERS = 5
TRIGGERS = 15


@dataclass(frozen=True)
class Figures:
    """By case: messages a second, CPU microseconds a message, and ms of a micro-batch, of each round."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)
    trigger_ms: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, case: str, other: str) -> float:
        """The median over the rounds."""
        return median(a / b for a, b in zip(self.rates[case], self.rates[other], strict=True))

    @property
    def above_floor_ms(self) -> float:
        """The median over the rounds: each has its own floor, for a machine is not always as busy."""
        pairs = zip(self.trigger_ms["micro-batch"], self.trigger_ms["floor"], strict=True)
        return median(taken - floor for taken, floor in pairs)


def as_json(figures: Figures) -> dict[str, Any]:
    return asdict(figures)


def from_json(values: dict[str, Any]) -> Figures:
    return Figures(**values)


def shown(figures: Figures) -> str:
    lines = [f"{'Spark, local[2], 1 KiB':<24} | {'msg/s':>10} | {'of memory':>9} | {'CPU us/msg':>10}"]
    lines.append("-" * len(lines[0]))
    for case, rates in figures.rates.items():
        lines.append(
            f"{case:<24} | {median(rates):>10,.0f} | {figures.ratio(case, 'memory'):>8.2f}x "
            f"| {median(figures.cpu_us[case]):>10.1f}"
        )
    triggers = ", ".join(f"{case} {median(ms):.0f} ms" for case, ms in figures.trigger_ms.items())
    return "\n".join([*lines, f"a micro-batch: {triggers}; above the floor {figures.above_floor_ms:.0f} ms"])


def measure(folder: Path, *, rounds: int, messages: int, tell: Callable[[str], None]) -> Figures:
    """Starts a broker and a Spark of its own; both are gone afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(  # Spark's workers import this very file
        part for part in (str(ROOT), os.environ.get("PYTHONPATH")) if part
    )
    with ours.name_server(folder) as name_server, ours.broker(folder, name_server.address) as broker:
        tell(f"Spark: storing {messages:,} messages")
        store(name_server.address, broker.address, messages)
        tell("Spark: starting")
        import kourou.spark

        spark = kourou.spark.session("bench", master="local[2]", settings={"spark.log.level": "OFF"})
        try:
            return _measured(spark, name_server.address, rounds, messages, folder, tell)
        finally:
            spark.stop()


def store(name_server: str, address: str, messages: int) -> None:
    """Messages of 1 KiB with six properties, evenly over the queues."""
    from kourou.local.published import make_topic
    from kourou.protocol.bodies import MessageQueue

    make_topic(address, TOPIC, QUEUES)
    body = os.urandom(BODY_BYTES)
    with kourou.Producer("bench", name_server) as producer:
        broker_name = producer.send(kourou.Message(TOPIC, body)).queue.broker_name
        for queue_id in range(QUEUES):
            queue = MessageQueue(topic=TOPIC, broker_name=broker_name, queue_id=queue_id)
            left = messages // QUEUES
            while left:
                count = min(left, 1000)
                producer.send_all(
                    [
                        kourou.Message(
                            TOPIC,
                            body,
                            tags="new",
                            keys=f"k{left - n}",
                            properties={"amount": "1", "shop": "a"},
                        )
                        for n in range(count)
                    ],
                    queue=queue,
                )
                left -= count


def _measured(
    spark: SparkSession,
    name_server: str,
    rounds: int,
    messages: int,
    folder: Path,
    tell: Callable[[str], None],
) -> Figures:
    spark.dataSource.register(MemorySource)
    spark.dataSource.register(RowSource)

    def topic(**options: str) -> DataFrame:
        reader = spark.read.format("rocketmq").options(namesrvAddr=name_server, subscribe=TOPIC, **options)
        return reader.schema(DDL).load()

    def memory() -> DataFrame:
        return spark.read.format("bench-memory").option("rows", str(messages)).schema(DDL).load()

    def row_by_row() -> DataFrame:
        options = {"rows": str(messages // ROW_BY_ROW_SHARE), "name_server": name_server}
        return spark.read.format("bench-rows").options(**options).schema(DDL).load()

    cases: dict[str, tuple[Callable[[], DataFrame], int]] = {
        "memory": (memory, messages),
        "topic": (topic, messages),
        "topic, raw properties": (lambda: _raw(spark, name_server), messages),
        "row by row": (row_by_row, messages // ROW_BY_ROW_SHARE),
    }
    figures = Figures()
    for number in range(rounds + 1):  # the first is for the compilers of Java
        for case, (frame, rows) in cases.items():
            tell(f"Spark: {case}, {'warming up' if not number else f'round {number}'}")
            seconds, cpu = _taken(frame())
            if number:
                figures.rates.setdefault(case, []).append(rows / seconds)
                figures.cpu_us.setdefault(case, []).append(cpu / rows * 1e6)
    floor = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", TRIGGER_ROWS).load()
    stream = (
        spark.readStream.format("rocketmq")
        .options(namesrvAddr=name_server, subscribe=TOPIC, queueIds="0,1", startingOffsets="earliest")
        .options(groupId="bench-spark", maxOffsetsPerTrigger=TRIGGER_ROWS, minPartitions="2")
        .load()
    )
    for number in range(rounds + 1):
        for case, source in (("floor", floor), ("micro-batch", stream)):
            tell(f"Spark: {case}, {'warming up' if not number else f'round {number}'}")
            taken = _trigger_ms(source, folder / f"{case}-{number}", WARM_TRIGGERS + TRIGGERS)
            if number:
                figures.trigger_ms.setdefault(case, []).append(taken)
    return figures


def _raw(spark: SparkSession, name_server: str) -> DataFrame:
    reader = spark.read.format("rocketmq").options(namesrvAddr=name_server, subscribe=TOPIC)
    return reader.schema(DDL.replace("map<string,string>", "string")).load()


def _taken(frame: DataFrame) -> tuple[float, float]:
    """Seconds, and seconds of CPU."""
    began, cpu = perf_counter(), family_cpu_seconds()
    frame.write.format("noop").mode("overwrite").save()
    return perf_counter() - began, family_cpu_seconds() - cpu


def _trigger_ms(frame: DataFrame, checkpoint: Path, triggers: int) -> float:
    """The median time of a round, once it is warm."""
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    deadline = perf_counter() + 60
    try:
        taken: list[float] = []
        while len(taken) < triggers and perf_counter() < deadline:
            query.awaitTermination(0.2)  # type: ignore[arg-type]  # a part of a second is as good
            done = [progress for progress in query.recentProgress if progress.numInputRows]
            taken = [progress.durationMs["triggerExecution"] for progress in done]
        return median(taken[WARM_TRIGGERS:])
    finally:
        query.stop()


# ------------------------------------------------------------------------------------ what it is held against


class MemorySource(DataSource):
    """Two tasks that hand out the same Arrow batch until there were enough rows."""

    @classmethod
    def name(cls) -> str:
        return "bench-memory"

    def schema(self) -> str:
        return DDL

    def reader(self, schema: Any) -> DataSourceReader:
        return MemoryReader(int(self.options["rows"]))


class MemoryReader(DataSourceReader):
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(self._rows // 2), InputPartition(self._rows // 2)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa

        from kourou.spark.columns import TYPES

        properties = [("UNIQ_KEY", "7F0000010001000000000000000000AA"), ("TAGS", "new"), ("KEYS", "k1"),
                      ("amount", "1"), ("shop", "a"), ("WAIT", "true")]  # fmt: skip
        one = {
            "topic": TOPIC, "queueId": 1, "queueOffset": 1, "keys": "k1", "tags": "new",
            "properties": properties, "body": os.urandom(BODY_BYTES),
        }  # fmt: skip
        columns = [pa.array([one[name]] * BATCH_ROWS, TYPES[name]) for name in COLUMNS]
        batch = pa.RecordBatch.from_arrays(
            columns, schema=pa.schema([(name, TYPES[name]) for name in COLUMNS])
        )
        left = partition.value
        while left > 0:
            yield batch.slice(0, min(left, BATCH_ROWS))
            left -= BATCH_ROWS


class RowSource(DataSource):
    """What one would write in an afternoon: a consumer for each queue, a tuple for each message."""

    @classmethod
    def name(cls) -> str:
        return "bench-rows"

    def schema(self) -> str:
        return DDL

    def reader(self, schema: Any) -> DataSourceReader:
        return RowReader(self.options["name_server"], int(self.options["rows"]))


class RowReader(DataSourceReader):
    def __init__(self, name_server: str, rows: int) -> None:
        self._name_server = name_server
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        with kourou.PullConsumer("bench-rows", TOPIC, self._name_server, announce=False) as consumer:
            queue = next(each for each in consumer.queues() if each.queue_id == partition.value)
            offset, end = 0, self._rows // 2
            while offset < end:
                pulled = consumer.pull(queue, offset)
                for message in pulled.messages:
                    if message.queue_offset < end:
                        yield (
                            message.topic,
                            message.queue_id,
                            message.queue_offset,
                            message.keys,
                            message.tags,
                            message.properties,
                            message.body,
                        )
                offset = pulled.next_offset
