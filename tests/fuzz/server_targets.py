"""Whole servers on a simulated network, told any bytes: they answer or hang up, and nothing breaks inside.

A broker and a name server at their ports, a master's HA port, a slave whose master talks nonsense, the pages
over HTTP. What a server cannot foresee it logs with a traceback, and its peer hears that it failed: here that
is a finding. A server serves many inputs and is then replaced, so that what earlier ones left does not grow.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from kourou.errors import Unreachable
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command, decode
from kourou.protocol.frame import FrameReader
from kourou.remoting.http import HttpServer, Page, _text_in
from kourou.replication import handshake, stream
from tests.fuzz.target import Faults, Target, faults_of
from tests.fuzz.wire_targets import (
    JSON_WORDS,
    record_seeds,
    recorded_commands,
    stream_seeds,
    words_of_both,
)
from tests.unit.broker.broker_world import PORT, BrokerWorld

INPUTS_A_WORLD = 300
MASTER = ("127.0.0.1", 7777)
World = TypeVar("World", bound="FuzzedWorld")


class FuzzedWorld(BrokerWorld):
    """A world that notices what broke in it."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: Faults = faults_of(self._runner.get_loop())
        self.prepare()

    def prepare(self) -> None:
        """Start what is to be told things."""
        self.start()
        peer = self.connect()
        for number in range(5):
            peer.send("Topic-send-sync", b"%d" % number)

    def tell(self, data: bytes) -> None:
        """Bytes to it, from somebody new; what it must still do afterwards, it does."""
        with self.faults.raised():
            stranger = self._say(PORT, data)
            stranger.leave()
            self.settle()
        for reply in stranger.commands:
            assert "failed inside the server" not in (reply.remark or ""), reply.remark

    def _say(self, port: int, data: bytes) -> Stranger:
        stranger = Stranger(data)
        self.run(self.network.connect("127.0.0.1", port, stranger))
        self.settle()
        return stranger

    def end(self) -> None:
        with suppress(Exception):
            self.close()


class Stranger(asyncio.Protocol):
    """Says its bytes and listens."""

    def __init__(self, says: bytes) -> None:
        self._says = says
        self.transport: asyncio.Transport | None = None
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._says)

    def data_received(self, data: bytes) -> None:
        self.received += data

    def say(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def leave(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    @property
    def commands(self) -> list[Command]:
        return [decode(frame) for frame in FrameReader().feed(self.received)]


class NameServerWorld(FuzzedWorld):
    def prepare(self) -> None:
        self.name_server(PORT)


class MasterWorld(FuzzedWorld):
    """Whatever is said at its HA port, it serves its clients."""

    def prepare(self) -> None:
        self.start(broker_role="ASYNC_MASTER")
        self.connect().send("orders", b"kept")

    def tell(self, data: bytes) -> None:
        with self.faults.raised():
            stranger = self._say(PORT + 1, data)
            self.pass_time(0.2)
            stranger.leave()
            self.settle()


class SlaveWorld(FuzzedWorld):
    """Its master says these bytes, at once or when the slave has stopped waiting for our handshake."""

    def prepare(self) -> None:
        self._master: Stranger | None = None
        self._says = b""
        self.start()
        self.connect().send("orders", b"kept")
        self.stop()
        self.run(self.network.listen(*MASTER, self._accept, backlog=8, exhausted=lambda: None))
        self.start(broker_role="SLAVE", broker_id=1, ha_master_address=f"{MASTER[0]}:{MASTER[1]}")

    def _accept(self, host: str, port: int) -> asyncio.BaseProtocol:
        self._master = Stranger(self._says)
        return self._master

    def tell(self, data: bytes) -> None:
        is_original = data[:1] < b"\x80"
        self._says = b"" if is_original else data[1:]
        with self.faults.raised():
            if self._master is not None:
                self._master.leave()
            self.pass_time(2.5)
            if is_original and self._master is not None:
                self.pass_time(3)
                self._master.say(data[1:])
                self.settle()
        assert self.broker.store.wrote >= 0


class PagesWorld(FuzzedWorld):
    def prepare(self) -> None:
        def pages(path: str) -> Page | None:
            return Page(b"hello") if path == "/" else None

        self._pages = HttpServer(
            pages, network=self.network, clock=self.clock, port=PORT, names=frozenset({"localhost"})
        )
        self.run(self._pages.start())

    def tell(self, data: bytes) -> None:
        with self.faults.raised():
            stranger = self._say(PORT, data)
            stranger.leave()
            self.settle()
        assert not stranger.received or stranger.received.startswith(b"HTTP/1.1 ")
        assert b" 500 " not in stranger.received[:20]
        with suppress(Unreachable):
            _text_in(data, "http://localhost/", 65_536)


class Worlds(Generic[World]):
    """One world for many inputs; a new one now and then, and after a finding."""

    def __init__(self, make: Callable[[], World]) -> None:
        self._make = make
        self._world: World | None = None
        self._inputs = 0

    def tell(self, data: bytes) -> None:
        if self._world is None or self._inputs >= INPUTS_A_WORLD:
            self._end()
            self._world, self._inputs = self._make(), 0
            atexit.register(self._end)
        self._inputs += 1
        try:
            self._world.tell(data)
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        if self._world is not None:
            self._world.end()
            self._world = None


def master_seeds() -> list[bytes]:
    first, *others = (stream.words(handshake.encode(each)) for each in words_of_both()[1:])
    return [*stream_seeds(), stream.GREETING + first + others[-1] + stream.OUR_REPORT.pack(0, 0)]


def slave_seeds() -> list[bytes]:
    log = record_seeds()[0]
    hello, _, accepted, *_ = (stream.words(handshake.encode(each)) for each in words_of_both())
    compared = stream.words(handshake.encode(handshake.Compared([False])))
    return [
        b"\x00" + stream.FRAME.pack(0, len(log)) + log,
        b"\x00" + stream.FRAME.pack(0, 0),
        b"\xff" + hello + accepted + compared + stream.OUR_FRAME.pack(0, len(log), 1, 0) + log,
        b"\xff" + hello,
    ]


def request_seeds() -> list[bytes]:
    """All that peers of every kind asked, and one of each code that is known."""
    asked = [read.encode() for read in recorded_commands() if not read.is_reply]
    fields = {"topic": "Topic-send-sync", "queueId": "0", "consumerGroup": "g", "group": "g", "offset": "0"}
    return [*asked, *(Command(code, fields, b"{}").encode() for code in RequestCode)]


HTTP_SEEDS = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\nGET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
)
HTTP_WORDS = (b"\r\n\r\n", b"Host: ", b"Transfer-Encoding: chunked\r\n", b"HTTP/1.1", b"GET ", b"-1\r\n")

SERVER_TARGETS = (
    Target("broker", Worlds(FuzzedWorld).tell, request_seeds, JSON_WORDS, examples=250),
    Target("name-server", Worlds(NameServerWorld).tell, request_seeds, JSON_WORDS, examples=150),
    Target("ha-master", Worlds(MasterWorld).tell, master_seeds, JSON_WORDS, examples=60),
    Target("ha-slave", Worlds(SlaveWorld).tell, slave_seeds, JSON_WORDS, examples=30),
    Target("http", Worlds(PagesWorld).tell, lambda: list(HTTP_SEEDS), HTTP_WORDS, examples=150),
)
