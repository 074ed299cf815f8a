"""`archive`: topics into a lake, each message exactly once.

    queues ──▶ tasks: pull, decode, Parquet ──▶ one row a task ──▶ driver: one commit ──▶ the next batch

The lake's commits say how far each queue is, so the lake is all that a next run needs: it begins where the
last commit ends. Whatever dies, and whenever: files without a commit do not count and are swept away, files
with one are there, and their offsets are not read again.

A run that goes on is a streaming query, whose checkpoint lives as long as the run does. One that ends when
all is there needs no such query, and does without: that takes a second to start.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from kourou.doors.chance import Chance
from kourou.doors.clock import RealClock
from kourou.doors.files import RealFiles
from kourou.errors import ConfigError, MQError
from kourou.spark.cluster import Cluster
from kourou.spark.offsets import Offsets, Queue, to_json
from kourou.spark.options import SourceOptions, source_options
from kourou.spark.pipelines import picture
from kourou.spark.pipelines.lake import META, Commit, Lake, Writing
from kourou.spark.pipelines.reach import Reach
from kourou.spark.pipelines.report import Picture, Report, Rows
from kourou.spark.pipelines.running_query import POLL_SECONDS, trigger, wait_for
from kourou.spark.subscription import subscribed_queues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import InputPartition

    from kourou.spark.pipelines.archive_source import Into
    from kourou.spark.task import RangesPartition

BATCH_BYTES = "512m"
"""Of messages in one commit: what is read again after a crash is never more."""

Progress = Callable[[int, int], None]
"""Told (messages archived, messages there were when it began)."""


@dataclass(frozen=True)
class QueueState:
    """One queue: what the lake has of it, and what the broker has."""

    topic: str
    broker_name: str
    queue_id: int
    archived_to: int | None
    broker_min: int
    broker_max: int

    @property
    def behind(self) -> int:
        start = self.broker_min if self.archived_to is None else self.archived_to
        return max(0, self.broker_max - start)


@dataclass
class Archived:
    """What a run has added to a lake."""

    lake: str
    format: str
    commits: int = 0
    rows: int = 0
    files: int = 0
    size: int = 0
    by_topic: dict[str, int] = field(default_factory=dict)
    queues: Sequence[QueueState] = ()
    """As they were when it began."""
    seconds: float = 0.0
    is_dry_run: bool = False
    with_picture: bool = False

    def add(self, commit: Commit) -> None:
        self.commits += 1
        self.rows += commit.rows
        self.files += len(commit.files)
        self.size += sum(file.size for file in commit.files)
        for file in commit.files:
            self.by_topic[file.topic] = self.by_topic.get(file.topic, 0) + file.rows

    def report(self) -> Report:
        columns = ("topic", "broker_name", "queue_id", "archived_to", "broker_min", "broker_max", "behind")
        rate = self.rows / self.seconds if self.seconds else 0.0
        pictures = []
        if self.by_topic and self.with_picture:
            png = picture.bars("Messages archived", dict(sorted(self.by_topic.items())), "messages")
            pictures = [Picture("Messages archived by topic", png)]
        return Report(
            title="archive",
            facts={
                "lake": self.lake,
                "format": self.format,
                "messages": sum(queue.behind for queue in self.queues) if self.is_dry_run else self.rows,
                "commits": self.commits,
                "files": self.files,
                "bytes": self.size,
                "seconds": round(self.seconds, 1),
                "messages_a_second": round(rate),
            },
            tables=[
                Rows(
                    "queues_before",
                    columns,
                    [vars(queue) | {"behind": queue.behind} for queue in self.queues],
                )
            ],
            pictures=pictures,
            is_dry_run=self.is_dry_run,
        )


def archive(
    spark: SparkSession,
    cluster: Reach | str,
    lake: str,
    *,
    topics: Iterable[str] = (),
    pattern: str | None = None,
    table_format: str = "manifest",
    continuous: bool = False,
    every: float = 10.0,
    batch_bytes: str = BATCH_BYTES,
    stop: threading.Event | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Archived:
    """Add what is new in these topics (or in all that match `pattern`) to the lake.

    Returns when everything is there that was stored when it began; with `continuous` it goes on, a batch
    every `every` seconds. When `stop` is set it ends, and what was committed stays. `lake` is a folder that
    driver and executors see under one name. Raises ConfigError, StoreLocked, Unreachable, DataLoss.
    """
    if _is_remote(spark):
        raise ConfigError("archive commits on the driver, which Spark Connect keeps elsewhere; use --master")
    reach = Reach.of(cluster)
    target = Lake(lake)
    subscription = _subscription(topics, pattern)
    queues = _queues(reach, subscription, target)
    done = Archived(target.folder, target.format() if target.exists() else table_format, queues=queues)
    if dry_run:
        done.is_dry_run = True
        return done
    clock = RealClock()
    began = clock.monotonic()
    with target.writing(table_format) as writing:
        options = {
            **reach.source_options(**subscription),
            "groupId": reach.options.get("groupId", _group(target)),
            "maxBytesPerTrigger": batch_bytes,
            "startingOffsets": _starting(queues),
        }
        run = _Run(spark, options, writing, done, progress, keep_topic=table_format == "iceberg")
        if continuous:
            run.continuously(every, stop)
        else:
            run.once(stop)
    done.seconds = clock.monotonic() - began
    return done


def _is_remote(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _subscription(topics: Iterable[str], pattern: str | None) -> dict[str, str]:
    named = ",".join(topics)
    if bool(named) == bool(pattern):
        raise ConfigError("say which topics: by name, or by a pattern, and not both")
    return {"subscribe": named} if named else {"subscribePattern": pattern or ""}


def _group(lake: Lake) -> str:
    """Whose offsets on the brokers show how far this lake is."""
    from hashlib import blake2b

    return f"kourou-archive-{blake2b(lake.folder.encode(), digest_size=4).hexdigest()}"


def _queues(reach: Reach, subscription: Mapping[str, str], lake: Lake) -> list[QueueState]:
    """Every queue that is to be read, as it is now."""
    options = source_options(reach.source_options(**subscription), streaming=True)
    positions = lake.positions()
    cluster = Cluster(options.access)
    try:
        queues = subscribed_queues(cluster, options)
        bounds = cluster.bounds(queues)
    finally:
        cluster.close()
    return [
        QueueState(
            *queue,
            positions[queue].end if queue in positions else None,
            bounds[queue].low,
            bounds[queue].high,
        )
        for queue in queues
    ]


def _starting(queues: Sequence[QueueState]) -> str:
    """Where the lake ends, and the beginning of queues it does not know."""
    known: Offsets = {
        Queue(state.topic, state.broker_name, state.queue_id): state.archived_to
        for state in queues
        if state.archived_to is not None
    }
    return json.dumps(to_json(known)) if known else "earliest"


class _Run:
    """Batch after batch into one lake."""

    def __init__(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        writing: Writing,
        done: Archived,
        progress: Progress | None,
        *,
        keep_topic: bool,
    ) -> None:
        self._spark = spark
        self._options = options
        self._writing = writing
        self._done = done
        self._progress = progress
        self._keep_topic = keep_topic
        self._total = sum(queue.behind for queue in done.queues)
        self._allow_gaps = options.get("failOnDataLoss", "true").lower() == "false"

    def once(self, stop: threading.Event | None) -> None:
        """Plan here, with what plans a streaming query; only the tasks are Spark's."""
        from kourou.spark.columns import SCHEMA
        from kourou.spark.pipelines.archive_source import Into
        from kourou.spark.stream import TopicStreamReader

        options = source_options(self._options, streaming=True)
        into = Into(self._writing.lake.folder, self._keep_topic)
        run = f"once-{Chance().secret_bytes(8).hex()}"
        with closing(Cluster(options.access)) as cluster:
            reader = TopicStreamReader(options, SCHEMA, cluster)
            reader.prepareForTriggerAvailableNow()
            limit, start = reader.getDefaultReadLimit(), reader.initialOffset()
            for number in count():
                end = reader.latestOffset(start, limit)  # tells the brokers that all up to `start` is done
                if end == start or (stop is not None and stop.is_set()):
                    return
                tasks = list(enumerate(reader.partitions(start, end)))
                if tasks:
                    told = self._carried_out(tasks, partial(_archived, options, into, run, number), run, stop)
                    if told is None:
                        return
                    self._commit(number, told)
                start = end

    def _carried_out(
        self,
        tasks: Sequence[tuple[int, InputPartition]],
        carry_out: Callable[[tuple[int, Any]], str],
        run: str,
        stop: threading.Event | None,
    ) -> list[str] | None:
        """What each task tells, by a Spark job; None when that was stopped."""
        from pyspark import InheritableThread

        context = self._spark.sparkContext
        told: list[str] = []
        failure: list[Exception] = []

        def work() -> None:
            context.setJobGroup(run, "archive")
            try:
                told.extend(context.parallelize(tasks, len(tasks)).map(carry_out).collect())
            except Exception as error:
                failure.append(error)

        thread = InheritableThread(target=work, daemon=True)
        thread.start()
        is_stopped = False
        while thread.is_alive():
            thread.join(POLL_SECONDS)
            if stop is not None and stop.is_set():
                context.cancelJobGroup(run)
                is_stopped = True
        if is_stopped:
            return None
        if failure:
            raise failure[0]
        return told

    def continuously(self, every: float, stop: threading.Event | None) -> None:
        from kourou.spark.pipelines.archive_source import FOLDER, KEEP_TOPIC, NAME, ArchiveSource

        failure: list[MQError] = []

        def commit(frame: DataFrame, batch_id: int) -> None:
            try:
                self._commit(batch_id, [row.part for row in frame.collect()])
            except MQError as error:
                failure.append(error)
                raise

        self._spark.dataSource.register(ArchiveSource)
        lake = {FOLDER: self._writing.lake.folder, KEEP_TOPIC: str(self._keep_topic).lower()}
        with _checkpoint(self._writing.lake) as checkpoint:
            query = (
                self._spark.readStream.format(NAME)
                .options(**self._options, **lake)
                .load()
                .writeStream.foreachBatch(commit)
                .option("checkpointLocation", checkpoint)
                .trigger(**trigger(every))
                .start()
            )
            try:
                wait_for(query, stop)
            except Exception:
                if failure:
                    raise failure[0] from None
                raise

    def _commit(self, number: int, told: Sequence[str]) -> None:
        """What all tasks of a batch have told becomes one commit."""
        from kourou.spark.pipelines.archive_source import Part

        parts = [msgspec.json.decode(each, type=Part) for each in told]
        if not parts:
            return
        committed = self._writing.commit(
            parts[0].query,
            number,
            [one for part in parts for one in part.ranges],
            [file for part in parts for file in part.files],
            allow_gaps=self._allow_gaps,
        )
        if committed is not None:
            self._done.add(committed)
        if self._progress is not None:
            self._progress(self._done.rows, self._total)


def _archived(
    options: SourceOptions, into: Into, run: str, number: int, task: tuple[int, RangesPartition]
) -> str:
    """On an executor."""
    from kourou.spark.pipelines.archive_source import archived, attempt_name
    from kourou.spark.pipelines.task_files import TaskName

    return archived(options, into, TaskName(run, number, task[0], attempt_name()), task[1])


@contextmanager
def _checkpoint(lake: Lake) -> Iterator[str]:
    """A folder for Spark's own notes, for one run."""
    files = RealFiles()
    parent = os.path.join(lake.folder, META, "checkpoints")
    folder = os.path.join(parent, f"run-{RealClock().now_ms()}")
    _clear(files, parent)  # of a run that died; the lake is locked, so none goes on
    files.make_folders(folder)
    try:
        yield f"file://{folder}"
    finally:
        _clear(files, parent)


def _clear(files: RealFiles, folder: str) -> None:
    """As far as it goes: the Java of a driver that was killed may still write there for a moment."""
    if files.is_folder(folder):
        with suppress(OSError):
            files.remove_folder(folder)
