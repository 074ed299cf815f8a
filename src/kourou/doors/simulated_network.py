"""A network in memory, for tests that must come out the same every time.

    transport A --write--> in transit (delay) --> waiting at B --(B reads)--> B's protocol
                 unread bytes count as A's write buffer until B has taken them

Bytes arrive in order, once, and whole unless a `Chance` is given, which then cuts them at random places.
Everything runs on the event loop of the test; time passes only when the test lets its clock advance. What
happens to whom is up to the test: `partition` and `heal` an address, `reset` its connections, change
`delay_seconds`. There is no TLS here: that is for real sockets.

A simulation of many machines gives each its own door, `network.machine("127.0.0.7")`: what connects through
it comes from there, `cut` and `mend` part two machines in one direction, and `vanish` is the end of one
process: its connections break, or (without power) nobody is told. `latency` draws each piece's time on the
way, so pieces of different connections overtake one another.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, cast

from kourou.doors.chance import Chance
from kourou.doors.clock import Clock
from kourou.doors.network import Accept, Listener

Address = tuple[str, int]

ALL_HOSTS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - names for "all", nothing is bound
SAME_HOST = {"localhost": "127.0.0.1"}
BUFFER_BYTES_MAX = 64 * 1024


class SimulatedNetwork:
    """Addresses that listen, and the connections between them."""

    def __init__(self, clock: Clock, chance: Chance | None = None, delay_seconds: float = 0.0) -> None:
        self.clock = clock
        self.chance = chance
        self.delay_seconds = delay_seconds
        self.transports: list[SimulatedTransport] = []
        """Both ends of every connection ever made, the connecting one first."""
        self.latency: Callable[[], float] | None = None
        """How long one piece is on its way, instead of `delay_seconds`; a connection keeps their order."""
        self._listeners: dict[Address, _SimulatedListener] = {}
        self._ports = count(40_000)
        self._cut: set[Address] = set()
        self._cut_ways: set[tuple[str, str]] = set()
        self._without_power: set[str] = set()

    async def listen(
        self, host: str, port: int, accept: Accept, *, backlog: int, exhausted: Callable[[], None]
    ) -> Listener:
        address = (SAME_HOST.get(host, host), port or next(self._ports))
        if address in self._listeners:
            raise _error(errno.EADDRINUSE)
        listener = self._listeners[address] = _SimulatedListener(self._listeners, address, accept)
        return listener

    async def connect(
        self,
        host: str,
        port: int,
        protocol: asyncio.BaseProtocol,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> asyncio.BaseTransport:
        assert tls is None, "the simulated network has no TLS; use real sockets for that"
        return await self.connect_from("127.0.0.1", host, port, protocol)

    async def connect_from(
        self,
        source: str,
        host: str,
        port: int,
        protocol: asyncio.BaseProtocol,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> asyncio.BaseTransport:
        """As `connect`, from a machine other than this one, by a process that may be gone meanwhile."""
        address = (SAME_HOST.get(host, host), port)
        if self.latency is not None:
            on_its_way = asyncio.get_running_loop().create_future()
            self.clock.later(self.latency() + self.latency(), lambda: _resolve(on_its_way))
            await on_its_way
        if address in self._cut or self._is_silent(source, address[0]) or is_gone():
            await asyncio.get_running_loop().create_future()  # for ever: packets go nowhere
        listener = self._listening_at(address)
        if listener is None:
            raise _error(errno.ECONNREFUSED)
        ours: Address = (source, next(self._ports))
        theirs = listener.accept(*ours)
        here = SimulatedTransport(self, protocol, ours, address)
        if theirs is None:  # a real peer, too, learns of this only after connecting
            protocol.connection_made(here)
            here.lose(_error(errno.ECONNRESET))
            return here
        there = SimulatedTransport(self, theirs, address, ours)
        here.peer, there.peer = there, here
        self.transports += (here, there)
        theirs.connection_made(there)
        protocol.connection_made(here)
        return here

    def partition(self, host: str, port: int) -> None:
        """Nothing reaches `host:port` or comes from it, until `heal`: what is sent waits, as TCP would."""
        self._cut.add((host, port))

    def heal(self, host: str, port: int) -> None:
        self._cut.discard((host, port))
        for each in self.transports:
            each.pump_soon()

    def reset(self, host: str, port: int) -> None:
        """Break every connection of `host:port`, without a goodbye, at both ends."""
        for each in self.transports:
            if (host, port) in (each.local, each.remote):
                each.lose(_error(errno.ECONNRESET))

    def is_cut(self, transport: SimulatedTransport) -> bool:
        """Whether nothing reaches this end at present."""
        if self._cut_ways and (transport.remote[0], transport.local[0]) in self._cut_ways:
            return True
        return transport.local in self._cut or transport.remote in self._cut

    # --------------------------------------------------------------------------------- many machines

    def machine(self, host: str) -> SimulatedMachine:
        """The network as one process on the machine `host` sees it."""
        self._without_power.discard(host)
        return SimulatedMachine(self, host)

    def cut(self, source: str, target: str) -> None:
        """Nothing that machine `source` sends reaches `target`, until `mend`; it waits, as with TCP."""
        self._cut_ways.add((source, target))

    def mend(self, source: str, target: str) -> None:
        self._cut_ways.discard((source, target))
        for each in self.transports:
            if (each.remote[0], each.local[0]) == (source, target):
                each.pump_soon()

    def vanish(self, host: str, *, powerless: bool = False) -> None:
        """The process on the machine `host` is gone. Its peers see their connections break or, when the whole
        machine is `powerless`, see nothing before they write to it and it is there again."""
        if powerless:
            self._without_power.add(host)
        for address in [address for address in self._listeners if address[0] == host]:
            del self._listeners[address]
        for each in self.transports:
            if each.local[0] == host:
                each.vanish(is_heard=not powerless)
        self.transports = [each for each in self.transports if not each.is_over]

    def has_power(self, host: str) -> bool:
        return host not in self._without_power

    def _is_silent(self, source: str, target: str) -> bool:
        ways = ((source, target), (target, source))
        return target in self._without_power or any(way in self._cut_ways for way in ways)

    def delay(self) -> float:
        """How long the next piece will be on its way."""
        return self.delay_seconds if self.latency is None else self.latency()

    def _listening_at(self, address: Address) -> _SimulatedListener | None:
        exact = self._listeners.get(address)
        if exact is not None:
            return exact
        hosts = (self._listeners.get((host, address[1])) for host in ALL_HOSTS)
        return next((each for each in hosts if each is not None), None)


class SimulatedMachine:
    """The `Network` of one process on one machine; after `close` that process reaches nobody any more."""

    def __init__(self, network: SimulatedNetwork, host: str) -> None:
        self.host = host
        self._network = network
        self._is_closed = False

    async def listen(
        self, host: str, port: int, accept: Accept, *, backlog: int, exhausted: Callable[[], None]
    ) -> Listener:
        if self._is_closed:
            raise _error(errno.ENETDOWN)
        return await self._network.listen(host, port, accept, backlog=backlog, exhausted=exhausted)

    async def connect(
        self,
        host: str,
        port: int,
        protocol: asyncio.BaseProtocol,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> asyncio.BaseTransport:
        assert tls is None, "the simulated network has no TLS; use real sockets for that"
        if self._is_closed:
            raise _error(errno.ENETDOWN)
        return await self._network.connect_from(self.host, host, port, protocol, lambda: self._is_closed)

    def close(self, *, powerless: bool = False) -> None:
        """This process has ended, without a goodbye."""
        self._is_closed = True
        self._network.vanish(self.host, powerless=powerless)


class _SimulatedListener:
    def __init__(
        self, listeners: dict[Address, _SimulatedListener], address: Address, accept: Accept
    ) -> None:
        self._listeners = listeners
        self.accept = accept
        self.addresses = [address]

    def close(self) -> None:
        self._listeners.pop(self.addresses[0], None)


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self, network: SimulatedNetwork, protocol: asyncio.BaseProtocol, local: Address, remote: Address
    ) -> None:
        super().__init__()
        self.peer: SimulatedTransport | None = None
        self.local = local
        self.remote = remote
        self.written: list[bytes] = []
        """What each call of `write` was given."""
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._arrived: deque[bytes | None] = deque()  # None: the other side has finished
        self._in_transit: deque[bytes | None] = deque()
        self._is_pumping = False
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False
        self._has_finished = False
        self._unread_bytes = 0
        self._high, self._low = BUFFER_BYTES_MAX, BUFFER_BYTES_MAX // 4
        self._is_over_high = False
        self._has_vanished = False

    # -------------------------------------------------------------------------------- what protocols use

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._is_lost or self._has_finished or not data:
            return
        self.written.append(bytes(data))
        self._unread_bytes += len(data)
        self._send(bytes(data))
        if self._unread_bytes > self._high and not self._is_over_high:
            self._is_over_high = True
            self._protocol.pause_writing()

    def write_eof(self) -> None:
        if not self._has_finished:
            self._has_finished = True
            self._send(None)

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.write_eof()
            self._finish_closing()

    def abort(self) -> None:
        self._is_closing = True
        if self.peer is not None:
            self.peer.lose(_error(errno.ECONNRESET))
        self.lose(None)

    def is_closing(self) -> bool:
        return self._is_closing or self._is_lost

    def is_reading(self) -> bool:
        return self._is_reading and not self.is_closing()

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self.pump_soon()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = BUFFER_BYTES_MAX if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._unread_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self.remote, "sockname": self.local}.get(name, default)

    # ------------------------------------------------------------------------------ how bytes get across

    def lose(self, error: Exception | None) -> None:
        """The connection is gone; the protocol hears of it in the next turn of the loop."""
        if not self._is_lost:
            self._is_lost = True
            self._loop.call_soon(self._protocol.connection_lost, error)

    def vanish(self, *, is_heard: bool) -> None:
        """Whoever had this end is gone, and hears nothing any more; the other end does if it `is_heard`."""
        was_lost, self._is_lost, self._has_vanished = self._is_lost, True, True
        if is_heard and self.peer is not None and not was_lost:
            peer = self.peer
            self._network.clock.later(self._network.delay(), lambda: peer.lose(_error(errno.ECONNRESET)))

    @property
    def is_over(self) -> bool:
        return self._is_lost and (self.peer is None or self.peer._is_lost)

    def pump_soon(self) -> None:
        """Let the protocol read what has arrived, a piece in each turn of the loop."""
        if not self._is_pumping:
            self._is_pumping = True
            self._loop.call_soon(self._pump)

    def _send(self, data: bytes | None) -> None:
        peer = self.peer
        if peer is None:
            return
        if peer._has_vanished:
            if self._network.has_power(peer.local[0]):  # a machine answers for what it does not know of
                self.lose(_error(errno.ECONNRESET))
            return
        peer._in_transit.append(data)
        delay = self._network.delay()
        if delay > 0:
            self._network.clock.later(delay, peer._arrive)
        else:
            peer._arrive()

    def _arrive(self) -> None:
        self._arrived.append(self._in_transit.popleft())
        self.pump_soon()

    def _pump(self) -> None:
        self._is_pumping = False
        if self._is_lost or self._is_closing or self._network.is_cut(self):
            self._discard_if_closing()
            return
        if not self._is_reading or not self._arrived:
            return
        data = self._arrived.popleft()
        if data is None:
            if not self._protocol.eof_received():  # type: ignore[attr-defined]
                self.close()
            return
        piece = self._cut(data)
        if len(piece) < len(data):
            self._arrived.appendleft(data[len(piece) :])
        self._take(piece)
        if self._arrived:
            self.pump_soon()

    def _cut(self, data: bytes) -> bytes:
        chance = self._network.chance
        return data if chance is None else data[: chance.randint(1, len(data))]

    def _take(self, data: bytes) -> None:
        assert self.peer is not None
        self.peer._was_read(len(data))
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            while data and not self._is_lost:
                buffer = memoryview(cast(Any, protocol.get_buffer(len(data))))
                size = min(len(data), len(buffer))
                buffer[:size] = data[:size]
                data = data[size:]
                protocol.buffer_updated(size)
        else:
            cast(asyncio.Protocol, protocol).data_received(data)

    def _discard_if_closing(self) -> None:
        """A closed socket takes what comes and forgets it, or its peer could never finish closing."""
        if self._is_closing or self._is_lost:
            arrived, self._arrived = self._arrived, deque()
            if self.peer is not None:
                self.peer._was_read(sum(len(data) for data in arrived if data is not None))

    def _was_read(self, size: int) -> None:
        self._unread_bytes -= size
        if self._is_over_high and self._unread_bytes <= self._low:
            self._is_over_high = False
            if not self._is_lost:
                self._protocol.resume_writing()
        if self._is_closing:
            self._finish_closing()

    def _finish_closing(self) -> None:
        if not self._unread_bytes:
            self.lose(None)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
