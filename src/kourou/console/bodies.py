"""A message's body as somebody can read it: JSON in order, text, or hex; its beginning when it is long."""

from __future__ import annotations

import json
from dataclasses import dataclass

from kourou.errors import MQError
from kourou.message import ReceivedMessage

SHOWN_BYTES_MAX = 64 * 1024
HEX_BYTES_MAX = 8 * 1024
LINE_BYTES = 16


@dataclass(frozen=True)
class Shown:
    """`forms` are (name, text) with the plainest first; every text is to be shown as text."""

    forms: tuple[tuple[str, str], ...]
    bytes: int
    is_cut: bool = False
    error: str | None = None


def shown(message: ReceivedMessage) -> Shown:
    try:
        body = message.body
    except MQError as error:
        return Shown((), message.size, error=str(error))
    return shown_bytes(body)


def shown_bytes(body: bytes) -> Shown:
    part = body[:SHOWN_BYTES_MAX]
    is_cut = len(part) < len(body)
    forms = []
    if not is_cut and (pretty := _pretty(body)) is not None:
        forms.append(("json", pretty))
    text = _text(part, is_cut)
    if text is not None:
        forms.append(("text", text))
    forms.append(("hex", hex_of(body[:HEX_BYTES_MAX])))
    return Shown(tuple(forms), len(body), is_cut or (len(body) > HEX_BYTES_MAX and text is None))


def beginning(message: ReceivedMessage, characters: int = 120) -> str:
    """One line of it, for a list."""
    try:
        text = _text(message.body[: characters * 4], True)
    except MQError as error:
        return f"({error})"
    if text is None:
        return message.body[: characters // 3].hex(" ")
    line = " ".join(text.split())
    return line if len(line) <= characters else line[: characters - 1] + "…"


def _pretty(body: bytes) -> str | None:
    if body.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _text(part: bytes, is_cut: bool) -> str | None:
    """None for what is no text; a character cut in two at the end does not matter."""
    for length in (len(part), *(len(part) - back for back in (1, 2, 3) if is_cut)):
        try:
            text = part[: max(0, length)].decode()
        except UnicodeDecodeError:
            continue
        odd = sum(not (letter.isprintable() or letter in "\r\n\t") for letter in text)
        return None if odd * 10 > len(text) else text.replace("\x00", "␀")
    return None


def hex_of(part: bytes) -> str:
    """Offset, bytes, and what of them is readable."""
    lines = []
    for at in range(0, len(part), LINE_BYTES):
        row = part[at : at + LINE_BYTES]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {letters}")
    return "\n".join(lines)
