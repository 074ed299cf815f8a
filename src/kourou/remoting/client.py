"""Calls to other servers on the event loop: one connection per address, shared by all calls.

    absent --call--> connecting --made--> open --lost--> absent
                          \\--failed--> backing off --time is up--> connecting

Calls that come while the connection is being made wait for that one attempt; if it fails, all of them
fail with its error. After a failure the next attempt waits (0.1 s, doubled up to 5 s, with jitter); a call
made meanwhile waits for that attempt when it falls into the call's own timeout, and fails at once when it
does not. A connection on which a call timed out and not one byte came back is given up.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping

from kourou.doors.chance import Chance
from kourou.doors.clock import Clock, Timer
from kourou.doors.network import Network
from kourou.errors import Busy, ConnectionLost, TimedOut, Unreachable
from kourou.protocol.codes import ResponseCode, request_name
from kourou.protocol.command import Command
from kourou.protocol.pending import Settle
from kourou.remoting.address import format_address, parse_address
from kourou.remoting.alarm import Alarm
from kourou.remoting.answer import Handler
from kourou.remoting.backoff import SECONDS_MAX, Backoff
from kourou.remoting.config import MIB, ClientTls, ServerConfig
from kourou.remoting.connection import Connection
from kourou.remoting.failures import in_words
from kourou.remoting.limit import Limit
from kourou.remoting.switchboard import Switchboard
from kourou.remoting.tick import Tick
from kourou.remoting.tls import client_context

logger = logging.getLogger(__name__)

WRITE_BUFFER_BYTES_MAX = 8 * MIB
LINES_MAX = 1024
"""So many addresses are remembered, besides those in use."""
_NO_HANDLERS: Mapping[int, Handler] = {}

Sign = Callable[[Command], None]
"""Puts a signature into a request that is about to be sent."""


class Client:
    """Talks to any number of servers. Belongs to the event loop it is made on.

    `handlers` are for requests that servers send to us; their answers go back by themselves. A server that
    cannot be reached is tried again at least every `retry_seconds_max`, when somebody wants it.
    """

    def __init__(
        self,
        *,
        network: Network,
        clock: Clock,
        handlers: Mapping[int, Handler] = _NO_HANDLERS,
        tls: ClientTls | None = None,
        connect_timeout: float = 3.0,
        retry_seconds_max: float = SECONDS_MAX,
        tick: Tick | None = None,
        chance: Chance | None = None,
        sign: Sign | None = None,
    ) -> None:
        self._network = network
        self._clock = clock
        self._tls = tls
        self._context = None if tls is None else client_context(tls)
        self._connect_timeout = connect_timeout
        self._retry_seconds_max = retry_seconds_max
        self._sign = sign
        self._chance = Chance() if chance is None else chance
        self._board = Switchboard(
            handlers,
            ServerConfig(),
            clock=clock,
            tick=Tick(asyncio.get_running_loop()) if tick is None else tick,
            logger=logger,
            closed=self._on_closed,
            is_client=True,
        )
        self._lines: dict[str, _Line] = {}
        self._emptied: asyncio.Future[None] | None = None
        self._is_closed = False

    async def call(  # the timeout is the request's own: a blocking caller passes it likewise
        self,
        address: str,
        command: Command,
        timeout: float = 3.0,  # noqa: ASYNC109
    ) -> Command:
        """The reply of the server at `address`, whatever its code; `timeout` includes connecting.

        Raises Unreachable, TimedOut, ConnectionLost; Busy when too much is waiting to be sent there.
        """
        reply: asyncio.Future[Command] = asyncio.get_running_loop().create_future()

        def settle(result: Command | Exception) -> None:
            if reply.done():  # the caller was cancelled meanwhile
                return
            if isinstance(result, Exception):
                reply.set_exception(result)
            else:
                reply.set_result(result)

        self.call_soon(address, command, timeout, settle)
        try:
            return await reply
        except TimedOut:
            name = request_name(command.code)
            raise TimedOut(f"{address} did not answer {name} within {timeout:g} s") from None

    def call_soon(self, address: str, command: Command, timeout: float, then: Settle) -> None:
        """The same without a task or future: `then` is called once, with the reply or the error."""
        if self._sign is not None:
            self._sign(command)
        line = self._line(address)
        connection = line.connection
        if connection is not None and connection.is_open:
            _call(connection, command, timeout, then)
            return
        deadline = self._clock.monotonic() + timeout

        def connected(connection: Connection) -> None:
            _call(connection, command, deadline - self._clock.monotonic(), then)

        line.ask(_Waiter(deadline, connected, then))

    async def send_one_way(self, address: str, command: Command) -> None:
        """Send a request nobody answers; returns when it is on its way, not when it has arrived."""
        if self._sign is not None:
            self._sign(command)
        connection = await self.connect(address)
        if _is_overfull(connection):
            raise _too_much_for(connection)
        connection.send_one_way(command)

    async def connect(self, address: str) -> Connection:
        """The open connection to `address`, made if need be: for those who ask when it is gone."""
        line = self._line(address)
        if line.connection is not None and line.connection.is_open:
            return line.connection
        made: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()

        def connected(connection: Connection) -> None:
            if not made.done():
                made.set_result(connection)

        def failed(error: Exception) -> None:
            if not made.done():
                made.set_exception(error)

        line.ask(_Waiter(self._clock.monotonic() + self._connect_timeout, connected, failed))
        return await made

    def is_connected(self, address: str) -> bool:
        """Whether a connection to `address` is open at this moment."""
        line = self._lines.get(address)
        return line is not None and line.connection is not None and line.connection.is_open

    async def close(self) -> None:
        """Hang up everywhere; whoever waits gets ConnectionLost."""
        self._is_closed = self._board.is_closed = True
        lines, self._lines = self._lines, {}
        for line in lines.values():
            line.close()
        if self._board.connections:
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied

    def _line(self, address: str) -> _Line:
        line = self._lines.get(address)
        if line is None:
            if self._is_closed:
                raise ConnectionLost(f"cannot call {address}: this client is closed")
            line = self._new_line(address)
            if len(self._lines) >= LINES_MAX:
                self._forget_idle()
            self._lines[address] = line
        return line

    def _forget_idle(self) -> None:
        """Addresses come and go, some are made up by strangers: those nobody talks to now are let go."""
        self._lines = {address: line for address, line in self._lines.items() if not line.is_idle}

    def _new_line(self, address: str) -> _Line:
        host, port = parse_address(address)
        return _Line(
            self._board,
            self._network,
            host,
            port,
            context=self._context,
            server_name=None if self._tls is None else self._tls.server_name,
            connect_timeout=self._connect_timeout,
            backoff=Backoff(self._chance, self._retry_seconds_max),
        )

    def _on_closed(self, connection: Connection) -> None:
        if self._emptied is not None and not self._board.connections and not self._emptied.done():
            self._emptied.set_result(None)


def _call(connection: Connection, command: Command, timeout: float, then: Settle) -> None:
    if _is_overfull(connection):
        then(_too_much_for(connection))
    else:
        connection.call(command, int(timeout * 1000), then)


def _is_overfull(connection: Connection) -> bool:
    return not connection.is_writable and connection.write_buffer_bytes > WRITE_BUFFER_BYTES_MAX


def _too_much_for(connection: Connection) -> Busy:
    return Busy(
        ResponseCode.SYSTEM_BUSY,
        f"{connection.peer} does not take what is sent: {connection.write_buffer_bytes} bytes wait; "
        "send less, or try later",
    )


class _Waiter:
    """Somebody who wants a connection before `deadline`."""

    __slots__ = ("connected", "deadline", "failed")

    def __init__(
        self,
        deadline: float,
        connected: Callable[[Connection], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.deadline = deadline
        self.connected = connected
        self.failed = failed


class _Line:
    """The one connection to one address, and those who wait for it."""

    def __init__(
        self,
        board: Switchboard,
        network: Network,
        host: str,
        port: int,
        *,
        context: ssl.SSLContext | None,
        server_name: str | None,
        connect_timeout: float,
        backoff: Backoff,
    ) -> None:
        self.connection: Connection | None = None
        self._board = board
        self._clock = board.clock
        self._network = network
        self._host = host
        self._port = port
        self._context = context
        self._server_name = server_name
        self._connect_timeout = connect_timeout
        self._backoff = backoff
        self._failure = Unreachable(f"{format_address(host, port)} was not tried yet")
        self._waiters: list[_Waiter] = []
        self._alarm = Alarm(self._clock, self._expire)
        self._attempt: asyncio.Task[None] | None = None
        self._next_attempt: Timer | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nobody talks here, or is about to."""
        is_open = self.connection is not None and self.connection.is_open
        return not (is_open or self._waiters or self._attempt or self._next_attempt)

    def ask(self, waiter: _Waiter) -> None:
        """Give `waiter` the connection as soon as there is one, or the reason why there is none."""
        if self._attempt is None and self._backoff.not_before > waiter.deadline:
            waiter.failed(self._failure)
            return
        self._waiters.append(waiter)
        self._alarm.ring_by(waiter.deadline)
        if self._attempt is None and self._next_attempt is None:
            seconds = self._backoff.not_before - self._clock.monotonic()
            if seconds > 0:
                self._next_attempt = self._clock.later(seconds, self._start)
            else:
                self._start()

    def close(self) -> None:
        if self._next_attempt is not None:
            self._next_attempt.cancel()
        if self._attempt is not None:
            self._attempt.cancel()
        if self.connection is not None:
            self.connection.close("client closes")
        self._fail_all(ConnectionLost(f"the client closed while connecting to {self._address}"))

    @property
    def _address(self) -> str:
        return format_address(self._host, self._port)

    def _start(self) -> None:
        self._next_attempt = None
        self._attempt = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        connection = Connection(self._board, self._host, self._port)
        try:
            async with Limit(self._clock, self._connect_timeout):
                await self._network.connect(
                    self._host, self._port, connection, tls=self._context, server_name=self._server_name
                )
        except OSError as error:
            connection.abort("connect")
            self._on_failure(error)
        else:
            self._on_success(connection)

    def _on_success(self, connection: Connection) -> None:
        self._attempt = None
        self._backoff.succeeded()
        self.connection = connection
        self._alarm.off()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.connected(connection)

    def _on_failure(self, error: OSError) -> None:
        self._attempt = None
        self._backoff.failed(self._clock.monotonic())
        self._failure = Unreachable(f"cannot reach {self._address}: {in_words(error)}")
        self._fail_all(self._failure)

    def _fail_all(self, error: Exception) -> None:
        self._alarm.off()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.failed(error)

    def _expire(self) -> float | None:
        now = self._clock.monotonic()
        overdue = [each for each in self._waiters if each.deadline <= now]
        self._waiters = [each for each in self._waiters if each.deadline > now]
        for waiter in overdue:
            waiter.failed(Unreachable(f"no connection to {self._address} in time"))
        return min((each.deadline for each in self._waiters), default=None)
