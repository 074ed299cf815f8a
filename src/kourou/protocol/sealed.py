"""A checksum inside a small JSON file, where other brokers pass over it.

    {
     "offsetTable": {…},
     "kourouCrc32": 305419896          of the text without this line
    }

A flipped bit in a number leaves good JSON, and a group that goes on somewhere else. RocketMQ's own files have
no such line, and are taken as they are; a line that was once this one is damage, since nothing says of what.
"""

from __future__ import annotations

import re
from operator import eq

from kourou.errors import ProtocolError
from kourou.protocol.checksum import crc32

KEY = "kourouCrc32"
_BEFORE_NUMBER = b',\n "kourouCrc32": '
_CRC32 = slice(10, 15)
_SEAL = re.compile(rb',\n "kourouCrc32": (\d{1,10})\n}\s*$')
_DIGITS_MAX = 10
_LIKE_IT, _LIKE_CRC32 = 13, 3
_END = b"\n}"


def sealed(text: bytes) -> bytes:
    """An object's text, indented by one, with its checksum."""
    if not text.endswith(_END):
        return text  # an empty one
    return b'%b,\n "kourouCrc32": %d\n}' % (text.removesuffix(_END), crc32(text))


def check_seal(text: bytes) -> None:
    """Raises ProtocolError when the text is not what its checksum was made of."""
    seal = _SEAL.search(text)
    if seal is None and _was_sealed(text):
        raise ProtocolError(f"its {KEY} is damaged, or changed by hand (then take that line out)")
    if seal is not None and crc32(text[: seal.start()] + _END) != int(seal[1]):
        raise ProtocolError(f"its {KEY} does not fit: damaged, or changed by hand (then take that line out)")


def _was_sealed(text: bytes) -> bool:
    """Whether there is something like a seal where one lies."""
    text = text.rstrip()
    number_end = len(text) - len(_END)
    starts = range(number_end - _DIGITS_MAX, number_end)
    return any(_is_like_a_seal(text, at - len(_BEFORE_NUMBER), at) for at in starts)


def _is_like_a_seal(text: bytes, start: int, number_at: int) -> bool:
    """Either most of its bytes are in their places, also of `Crc32`: innocent names begin with `kourou`, too.
    Or its name is anything, and the number is right all the same."""
    if start < 0:
        return False
    alike = list(map(eq, _BEFORE_NUMBER, text[start:number_at]))
    if sum(alike) >= _LIKE_IT and sum(alike[_CRC32]) >= _LIKE_CRC32:
        return True
    number = text[number_at : -len(_END)]
    return number.isdigit() and crc32(text[:start] + _END) == int(number)
