"""How a request is answered, and what a failing handler's peer gets to read.

A handler is called with the request and its `Answer`. It calls the answer now, or hands it to whatever it
waits for (durability, replication, a new message), or never, when the request is one-way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from kourou.errors import MQError, ProtocolError, Refused
from kourou.native import native
from kourou.protocol.codes import ResponseCode, request_name
from kourou.protocol.command import FLAG_ONE_WAY, Command
from kourou.protocol.frame import Frame

if TYPE_CHECKING:  # `blocking.py` answers too, and must not import asyncio
    from kourou.remoting.connection import Connection

REMARK_CHARACTERS_MAX = 1024
REQUEST_OVERHEAD_BYTES = 512
"""What a waiting request costs besides its bytes."""


class Answer:
    """The one reply to one request.

    Call it with a `Command` (usually `request.reply(…)`) or with a whole encoded frame. The first call
    counts, later ones are ignored. Nothing is sent when the request was one-way or its connection is gone.
    """

    __slots__ = ("_is_one_way", "_size", "connection", "note")

    def __init__(self, connection: Connection, size: int, is_one_way: int) -> None:
        self.connection = connection
        # > 0: counted as being worked on; < 0: as parked; 0: nowhere; None: answered
        self._size: int | None = size
        self._is_one_way = is_one_way
        self.note: Callable[..., None] | None = None
        """Whom to tell that it is answered, and with `was_parked`, if it was."""

    def __call__(self, reply: Command | bytes) -> None:
        size = self._size
        if size is None:
            return
        self._size = None
        if self.note is not None:
            self.note(was_parked=size < 0)
        connection = self.connection
        if not connection.is_open:
            return
        if size > 0:
            connection.settle(size)
        elif size:
            connection.unpark(-size)
        if not self._is_one_way:
            connection.send_frame(reply if type(reply) is bytes else encode_reply(reply))  # type: ignore[arg-type]

    def park(self) -> None:
        """Let the request wait (a long poll): it no longer counts as being worked on.

        So a client may park one for each of its queues and still be served; but it is not read from while
        more than `parked_requests_max` of them wait, or `in_flight_bytes_max` bytes, and when all clients
        together have parked too many bytes whoever has most is hung up on. A parked request counts its
        whole frame until it is answered: do so in the end, and meanwhile keep no more of it than needed,
        above all not its body.
        """
        size = self._size
        if size is not None and size > 0:
            self._size = -size
            if self.connection.is_open:
                self.connection.park(size)

    @property
    def is_open(self) -> bool:
        """Whether an answer would still go anywhere."""
        return self._size is not None and self.connection.is_open

    @property
    def has_room(self) -> bool:
        """Whether an answer would go out soon; hold back what can wait for that (a long poll, say)."""
        return self.connection.has_room


Handler = Callable[[Command, Answer], None]
"""Never awaits. May raise: `refusal` says what the peer is told."""


Read = tuple["Connection", list[Frame]]
"""What came from one connection at once."""


class RunAnswers:
    """The replies to a run of requests, given together.

    Say with `expect` how many will be answered while the run is handled; call this once, later, with their
    replies. Or `send` one after the other while it is handled, when the run is of one connection.
    """

    __slots__ = ("_expected", "_reads", "connection", "note")

    def __init__(self, reads: Sequence[Read]) -> None:
        self._reads = reads
        self._expected: list[tuple[Connection, int, int]] = []
        self.note: Callable[[int], None] | None = None
        """Whom to tell how many are answered."""
        self.connection = reads[0][0]
        """Who sent the first one; and all others, unless the handler spans connections."""

    @property
    def packed_peers(self) -> list[bytes]:
        """Who sent each of the run."""
        return [connection.packed_peer for connection, frames in self._reads for _ in frames]

    @property
    def connections(self) -> list[Connection]:
        """Who sent each of the run, as connections."""
        return [connection for connection, frames in self._reads for _ in frames]

    def first(self, requests: int) -> RunAnswers:
        """The replies to the first so many of the run only."""
        reads: list[Read] = []
        for connection, frames in self._reads:
            if requests <= 0:
                break
            reads.append((connection, frames[:requests]))
            requests -= len(frames)
        answers = RunAnswers(reads)
        answers.note = self.note
        return answers

    def expect(self, requests: int) -> None:
        """The first so many of the run will be answered here."""
        for connection, frames in self._reads:
            count = len(frames)
            if count > requests:
                frames, count = frames[:requests], requests
            if not count:
                break
            requests -= count
            size = count * REQUEST_OVERHEAD_BYTES + _total(frames)
            self._expected.append((connection, count, size))
            if connection.is_open:
                connection.take_on(size, count)

    def __call__(self, replies: list[bytes]) -> None:
        if self.note is not None:
            self.note(len(replies))
        end = 0
        for connection, count, size in self._expected:
            at, end = end, end + count
            if connection.is_open:
                connection.settle(size, count)
                connection.send_frame(replies[at] if count == 1 else b"".join(replies[at:end]))

    def send(self, parts: Sequence[bytes | memoryview], size: int) -> None:
        """One reply, in parts of `size` bytes together, of a run that is answered while it is handled; `sent`
        says in the end how many."""
        self.connection.send_parts(parts, size)

    def sent(self, requests: int) -> None:
        """So many requests were answered by `send`."""
        if self.note is not None and requests:
            self.note(requests)
        self.connection.answered_at_once(requests)


def total_plainly(frames: list[Frame]) -> int:
    """The bytes of all headers and bodies."""
    return sum(len(frame.header) + len(frame.body) for frame in frames)


_total = total_plainly if native is None else native.total


class RunHandler(Protocol):
    """Takes frames that begin alike and came together, and returns how many it took, from the first on.

    The next one is left to the ordinary handler, which must be there for the same requests: it is the plain
    way, a run handler the fast one. It never raises.
    """

    @property
    def spans_connections(self) -> bool:
        """A run is all that came in a tick, from whomever; otherwise what came in one read."""

    def __call__(self, frames: list[Frame], answers: RunAnswers, /) -> int: ...


def encode_reply(reply: Command) -> bytes:
    """The frame of `reply`, or of an error that says why it cannot be one."""
    try:
        return reply.encode()
    except ProtocolError as error:
        return reply.reply(code=ResponseCode.SYSTEM_ERROR, remark=str(error)[:REMARK_CHARACTERS_MAX]).encode()


def refusal(request: Command, error: Exception) -> Command:
    """The reply to a request whose handler raised `error`."""
    if isinstance(error, Refused):
        return request.reply(code=error.code, remark=error.remark[:REMARK_CHARACTERS_MAX])
    if isinstance(error, ProtocolError):
        what = f"request {request_name(request.code)} cannot be read: {error}"
    elif isinstance(error, MQError):
        what = str(error)
    else:
        kind = type(error).__name__
        what = f"{request_name(request.code)} failed inside the server ({kind}); its log says more"
    return request.reply(code=ResponseCode.SYSTEM_ERROR, remark=what[:REMARK_CHARACTERS_MAX])


def not_supported(request: Command) -> Command:
    """The reply to a code nobody handles, in the original's words, leading space included."""
    remark = f" request type {request.code} not supported"
    return request.reply(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)


def too_late(request: Command, waited: float, allowed: float, waiting: int) -> Command:
    """The reply to a request that was put off for too long; it begins as the original's does."""
    remark = (
        f"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
        f"{waited * 1000:.0f}ms, size of queue: {waiting}; {allowed * 1000:.0f}ms are allowed; "
        "try another broker, or this one with less at once"
    )
    return request.reply(code=ResponseCode.SYSTEM_BUSY, remark=remark)


def is_foreseen(error: Exception) -> bool:
    """Whether a handler raised on purpose; anything else is a fault of ours and worth a traceback."""
    return isinstance(error, MQError)


def one_way(command: Command, opaque: int) -> bytes:
    """The frame of `command` as a request nobody is to answer."""
    command.opaque = opaque
    command.flag |= FLAG_ONE_WAY
    return command.encode()
