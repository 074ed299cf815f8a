"""Topics that were deleted, and where the log ended then.

A topic's records stay in the log when it is deleted, until their file goes. A recovery that walks over them
must not bring the topic back; and if it was made again, the records of its new life have the same queue
offsets as those of the old one. So deletion is noted, durably and before anything else of it happens:

    deletedtopics.json      {"orders": 4096}      records of `orders` before byte 4096 are nobody's

A wrong number there would hide messages that are somebody's, so the file is sealed; and when a log turns out
to end before a place that is noted, the note is lowered before anything new takes the bytes between.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from kourou.doors.files import Files
from kourou.errors import Corrupt, ProtocolError
from kourou.protocol.sealed import KEY, check_seal, sealed

FILE: Final = "deletedtopics.json"

_decode = msgspec.json.Decoder(dict[str, int]).decode
log = logging.getLogger(__name__)


def read_deleted(data: bytes) -> dict[str, int]:
    """Where the log ended when each topic was deleted. Raises Corrupt."""
    try:
        check_seal(data)
        ends = _decode(data)
    except (ProtocolError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Corrupt(str(error)) from None
    ends.pop(KEY, None)
    return ends


class DeletedTopics:
    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self._path = f"{root}/{FILE}"
        self._ends: dict[str, int] = {}

    def load(self) -> None:
        """Read the note, or the one before it if a crash or bad luck left none that can be read."""
        for path in (self._path, f"{self._path}.bak"):
            if self._files.exists(path):
                try:
                    self._ends = read_deleted(self._files.read(path))
                    return
                except Corrupt as error:
                    log.error("%s cannot be read: %s; deleted topics may come back", path, error)

    def end_of(self, topic: str) -> int:
        """Records of this topic before that place belong to a former life; 0 when it had none."""
        return self._ends.get(topic, 0)

    @property
    def topics(self) -> list[str]:
        return list(self._ends)

    def note(self, topic: str, end: int, log_start: int) -> None:
        """`topic` is deleted, and the log ends at `end`; what lies before `log_start` is gone anyway. Raises
        OSError; then it is not noted."""
        ends = {name: place for name, place in self._ends.items() if place > log_start}
        ends[topic] = end
        self._files.write_atomically(self._path, _encode(ends))
        self._ends = ends

    def cut(self, end: int) -> None:
        """The log ends at `end`: whatever comes there next is of no former life. Raises OSError; then it must
        not go on."""
        if all(place <= end for place in self._ends.values()):
            return
        ends = {name: min(place, end) for name, place in self._ends.items() if end > 0}
        data = _encode(ends)
        # Both generations, and the one that is read first last: a crash between them has this done again.
        for path in (f"{self._path}.bak", self._path):
            self._files.write_atomically(path, data, keep_previous=False)
        self._ends = ends


def _encode(ends: dict[str, int]) -> bytes:
    return sealed(msgspec.json.format(msgspec.json.encode(ends), indent=1))
