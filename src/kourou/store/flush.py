"""What is durable, and who waits to know.

One sync is under way at a time, on a thread of its own. While it runs, everything that is written meanwhile
gathers, and the next sync takes all of it: group commit, without a timer. ASYNC_FLUSH does the same at its
intervals, and nobody waits.

A sync that fails leaves the disk's cache in an unknown state: the page may be marked clean and never have
reached the disk. So there is no second try; the store stops. Whoever syncs at a stop, on the loop's thread,
knows of a failure on the other one that the loop has not heard of yet.
"""

from __future__ import annotations

import errno
import logging
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from kourou.doors.clock import Clock, Timer
from kourou.doors.failpoints import ARMED, reached
from kourou.store.commit_log import CommitLog
from kourou.store.config import StoreConfig

PAGE_BYTES = 4096

log = logging.getLogger(__name__)

Job = Callable[[], None]
Background = Callable[[Job, Callable[[BaseException | None], None]], None]
"""Runs a job on a thread of its own, one at a time and in order; then tells the loop's thread how it went."""


class StoreStatus(NamedTuple):
    """How the storing of a message ended."""

    name: str
    reason: str = ""

    @property
    def is_stored(self) -> bool:
        """In the log, and perhaps not yet on the disk (FLUSH_TIMEOUT) or on a slave."""
        return self.name != "FAILED"


OK = StoreStatus("OK")
FLUSH_TIMEOUT = StoreStatus(
    "FLUSH_TIMEOUT", "not on the disk in time; stored all the same, unless the power fails"
)

FLUSH_SLAVE_TIMEOUT = StoreStatus(
    "FLUSH_SLAVE_TIMEOUT", "no slave had it in time (slaveTimeout); stored on the master, and sent on to them"
)
SLAVE_NOT_AVAILABLE = StoreStatus(
    "SLAVE_NOT_AVAILABLE", "too few slaves are connected and close enough; stored on the master alone"
)


def failed(reason: str) -> StoreStatus:
    return StoreStatus("FAILED", reason)


Then = Callable[[StoreStatus], None]


class _Group(NamedTuple):
    end: int
    deadline: float
    members: list[Then]


class Waiters:
    """Who waits for which place of the log to be synced, in groups of one tick each; places only grow."""

    def __init__(
        self,
        clock: Clock,
        timeout_ms: int,
        done: Callable[[int, list[Then], StoreStatus], None] | None = None,
    ) -> None:
        """`done(end, members, status)` is called with each group; when not given, its members are told."""
        self._clock = clock
        self._timeout = timeout_ms / 1000
        self._done = done or tell_group
        self._groups: deque[_Group] = deque()
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return sum(len(group.members) for group in self._groups)

    def add(self, end: int, members: list[Then]) -> None:
        self._groups.append(_Group(end, self._clock.monotonic() + self._timeout, members))
        if self._timer is None:
            self._timer = self._clock.later(self._timeout, self._expire)

    def reached(self, end: int) -> None:
        groups = self._groups
        while groups and groups[0].end <= end:
            group = groups.popleft()
            self._done(group.end, group.members, OK)

    def fail(self, reason: str) -> None:
        groups, self._groups = self._groups, deque()
        status = failed(reason)
        for group in groups:
            tell(group.members, status)

    def _expire(self) -> None:
        self._timer = None
        groups, now = self._groups, self._clock.monotonic()
        while groups and groups[0].deadline <= now:
            group = groups.popleft()
            self._done(group.end, group.members, FLUSH_TIMEOUT)
        if groups:
            self._timer = self._clock.later(groups[0].deadline - now, self._expire)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def tell_group(_: int, members: list[Then], status: StoreStatus) -> None:
    """Tell all of a group how it ended."""
    if status is OK:
        tell_stored(members)
    else:
        tell(members, status)


def tell_stored(members: list[Then]) -> None:
    """Stored as asked for: from here on it must never be lost."""
    if ARMED:
        reached("before-ack-send")
    tell(members, OK)
    if ARMED:
        reached("after-ack-send")


