"""`format("rocketmq_archive")`: reads topics as `format("rocketmq")` does, and keeps what it reads.

Offsets, planning and reading are those of the source. A task writes its messages to hidden files of a lake
and gives Spark one row: what it has read and written, as JSON. `archive.py` collects those rows and commits
them.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

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
from kourou.spark.task import RangesPartition

NAME = "rocketmq_archive"
FOLDER, KEEP_TOPIC, COMPRESSION = "lakefolder", "laketopiccolumn", "lakecompression"
PART = pa.schema([("part", pa.string())])


class Part(msgspec.Struct, frozen=True):
    """What one task has read and written."""

    query: str
    batch: int
    ranges: tuple[QueueRange, ...]
    files: tuple[LakeFile, ...]


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
        return ArchiveReader(
            source_options(own, streaming=True),
            lake[FOLDER],
            keep_topic=lake[KEEP_TOPIC] == "true",
            compression=lake[COMPRESSION] or "zstd",
        )


class ArchiveReader(TopicStreamReader):
    def __init__(self, options: SourceOptions, folder: str, *, keep_topic: bool, compression: str) -> None:
        super().__init__(options, SCHEMA)
        self._folder = folder
        self._keep_topic = keep_topic
        self._compression = compression

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangesPartition):
            return
        name = _task_name()
        files = TaskFiles(self._folder, name, keep_topic=self._keep_topic, compression=self._compression)
        try:
            for batch in super().read(partition):
                files.add(batch)
            written = files.close()
        except BaseException:  # also when Spark stops the task: nothing of it shall stay
            files.give_up()
            raise
        ranges = tuple(QueueRange(*part.queue, part.start, part.end) for part in partition.ranges)
        part = Part(name.query, name.batch, ranges, tuple(written))
        yield pa.RecordBatch.from_pydict({"part": [msgspec.json.encode(part).decode()]}, schema=PART)


def _task_name() -> TaskName:
    context = TaskContext.get()
    if context is None:
        raise MQError("an archive is written by tasks of a streaming query only")
    query = context.getLocalProperty("sql.streaming.queryId") or ""
    batch = context.getLocalProperty("streaming.sql.batchId") or "0"
    return TaskName(query, int(batch), context.partitionId(), Chance().secret_bytes(6).hex())
