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
from typing import cast

import msgspec

from kourou.errors import ProtocolError
from kourou.native import native

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""As RocketMQ's own decoder, length prefix included."""

HEADER_BYTES_MAX = 256 * 1024
"""Properties are at most 32,767 bytes, but a peer may write each of them as `\\u0001`."""

HEADER_BYTES_MIN = 10
"""`{"code":0}`; a binary header is longer. A flood of empty frames would cost ten times its size."""

IN_PLACE_BYTES_MIN = 64 * 1024
"""What is missing of a frame, from which on it is worth a place of its own."""

PREFIX = Struct(">II")
_PREFIX_PARTS = Struct(">IBBH")  # the header's length in two numbers: saves the masking of a larger one


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One request or reply, its header still in bytes."""

    serialization: int
    header: bytes
    body: bytes


class FrameReader:
    """Turns received bytes into frames; keeps what belongs to the next one.

    Who reads from a socket may ask for `room` first: what is missing of a large frame is then received where
    it stays, and not copied three times; `filled` says how much it was. Else bytes are fed.
    """

    __slots__ = ("_held", "_place", "_wanted")

    def __init__(self) -> None:
        self._held = bytearray()
        self._wanted = 0
        self._place: int | None = None  # up to where a large frame is there, once it has a place of its own

    @property
    def held_bytes(self) -> int:
        """How much of an unfinished frame is waiting here."""
        return len(self._held) if self._place is None else self._place

    def room(self) -> memoryview | None:
        """Where to put the rest of a large frame, and nothing beyond; None when bytes are to be fed."""
        if self._place is None:
            held = len(self._held)
            if self._wanted - held < IN_PLACE_BYTES_MIN or held < PREFIX.size:
                return None
            whole = bytearray(self._wanted)
            whole[:held] = self._held
            self._held, self._place = whole, held
        return memoryview(self._held)[self._place :]

    def filled(self, size: int) -> list[Frame]:
        """So much of the room was filled: the frame, if that is all of it. Its body is a view."""
        assert self._place is not None
        self._place += size
        if self._place < self._wanted:
            return []
        _, serialization, high, header_length = _PREFIX_PARTS.unpack_from(self._held)
        body_at = 8 + (high << 16) + header_length
        whole = memoryview(self._held).toreadonly()
        self._held, self._place, self._wanted = bytearray(), None, 0
        return [Frame(serialization, bytes(whole[8:body_at]), cast("bytes", whole[body_at:]))]

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
        frames, start, wanted = _split(data, Frame)
        if not wanted:
            length, second = PREFIX.unpack_from(data, start)
            raise _impossible(length, second & 0xFF_FFFF)
        if start < len(data):
            self._held += data[start:] if start else data
            self._wanted = wanted
        return frames


def split_plainly(data: bytes, frame: type[Frame]) -> tuple[list[Frame], int, int]:
    """The whole frames in `data`, where the rest of it begins, and how many bytes the frame needs that begins
    there; 0 when its lengths are impossible."""
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
            wanted = 0
            break
        if stop > end:
            wanted = stop - start
            break
        frames.append(frame(serialization, data[header_at:body_at], data[body_at:stop]))
        start = stop
    return frames, start, wanted


_split = split_plainly if native is None else native.split


def join(serialization: int, header: bytes, body: bytes = b"", *more: bytes | memoryview) -> bytes:
    """The bytes of one frame, ready to be sent."""
    header_length = len(header)
    length = 4 + header_length + len(body)
    if more:
        length += sum(map(len, more))
    if length > FRAME_BYTES_MAX - 4 or header_length > HEADER_BYTES_MAX:
        raise _impossible(length, header_length)
    return b"".join((PREFIX.pack(length, serialization << 24 | header_length), header, body, *more))


def _impossible(length: int, header_length: int) -> ProtocolError:
    return ProtocolError(
        f"frame of {length} bytes with a header of {header_length}: a frame has at most {FRAME_BYTES_MAX} "
        f"bytes, its header {HEADER_BYTES_MIN} to {HEADER_BYTES_MAX}, and the header must fit into the frame"
    )
