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
NUMBER_CHARACTERS_MAX = 64
LENIENT_BYTES_MAX = 4 * 1024 * 1024
LENIENT_VALUES_MAX = 2_000_000
REQUEST_VALUES_MAX = 20_000
"""Reading by hand takes 3 us a value, during which a server does nothing else: of a request from anybody it
reads 60 ms at most that way. What Java writes to servers is standard; its dialect comes in replies."""

REFERENCED_VALUES_MAX = 100_000
"""How many values references may add to a document."""

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
        return _LenientReader(_decoded(data)).document()
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
            raise _too_deep()
        level = [
            inner
            for outer in level
            if type(outer) in _CONTAINERS
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) in _CONTAINERS
        ]


_CONTAINERS = (dict, list)


def _too_deep() -> ProtocolError:
    return ProtocolError(f"JSON nested more than {DEPTH_MAX} deep")


def _without_nulls(value: Any) -> Any:
    """`value` with no null members: to fastjson they are the same as absent ones."""
    if type(value) is dict:
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    if type(value) in (list, tuple):
        return [_without_nulls(member) for member in value]
    return value


class _Reference:
    """Stands where `{"$ref":path}` was, until the whole document is there."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path


_SPACE = re.compile(r"[ \t\r\n\f\b\ufeff]*")
_NUMBER = re.compile(r"[-+]?[0-9.][0-9.eE+-]*")
_BARE_KEY = re.compile(r"-?[0-9]+|[^\W\d][\w$]*|\$[\w$]*|@[\w$]*")
_WORD = re.compile(r"[A-Za-z]+")
_WORDS = {"true": True, "false": False, "null": None, "NaN": None, "undefined": None}
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_ESCAPES = {
    **{character: character for character in "\"'\\/"},
    **{"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"},
}
_HEX = re.compile(r"[0-9a-fA-F]+")


class _LenientReader:
    """Reads one document by hand. Recursion is bounded by DEPTH_MAX."""

    __slots__ = ("_at", "_has_references", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._has_references = False

    def document(self) -> Any:
        if not self._next():
            return None
        value = self._value(1)
        trailing = self._next()
        if trailing:
            raise self._unexpected(trailing)
        return _Resolver(value).resolved() if self._has_references else value

    def _next(self) -> str:
        """The next character that is not blank, without going past it; empty at the end."""
        space = _SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> Any:
        first = self._next()
        if first in ("{", "["):
            if depth > DEPTH_MAX:
                raise _too_deep()
            return self._object(depth) if first == "{" else self._array(depth)
        if first in _PLAIN:
            return self._string(first)
        word = _WORD.match(self._text, self._at)
        if word is not None and word[0] in _WORDS:
            self._at = word.end()
            return _WORDS[word[0]]
        return self._number(first)

    def _object(self, depth: int) -> Any:
        table: dict[str, Any] = {}
        keyed_by_objects: list[tuple[Any, Any]] = []
        self._at += 1
        while (first := self._next()) != "}":
            if first == ",":
                self._at += 1
                continue
            key = self._value(depth + 1) if first in "{[" and first else self._key(first)
            self._expect(":")
            value = self._value(depth + 1)
            if type(key) is str:
                table[key] = value
            else:
                keyed_by_objects.append((key, value))
            if self._next() not in (",", "}"):
                raise self._unexpected(self._next())
        self._at += 1
        if keyed_by_objects:
            return keyed_by_objects
        reference = table.get("$ref")
        if type(reference) is str and len(table) == 1:
            self._has_references = True
            return _Reference(reference)
        return table

    def _array(self, depth: int) -> list[Any]:
        values: list[Any] = []
        self._at += 1
        while (first := self._next()) != "]":
            if first == ",":
                self._at += 1
                continue
            values.append(self._value(depth + 1))
            if self._next() not in (",", "]"):
                raise self._unexpected(self._next())
        self._at += 1
        return values

    def _key(self, first: str) -> str:
        if first in _PLAIN:
            return self._string(first)
        bare = _BARE_KEY.match(self._text, self._at)
        if bare is None:
            raise self._unexpected(first)
        self._at = bare.end()
        return bare[0]

    def _expect(self, wanted: str) -> None:
        found = self._next()
        if found != wanted:
            raise self._unexpected(found)
        self._at += 1

    def _number(self, first: str) -> int | float:
        number = _NUMBER.match(self._text, self._at)
        if number is None:
            raise self._unexpected(first)
        digits = number[0]
        if len(digits) > NUMBER_CHARACTERS_MAX:
            raise ProtocolError(f"JSON number of {len(digits)} characters at {self._at}")
        try:
            value = float(digits) if set(digits) & {".", "e", "E"} else int(digits)
        except ValueError:
            raise ProtocolError(f"JSON number {digits!r} at {self._at}") from None
        self._at = number.end()
        return value

    def _string(self, quote: str) -> str:
        text, plain = self._text, _PLAIN[quote]
        parts: list[str] = []
        at = self._at + 1
        while True:
            stretch = plain.match(text, at)
            assert stretch is not None
            parts.append(stretch[0])
            at = stretch.end()
            if text[at : at + 1] == quote:
                break
            if at >= len(text):
                raise ProtocolError(f"JSON text that begins at {self._at} has no end")
            escaped, at = self._escaped(at + 1)
            parts.append(escaped)
        self._at = at + 1
        return _paired("".join(parts)) if len(parts) > 1 else parts[0]

    def _escaped(self, at: int) -> tuple[str, int]:
        """The character that the escape at `at`, behind its backslash, stands for, and where it ends."""
        letter = self._text[at : at + 1]
        if letter in _ESCAPES and letter:
            return _ESCAPES[letter], at + 1
        width = {"u": 4, "x": 2}.get(letter, 0)
        digits = self._text[at + 1 : at + 1 + width]
        if not width or len(digits) != width or not _HEX.fullmatch(digits):
            raise ProtocolError(f"JSON escape \\{letter}{digits} at {at}")
        return chr(int(digits, 16)), at + 1 + width

    def _unexpected(self, found: str) -> ProtocolError:
        return ProtocolError(f"JSON: {found!r} at {self._at} is unexpected" if found else "JSON breaks off")


def _paired(text: str) -> str:
    """Surrogates that came as two escapes made one character; raises ProtocolError for half a pair."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ProtocolError("JSON text has half of a surrogate pair") from None