def tell(members: list[Then], status: StoreStatus) -> None:
    for then in members:
        try:
            then(status)
        except Exception:  # one that fails must not keep the others waiting
            log.exception("telling that a message is stored failed: %r", then)


class SyncTimes:
    """How long syncs took: how many up to each of `bounds`, in seconds, and how many longer."""

    bounds = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

    def __init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def note(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds


class Syncs:
    """One sync of some files at a time, on whichever thread, and none after one that has failed."""

    def __init__(self) -> None:
        self._one = threading.Lock()
        self._failed: BaseException | None = None

    def do(self, sync: Callable[[], None]) -> None:
        """Raises OSError: its own, or because of one before it."""
        with self._one:
            if self._failed is not None:
                raise OSError(errno.EIO, f"a sync has failed before: {self._failed}")
            try:
                sync()
            except BaseException as error:
                self._failed = error
                raise


class Flusher:
    """Brings the log to the disk."""

    def __init__(
        self,
        log: CommitLog,
        config: StoreConfig,
        clock: Clock,
        background: Background,
        on_flushed: Callable[[], None],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._config = config
        self._clock = clock
        self._background = background
        self._on_flushed = on_flushed
        self._on_fault = on_fault
        self._syncs = Syncs()
        self._busy = False
        self._then_idle: Callable[[], None] | None = None
        self._timer: Timer | None = None
        self._last_sync = clock.monotonic()
        self._wanted = 0  # somebody needs the log on the disk up to here
        self._taken_back: int | None = None  # while a sync was under way, what it was to bring there
        self.times = SyncTimes()
        self.flushed = log.end
        """One past the last byte known to be on the disk."""

    def start(self) -> None:
        if not self._config.is_sync:
            self._timer = self._clock.every(self._config.flush_interval_ms / 1000, self._look)

    def wrote(self) -> None:
        """The log has grown."""
        if self._config.is_sync:
            self._begin()

    def flush(self) -> None:
        """Bring all that is written to the disk, soon."""
        self._wanted = self._log.end
        self._begin()

    def _look(self) -> None:
        new_bytes = self._log.end - self.flushed
        idle_ms = (self._clock.monotonic() - self._last_sync) * 1000
        enough = new_bytes >= self._config.flush_least_pages * PAGE_BYTES
        if enough or (new_bytes and idle_ms >= self._config.flush_thorough_interval_ms):
            self._begin()

    def _begin(self) -> None:
        end = self._log.end
        if self._busy or self.flushed >= end:
            return
        self._busy = True
        files = [segment.file() for segment in self._log.segments.segments_between(self.flushed, end)]
        clock, times = self._clock, self.times

        def sync() -> None:
            began = clock.monotonic()
            for file in files:
                file.sync()
            times.note(clock.monotonic() - began)

        self._background(partial(self._syncs.do, sync), lambda error: self._done(end, error))

    def _done(self, end: int, error: BaseException | None) -> None:
        self._busy = False
        if self._then_idle is not None:  # the store has been closed meanwhile, and saw to everything itself
            self._then_idle()
            return
        if error is not None:
            self._on_fault(error)
            return
        if self._taken_back is not None:
            end, self._taken_back = min(end, self._taken_back), None
        self.flushed = max(self.flushed, end)
        self._last_sync = self._clock.monotonic()
        self._on_flushed()
        if self._config.is_sync or self._wanted > self.flushed:
            self._begin()

    def taken_back(self, end: int) -> None:
        """The log ends at `end` again: what a sync that is under way brings to the disk beyond is nothing."""
        self.flushed = min(self.flushed, end)
        if self._busy:
            self._taken_back = end if self._taken_back is None else min(end, self._taken_back)

    def flush_now(self) -> None:
        """Bring everything to the disk before returning. Raises OSError."""
        end = self._log.end

        def sync() -> None:
            for segment in self._log.segments.segments_between(self.flushed, end):
                segment.file().sync()

        self._syncs.do(sync)
        self.flushed = max(self.flushed, end)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def when_idle(self, then: Callable[[], None]) -> None:
        """Call `then` when no sync is under way, so that files can be closed. No other sync is begun."""
        if self._busy:
            self._then_idle = then
        else:
            then()
