"""The hash an index knows a key by: that of "topic#key", as Java computes it, without its sign.

    hash("ab") = hash("a") * 31**len("b") + hash("b")     modulo 2**32

so a hash can be put together from those of parts. A unique id has 32 characters, of which 24 stay the same
for a minute (host, process, high half of the time) and 8 change all the time: from four looked-up parts its
hash takes 0.4 µs, where character by character it takes 2.7; bench: send 64x16.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from kourou.native import native
from kourou.protocol import properties as props
from kourou.protocol.java_hash import java_hash

UNIQUE_ID_BYTES = 32

_parts_of = Struct("24s2s3s3s").unpack_from
_BITS = 0xFFFF_FFFF
_SIGN = 0x8000_0000
_PARTS_MAX = 8192
_TOPICS_MAX = 4096


class Keys(NamedTuple):
    """What some messages are to be found by: hashes, and for each of them the place of the message."""

    hashes: list[int]
    places: list[int]


Keyed = tuple[bytes, bytes, int, int]
"""A message with its keys: topic; properties; where in these a unique id of 32 characters begins that is all
it is found by (0: to be seen); place."""


def key_hash(topic: str, key: str) -> int:
    """What an index knows this key by: 0 to 2**31 - 1."""
    return _without_sign(java_hash(f"{topic}#{key}") & _BITS)


def _without_sign(value: int) -> int:
    if value < _SIGN:
        return value
    return 0x1_0000_0000 - value if value > _SIGN else 0  # |-2**31| does not fit: 0, as in the original


class TopicKeys:
    """The hashes of one topic's keys."""

    def __init__(self, topic: bytes) -> None:
        self._prefix = topic.decode("utf-8", "replace") + "#"
        self._prefix_hash = java_hash(self._prefix) & _BITS
        self.firsts: dict[bytes, int] = {}
        """Of "topic#" and the first part of a unique id, multiplied for its place."""

    def of(self, properties: bytes) -> list[int]:
        """Under what a message with these properties is to be found: its unique id first, then its keys."""
        unique_id = props.find(properties, b"UNIQ_KEY")
        return [*([self._of_key(unique_id)] if unique_id else ()), *self.of_keys(properties)]

    def of_keys(self, properties: bytes) -> list[int]:
        keys = props.find(properties, b"KEYS")
        return [self._of_key(key) for key in keys.split(b" ") if key] if keys else []

    def _of_key(self, key: bytes) -> int:
        if key.isascii():
            value = self._prefix_hash * _power(len(key)) + java_hash(key.decode("ascii"))
            return _without_sign(value & _BITS)
        return _without_sign(java_hash(self._prefix + key.decode("utf-8", "replace")) & _BITS)

    def learn(self, properties: bytes) -> None:
        """Have the parts of a usual unique id at hand from now on."""
        key = props.find(properties, b"UNIQ_KEY") or b""
        if len(key) == UNIQUE_ID_BYTES and key.isascii():
            first, second, third, fourth = _parts_of(key)
            prefix_hash = self._prefix_hash * _power(len(first))
            _remember(self.firsts, first, prefix_hash + java_hash(first.decode()), _power(8))
            _remember(_seconds, second, java_hash(second.decode()), _power(6))
            _remember(_thirds, third, java_hash(third.decode()), _power(3))
            _remember(_fourths, fourth, java_hash(fourth.decode()), 1)


def _unique_id_at(properties: bytes) -> int:
    """Where a unique id of the usual length begins; behind the end when there is none that counts."""
    at = properties.rfind(b"UNIQ_KEY\x01")
    stop = properties[at + 9 + UNIQUE_ID_BYTES : at + 10 + UNIQUE_ID_BYTES]
    if at < 0 or (at and properties[at - 1] != 2) or stop != b"\x02":
        return len(properties)
    return at + 9


def _power(exponent: int) -> int:
    return pow(31, exponent, 1 << 32)


_seconds: dict[bytes, int] = {}
_thirds: dict[bytes, int] = {}
_fourths: dict[bytes, int] = {}


def _remember(parts: dict[bytes, int], part: bytes, value: int, factor: int) -> None:
    if len(parts) >= _PARTS_MAX:
        parts.clear()
    parts[part] = value * factor & _BITS


class KeyHashes:
    """The hashes of all topics' keys, for many messages at once."""

    def __init__(self) -> None:
        self._topics: dict[bytes, TopicKeys] = {}

    def topic(self, name: bytes) -> TopicKeys:
        topic = self._topics.get(name)
        if topic is None:
            if len(self._topics) >= _TOPICS_MAX:
                self._topics.clear()
            topic = self._topics[name] = TopicKeys(name)
        return topic

    def collect(self, messages: Iterable[Keyed], into: Keys) -> None:
        """Add what these messages are to be found by. The plain way is `TopicKeys.of`."""
        if native is None:
            self._collect_plainly(messages, into)
            return
        listed = messages if isinstance(messages, list) else list(messages)
        at = native.add_keys(listed, 0, into.hashes, into.places)
        while at < len(listed):  # this one is not usual: text beyond ASCII, say
            topic_bytes, properties, _, place = listed[at]
            found = self.topic(topic_bytes).of(properties)
            into.hashes.extend(found)
            into.places.extend([place] * len(found))
            at = native.add_keys(listed, at + 1, into.hashes, into.places)

    def _collect_plainly(self, messages: Iterable[Keyed], into: Keys) -> None:
        """As `collect`, by Python alone; a message with nothing but a usual unique id takes a fifth of
        `TopicKeys.of`, by C a fiftieth."""
        topics, seconds, thirds, fourths = self._topics, _seconds, _thirds, _fourths
        unpack = _parts_of
        hashes, places = into
        for topic_bytes, properties, id_at, place in messages:
            topic = topics.get(topic_bytes) or self.topic(topic_bytes)
            at = id_at or _unique_id_at(properties)
            try:
                first, second, third, fourth = unpack(properties, at)
                value = topic.firsts[first] + seconds[second] + thirds[third] + fourths[fourth] & _BITS
            except (KeyError, StructError):  # not seen before, or none
                topic.learn(properties)
                found = topic.of(properties)
            else:
                hashes.append(value if value < _SIGN else _without_sign(value))
                places.append(place)
                if id_at:
                    continue
                found = topic.of_keys(properties)
            hashes += found
            places += [place] * len(found)
