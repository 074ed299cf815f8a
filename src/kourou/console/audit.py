"""Who changed what, from where, and what came of it: one line for every change, added and never altered.

    audit.jsonl     {"at_ms", "user", "address", "deed", "on", "details", "result"}      mode 0600
    audit.1.jsonl   the one before, once it has grown to its bound

Secrets and message bodies are not in it: those who write an entry leave them out.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable

import msgspec

from kourou.doors.clock import Clock
from kourou.doors.private_folder import PrivateFolder

FILE, OLD_FILE = "audit.jsonl", "audit.1.jsonl"
FILE_BYTES_MAX = 16 * 1024 * 1024
REMEMBERED_MAX = 5000
"""As many can be looked at in the console; all others are in the files."""
TEXT_CHARACTERS_MAX = 500

OK = "ok"

_log = logging.getLogger("kourou.console")


class Entry(msgspec.Struct, frozen=True):
    at_ms: int
    user: str
    address: str
    deed: str
    """`topic.create`, `group.reset`, `login`, …"""
    on: str
    """What it was done to."""
    details: dict[str, str] = {}
    result: str = OK
    """`ok`, or why not."""


class Audit:
    """The log. Any thread may write."""

    def __init__(self, folder: PrivateFolder, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: deque[Entry] = deque(_read(folder), maxlen=REMEMBERED_MAX)

    def write(
        self,
        *,
        user: str,
        address: str,
        deed: str,
        on: str,
        details: dict[str, str] | None = None,
        result: str = OK,
    ) -> None:
        """On the disk when this returns. Raises OSError when it cannot be kept: say so to who did it."""
        entry = Entry(
            self._clock.now_ms(),
            user,
            address,
            deed,
            on[:TEXT_CHARACTERS_MAX],
            {key: value[:TEXT_CHARACTERS_MAX] for key, value in (details or {}).items()},
            result[:TEXT_CHARACTERS_MAX],
        )
        with self._lock:
            self._entries.append(entry)
            size = self._folder.append(FILE, msgspec.json.encode(entry) + b"\n")
            if size > FILE_BYTES_MAX:
                self._folder.rename(FILE, OLD_FILE)

    def find(self, text: str = "") -> list[Entry]:
        """The newest first; those in which `text` occurs."""
        wanted = text.lower()
        with self._lock:
            entries = list(self._entries)
        return [entry for entry in reversed(entries) if wanted in _as_text(entry)]


def _as_text(entry: Entry) -> str:
    parts = (entry.user, entry.address, entry.deed, entry.on, entry.result, *entry.details.values())
    return " ".join(parts).lower()


def _read(folder: PrivateFolder) -> Iterable[Entry]:
    data = folder.read(FILE) or b""
    for number, line in enumerate(data.splitlines()[-REMEMBERED_MAX:]):
        try:
            yield msgspec.json.decode(line, type=Entry)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            _log.warning("line %d of %s/%s is unreadable, and passed over", number + 1, folder.path, FILE)
