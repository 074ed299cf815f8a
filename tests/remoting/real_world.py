"""A real server on loopback in a thread of its own, and raw sockets to attack it with."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeVar

from kourou.doors.clock import RealClock
from kourou.doors.network import RealNetwork
from kourou.protocol.command import Command, decode
from kourou.protocol.frame import FrameReader
from kourou.remoting.config import ServerConfig
from kourou.remoting.server import Answer, Handler, Server
from kourou.remoting.tick import Tick

ECHO, KEEP, BIG = 1, 3, 5
BIG_BYTES = 1 << 20

T = TypeVar("T")


class Running:
    """A started server; `on_loop` runs something where the server lives."""

    def __init__(
        self, server: Server, loop: asyncio.AbstractEventLoop, kept: list[tuple[Command, Answer]]
    ) -> None:
        self.server = server
        self.kept = kept
        self._loop = loop

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def on_loop(self, what: Callable[[], T]) -> T:
        async def call() -> T:
            return what()

        return self.await_on_loop(call)

    def await_on_loop(self, what: Callable[[], Awaitable[T]]) -> T:
        async def call() -> T:
            return await what()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(20)

    def connect(self, timeout: float = 10.0) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout)


@contextlib.contextmanager
def serving(
    config: ServerConfig | None = None,
    handlers: Mapping[int, Handler] | None = None,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> Iterator[Running]:
    loop = new_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    kept: list[tuple[Command, Answer]] = []

    def keep(request: Command, answer: Answer) -> None:
        kept.append((request, answer))

    table: dict[int, Handler] = {
        ECHO: lambda request, answer: answer(request.reply(body=request.body)),
        KEEP: keep,
        BIG: lambda request, answer: answer(request.reply(body=bytes(BIG_BYTES))),
    }

    async def start() -> Server:
        server = Server(
            {**table, **(handlers or {})},
            config or ServerConfig(),
            network=RealNetwork(),
            clock=RealClock(),
            tick=Tick(loop),
            name="the test server",
        )
        await server.start()
        return server

    try:
        server = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
        running = Running(server, loop, kept)
        try:
            yield running
        finally:
            running.await_on_loop(lambda: server.stop(1.0))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def replies(connected: socket.socket, count: int) -> list[Command]:
    """Read until `count` replies are there; EOFError when the server hangs up before."""
    reader = FrameReader()
    got: list[Command] = []
    while len(got) < count:
        data = connected.recv(1 << 18)
        if not data:
            raise EOFError(f"closed after {len(got)} replies")
        got += map(decode, reader.feed(data))
    return got


def is_closed(connected: socket.socket) -> bool:
    """Whether the server hangs up (within the socket's timeout) without another byte."""
    try:
        return connected.recv(1) == b""
    except ConnectionError:
        return True


def ask(code: int, opaque: int = 1, body: bytes = b"", flag: int = 0) -> bytes:
    return Command(code, body=body, opaque=opaque, flag=flag).encode()
