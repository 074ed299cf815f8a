"""What the sender of a timed message may later take it back with.

    URL-safe base64 of   "v1" topic broker-name time-ms unique-id      parted by blanks

The time is one millisecond behind the one the message is due at, as the original writes it.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, urlsafe_b64encode
from typing import NamedTuple

from kourou.errors import ProtocolError

_PARTS = 5


class RecallHandle(NamedTuple):
    topic: str
    broker_name: str
    time_ms: int
    unique_id: str

    def encode(self) -> str:
        text = f"v1 {self.topic} {self.broker_name} {self.time_ms} {self.unique_id}"
        return urlsafe_b64encode(text.encode()).decode()


def parse_recall_handle(text: str) -> RecallHandle:
    """What `encode` put together; raises ProtocolError for anything else."""
    try:
        parts = b64decode(text.encode(), altchars=b"-_", validate=True).decode().split(" ")
    except (binascii.Error, UnicodeError, ValueError):
        parts = []
    if len(parts) < _PARTS or parts[0] != "v1" or not _is_time(parts[3]) or not parts[4]:
        raise ProtocolError(f"recall handle {text[:80]!r} is not one that a send was answered with")
    return RecallHandle(parts[1], parts[2], int(parts[3]), parts[4])


def _is_time(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18
