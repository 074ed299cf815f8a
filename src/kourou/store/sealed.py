"""A checksum inside a small JSON file, where other brokers pass over it.

    {
     "offsetTable": {…},
     "kourouCrc32": 305419896          of the text without this line
    }

A flipped bit in a number leaves good JSON, and a group that goes on somewhere else. RocketMQ's own files have
no such line, and are taken as they are.
"""

from __future__ import annotations

import re

from kourou.errors import ProtocolError
from kourou.protocol.checksum import crc32

_SEAL = re.compile(rb',\n "kourouCrc32": (\d{1,10})\n}\s*$')
_END = b"\n}"


def sealed(text: bytes) -> bytes:
    """An object's text, indented by one, with its checksum."""
    if not text.endswith(_END):
        return text  # an empty one
    return b'%b,\n "kourouCrc32": %d\n}' % (text.removesuffix(_END), crc32(text))


def check_seal(text: bytes) -> None:
    """Raises ProtocolError when the text is not what its checksum was made of."""
    seal = _SEAL.search(text)
    if seal is not None and crc32(text[: seal.start()] + _END) != int(seal[1]):
        raise ProtocolError(
            "its kourouCrc32 does not fit: damaged, or changed by hand (then take that line out)"
        )
