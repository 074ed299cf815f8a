"""`redrive`: dead letters of a group back to the topics they came from, chosen by an expression, none twice.

    %DLQ%group ──filter──▶ those not in the audit table ──▶ tasks send, so many a second ──▶ audit table

A dead letter is known by its place: broker, queue and offset in the dead-letter topic. A message that is sent
again says its place in a property, and the audit table has one row for each. When a run dies between sending
and writing it down, the next one finds it unfinished, reads what the origin topics got since it began, and
writes down what is there; only then does it send the rest. So it does when a task fails.

    AUDIT/runs/<number>.json        a run: what was asked for, where the origin topics ended before it
    AUDIT/sent/<number>.parquet     the audit table: `spark.read.parquet("AUDIT/sent")`
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from kourou.admin import dlq
from kourou.admin import topics as admin_topics
from kourou.client.producer import Producer
from kourou.doors.clock import RealClock
from kourou.doors.files import Files, RealFiles, make_lasting_folder
from kourou.errors import ConfigError, MQError, StoreLocked
from kourou.message import Message
from kourou.spark.offsets import Queue, to_json
from kourou.spark.pipelines.message_digest import given
from kourou.spark.pipelines.notes import read_note
from kourou.spark.pipelines.reach import Reach
from kourou.spark.pipelines.report import Report, Rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MARK = "KOUROU_REDRIVE"
"""The property that says which dead letter a message was."""
GROUP = "kourou-redrive"
RATE = 1000.0
ROUNDS_MAX = 5
SETTLE_SECONDS = 1.0
"""So long after a failure a request of a killed task may still arrive."""
SHOWN_MAX = 20
RUN_LOST = (
    "put a copy of it back, or remove it if it is sure that this run has sent nothing: it knows where to "
    "look for what was sent"
)

AUDIT_COLUMNS = (
    "place string, msgId string, originTopic string, newMsgId string, brokerName string, queueId int, "
    "queueOffset bigint, sentAt timestamp, run int, how string"
)
FORMER_LIFE = frozenset(
    {
        *("UNIQ_KEY", "REAL_TOPIC", "REAL_QID", "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "PGROUP"),
        *("RETRY_TOPIC", dlq.ORIGIN_TOPIC, dlq.ORIGIN_ID, dlq.ORIGIN_DLQ_ID, MARK),
    }
)
"""What was said of the message on its way to the dead letters."""


class RunFile(msgspec.Struct, frozen=True):
    """One run, written down before anything is sent."""

    number: int
    group: str
    where: str
    started_ms: int
    finished_ms: int | None
    ends: dict[str, Any]
    """Where the origin topics ended when it began."""


@dataclass(frozen=True)
class Redriven:
    group: str
    candidates: int
    """Dead letters that the expression takes."""
    sent: int
    found: int
    """Were sent by a run that died before it could say so."""
    before: int
    """Had been sent by earlier runs."""
    by_topic: Mapping[str, int]
    audit: str | None
    seconds: float = 0.0
    is_dry_run: bool = False
    examples: Sequence[Mapping[str, object]] = ()

    def report(self) -> Report:
        return Report(
            title="redrive",
            facts={
                "group": self.group,
                "candidates": self.candidates,
                "sent_before": self.before,
                "would_be_sent" if self.is_dry_run else "sent": self.sent,
                "found_after_a_crash": self.found,
                "audit_table": self.audit,
                "seconds": round(self.seconds, 1),
            },
            tables=[
                Rows(
                    "by_topic",
                    ("topic", "messages"),
                    [{"topic": name, "messages": number} for name, number in sorted(self.by_topic.items())],
                ),
                Rows("examples", ("place", "originTopic", "msgId", "tags", "keys"), self.examples),
            ],
            is_dry_run=self.is_dry_run,
        )


def redrive(
    spark: SparkSession,
    cluster: Reach | str,
    group: str,
    audit: str,
    *,
    where: str = "true",
    into: str | None = None,
    rate: float = RATE,
    limit: int | None = None,
    dry_run: bool = False,
) -> Redriven:
    """Send the dead letters of `group` that `where` takes to the topics they came from, or to `into`.

    `where` is an SQL expression over the columns of a message and `originTopic`, `originMsgId` and `text`
    (the body). At most `rate` are sent a second, at most `limit` in all. `audit` is the folder of the audit
    table.
    """
    if rate <= 0:
        raise ConfigError(f"a rate of {rate} messages a second sends nothing; give more")
    clock = RealClock()
    began = clock.monotonic()
    reach, table = Reach.of(cluster), AuditTable(audit)
    letters = _letters(spark, reach, group, where, into)
    if dry_run:
        waiting = _not_in(spark, letters, table)
        return _counted(letters, waiting, table, group, limit)
    with table.writing():
        found = _settle_unfinished(spark, reach, table)
        before = _count(spark, table)
        candidates = letters.count()
        sent = 0
        for round_number in range(1, ROUNDS_MAX + 1):
            waiting = _not_in(spark, letters, table)
            if limit is not None:
                waiting = waiting.orderBy("place").limit(max(0, limit - sent))
            try:
                sent += _run(spark, reach, table, waiting, group, where, rate)
                break
            except Exception as error:
                if round_number == ROUNDS_MAX or not _is_failed_task(error):
                    raise
                threading.Event().wait(SETTLE_SECONDS)
                sent += _settle_unfinished(spark, reach, table)
    counts = _by_topic(spark, table)
    return Redriven(group, candidates, sent, found, before, counts, table.folder, clock.monotonic() - began)


# ------------------------------------------------------------------------------------------ which letters


def _letters(spark: SparkSession, reach: Reach, group: str, where: str, into: str | None) -> DataFrame:
    """The dead letters that the expression takes, with their place and where they go."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as f

    frame = (
        reach.read(spark, table="dlq", groupId=group)
        .withColumn("place", f.concat_ws("/", "topic", "brokerName", "queueId", "queueOffset"))
        .withColumn("text", f.col("body").cast("string"))
    )
    if into is not None:
        frame = frame.withColumn("originTopic", f.lit(into))
    try:
        return frame.where(f"({where}) and originTopic is not null").drop("text")
    except (AnalysisException, ParseException) as error:
        said = str(error).strip().splitlines()[0]
        raise ConfigError(f"the expression {where!r} cannot be used: {said}") from None


