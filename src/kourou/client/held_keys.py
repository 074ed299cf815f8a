"""The keys of an ordered queue whose messages wait, while those of other keys go on.

    waiting      b2 a3 c1 a4            a1 has failed: `a` is held up
                  |  |  |  |
    held up       |  a1 a2 a3 a4        its messages gather behind it, in their order
    go on        b2    c1

When the pause of a key is over, its messages come before all that waits: they are older. The place of the
queue stays before the first of them, so nothing is lost when this member disappears.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kourou.message import ReceivedMessage

KeyOf = Callable[[ReceivedMessage], str | None]


class HeldKeys:
    """Those of one queue. Belongs to the event loop."""

    __slots__ = ("_attempts", "_free", "_held_up")

    def __init__(self) -> None:
        self._held_up: dict[str, deque[ReceivedMessage]] = {}
        self._free: list[deque[ReceivedMessage]] = []
        self._attempts: dict[str, int] = {}

    def sort_out(self, waiting: deque[ReceivedMessage], key_of: KeyOf) -> None:
        """Leave those in `waiting` that may go on. Not while any of them is being handled."""
        for messages in self._free:
            waiting.extendleft(reversed(messages))
        self._free.clear()
        if self._held_up:
            for _ in range(len(waiting)):
                message = waiting.popleft()
                self._held_up.get(key_of(message) or "", waiting).append(message)

    def hold_up(self, key: str, message: ReceivedMessage) -> None:
        """`message` goes to the end of those held up with `key`."""
        self._held_up.setdefault(key, deque()).append(message)

    def free(self, key: str) -> None:
        """Its messages may go on, the next time they are sorted out."""
        messages = self._held_up.pop(key, None)
        if messages is not None:
            self._free.append(messages)

    def failed(self, key: str) -> int:
        """How often the first message of `key` has failed, this time included."""
        self._attempts[key] = self._attempts.get(key, 0) + 1
        return self._attempts[key]

    def went_on(self, key: str) -> None:
        """A message of `key` is done, or given up."""
        self._attempts.pop(key, None)

    @property
    def is_idle(self) -> bool:
        """Nothing has failed, nothing is held up: there is nothing to sort out."""
        return not (self._attempts or self._held_up or self._free)

    def clear(self) -> None:
        self._held_up.clear()
        self._free.clear()
        self._attempts.clear()
