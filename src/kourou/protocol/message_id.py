"""The two ids a message has, as upper-case hex.

    offset id   store host: address (4 or 16), port i32 | physical offset i64
    unique id   address (4 or 16) | process u16 | instance u32 | ms since the month began u32 | counter u16

The broker gives the offset id: it says where the message lies. The producer gives the unique id before it
sends, so a message keeps it through retries. Both have 32 characters, or 56 with an IPv6 address. Go clients
write the end of a unique id in lower case, so ids are compared as they are and never folded.

No clock here: the time is given, in ms since 1970, together with the local zone's distance from UTC, because
the month begins at local midnight.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import NamedTuple

from kourou.errors import ProtocolError

_OFFSET = Struct(">q")
_AFTER_ADDRESS = Struct(">HIIH")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ID_CHARACTERS = (32, 56)
_COUNTER_MASK = 0xFFFF


def offset_id(store_host: bytes, physical_offset: int) -> str:
    """The id of the message at `physical_offset` of the broker at `store_host` (packed, 8 or 20 bytes)."""
    return (store_host + _OFFSET.pack(physical_offset)).hex().upper()


class OffsetId(NamedTuple):
    """A place: the packed host of a broker, and a byte in its log."""

    store_host: bytes
    physical_offset: int


def parse_offset_id(text: str) -> OffsetId:
    """What `offset_id` put together; raises ProtocolError for anything else."""
    data = _unhexed(text)
    return OffsetId(data[:-8], _OFFSET.unpack_from(data, len(data) - 8)[0])


class UniqueIds:
    """Gives out unique ids, one after the other.

    `address` is this machine's (4 or 16 bytes) and `process_id` this process's, `instance` tells apart
    several producers of one process: take it at random.
    """

    __slots__ = ("_counter", "_month_end_ms", "_month_start_ms", "_prefix", "_utc_offset_ms")

    def __init__(self, address: bytes, process_id: int, instance: int, utc_offset_ms: int = 0) -> None:
        assert len(address) in (4, 16), address
        self._prefix = f"{address.hex()}{process_id & 0xFFFF:04x}{instance & 0xFFFF_FFFF:08x}".upper()
        self._utc_offset_ms = utc_offset_ms
        self._month_start_ms = self._month_end_ms = 0
        self._counter = 0

    def next(self, now_ms: int) -> str:
        """An id nobody else has: at most 65,536 in one millisecond, from one instance."""
        if now_ms >= self._month_end_ms:
            self._month_start_ms, self._month_end_ms = _month_around(now_ms, self._utc_offset_ms)
        counter = self._counter
        self._counter = counter + 1 & _COUNTER_MASK
        # A clock that was set back over the start of the month must not make a negative span.
        span_ms = max(now_ms - self._month_start_ms, 0)
        return f"{self._prefix}{span_ms << 16 | counter:012X}"


class UniqueId(NamedTuple):
    """What a unique id tells."""

    address: bytes
    process_id: int
    instance: int
    span_ms: int
    counter: int

    def made_at_ms(self, now_ms: int, utc_offset_ms: int = 0) -> int:
        """When it was made, if that is less than a month ago: an id knows no year."""
        month_start_ms, _ = _month_around(now_ms, utc_offset_ms)
        if month_start_ms + self.span_ms >= now_ms:
            month_start_ms, _ = _month_around(month_start_ms - 1, utc_offset_ms)
        return month_start_ms + self.span_ms


def parse_unique_id(text: str) -> UniqueId:
    """What `UniqueIds` put together; raises ProtocolError for anything else."""
    data = _unhexed(text)
    return UniqueId(data[:-12], *_AFTER_ADDRESS.unpack_from(data, len(data) - _AFTER_ADDRESS.size))


def _unhexed(text: str) -> bytes:
    if len(text) in _ID_CHARACTERS:
        try:
            data = bytes.fromhex(text)
        except ValueError:
            data = b""
        if len(data) * 2 == len(text):  # fromhex overlooks spaces
            return data
    raise ProtocolError(f"message id {text[:80]!r} is not 32 or 56 hexadecimal digits")


def _month_around(now_ms: int, utc_offset_ms: int) -> tuple[int, int]:
    """When the local month of `now_ms` begins and when the next one does."""
    local = _EPOCH + timedelta(milliseconds=now_ms + utc_offset_ms)
    start = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    end = (start + timedelta(days=32)).replace(day=1)
    return _ms(start) - utc_offset_ms, _ms(end) - utc_offset_ms


def _ms(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)
