"""A wall clock that can be set while a broker runs, to see what the broker makes of it.

    KOUROU_CLOCK=FILE       eight bytes: a signed number of milliseconds, the least significant byte first

By so much this process's wall clock is ahead of the machine's. Whoever writes to the file sets the clock, at
once and without a word, as somebody sets the clock of a machine; other processes keep their own time, and
monotonic time does not notice. Without that variable a process has the usual clock, and pays nothing.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from struct import Struct
from typing import Final

from kourou.doors.clock import Clock, RealClock
from kourou.errors import ConfigError

VARIABLE: Final = "KOUROU_CLOCK"

_AHEAD_MS: Final = Struct("<q")


class AdjustedClock(RealClock):
    """Ahead of the machine's clock, or behind it, by what a file says."""

    def __init__(self, path: str) -> None:
        """Raises ConfigError when the file is not there, or too short."""
        try:
            with open(path, "rb") as file:
                self._map = mmap.mmap(file.fileno(), _AHEAD_MS.size, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{VARIABLE} is {path!r}: {error}; name a file of {_AHEAD_MS.size} bytes, or leave it out"
            ) from None

    def now_ms(self) -> int:
        ahead_ms: int = _AHEAD_MS.unpack_from(self._map)[0]
        return super().now_ms() + ahead_ms


def machine_clock(environment: Mapping[str, str]) -> Clock:
    """The machine's clock; another one where the variable says so."""
    path = environment.get(VARIABLE)
    return AdjustedClock(path) if path else RealClock()


def set_clock(path: str, ahead_ms: int) -> None:
    """Have those who look into `path` be so much ahead of the machine's clock; makes the file."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)  # not anew: they look into this one
    try:
        os.pwrite(file, _AHEAD_MS.pack(ahead_ms), 0)
    finally:
        os.close(file)
