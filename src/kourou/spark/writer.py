"""Spark's rows into topics: `df.write.format("rocketmq")`, `writeStream`, `INSERT INTO`.

    executor   write(rows)            `Sender` or `Stager`; returns when all is acknowledged
    driver     commit(messages)       exactly once: this makes it final, and nothing else does

A task that was killed sees its input end as if it had all of it, may be run again, or twice at a time. So
what a task writes at least once may be there twice, under the same msgId; and what it stages to be there
exactly once counts only if the driver names that very attempt. Tasks of a streaming query know the query and
the batch, which stay the same after a restart; a batch job is one transaction, with a name of its own unless
it is given one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kourou.doors.chance import Chance
from kourou.errors import ConfigError, MQError
from kourou.protocol.names import topic_fault
from kourou.spark.access import ClusterAccess
from kourou.spark.options import ALL_NAMES, Given
from kourou.spark.outgoing import Rows, check_columns
from kourou.spark.plain_errors import hide_traceback, in_one_line
from kourou.spark.pulls import shared_cluster
from kourou.spark.python_worker import settle
from kourou.spark.sending import Sender
from kourou.spark.staging import Committer, StagedPart, Stager, Transaction

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
GROUP = "spark-rocketmq"
PATIENCE_MS = 60_000
BATCH_BYTES_MAX = 64 * 1024 * 1024
TRANSACTION_PREFIX = "spark:"

Delivery = Literal["at-least-once", "exactly-once"]


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """All that can be said about writing."""

    access: ClusterAccess
    topic: str | None = None
    delivery: Delivery = AT_LEAST_ONCE
    patience_seconds: float = PATIENCE_MS / 1000
    keep_born: bool = False
    transaction: Transaction | None = None
    """Of a batch job: whoever runs it again under the same name and number writes nothing twice."""


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """What the text says; raises ConfigError that names the option, its value and the way out."""
    given = Given(options, ALL_NAMES)
    topic = given.text("topic")
    if topic is not None and (fault := topic_fault(topic)):
        given.refuse("topic", f"cannot be: {fault}")
    delivery = given.text("delivery") or AT_LEAST_ONCE
    if delivery not in (AT_LEAST_ONCE, EXACTLY_ONCE):
        given.refuse("delivery", f"must be {AT_LEAST_ONCE} or {EXACTLY_ONCE}")
    return SinkOptions(
        access=ClusterAccess.given(given),
        topic=topic,
        delivery=EXACTLY_ONCE if delivery == EXACTLY_ONCE else AT_LEAST_ONCE,
        patience_seconds=(given.count("sendTimeoutMs") or PATIENCE_MS) / 1000,
        keep_born=given.flag("keepBornTimestamp", False),
        transaction=_transaction(given),
    )


def _transaction(given: Given) -> Transaction | None:
    name, number = given.text("transactionId"), given.text("transactionNumber")
    if name is None:
        if number is not None:
            given.refuse("transactionNumber", "needs transactionId: a number of what?")
        return None
    if number is not None and not (number.isascii() and number.isdecimal() and len(number) < 19):
        given.refuse("transactionNumber", "must be a whole number from 0 on, larger each time")
    return Transaction(TRANSACTION_PREFIX + name, int(number or 0))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """For `df.write` and `INSERT INTO`."""
    said = _checked(options, schema, overwrite)
    if said.delivery == EXACTLY_ONCE:  # said before anything is read; tasks of a query find out by themselves
        _committer(said, Transaction("-", 0)).check_capable()
    transaction = said.transaction or Transaction(TRANSACTION_PREFIX + _unlike_any_other(), 0)
    return BatchWriter(said, transaction)


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """For `df.writeStream`."""
    said = _checked(options, schema, overwrite)
    if said.transaction is not None:
        raise ConfigError("transactionId is for a batch: a streaming query has a name and numbers of its own")
    return StreamWriter(said)


def _checked(options: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkOptions:
    said = sink_options(options)
    if overwrite:
        raise ConfigError("a topic cannot be overwritten: use mode('append')")
    check_columns(schema.names)
    if said.topic is None and "topic" not in schema.names:
        raise ConfigError("where to? Give the option topic, or a column topic")
    return said


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    rows: int
    part: StagedPart | None = None
    transaction: Transaction | None = None


class BatchWriter(DataSourceArrowWriter):
    """One write of a DataFrame."""

    def __init__(self, options: SinkOptions, transaction: Transaction) -> None:
        self._options = options
        self._transaction = transaction

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _write(self._options, self._transaction, iterator)

    @in_one_line
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(self._options, self._transaction, messages)

    @in_one_line
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(self._options, self._transaction)


class StreamWriter(DataSourceStreamArrowWriter):
    """The sink of a query that goes on."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = _context()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise ConfigError("this task is not one of a streaming query: Spark says neither query nor batch")
        return _write(self._options, Transaction(TRANSACTION_PREFIX + query, int(batch)), iterator)

    @in_one_line
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _commit(self._options, _said_by(messages), messages)

    @in_one_line
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _abort(self._options, _said_by(messages))


def _write(options: SinkOptions, transaction: Transaction, iterator: Iterator[pa.RecordBatch]) -> Written:
    settle()
    context = _context()
    partition = context.partitionId()
    cluster = shared_cluster(options.access)
    rows = Rows(
        topic=options.topic,
        identity=f"{transaction.producer}/{transaction.number}/{partition}",
        now_ms=cluster.clock.now_ms(),
        keep_born=options.keep_born,
    )
    first_turn = partition + transaction.number
    to: Sender | Stager
    if options.delivery == EXACTLY_ONCE:
        # Attempts may run at the same time, and in processes that know nothing of each other.
        stage = f"{partition}.{context.attemptNumber()}.{_unlike_any_other()[:12]}"
        to = Stager(
            cluster, transaction, stage, patience_seconds=options.patience_seconds, first_turn=first_turn
        )
    else:
        to = Sender(cluster, group=GROUP, patience_seconds=options.patience_seconds, first_turn=first_turn)
    count = 0
    try:
        for batch in iterator:
            count += batch.num_rows
            for part_of_it in _bounded(batch):
                to.send(rows.take_in(part_of_it))
        part = to.finish()
    except MQError:
        hide_traceback()
        raise
    return Written(count, part, transaction)


def _bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch, cut where it is so large that its parts would not fit into one array of Arrow."""
    if batch.num_rows:
        rows = max(1, batch.num_rows * BATCH_BYTES_MAX // max(batch.nbytes, BATCH_BYTES_MAX))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _commit(
    options: SinkOptions, transaction: Transaction | None, messages: list[WriterCommitMessage | None]
) -> None:
    if options.delivery == EXACTLY_ONCE and transaction is not None:
        parts = [each.part for each in messages if isinstance(each, Written) and each.part is not None]
        _committer(options, transaction).commit(parts)


def _abort(options: SinkOptions, transaction: Transaction | None) -> None:
    if options.delivery == EXACTLY_ONCE and transaction is not None:
        _committer(options, transaction).abort()


def _committer(options: SinkOptions, transaction: Transaction) -> Committer:
    return Committer(shared_cluster(options.access), transaction, options.patience_seconds)


def _said_by(messages: list[WriterCommitMessage | None]) -> Transaction | None:
    """The transaction of a batch, which tasks know and the driver does not; None when no task wrote
    anything."""
    for each in messages:
        if isinstance(each, Written) and each.transaction is not None:
            return each.transaction
    return None


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise ConfigError("this is not a task of Spark")
    return context


def _unlike_any_other() -> str:
    return Chance().secret_bytes(16).hex()
