"""A small JSON file that a broker keeps: topics, groups, offsets.

Written whole and atomically, with the previous generation beside it as `.bak`; read leniently, because
Apache writes integer keys without quotes. A file that cannot be read falls back to the previous
generation; when that one is unreadable too, starting would throw away what it held, so it is an error.
"""

from __future__ import annotations

import logging
from typing import TypeVar

import msgspec

from kourou.doors.files import Files
from kourou.errors import Corrupt, MQError, ProtocolError
from kourou.protocol import fastjson

logger = logging.getLogger(__name__)

State = TypeVar("State", bound=msgspec.Struct)


class StateFile:
    """One file, `path`, below a store's `config` folder."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path

    def load(self, kind: type[State]) -> State | None:
        """What was saved last; None when nothing ever was."""
        previous_path = self._path + ".bak"
        try:
            state = self._read(self._path, kind)
        except MQError as damage:
            state = self._previous(previous_path, kind, damage)
            logger.warning("%s is unreadable (%s); using %s", self._path, damage, previous_path)
            return state
        return state if state is not None else self._read(previous_path, kind)

    def save(self, state: msgspec.Struct) -> None:
        """Replace the file; a crash leaves either the old or the new one, whole."""
        self._files.write_atomically(self._path, msgspec.json.format(msgspec.json.encode(state), indent=1))

    def _read(self, path: str, kind: type[State]) -> State | None:
        if not self._files.exists(path):
            return None
        data = self._files.read(path)
        return fastjson.decode(data, kind) if data.strip() else None

    def _previous(self, path: str, kind: type[State], damage: MQError) -> State:
        try:
            state = self._read(path, kind)
        except ProtocolError as error:
            damage, state = error, None
        if state is None:
            raise Corrupt(
                f"{self._path} is unreadable ({damage}) and there is no usable {path}: restore one of them "
                f"from a backup, or move both away to start without what they held"
            )
        return state
