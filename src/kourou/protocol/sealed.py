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
_KEY = KEY.encode()
_SEAL = re.compile(rb',\n "kourouCrc32": (\d{1,10})\n}\s*$')
_SEAL_BYTES_MAX = 32
_LIKE_IT = 6
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
    """Whether something at the end is like the seal's name: six of its eleven letters in their places."""
    end = text[-_SEAL_BYTES_MAX:]
    return any(sum(map(eq, _KEY, end[at:])) >= _LIKE_IT for at in range(len(end)))
