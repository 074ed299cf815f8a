"""Where a group's places are kept: with the brokers, or in a file.

A cluster group shares its queues out, so its places are kept where every member finds them. In a broadcast
group every member reads everything, and its places are its own: they are in a file, in the format and (by
default) at the place of the Java client, `~/.rocketmq_offsets/<client>/<group>/offsets.json`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

from kourou.client import operations
from kourou.client.brokers import Brokers
from kourou.client.held_queue import HeldQueue
from kourou.client.operations import Start
from kourou.client.steps import Operation
from kourou.doors.clock import Clock
from kourou.doors.files import Files
from kourou.errors import MQError, ProtocolError
from kourou.protocol.bodies import MessageQueue, QueueOffsets
from kourou.protocol.names import RETRY_PREFIX
from kourou.remoting.complaints import Complaints

_log = logging.getLogger("kourou.client")


class Places:
    """How far the group is in the queues that are ours: finds out, and has it kept."""

    def __init__(
        self,
        group: str,
        brokers: Brokers,
        start: Start,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        file: FileOffsets | None = None,
    ) -> None:
        """With `file` the places are kept there, without with the brokers."""
        self._group = group
        self._brokers = brokers
        self._start = start
        self._spawn = spawn
        self._file = file
        self._complaints = Complaints(_log, clock)

    async def find(self, held: HeldQueue) -> int:
        """Where to begin; raises when the queue's broker cannot be asked."""
        queue = held.queue
        if self._file is not None:
            kept = self._file.get(queue)
        else:
            kept = await self._brokers.run(
                operations.committed_offset(
                    self._brokers.reader(queue), queue, self._group, set_zero_if_not_found=None
                )
            )
        held.committed = kept
        return await self._brokers.run(self._beginning(queue)) if kept is None else kept

    def _beginning(self, queue: MessageQueue) -> Operation[int]:
        """Where a group begins that was never here, as the original has it."""
        address, start = self._brokers.reader(queue), self._start
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        if is_retry:
            return operations.place(address, queue, "latest" if isinstance(start, datetime) else "earliest")
        return operations.place(address, queue, start)

    def keep_soon(self, held: HeldQueue) -> None:
        """Keep the place, if it is another one than last time."""
        offset = held.commit_offset
        if offset is None or offset == held.committed:
            return
        held.committed = offset
        if self._file is not None:
            self._file.set(held.queue, offset)
        else:
            self._spawn(self._commit_soon(held, offset))

    async def keep(self, held: HeldQueue) -> MQError | None:
        """The same, and return when that is done, or why it has failed."""
        offset = held.commit_offset
        if offset is None or offset == held.committed:
            return None
        if self._file is None:
            return await self._commit(held, offset)
        self._file.set(held.queue, offset)
        return None

    def save(self) -> None:
        """Write the file, if there is one and something has changed."""
        if self._file is not None:
            self._file.save()

    async def _commit_soon(self, held: HeldQueue, offset: int) -> None:
        await self._commit(held, offset)

    async def _commit(self, held: HeldQueue, offset: int) -> MQError | None:
        try:
            keepers = self._brokers.keepers(held.queue)
            await self._brokers.run(operations.commit_offset(keepers, held.queue, self._group, offset))
        except MQError as error:
            held.committed = None  # and so it is tried again
            self._complaints.warn("place", f"cannot store how far group {self._group} is: {error}")
            return error
        return None


def default_offsets_file(group: str) -> str:
    """One for all runs on this machine: a broadcast consumer goes on where its last run ended."""
    home = os.path.expanduser("~")
    return os.path.join(home, ".rocketmq_offsets", f"{os.uname().nodename}@DEFAULT", group, "offsets.json")


class FileOffsets:
    """The places of one broadcast consumer."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._table: dict[MessageQueue, int] | None = None
        self._is_saved = True

    def get(self, queue: MessageQueue) -> int | None:
        """Where to go on; None when this queue was never read."""
        return self._known().get(queue)

    def set(self, queue: MessageQueue, queue_offset: int) -> None:
        table = self._known()
        if table.get(queue) != queue_offset:
            table[queue] = queue_offset
            self._is_saved = False

    def save(self) -> None:
        """Write what has changed. A disk that fails is told in the log: the next call tries again."""
        if self._is_saved:
            return
        try:
            self._files.make_folders(os.path.dirname(self._path))
            body = QueueOffsets(offset_table=dict(sorted(self._known().items()))).encode_fastjson()
            self._files.write_atomically(self._path, body)
            self._is_saved = True
        except OSError as error:
            _log.warning("cannot keep the offsets of a broadcast consumer in %s: %s", self._path, error)

    def _known(self) -> dict[MessageQueue, int]:
        if self._table is None:
            self._table = self._read()
        return self._table

    def _read(self) -> dict[MessageQueue, int]:
        try:
            return QueueOffsets.decode(self._files.read(self._path)).offset_table
        except FileNotFoundError:
            return {}
        except (OSError, ProtocolError) as error:
            _log.warning("cannot read the offsets in %s, so none are known: %s", self._path, error)
            return {}
