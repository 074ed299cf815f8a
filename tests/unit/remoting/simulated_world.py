"""A server, clients and raw peers on a simulated network, by a simulated clock, on the test's event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_network import SimulatedNetwork, SimulatedTransport
from kourou.protocol.command import Command, decode
from kourou.protocol.frame import FrameReader
from kourou.remoting.client import Client
from kourou.remoting.config import ServerConfig
from kourou.remoting.server import Answer, Connection, Handler, Server
from kourou.remoting.tick import Tick

ECHO, PARK, KEEP, RAISE = 1, 2, 3, 4


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on a loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def turns(count: int = 30) -> None:
    """Let the loop turn, so that all that can happen without time passing does."""
    for _ in range(count):
        await asyncio.sleep(0)


class World:
    """What a test needs; made inside the running loop."""

    def __init__(self, chance: Chance | None = None) -> None:
        self.clock = SimulatedClock()
        self.network = SimulatedNetwork(self.clock, chance)
        self.tick = Tick(asyncio.get_running_loop())
        self.kept: list[tuple[Command, Answer]] = []
        self.raises: Exception = RuntimeError("a secret of ours")
        self.server: Server = None  # type: ignore[assignment]

    async def serve(
        self, handlers: Mapping[int, Handler] | None = None, config: ServerConfig | None = None
    ) -> Server:
        self.server = Server(
            self.handlers if handlers is None else handlers,
            config or ServerConfig(),
            network=self.network,
            clock=self.clock,
            tick=self.tick,
            name="the test server",
        )
        await self.server.start()
        return self.server

    @property
    def handlers(self) -> dict[int, Handler]:
        def echo(request: Command, answer: Answer) -> None:
            answer(request.reply(body=request.body))

        def keep(request: Command, answer: Answer) -> None:
            self.kept.append((request, answer))

        def park(request: Command, answer: Answer) -> None:
            answer.park()
            self.kept.append((request, answer))

        def fail(request: Command, answer: Answer) -> None:
            raise self.raises

        return {ECHO: echo, PARK: park, KEEP: keep, RAISE: fail}

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def accepted(self) -> list[Connection]:
        return list(self.server.connections)

    def client(self, handlers: Mapping[int, Handler] | None = None, **options: Any) -> Client:
        return Client(
            network=self.network, clock=self.clock, handlers=handlers or {}, chance=Chance(1), **options
        )

    async def peer(self) -> Peer:
        """A raw connection to the server."""
        peer = Peer()
        await self.network.connect("127.0.0.1", self.server.port, peer)
        await turns(3)
        return peer

    async def pass_time(self, seconds: float, step: float = 0.5) -> None:
        """Let time pass in steps small enough for timers, with turns of the loop in between."""
        while seconds > 0:
            self.clock.advance(min(step, seconds))
            seconds -= step
            await turns(6)


class Peer(asyncio.Protocol):
    """Somebody who writes raw bytes, and collects what comes back."""

    def __init__(self) -> None:
        self.replies: list[Command] = []
        self.chunks: list[bytes] = []
        self.is_lost = False
        self._reader = FrameReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)
        self.replies += map(decode, self._reader.feed(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    async def send(self, *commands: Command) -> None:
        """All in one write, and time for the answers to come."""
        self.transport.write(b"".join(each.encode() for each in commands))
        await turns()


def ask(code: int, opaque: int = 1, body: bytes = b"", flag: int = 0) -> Command:
    return Command(code, body=body, opaque=opaque, flag=flag)
