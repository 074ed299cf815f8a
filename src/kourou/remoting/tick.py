"""All that happens between two looks at the sockets.

    read, read, read …  ->  work, work …  ->  one write per connection  ->  the rest  ->  look again

Requests of many connections are handled one after the other; what they leave to be done together (one
append for all sends, say) runs once all reads of this turn of the event loop are through, and what was
answered meanwhile goes out with one write per connection. At 64 connections with one request in flight
each this about doubles the rate.

What no answer waits for comes last: while this side shows a new message to its readers, the other side has
its answer, and asks for the next; bench: send 1x1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Tick:
    """Collected work, then one flush per connection that has something to say.

    One per event loop, shared by all servers that want their work done together. Not thread-safe.
    """

    __slots__ = ("_flushes", "_loop", "_rest", "_scheduled", "_work")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._work: list[Callable[[], None]] = []
        self._flushes: list[Callable[[], None]] = []
        self._rest: list[Callable[[], None]] = []
        self._scheduled = False

    def at_end(self, work: Callable[[], None]) -> None:
        """Call `work` after all reads of this tick and before its writes.

        Work asked for by work runs in the same tick. Asking twice runs it twice.
        """
        self._work.append(work)
        if not self._scheduled:
            self._schedule()

    def flush_at_end(self, flush: Callable[[], None]) -> None:
        """Call `flush` after all work: a connection writes what it has gathered."""
        self._flushes.append(flush)
        if not self._scheduled:
            self._schedule()

    def after_writes(self, work: Callable[[], None]) -> None:
        """Call `work` after the writes of this tick and before the next reads: what no answer waits for, and
        whoever got one must find done. What it has to say is written at once."""
        self._rest.append(work)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        # The loop runs this after the reads it has already found ready, before it looks for new ones.
        self._loop.call_soon(self._run)

    def _run(self) -> None:
        while self._work:
            work, self._work = self._work, []
            _attempt_all(work)
        self._scheduled = False
        self._write()
        if self._rest:
            self._do_the_rest()

    def _write(self) -> None:
        flushes, self._flushes = self._flushes, []
        _attempt_all(flushes)

    def _do_the_rest(self) -> None:
        is_scheduled, self._scheduled = self._scheduled, True
        while self._rest:
            rest, self._rest = self._rest, []
            _attempt_all(rest)
            if self._flushes:
                self._write()
        self._scheduled = is_scheduled
        if not is_scheduled and (self._work or self._flushes):
            self._schedule()


def _attempt_all(work: list[Callable[[], None]]) -> None:
    """One failure must not take away the others' turn."""
    for each in work:
        try:
            each()
        except Exception:
            logger.exception("work at the end of a tick failed: %r", each)
