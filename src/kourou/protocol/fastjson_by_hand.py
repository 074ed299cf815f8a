"""JSON read by hand: what `fastjson.py` cannot hand to msgspec, and the references in it.

A module of its own because most processes never need it: its patterns take 3 ms to compile.
"""

from __future__ import annotations

import re
from typing import Any

from kourou.errors import ProtocolError
from kourou.protocol.fastjson import DEPTH_MAX, too_deep

NUMBER_CHARACTERS_MAX = 64
REFERENCED_VALUES_MAX = 100_000
"""How many values references may add to a document."""


def read_by_hand(text: str) -> Any:
    """The document as dicts, lists, text, numbers, booleans and None; raises ProtocolError."""
    return _LenientReader(text).document()


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
                raise too_deep()
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
