"""What an operation may ask of whoever runs it.

An operation is a generator. It yields one of the steps below, is sent what came of it, and returns its
result; a step that fails is thrown in as the MQError it failed with. What to send, to whom, and what to do
when that fails is therefore written once, and `drive.py` runs it blocking or async.

    Call      one request; sent its reply (None when one-way)
    Launch    a request starts, nobody waits for it yet; sent None
    Collect   sent what came of launched requests: [(token, reply or MQError), ...], empty when time ran out
"""

from __future__ import annotations

from collections.abc import Generator, Hashable
from typing import Any, NamedTuple, TypeAlias, TypeVar

from kourou.errors import MQError
from kourou.protocol.command import Command


class Call(NamedTuple):
    address: str
    command: Command
    timeout: float
    """Seconds."""
    one_way: bool = False


class Launch(NamedTuple):
    token: Hashable
    """Comes back with the outcome."""
    call: Call


class Collect(NamedTuple):
    timeout: float
    """Seconds to wait for the first outcome."""


Step: TypeAlias = Call | Launch | Collect
Settled: TypeAlias = list[tuple[Hashable, Command | MQError]]

Result = TypeVar("Result")
Operation: TypeAlias = Generator[Step, Any, Result]