# --------------------------------------------------------------------------------------------- references

_STEP = re.compile(r"\.((?:\\.|[^.\[\\])+)|\[(-?[0-9]+|'[^']*'|\"[^\"]*\")\]", re.DOTALL)


class _Resolver:
    """Puts the values in place of the references to them.

    A document with references is a graph. Read as a tree it may be endless, or grow with every level; so
    its depth is bounded, and how many values references may add to it.
    """

    __slots__ = ("_addable", "_root")

    def __init__(self, root: Any) -> None:
        self._root = root
        self._addable = REFERENCED_VALUES_MAX

    def resolved(self) -> Any:
        return self._expanded(self._root, 1, False)

    def _expanded(self, value: Any, depth: int, referenced: bool) -> Any:
        if referenced:
            self._addable -= 1
        if self._addable < 0 or depth > DEPTH_MAX + 1:
            raise ProtocolError("JSON references make the document endless, or far larger than it is")
        if type(value) is _Reference:
            return self._expanded(self._target(value.path), depth + 1, True)
        if type(value) is dict:
            return {key: self._expanded(member, depth + 1, referenced) for key, member in value.items()}
        if type(value) is list:
            return [self._expanded(member, depth + 1, referenced) for member in value]
        if type(value) is tuple:
            return tuple([self._expanded(member, depth + 1, referenced) for member in value])
        return value

    def _target(self, path: str) -> Any:
        if path in ("@", ".."):
            # fastjson's words for the object around the reference, and for the one around that.
            raise ProtocolError(f"JSON reference {path!r} makes the document endless: it names what it is in")
        if not path.startswith("$"):
            raise ProtocolError(f"JSON reference {path[:80]!r} does not begin at the root, '$'")
        value, at = self._root, 1
        while at < len(path):
            step = _STEP.match(path, at)
            if step is None:
                raise ProtocolError(f"JSON reference {path[:80]!r} is unreadable at {at}")
            value = _member(value, _step_name(step), path)
            at = step.end()
        return value


def _step_name(step: re.Match[str]) -> str:
    return re.sub(r"\\(.)", r"\1", step[1], flags=re.DOTALL) if step[1] else step[2].strip("'\"")


def _member(value: Any, name: str, path: str) -> Any:
    try:
        return value[int(name)] if type(value) is list else value[name]
    except (KeyError, IndexError, TypeError, ValueError):
        raise ProtocolError(f"JSON reference {path[:80]!r} leads nowhere") from None


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
