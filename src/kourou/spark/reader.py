"""Reading topics once: from where to where is settled when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kourou.spark import planning
from kourou.spark.cluster import Cluster
from kourou.spark.data_loss import DataLoss
from kourou.spark.offsets import Offsets, Range
from kourou.spark.options import EARLIEST, LATEST, SourceOptions
from kourou.spark.plain_errors import in_one_line
from kourou.spark.planning import Loss
from kourou.spark.pulls import shared_cluster
from kourou.spark.subscription import patiently, resolved, subscribed_queues
from kourou.spark.task import RangesPartition, read_ranges


class TopicReader(DataSourceReader):
    """One read. Predicates are options: Spark's pushed filters leak from one query into the next."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    @in_one_line
    def partitions(self) -> Sequence[InputPartition]:
        return patiently(self._options, self._planned)

    def _planned(self) -> list[InputPartition]:
        options = self._options
        cluster = shared_cluster(options.access)
        queues = subscribed_queues(cluster, options)
        start = resolved(
            cluster, queues, options.starting, options, otherwise=EARLIEST, option="startingOffsets"
        )
        end = resolved(cluster, queues, options.ending, options, otherwise=LATEST, option="endingOffsets")
        ranges = planning.ranges_between(start, end)
        ranges, lost = planning.kept(ranges, cluster.begins([part.queue for part in ranges]).all())
        lost += _beyond(cluster, start, end)
        if lost and options.fail_on_data_loss:
            raise DataLoss(lost)
        return partitions_of(cluster, ranges, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_ranges(self._options, self._schema, partition)


def _beyond(cluster: Cluster, start: Offsets, end: Offsets) -> list[Loss]:
    """Starts that lie behind the last message: somebody was there once, or has mistyped."""
    ends = cluster.ends([queue for queue in start if start[queue] > end[queue]]).all()
    return planning.beyond(start, ends)


def partitions_of(cluster: Cluster, ranges: Sequence[Range], options: SourceOptions) -> list[InputPartition]:
    """The tasks for these ranges; always the same for the same ranges."""
    sizes = cluster.record_bytes(planning.sampled_places(ranges), options.group or options.group_prefix)
    tasks = planning.packed(
        ranges,
        planning.mean_bytes(ranges, sizes),
        options.partition_bytes,
        rows_max=options.rows_per_partition_max,
        partitions_min=options.partitions_min,
    )
    return [RangesPartition(task) for task in tasks]
