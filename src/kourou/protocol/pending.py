"""Requests that await a reply, by their opaque number, each with its deadline.

Knows no clock and no socket: `now` is given, and what waits is a callback. One table a connection; the
numbers are shared by nobody else, and a server's own requests have a table of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kourou.protocol.command import Command

Settle = Callable[[Command | Exception], None]
"""Told the reply, or why there will be none. Called once."""

OPAQUE_MAX = 0x7FFF_FFFF


class _Waiting(NamedTuple):
    deadline: float
    settle: Settle


class Pending:
    """The open requests of one connection."""

    __slots__ = ("_next", "_waiting")

    def __init__(self) -> None:
        self._next = 1  # a Node client takes 0 for "no number"
        self._waiting: dict[int, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def number(self) -> int:
        """The next free opaque number."""
        number = self._next
        while number in self._waiting:
            number = number % OPAQUE_MAX + 1
        self._next = number % OPAQUE_MAX + 1
        return number

    def add(self, opaque: int, deadline: float, settle: Settle) -> None:
        assert opaque not in self._waiting
        self._waiting[opaque] = _Waiting(deadline, settle)

    def answer(self, reply: Command) -> bool:
        """Settle the request `reply` belongs to; False when nobody waits for it any more."""
        waiting = self._waiting.pop(reply.opaque, None)
        if waiting is None:
            return False
        waiting.settle(reply)
        return True

    def forget(self, opaque: int) -> None:
        """Nobody waits for this one any more."""
        self._waiting.pop(opaque, None)

    def expire(self, now: float, error: Callable[[int], Exception]) -> int:
        """Settle what is overdue with `error(opaque)`; returns how many."""
        overdue = [opaque for opaque, waiting in self._waiting.items() if waiting.deadline <= now]
        for opaque in overdue:
            self._waiting.pop(opaque).settle(error(opaque))
        return len(overdue)

    def next_deadline(self) -> float | None:
        return min((waiting.deadline for waiting in self._waiting.values()), default=None)

    def fail_all(self, error: Exception) -> None:
        """The connection is gone: nothing will be answered."""
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            each.settle(error)
