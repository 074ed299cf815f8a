"""A small JSON file that a broker keeps: topics, groups, offsets.

Written whole and atomically, with the previous generation beside it as `.bak`; read leniently, because
Apache writes integer keys without quotes. A file that cannot be read falls back to the previous
generation; when that one is unreadable too, starting would throw away what it held, so it is an error.
Here errors of the disk become ours: a full one is Busy, since a later try may find room.

What somebody waits for (a topic is created) is on the disk when `save` returns. What is saved now and then is
saved by `save_later`: the waiting for the disk is left to the thread that does this for the log, too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from kourou.doors.files import Files, is_full
from kourou.errors import Busy, Corrupt, DiskFault, ProtocolError, StoreError
from kourou.protocol import fastjson
from kourou.protocol.codes import ResponseCode
from kourou.protocol.sealed import check_seal, sealed
from kourou.store.flush import Background

logger = logging.getLogger(__name__)

State = TypeVar("State", bound=msgspec.Struct)

Defer = Callable[[Callable[[], None]], None]
"""Has work done a little later: at the end of the tick, where there is one."""


Done = Callable[[BaseException | None], None]


class StateFile:
    """One file, `path`, below a store's `config` folder."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._writing = threading.Lock()  # one at a time, in whichever thread
        self._newest = 0

    def load(self, kind: type[State]) -> State | None:
        """What was saved last; None when nothing ever was."""
        previous_path = self._path + ".bak"
        try:
            state = self._read(self._path, kind)
        except ProtocolError as damage:
            state = self._previous(previous_path, kind, damage)
            logger.warning("%s is unreadable (%s); using %s", self._path, damage, previous_path)
            return state
        if state is None:
            return self._read(previous_path, kind)
        # It may have come here just before a kill: what is believed now must outlast a power cut, too.
        self._files.sync_folder(self._path.rpartition("/")[0])
        return state

    def load_newest(self, kind: type[State]) -> State | None:
        """The same, for what must not be forgotten: a damaged file does not give way to the one before it.

        Raises Corrupt.
        """
        try:
            if self._files.exists(self._path) and self._read(self._path, kind) is None:
                raise ProtocolError("empty")
        except ProtocolError as damage:
            raise Corrupt(f"{self._path} is unreadable ({damage})") from None
        return self.load(kind)

    def save(self, state: msgspec.Struct) -> None:
        """Replace the file; a crash leaves either the old or the new one, whole. Raises Busy, DiskFault."""
        self._newest += 1
        self._write(type(state), msgspec.json.encode(state), self._newest)

    def save_later(self, state: msgspec.Struct, background: Background, done: Done) -> None:
        """The same, as `state` is now, on another thread; then `done(why not, or None)` is called on this."""
        self._newest += 1
        write = partial(self._write, type(state), msgspec.json.encode(state), self._newest)
        background(write, done)

    def _write(self, kind: type[msgspec.Struct], data: bytes, number: int) -> None:
        data = msgspec.json.format(data, indent=1)
        fastjson.decode(data, kind)  # what cannot be read back must not take the place of what can
        with self._writing:
            if number == self._newest:  # else a later one was quicker, or is about to be written
                self._replace(sealed(data))

    def _replace(self, data: bytes) -> None:
        try:
            self._files.write_atomically(self._path, data)
        except OSError as error:
            what = f"{self._path} cannot be written: {error.strerror or error}"
            if is_full(error):
                raise Busy(ResponseCode.SERVICE_NOT_AVAILABLE, f"{what}; free some space") from None
            raise DiskFault(f"{what}; see to the disk") from None

    def _read(self, path: str, kind: type[State]) -> State | None:
        if not self._files.exists(path):
            return None
        try:
            data = self._files.read(path)
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror or error}") from None
        if not data.strip():
            return None
        check_seal(data)
        return fastjson.decode(data, kind)

    def _previous(self, path: str, kind: type[State], damage: ProtocolError) -> State:
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


class SaveSoon:
    """Saves once at the end of the tick, however often it is asked to.

    For what makes itself (groups, retry topics): it counts at once. On a full disk reading goes on, and it is
    saved with the next change.
    """

    def __init__(self, what: str, save: Callable[[], None], defer: Defer) -> None:
        self._what = what
        self._save = save
        self._defer = defer
        self._is_due = False

    def __call__(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._defer(self._save_now)

    def _save_now(self) -> None:
        self._is_due = False
        try:
            self._save()
        except Busy as error:
            logger.warning("%s are not saved yet: %s", self._what, error)
