"""The same calls on plain sockets, for Spark workers, the command line and anyone with threads of their own.

No asyncio, no background thread. Any number of threads may call; all calls to one address share one
socket, and `blocking_line.py` says how. Back-off and lost connections are as in `client.py`.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Mapping

from kourou.doors.chance import Chance
from kourou.doors.clock import Clock, RealClock
from kourou.doors.network import dial
from kourou.errors import ConnectionLost
from kourou.protocol.command import Command
from kourou.protocol.pending import Settle
from kourou.remoting.address import parse_address
from kourou.remoting.answer import Handler
from kourou.remoting.backoff import Backoff
from kourou.remoting.blocking_line import BlockingLine, Dial
from kourou.remoting.config import ClientTls
from kourou.remoting.tls import client_context

NO_HANDLERS: Mapping[int, Handler] = {}


class BlockingClient:
    """Talks to any number of servers; thread-safe."""

    def __init__(
        self,
        *,
        handlers: Mapping[int, Handler] = NO_HANDLERS,
        tls: ClientTls | None = None,
        connect_timeout: float = 3.0,
        clock: Clock | None = None,
        chance: Chance | None = None,
        dial: Dial = dial,
        sign: Callable[[Command], None] | None = None,
    ) -> None:
        self._sign = sign
        self._clock = RealClock() if clock is None else clock
        self._chance = Chance() if chance is None else chance
        self._handlers = dict(handlers)
        self._dial = _dialler(dial, tls)
        self._connect_timeout = connect_timeout
        self._lines: dict[str, BlockingLine] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        self._bell: tuple[socket.socket, socket.socket] | None = None

    def call(self, address: str, command: Command, timeout: float = 3.0) -> Command:
        """The reply of the server at `address`, whatever its code; `timeout` includes connecting.

        Raises Unreachable, TimedOut, ConnectionLost.
        """
        if self._sign is not None:
            self._sign(command)
        line = self._line(address)
        try:
            return line.call(command, self._clock.monotonic() + timeout, timeout)
        except BaseException as error:
            self._drop_if_interrupted(address, line, error)
            raise

    def send_one_way(self, address: str, command: Command) -> None:
        """Send a request nobody answers."""
        if self._sign is not None:
            self._sign(command)
        line = self._line(address)
        try:
            line.send_one_way(command, self._clock.monotonic() + self._connect_timeout)
        except BaseException as error:
            self._drop_if_interrupted(address, line, error)
            raise

    def call_soon(
        self, address: str, command: Command, timeout: float, then: Settle, *, in_place: bool = False
    ) -> None:
        """Send a request and do not wait for its reply: `then` is told it, or the error, once.

        That happens in the thread that reads at the time, inside `poll` or any `call`, and with no lock
        held: `then` may call again. Overdue requests are told by `poll`, so somebody has to. With `in_place`
        a large body is told as a read-only view of where it was received, and not copied. Raises
        Unreachable when there is no connection and none can be made now.
        """
        if self._sign is not None:
            self._sign(command)
        line = self._line(address)
        try:
            line.call_soon(command, self._clock.monotonic() + timeout, then, in_place=in_place)
        except BaseException as error:
            self._drop_if_interrupted(address, line, error)
            raise

    def poll(self, seconds: float) -> None:
        """For up to `seconds`, take what servers send: replies to `call_soon`, and requests for the handlers.

        Returns early after some. What another thread reads meanwhile is told in that thread, and does not
        end the wait here.
        """
        with self._lock:
            lines = list(self._lines.values())
        if any(line.tell_others() for line in lines):  # left over from a call
            return
        seconds = min([seconds, *(line.seconds_to_deadline() for line in lines)])
        poller = select.poll()
        bell = self._bell
        if bell is not None:
            poller.register(bell[0], select.POLLIN)
        sockets: dict[int, BlockingLine] = {}
        try:
            for line in lines:
                number = line.watch()
                if number >= 0:
                    sockets[number] = line
                    poller.register(number, select.POLLIN)
            ready = poller.poll(max(0.0, seconds) * 1000)
        finally:
            for line in sockets.values():
                line.unwatch()
        for number, _ in ready:
            line_ready = sockets.get(number)
            if line_ready is None:
                _silence(bell)
            else:
                line_ready.read_what_is_there()
                line_ready.tell_others()
        for line in lines:
            line.expire()

    def hear(self, address: str) -> None:
        """Without waiting, take what the server at `address` has sent: requests for the handlers, say."""
        with self._lock:
            line = self._lines.get(address)
        if line is not None:
            line.read_what_is_there()
            line.tell_others()

    def hear_wakes(self) -> None:
        """From now on `wake`, and every new connection, ends a `poll` that is under way."""
        with self._lock:
            if self._bell is None and not self._is_closed:
                self._bell = socket.socketpair()
                for end in self._bell:
                    end.setblocking(False)

    def wake(self) -> None:
        """End a `poll` under way in another thread."""
        bell = self._bell
        if bell is not None:
            with contextlib.suppress(OSError):  # full: it rings already; closed: nobody listens
                bell[1].send(b"!")

    def close(self) -> None:
        """Hang up everywhere; whoever waits gets ConnectionLost."""
        with self._lock:
            self._is_closed = True
            lines, self._lines = self._lines, {}
        for line in lines.values():
            line.close()
        self.wake()
        bell, self._bell = self._bell, None
        for end in bell or ():
            end.close()

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drop_if_interrupted(self, address: str, line: BlockingLine, error: BaseException) -> None:
        """After a Ctrl-C, or what else a signal's handler raises, nobody knows what the line had just taken
        in hand, a lock perhaps: the next call gets a new one."""
        if isinstance(error, Exception):
            return
        with self._lock:
            if self._lines.get(address) is line:
                del self._lines[address]
        line.close()

    def _line(self, address: str) -> BlockingLine:
        with self._lock:
            line = self._lines.get(address)
            if line is None:
                if self._is_closed:
                    raise ConnectionLost(f"cannot call {address}: this client is closed")
                host, port = parse_address(address)
                line = self._lines[address] = BlockingLine(
                    host,
                    port,
                    handlers=self._handlers,
                    dial=self._dial,
                    connect_timeout=self._connect_timeout,
                    clock=self._clock,
                    backoff=Backoff(self._chance),
                    connected=self.wake,
                )
            return line


def _silence(bell: tuple[socket.socket, socket.socket] | None) -> None:
    if bell is not None:
        with contextlib.suppress(OSError):
            bell[0].recv(4096)


def _dialler(dial: Dial, tls: ClientTls | None) -> Dial:
    """`dial`, with TLS agreed on when it is wanted."""
    if tls is None:
        return dial
    context = client_context(tls)

    def dial_tls(host: str, port: int, timeout_seconds: float) -> socket.socket:
        plain = dial(host, port, timeout_seconds)
        try:
            return context.wrap_socket(plain, server_hostname=tls.server_name or host)
        except BaseException:
            plain.close()
            raise

    return dial_tls
