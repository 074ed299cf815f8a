"""A message's properties as one text, as they travel and as they lie on disk.

    name U+0001 value U+0002 name U+0001 value U+0002 ...

The last U+0002 may be missing (RocketMQ 4.9.1 to 5.1.4 leave it out); we always write it. An entry with an
empty name or an empty value does not count, and of two entries with one name the later wins: both as the
original reads them. `find`, `without` and `with_added` work on the encoded form, for a broker that wants one
property of thirty and must not pay for a dict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kourou.errors import ProtocolError

PROPERTIES_BYTES_MAX = 32767
"""Their length is a signed 16-bit number, in a record and in a batch."""


def parse(properties: bytes) -> dict[str, str]:
    """All properties; raises ProtocolError when they are not UTF-8."""
    try:
        text = properties.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"properties are not UTF-8: {error}") from None
    table: dict[str, str] = {}
    for entry in text.split("\x02"):
        name, _, value = entry.partition("\x01")
        if name and value:
            table[name] = value
    return table


def encode(properties: Mapping[str, str]) -> bytes:
    """The encoded form; entries that no reader would see are left out."""
    text = "".join(
        [f"{name}\x01{value}\x02" for name, value in properties.items() if name and value],
    )
    # Two counts over the whole text cost less than a look into each name and value.
    if text.count("\x01") + text.count("\x02") > 2 * len(properties):
        raise ProtocolError(f"U+0001 or U+0002 inside a property name or value: {_offender(properties)}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ProtocolError(f"properties are not valid Unicode: {error}") from None


def _offender(properties: Mapping[str, str]) -> str:
    return next(
        f"{name!r} = {value!r}"
        for name, value in properties.items()
        if not {"\x01", "\x02"}.isdisjoint(name + value)
    )


def find(properties: bytes, name: bytes) -> bytes | None:
    """The value of one property, without looking at the others; None when it is not there."""
    entry = name + b"\x01"
    # An entry begins at the front or after a U+0002, so a longer name or a value cannot be mistaken for it.
    at = properties.rfind(b"\x02" + entry)
    if at >= 0:
        start = at + 1 + len(entry)
    elif properties.startswith(entry):
        start = len(entry)
    else:
        return None
    stop = properties.find(b"\x02", start)
    value = properties[start:] if stop < 0 else properties[start:stop]
    return value or _last_with_value(properties, entry)


def find_each(many: Iterable[bytes | None], name: bytes) -> list[bytes | None]:
    """As `find`, of many: 0.25 us each, where that takes 0.4."""
    entry = b"\x02" + name + b"\x01"
    length = len(entry)
    values: list[bytes | None] = []
    for properties in many:
        if properties is None:
            values.append(None)
            continue
        at = properties.rfind(entry)
        start = at + length
        stop = properties.find(b"\x02", start)
        values.append(properties[start:stop] if at >= 0 and stop > start else find(properties, name))
    return values


def _last_with_value(properties: bytes, entry: bytes) -> bytes | None:
    """The rare case: the last entry of that name is empty and does not count, an earlier one may."""
    length = len(entry)
    for each in reversed(properties.split(b"\x02")):
        if each.startswith(entry) and len(each) > length:
            return each[length:]
    return None


def without(properties: bytes, name: bytes) -> bytes:
    """The same properties, with no entry of that name."""
    entry = name + b"\x01"
    if entry not in properties:
        return properties
    kept = [each for each in properties.split(b"\x02") if each and not each.startswith(entry)]
    return b"".join([each + b"\x02" for each in kept])


def with_added(properties: bytes, name: bytes, value: bytes) -> bytes:
    """The same properties with `name` set to `value`, whether it was there before or not."""
    return terminated(without(properties, name)) + name + b"\x01" + value + b"\x02"


def terminated(properties: bytes) -> bytes:
    """The same properties, ready for another entry to follow."""
    return properties if not properties or properties.endswith(b"\x02") else properties + b"\x02"
