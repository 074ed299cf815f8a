"""Messages to one queue, in their order, each with the born time it had.

One request, one answer: that is the only way in which every broker keeps the order. The answer tells the
offset, which must be the next one; if it is not, somebody else writes to the queue, or a request of a killed
task came late, and nothing more is sent.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from kourou.admin.connection import Connection
from kourou.client import operations
from kourou.client.sends import Outgoing
from kourou.errors import Busy, StoreError, Unreachable
from kourou.message import UNIQUE_KEY
from kourou.protocol import properties
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import ResponseCode
from kourou.protocol.compression import Compression, compress
from kourou.protocol.headers import SendReply

STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)
TRIES = 40
PAUSE_SECONDS = 0.5
"""Together: a broker may be away for 20 seconds."""
COMPRESS_OVER = 1 << 20
"""Bodies of so many bytes travel compressed again: a broker takes 4 MiB at most."""


class Disturbed(StoreError):
    """A message got another offset than the next one."""


class QueueMessage(NamedTuple):
    body: bytes
    properties: dict[str, str]
    flag: int
    born_ms: int


class QueueWriter:
    def __init__(
        self, connection: Connection, group: str, queue: MessageQueue, address: str, next_offset: int
    ) -> None:
        self._connection = connection
        self._group = group
        self._queue = queue
        self._address = address
        self.next_offset = next_offset

    def write(self, message: QueueMessage) -> None:
        """Returns when the broker has it, at the offset after the last one.

        Raises Disturbed when it has another, Unreachable or Refused when it has none.
        """
        body, sys_flag = message.body, 0
        if len(body) >= COMPRESS_OVER:
            body, sys_flag = compress(body), Compression.ZLIB.sys_flag
        outgoing = Outgoing(
            self._group,
            self._queue.topic,
            body,
            properties.encode(message.properties).decode(),
            message.properties.get(UNIQUE_KEY, ""),
            sys_flag=sys_flag,
            flag=message.flag,
            born_ms=message.born_ms,
        )
        for tries_left in reversed(range(TRIES)):
            try:
                offset = self._sent(outgoing)
                break
            except (Busy, Unreachable):
                if not tries_left:
                    raise
                _pause(PAUSE_SECONDS)
                if self.stored_end() == self.next_offset + 1:  # it was stored, and only the answer was lost
                    offset = self.next_offset
                    break
        if offset != self.next_offset:
            raise Disturbed(
                f"queue {self._queue.queue_id} of '{self._queue.topic}' at {self._queue.broker_name} stored "
                f"a message at {offset} where {self.next_offset} was next: somebody else writes to it"
            )
        self.next_offset += 1

    def stored_end(self) -> int:
        """The offset after the last message, as the broker knows it; asked again while it is away."""
        for tries_left in reversed(range(TRIES)):
            try:
                return self._connection.run(operations.max_offset(self._address, self._queue))
            except Unreachable:
                if not tries_left:
                    raise
                _pause(PAUSE_SECONDS)
        raise AssertionError("the last try raises or returns")

    def _sent(self, outgoing: Outgoing) -> int:
        what = f"gave message {self.next_offset} of queue {self._queue.queue_id} of '{self._queue.topic}'"
        reply = self._connection.ask(self._address, outgoing.request(self._queue), what, expected=STORED)
        return reply.parse(SendReply).queue_offset


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)
