"""Faults put into our own code on purpose, one at a time: a suite that does not see them sees nothing.

    make sim MUTATIONS=1     the table: each mutation, the seed and invariant that caught it, after how long

Each is a change somebody could make by mistake; the names are those of the test programme.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from kourou.broker.delays import _Level
from kourou.broker.offsets import CommittedOffsets
from kourou.broker.transactions import Transactions
from kourou.client.held_queue import HeldQueue
from kourou.client.locks import Locks
from kourou.doors.simulated_files import SimulatedFile, SimulatedFiles
from kourou.store.flush import Flusher
from kourou.store.recovery import Finder
from kourou.store.store import Store


def no_fdatasync() -> Any:
    """drop `fdatasync` of the log"""
    real = SimulatedFile.sync

    def sync(self: SimulatedFile) -> None:
        if "/commitlog/" not in self.path:
            real(self)

    return mock.patch.object(SimulatedFile, "sync", sync)


def ack_before_flush() -> Any:
    """ack before the flush completes"""
    real = Store.when_stored

    def when_stored(self: Store, end: int, then: Any, *, written_is_enough: bool = False) -> None:
        real(self, end, then, written_is_enough=True)

    return mock.patch.object(Store, "when_stored", when_stored)


def dispatch_before_flush() -> Any:
    """dispatch to the consume queue before the flush"""

    def commit(self: Store) -> None:
        real(self)
        self._dispatcher.advance(self._log.end)

    real = Store._commit
    return mock.patch.object(Store, "_commit", commit)


def no_folder_sync() -> Any:
    """no sync of a folder after a new file"""
    return mock.patch.object(SimulatedFiles, "sync_folder", return_value=None)


def rename_without_sync() -> Any:
    """rename without a sync of the temporary file"""
    real = SimulatedFile.sync

    def sync(self: SimulatedFile) -> None:
        if not self.path.endswith(".tmp"):
            real(self)

    return mock.patch.object(SimulatedFile, "sync", sync)


def no_crc_on_recovery() -> Any:
    """CRC not compared on recovery"""
    real = Finder.__init__

    def init(self: Finder, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **{**kwargs, "verify": False})

    return mock.patch.object(Finder, "__init__", init)


def sync_again_after_error() -> Any:
    """try the sync again after EIO"""
    real = Flusher._done

    def done(self: Flusher, end: int, error: BaseException | None) -> None:
        if error is None:
            real(self, end, None)
        else:
            self._busy = False
            self._begin()

    return mock.patch.object(Flusher, "_done", done)


def transaction_ends_twice() -> Any:
    """no epoch on the end of a transaction: one that has ended ends again"""
    return mock.patch.object(
        Transactions, "_is_open", lambda self, offset: 0 <= offset < self._store.max_offset(_HALF, 0)
    )


def any_mark_ends_a_half() -> Any:
    """a done mark of a lost half message ends the next one there"""
    return mock.patch.object(Transactions, "_is_meant_by", return_value=True)


def offsets_beyond_the_end() -> Any:
    """offsets stay beyond the end of a queue after a power cut"""
    return mock.patch.object(CommittedOffsets, "after_crash", return_value=None)


def delays_saved_too_early() -> Any:
    """delayed messages count as delivered before the copies are on the disk"""
    return mock.patch.object(_Level, "lasting_offset", lambda self, flushed: self.next_offset)


def commit_what_was_read() -> Any:
    """a consumer commits what it has read, not what it has done"""
    return mock.patch.object(HeldQueue, "commit_offset", property(lambda self: self.fetch_offset))


def no_lock() -> Any:
    """an ordered queue is read without its lock"""

    async def lock(self: Locks, held: HeldQueue) -> bool:
        held.locked_until = 1e9
        return True

    return mock.patch.object(Locks, "lock", lock)


_HALF = "RMQ_SYS_TRANS_HALF_TOPIC"

MUTATIONS: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        no_fdatasync,
        ack_before_flush,
        dispatch_before_flush,
        no_folder_sync,
        rename_without_sync,
        no_crc_on_recovery,
        sync_again_after_error,
        transaction_ends_twice,
        any_mark_ends_a_half,
        offsets_beyond_the_end,
        delays_saved_too_early,
        commit_what_was_read,
        no_lock,
    )
}

SEEN_ELSEWHERE = frozenset({"dispatch_before_flush", "no_crc_on_recovery", "commit_what_was_read"})
"""The simulation need not see these: other tests do (docs/durability.md tells which, and why)."""


@contextlib.contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """With this mutation in our code, or with none."""
    if name is None:
        yield
        return
    with MUTATIONS[name]():
        yield
