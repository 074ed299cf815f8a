"""How a request is answered, and what a failing handler's peer gets to read.

A handler is called with the request and its `Answer`. It calls the answer now, or hands it to whatever it
waits for (durability, replication, a new message), or never, when the request is one-way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kourou.errors import MQError, ProtocolError, Refused
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

    __slots__ = ("_is_one_way", "_size", "connection")

    def __init__(self, connection: Connection, size: int, is_one_way: int) -> None:
        self.connection = connection
        # > 0: counted as being worked on; < 0: as parked; 0: nowhere; None: answered
        self._size: int | None = size
        self._is_one_way = is_one_way

    def __call__(self, reply: Command | bytes) -> None:
        size = self._size
        if size is None:
            return
        self._size = None
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


Handler = Callable[[Command, Answer], None]
"""Never awaits. May raise: `refusal` says what the peer is told."""


class RunAnswers:
    """The replies to a run of requests that one connection sent at once, given together.

    Say with `expect` what will be answered while the run is handled; call this once, later, with the replies.
    """

    __slots__ = ("connection", "requests", "size")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.requests = 0
        self.size = 0

    def expect(self, requests: int, frames_bytes: int) -> None:
        """So many requests, of so many bytes together, will be answered here."""
        self.requests += requests
        self.size += frames_bytes + requests * REQUEST_OVERHEAD_BYTES

    def __call__(self, frames: list[bytes]) -> None:
        connection = self.connection
        if connection.is_open:
            connection.settle(self.size, self.requests)
            connection.send_frame(b"".join(frames))


RunHandler = Callable[[list[Frame], RunAnswers], int]
"""Takes frames of one read that begin alike, and returns how many it took, from the first on.

The next one is left to the ordinary handler, which must be there for the same requests: it is the plain way,
a run handler the fast one. It never raises.
"""


def encode_reply(reply: Command) -> bytes:
    """The frame of `reply`, or of an error that says why it cannot be one."""
    try:
        return reply.encode()
    except ProtocolError as error:
        return refusal(reply, error).encode()


def refusal(request: Command, error: Exception) -> Command:
    """The reply to a request whose handler raised `error`."""
    if isinstance(error, Refused):
        return request.reply(code=error.code, remark=error.remark[:REMARK_CHARACTERS_MAX])
    if isinstance(error, MQError):
        return request.reply(code=ResponseCode.SYSTEM_ERROR, remark=str(error)[:REMARK_CHARACTERS_MAX])
    what = (
        f"{request_name(request.code)} failed inside the server ({type(error).__name__}); its log says more"
    )
    return request.reply(code=ResponseCode.SYSTEM_ERROR, remark=what)


def not_supported(request: Command) -> Command:
    """The reply to a code nobody handles, in the original's words, leading space included."""
    remark = f" request type {request.code} not supported"
    return request.reply(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)


def is_foreseen(error: Exception) -> bool:
    """Whether a handler raised on purpose; anything else is a fault of ours and worth a traceback."""
    return isinstance(error, MQError)


def one_way(command: Command, opaque: int) -> bytes:
    """The frame of `command` as a request nobody is to answer."""
    command.opaque = opaque
    command.flag |= FLAG_ONE_WAY
    return command.encode()
