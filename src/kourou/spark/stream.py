"""A query that goes on: what there is to read, batch after batch, and where the group is said to be.

    initialOffset   where the query begins. Spark asks twice, and again after a crash before the first batch
                    was done: an answer that depends on the moment is stored at the brokers before it is given
    latestOffset    where the next batch ends. Its `start` is durable in Spark's checkpoint by then, so that
                    is what the group's offsets become; Spark's own commit() misses the last batch
    partitions      the tasks of a batch; for the same batch always the same

Whatever outlives one call is in this object: Spark keeps it in one process for as long as the query runs.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kourou.doors.clock import RealClock
from kourou.errors import NotFound, Unreachable
from kourou.remoting.complaints import Complaints
from kourou.spark import planning
from kourou.spark.cluster import Cluster
from kourou.spark.data_loss import DataLoss
from kourou.spark.offsets import Offsets, Queue, from_json, to_json
from kourou.spark.options import EARLIEST, SourceOptions
from kourou.spark.plain_errors import in_one_line
from kourou.spark.planning import Loss
from kourou.spark.pulls import shared_cluster
from kourou.spark.reader import partitions_of
from kourou.spark.start_memory import StartMemory
from kourou.spark.subscription import patiently, resolved, subscribed_queues
from kourou.spark.task import read_ranges

DISCOVERY_SECONDS = 2.0
"""New queues and topics are looked for this often."""

_log = logging.getLogger("kourou.spark")
_complaints = Complaints(_log, RealClock())
"""A broker that is away is away for many triggers: once a minute is enough."""


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming query's view of its topics."""

    def __init__(self, options: SourceOptions, schema: pa.Schema, cluster: Cluster | None = None) -> None:
        """`cluster` is asked, or the one that all in this process share."""
        self._own_cluster = cluster
        self._options = options
        self._schema = schema
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        """Where Trigger.AvailableNow ends."""
        self._committed: Offsets = {}
        self._ends: Offsets = {}
        """The last ends that were told."""
        self._queues: list[Queue] = []
        self._discover_at = 0.0
        self._last_batch_at: float | None = None

    @property
    def _cluster(self) -> Cluster:
        return shared_cluster(self._options.access) if self._own_cluster is None else self._own_cluster

    # ------------------------------------------------------------------------------ where it begins

    @in_one_line
    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            self._initial = patiently(self._options, self._remembered_start)
        return to_json(self._initial)

    def _remembered_start(self) -> Offsets:
        options = self._options
        queues = self._discovered(at_once=True)

        def resolve() -> Offsets:
            return resolved(
                self._cluster, queues, options.starting, options, otherwise=EARLIEST, option="startingOffsets"
            )

        if options.group is None or not options.starting.is_of_the_moment:
            return resolve()
        memory = StartMemory(self._cluster, options.group)
        return memory.recall(queues) or memory.keep(resolve())

    # ------------------------------------------------------------------------------- where it ends

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark hands it back to `latestOffset`; with Trigger.Once it says there that there is no limit."""
        options = self._options
        if options.rows_per_trigger_max is not None:
            return ReadMaxRows(options.rows_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(options.bytes_per_trigger_max)
        if options.rows_per_trigger_min is not None:
            return ReadMinRows(options.rows_per_trigger_min)
        return ReadAllAvailable()

    @in_one_line
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = patiently(
            self._options, lambda: self._cluster.ends(self._discovered(at_once=True)).all()
        )

    @in_one_line
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = from_json(start)
        self._commit(begin)
        end = self._available(begin)
        is_limited = not isinstance(limit, ReadAllAvailable)
        if is_limited:
            if self._shall_wait(begin, end):
                return to_json(begin)
            end = self._limited(begin, end)
        if end != begin:
            self._last_batch_at = self._cluster.clock.monotonic()
        return to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return to_json(self._ends) if self._ends else None

    def _available(self, begin: Offsets) -> Offsets:
        """How far each queue can be read now: those that began to be since, too.

        A queue whose broker is away stays where it is, and is read on when that broker is back. So does one
        that the topic no longer has; if something in it was not read yet, that is lost.
        """
        if self._target is not None:
            ends = dict(self._target)
        else:
            ends = self._told_ends({*self._discovered(), *begin})
            self._lose(planning.beyond(begin, ends))
            for queue in self._closed(begin):
                end = ends.pop(queue, begin[queue])
                if end > begin[queue]:
                    self._lose([Loss(queue, begin[queue], end, "the topic has no such queue to read now")])
        self._ends = ends
        return {queue: max(ends.get(queue, 0), begin.get(queue, 0)) for queue in {*ends, *begin}}

    def _closed(self, begin: Offsets) -> list[Queue]:
        """Queues that were read, and are none any more, though their broker has the topic."""
        missing = sorted(set(begin) - set(self._queues))
        brokers = {(queue.topic, queue.broker_name) for queue in self._queues}
        return [queue for queue in missing if (queue.topic, queue.broker_name) in brokers]

    def _told_ends(self, queues: set[Queue]) -> Offsets:
        answers = self._cluster.ends(queues)
        for queue, error in answers.failed.items():
            if not isinstance(error, Unreachable | NotFound):
                raise error
            _complaints.warn(f"ends of {queue}", f"{queue} cannot be asked, and stays where it is: {error}")
        if answers.failed:
            self._cluster.doubt(answers.failed)
        return answers.found

    def _discovered(self, *, at_once: bool = False) -> list[Queue]:
        """The queues there are; the name servers are asked now and then, and one that is silent is no end."""
        now = self._cluster.clock.monotonic()
        if at_once or now >= self._discover_at:
            try:
                found = subscribed_queues(self._cluster, self._options, fresh=True)
            except (NotFound, Unreachable) as error:
                if at_once and not self._queues:
                    raise
                _complaints.warn("discovery", f"the queues are those known before: {error}")
            else:
                for queue in sorted(set(found) - set(self._queues)) if self._queues else ():
                    _log.warning("new: %s, read from its beginning", queue)
                self._queues = found
            self._discover_at = now + DISCOVERY_SECONDS
        return self._queues

    def _shall_wait(self, begin: Offsets, end: Offsets) -> bool:
        """Whether there is too little yet, and it was not long ago that there was enough."""
        least = self._options.rows_per_trigger_min
        if least is None or self._target is not None:
            return False
        rows = sum(end[queue] - begin.get(queue, 0) for queue in end)
        now = self._cluster.clock.monotonic()
        if self._last_batch_at is None:
            self._last_batch_at = now
        waited_ms = (now - self._last_batch_at) * 1000
        return rows < least and waited_ms < self._options.trigger_delay_ms_max

    def _limited(self, begin: Offsets, end: Offsets) -> Offsets:
        options = self._options
        starts = {queue: begin.get(queue, 0) for queue in end}
        new = [queue for queue in end if queue not in begin]
        if new:
            starts.update(self._cluster.begins(new).all())
        sizes: dict[Queue, float] = {}
        if options.bytes_per_trigger_max is not None:
            ranges = planning.ranges_between(starts, end)
            places = planning.sampled_places(ranges)
            sizes = planning.mean_bytes(ranges, self._cluster.record_bytes(places, self._group))
        return planning.limited(
            starts, end, options.rows_per_trigger_max, options.bytes_per_trigger_max, sizes
        )

    # -------------------------------------------------------------------------------------- tasks

    @in_one_line
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, stop = from_json(start), from_json(end)
        if backward := planning.backward(begin, stop):
            self._lose(backward)
            begin = {queue: min(place, stop.get(queue, place)) for queue, place in begin.items()}
        new = [queue for queue in stop if queue not in begin]
        if new:
            found = self._cluster.begins(new).all()
            begin.update({queue: min(found[queue], stop[queue]) for queue in new})
        ranges = planning.ranges_between(begin, stop)
        lows = self._cluster.begins([part.queue for part in ranges]).found
        ranges, lost = planning.kept(ranges, lows)
        self._lose(lost)
        return partitions_of(self._cluster, ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_ranges(self._options, self._schema, partition)

    def _lose(self, losses: Sequence[Loss]) -> None:
        if not losses:
            return
        error = DataLoss(losses)
        if self._options.fail_on_data_loss:
            raise error
        _complaints.warn(f"lost {losses[0].queue}", f"lost and gone on: {error}")

    # --------------------------------------------------------------------------------- the group

    @property
    def _group(self) -> str:
        return self._options.group or self._options.group_prefix

    def _commit(self, done: Offsets) -> None:
        """Tell the brokers where the group is. What cannot be told now is told with the next batch."""
        if self._options.group is None:
            return
        changed = {queue: place for queue, place in done.items() if self._committed.get(queue) != place}
        if not changed:
            return
        answers = self._cluster.commit(changed, self._options.group)
        self._committed.update(answers.found)
        for queue, error in answers.failed.items():
            _complaints.warn(f"commit in {queue}", f"where the group is in {queue} is told later: {error}")
            if not isinstance(error, Unreachable | NotFound):
                raise error

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: it comes too late for the last batch; `latestOffset` has done it."""

    def stop(self) -> None:
        """Spark has hung up; it does not always call this. The process ends now: it notices by itself, wants
        to tell Spark, and would show the user how that failed."""
        if isinstance(sys.exc_info()[1], EOFError):
            sys.excepthook = partial(_unless_nobody_listens, sys.excepthook)


def _unless_nobody_listens(
    otherwise: Callable[..., object], kind: type[BaseException], error: BaseException, trace: object
) -> None:
    if not isinstance(error, BrokenPipeError):
        otherwise(kind, error, trace)
