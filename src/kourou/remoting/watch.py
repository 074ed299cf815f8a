"""When a connection has used up its patience. One look a second at each, no timer per frame.

    first frame   none complete within `first_frame_seconds` (a TLS handshake is part of it)
    frame         the same one unfinished for `frame_seconds`: one byte a second is an attack
    idle          nothing read or written for `idle_seconds`
    stalled       it does not read what we wrote, for `write_stall_seconds`
    overfull      more than `write_buffer_bytes_max` waits for it, for `write_stall_seconds`

Times are as exact as the looks are frequent: late by one look at most, never early.
"""

from __future__ import annotations

from typing import Protocol

from kourou.remoting.config import ServerConfig

PROGRESS_BYTES = (
    64 * 1024
)  # less than this in `write_stall_seconds` is no progress, unless it is all there was


class Watched(Protocol):
    """What is looked at: running counts, so that the hot path only ever adds."""

    reads: int
    writes: int
    frames: int
    bytes_out: int
    partial_bytes: int

    @property
    def write_buffer_bytes(self) -> int: ...

    @property
    def is_held_back(self) -> bool:
        """We ourselves do not read from it at the moment."""


class Watch:
    """What was seen at the last looks at one connection."""

    __slots__ = (
        *("_active_at", "_activity", "_drained", "_frames", "_opened_at"),
        *("_overfull_since", "_partial_since", "_unread_since"),
    )

    def __init__(self, now: float) -> None:
        self._opened_at = self._active_at = now
        self._activity = self._frames = self._drained = 0
        self._partial_since: float | None = None
        self._unread_since: float | None = None
        self._overfull_since: float | None = None

    def overdue(self, seen: Watched, now: float, config: ServerConfig) -> str | None:
        """Why the connection is to be closed now, or None."""
        self._look(seen, now, config)
        if not seen.frames and now - self._opened_at >= config.first_frame_seconds:
            return "first frame"
        if self._partial_since is not None and now - self._partial_since >= config.frame_seconds:
            return "frame"
        if self._unread_since is not None and now - self._unread_since >= config.write_stall_seconds:
            return "stalled"
        if self._overfull_since is not None and now - self._overfull_since >= config.write_stall_seconds:
            return "overfull"
        if now - self._active_at >= config.idle_seconds:
            return "idle"
        return None

    def _look(self, seen: Watched, now: float, config: ServerConfig) -> None:
        if seen.is_held_back:  # not its fault
            self._opened_at, self._partial_since = now, None
        elif not seen.partial_bytes:
            self._partial_since = None
        elif self._partial_since is None or seen.frames != self._frames:
            self._partial_since = now
        self._frames = seen.frames

        unread = seen.write_buffer_bytes
        drained = seen.bytes_out - unread
        if not unread:
            self._unread_since = None
        elif self._unread_since is None or drained - self._drained >= PROGRESS_BYTES:
            self._unread_since, self._drained = now, drained
        if unread <= config.write_buffer_bytes_max:
            self._overfull_since = None
        elif self._overfull_since is None:
            self._overfull_since = now

        activity = seen.reads + seen.writes
        if activity != self._activity:
            self._activity, self._active_at = activity, now
