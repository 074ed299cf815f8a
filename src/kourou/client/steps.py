"""What an operation may ask of whoever runs it.

An operation is a generator. It yields one of the steps below, is sent what came of it, and returns its
result; a step that fails is thrown in as the MQError it failed with. What to send, to whom, and what to do
when that fails is therefore written once, and `drive.py` runs it blocking or async.

    Call      one request; sent its reply (None when one-way)
    Launch    a request starts, nobody waits for it yet; sent None
    Collect   sent what came of launched requests: [(token, reply or MQError), ...], empty when time ran out
    Wait      for something another brings, a broker by itself say; sent it, None when time ran out
    Pause     let time pass; sent None
    Fetch     a small page by HTTP; sent its text
    Hear      take in what a server has said by itself, if nobody else reads it; sent None
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from typing import Any, TypeAlias, TypeVar

import msgspec

from kourou.errors import MQError
from kourou.protocol.command import Command


class Call(msgspec.Struct, frozen=True):
    address: str
    command: Command
    timeout: float
    """Seconds."""
    one_way: bool = False


class Launch(msgspec.Struct, frozen=True):
    token: Hashable
    """Comes back with the outcome."""
    call: Call


class Collect(msgspec.Struct, frozen=True):
    timeout: float
    """Seconds to wait for the first outcome."""


class Arrival:
    """Where one thing arrives, once: brought by a handler, awaited by an operation."""

    __slots__ = ("_tell", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self._tell: Callable[[], object] | None = None

    def put(self, value: Any) -> None:
        """It is there. `value` must not be None: that means nothing came."""
        self.value = value
        if self._tell is not None:
            self._tell()

    def when_there(self, tell: Callable[[], object]) -> None:
        """Have `tell` called as soon as it is there; perhaps twice when it comes at this very moment."""
        self._tell = tell
        if self.value is not None:
            tell()


class Wait(msgspec.Struct, frozen=True):
    arrival: Arrival
    timeout: float
    """Seconds."""
    from_broker: bool = True
    """Whether a broker sends it by itself; otherwise another operation of ours brings it."""


class Pause(msgspec.Struct, frozen=True):
    seconds: float


class Fetch(msgspec.Struct, frozen=True):
    url: str
    timeout: float
    """Seconds."""


class Hear(msgspec.Struct, frozen=True):
    address: str


Step: TypeAlias = Call | Launch | Collect | Wait | Pause | Fetch | Hear
Settled: TypeAlias = list[tuple[Hashable, Command | MQError]]

Result = TypeVar("Result")
Operation: TypeAlias = Generator[Step, Any, Result]
