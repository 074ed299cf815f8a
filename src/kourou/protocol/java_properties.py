"""Java's `.properties` text: configuration files, and the bodies that read and change configuration.

    # comment, ! comment        a line that begins with either
    name=value   name:value   name value
    long = one \\
           line                 a backslash at the end joins the next line, less its leading blanks
    \\t \\n \\r \\f \\uXXXX \\:     escapes; before any other character the backslash just goes away

Java's files are ISO-8859-1 with escapes, people's are UTF-8: `parse` takes bytes as UTF-8 and, when they are
not, as ISO-8859-1. Of two lines with one name the later wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kourou.errors import ProtocolError

_LINE_END = re.compile(r"\r\n|\n|\r")
_BLANKS = " \t\f"
_NAME = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.|$)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}


def parse(text: str | bytes) -> dict[str, str]:
    """Every name with its value. Raises ProtocolError for a \\u that no four hex digits follow."""
    return {name: value for name, value, _ in entries(text)}


def entries(text: str | bytes) -> Iterator[tuple[str, str, int]]:
    """Every entry in order: name, value, and the number of the line it begins on, counted from 1."""
    if isinstance(text, bytes):
        text = _decoded(text)
    for number, line in _logical_lines(text):
        name = _NAME.match(line)
        assert name is not None
        separator = _SEPARATOR.match(line, name.end())
        assert separator is not None
        yield _unescaped(name[0]), _unescaped(line[separator.end() :]), number


def format(properties: Mapping[str, str]) -> str:
    """`name=value` lines, in the mapping's order, that `parse` and Java read back."""
    return "".join(f"{_escaped_name(name)}={_escaped_value(value)}\n" for name, value in properties.items())


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    joined = ""
    continued = False
    start = 1
    for number, line in enumerate(_LINE_END.split(text), 1):
        line = line.lstrip(_BLANKS)
        if not continued:
            if not line or line[0] in "#!":
                continue
            start = number
        backslashes = len(line) - len(line.rstrip("\\"))
        continued = backslashes % 2 == 1
        if continued:
            joined += line[:-1]
            continue
        yield start, joined + line
        joined = ""
    if joined:
        yield start, joined


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    unescaped = _ESCAPE.sub(_meaning, text)
    if not unescaped.isascii():
        # Java escapes UTF-16 units, so one character may have come as two.
        try:
            unescaped = unescaped.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            raise ProtocolError(f"properties: {text[:80]!r} has half of a surrogate pair") from None
    return unescaped


def _meaning(escape: re.Match[str]) -> str:
    letter = escape[1]
    if letter == "u":
        raise ProtocolError(f"properties: \\u without four hexadecimal digits in {escape.string[:80]!r}")
    if len(letter) == 5:
        return chr(int(letter[1:], 16))
    return _ESCAPED.get(letter, letter)


def _escaped_name(name: str) -> str:
    return re.sub(r"[\\\t\n\r\f=:#! ]", lambda found: _ESCAPES.get(found[0], "\\" + found[0]), name)


def _escaped_value(value: str) -> str:
    escaped = re.sub(r"[\\\t\n\r\f]", lambda found: _ESCAPES[found[0]], value)
    return "\\" + escaped if escaped.startswith(" ") else escaped
