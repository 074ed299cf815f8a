"""Faults put into the broker on purpose, one at a time: a suite that lets one of them pass guards nothing.

    python -m tests.chaos.mutations                      every mutation, the test that caught it, and how soon
    KOUROU_MUTATION=name python -m pytest -p tests.chaos.mutations …      any tests, with the fault in place

Each takes away one thing that the broker's promises rest on.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

VARIABLE = "KOUROU_MUTATION"
POWER_CUTS = "tests/chaos/test_power_cuts.py"
BIT_ROT = "tests/chaos/test_bit_rot.py"
PAIRS = "tests/unit/replication/test_pair.py"
SECONDS_MAX = 300


class Mutation(NamedTuple):
    what: str
    tests: tuple[str, ...]
    """Where it is to be caught."""
    apply: Callable[[], None]


class Outcome(NamedTuple):
    caught_by: str | None
    seconds: float
    output: str


def _put(where: Any, name: str, what: Any) -> None:
    assert hasattr(where, name), f"{where} has no {name}: the mutation has nothing to change"
    setattr(where, name, what)


def no_fdatasync() -> None:
    from kourou.doors import simulated_files

    _put(simulated_files.SimulatedFile, "sync", lambda self: None)


def ack_before_flush() -> None:
    from kourou.store.store import Store

    stored = Store.when_stored

    def when_stored(self: Store, end: int, then: Any, *, written_is_enough: bool = False) -> None:
        stored(self, end, then, written_is_enough=True)

    _put(Store, "when_stored", when_stored)


def dispatch_before_flush() -> None:
    from kourou.store.store import Store

    commit = Store._commit

    def commit_and_show(self: Store) -> None:
        commit(self)
        self._dispatcher.advance(self._log.end)

    _put(Store, "_commit", commit_and_show)


def no_folder_sync_after_roll() -> None:
    from kourou.doors.simulated_files import SimulatedFiles

    sync_folder = SimulatedFiles.sync_folder

    def sync_some(self: SimulatedFiles, folder: str) -> None:
        if not folder.endswith("/commitlog"):
            sync_folder(self, folder)

    _put(SimulatedFiles, "sync_folder", sync_some)


def rename_without_sync() -> None:
    from kourou.doors.simulated_files import SimulatedFile

    sync = SimulatedFile.sync

    def sync_some(self: SimulatedFile) -> None:
        if not self.path.endswith(".tmp"):
            sync(self)

    _put(SimulatedFile, "sync", sync_some)


def no_crc_on_recovery() -> None:
    from kourou.store import mending, recovery

    checked = recovery.checked_record

    def unverified(data: bytes, at: int, end: int, verify: bool, physical_offset: int) -> Any:
        return checked(data, at, end, False, physical_offset)

    for module in (recovery, mending):
        _put(module, "checked_record", unverified)
        _put(module, "sketched", lambda *_: None)


def truncate_at_the_first_bad_record() -> None:
    from kourou.store.recovery import Finder

    _put(Finder, "_following", lambda self, at: None)


def retry_a_failed_sync() -> None:
    from kourou.store.flush import Flusher, Syncs

    done = Flusher._done

    def done_or_again(self: Flusher, end: int, error: BaseException | None) -> None:
        if error is None:
            done(self, end, None)
        else:
            self._busy = False
            self._begin()

    _put(Flusher, "_done", done_or_again)
    _put(Syncs, "do", lambda self, sync: sync())  # which would not let it


def no_identity_on_end_transaction() -> None:
    from kourou.broker import transactions

    _put(transactions, "_may_mean", lambda header, half: True)


def unbounded_inflate() -> None:
    from kourou.protocol import compression

    _put(compression, "ALWAYS_INFLATED_BYTES", 1 << 28)
    _put(compression.decompress, "__defaults__", (1 << 28, 1 << 28))


def serve_without_looking() -> None:
    from kourou.store.mending import Mender

    _put(Mender, "look", lambda self, queue, queue_offset, count: queue_offset)


def queues_end_where_they_say() -> None:
    from kourou.store import checkpoint

    _put(checkpoint, "_total", lambda data, end: None)


def no_seal_on_small_files() -> None:
    from kourou.broker import state_file
    from kourou.store import check_state

    for module in (state_file, check_state):
        _put(module, "check_seal", lambda text: None)


def checkpoint_before_what_it_vouches_for() -> None:
    from kourou.store.checkpoint import Checkpointer

    def sync_nothing(self: Any, checkpoint: Any) -> None:
        self._unsynced.clear()
        sync_some(self, checkpoint)

    sync_some = Checkpointer._sync_some
    _put(Checkpointer, "_sync_some", sync_nothing)
    queues_end_where_they_say()  # which would notice, and build the queues again


def checkpoint_of_entries_in_memory() -> None:
    from kourou.store.checkpoint import Checkpointer

    _put(Checkpointer, "_have_written", lambda self, write, what: True)
    queues_end_where_they_say()  # as above


def gaps_when_a_file_cannot_be_removed() -> None:
    from kourou.store.retention import Retention

    def forget(self: Any, paths: list[str], error: BaseException | None) -> None:
        self._is_removing_queue_files = False
        self._queue_files = self._queue_files[len(paths) :]

    _put(Retention, "_queue_files_removed", forget)


def ack_before_the_slave() -> None:
    from kourou.store.flush import tell_group
    from kourou.store.replica_wait import ReplicaWait

    def hold(self: ReplicaWait, end: int, members: Any, status: Any) -> None:
        tell_group(end, members, status)

    _put(ReplicaWait, "hold", hold)


def show_before_the_slave() -> None:
    from kourou.store.replica_wait import ReplicaWait

    wrote = ReplicaWait.wrote

    def at_once(self: ReplicaWait, end: int) -> None:
        wrote(self, end)
        self._pass(end, is_safe=True)

    _put(ReplicaWait, "wrote", at_once)


def slave_acks_before_its_disk() -> None:
    from kourou.store.store import Store

    _put(Store, "durable", property(lambda self: self.wrote))


def old_offsets_win() -> None:
    from kourou.broker.offsets import CommittedOffsets

    def merge(self: CommittedOffsets, theirs: Any, epoch: int) -> list[Any]:
        self._kept.offset_table = self._table = {key: dict(queues) for key, queues in theirs.items()}
        return []

    _put(CommittedOffsets, "merge", merge)


def any_acknowledgement_is_believed() -> None:
    from kourou.replication.link import Link

    def reached(self: Link, place: int) -> None:
        self.acked = place
        self._listener.acknowledged(self)

    _put(Link, "_reached", reached)


def diverged_ends_are_kept_in_the_log() -> None:
    from kourou.replication.replica import Replica

    def search(self: Replica, master: Any) -> Any:
        store = self._store
        self.follower()

        def nothing_asked() -> Any:
            yield []
            return store.wrote

        return nothing_asked() if store.file_places else None

    _put(Replica, "search", search)


def commit_what_was_read() -> None:
    from kourou.client.held_queue import HeldQueue

    _put(HeldQueue, "commit_offset", property(lambda self: self.fetch_offset))


def a_refused_round_counts() -> None:
    from kourou.broker.transactions import Transactions
    from kourou.store.flush import OK

    passed = Transactions._passed

    def passed_anyway(self: Transactions, moved: Any, cursor: int, is_end: bool, status: Any) -> None:
        passed(self, moved, cursor, is_end, OK)

    _put(Transactions, "_passed", passed_anyway)


def saved_recalls_are_forgotten() -> None:
    from kourou.broker.timers import Timers

    progress: Any = vars(Timers)["progress"].fget

    def without_recalls(self: Timers) -> Any:
        recalled, self._recalled = self._recalled, {}
        try:
            return progress(self)
        finally:
            self._recalled = recalled

    _put(Timers, "progress", property(without_recalls))


def deleted_topics_are_still_written() -> None:
    from kourou.store.dispatch import Dispatcher

    _put(Dispatcher, "forget_topic", lambda self, queues: None)


MUTATIONS = {
    "ack-before-the-slave": Mutation(
        "a sync master answers before its slave has it", (PAIRS,), ack_before_the_slave
    ),
    "show-before-the-slave": Mutation(
        "readers see what only the master has", (PAIRS,), show_before_the_slave
    ),
    "slave-acks-before-its-disk": Mutation(
        "a slave under SYNC_FLUSH acknowledges what is only in memory", (PAIRS,), slave_acks_before_its_disk
    ),
    "old-offsets-win": Mutation("a returning master's old offsets win", (PAIRS,), old_offsets_win),
    "any-ack-is-believed": Mutation(
        "acknowledgements are not held against what was sent", (PAIRS,), any_acknowledgement_is_believed
    ),
    "diverged-ends-stay": Mutation(
        "a slave goes on behind what its master never had", (PAIRS,), diverged_ends_are_kept_in_the_log
    ),
    "no-fdatasync": Mutation("fdatasync is left out", (POWER_CUTS,), no_fdatasync),
    "ack-before-flush": Mutation("acknowledged before the flush is over", (POWER_CUTS,), ack_before_flush),
    "dispatch-before-flush": Mutation(
        "shown to readers before the flush", (POWER_CUTS,), dispatch_before_flush
    ),
    "no-folder-sync-after-roll": Mutation(
        "a new log file's folder is not synced", (POWER_CUTS,), no_folder_sync_after_roll
    ),
    "rename-without-sync": Mutation(
        "a small file is renamed before its content is synced", (POWER_CUTS,), rename_without_sync
    ),
    "checkpoint-too-early": Mutation(
        "a checkpoint that does not wait for the queues",
        (POWER_CUTS,),
        checkpoint_before_what_it_vouches_for,
    ),
    "checkpoint-of-memory": Mutation(
        "a checkpoint speaks of entries that wait in memory", (POWER_CUTS,), checkpoint_of_entries_in_memory
    ),
    "no-crc-on-recovery": Mutation("CRCs are not compared", (BIT_ROT,), no_crc_on_recovery),
    "truncate-at-first-bad-record": Mutation(
        "the log ends at the first bad record", (BIT_ROT,), truncate_at_the_first_bad_record
    ),
    "serve-without-looking": Mutation(
        "old records are served as they lie", (BIT_ROT,), serve_without_looking
    ),
    "queue-ends-unchecked": Mutation(
        "a queue's end is not compared with the checkpoint", (BIT_ROT,), queues_end_where_they_say
    ),
    "no-seal-on-small-files": Mutation(
        "offsets and topics are read without their checksum", (BIT_ROT,), no_seal_on_small_files
    ),
    "retry-failed-fsync": Mutation(
        "a failed sync is tried again and believed",
        ("tests/unit/store/test_flush.py", "tests/unit/broker/handlers/test_durability.py"),
        retry_a_failed_sync,
    ),
    "gap-after-failed-remove": Mutation(
        "files after one that cannot be removed are removed",
        ("tests/unit/store/test_retention.py",),
        gaps_when_a_file_cannot_be_removed,
    ),
    "no-identity-on-end-transaction": Mutation(
        "an old end-of-transaction ends another",
        ("tests/unit/broker/test_transactions.py", "tests/property/test_transactions_at_random.py"),
        no_identity_on_end_transaction,
    ),
    "commit-what-was-read": Mutation(
        "a consumer commits what it has read, not what it has done",
        ("tests/unit/client/test_held_queue.py",),
        commit_what_was_read,
    ),
    "refused-round-counts": Mutation(
        "open transactions whose new copy was not stored count as moved on",
        ("tests/unit/broker/test_refused_rounds.py",),
        a_refused_round_counts,
    ),
    "recalls-not-saved": Mutation(
        "timers are saved as if recalls that have come up were over",
        ("tests/unit/broker/test_recalled_and_saved.py",),
        saved_recalls_are_forgotten,
    ),
    "deleted-topic-written": Mutation(
        "what waits for the disk brings a deleted topic back",
        ("tests/unit/store/test_deleted_while_waiting.py",),
        deleted_topics_are_still_written,
    ),
    "unbounded-inflate": Mutation(
        "a compressed body may grow without bound",
        ("tests/unit/protocol/test_compression.py",),
        unbounded_inflate,
    ),
}


def pytest_configure() -> None:
    """As a plugin of pytest: put the fault in place before anything runs."""
    name = os.environ.get(VARIABLE)
    if name:
        MUTATIONS[name].apply()


def outcome_of(name: str) -> Outcome:
    """Run the tests that should catch it, up to the first that does."""
    mutation = MUTATIONS[name]
    command = [sys.executable, "-m", "pytest", "-p", "tests.chaos.mutations", "-x", "-q", "--no-header"]
    environment = {key: value for key, value in os.environ.items() if key not in ("IMAGES", "FLIPS", "SEED")}
    begin = time.monotonic()
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--tb=line", *mutation.tests],
        env={**environment, VARIABLE: name},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    seconds = time.monotonic() - begin
    failed = re.search(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
    return Outcome(failed and failed[1], seconds, done.stdout + done.stderr)


def main() -> None:
    missed = []
    print(f"{'mutation':<32}{'caught by':<100}{'after':>7}")
    for name in sys.argv[1:] or MUTATIONS:
        outcome = outcome_of(name)
        if outcome.caught_by is None:
            missed.append(name)
        print(f"{name:<32}{outcome.caught_by or 'NOBODY':<100}{outcome.seconds:>5.1f} s", flush=True)
    sys.exit(f"not caught: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
