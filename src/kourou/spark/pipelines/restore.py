"""`restore`: a lake back into topics, each message in its queue, at its place among the others.

    lake files of one queue ──▶ one task ──▶ the same queue of the target, one message after the other
                                  └──▶ digest          compared with that of what the target then holds

Kept are queue, order, keys, tags, properties (less what brokers add and what asks them to wait), flag, the
producer's message id and the born time, which travels in the header of a plain send. Not kept, because no
broker takes them from a client: born host, store time, and offsets where the target queue was not empty.

A journal in the lake remembers where each target queue began. Whoever goes on after a crash asks the broker
how far it got and continues there; every answer tells the offset, so a message that somebody else put between
is noticed at once. Nobody else may write to the target topics meanwhile.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from kourou.admin import topics as admin_topics
from kourou.admin.connection import Connection
from kourou.doors.clock import RealClock
from kourou.doors.files import RealFiles, make_lasting_folder
from kourou.errors import ConfigError, NotFound
from kourou.protocol.bodies import MessageQueue
from kourou.spark.offsets import Queue, to_json
from kourou.spark.pipelines.lake import META, Lake
from kourou.spark.pipelines.message_digest import combined, given, message_digest
from kourou.spark.pipelines.notes import read_note
from kourou.spark.pipelines.queue_writer import QueueMessage, QueueWriter
from kourou.spark.pipelines.reach import Reach
from kourou.spark.pipelines.report import Report, Rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

GROUP = "kourou-restore"
JOURNAL_LOST = (
    "put a copy of it back, or delete the topics that were restored and remove it: it alone knows where each "
    "queue began"
)
WANTED = ("brokerName", "queueId", "queueOffset", "properties", "body", "flag", "bornTimestamp")


class QueueJob(msgspec.Struct, frozen=True):
    """One queue of the lake, and where it goes."""

    topic: str
    broker_name: str
    queue_id: int
    files: tuple[str, ...]
    rows: int
    into_topic: str
    into_broker: str
    base: int
    """The first offset that a restored message gets."""

    @property
    def source(self) -> Queue:
        return Queue(self.topic, self.broker_name, self.queue_id)

    @property
    def target(self) -> Queue:
        return Queue(self.into_topic, self.into_broker, self.queue_id)


class Journal(msgspec.Struct, frozen=True):
    """What is being restored, from the moment it begins."""

    started_ms: int
    finished_ms: int | None
    jobs: tuple[QueueJob, ...]


@dataclass(frozen=True)
class QueueRestored:
    topic: str
    queue_id: int
    broker_name: str
    into_topic: str
    into_broker: str
    rows: int
    skipped: int
    """Were there already."""
    digest: str
    found_digest: str | None = None
    """Of what the target holds; None when it was not looked at."""

    @property
    def is_same(self) -> bool:
        return self.digest == self.found_digest


@dataclass(frozen=True)
class Restored:
    lake: str
    name_server: str
    queues: Sequence[QueueRestored]
    is_dry_run: bool = False
    was_done: bool = False
    """It had been restored before; this time it was only verified."""

    @property
    def rows(self) -> int:
        return sum(queue.rows for queue in self.queues)

    @property
    def is_verified(self) -> bool:
        return all(queue.is_same for queue in self.queues)

    def report(self) -> Report:
        columns = (
            "topic",
            "broker_name",
            "queue_id",
            "into_topic",
            "into_broker",
            "rows",
            "skipped",
            "digest",
        )
        return Report(
            title="restore",
            facts={
                "lake": self.lake,
                "into": self.name_server,
                "queues": len(self.queues),
                "messages": self.rows,
                "verified_by_digest": None if self.is_dry_run else self.is_verified,
            },
            tables=[
                Rows("queues", columns, [vars(queue) | {"same": queue.is_same} for queue in self.queues])
            ],
            remarks=["It had been restored before; this time it was only verified."] if self.was_done else [],
            is_ok=self.is_dry_run or self.is_verified,
            is_dry_run=self.is_dry_run,
        )


def restore(
    spark: SparkSession,
    lake: str,
    cluster: Reach | str,
    *,
    topics: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    again: bool = False,
    dry_run: bool = False,
) -> Restored:
    """Put the topics of a lake (all, or these) into the topics of the same name, or of those in `rename`.

    Topics that are not there are made, with as many queues as the lake has. What was restored to this cluster
    before is only verified, unless `again` says to add it once more. Raises ConfigError when the target has
    too few queues or brokers.
    """
    reach = Reach.of(cluster)
    source = Lake(lake)
    source.format()
    renamed = dict(rename or {})
    journal_path = _journal_path(source, reach.name_server, topics, renamed)
    journal = None if again else _read_journal(journal_path)
    with reach.connection() as connection:
        if journal is None:
            jobs = _planned(connection, source, topics, renamed, make_topics=not dry_run)
            journal = Journal(RealClock().now_ms(), None, tuple(jobs))
            if not dry_run:
                _write_journal(journal_path, journal)
    if dry_run:
        return Restored(
            source.folder, reach.name_server, [_unsent(job) for job in journal.jobs], is_dry_run=True
        )
    was_done = journal.finished_ms is not None
    sent = _run(spark, source.folder, reach, journal.jobs)
    found = _digests_of_target(spark, reach, journal.jobs)
    restored = Restored(
        source.folder,
        reach.name_server,
        [_with_found(each, found) for each in sent],
        was_done=was_done,
    )
    if restored.is_verified and not was_done:
        _write_journal(journal_path, msgspec.structs.replace(journal, finished_ms=RealClock().now_ms()))
    return restored


# -------------------------------------------------------------------------------------------- planning


def _planned(
    connection: Connection,
    lake: Lake,
    topics: Sequence[str] | None,
    rename: Mapping[str, str],
    *,
    make_topics: bool,
) -> list[QueueJob]:
    files: dict[Queue, list[str]] = {}
    rows: dict[Queue, int] = {}
    for file in lake.files(topics):  # oldest first, so the files of a queue are in the order of its offsets
        for part in file.queues:
            key = Queue(file.topic, part.broker_name, part.queue_id)
            files.setdefault(key, []).append(os.path.relpath(lake.path_of(file), lake.folder))
            rows[key] = rows.get(key, 0) + part.rows
    missing = sorted(set(topics or ()) - {topic for topic, _, _ in files})
    if missing:
        raise ConfigError(f"the lake '{lake.folder}' has nothing of {', '.join(map(repr, missing))}")
    jobs = []
    for topic in sorted({topic for topic, _, _ in files}):
        queues = sorted(queue for queue in files if queue.topic == topic)
        into = rename.get(topic, topic)
        ends = _target_queues(connection, into, max(queue.queue_id for queue in queues) + 1, make_topics)
        brokers = paired({queue.broker_name for queue in queues}, {queue.broker_name for queue in ends}, into)
        for queue in queues:
            target = Queue(into, brokers[queue.broker_name], queue.queue_id)
            if target not in ends:
                raise ConfigError(
                    f"topic '{into}' has no queue {queue.queue_id} at {target.broker_name}; give it more, "
                    f"for example: kourou topic create {into} -r {queue.queue_id + 1} -w {queue.queue_id + 1}"
                )
            jobs.append(
                QueueJob(*queue, tuple(files[queue]), rows[queue], into, target.broker_name, ends[target])
            )
    return jobs


def _target_queues(connection: Connection, topic: str, queues: int, make: bool) -> dict[Queue, int]:
    """The queues of the target and the offset that comes next in each."""
    try:
        stats = admin_topics.stats(connection, topic)
    except NotFound:
        masters = admin_topics.targets(connection)
        if not make:
            return {Queue(topic, node.broker, number): 0 for node in masters for number in range(queues)}
        wanted = admin_topics.Wanted(topic, read_queues=queues, write_queues=queues)
        for outcome in admin_topics.save(connection, wanted, masters):
            if outcome.error is not None:
                raise outcome.error from None
        stats = admin_topics.stats(connection, topic)
    return {Queue(topic, queue.broker, queue.queue_id): queue.max_offset for queue in stats.queues}


def paired(brokers: set[str], targets: set[str], topic: str) -> dict[str, str]:
    """Which broker of the target takes the queues of which broker of the lake: the one of its name, or the
    next.

    >>> paired({"a", "old"}, {"a", "new"}, "orders")
    {'a': 'a', 'old': 'new'}
    """
    pairs = {name: name for name in brokers & targets}
    free = iter(sorted(targets - set(pairs)))
    for name in sorted(brokers - set(pairs)):
        target = next(free, None)
        if target is None:
            raise ConfigError(
                f"'{topic}' lay on {len(brokers)} brokers ({', '.join(sorted(brokers))}), and the target has "
                f"it on {len(targets)} ({', '.join(sorted(targets)) or 'none'}); each needs one of its own"
            )
        pairs[name] = target
    return dict(sorted(pairs.items()))


# -------------------------------------------------------------------------------------------- the journal


def _journal_path(
    lake: Lake, name_server: str, topics: Sequence[str] | None, rename: Mapping[str, str]
) -> str:
    what = json.dumps([name_server, sorted(topics or ()), sorted(rename.items())])
    name = blake2b(what.encode(), digest_size=8).hexdigest()
    return os.path.join(lake.folder, META, "restores", f"{name}.json")


def _read_journal(path: str) -> Journal | None:
    files = RealFiles()
    return read_note(files, path, Journal, JOURNAL_LOST) if files.exists(path) else None


def _write_journal(path: str, journal: Journal) -> None:
    files = RealFiles()
    make_lasting_folder(files, os.path.dirname(path))
    files.write_atomically(path, msgspec.json.encode(journal), keep_previous=False)


# ---------------------------------------------------------------------------------------------- sending


def _run(spark: SparkSession, folder: str, reach: Reach, jobs: Sequence[QueueJob]) -> list[QueueRestored]:
    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with reach.connection() as connection:
            for batch in batches:
                for text in batch.column(0).to_pylist():
                    job = msgspec.json.decode(text, type=QueueJob)
                    skipped, digest = restore_queue(connection, folder, job)
                    yield pa.RecordBatch.from_pylist(
                        [{"job": text, "skipped": skipped, "digest": digest}], schema=sent_schema
                    )

    import pyarrow as pa

    sent_schema = pa.schema([("job", pa.string()), ("skipped", pa.int64()), ("digest", pa.string())])
    rows = (
        _one_task_each(spark, [msgspec.json.encode(job).decode() for job in jobs])
        .mapInArrow(send, "job string, skipped long, digest string")
        .collect()
    )
    return [
        _restored(msgspec.json.decode(row.job, type=QueueJob), row.skipped, row.digest)
        for row in sorted(rows, key=lambda row: row.job)
    ]


def _one_task_each(spark: SparkSession, texts: Sequence[str]) -> DataFrame:
    frame = spark.createDataFrame([(text,) for text in texts], "job string")
    return frame.repartition(max(1, len(texts)))


def restore_queue(connection: Connection, folder: str, job: QueueJob) -> tuple[int, str]:
    """Send what the target does not have yet. How many it had, and the digest of all of them."""
    route = connection.run(connection.routes.to_read(job.into_topic, connection.clock.monotonic() + 10))
    queue = MessageQueue(topic=job.into_topic, broker_name=job.into_broker, queue_id=job.queue_id)
    writer = QueueWriter(connection, GROUP, queue, route.master(job.into_broker), job.base)
    already = writer.next_offset = writer.stored_end()
    total = 0
    for index, message in enumerate(messages_of(folder, job)):
        total += message_digest(index, message.body, message.properties, message.flag, message.born_ms)
        if job.base + index >= already:
            writer.write(message)
    return min(already - job.base, job.rows), combined([total])


def messages_of(folder: str, job: QueueJob) -> Iterator[QueueMessage]:
    """The messages of one queue, in the order of their offsets."""
    import pyarrow.parquet as pq

    last = -1
    for name in job.files:
        for batch in pq.ParquetFile(os.path.join(folder, name)).iter_batches(columns=list(WANTED)):
            columns = batch.to_pydict()
            for broker, queue_id, offset, table, body, flag, born in zip(
                *(columns[name] for name in WANTED), strict=True
            ):
                if broker == job.broker_name and queue_id == job.queue_id:
                    if offset <= last:
                        raise ConfigError(
                            f"{name}: offset {offset} after {last}; kourou pipeline audit says more"
                        )
                    last = offset
                    yield QueueMessage(body, given(table), flag, round(born.timestamp() * 1000))


# -------------------------------------------------------------------------------------------- verifying


def _digests_of_target(spark: SparkSession, reach: Reach, jobs: Sequence[QueueJob]) -> dict[Queue, str]:
    """What the target holds in the places of the restored messages."""
    starts = {job.target: job.base for job in jobs if job.rows}
    ends = {job.target: job.base + job.rows for job in jobs if job.rows}
    if not starts:
        return {}
    rows = (
        reach.read(
            spark,
            DIGESTED,
            assign=json.dumps(_assigned(starts)),
            startingOffsets=json.dumps(to_json(starts)),
            endingOffsets=json.dumps(to_json(ends)),
        )
        .mapInArrow(digester(starts), "topic string, brokerName string, queueId int, digest string")
        .collect()
    )
    parts: dict[Queue, list[int]] = {}
    for row in rows:
        parts.setdefault(Queue(row.topic, row.brokerName, row.queueId), []).append(int(row.digest, 16))
    return {queue: combined(digests) for queue, digests in parts.items()}


DIGESTED = (
    "topic string, brokerName string, queueId int, queueOffset bigint, properties map<string,string>, "
    "body binary, bornTimestamp timestamp, flag int"
)


def _assigned(queues: Iterable[Queue]) -> dict[str, dict[str, list[int]]]:
    table: dict[str, dict[str, list[int]]] = {}
    for topic, broker_name, queue_id in sorted(queues):
        table.setdefault(topic, {}).setdefault(broker_name, []).append(queue_id)
    return table


def digester(
    bases: Mapping[Queue, int],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: one row for each queue in each batch, with the digest of its messages there."""

    def digest(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = pa.schema(
            [
                ("topic", pa.string()),
                ("brokerName", pa.string()),
                ("queueId", pa.int32()),
                ("digest", pa.string()),
            ]
        )
        for batch in batches:
            sums: dict[Queue, int] = {}
            for row in batch.to_pylist():
                queue = Queue(row["topic"], row["brokerName"], row["queueId"])
                index = row["queueOffset"] - bases[queue]
                born_ms = round(row["bornTimestamp"].timestamp() * 1000)
                sums[queue] = sums.get(queue, 0) + message_digest(
                    index, row["body"], given(row["properties"]), row["flag"], born_ms
                )
            if sums:
                yield pa.RecordBatch.from_pylist(
                    [
                        {
                            "topic": topic,
                            "brokerName": broker,
                            "queueId": queue_id,
                            "digest": combined([total]),
                        }
                        for (topic, broker, queue_id), total in sums.items()
                    ],
                    schema=schema,
                )

    return digest


def _restored(job: QueueJob, skipped: int, digest: str) -> QueueRestored:
    return QueueRestored(
        job.topic, job.queue_id, job.broker_name, job.into_topic, job.into_broker, job.rows, skipped, digest
    )


def _unsent(job: QueueJob) -> QueueRestored:
    return _restored(job, 0, "")


def _with_found(restored: QueueRestored, found: Mapping[Queue, str]) -> QueueRestored:
    queue = Queue(restored.into_topic, restored.into_broker, restored.queue_id)
    return QueueRestored(**{**vars(restored), "found_digest": found.get(queue, combined([]))})
