"""What a task of `archive` does, and `format("rocketmq_archive")`, which has Spark do it again and again.

Offsets, planning and reading are those of the source. A task writes its messages to hidden files of a lake
and gives Spark one row: what it has read and written, as JSON. `archive.py` collects those rows and commits
them.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kourou.doors.chance import Chance
from kourou.errors import MQError
from kourou.spark.columns import SCHEMA
from kourou.spark.options import SourceOptions, source_options
from kourou.spark.pipelines.lake import LakeFile, QueueRange
from kourou.spark.pipelines.task_files import TaskFiles, TaskName
from kourou.spark.plain_errors import in_one_line
from kourou.spark.stream import TopicStreamReader
from kourou.spark.task import RangesPartition, read_ranges

NAME = "rocketmq_archive"
FOLDER, KEEP_TOPIC, COMPRESSION = "lakefolder", "laketopiccolumn", "lakecompression"
PART = pa.schema([("part", pa.string())])
ZSTD = "zstd"


class Part(msgspec.Struct, frozen=True):
    """What one task has read and written."""

    query: str
    batch: int
    ranges: tuple[QueueRange, ...]
    files: tuple[LakeFile, ...]


class Into(NamedTuple):
    """The lake, and what its files are like."""

    folder: str
    keep_topic: bool = False
    compression: str = ZSTD


def archived(options: SourceOptions, into: Into, name: TaskName, partition: RangesPartition) -> str:
    """Carry out one task: what is read is written; the `Part` that says so, as JSON."""
    files = TaskFiles(into.folder, name, keep_topic=into.keep_topic, compression=into.compression)
    try:
        for batch in read_ranges(options, SCHEMA, partition):
            files.add(batch)
        written = files.close()
    except BaseException:  # also when Spark stops the task: nothing of it shall stay
        files.give_up()
        raise
    ranges = tuple(QueueRange(*part.queue, part.start, part.end) for part in partition.ranges)
    return msgspec.json.encode(Part(name.query, name.batch, ranges, tuple(written))).decode()


def attempt_name() -> str:
    """Different for every attempt at a task."""
    return Chance().secret_bytes(6).hex()


class ArchiveSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    def schema(self) -> str:
        return "part string"

    @in_one_line
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        own = {name.lower(): value for name, value in self.options.items()}
        lake = {name: own.pop(name, "") for name in (FOLDER, KEEP_TOPIC, COMPRESSION)}
        into = Into(lake[FOLDER], lake[KEEP_TOPIC] == "true", lake[COMPRESSION] or ZSTD)
        return ArchiveReader(source_options(own, streaming=True), into)


class ArchiveReader(TopicStreamReader):
    def __init__(self, options: SourceOptions, into: Into) -> None:
        super().__init__(options, SCHEMA)
        self._into = into

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, RangesPartition):
            part = archived(self._options, self._into, _task_name(), partition)
            yield pa.RecordBatch.from_pydict({"part": [part]}, schema=PART)


def _task_name() -> TaskName:
    context = TaskContext.get()
    if context is None:
        raise MQError("an archive is written by tasks of a streaming query only")
    query = context.getLocalProperty("sql.streaming.queryId") or ""
    batch = context.getLocalProperty("streaming.sql.batchId") or "0"
    return TaskName(query, int(batch), context.partitionId(), attempt_name())
