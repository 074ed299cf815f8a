"""How far each group has come in each queue.

    "topic@group" -> queue id -> the queue offset to be consumed next

Kept in `config/consumerOffset.json`, in Apache's shape; written every few seconds and at stop. A commit
overwrites, also backwards: that is how a consumer goes back.
"""

from __future__ import annotations

import logging

from kourou.broker.state_file import StateFile
from kourou.errors import Busy, StoreError
from kourou.protocol.bodies import ConsumerOffsets, DataVersion

logger = logging.getLogger(__name__)


class CommittedOffsets:
    """The table, in memory until `save`."""

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self._kept = ConsumerOffsets()
        self._table = self._kept.offset_table
        self._dirty = False

    def load(self) -> None:
        self._kept = self._file.load(ConsumerOffsets) or ConsumerOffsets()
        self._table = self._kept.offset_table

    def save(self, now_ms: int) -> None:
        """Write the table if anything was committed since the last time."""
        if self._dirty:
            self._dirty = False
            self._kept.data_version = (self._kept.data_version or DataVersion()).next(now_ms)
            try:
                self._file.save(self._kept)
            except (Busy, StoreError):
                self._dirty = True  # a full disk may have room again next time
                raise

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where `group` goes on in this queue; None when it never said."""
        queues = self._table.get(f"{topic}@{group}")
        return None if queues is None else queues.get(queue_id)

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        key = f"{topic}@{group}"
        queues = self._table.get(key)
        if queues is None:
            queues = self._table[key] = {}
        if queues.get(queue_id) != queue_offset:
            queues[queue_id] = queue_offset
            self._dirty = True
