"""Append, read, look up: the door to one broker's data folder.

    store = Store(config, files=…, clock=…, defer=…, background=…)
    store.open()                                        lock, load, recover; then ready
    appended = store.append(Draft(topic, 0, body, …))    staged: it has its offsets, and not yet its bytes
    store.when_stored(appended.end, then)                then(OK | FLUSH_TIMEOUT | FAILED with a reason)
    store.read(topic, 0, queue_offset, 32, 256 * 1024)   ReadResult, also when there is nothing
    store.on_dispatch(listener)                          told of new messages, once per queue and tick
    store.follow()                                       another broker's log is taken in here, byte for byte
    store.close()

Everything here is called on one thread, and never waits for a disk. What a tick appends is written at its end
by one `pwrite`; what must be synced is handed to `background`. The road of a message in this folder:

    append   commit_log: place reserved, encoded once, staged       consume_queue: offset taken, entry staged
    tick     commit_log: written                                    answers of ASYNC_FLUSH
    sync     flush: on the disk                                     answers of SYNC_FLUSH
    dispatch consume_queue: entry counts, message visible           listeners: long polling
    behind   consume_queue: written, with others of its queue
    later    key_index: findable by its keys

ASYNC_FLUSH dispatches after the write, SYNC_FLUSH after the sync: no reader sees what a crash in that mode
could take away. Who sent it hears so first; before anything else is asked, readers see it, too. Two ways to
fail: a full disk refuses (retryable, and tried again by itself), any other error of the disk ends it: nothing
is acknowledged any more, `failed` says why.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice, repeat, takewhile
from typing import NamedTuple

import msgspec

from kourou.doors.clock import Clock
from kourou.doors.failpoints import ARMED, reached
from kourou.doors.files import Files, Lock, is_full, make_lasting_folder
from kourou.errors import Busy, DiskFault, Refused, StoreLocked
from kourou.native import native
from kourou.protocol import properties as props
from kourou.protocol import record as records
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import SCHEDULE_TOPIC
from kourou.protocol.properties import PROPERTIES_BYTES_MAX
from kourou.store.aside import copy_to_quarantine, quarantine
from kourou.store.checkpoint import Checkpointer, read_checkpoint
from kourou.store.commit_log import CommitLog
from kourou.store.config import StoreConfig
from kourou.store.consume_queue import ConsumeQueue, ConsumeQueues
from kourou.store.dispatch import Dispatched, Dispatcher, Listener, Position, entry_tag
from kourou.store.flush import (
    FLUSH_TIMEOUT,
    OK,
    Background,
    Flusher,
    StoreStatus,
    SyncTimes,
    Then,
    Waiters,
    failed,
    tell,
    tell_group,
    tell_stored,
)
from kourou.store.following import Follower
from kourou.store.key_hashes import Keyed
from kourou.store.key_index import KeyIndex
from kourou.store.mending import Mender
from kourou.store.reading import Accepts, Reader, ReadResult, ReadStatus
from kourou.store.recovery import (
    PREPARED,
    ROLLED_BACK,
    TRANSACTION_BITS,
    Damage,
    Finder,
    Recovered,
    checked_record,
    records_from,
    recover,
)
from kourou.store.replica_wait import ReplicaWait
from kourou.store.replies import Replies
from kourou.store.retention import Retention

__all__ = [
    "FLUSH_TIMEOUT",
    "OK",
    "Appended",
    "Dispatched",
    "Draft",
    "ReadResult",
    "ReadStatus",
    "Store",
    "StoreStatus",
]

IN_MEMORY_SHARE = 0.4
RETRY_SECONDS = 1.0
STALL_REFUSAL_SECONDS = 0.1
SEAL_SECONDS = 0.005
_PROPERTIES_MAX = PROPERTIES_BYTES_MAX - records.CRC_PROPERTY_BYTES - 1
_HIDDEN = (PREPARED, ROLLED_BACK)
_ANEW_BYTES_MAX = 1 << 30
"""More than a log ever has that no sync was asked to bring to the disk."""
_NOT_PREPARED = repeat(0)
_USUAL_MORE_BYTES = 2 + records.CRC_PROPERTY_BYTES  # the length of the properties, and what is added to these

encode = records.encode
encode_usual = records.encode_usual
log = logging.getLogger(__name__)


class Draft(msgspec.Struct):
    """A message on its way into the log. Hosts are packed (`record.pack_host`)."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int = 0
    prepared_offset: int = 0
    tags_code: int | None = None
    """What the consume queue says beside the place; None: found out from the properties."""


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where a message has its place."""

    physical_offset: int
    size: int
    queue_offset: int
    store_ms: int

    @property
    def end(self) -> int:
        return self.physical_offset + self.size


Usual = tuple[tuple[str, int], bytes, bytes, int, int, int, int, int, int]
"""A message with nothing unusual about it, for `Store.append_run`: topic and queue id; body; properties, that
end in U+0002 and hold no CRC; where in these the unique id begins if that is all it is found by, else 0; tag
code; flag; system flag, without transaction bits; born at; reconsume times. A bare tuple costs a tenth of a
Draft."""


class AppendedRun(NamedTuple):
    """Where the messages of a run have their places."""

    places: list[tuple[int, int]]
    """Physical offset and queue offset of each that was taken."""
    start: int
    end: int


def _at_once(work: Callable[[], None]) -> None:
    work()


class Store:
    def __init__(
        self,
        config: StoreConfig,
        *,
        files: Files,
        clock: Clock,
        defer: Callable[[Callable[[], None]], None],
        background: Background,
        afterwards: Callable[[Callable[[], None]], None] = _at_once,
    ) -> None:
        """`defer(work)` runs `work` at the end of the tick (or at once), `afterwards(work)` when those who
        wait for the tick's end have been told, and before anything else is asked. `background(job, done)`
        runs `job` on another thread, one after the other, then `done(error)` on this one (or both at once).
        """
        self.config = config
        self.failed: str | None = None
        """Why nothing is acknowledged any more: a fault of the disk."""
        self.damage: list[Damage] = []
        """What recovery found unreadable, and set aside."""
        self.has_lost_its_end = False
        """The last messages were damaged when it was opened: what is stored next gets their offsets."""
        self._files = files
        self._clock = clock
        self._defer = defer
        self._afterwards = afterwards
        self._background = background
        self._log = CommitLog(config, files)
        self._queues = ConsumeQueues(config, files)
        self._index = KeyIndex(config, files, clock, self._log, self._on_fault)
        self._listeners: list[Listener] = []
        self._listeners_of: dict[str, list[Listener]] = {}
        self._lock: Lock | None = None
        self._is_open = False
        self._is_blocked = True  # look closer before the next append
        self._refusal: Busy | None = None
        self._pressure: Busy | None = None  # the disk is fuller than is allowed
        self._foreign: Busy | None = None  # the log is another broker's
        self._follower: Follower | None = None
        self._is_sealing = False
        self._visible_to: int | None = None  # of another's log: as far as that broker lets readers see
        self._replicas: ReplicaWait | None = None
        self.gate: Callable[[], str | None] | None = None
        """Asked before a tick's messages are written, and before anybody is told that they are stored: why
        not, or None. A master that may have been replaced must neither take nor confirm anything."""
        self._on_write: list[Callable[[], None]] = []
        self._on_durable: list[Callable[[], None]] = []
        self._retry_at = 0.0
        self._is_scheduled = False
        self._rollbacks = 0
        self._last_start = -1
        self._old_end = 0  # what lies before it was written by an earlier process, and not looked at since
        self._unclean_from: int | None = None
        self._recovered_end = 0
        self._last_inherited = -1  # where the last whole record of a log that was followed begins
        self._last_store_ms = 0
        self._tick_ms = 0  # 0: not looked at the clock yet
        self._body_max = config.message_bytes_max
        self.tick = 0
        """Counts the commits: what is appended under one number is written, synced or lost together."""
        self._waiting: list[Then] = []  # for the end of this tick
        self._waiting_for_sync: list[Then] = []  # which begins at the end of this tick, or for replicas
        self._waiters = Waiters(clock, config.sync_flush_timeout_ms, self._on_disk)

    # Life.

    def open(self) -> None:
        """Take the folder and bring it into order; everything stored is visible when this returns.

        Raises StoreLocked, StoreForeign, Corrupt; the folder is then as it was.
        """
        root = self.config.root
        make_lasting_folder(self._files, root, private=True)
        self._lock = self._files.lock(f"{root}/lock")
        if self._lock is None:
            raise StoreLocked(f"{root} is in use by another broker: stop that one, or choose another folder")
        try:
            self._load()
        except BaseException:
            self._release()
            raise

    def _load(self) -> None:
        config, clock = self.config, self._clock
        self._log = CommitLog(config, self._files)
        self._queues = ConsumeQueues(config, self._files)
        checkpoint = read_checkpoint(self._files, f"{config.root}/checkpoint")
        is_clean = not self._files.exists(f"{config.root}/abort")
        self._log.load()
        self._queues.load(is_clean=is_clean)
        found = recover(config, self._log, self._queues, checkpoint, is_clean, self._keep_lost_end)
        self.damage = found.damage
        self.has_lost_its_end = found.has_lost_its_end
        self._recovered_end, self._last_inherited = self._log.end, -1
        self._unclean_from = None if is_clean else min(max(checkpoint.end, self._log.start), self._log.end)
        self._last_start, self._last_store_ms = found.position.last_start, found.position.last_stored_ms
        self._old_end = found.start
        self._report(found.walked, is_clean)
        self._reader = Reader(
            config,
            self._log,
            config.in_memory_bytes or int(self._files.memory_bytes() * IN_MEMORY_SHARE),
            tags_may_be_elsewhere=self._files.exists(f"{config.root}/consumequeue_ext"),
        )
        self.replies = Replies(self._reader, self._log, self._queues.table)
        self._index = KeyIndex(config, self._files, clock, self._log, self._on_fault)
        self._index.load(checkpoint, is_clean)
        self._dispatcher = Dispatcher(found.position, self._listeners, self._index, self._listeners_of)
        self._dispatcher.entries = sum(queue.max_offset for queue in self._queues.on_disk())
        self._flusher = Flusher(self._log, config, clock, self._background, self._on_flushed, self._on_fault)
        self._checkpointer = Checkpointer(
            config,
            self._files,
            clock,
            self._background,
            checkpoint,
            self._queues,
            self._dispatcher,
            self._flusher,
            self._on_fault,
            self._index,
        )
        self._retention = Retention(
            config,
            self._files,
            clock,
            self._background,
            self._log,
            self._queues,
            self._index,
            settled=lambda: self.settled,
            refuse=self._refuse_for_space,
        )
        self._settle(found, is_clean)
        self._flusher.start()
        self._checkpointer.start()
        self._index.start(lambda: self._dispatcher.position.end)
        self._is_open = True
        self._is_blocked = self._foreign is not None
        self._retention.start()

    def _settle(self, found: Recovered, is_clean: bool) -> None:
        """What was recovered is on the disk, and `abort` says that somebody is at work, before anything new
        is taken in.

        What a failed sync was to write counts as clean, though the disk does not have it: the next process of
        this machine reads it, and no sync of its own would bring it to the disk. Who was killed may have had
        no time to say that a sync had failed, so what no checkpoint vouches for is written anew in any case.
        """
        if self._unclean_from is not None:
            self._write_anew(max(found.start, self._unclean_from, self._log.end - _ANEW_BYTES_MAX))
            if not self._log.segments.is_empty:
                self._files.sync_folder(self.config.log_folder)
        if found.walked or not is_clean:
            for segment in self._log.segments.segments_between(found.start, self._log.end):
                segment.file().sync()
            self._dispatcher.touched.update(found.changed)
            if found.is_rebuilt and self._last_start >= 0:
                self._checkpointer.write_now()  # the former one no longer tells the truth about the queues
        abort = self._files.open(f"{self.config.root}/abort", create=True)
        abort.truncate(0)
        abort.pwrite(str(os.getpid()).encode(), 0)
        abort.sync()
        abort.close()
        self._files.sync_folder(self.config.root)

    def _keep_lost_end(self, start: int, end: int) -> None:
        path = None
        if end - start <= self._files.space(self.config.root).free:
            try:
                folder = quarantine(self.config.root, self._clock.now_ms())
                path = copy_to_quarantine(self._files, self._log, folder, start, end)
            except OSError as error:
                if not is_full(error):
                    raise
        kept = "is not kept, for want of room" if path is None else f"is kept in {path}"
        log.error("the log goes on at %d; what lay there up to %d %s", start, end, kept)

    def _write_anew(self, start: int) -> None:
        try:
            self._log.write_anew(start)
        except OSError as error:
            if not is_full(error):  # a file system that writes nothing in its place may need room for this
                raise
            log.warning("%s has no room to write the end of the log anew", self.config.root)

    def _report(self, walked: int, is_clean: bool) -> None:
        if not is_clean:
            log.warning("%s was not closed: %d records looked at again", self.config.root, walked)
        for damage in self.damage:
            log.error(
                "%s: bytes %d to %d of the log are damaged and set aside: %s",
                self.config.root,
                damage.start,
                damage.end,
                damage.reason,
            )

    def close(self) -> None:
        """Write, flush and dispatch everything, and leave a clean folder; after a fault, one that the next
        start examines. A job still in the background may end later."""
        if not self._is_open:
            return
        self._seal_followed()
        self._is_open = False
        self._is_blocked = True
        self._follower = None
        self._checkpointer.stop()
        self._flusher.stop()
        self._index.stop()
        self._retention.stop()
        self._visible_to = None
        if self._replicas is not None:
            self._replicas.release()
        try:
            if self.failed is None:
                self._leave_clean()
        except OSError as error:
            self._on_fault(error)
        self._waiters.fail("the broker is stopping")
        self._fail_tick("the broker is stopping")
        self._waiters.close()
        self._flusher.when_idle(self._release)

    def sync(self) -> None:
        """Write and flush all that was appended before returning, and tell who waits: before a stop."""
        if not self._is_open or self.failed is not None:
            return
        self._commit()
        try:
            self._flusher.flush_now()
        except OSError as error:
            self._on_fault(error)
        self._on_flushed()
        self._advance_later()

    def _leave_clean(self) -> None:
        self._commit()
        if self.failed is not None:
            return
        self._flusher.flush_now()
        self._on_flushed()
        self._advance()
        if self._dispatcher.is_behind or self.failed is not None:
            return  # the next start finishes it
        if not self._has_written_queues():
            return
        self._index.finish()
        if self._last_start >= 0:
            self._checkpointer.write_now()
        self._files.remove(f"{self.config.root}/abort")
        self._files.sync_folder(self.config.root)

    def _has_written_queues(self) -> bool:
        """Write the entries that wait; whether there was room. Raises OSError for anything else."""
        try:
            self._dispatcher.write_all()
        except OSError as error:
            if not is_full(error):
                raise
            return False
        return True

    def _release(self) -> None:
        self._index.close()
        self._log.close()
        self._queues.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # Appending.

    def append(self, draft: Draft) -> Appended:
        """Give a message its place; it is written when the tick ends.

        Raises Busy when the disk is full, DiskFault after an error of the disk, Refused when the message
        cannot be stored as it is. Nothing is stored then.
        """
        if self._is_blocked:
            self._look_closer()
        # Told in one function, though most parts have names below: that saves 1.3 of 7.9 us a message.
        queue = self._queues.table.get((draft.topic, draft.queue_id))
        if queue is None or len(draft.body) > self._body_max or len(draft.properties) > _PROPERTIES_MAX:
            queue = self._queue_for(draft)
        commit_log = self._log
        store_ms = self._tick_ms or self._now_ms()
        tag = draft.tags_code
        if tag is None:
            tag = entry_tag(draft.topic, draft.properties, store_ms, self.config.delay_levels_ms)
        is_visible = not draft.sys_flag or draft.sys_flag & TRANSACTION_BITS not in _HIDDEN
        queue_offset = queue.next_offset if is_visible else 0
        place = commit_log.reserved
        data = encode(
            queue.topic_bytes,
            draft.queue_id,
            draft.flag,
            queue_offset,
            place,
            draft.sys_flag,
            draft.born_ms,
            draft.born_host,
            store_ms,
            draft.store_host,
            draft.reconsume_times,
            draft.prepared_offset,
            draft.body,
            draft.properties,
            True,
        )
        size = len(data)
        if place + size > commit_log.room_end:
            place = self._place_for(size)
            data = _encode(draft, queue, queue_offset, place, store_ms)
        commit_log.stage(data, place)
        self._last_start = place
        if is_visible:
            queue.next_offset = queue_offset + 1
            self._dispatcher.stage(queue, place, size, tag)
        if is_visible or draft.sys_flag & TRANSACTION_BITS != ROLLED_BACK:
            keyed = (queue.topic_bytes, draft.properties, 0, place)
            self._index.collect((keyed,), self._dispatcher.keys)
        if not self._is_scheduled:
            self._schedule()
        return Appended(place, size, queue_offset, store_ms)

    def append_run(
        self,
        run: Iterable[Usual],
        born_hosts: Iterable[bytes],
        store_host: bytes,
        prepared_offsets: Iterable[int] = _NOT_PREPARED,
    ) -> AppendedRun:
        """As `append`, for usual messages one after the other: 2.6 us each instead of 4.5, and 0.7 by
        `kourou.native`; bench: send 64x16.

        Takes no more from the first on that is not usual after all (the first of its queue, or of a file) or
        cannot be taken: `append` knows what to do with that one.
        """
        commit_log, dispatcher = self._log, self._dispatcher
        start = commit_log.reserved
        places: list[tuple[int, int]] = []
        if self._is_blocked:
            return AppendedRun(places, start, start)
        lay_out = self._lay_out_plainly if native is None else self._lay_out_natively
        try:
            data, end = lay_out(run, born_hosts, store_host, prepared_offsets, places)
        except BaseException:  # out of memory, say: no entry may lead to where others will have their places
            dispatcher.take_back(start)
            raise
        if places:
            commit_log.stage_all(data, end)
            self._last_start = places[-1][0]
            if not self._is_scheduled:
                self._schedule()
        return AppendedRun(places, start, end)

    def _lay_out_plainly(
        self,
        run: Iterable[Usual],
        born_hosts: Iterable[bytes],
        store_host: bytes,
        prepared_offsets: Iterable[int],
        places: list[tuple[int, int]],
    ) -> tuple[list[bytes], int]:
        """The records of a run, and where they end. Their entries and keys are staged, into `places` goes
        where they have theirs."""
        at, room_end = self._log.reserved, self._log.room_end
        dispatcher = self._dispatcher
        queue_of, staged_queues = self._queues.table.get, dispatcher.staged
        store_ms = self._tick_ms or self._now_ms()
        last_host, shape = b"", records.host_shape(store_host, store_host)
        data: list[bytes] = []
        keyed: list[Keyed] = []
        for message, born_host, prepared_offset in zip(run, born_hosts, prepared_offsets, strict=False):
            key, body, properties, id_at, tag, flag, sys_flag, born_ms, reconsume_times = message
            queue = queue_of(key)
            if queue is None or not queue.topic_part:
                break
            if born_host is not last_host:
                last_host, shape = born_host, records.host_shape(born_host, store_host)
            queue_offset = queue.next_offset
            record = encode_usual(
                shape,
                queue.topic_part,
                key[1],
                flag,
                queue_offset,
                at,
                sys_flag,
                born_ms,
                born_host,
                store_ms,
                store_host,
                reconsume_times,
                body,
                properties,
                prepared_offset,
            )
            size = len(record)
            if at + size > room_end:
                break
            if not queue.staged:
                staged_queues.append(queue)
            queue.staged += (at, size, tag)
            queue.next_offset = queue_offset + 1
            keyed.append((queue.topic_bytes, properties, id_at, at))
            data.append(record)
            places.append((at, queue_offset))
            at += size
        self._index.collect(keyed, dispatcher.keys)
        return data, at

    def _lay_out_natively(
        self,
        run: Iterable[Usual],
        born_hosts: Iterable[bytes],
        store_host: bytes,
        prepared_offsets: Iterable[int],
        places: list[tuple[int, int]],
    ) -> tuple[list[bytes], int]:
        assert native is not None
        messages, keys = list(run), self._dispatcher.keys
        keyed: list[Keyed] = []
        is_prepared = prepared_offsets is not _NOT_PREPARED
        prepared = list(islice(prepared_offsets, len(messages))) if is_prepared else None
        data, end = native.append_sends(
            *(messages, list(islice(born_hosts, len(messages))), prepared, store_host, self._queues.table),
            *(self._log.reserved, self._log.room_end, self._tick_ms or self._now_ms()),
            *(places, self._dispatcher.staged),
            *(keys.hashes if self.config.index_enabled else None, keys.places, keyed),
        )
        if keyed:
            self._index.collect(keyed, keys)
        return [data], end

    def append_usual_batch(
        self, run: Sequence[Usual], born_host: bytes, store_host: bytes
    ) -> AppendedRun | None:
        """As `append_batch`, of usual messages of one queue, by `append_run`. None, and nothing taken, when
        the queue or the file is a new one, or nothing can be taken: `append_batch` knows what to do."""
        queue = self._queues.table.get(run[0][0])
        if queue is None or not queue.topic_part or self._is_blocked:
            return None
        each = records.host_shape(born_host, store_host)[1].size + len(queue.topic_part) + _USUAL_MORE_BYTES
        size = sum(len(message[1]) + len(message[2]) + each for message in run)
        if self._log.reserved + size > self._log.room_end:
            return None
        return self.append_run(run, repeat(born_host), store_host)

    def append_batch(self, drafts: Sequence[Draft]) -> list[Appended]:
        """Several messages of one queue, side by side in one file, with consecutive offsets; all or none."""
        if self._is_blocked:
            self._look_closer()
        store_ms = self._tick_ms or self._now_ms()
        appended, data = self._laid_out(drafts, self._log.reserved, store_ms)
        place = self._place_for(len(data))
        if place != self._log.reserved:
            appended, data = self._laid_out(drafts, place, store_ms)
        self._log.stage(data, place)
        for draft, each in zip(drafts, appended, strict=True):
            queue = self._queue_for(draft)
            queue.next_offset += 1
            tag = self._tag(draft, store_ms)
            self._dispatcher.stage(queue, each.physical_offset, each.size, tag)
            keyed = (queue.topic_bytes, draft.properties, 0, each.physical_offset)
            self._index.collect((keyed,), self._dispatcher.keys)
            self._last_start = each.physical_offset
        if not self._is_scheduled:
            self._schedule()
        return appended

    def _laid_out(self, drafts: Sequence[Draft], at: int, store_ms: int) -> tuple[list[Appended], bytes]:
        parts: list[bytes] = []
        appended: list[Appended] = []
        taken: dict[ConsumeQueue, int] = {}
        for draft in drafts:
            queue = self._queue_for(draft)
            queue_offset = queue.next_offset + taken.get(queue, 0)
            taken[queue] = taken.get(queue, 0) + 1
            data = _encode(draft, queue, queue_offset, at, store_ms)
            parts.append(data)
            appended.append(Appended(at, len(data), queue_offset, store_ms))
            at += len(data)
        return appended, b"".join(parts)

    def _queue_for(self, draft: Draft) -> ConsumeQueue:
        if len(draft.body) > self.config.message_bytes_max:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the body has {len(draft.body)} bytes; maxMessageSize is {self.config.message_bytes_max}",
            )
        if len(draft.properties) > _PROPERTIES_MAX:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the properties have {len(draft.properties)} bytes; there is room for {_PROPERTIES_MAX}",
            )
        return self._queues.table.get((draft.topic, draft.queue_id)) or self._queues.get_or_make(
            draft.topic, draft.queue_id
        )

    def _now_ms(self) -> int:
        """The time of this tick, but never before that of an earlier one: in the log it does not go back."""
        self._last_store_ms = max(self._clock.now_ms(), self._last_store_ms)
        return self._last_store_ms

    def _place_for(self, size: int) -> int:
        if not self._log.fits(size):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"{size} bytes do not fit into a log file of {self.config.commit_log_segment_bytes}",
            )
        return self._log.place_for(size)

    def _tag(self, draft: Draft, store_ms: int) -> int:
        if draft.tags_code is not None:
            return draft.tags_code
        return entry_tag(draft.topic, draft.properties, store_ms, self.config.delay_levels_ms)

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._tick_ms = self._last_store_ms
        before = self._rollbacks
        self._defer(self._commit)
        if self._rollbacks != before:  # `defer` did not defer, and the disk did not take it
            self._look_closer()

    def _look_closer(self) -> None:
        """Why nothing can be appended; returns when it can be tried (again)."""
        if self.failed is not None:
            raise DiskFault(self.failed)
        if not self._is_open:
            raise DiskFault(f"the store {self.config.root} is not open")
        if self._foreign is not None:
            raise self._foreign
        if self._pressure is not None:
            raise self._pressure
        if self._refusal is not None and self._clock.monotonic() < self._retry_at:
            raise self._refusal
        self._is_blocked = False

    # The end of a tick.

    def _commit(self) -> None:
        self._is_scheduled = False
        self._tick_ms = 0
        self.tick += 1
        if self._log.reserved == self._log.end:
            return
        if ARMED:
            reached("before-append-buffer")
        if self.gate is not None and (why := self.gate()) is not None:
            self._turn_back(why)
            return
        began = self._clock.monotonic()
        try:
            self._log.write()
        except OSError as error:
            self._roll_back(error)
            return
        except DiskFault as fault:
            self._roll_back(fault)
            return
        self._refusal = None
        took_ms = (self._clock.monotonic() - began) * 1000
        if took_ms >= self.config.write_stall_ms:
            self._refuse_for_a_moment(took_ms)
        self._dispatcher.seal(Position(self._log.end, self._last_start, self._last_store_ms))
        if self._replicas is not None:
            self._replicas.wrote(self._log.end)
        for listener in self._on_write:
            listener()
        waiting_for_sync, self._waiting_for_sync = self._waiting_for_sync, []
        if self.config.is_sync:
            if waiting_for_sync:
                self._waiters.add(self._log.end, waiting_for_sync)
            self._flusher.wrote()
        elif waiting_for_sync:
            self._advance()
            self._on_disk(self._log.end, waiting_for_sync, OK)
        else:
            self._afterwards(self._advance_later)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            tell_stored(waiting)
        if ARMED:
            reached("after-append-buffer")

    def _turn_back(self, why: str) -> None:
        """This tick's messages are not written, for a reason that is not the disk's."""
        self._rollbacks += 1
        self._log.forget_staged()
        self._dispatcher.drop_staged()
        self._last_start = self._dispatcher.position.last_start
        self._fail_tick(why)

    def _roll_back(self, error: OSError | DiskFault) -> None:
        """Nothing of this tick was stored: its offsets are free again, and whoever waits hears of it."""
        self._rollbacks += 1
        self._dispatcher.drop_staged()
        self._last_start = self._dispatcher.position.last_start
        if is_full(error):
            self._refuse(error)
            self._fail_tick(str(self._refusal))
        else:
            self._on_fault(error)

    def _refuse(self, error: OSError) -> None:
        space = self._files.space(self.config.root)
        used = 100 * space.used / max(1, space.used + space.free)
        remark = (
            f"the disk of {self.config.root} is full ({used:.0f} % used, "
            f"{self.config.disk_warning_percent} % allowed, {space.free} bytes free): "
            f"{os.strerror(error.errno or errno.ENOSPC)}; free some space, sending resumes by itself"
        )
        if self._refusal is None:
            log.error("%s", remark)
        self._refusal = Busy(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        self._retry_at = self._clock.monotonic() + RETRY_SECONDS
        self._is_blocked = True

    def _refuse_for_a_moment(self, took_ms: float) -> None:
        """A write took so long that whoever came meanwhile has waited for it: they hear so, and go elsewhere,
        rather than add to what the disk cannot keep up with."""
        remark = (
            f"[PCBUSY_CLEAN_QUEUE]broker busy: the last write to {self.config.root} took {took_ms:.0f} ms, "
            f"{self.config.write_stall_ms} ms are allowed (osPageCacheBusyTimeOutMills); "
            f"try again in {STALL_REFUSAL_SECONDS * 1000:.0f} ms, or another broker"
        )
        log.warning("%s", remark)
        self._refusal = Busy(ResponseCode.SYSTEM_BUSY, remark)
        self._retry_at = self._clock.monotonic() + STALL_REFUSAL_SECONDS
        self._is_blocked = True

    def _refuse_for_space(self, why: str | None) -> None:
        self._pressure = None if why is None else Busy(ResponseCode.SERVICE_NOT_AVAILABLE, why)
        self._is_blocked = True  # the next append finds out which it is

    def _on_disk(self, end: int, members: list[Then], status: StoreStatus) -> None:
        """The disk's part of storing is done, as well as `status` says."""
        if self._replicas is None:
            why = None if self.gate is None else self.gate()
            tell_group(end, members, status if why is None else failed(why))
        else:
            self._replicas.hold(end, members, status)

    def _on_flushed(self) -> None:
        if self.failed is not None:
            return
        if self._replicas is None:
            self._waiters.reached(self._flusher.flushed)
            self._afterwards(self._advance_later)
        else:
            self._advance()
            self._waiters.reached(self._flusher.flushed)
        for listener in self._on_durable:
            listener()
        if self._is_open:
            self._checkpointer.flushed()

    def _advance(self) -> None:
        """Make visible what is durable in the mode asked for."""
        durable = self._flusher.flushed if self.config.is_sync else self._log.end
        if self._replicas is not None:
            durable = min(durable, self._replicas.passed)
        if self._visible_to is not None:
            durable = min(durable, self._visible_to)
        try:
            self._dispatcher.advance(durable)
        except OSError as error:
            if not is_full(error):
                self._on_fault(error)
                return
            self._refuse(error)
            self._clock.later(RETRY_SECONDS, self._advance_later)

    def _advance_later(self) -> None:
        if self._is_open and self.failed is None:
            self._advance()

    def _on_fault(self, error: BaseException) -> None:
        """The disk failed: what its cache holds can no longer be trusted. Stop acknowledging, for good."""
        if self.failed is not None:
            return
        path = getattr(error, "filename", None) or self.config.root
        number = getattr(error, "errno", None)
        what = f"errno {number}, {os.strerror(number)}" if number else str(error)
        self.failed = (
            f"the disk under {path} failed ({what}): nothing is acknowledged any more; "
            "see to the disk and restart, the store then examines itself"
        )
        self._is_blocked = True
        log.critical("%s", self.failed)
        self._waiters.fail(self.failed)
        self._fail_tick(self.failed)

    def _fail_tick(self, reason: str) -> None:
        waiting = self._waiting + self._waiting_for_sync
        self._waiting, self._waiting_for_sync = [], []
        tell(waiting, failed(reason))

    def when_stored(self, end: int, then: Then, *, written_is_enough: bool = False) -> None:
        """Call `then` when everything up to `end` is stored in the mode asked for, or will not be.

        With `written_is_enough` a sync is not waited for (a message with WAIT=false).
        """
        is_sync = (self.config.is_sync or self._replicas is not None) and not written_is_enough
        if end > self._log.end:
            if end > self._log.reserved or self.failed is not None:
                then(failed(self.failed or str(self._refusal or "it was not stored")))
            elif is_sync:
                self._waiting_for_sync.append(then)
            else:
                self._waiting.append(then)
        elif not is_sync:
            then(OK)
        elif self._flusher.flushed >= end or not self.config.is_sync:
            self._on_disk(end, [then], OK)
        elif self.failed is not None:
            then(failed(self.failed))
        else:
            self._waiters.add(end, [then])

    # One log on several machines.

    def wait_for_replicas(self, wait: ReplicaWait | None) -> None:
        """From now on nothing counts as stored before replicas have it, too; with None, no longer so."""
        before, self._replicas = self._replicas, wait
        if wait is not None:
            wait.begin(self._dispatcher.position.end)
            wait.on_passed = self._advance_later
            wait.gate = lambda: None if self.gate is None else self.gate()
        if before is not None:
            before.on_passed = lambda: None
            before.release()
        self._advance_later()

    def refuse_appends(self, why: str | None) -> None:
        """Take nothing from senders, because of `why`, until called with None."""
        self._foreign = None if why is None else Busy(ResponseCode.SERVICE_NOT_AVAILABLE, why)
        self._is_blocked = True  # the next append finds out which it is

    def follow(self) -> Follower:
        """Take in another broker's log from now on; nothing of our own may be appended meanwhile."""
        assert self._foreign is not None, "appends must be refused first"
        if self._follower is None:
            self._commit()
            self._advance_later()
            self._follower = Follower(
                self.config,
                self._log,
                self._queues,
                self._dispatcher,
                self._index,
                self._followed,
                self._forget_queue,
            )
        return self._follower

    def _followed(self, position: Position) -> None:
        _, self._last_start, self._last_store_ms = position
        self._dispatcher.seal(position)

    def _forget_queue(self, queue: ConsumeQueue) -> None:
        self._dispatcher.forget_topic([queue])
        self._queues.remove_queue(queue)
        self._checkpointer.queues_removed()

    def take_raw(self, data: bytes) -> None:
        """The next bytes of the log that is followed. Raises Busy when the disk is full, DiskFault when it
        has failed, Corrupt when they make no sense."""
        follower = self._follower
        if follower is None or self.failed is not None:
            raise DiskFault(self.failed or f"the store {self.config.root} follows nobody")
        try:
            follower.take(data)
        except (OSError, DiskFault) as error:
            if is_full(error):
                self._refuse(error)
                raise Busy(ResponseCode.SERVICE_NOT_AVAILABLE, str(self._refusal)) from None
            self._on_fault(error)
            raise DiskFault(str(self.failed)) from None
        self._refusal = None
        if self.config.is_sync:
            self._flusher.wrote()
        if not self._is_sealing:
            self._is_sealing = True
            self._clock.later(SEAL_SECONDS, self._seal_followed)
        for listener in self._on_write:
            listener()

    def _seal_followed(self) -> None:
        """What came of a log that is followed goes into its queues."""
        self._is_sealing = False
        if self._follower is not None and self._is_open and self.failed is None:
            self._follower.seal()
            self._advance()

    def show_up_to(self, place: int | None) -> None:
        """Of a log that is followed: let readers see only what ends before `place` (None: everything)."""
        if place != self._visible_to:
            self._visible_to = place
            self._advance_later()

    def leave_log(self) -> None:
        """Follow no more. The beginning of a record that never came as a whole is taken back, everything else
        is ours now and visible once it is durable. Raises DiskFault."""
        self._seal_followed()
        follower, self._follower = self._follower, None
        self._visible_to = None
        try:
            if follower is not None and follower.whole < self._log.end:
                self._queues.deleted.cut(follower.whole)
                self._log.segments.cut(follower.whole)
                self._log.resume(follower.whole)
                self._flusher.taken_back(follower.whole)
        except OSError as error:
            self._on_fault(error)
            raise DiskFault(self.failed or str(error)) from None
        if follower is not None:
            self._last_inherited = self._last_start
            if follower.whole > self._dispatcher.sealed_end:  # a filler came last, which is no record
                self._dispatcher.seal(Position(follower.whole, self._last_start, self._last_store_ms))
        self.sync()

    def on_write(self, listener: Callable[[], None]) -> None:
        """Have `listener` told when the log has grown; it must not raise."""
        self._on_write.append(listener)

    def on_durable(self, listener: Callable[[], None]) -> None:
        """Have `listener` told when more of the log is on the disk; it must not raise."""
        self._on_durable.append(listener)

    def raw(self, place: int, size: int) -> bytes:
        """Up to `size` bytes of the log from `place` on, as they lie in one file; fewer where it ends."""
        segment_left = self.config.commit_log_segment_bytes - place % self.config.commit_log_segment_bytes
        size = min(size, segment_left, self._log.end - place)
        return self._log.read(size, place) if size > 0 and place >= self._log.start else b""

    def places_of(self, start: int, end: int) -> list[tuple[int, int]]:
        """Where the valid records lie that begin from `start` on and before `end`, with their sizes."""
        found = Finder(self.config, self._log, start, end=self._log.end).sketches()
        return [(each[0], each[1]) for each in takewhile(lambda each: each[0] < end, found)]

    @property
    def file_places(self) -> list[int]:
        """Where the files of the log begin."""
        return self._log.segments.bases

    @property
    def is_released(self) -> bool:
        """Whether a closed store has let go of its folder: a last sync may have been under way."""
        return self._lock is None

    @property
    def durable(self) -> int:
        """As far as the log is stored in the mode asked for, as far as our own disk is concerned."""
        return self._flusher.flushed if self.config.is_sync else self._log.end

    # Reading.

    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        count_max: int = 32,
        bytes_max: int = 1 << 31,
        wanted: Collection[int] | None = None,
        accepts: Accepts | None = None,
        *,
        in_bulk: bool = False,
    ) -> ReadResult:
        """Messages from `queue_offset` on: at least one if there is any, within the limits.

        `wanted` holds the tag codes to be found (None: all), `accepts` looks at a whole record. `in_bulk` is
        for who takes megabytes: then a pull's own limits do not hold.
        """
        queue = self._queues.table.get((topic, queue_id))
        if queue is None:
            return ReadResult(ReadStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, [])
        return self._reader.read(queue, queue_offset, count_max, bytes_max, wanted, accepts, in_bulk=in_bulk)

    def entries(self, topic: str, queue_id: int, queue_offset: int, count: int) -> bytes:
        """Up to `count` consume queue entries as they lie on disk (`consume_queue.ENTRY`), or none."""
        queue = self._queues.table.get((topic, queue_id))
        return b"" if queue is None else queue.entries(queue_offset, count)

    @property
    def was_unclean(self) -> bool:
        """Whether the folder had not been closed when it was opened."""
        return self._unclean_from is not None

    def recovered(self) -> Iterator[records.Record]:
        """What lay behind the last checkpoint of a folder that was not closed when it was opened, in the
        order of the log; after a clean stop nothing. For those who keep things in pairs: a power cut may have
        parted them."""
        if self._unclean_from is not None:
            yield from records_from(
                *(self.config, self._log, self._unclean_from, self._recovered_end),
                is_verified=not self.damage,
            )

    def last_inherited(self) -> records.Record | None:
        """The last record of a log that was followed and is ours now: the other one of a pair may not have
        come any more."""
        data = self.record_at(self._last_inherited) if self._last_inherited >= 0 else None
        return None if data is None else records.Record(data)

    def records_after(self, physical_offset: int) -> Iterator[records.Record]:
        """Every valid record from the one at `physical_offset` on, in the order of the log."""
        start = max(physical_offset, self._log.start)
        yield from records_from(self.config, self._log, start, self._log.end, is_verified=not self.damage)

    def record_at(self, physical_offset: int) -> bytes | None:
        """The visible record that begins there; None when there is none, or a damaged one."""
        data = self._log.record_at(physical_offset, self._dispatcher.position.end)
        if data is not None and (physical_offset < self._old_end or self.damage):
            checked = checked_record(data, 0, len(data), True, physical_offset)
            return None if checked.record is None else data
        return data

    @property
    def rot(self) -> Mender:
        """What was found of messages and entries that were damaged while nobody was there."""
        return self._reader.mender

    def find(
        self, topic: str, key: str, most: int, begin_ms: int = 0, end_ms: int = (1 << 63) - 1
    ) -> list[bytes]:
        """Visible records of `topic` with `key` among their keys, or as their unique id, oldest first: the
        newest `most` of those stored in the time given, by whole seconds."""
        places = self._index.find(
            topic, key, max(1, min(most, self.config.index_matches_max)), begin_ms, end_ms
        )
        wanted_topic, wanted_key = topic.encode(), key.encode("utf-8", "replace")
        found = []
        for place in places:
            record = self.record_at(place)
            if record is not None and _has_key(records.decode(record), wanted_topic, wanted_key):
                found.append(record)
        return found

    @property
    def last_indexed(self) -> tuple[int, int]:
        """When the newest message that can be found by key was stored, and where."""
        return self._index.last

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first message that is still there; 0 for a queue that never was."""
        queue = self._queues.table.get((topic, queue_id))
        return queue.min_offset if queue else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """One after the last visible message; 0 for a queue that never was."""
        queue = self._queues.table.get((topic, queue_id))
        return queue.max_offset if queue else 0

    def offset_by_time(self, topic: str, queue_id: int, ms: int, *, upper: bool = False) -> int:
        """The first message stored at `ms` or later; with `upper`, the last one stored at `ms` or earlier.

        One after the last when all are earlier; the first when (with `upper`) all are later.
        """
        queue = self._queues.table.get((topic, queue_id))
        if queue is None:
            return 0
        least, most = queue.min_offset, queue.max_offset

        def is_late(entry: tuple[int, int, int]) -> bool:
            stored_ms = self._log.stored_ms(entry[0])
            return stored_ms is not None and (stored_ms > ms if upper else stored_ms >= ms)

        first_late = queue.first_where(is_late, least, most)
        return max(least, first_late - 1) if upper else first_late

    def stored_ms(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """When that message was stored; None when it is not there."""
        queue = self._queues.table.get((topic, queue_id))
        entry = queue.entry(queue_offset) if queue else None
        return self._log.stored_ms(entry[0]) if entry else None

    def earliest_store_ms(self, topic: str | None = None, queue_id: int = 0) -> int:
        """When the oldest message of a queue, or of all, was stored; -1 when there is none."""
        if topic is None:
            stored_ms = self._log.stored_ms(self._log.start) if self._log.end else None
        else:
            queue = self._queues.table.get((topic, queue_id))
            entry = queue.entry(queue.min_offset) if queue else None
            stored_ms = self._log.stored_ms(entry[0]) if entry else None
        return -1 if stored_ms is None else stored_ms

    # Topics and listeners.

    def on_dispatch(self, listener: Listener, *, topic: str | None = None) -> None:
        """Have `listener` told of new visible messages, once per queue and tick; it must not raise. With
        `topic`, of those alone."""
        if topic is None:
            self._listeners.append(listener)
        else:
            self._listeners_of.setdefault(topic, []).append(listener)

    def topics(self) -> dict[str, list[int]]:
        """The topics that have queues here, with the numbers of these."""
        table: dict[str, list[int]] = {}
        for topic, queue_id in sorted(self._queues.table):
            table.setdefault(topic, []).append(queue_id)
        return table

    def delete_topic(self, topic: str) -> None:
        """Forget a topic's queues, for good; its records stay in the log until their file goes.

        Raises Busy when the disk is full, DiskFault after an error of it.
        """
        self._commit()
        self._seal_followed()
        try:
            self._queues.deleted.note(topic, self._log.end, self._log.start)
        except OSError as error:
            if is_full(error):
                raise Busy(
                    ResponseCode.SERVICE_NOT_AVAILABLE,
                    f"the disk of {self.config.root} is full: topic {topic} is not deleted; free some space",
                ) from None
            self._on_fault(error)
            raise DiskFault(self.failed or str(error)) from None
        self._dispatcher.forget_topic(self._queues.of_topic(topic))
        self._queues.remove_topic(topic)
        self._checkpointer.queues_removed()

    def clean_expired_log(self) -> None:
        """Remove the log files that are past their time, at whatever hour; some now, the rest soon."""
        self._retention.by_hand()

    def clean_expired_queues(self) -> list[tuple[str, int]]:
        """Forget the queues all of whose messages are gone, with their offsets; returns which."""
        self._commit()
        self._seal_followed()
        gone = [
            queue
            for queue in self._queues.on_disk()
            if 0 <= queue.end_physical <= self._log.start and queue.next_offset == queue.max_offset
        ]
        gone = [queue for queue in gone if queue.topic != SCHEDULE_TOPIC]
        self._dispatcher.forget_topic(gone)
        for queue in gone:
            self._queues.remove_queue(queue)
        if gone:
            self._checkpointer.queues_removed()
        return [(queue.topic, queue.queue_id) for queue in gone]

    # How far things are.

    @property
    def start(self) -> int:
        """The first byte of the log that is still there."""
        return self._log.start

    @property
    def last_store_ms(self) -> int:
        """When the last visible record was stored; 0 when there is none."""
        return self._dispatcher.position.last_stored_ms

    @property
    def last_start(self) -> int:
        """Where the last visible record begins; -1 when there is none."""
        return self._dispatcher.position.last_start

    @property
    def wrote(self) -> int:
        return self._log.end

    @property
    def flushed(self) -> int:
        return self._flusher.flushed

    @property
    def dispatched(self) -> int:
        return self._dispatcher.position.end

    @property
    def settled(self) -> int:
        """What ends before this is on the disk and visible: no power cut takes it, and where a replica set
        elects its master no other one lacks it."""
        return min(self._dispatcher.position.end, self._flusher.flushed)

    @property
    def sync_times(self) -> SyncTimes:
        """How long it took to bring the log to the disk."""
        return self._flusher.times

    @property
    def refusal(self) -> str | None:
        """Why nothing can be appended at the moment: the disk is full."""
        refusal = self._pressure or self._refusal
        return None if refusal is None else refusal.remark


def _has_key(record: records.Record, topic: bytes, key: bytes) -> bool:
    """Whether it is a message of this topic and key: the index knows only their hash."""
    properties = record.properties
    return record.topic == topic and (
        props.find(properties, b"UNIQ_KEY") == key
        or key in (props.find(properties, b"KEYS") or b"").split(b" ")
    )


def _encode(draft: Draft, queue: ConsumeQueue, queue_offset: int, at: int, store_ms: int) -> bytes:
    return records.encode(
        queue.topic_bytes,
        queue.queue_id,
        draft.flag,
        queue_offset,
        at,
        draft.sys_flag,
        draft.born_ms,
        draft.born_host,
        store_ms,
        draft.store_host,
        draft.reconsume_times,
        draft.prepared_offset,
        draft.body,
        draft.properties,
        True,
    )
