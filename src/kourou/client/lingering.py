"""Sends that nobody waits for, gathered into batches: one request for many messages.

A batch of a topic is open for `linger` seconds from its first message on, or until it is full. Each message
has its own result, as if it had gone alone; all of a batch go to one queue, and fail together.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias

from kourou.client.sending import (
    ANYWHERE,
    BATCH_ITEM_BYTES,
    NOT_IN_BATCHES,
    Sending,
    Where,
    check_message,
)
from kourou.client.sends import SendResult
from kourou.client.steps import Arrival, Operation, Wait
from kourou.errors import MQError
from kourou.message import Message
from kourou.protocol.names import RETRY_PREFIX
from kourou.protocol.record import BATCH_ITEMS_MAX

Tell: TypeAlias = Callable[[SendResult | Exception], None]

_log = logging.getLogger("kourou.client")


class Lingering:
    """The open batches of a producer. Any number of threads may add to them."""

    def __init__(self, sending: Sending, seconds: float) -> None:
        self._sending = sending
        self._seconds = seconds
        self._lock = threading.Lock()
        self._open: dict[str, _Batch] = {}

    def takes(self, message: Message, where: Where, *others: object) -> bool:
        """Whether a message may go with others; not when anything special was said about it."""
        check_message(message)
        return (
            where == ANYWHERE
            and all(each is None for each in others)
            and not message.topic.startswith(RETRY_PREFIX)
            and NOT_IN_BATCHES.isdisjoint(message.properties)
        )

    def size_of(self, message: Message) -> int:
        """What it takes of a batch; raises ConfigError when it cannot be sent."""
        return BATCH_ITEM_BYTES + self._sending.encoded_bytes(message)

    def add(self, message: Message, size: int, tell: Tell) -> _Batch | None:
        """Put a message into its topic's batch; a batch that was made for it is to be sent: `send` it."""
        with self._lock:
            batch = self._open.get(message.topic)
            made = batch is None or not batch.has_room(size, self._sending.settings.message_bytes_max)
            if made:
                if batch is not None:
                    batch.full.put(True)
                batch = self._open[message.topic] = _Batch(message.topic)
            assert batch is not None
            batch.messages.append(message)
            batch.tells.append(tell)
            batch.size += size
        return batch if made else None

    def send(self, batch: _Batch) -> Operation[None]:
        """Wait for more, and send what has come together."""
        yield Wait(batch.full, self._seconds, from_broker=False)
        with self._lock:
            if self._open.get(batch.topic) is batch:
                del self._open[batch.topic]
        try:
            result = yield from self._sending.send_together(batch.messages)
        except MQError as error:
            batch.tell_all(error)
            return
        for tell, each in zip(batch.tells, _apart(result, len(batch.messages)), strict=True):
            _told(tell, each)

    def flush(self) -> None:
        """Send all there is now."""
        with self._lock:
            for batch in self._open.values():
                batch.full.put(True)


class _Batch:
    """Messages of one topic that will go together."""

    __slots__ = ("full", "messages", "size", "tells", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.messages: list[Message] = []
        self.tells: list[Tell] = []
        self.size = 0
        self.full = Arrival()

    def has_room(self, size: int, bytes_max: int) -> bool:
        return len(self.messages) < BATCH_ITEMS_MAX and self.size + size <= bytes_max

    def tell_all(self, error: Exception) -> None:
        for tell in self.tells:
            _told(tell, error)


def _told(tell: Tell, outcome: SendResult | Exception) -> None:
    """One that fails keeps the others of its batch from nothing."""
    try:
        tell(outcome)
    except Exception:
        _log.exception("what was to be told the result of a request failed")


def _apart(result: SendResult, count: int) -> Iterator[SendResult]:
    """The result of a batch as one for each of its messages."""
    message_ids, offset_ids = result.message_id.split(","), result.offset_id.split(",")
    if count == 1 or len(offset_ids) != count:  # an old broker names the first only
        offset_ids = [result.offset_id] * count
    for index in range(count):
        yield result._replace(
            message_id=message_ids[index],
            offset_id=offset_ids[index],
            queue_offset=result.queue_offset + index,
        )
