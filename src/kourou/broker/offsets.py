"""How far each group has come in each queue.

    "topic@group" -> queue id -> the queue offset to be consumed next

Kept in `config/consumerOffset.json`, in Apache's shape; written every few seconds and at stop. A commit
overwrites, also backwards: that is how a consumer goes back.

An operator may reset a group. Its offset is the new one at once; whoever is consuming there hears of it with
its next pull, and until then commits nothing, since that would be from before.

A slave has its master's offsets. What consumers commit here while that one is away counts, too, until the
master knows it: of two, the higher one. How far transactions are is not among that: a master that steps down
may have ended some which the next one, whose log is another, still has open. The state version of the table
is the term of the replica set it was made in: a table of an earlier term, of a master that came back, is not
taken at all.

A power cut may take the end of a queue that its readers have seen, and new messages then get the offsets of
those that are lost. So after a stop that was none (`after_crash`) no offset is beyond the end that was found,
and a group which goes on reading beyond it is told to go on there: it has not seen what is there now.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec

from kourou.broker.state_file import StateFile
from kourou.errors import Busy, StoreError
from kourou.protocol.bodies import ConsumerOffsets, DataVersion
from kourou.protocol.names import TRANSACTION_GROUP
from kourou.store.flush import Background

logger = logging.getLogger(__name__)


class CommittedOffsets:
    """The table, in memory until `save`."""

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self._kept = ConsumerOffsets()
        self._table = self._kept.offset_table
        self._dirty = False
        self._state_version = 0
        self._resets: dict[tuple[str, str, int], int] = {}  # (group, topic, queue) -> where to go on
        self._pulled: dict[tuple[str, str, int], int] = {}
        self._found_ends: dict[
            tuple[str, str, int], int
        ] = {}  # of queues the group has not read since a crash
        self._taken_here: dict[tuple[str, int], None] | None = None  # of a slave: "topic@group", queue id

    def load(self) -> None:
        self._kept = self._file.load(ConsumerOffsets) or ConsumerOffsets()
        self._table = self._kept.offset_table

    def after_crash(self, end_of: Callable[[str, int], int]) -> None:
        """The last broker was not stopped: its queues end where `end_of(topic, queue_id)` says, perhaps
        earlier than their readers know."""
        for key, queues in self._table.items():
            topic, _, group = key.partition("@")
            for queue_id, queue_offset in queues.items():
                end = self._found_ends[group, topic, queue_id] = end_of(topic, queue_id)
                if queue_offset > end:
                    logger.warning(
                        "group %s was at %d of %s queue %d, which ends at %d since the crash",
                        *(group, queue_offset, topic, queue_id, end),
                    )
                    queues[queue_id] = end
                    self._dirty = True

    def forget_crash(self) -> None:
        """Whoever was reading then has come back by now."""
        self._found_ends.clear()

    # ----------------------------------------------------------------------------------- a slave's offsets

    def begin_term(self, term: int, *, is_slave: bool) -> None:
        """From now on it is this term; a slave remembers what is committed here, and not at its master."""
        self._taken_here = {} if is_slave else None
        self._state_version = term
        self._dirty = True

    @property
    def epoch(self) -> int:
        """The term in which the table was made."""
        version = self._kept.data_version
        return max(self._state_version, version.state_version if isinstance(version, DataVersion) else 0)

    def merge(self, theirs: Mapping[str, Mapping[int, int]], epoch: int) -> list[tuple[str, str, int, int]]:
        """Take a master's offsets; returns what was committed here and is further, as (group, topic, queue,
        offset). Of an earlier term nothing is taken."""
        if epoch < self.epoch:
            logger.warning("offsets of term %d are not taken: this is term %d", epoch, self.epoch)
            return []
        taken_here = self._taken_here or {}
        ahead = []
        for place in list(taken_here):
            key, queue_id = place
            ours = self._table.get(key, {}).get(queue_id, -1)
            if ours > theirs.get(key, {}).get(queue_id, -1):
                topic, _, group = key.partition("@")
                ahead.append((group, topic, queue_id, ours))
            else:
                del taken_here[place]
        merged = {key: dict(queues) for key, queues in theirs.items()}
        for group, topic, queue_id, ours in ahead:
            merged.setdefault(f"{topic}@{group}", {})[queue_id] = ours
        if merged != self._table:
            self._kept.offset_table = self._table = merged
            self._dirty = True
        self._state_version = epoch
        return ahead

    def save_later(
        self, now_ms: int, background: Background, failed: Callable[[BaseException], None]
    ) -> None:
        """As `save`, on another thread; `failed(why)` is called on this one if it could not be."""

        def done(error: BaseException | None) -> None:
            if error is not None:
                self._dirty = True
                failed(error)

        if self._dirty:
            self._dirty = False
            self._kept.data_version = self._next_version(now_ms)
            self._file.save_later(self._kept, background, done)

    def save(self, now_ms: int) -> None:
        """Write the table if anything was committed since the last time."""
        if self._dirty:
            self._dirty = False
            self._kept.data_version = self._next_version(now_ms)
            try:
                self._file.save(self._kept)
            except (Busy, StoreError):
                self._dirty = True  # a full disk may have room again next time
                raise

    def _next_version(self, now_ms: int) -> DataVersion:
        return (self._kept.data_version or DataVersion()).next(now_ms, self.epoch)

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where `group` goes on in this queue; None when it never said."""
        queues = self._table.get(f"{topic}@{group}")
        return None if queues is None else queues.get(queue_id)

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        if self._resets and (group, topic, queue_id) in self._resets:
            return
        if self._found_ends and queue_offset > self._found_ends.get((group, topic, queue_id), queue_offset):
            return  # of messages that are lost
        self._commit(group, topic, queue_id, queue_offset)

    def keep(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """The same, of the broker's own groups, which know of every message that is lost."""
        self._commit(group, topic, queue_id, queue_offset)

    def reset(self, group: str, topic: str, queue_id: int, queue_offset: int, *, tell: bool = True) -> None:
        """Have `group` go on elsewhere; with `tell`, its next pull is told, and nobody commits before."""
        self._commit(group, topic, queue_id, queue_offset)
        self._pulled.pop((group, topic, queue_id), None)
        if tell:
            self._resets[group, topic, queue_id] = queue_offset

    @property
    def has_resets(self) -> bool:
        """Whether any group was reset, or may be beyond the end of a queue, and does not know yet."""
        return bool(self._resets or self._found_ends)

    def take_reset(self, group: str, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """Where `group`, which wants to read at `queue_offset`, is to go on instead and does not know yet;
        asked once, it counts as told."""
        reset_to = self._resets.pop((group, topic, queue_id), None) if self._resets else None
        if self._found_ends:
            end = self._found_ends.pop((group, topic, queue_id), None)
            if reset_to is None and end is not None and queue_offset > end:
                return end
        return reset_to

    def pulled(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """A member read up to there, which says nothing about whether it is done with it."""
        self._pulled[group, topic, queue_id] = next_offset

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int:
        """How far `group` has read: never less than it has committed."""
        committed = self.get(group, topic, queue_id) or 0
        return max(committed, self._pulled.get((group, topic, queue_id), 0))

    def remove_group(self, group: str) -> None:
        """Forget all offsets of a group."""
        for key in [key for key in self._table if key.partition("@")[2] == group]:
            del self._table[key]
            self._dirty = True
        for table in (self._resets, self._pulled, self._found_ends):
            for place in [place for place in table if place[0] == group]:
                del table[place]

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Forget where anybody was in this queue."""
        for key, queues in self._table.items():
            if key.partition("@")[0] == topic and queues.pop(queue_id, None) is not None:
                self._dirty = True
        for table in (self._resets, self._pulled, self._found_ends):
            for place in [place for place in table if place[1:] == (topic, queue_id)]:
                del table[place]

    def remove_topic(self, topic: str) -> None:
        """Forget where everybody was in a topic that is no more."""
        for key in [key for key in self._table if key.partition("@")[0] == topic]:
            del self._table[key]
            self._dirty = True
        for table in (self._resets, self._pulled, self._found_ends):
            for place in [place for place in table if place[1] == topic]:
                del table[place]

    @property
    def all(self) -> ConsumerOffsets:
        if self._state_version:  # whoever copies it must know of which term it is
            version = self._kept.data_version or DataVersion()
            self._kept.data_version = msgspec.structs.replace(version, state_version=self.epoch)
        return self._kept

    def topics_of(self, group: str) -> list[str]:
        """The topics `group` ever committed an offset for."""
        return [topic for topic, _, name in (key.partition("@") for key in self._table) if name == group]

    def topics_by_group(self) -> dict[str, list[str]]:
        """As `topics_of`, of all groups at once."""
        topics: dict[str, list[str]] = {}
        for key in self._table:
            topic, _, group = key.partition("@")
            topics.setdefault(group, []).append(topic)
        return topics

    def groups_of(self, topic: str) -> list[str]:
        """The groups that ever committed an offset for `topic`."""
        return [group for name, _, group in (key.partition("@") for key in self._table) if name == topic]

    def _commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        key = f"{topic}@{group}"
        queues = self._table.get(key)
        if queues is None:
            queues = self._table[key] = {}
        if queues.get(queue_id) != queue_offset:
            queues[queue_id] = queue_offset
            self._dirty = True
            if self._taken_here is not None and group != TRANSACTION_GROUP:
                self._taken_here[key, queue_id] = None
