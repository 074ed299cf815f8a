"""Java's `String.hashCode`: what a consume queue keeps of a tag, and an index of a key.

h = 31 h + c over the UTF-16 code units, kept to a signed 32-bit number: a character outside the basic plane
counts as two. Another hash would do as well, but this one is on the disks and in the heartbeats of every
RocketMQ there is.
"""

from __future__ import annotations

from functools import lru_cache
from struct import unpack

REMEMBERED_CHARACTERS_MAX = 128
"""Longer texts are hashed each time: a peer must not be able to fill the memory with them."""


def java_hash(text: str) -> int:
    """The hash of `text`, between -2**31 and 2**31 - 1."""
    return _remembered(text) if len(text) <= REMEMBERED_CHARACTERS_MAX else _computed(text)


def tag_code(tag: str) -> int:
    """What a consume queue entry says of a message with this tag; 0 without one."""
    return java_hash(tag)


def _computed(text: str) -> int:
    value = 0
    for unit in _code_units(text):
        value = (31 * value + unit) & 0xFFFF_FFFF
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


_remembered = lru_cache(maxsize=4096)(_computed)


def _code_units(text: str) -> bytes | tuple[int, ...]:
    if text.isascii():
        return text.encode("ascii")
    units = text.encode("utf-16-be", "surrogatepass")
    return unpack(f">{len(units) // 2}H", units)
