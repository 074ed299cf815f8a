"""Every exception Kourou raises on purpose, drawn by what the reader can do about it.

    MQError
     ├─ ConfigError            fix the option, the file or the call; nothing was started or sent
     │   ├─ MissingExtra       install the named extra
     │   └─ AddressTaken       another process listens there: stop it, or choose another address
     ├─ ProtocolError          the peer broke the format: hang up
     │   └─ DecompressionLimit   a body inflates beyond its bound
     ├─ Unreachable            try elsewhere, or later
     │   ├─ TimedOut             no answer in time: the request may or may not have been carried out
     │   └─ ConnectionLost       likewise, because the connection broke while waiting
     ├─ Refused                the peer said no: `code`, `remark`
     │   ├─ NotFound             no such topic, key, group
     │   │   └─ NoMaster           there is one, and nobody to write to: start its master, or wait
     │   ├─ Denied               no permission
     │   └─ Busy                 back-pressure: wait and retry
     └─ StoreError             a data folder cannot be used as asked
         ├─ StoreLocked          another process has it
         ├─ StoreForeign         written by something we do not understand: left untouched
         ├─ Corrupt              the bytes are not what was written
         └─ DiskFault            the disk failed: nothing is acknowledged any more

A message names the value and the way out. `retryable` tells a client whether another try can help;
`exit_code` is what the command line ends with.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AddressTaken",
    "Busy",
    "ConfigError",
    "ConnectionLost",
    "Corrupt",
    "DecompressionLimit",
    "Denied",
    "DiskFault",
    "MQError",
    "MissingExtra",
    "NoMaster",
    "NotFound",
    "ProtocolError",
    "Refused",
    "StoreError",
    "StoreForeign",
    "StoreLocked",
    "TimedOut",
    "Unreachable",
]


class MQError(Exception):
    """Anything that goes wrong in a way we foresaw."""

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1


class ConfigError(MQError):
    """An option, a file or an argument that cannot be used; nothing has happened yet."""

    exit_code = 2


class MissingExtra(ConfigError):
    """An optional dependency is needed; the message names the extra to install."""


class AddressTaken(ConfigError):
    """Another process listens on the address this one was to have; it may be gone soon."""

    exit_code = 1  # as StoreLocked: a supervisor may try again, which it does not after a 2


class ProtocolError(MQError):
    """The peer's bytes make no sense. The stream has lost its place: close the connection."""


class DecompressionLimit(ProtocolError):
    """A compressed body grows beyond what is allowed."""


class Unreachable(MQError):
    """No connection could be made, or it is gone."""

    retryable = True
    exit_code = 5


class TimedOut(Unreachable):
    """No answer in time. Whether the request was carried out is unknown."""


class ConnectionLost(Unreachable):
    """The connection broke while a reply was awaited. Whether the request was carried out is unknown."""


class Refused(MQError):
    """A peer answered, and the answer is no.

    `code` is the response code as it travels, `remark` the peer's own words. A handler raises this to
    refuse a request; a client gets it back on the other side.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = int(code)
        self.remark = remark

    def __reduce__(self) -> tuple[type[Refused], tuple[int, str]]:
        return type(self), (self.code, self.remark)  # a Spark worker's error travels to its driver


class NotFound(Refused):
    """The thing asked for does not exist there."""

    exit_code = 3


class NoMaster(NotFound):
    """What was asked for may well exist, and no master that could tell or change it is known."""

    exit_code = 5  # a script that takes "not there" for "already gone" must not take this for it


class Denied(Refused):
    """The peer does not allow it."""

    exit_code = 4


class Busy(Refused):
    """The peer has too much to do right now."""

    retryable = True


class StoreError(MQError):
    """A data folder cannot be used as asked."""


class StoreLocked(StoreError):
    """Another process has the data folder open."""


class StoreForeign(StoreError):
    """The data folder has a format, or holds files, that this version does not understand."""

    exit_code = 2


class Corrupt(StoreError):
    """Bytes on disk are not what was written."""

    exit_code = 74


class DiskFault(StoreError):
    """The disk failed. What is in the page cache can no longer be trusted, so nothing is acknowledged."""

    exit_code = 74
