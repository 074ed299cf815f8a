"""Messages on their way into a transaction of many: one chunk of them, as it travels and as it waits in the
log.

     0  count u32 | bytes of all properties u32
     8  of each: queue id i32 | of each: flag i32 | born at i64 | body length i32 | properties length i32
        bodies, one after the other | properties, one after the other

Column by column, because whoever writes a chunk has columns: the bodies are the very buffer of an Arrow
array. All messages of a chunk have one topic, which the request says. Nothing is believed before it was
checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from struct import Struct, unpack_from
from typing import NamedTuple

from kourou.errors import ProtocolError
from kourou.protocol.properties import PROPERTIES_BYTES_MAX

CHUNK_MESSAGES_MAX = 65_536
_HEAD = Struct(">II")
_COLUMNS_BYTES = 4 + 4 + 8 + 4 + 4


class StagedMessage(NamedTuple):
    """One message of a chunk."""

    queue_id: int
    flag: int
    born_ms: int
    body: bytes
    properties: bytes


class Chunk:
    """The messages of a chunk over the bytes they lie in. Raises ProtocolError when these are not a chunk."""

    def __init__(self, data: bytes) -> None:
        if len(data) < _HEAD.size:
            raise ProtocolError(f"{len(data)} bytes are too few for a chunk of messages")
        self.count, properties_bytes = _HEAD.unpack_from(data)
        count, at = self.count, _HEAD.size
        self._bodies_at = at + count * _COLUMNS_BYTES
        if not 1 <= count <= CHUNK_MESSAGES_MAX or self._bodies_at > len(data):
            raise ProtocolError(f"a chunk of {count} messages in {len(data)} bytes")
        self.queue_ids: tuple[int, ...] = unpack_from(f">{count}i", data, at)
        self._flags: tuple[int, ...] = unpack_from(f">{count}i", data, at + 4 * count)
        self._born: tuple[int, ...] = unpack_from(f">{count}q", data, at + 8 * count)
        self.body_lengths: tuple[int, ...] = unpack_from(f">{count}i", data, at + 16 * count)
        self._property_lengths: tuple[int, ...] = unpack_from(f">{count}i", data, at + 20 * count)
        self._properties_at = len(data) - properties_bytes
        self._data = data
        self._check(properties_bytes)

    def _check(self, properties_bytes: int) -> None:
        """The lengths are those of the bytes that are there."""
        lengths, bodies = self._property_lengths, self.body_lengths
        if (
            min(bodies) < 0
            or min(lengths) < 0
            or sum(lengths) != properties_bytes
            or self._bodies_at + sum(bodies) != self._properties_at
        ):
            raise ProtocolError(f"the parts of a chunk of {self.count} messages do not make up its bytes")
        if max(lengths) > PROPERTIES_BYTES_MAX:
            raise ProtocolError(
                f"properties of {max(lengths)} bytes: a message has room for {PROPERTIES_BYTES_MAX}"
            )

    @property
    def properties(self) -> bytes:
        """Those of all messages, one after the other."""
        return self._data[self._properties_at :]

    @property
    def longest_properties(self) -> int:
        return max(self._property_lengths)

    def messages(self, start: int = 0, stop: int | None = None) -> Iterator[StagedMessage]:
        """Some of the messages, by number."""
        stop = self.count if stop is None else stop
        data, bodies, lengths = self._data, self.body_lengths, self._property_lengths
        body_ends = accumulate(bodies[start:stop], initial=self._bodies_at + sum(bodies[:start]))
        property_ends = accumulate(lengths[start:stop], initial=self._properties_at + sum(lengths[:start]))
        body_at, properties_at = next(body_ends), next(property_ends)
        for queue_id, flag, born_ms, body_end, properties_end in zip(
            self.queue_ids[start:stop],
            self._flags[start:stop],
            self._born[start:stop],
            body_ends,
            property_ends,
            strict=True,
        ):
            yield StagedMessage(
                queue_id, flag, born_ms, data[body_at:body_end], data[properties_at:properties_end]
            )
            body_at, properties_at = body_end, properties_end


def encode_chunk(messages: Sequence[StagedMessage]) -> bytes:
    """A chunk of these messages, one by one; the Spark sink makes the same bytes column by column."""
    count = len(messages)
    columns = Struct(f">II{count}i{count}i{count}q{count}i{count}i").pack(
        count,
        sum(len(each.properties) for each in messages),
        *(each.queue_id for each in messages),
        *(each.flag for each in messages),
        *(each.born_ms for each in messages),
        *(len(each.body) for each in messages),
        *(len(each.properties) for each in messages),
    )
    return b"".join((columns, *(each.body for each in messages), *(each.properties for each in messages)))
