"""`format("rocketmq_store_archive")`: scans the log files of a stopped broker, and keeps what is whole.

As `archive_source.py`, with log files in the place of queues: a task writes the good messages of its piece of
the log to hidden files of a lake, and gives Spark one row that names them.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kourou.doors.chance import Chance
from kourou.protocol.names import NOT_SENDABLE
from kourou.spark.columns import SCHEMA
from kourou.spark.pipelines.archive_source import PART, Part
from kourou.spark.pipelines.task_files import TaskFiles, TaskName
from kourou.spark.plain_errors import in_one_line
from kourou.spark.store_scan import OWN_TYPES, LogPieces, StoreScanReader

NAME = "rocketmq_store_archive"
FOLDER, BROKER, RUN = "lakefolder", "lakebroker", "lakerun"
SCANNED = pa.schema([*SCHEMA, *((name, OWN_TYPES[name]) for name in ("verdict",))])
HIDDEN = (0x4, 0xC)
"""Prepared and rolled back: nobody was ever to see these."""


class StoreArchiveSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    def schema(self) -> str:
        return "part string"

    @in_one_line
    def reader(self, schema: StructType) -> DataSourceReader:
        own = {name.lower(): value for name, value in self.options.items()}
        lake = {name: own.pop(name, "") for name in (FOLDER, BROKER, RUN)}
        return StoreArchiveReader({**own, "table": "commitlog"}, lake[FOLDER], lake[BROKER], lake[RUN])


class StoreArchiveReader(DataSourceReader):
    def __init__(self, options: dict[str, str], folder: str, broker_name: str, run: str) -> None:
        self._scan = StoreScanReader(options, SCANNED)
        self._folder = folder
        self._broker_name = broker_name
        self._run = run

    @in_one_line
    def partitions(self) -> Sequence[InputPartition]:
        return self._scan.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LogPieces):
            return
        context = TaskContext.get()
        name = TaskName(
            self._run, 0, 0 if context is None else context.partitionId(), Chance().secret_bytes(6).hex()
        )
        files = TaskFiles(self._folder, name)
        try:
            for batch in self._scan.read(partition):
                files.add(good_messages(batch, self._broker_name))
            written = files.close()
        except BaseException:
            files.give_up()
            raise
        part = Part(self._run, name.task, (), tuple(written))
        yield pa.RecordBatch.from_pydict({"part": [msgspec.json.encode(part).decode()]}, schema=PART)


def good_messages(batch: pa.RecordBatch, broker_name: str) -> pa.RecordBatch:
    """The rows that are what was written and that a consumer could have read, with the broker's name."""
    kind = pc.bit_wise_and(pc.fill_null(batch.column("sysFlag"), HIDDEN[0]), pa.scalar(0xC, pa.int32()))
    wanted = pc.and_(
        pc.equal(batch.column("verdict"), "ok"),
        pc.and_(
            pc.invert(pc.is_in(kind, pa.array(HIDDEN, pa.int32()))),
            pc.invert(pc.is_in(batch.column("topic"), pa.array(sorted(NOT_SENDABLE)))),
        ),
    )
    kept = batch.filter(wanted)
    names = pa.repeat(pa.scalar(broker_name, pa.string()), kept.num_rows)
    return pa.RecordBatch.from_arrays(
        [names if field.name == "brokerName" else kept.column(field.name) for field in SCHEMA], schema=SCHEMA
    )
