"""What a pipeline writes down for itself, in JSON: how far a lake is, what was restored, what was sent.

Each is written under another name, synced and renamed, so one that cannot be read was damaged afterwards.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from kourou.doors.files import Files
from kourou.errors import Corrupt

Note = TypeVar("Note")


def read_note(files: Files, path: str, kind: type[Note], way_out: str) -> Note:
    """The note at `path`; raises Corrupt, with the way out, when it is none of this kind."""
    data = files.read(path)
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        why = "it is empty" if not data else str(error)
        raise Corrupt(f"'{path}' cannot be read: {why}; {way_out}") from None
