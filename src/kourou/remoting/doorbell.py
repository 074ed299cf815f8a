"""A listening socket whose server is only built when somebody knocks.

    Doorbell ── bound, listening, costs nothing
        │  first connection (left waiting in the socket's queue)
        ▼
    ring(sockets)    the server takes the sockets over, and finds the one who knocked

What most runs never need (a web console beside a broker) then takes neither time at the start nor memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable

from kourou.errors import AddressTaken, ConfigError
from kourou.remoting.address import format_address

BACKLOG = 128


class Doorbell:
    """Listens from the moment it is made. Raises ConfigError when the address cannot be had."""

    def __init__(self, host: str, port: int) -> None:
        self._socket: socket.socket | None = _bound(host, port)
        self.host = host
        self.port: int = self._socket.getsockname()[1]

    @property
    def address(self) -> str:
        return format_address(self.host, self.port)

    def on_first_knock(self, ring: Callable[[socket.socket], None]) -> None:
        """Hand the socket to `ring`, on the running loop, when the first peer connects."""
        loop = asyncio.get_running_loop()
        assert self._socket is not None

        def answer() -> None:
            loop.remove_reader(listening)
            ring(self.take())

        listening = self._socket
        loop.add_reader(listening, answer)

    def take(self) -> socket.socket:
        """The socket; from now on it is the caller's to close."""
        assert self._socket is not None, "somebody has it already"
        taken, self._socket = self._socket, None
        return taken

    def close(self) -> None:
        """No more peers, when nobody has taken it."""
        if self._socket is not None:
            with contextlib.suppress(RuntimeError):  # no loop runs, so none watches it
                asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise ConfigError(f"{host!r} is no address of this machine: {error.strerror}") from None
    # With its number: asyncio only switches off Nagle for sockets that say they are TCP, and 40 ms a page go.
    listening = socket.socket(family, kind, number)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        what = os.strerror(error.errno) if error.errno else str(error)
        words = f"cannot listen on {format_address(host, port)}: {what}"
        if error.errno == errno.EADDRINUSE:
            raise AddressTaken(f"{words}; another process has it: stop that one, or choose another") from None
        raise ConfigError(words) from None
    return listening
