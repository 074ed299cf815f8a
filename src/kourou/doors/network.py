"""The way to the network: who listens, who connects; the bytes themselves go through asyncio's transports.

`RealNetwork` is the machine's, `doors.simulated_network.SimulatedNetwork` lives in memory and does as a
test says. `dial` is the same for code that blocks and never imports asyncio.

A listener is asked about every peer before anything is built for it: `accept(host, port)` gives the
protocol that shall talk to it, or None to hang up. A protocol whose transport then cannot be made (the
peer is gone already) is told `connection_lost` without `connection_made`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # a blocking client dials through here, and starts without asyncio
    import asyncio

Accept = Callable[[str, int], "asyncio.BaseProtocol | None"]

ACCEPTS_PER_LOOK = 64  # then others get their turn
RETRY_SECONDS = 0.5
OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
NOT_ON_THIS_MACHINE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


class Listener(Protocol):
    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it listens, with the real port when 0 was asked for."""

    def close(self) -> None:
        """No more peers; those that are connected stay."""


class Network(Protocol):
    async def listen(
        self, host: str, port: int, accept: Accept, *, backlog: int, exhausted: Callable[[], None]
    ) -> Listener:
        """Listen on every address `host` stands for; OSError when none can be had.

        `exhausted` is told each time a peer was turned away because the process has no more files.
        """

    async def connect(
        self,
        host: str,
        port: int,
        protocol: asyncio.BaseProtocol,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> asyncio.BaseTransport:
        """A transport to the peer, TLS already agreed on when asked for; OSError when it cannot be had.

        Takes as long as it takes: the caller cancels it.
        """


class RealNetwork:
    """The machine's own sockets, on the running event loop."""

    async def listen(
        self, host: str, port: int, accept: Accept, *, backlog: int, exhausted: Callable[[], None]
    ) -> Listener:
        import asyncio

        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        sockets = _bind_all([(family, address) for family, _, _, _, address in dict.fromkeys(found)], backlog)
        return _RealListener(loop, sockets, accept, exhausted)

    async def connect(
        self,
        host: str,
        port: int,
        protocol: asyncio.BaseProtocol,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> asyncio.BaseTransport:
        import asyncio

        loop = asyncio.get_running_loop()
        name = (server_name or host) if tls is not None else None
        transport, _ = await loop.create_connection(
            lambda: protocol, host, port, ssl=tls, server_hostname=name
        )
        return transport


def dial(host: str, port: int, timeout_seconds: float) -> socket.socket:
    """A connected blocking socket; OSError when it cannot be had in time."""
    connected = socket.create_connection((host, port), timeout_seconds)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def file_stamps(paths: Iterable[str | None]) -> tuple[tuple[str, int, int] | None, ...]:
    """What changes when one of the files does. OpenSSL reads certificates itself, so this is all we see."""
    return tuple(_stamp(path) for path in paths if path is not None)


def _stamp(path: str) -> tuple[str, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return path, status.st_mtime_ns, status.st_size


def _bind_all(addresses: list[tuple[int, Any]], backlog: int) -> list[socket.socket]:
    """A listening socket for each address; all on one port, also when any free one was asked for."""
    bound: list[socket.socket] = []
    failure: OSError | None = None
    for family, address in addresses:
        if bound and address[1] == 0:
            address = (address[0], bound[0].getsockname()[1], *address[2:])
        try:
            bound.append(_bind(family, address, backlog))
        except OSError as error:
            failure = error
            if error.errno not in NOT_ON_THIS_MACHINE:  # "localhost" without IPv6 is no error
                break
    if failure is not None and (not bound or failure.errno not in NOT_ON_THIS_MACHINE):
        for each in bound:
            each.close()
        raise failure
    return bound


def _bind(family: int, address: Any, backlog: int) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # All of "::" includes IPv4, as in Java; any other IPv6 address is just itself.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address[0] != "::"))
        listening.bind(address)
        listening.listen(backlog)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


class _RealListener:
    """Accepts by itself, because asyncio's own loop neither asks before it builds a transport nor survives
    running out of files quietly: it logs and retries once for each place in the backlog.

    One file is kept in reserve. When no other is left it is given up, the peer accepted and hung up on,
    and the reserve taken again: otherwise the waiting peer would keep the loop spinning.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        accept: Accept,
        exhausted: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._sockets = sockets
        self._accept = accept
        self._exhausted = exhausted
        self._reserve = _open_reserve()
        self._opening: set[asyncio.Task[object]] = set()  # a task nobody holds may vanish
        self.addresses: list[tuple[str, int]] = [each.getsockname()[:2] for each in sockets]
        for each in sockets:
            loop.add_reader(each.fileno(), self._look, each)

    def close(self) -> None:
        for each in self._sockets:
            self._loop.remove_reader(each.fileno())
            each.close()
        self._sockets = []
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None

    def _look(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_LOOK):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in OUT_OF_RESOURCES:
                    self._turn_away(listening)
                    return
                continue  # that peer is gone again (ECONNABORTED, EPROTO): the next one, please
            protocol = self._accept(address[0], address[1])
            if protocol is None:
                accepted.close()
            else:
                self._open(accepted, protocol)

    def _open(self, accepted: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        accepted.setblocking(False)
        opening = self._loop.create_task(self._loop.connect_accepted_socket(lambda: protocol, accepted))
        self._opening.add(opening)

        def opened(task: asyncio.Task[object]) -> None:
            self._opening.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None or task.cancelled():
                accepted.close()
                protocol.connection_lost(error if isinstance(error, Exception) else None)

        opening.add_done_callback(opened)

    def _turn_away(self, listening: socket.socket) -> None:
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None
            with contextlib.suppress(OSError):
                listening.accept()[0].close()
            self._reserve = _open_reserve()
        if self._reserve is None:
            self._pause(listening)
        self._exhausted()

    def _pause(self, listening: socket.socket) -> None:
        self._loop.remove_reader(listening.fileno())

        def again() -> None:
            if listening in self._sockets:
                self._reserve = self._reserve if self._reserve is not None else _open_reserve()
                self._loop.add_reader(listening.fileno(), self._look, listening)

        self._loop.call_later(RETRY_SECONDS, again)


def _open_reserve() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return None