def _not_in(spark: SparkSession, letters: DataFrame, table: AuditTable) -> DataFrame:
    return letters.join(table.frame(spark).select("place"), "place", "left_anti")


def _counted(
    letters: DataFrame, waiting: DataFrame, table: AuditTable, group: str, limit: int | None
) -> Redriven:
    """What a run would do."""
    rows = waiting.groupBy("originTopic").count().collect()
    examples = (
        waiting.select("place", "originTopic", "msgId", "tags", "keys").orderBy("place").limit(SHOWN_MAX)
    )
    candidates, would = letters.count(), sum(row["count"] for row in rows)
    return Redriven(
        group,
        candidates,
        would if limit is None else min(would, limit),
        0,
        candidates - would,
        {row.originTopic: row["count"] for row in rows},
        table.folder,
        is_dry_run=True,
        examples=[row.asDict() for row in examples.collect()],
    )


# ----------------------------------------------------------------------------------------------- sending


def _run(
    spark: SparkSession,
    reach: Reach,
    table: AuditTable,
    waiting: DataFrame,
    group: str,
    where: str,
    rate: float,
) -> int:
    """One run: written down, sent, written down. Raises what a failed task fails with."""
    origins = sorted(row.originTopic for row in waiting.select("originTopic").distinct().collect())
    if not origins:
        return 0
    run = table.begin(group, where, _ends(reach, origins))
    tasks = max(1, min(spark_cores(spark), int(rate // 50)))
    sent = waiting.repartition(tasks).mapInArrow(sender(reach, rate / tasks, run.number), AUDIT_COLUMNS)
    rows = sent.toArrow()
    table.finish(run, rows)
    return int(rows.num_rows)


def spark_cores(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no SparkContext
        return 2


def _ends(reach: Reach, topics: Sequence[str]) -> dict[Queue, int]:
    """Where these topics end now."""
    with reach.connection() as connection:
        return {
            Queue(topic, queue.broker, queue.queue_id): queue.max_offset
            for topic in topics
            for queue in admin_topics.stats(connection, topic).queues
        }


def sender(
    reach: Reach, rate: float, run: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: sends each row, so many a second, and tells where it went."""

    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            raise InDoubt(f"task {context.partitionId()} failed; what it has sent is looked up first")
        clock, pause = RealClock(), threading.Event().wait
        next_at = clock.monotonic()
        settings = reach.connection()
        with (
            settings,
            Producer(
                GROUP, reach.name_server, access=settings.access, tls=settings.tls, retries=0
            ) as producer,
        ):
            for batch in batches:
                rows = []
                for row in batch.to_pylist():
                    pause(max(0.0, next_at - clock.monotonic()))
                    next_at = max(next_at, clock.monotonic() - 1.0) + 1.0 / rate
                    rows.append(_sent_again(producer, row, clock.now_ms(), run))
                yield pa.RecordBatch.from_pylist(rows, schema=audit_schema())

    return send


class InDoubt(MQError):
    """A task is tried again, and nobody knows yet what its first try has sent."""


def _sent_again(producer: Producer, row: Mapping[str, Any], now_ms: int, run: int) -> dict[str, object]:
    properties = {name: value for name, value in given(row["properties"]).items() if name not in FORMER_LIFE}
    message = Message(
        row["originTopic"],
        row["body"],
        properties={**properties, MARK: row["place"]},
        flag=row["flag"],
    )
    sent = producer.send(message, key=properties.get("__SHARDINGKEY"))
    return {
        "place": row["place"],
        "msgId": row["msgId"],
        "originTopic": row["originTopic"],
        "newMsgId": sent.message_id,
        "brokerName": sent.broker_name,
        "queueId": sent.queue_id,
        "queueOffset": sent.queue_offset,
        "sentAt": now_ms * 1000,
        "run": run,
        "how": "sent",
    }


def audit_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            *((name, pa.string()) for name in ("place", "msgId", "originTopic", "newMsgId", "brokerName")),
            *(("queueId", pa.int32()), ("queueOffset", pa.int64()), ("sentAt", pa.timestamp("us", tz="UTC"))),
            *(("run", pa.int32()), ("how", pa.string())),
        ]
    )


# ----------------------------------------------------------------------------------------- after a crash


def _settle_unfinished(spark: SparkSession, reach: Reach, table: AuditTable) -> int:
    """Write down what an unfinished run has sent: it is in the origin topics, after where they ended."""
    run = table.unfinished()
    if run is None:
        return 0
    import pyarrow as pa
    from pyspark.sql import functions as f

    known = table.frame(spark).select("place")
    found = (
        reach.read(
            spark,
            subscribe=",".join(sorted(run.ends)),
            startingOffsets=json.dumps(run.ends),
            endingOffsets="latest",
            failOnDataLoss="false",
        )
        .withColumn("place", f.col("properties")[MARK])
        .where("place is not null")
        .join(known, "place", "left_anti")
        .select(
            "place",
            f.lit(None).cast("string").alias("msgId"),
            f.col("topic").alias("originTopic"),
            f.col("msgId").alias("newMsgId"),
            "brokerName",
            "queueId",
            "queueOffset",
            f.col("storeTimestamp").alias("sentAt"),
            f.lit(run.number).alias("run"),
            f.lit("found after a crash").alias("how"),
        )
        .dropDuplicates(["place"])
        .toArrow()
    )
    table.finish(run, pa.table({name: found[name] for name in audit_schema().names}).cast(audit_schema()))
    return int(found.num_rows)


def _is_failed_task(error: Exception) -> bool:
    """Whether Spark gave up on a task: then it is known what to do."""
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException) or type(error).__name__.startswith("Py4J")


# --------------------------------------------------------------------------------------- the audit table


class AuditTable:
    """A folder: which dead letters were sent again, when and where to."""

    def __init__(self, folder: str, files: Files | None = None) -> None:
        self.folder = os.path.abspath(folder)
        self._files = RealFiles() if files is None else files

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Raises StoreLocked while another run goes on."""
        for name in ("runs", "sent"):
            make_lasting_folder(self._files, os.path.join(self.folder, name))
        lock = self._files.lock(os.path.join(self.folder, "lock"))
        if lock is None:
            raise StoreLocked(f"another redrive writes to '{self.folder}'; wait for it, or stop it")
        try:
            yield
        finally:
            lock.release()

    def frame(self, spark: SparkSession) -> DataFrame:
        names = [
            name for name in self._files.list(os.path.join(self.folder, "sent")) if name.endswith(".parquet")
        ]
        if not names:
            return spark.createDataFrame([], AUDIT_COLUMNS)
        paths = [os.path.join(self.folder, "sent", name) for name in names]
        return spark.read.schema(AUDIT_COLUMNS).parquet(*paths)

    def begin(self, group: str, where: str, ends: Mapping[Queue, int]) -> RunFile:
        runs = self._runs()
        run = RunFile(len(runs), group, where, RealClock().now_ms(), None, to_json(ends))
        self._write(run)
        return run

    def unfinished(self) -> RunFile | None:
        """The last run, if it died."""
        runs = self._runs()
        if not runs:
            return None
        last = read_note(self._files, os.path.join(self.folder, "runs", runs[-1]), RunFile, RUN_LOST)
        return last if last.finished_ms is None else None

    def finish(self, run: RunFile, rows: pa.Table) -> None:
        """The rows count from the moment the file has its name; only then is the run over."""
        import pyarrow.parquet as pq

        path = os.path.join(self.folder, "sent", f"{run.number:010d}.parquet")
        if rows.num_rows:
            hidden = os.path.join(self.folder, "sent", f".{run.number:010d}.tmp")
            pq.write_table(rows.cast(audit_schema()), hidden, compression="zstd")
            self._files.sync_all([hidden])
            self._files.rename(hidden, path)
            self._files.sync_folder(os.path.dirname(path))
        self._write(msgspec.structs.replace(run, finished_ms=RealClock().now_ms()))

    def _write(self, run: RunFile) -> None:
        path = os.path.join(self.folder, "runs", f"{run.number:010d}.json")
        self._files.write_atomically(path, msgspec.json.encode(run), keep_previous=False)

    def _runs(self) -> list[str]:
        return [
            name for name in self._files.list(os.path.join(self.folder, "runs")) if name.endswith(".json")
        ]


def _count(spark: SparkSession, table: AuditTable) -> int:
    return table.frame(spark).count()


def _by_topic(spark: SparkSession, table: AuditTable) -> dict[str, int]:
    return {
        row.originTopic: row["count"] for row in table.frame(spark).groupBy("originTopic").count().collect()
    }
