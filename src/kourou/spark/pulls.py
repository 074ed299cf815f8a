"""Bytes from brokers: the records of some ranges, in order, with several pulls on their way at any time.

    range     |============================================|
    stretches |--1--|--2--|--3--|--4--|                       about as many offsets as one pull brings
    pulls        ^     ^     ^     ^   in flight, of any queue of the task; what comes is handed on in order

A stretch is pulled until it is complete: a broker may bring less than was asked for. With a filter most
offsets bring nothing, so stretches are longer, and what a pull brings from beyond its stretch is dropped.

Any broker gives 32 messages a pull. One of ours says so when asked for its capabilities, and gives megabytes
(KOUROU_BULK_PULL): a stretch is then as long as the records seen so far let us expect.

A broker that is away is waited for, and its address asked for again, for as long as the task has patience:
Spark in one process tries a task only once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from kourou.client import operations
from kourou.client.operations import PULL_CODES, Subscription
from kourou.client.refusals import accepted
from kourou.errors import Busy, MQError, NotFound, Unreachable
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.extensions import BulkPull
from kourou.protocol.headers import PullReply
from kourou.spark.access import ClusterAccess
from kourou.spark.cluster import Cluster
from kourou.spark.columns import Piece, walk
from kourou.spark.data_loss import DataLoss
from kourou.spark.offsets import Queue, Range
from kourou.spark.planning import Loss

PULL_SECONDS = 15.0
"""For one pull to be answered."""
AGAIN_SECONDS = 0.5
"""Until a broker that failed is asked again."""
FILTERED_STRETCH = 800
"""Offsets of one pull with a filter: what an Apache broker looks through before it answers."""

_log = logging.getLogger("kourou.spark")


class PullSize(NamedTuple):
    """How much one pull asks of a broker, and how many are on their way."""

    messages: int
    in_flight: int
    bulk_bytes: int = 0
    """Of a bulk pull; 0 where the broker knows none."""


STOCK = PullSize(32, 16)
"""Any broker gives 32 messages; 16 of such pulls keep it, and us, busy."""

BULK_BYTES = 2 * 1024 * 1024
BULK_IN_FLIGHT = 4
FIRST_BULK_STRETCH = 1024
"""Offsets, before anything is known of the records."""
FILTERED_BULK_STRETCH = 16_384
HEADERS_ONLY_FROM_BYTES = 4096.0
"""Where nobody wants bodies: leaving them out costs the broker more than sending small ones."""


def pull_size(cluster: Cluster, address: str) -> PullSize:
    """What the broker at `address` gives at once."""
    bulk_bytes = cluster.bulk_pull_bytes(address)
    return PullSize(0, BULK_IN_FLIGHT, min(bulk_bytes, BULK_BYTES)) if bulk_bytes else STOCK


class PullPlan(NamedTuple):
    """What to pull, and how; the same for all ranges of a read."""

    group: str
    expression: str
    expression_kind: str
    fail_on_data_loss: bool
    patience_seconds: float
    messages_max: int | None = None
    wants_bodies: bool = True

    @property
    def is_filtered(self) -> bool:
        return self.expression_kind != operations.TAG or self.expression != "*"


def pulled(cluster: Cluster, ranges: Sequence[Range], plan: PullPlan) -> Iterator[Piece]:
    """The records of all ranges, in their order.

    Raises DataLoss for what is not there any more (without `fail_on_data_loss` it is a warning), Unreachable
    when a broker does not answer for longer than the task has patience, Refused when one says no.
    """
    return _Pulling(cluster, plan).run(ranges)


class _Stretch:
    """Offsets of one queue that are pulled one after the other."""

    __slots__ = ("at", "end", "failed_since", "not_before", "pieces", "queue")

    def __init__(self, queue: Queue, at: int, end: int) -> None:
        self.queue = queue
        self.at = at
        self.end = end
        self.pieces: list[Piece] = []
        self.failed_since: float | None = None
        self.not_before = 0.0


class _Pulling:
    """The pulls of one task. `client.poll` brings their outcomes to `_tell`, `_wait` takes them in."""

    def __init__(self, cluster: Cluster, plan: PullPlan) -> None:
        self._cluster = cluster
        self._plan = plan
        self._clock = cluster.clock
        self._settled: deque[tuple[_Stretch, Command | Exception]] = deque()
        self._idle: list[_Stretch] = []
        """Failed, and to be tried again."""
        self._mean_bytes = 0.0
        """Of a record with its body; 0 before there was one."""

    def run(self, ranges: Sequence[Range]) -> Iterator[Piece]:
        window: deque[_Stretch] = deque()
        stretches = self._stretches(ranges)
        self._ask_on(window, stretches)
        while window:
            head = window[0]
            if not head.pieces and head.at < head.end:
                self._wait()
                continue
            pieces, head.pieces = head.pieces, []
            if head.at >= head.end:
                window.popleft()
                self._ask_on(window, stretches)  # first: the broker works while what is here is decoded
            yield from pieces

    def _ask_on(self, window: deque[_Stretch], stretches: Iterator[_Stretch]) -> None:
        """Launch pulls until there are as many as shall be on their way."""
        for stretch in stretches:
            window.append(stretch)
            self._launch(stretch)
            if len(window) >= self._size(stretch.queue).in_flight:
                break

    def _stretches(self, ranges: Iterable[Range]) -> Iterator[_Stretch]:
        for queue, start, end in ranges:
            at = start
            while at < end:
                stop = min(at + self._stretch_offsets(self._size(queue)), end)
                yield _Stretch(queue, at, stop)
                at = stop

    def _stretch_offsets(self, size: PullSize) -> int:
        if not size.bulk_bytes:
            return FILTERED_STRETCH if self._plan.is_filtered else size.messages
        if self._plan.is_filtered:
            return FILTERED_BULK_STRETCH
        if not self._mean_bytes:
            return FIRST_BULK_STRETCH
        return max(int(size.bulk_bytes / self._mean_bytes), 1)

    def _size(self, queue: Queue) -> PullSize:
        most = self._plan.messages_max
        if most is not None:
            return PullSize(min(most, STOCK.messages), STOCK.in_flight)
        try:
            return pull_size(self._cluster, self._cluster.address(queue))
        except (Unreachable, NotFound):
            return STOCK  # whoever pulls will find out, and has patience

    def _launch(self, stretch: _Stretch) -> None:
        try:
            address = self._cluster.address(stretch.queue)
            command = self._command(stretch, self._size(stretch.queue))
            tell = partial(self._tell, stretch)
            self._cluster.client.call_soon(address, command, PULL_SECONDS, tell, in_place=True)
        except (Unreachable, NotFound) as error:
            self._set_back(stretch, error)

    def _command(self, stretch: _Stretch, size: PullSize) -> Command:
        plan, queue = self._plan, self._cluster.wire(stretch.queue)
        if size.bulk_bytes:
            header = BulkPull(
                consumer_group=plan.group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=stretch.at,
                queue_offset_end=stretch.end,
                bytes_max=size.bulk_bytes,
                subscription=plan.expression,
                expression_type=plan.expression_kind,
                headers_only=not plan.wants_bodies and self._mean_bytes >= HEADERS_ONLY_FROM_BYTES,
            )
            return request(RequestCode.KOUROU_BULK_PULL, header)
        subscription = Subscription(queue.topic, plan.expression, 0, plan.expression_kind)
        return operations.pull_request(queue, stretch.at, subscription, plan.group, count=size.messages)

    def _tell(self, stretch: _Stretch, outcome: Command | Exception) -> None:
        self._settled.append((stretch, outcome))

    def _wait(self) -> None:
        """Until something has come; then take it in."""
        if not self._settled:
            self._cluster.client.poll(AGAIN_SECONDS)
        while self._settled:
            stretch, outcome = self._settled.popleft()
            try:
                if isinstance(outcome, Exception):
                    raise outcome
                self._take_in(stretch, outcome)
            except (Unreachable, Busy) as error:
                self._set_back(stretch, error)
        if self._idle:
            now = self._clock.monotonic()
            due = [stretch for stretch in self._idle if stretch.not_before <= now]
            self._idle = [stretch for stretch in self._idle if stretch.not_before > now]
            for stretch in due:
                self._launch(stretch)

    def _take_in(self, stretch: _Stretch, reply: Command) -> None:
        queue, at, end = stretch.queue, stretch.at, stretch.end
        accepted(reply, f"pulling from {queue}", PULL_CODES)
        header = reply.parse(PullReply)
        after = header.next_begin_offset
        if reply.code == ResponseCode.SUCCESS:
            data = reply.body if after <= end and not self._plan.is_filtered else _before(reply.body, end)
            if len(data):
                stretch.pieces.append(Piece(data, queue.broker_name))
            if not self._mean_bytes and not self._plan.is_filtered:
                self._mean_bytes = len(data) / max(min(after, end) - at, 1)
        elif reply.code == ResponseCode.PULL_OFFSET_MOVED:
            self._lost(queue, at, end, header)
        if reply.code == ResponseCode.PULL_NOT_FOUND or after <= at:
            # Nothing there yet: a replica behind its master, or a broker that has just come back.
            self._set_back(stretch, self._missing(queue, at, end, header))
            return
        stretch.failed_since = None
        stretch.at = after
        if after < end:
            self._launch(stretch)

    def _lost(self, queue: Queue, at: int, end: int, header: PullReply) -> None:
        """The broker has not what is asked for. Beyond its end it may only be behind; that is waited for."""
        low = header.min_offset
        if at < low:
            loss = Loss(queue, at, min(low, end), f"the queue begins at {low} now (retention)")
            if self._plan.fail_on_data_loss:
                raise DataLoss([loss])
            _log.warning("lost and gone on: %s", loss)

    def _missing(self, queue: Queue, at: int, end: int, header: PullReply) -> MQError:
        high = header.max_offset
        loss = Loss(queue, at, end, f"the queue ends at {high}, where it once had more")
        return DataLoss([loss]) if high < end else Unreachable(f"{queue} brings nothing from offset {at} on")

    def _set_back(self, stretch: _Stretch, error: MQError) -> None:
        """Something that may pass: try again a little later, until patience has run out."""
        now = self._clock.monotonic()
        if stretch.failed_since is None:
            stretch.failed_since = now
        elif now - stretch.failed_since > self._plan.patience_seconds:
            if isinstance(error, DataLoss) and not self._plan.fail_on_data_loss:
                _log.warning("lost and gone on: %s", error)
                stretch.at = stretch.end
                return
            raise error
        self._cluster.doubt([stretch.queue])
        stretch.not_before = now + AGAIN_SECONDS
        self._idle.append(stretch)


def _before(data: bytes | memoryview, end: int) -> bytes | memoryview:
    """The records in front of the first whose queue offset is `end` or more."""
    for start in walk(data).tolist():
        if int.from_bytes(data[start + 20 : start + 28], "big") >= end:
            return memoryview(data)[:start]
    return data


# ------------------------------------------------------------------------------------ one cluster a process

_clusters: dict[ClusterAccess, Cluster] = {}
_lock = threading.Lock()


def shared_cluster(access: ClusterAccess) -> Cluster:
    """The connections of this process. Spark uses a worker for many tasks, and ends one idle for a minute."""
    with _lock:
        cluster = _clusters.get(access)
        if cluster is None:
            cluster = _clusters[access] = Cluster(access)
        return cluster
