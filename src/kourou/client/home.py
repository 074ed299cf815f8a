"""The process a client belongs to.

A fork has copies of its parent's sockets, and none of its threads: two processes would take each other's
answers off one connection, give the same ids to different messages, and wait for threads that are not there.
So a client serves the process that made it, and tells every other to make its own.
"""

from __future__ import annotations

import os

from kourou.errors import ConfigError

_generation = 0
"""How often this process was forked off another. Every send looks at it: the id of the process would take
a system call each time."""


class Home:
    """Where a client was made."""

    __slots__ = ("_generation", "_process_id", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._generation = _generation
        self._process_id = os.getpid()

    @property
    def is_here(self) -> bool:
        return self._generation == _generation

    def check(self) -> None:
        """Raises ConfigError in a process that was forked from the one it was made in."""
        if self._generation != _generation:
            raise ConfigError(
                f"this {self._what} was made in process {self._process_id}, and this is process "
                f"{os.getpid()}, forked from it; make one in each process"
            )


def _forked() -> None:
    global _generation
    _generation += 1


os.register_at_fork(after_in_child=_forked)
