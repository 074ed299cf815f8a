"""JSON as RocketMQ's peers write it: standard from most, fastjson's dialect from Java.

Reading is lenient. A standard document takes msgspec's fast way; what that refuses is read by hand:

    {0:"a"}                        bare keys; all keys are text here, so `{0:1}` and `{"0":1}` read alike
    {{"queueId":1,...}:{...}}      a map keyed by objects, read as a list of (key, value) pairs
    {'a':1,}  1.0E8                single quotes, trailing commas
    {"$ref":"$.a.b[0]"}            the value at that place; one that contains itself is refused
    {"@type":"..."}                a member like any other: it names a class, and nobody here obeys it

Size, nesting, the length of numbers and what references expand to are bounded. Bad input raises ProtocolError
and nothing else.

Writing is compact, without blanks, because Go clients cut some maps by hand. `dumps` writes standard JSON;
`dumps_fastjson` leaves the quotes off integer keys and writes struct keys as objects, as Java does and as
`mqadmin` and Java consumers need for maps of message queues.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from kourou.errors import ProtocolError

DEPTH_MAX = 64
LENIENT_BYTES_MAX = 4 * 1024 * 1024
LENIENT_VALUES_MAX = 2_000_000
REQUEST_VALUES_MAX = 20_000
"""Reading by hand takes 3 us a value, during which a server does nothing else: of a request from anybody it
reads 60 ms at most that way. What Java writes to servers is standard; its dialect comes in replies."""

T = TypeVar("T")

_UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
_any_decoder = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode


# ------------------------------------------------------------------------------------------------ reading


def loads(data: bytes, values_max: int = LENIENT_VALUES_MAX) -> Any:
    """The document as dicts, lists, text, numbers, booleans and None; None when there is none.

    One of more than about `values_max` values is refused.
    """
    check_values(data, values_max)
    value = _read_fast(data, _any_decoder)
    if value is _NOT_STANDARD:
        from kourou.protocol.fastjson_by_hand import read_by_hand

        return read_by_hand(_decoded(data))
    _check_depth(data, value)
    return value


def decode(data: bytes, kind: type[T], values_max: int = LENIENT_VALUES_MAX) -> T:
    """The document as a `kind`. Numbers may be quoted, nulls stand for what is not there.

    What is no standard JSON, or has nulls, may have about `values_max` values.
    """
    value = _read_standard(data, _decoder(kind))
    if value is _NOT_STANDARD:  # a dialect, a null, or not a `kind` at all: the slow ways know
        check_values(data, values_max)
        value = _read_fast(data, _decoder(kind))
    if value is _NOT_STANDARD:
        return convert(loads(data, values_max), kind)
    typed: T = value
    return typed


def convert(value: Any, kind: type[T]) -> T:
    """A document that `loads` read as a `kind`."""
    try:
        return msgspec.convert(_without_nulls(value), kind, strict=False)
    except _UNREADABLE as error:
        raise ProtocolError(f"{getattr(kind, '__name__', kind)} cannot be read: {error}") from None


def pairs(value: Any) -> list[tuple[Any, Any]]:
    """The entries of a map keyed by objects, in whichever of its forms a peer wrote it.

    Java writes objects as keys; quoted JSON as a key is legal, too; an empty map looks like any other.
    """
    if isinstance(value, list):
        return [
            (entry[0], entry[1]) for entry in value if isinstance(entry, list | tuple) and len(entry) == 2
        ]
    if isinstance(value, dict):
        return [(loads(key.encode("utf-8", "replace")), entry) for key, entry in value.items()]
    raise ProtocolError(f"a map was expected, not {type(value).__name__}")


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind, strict=False)
    return decoder


_NOT_STANDARD = object()
_BARE_INTEGER_KEY = re.compile(rb"([{,])(-?[0-9]+):")


def check_values(data: bytes, values_max: int) -> None:
    """Raises ProtocolError when there are more in `data`, about."""
    values = data.count(b",") + data.count(b"{") + data.count(b"[")
    if values > values_max:
        raise ProtocolError(
            f"JSON of about {values} values that is not standard, or has nulls: {values_max} are read at most"
        )


def _read_standard(data: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    if b"$ref" in data:
        return _NOT_STANDARD
    try:
        return decoder.decode(data)
    except _UNREADABLE:
        return _NOT_STANDARD


def _read_fast(data: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """What msgspec makes of `data`, or _NOT_STANDARD.

    Bare integer keys, by far the most common thing Java does, are quoted first when there are any. Should
    that hit something that looks like one inside a text, the text now ends in front of a digit: no JSON,
    so the slow way reads the original. 600 KiB of offsets: 33 ms instead of 240.
    """
    if b"$ref" in data:
        return _NOT_STANDARD
    value = _read_standard(data, decoder)
    if value is not _NOT_STANDARD:
        return value
    quoted = _BARE_INTEGER_KEY.sub(lambda key: b'%b"%b":' % key.groups(), data)
    if len(quoted) == len(data):
        return _NOT_STANDARD
    try:
        return decoder.decode(quoted)
    except _UNREADABLE:
        return _NOT_STANDARD


def _decoded(data: bytes) -> str:
    if len(data) > LENIENT_BYTES_MAX:
        raise ProtocolError(f"{len(data)} bytes of non-standard JSON: at most {LENIENT_BYTES_MAX} are read")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"JSON is not UTF-8: {error}") from None


def _check_depth(data: bytes, value: Any) -> None:
    if data.count(b"{") + data.count(b"[") <= DEPTH_MAX:
        return  # too few to be nested too deeply
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEPTH_MAX:
            raise too_deep()
        level = [
            inner
            for outer in level
            if type(outer) in _CONTAINERS
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) in _CONTAINERS
        ]


_CONTAINERS = (dict, list)


def too_deep() -> ProtocolError:
    return ProtocolError(f"JSON nested more than {DEPTH_MAX} deep")


def _without_nulls(value: Any) -> Any:
    """`value` with no null members: to fastjson they are the same as absent ones."""
    if type(value) is dict:
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    if type(value) in (list, tuple):
        return [_without_nulls(member) for member in value]
    return value


# ------------------------------------------------------------------------------------------------ writing


def dumps(value: Any) -> bytes:
    """Standard JSON: what every peer can read. Integer keys are quoted."""
    return _encode(value)


def dumps_fastjson(value: Any) -> bytes:
    """As Java writes it: integer keys bare, struct keys as objects, nulls left out."""
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def _write(value: Any, parts: list[bytes]) -> None:
    if isinstance(value, msgspec.Struct):
        _write_members(
            [(_encode(wire) + b":", getattr(value, name)) for name, wire in _names(type(value))], parts
        )
    elif isinstance(value, Mapping):
        _write_members([(_key(key) + b":", member) for key, member in value.items()], parts)
    elif isinstance(value, list | tuple | set | frozenset):
        parts.append(b"[")
        for position, member in enumerate(value):
            if position:
                parts.append(b",")
            _write(member, parts)
        parts.append(b"]")
    else:
        parts.append(_encode(value))


def _write_members(members: list[tuple[bytes, Any]], parts: list[bytes]) -> None:
    opening = b"{"
    for key, member in members:
        if member is None or member is msgspec.UNSET:
            continue
        parts.append(opening)
        parts.append(key)
        _write(member, parts)
        opening = b","
    parts.append(b"{}" if opening == b"{" else b"}")


def _key(key: Any) -> bytes:
    if isinstance(key, int):
        return b"%d" % key
    return dumps_fastjson(key) if isinstance(key, msgspec.Struct) else _encode(key)


@cache
def _names(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(kind))
