"""What the connections of one server or client share: whom they call, and how much they may hold together.

Each of these sums has the same bound, `total_in_flight_bytes_max`:

    partial_bytes     half received frames             above it, whoever holds most is hung up on
    in_flight_bytes   requests being worked on         above it, nobody is read from until half is done
    parked_bytes      requests that wait (long polls)  above it, whoever holds most is hung up on
    unread_bytes      answers gathered or not yet      above it, whoever holds most is hung up on
                      taken, and what was put off

A few hundred bytes of requests may ask for megabytes, so one tick answers an eighth of the bound and no
more: then everybody stands in line until what was answered has been written. Together with hanging up at
once, not at the next sweep, this keeps `unread_bytes` where it belongs however many peers ask and do not
read.

For the same reason a tick takes up `TICK_REQUEST_BYTES_MAX` of requests, or answers `TICK_ANSWER_BYTES_MAX`,
some milliseconds of work, and no more: whoever asks next is heard after that. The line is in truth two, each
first come first served: of those who want a request or two, and of those who want many at once. They take
turns, tick by tick: so a crowd of greedy peers waits long, and nobody else does.

What begins alike and came from many connections in one tick is handed over together, when its run handler
wants it so. Most producers wait for each answer and send one message at a time: the sends of 64 of them then
cost little more each than 64 sends of one.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from kourou.doors.clock import Clock
from kourou.protocol.frame import Frame
from kourou.remoting.answer import Handler, Read, RunAnswers, RunHandler
from kourou.remoting.complaints import Complaints
from kourou.remoting.config import ServerConfig
from kourou.remoting.tick import Tick

if TYPE_CHECKING:
    from kourou.remoting.connection import Connection

BUSY, UNREAD, CROWDED, BACKLOG, PARKED, DRAINING = 1, 2, 4, 8, 16, 32
"""Why a connection is not read from; `connection.py` tells them apart."""
HELD_BACK_NAMES = {
    BUSY: "busy",
    UNREAD: "unread",
    CROWDED: "crowded",
    BACKLOG: "backlog",
    PARKED: "parked",
    DRAINING: "draining",
}

READ_BYTES_MAX = 256 * 1024
TICK_SHARE = 8
"""One tick answers this part of what may be unread, at most; hanging up on somebody frees as much, so that
the next time is as far away."""

TICK_ANSWER_BYTES_MAX = 4 * 1024 * 1024
TICK_REQUEST_BYTES_MAX = 1280 * 1024
"""A thousand sends of 1 KiB, 10 ms of work. Half of it costs a loaded broker 8 % of its rate; bench: send
64x16."""

TURN_REQUEST_BYTES_MAX = 512 * 1024
"""Of those in line, when there are more than one tick may take up: here it is others who would wait."""

LIGHT_REQUESTS, LIGHT_BYTES = 2, 16 * 1024
"""Who waits with no more than that stands in the shorter line."""

_NO_RUN_HANDLERS: Mapping[bytes, RunHandler] = {}
_partial_bytes = attrgetter("partial_bytes")
_parked_bytes = attrgetter("parked_bytes")


class Switchboard:
    """The handlers, the sums over all connections, and what happens when one of these is too large."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        limits: ServerConfig,
        *,
        clock: Clock,
        tick: Tick,
        logger: logging.Logger,
        closed: Callable[[Connection], None],
        is_client: bool = False,
        run_handlers: Mapping[bytes, RunHandler] = _NO_RUN_HANDLERS,
    ) -> None:
        self.handlers = dict(handlers)
        self.run_handlers = dict(run_handlers)
        self.spanning_handlers = {
            key: handler for key, handler in run_handlers.items() if handler.spans_connections
        }
        self.limits = limits
        self.clock = clock
        self.tick = tick
        self.complaints = Complaints(logger, clock)
        self.closed = closed
        self.is_client = is_client
        # All reads are done with before the next begins, so one buffer serves every connection.
        self.read_buffer = memoryview(bytearray(READ_BYTES_MAX))
        self.connections: set[Connection] = set()
        self.closed_by_reason: Counter[str] = Counter()
        self.held_back: Counter[int] = Counter()
        """How often reading from somebody stopped, by reason."""
        self.requests = self.bytes_in = self.bytes_out = 0
        self.in_flight_bytes = self.partial_bytes = self.parked_bytes = 0
        self.unread_bytes = 0
        self.gathered_bytes = 0
        """The part of `unread_bytes` that this tick has still to write."""
        self.is_crowded = False
        self.is_spent = False
        """This tick has answered as much as one may: whoever asks now stands in line."""
        self.has_enough = False
        """This tick has taken up as many requests as one may, and it is the same."""
        self.takes_until: float = math.inf if is_client else 0
        """How many bytes will have come in when this tick has taken up enough; 0 before its first read. What
        a client gets are answers, and it takes them all."""
        self.is_closed = False
        # A client refuses each call that would wait behind too much (`client.py`), and hangs up on no server.
        self._unread_bytes_max = math.inf if is_client else limits.total_in_flight_bytes_max
        self.out_bytes_max: float = math.inf if is_client else limits.write_buffer_pause_bytes
        """What one tick may gather for a peer before the rest of its requests is put off. A client puts
        nothing off: if both sides did, both would wait for ever."""
        self._tick_answer_bytes_max = (
            math.inf if is_client else min(self._unread_bytes_max / TICK_SHARE, TICK_ANSWER_BYTES_MAX)
        )
        self._light: dict[Connection, None] = {}  # in order, each once
        self._heavy: dict[Connection, None] = {}
        self._is_line_due = self._is_heavy_turn = False
        self._gathered: list[tuple[RunHandler, Connection, list[Frame]]] = []

    # ---------------------------------------------------------------------------------- many at once

    def gather(self, handler: RunHandler, connection: Connection, frames: list[Frame]) -> None:
        """Let `handler` have `frames` together with what others send in this tick."""
        if not self._gathered:
            self.tick.at_end(self.handle_gathered)
        self._gathered.append((handler, connection, frames))
        connection.is_gathered = True

    def handle_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        if len(gathered) == 1:  # as for a peer that is alone, and waits for each answer; bench: send 1x1
            handler, connection, frames = gathered[0]
            connection.is_gathered = False
            taken = handler(frames, RunAnswers(((connection, frames),)))
            if taken < len(frames):
                connection.handle_unusual(frames[taken:])
            return
        for _, connection, _ in gathered:
            connection.is_gathered = False
        for handler, alike in groupby(gathered, itemgetter(0)):
            _hand_over([(connection, frames) for _, connection, frames in alike], handler)

    # ------------------------------------------------------------------------------- too much is asked

    def hold_all_back(self) -> None:
        """Together they ask too much: read from nobody until half of it is answered."""
        self.is_crowded = True
        for connection in self.connections:
            connection.pause(CROWDED)

    def thin_out_the_crowd(self) -> None:
        if self.in_flight_bytes * 2 <= self.limits.total_in_flight_bytes_max:
            self.is_crowded = False
            for connection in self.connections:
                connection.resume(CROWDED)

    # ---------------------------------------------------------------------------------- too much is held

    def check_partial(self) -> None:
        """To be called when `partial_bytes` has grown."""
        if self.partial_bytes > self.limits.total_in_flight_bytes_max:
            self._drop_largest(_partial_bytes, _partial_bytes)

    def check_parked(self) -> None:
        """To be called when `parked_bytes` has grown."""
        if self.parked_bytes > self.limits.total_in_flight_bytes_max:
            self._drop_largest(_parked_bytes, _parked_bytes)

    def check_unread(self) -> None:
        """To be called when `unread_bytes` has grown."""
        if self.gathered_bytes > self._tick_answer_bytes_max and not self.is_spent:
            self.is_spent = True
            self.tick.flush_at_end(self._let_the_line_move)
        if self.unread_bytes > self._unread_bytes_max:
            for connection in self.connections:  # much may have been taken since it was last weighed
                connection.weigh()
            self._drop_largest(_left_unread, attrgetter("unread_bytes"))

    def _drop_largest(self, size: Callable[[Connection], float], total: Callable[[Switchboard], int]) -> None:
        """Hang up on those who hold most, until there is some room again: looking at all takes its time."""
        enough = self.limits.total_in_flight_bytes_max * (TICK_SHARE - 1) // TICK_SHARE
        if total(self) > enough:
            for connection in sorted(self.connections, key=size, reverse=True):
                connection.abort("crowded out")
                if total(self) <= enough:
                    break

    # ------------------------------------------------------------------------------------ turn by turn

    def count_read(self, size: int) -> None:
        """To be called when a read of `size` bytes has gone past `takes_until`."""
        if not self.takes_until:
            self.takes_until = self.bytes_in - size + TICK_REQUEST_BYTES_MAX
            self.tick.flush_at_end(self._end_counting)
        elif not self.has_enough:
            self.has_enough = True
            self.tick.flush_at_end(self._let_the_line_move)

    def _end_counting(self) -> None:
        self.takes_until = 0

    def stand_in_line(self, connection: Connection) -> None:
        """Let it take up its backlog in a later tick, after those who came before."""
        if connection not in self._light and connection not in self._heavy:
            (self._light if connection.is_light else self._heavy)[connection] = None

    def _let_the_line_move(self) -> None:
        """All is written; in the next tick, after its reads, the first in line may ask again."""
        if not self._is_line_due:
            self._is_line_due = True
            self.tick.at_end(self._serve_the_line)

    def _serve_the_line(self) -> None:
        """The lines take turns, a tick each: so what the light ones wanted is written before the work for the
        others begins."""
        self._is_line_due = self.is_spent = self.has_enough = False
        line = self._heavy if self._heavy and (self._is_heavy_turn or not self._light) else self._light
        self._is_heavy_turn = line is self._light
        served = 0
        try:
            while line and served < TURN_REQUEST_BYTES_MAX and not self.is_spent:
                connection = next(iter(line))
                del line[connection]
                served += connection.backlog_bytes
                connection.take_up_backlog()
        finally:  # whatever becomes of one of them, the others get their turn
            if self._light or self._heavy:
                self.has_enough = True
                self.tick.flush_at_end(self._let_the_line_move)


def _hand_over(reads: list[Read], handler: RunHandler) -> None:
    """As many at once as there are; after something unusual, as many as `Connection` would."""
    at, width = 0, len(reads)
    while at < len(reads):
        run = reads[at : at + width]
        taken = handler([frame for _, frames in run for frame in frames], RunAnswers(run))
        done = _end(run, taken)
        at += done
        width = 2 * done


def _end(run: list[Read], taken: int) -> int:
    """How many reads are done with; one that was not wholly taken goes on by itself."""
    for number, (connection, frames) in enumerate(run, 1):
        if taken < len(frames):
            connection.handle_unusual(frames[taken:])
            return number
        taken -= len(frames)
    return len(run)


def _left_unread(connection: Connection) -> float:
    """How much it is to blame for: what this tick has gathered for it, it has had no time to read."""
    return connection.unread_bytes - connection.gathered_bytes / 2
