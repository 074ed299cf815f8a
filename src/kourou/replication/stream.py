"""The bytes between a master and its slaves, on the HA port.

The original's, without a greeting, a version or a checksum:

    slave  -> master   i64 how far its log reaches: at first, after each growth, and every five seconds
    master -> slave    i64 place of the first byte | i32 size (0: only a sign of life) | bytes of the log

A frame cuts records anywhere and never goes beyond the end of a log file.

Our own nodes find each other by a report of -1, which a master of the original's takes for none:

    slave  -> master   ff ff ff ff ff ff ff ff
    master -> slave    i64 -1 | i32 size | JSON: words of the handshake, both ways, until "begin"; then
    master -> slave    i64 place | i32 size | i64 term | i64 what readers may see | bytes of the log
    slave  -> master   i64 term | i64 how far its log reaches, as durable as it was asked to be

A size of -1 says that topics or groups have changed: ask for them. It stands where a place would be how many
changes there were; when the slave has copied them it reports that number, negative, in place of a place.

Nothing here touches a socket: feed bytes in, take meaning out.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from kourou.errors import ProtocolError

REPORT: Final = Struct(">q")
FRAME: Final = Struct(">qi")
OUR_REPORT: Final = Struct(">qq")
OUR_FRAME: Final = Struct(">qiqq")

GREETING: Final = b"\xff" * 8
WORDS_AT: Final = -1
METADATA_CHANGED: Final = -1

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
WORDS_BYTES_MAX: Final = 1024 * 1024


def words(text: bytes) -> bytes:
    """A frame of the handshake."""
    return FRAME.pack(WORDS_AT, len(text)) + text


class WordsReader:
    """Turns received bytes into the words of the handshake; what follows the last of them is kept."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> bytes | None:
        """The next words, if they are complete. Raises ProtocolError when it is something else."""
        buffer = self._buffer
        if len(buffer) < FRAME.size:
            return None
        place, size = FRAME.unpack_from(buffer)
        if place != WORDS_AT or not 0 < size <= WORDS_BYTES_MAX:
            raise ProtocolError(f"a frame at {place} of {size} bytes, where words of a handshake are due")
        if len(buffer) < FRAME.size + size:
            return None
        text = bytes(buffer[FRAME.size : FRAME.size + size])
        del buffer[: FRAME.size + size]
        return text

    def rest(self) -> bytes:
        """What came after the words that were taken."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest


class ReportReader:
    """What a slave reports, in the original's form or ours."""

    def __init__(self, report: Struct) -> None:
        self._report = report
        self._kept = b""

    def feed(self, data: bytes) -> list[tuple[int, ...]]:
        """The last complete reports, of places and of changes. The ones before them are out of date."""
        data = self._kept + data
        size = self._report.size
        whole = len(data) - len(data) % size
        self._kept = data[whole:]
        reports = self._report.iter_unpack(data[:whole])
        return list({report[-1] < 0: report for report in reports}.values())


class FrameReader:
    """A master's frames, in the original's form or ours: gives the log's bytes as they come."""

    def __init__(self, header: Struct, began: Callable[..., None]) -> None:
        """`began(place, size, …)` is called with each header, before its bytes; it may raise to refuse."""
        self._header = header
        self._began = began
        self._kept = b""  # of a header
        self._left = 0  # of a frame's bytes

    @property
    def is_in_a_frame(self) -> bool:
        """Whether more bytes of the last frame are to come."""
        return self._left > 0

    def feed(self, data: bytes) -> list[bytes]:
        """Bytes of the log, in order. Raises ProtocolError on an impossible size."""
        if self._kept:
            data, self._kept = self._kept + data, b""
        chunks: list[bytes] = []
        at, end, header_bytes = 0, len(data), self._header.size
        while at < end:
            if self._left:
                chunk = data[at : at + self._left]
                chunks.append(chunk)
                self._left -= len(chunk)
                at += len(chunk)
                continue
            if end - at < header_bytes:
                self._kept = data[at:]
                break
            header = self._header.unpack_from(data, at)
            at += header_bytes
            size = header[1]
            if not METADATA_CHANGED <= size <= FRAME_BYTES_MAX:
                raise ProtocolError(f"a frame of {size} bytes at {header[0]}")
            self._began(*header)
            self._left = max(0, size)
        return chunks
