"""What one task of Spark reads, and how: made by the driver, carried out by an executor."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from kourou.client.operations import TAG, Subscription
from kourou.errors import MQError
from kourou.spark.columns import batches
from kourou.spark.offsets import Range
from kourou.spark.options import SourceOptions
from kourou.spark.plain_errors import hide_traceback
from kourou.spark.pulls import PullPlan, pulled, shared_cluster
from kourou.spark.python_worker import settle


class RangesPartition(InputPartition):
    """The ranges of one task."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def read_ranges(
    options: SourceOptions, schema: pa.Schema, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """The messages of a task. An empty plan has a partition that is none of ours, and nothing in it."""
    if not isinstance(partition, RangesPartition):
        return
    settle()
    try:
        cluster = shared_cluster(options.access)
        wants_bodies = options.verify_crc or "body" in schema.names
        plan = pull_plan(options, wants_bodies=wants_bodies)
        yield from batches(
            pulled(cluster, partition.ranges, plan),
            schema,
            inflated_bytes_max=options.inflated_bytes_max,
            verify=options.verify_crc,
            tags=wanted_tags(options),
            namespace=options.access.namespace,
        )
    except MQError:
        hide_traceback()
        raise


def pull_plan(options: SourceOptions, *, wants_bodies: bool = True) -> PullPlan:
    return PullPlan(
        group=options.group or options.group_prefix,
        expression=options.expression,
        expression_kind=options.expression_kind,
        fail_on_data_loss=options.fail_on_data_loss,
        patience_seconds=options.pull_timeout_ms / 1000,
        messages_max=options.pull_messages_max,
        wants_bodies=wants_bodies,
    )


def wanted_tags(options: SourceOptions) -> frozenset[str]:
    """The tags themselves: a broker compares hashes, and hashes collide. Empty when all are wanted."""
    if options.expression_kind != TAG:
        return frozenset()
    return Subscription("", options.expression, 0).tags
