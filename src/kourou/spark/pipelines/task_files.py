"""Parquet written inside a Spark task: record batches in, hidden files of a lake out.

Messages never enter the JVM; what does is one small row for each file. A file holds messages of one topic,
stored on one day, in the order they were read. It is synced before its row is told, because the commit that
names it must not outlive it. See `lake.py` for what becomes of it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kourou.doors.files import RealFiles
from kourou.spark.pipelines.lake import HIDDEN, TEMPORARY, FileQueue, LakeFile, partition_folder

FILE_BYTES_MAX: Final = 256 << 20
"""As much of messages, uncompressed, as goes into one file."""
ROW_GROUP_BYTES: Final = 16 << 20
"""Of messages, uncompressed, that are encoded together: 1.1 us a message where one batch at a time took 1.5,
and files are smaller; bench: to Parquet."""
DAY_US: Final = 24 * 3600 * 1_000_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TaskName(NamedTuple):
    """Who writes: the same for every attempt at a task, but for the last part."""

    query: str
    batch: int
    task: int
    attempt: str


class TaskFiles:
    """The files of one task. `add` batches, then `close`, which tells what was written."""

    def __init__(
        self, folder: str, name: TaskName, *, keep_topic: bool = False, compression: str = "zstd"
    ) -> None:
        """With `keep_topic` the topic is a column in the files, too, as Iceberg wants it."""
        self._folder = folder
        self._name = name
        self._keep_topic = keep_topic
        self._compression = compression
        self._open: dict[tuple[str, int], _OpenFile] = {}
        self._written: list[LakeFile] = []
        self._number = 0

    def add(self, batch: pa.RecordBatch) -> None:
        for topic, day, part in parted(batch):
            file = self._open.get((topic, day))
            if file is None:
                file = self._open[topic, day] = self._start(topic, day, part.schema)
            file.add(part)
            if file.size >= FILE_BYTES_MAX:
                self._written.append(file.close())
                del self._open[topic, day]

    def close(self) -> list[LakeFile]:
        self._written += [file.close() for file in self._open.values()]
        self._open.clear()
        return self._written

    def give_up(self) -> None:
        """Leave nothing behind."""
        for file in self._open.values():
            file.give_up()
        self._open.clear()

    def _start(self, topic: str, day: int, schema: pa.Schema) -> _OpenFile:
        date = (EPOCH + timedelta(days=day)).strftime("%Y-%m-%d")
        query, batch, task, attempt = self._name
        name = f"part-{query}-{batch:06d}-{task:04d}-{self._number:03d}"
        self._number += 1
        inside = partition_folder(topic, date)
        return _OpenFile(
            self._folder,
            f"{inside}/{name}.parquet",
            f"{inside}/{HIDDEN}{name}-{attempt}{TEMPORARY}",
            topic,
            date,
            schema if self._keep_topic else _without_topic(schema),
            self._compression,
        )


class _OpenFile:
    def __init__(
        self,
        folder: str,
        path: str,
        written_as: str,
        topic: str,
        date: str,
        schema: pa.Schema,
        compression: str,
    ) -> None:
        self._files = RealFiles()
        self._path, self._written_as, self._topic, self._date = path, written_as, topic, date
        self._full_path = os.path.join(folder, written_as)
        self._files.make_folders(os.path.dirname(self._full_path))
        few_values = [
            name for name in ("topic", "brokerName", "tags", "bornHost", "storeHost") if name in schema.names
        ]
        # Nobody looks for the least body there is: 0.15 us a message less; bench: to Parquet.
        compared = [name for name in schema.names if name not in ("body", "properties")]
        self._writer = pq.ParquetWriter(
            self._full_path,
            schema,
            compression=compression,
            use_dictionary=few_values,
            write_statistics=compared,
            store_schema=False,
        )
        self._schema = schema
        self._queues: dict[tuple[str, int], list[int]] = {}
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self.size = self._waiting_bytes = 0
        self._store_us: list[int] = []

    def add(self, batch: pa.RecordBatch) -> None:
        size = batch.nbytes
        self._rows += batch.num_rows
        self.size += size
        self._waiting.append(batch.select(self._schema.names))
        self._waiting_bytes += size
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write()
        times = pc.min_max(batch.column("storeTimestamp").cast(pa.int64())).as_py()
        self._store_us = [min([times["min"], *self._store_us]), max([times["max"], *self._store_us])]
        for broker, queue_id, first, last, rows in _queues_of(batch):
            seen = self._queues.setdefault((broker, queue_id), [first, last, 0])
            seen[0], seen[1], seen[2] = min(seen[0], first), max(seen[1], last), seen[2] + rows

    def _write(self) -> None:
        """What waits becomes one row group."""
        rows = pa.Table.from_batches(self._waiting, self._schema)
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self._waiting.clear()
        self._waiting_bytes = 0

    def close(self) -> LakeFile:
        if self._waiting:
            self._write()
        self._writer.close()
        with contextlib.closing(self._files.open(self._full_path, read_only=True)) as file:
            file.sync()
            size = file.size()
        self._files.sync_folder(os.path.dirname(self._full_path))
        return LakeFile(
            path=self._path,
            written_as=self._written_as,
            topic=self._topic,
            date=self._date,
            rows=self._rows,
            size=size,
            store_min_ms=self._store_us[0] // 1000,
            store_max_ms=self._store_us[1] // 1000,
            queues=tuple(
                FileQueue(broker, queue_id, first, last, rows)
                for (broker, queue_id), (first, last, rows) in sorted(self._queues.items())
            ),
        )

    def give_up(self) -> None:
        with contextlib.suppress(Exception):  # it was failing already; what is left is swept away later
            self._writer.close()
        with contextlib.suppress(OSError):
            self._files.remove(self._full_path)


def parted(batch: pa.RecordBatch) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """The batch by topic and day (since 1970), each part in the order it came."""
    if not batch.num_rows:
        return
    days = batch.column("storeTimestamp").cast(pa.int64()).to_numpy() // DAY_US
    topics = batch.column("topic").dictionary_encode()
    codes = topics.indices.to_numpy()
    if len(topics.dictionary) == 1 and days[0] == days[-1] and (days == days[0]).all():
        yield topics.dictionary[0].as_py(), int(days[0]), batch  # nearly always
        return
    pairs = np.unique(np.stack([codes, days], axis=1), axis=0)
    for code, day in pairs.tolist():
        yield topics.dictionary[code].as_py(), day, batch.filter(pa.array((codes == code) & (days == day)))


def _queues_of(batch: pa.RecordBatch) -> Iterator[tuple[str, int, int, int, int]]:
    """Broker, queue, first and last offset, and number of rows of every queue in the batch.

    By NumPy: 0.2 us a message less than `group_by`, which asks a pool of threads; bench: to Parquet.
    """
    brokers = batch.column("brokerName").dictionary_encode()
    codes = np.asarray(brokers.indices).astype(np.int64)
    queue_ids, offsets = (np.asarray(batch.column(name)) for name in ("queueId", "queueOffset"))
    keys = codes << 32 | queue_ids & np.int64(0xFFFF_FFFF)
    order = np.argsort(keys, kind="stable")
    keys, offsets = keys[order], offsets[order]
    starts = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
    firsts, lasts = np.minimum.reduceat(offsets, starts), np.maximum.reduceat(offsets, starts)
    rows = np.diff(starts, append=len(keys))
    for row, first, last, count in zip(order[starts], firsts, lasts, rows, strict=True):
        broker = brokers.dictionary[int(codes[row])].as_py()
        yield broker, int(queue_ids[row]), int(first), int(last), int(count)


def _without_topic(schema: pa.Schema) -> pa.Schema:
    return schema.remove(schema.get_field_index("topic"))
