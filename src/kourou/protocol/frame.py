"""Split a byte stream into frames, and join frames into bytes.

    +--------+---------------+---------------+--------+------+
    | length | serialization | header length | header | body |
    +--------+---------------+---------------+--------+------+
       u32          u8              u24

`length` counts all that follows it. Nothing here touches a socket: feed bytes in, take frames out. One
byte at a time or a megabyte at once, the frames are the same.
"""

from __future__ import annotations

from struct import Struct

import msgspec

from kourou.errors import ProtocolError

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""As RocketMQ's own decoder, length prefix included."""

HEADER_BYTES_MAX = 256 * 1024
"""Properties are at most 32,767 bytes, but a peer may write each of them as `\\u0001`."""

HEADER_BYTES_MIN = 10
"""`{"code":0}`; a binary header is longer. A flood of empty frames would cost ten times its size."""

PREFIX = Struct(">II")
_PREFIX_PARTS = Struct(">IBBH")  # the header's length in two numbers: saves the masking of a larger one


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One request or reply, its header still in bytes."""

    serialization: int
    header: bytes
    body: bytes


class FrameReader:
    """Turns received bytes into frames; keeps what belongs to the next one."""

    __slots__ = ("_held", "_wanted")

    def __init__(self) -> None:
        self._held = bytearray()
        self._wanted = 0

    @property
    def held_bytes(self) -> int:
        """How much of an unfinished frame is waiting here."""
        return len(self._held)

    def feed(self, data: bytes) -> list[Frame]:
        """Take in `data`, return the frames it completes.

        Raises ProtocolError on an impossible length. The stream has then lost its place for good: close
        the connection.
        """
        if self._held:
            self._held += data
            if len(self._held) < self._wanted:
                return []
            # One copy for a whole frame: cutting `bytes` is twice as fast as cutting a bytearray.
            data = bytes(self._held)
            self._held = bytearray()
        frames: list[Frame] = []
        start, end = 0, len(data)
        wanted = PREFIX.size
        while end - start >= wanted:
            length, serialization, high, header_length = _PREFIX_PARTS.unpack_from(data, start)
            if high:
                header_length += high << 16
            header_at = start + 8
            body_at = header_at + header_length
            stop = start + 4 + length
            if (
                body_at > stop
                or length > FRAME_BYTES_MAX - 4
                or not HEADER_BYTES_MIN <= header_length <= HEADER_BYTES_MAX
            ):
                raise _impossible(length, header_length)
            if stop > end:
                wanted = stop - start
                break
            frames.append(Frame(serialization, data[header_at:body_at], data[body_at:stop]))
            start = stop
        if start < end:
            self._held += data[start:] if start else data
            self._wanted = wanted
        return frames


def join(serialization: int, header: bytes, body: bytes = b"") -> bytes:
    """The bytes of one frame, ready to be sent."""
    header_length = len(header)
    length = 4 + header_length + len(body)
    if length > FRAME_BYTES_MAX - 4 or header_length > HEADER_BYTES_MAX:
        raise _impossible(length, header_length)
    return b"".join((PREFIX.pack(length, serialization << 24 | header_length), header, body))


def _impossible(length: int, header_length: int) -> ProtocolError:
    return ProtocolError(
        f"frame of {length} bytes with a header of {header_length}: a frame has at most {FRAME_BYTES_MAX} "
        f"bytes, its header {HEADER_BYTES_MIN} to {HEADER_BYTES_MAX}, and the header must fit into the frame"
    )
