from __future__ import annotations

import asyncio
import errno

import pytest

from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_network import SimulatedNetwork, SimulatedTransport
from tests.unit.remoting.simulated_world import on_a_loop, turns


class End(asyncio.Protocol):
    """One end of a connection, with what it saw."""

    def __init__(self, stays_after_eof: bool = False) -> None:
        self.chunks: list[bytes] = []
        self.events: list[str] = []
        self.error: Exception | None = None
        self._stays_after_eof = stays_after_eof

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self._stays_after_eof

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.error = exc

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Buffered(asyncio.BufferedProtocol):
    """An end with a small buffer of its own."""

    def __init__(self) -> None:
        self.buffer = bytearray(3)
        self.seen = b""

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.seen += self.buffer[:nbytes]


async def connected(
    network: SimulatedNetwork, there: asyncio.BaseProtocol | None = None
) -> tuple[End, asyncio.BaseProtocol]:
    here, there = End(), there or End()
    listener = await network.listen(
        "10.0.0.1", 0, lambda host, port: there, backlog=1, exhausted=lambda: None
    )
    [(host, port)] = listener.addresses
    await network.connect(host, port, here)
    listener.close()
    return here, there


@on_a_loop
async def test_bytes_arrive_in_order_and_whole() -> None:
    here, there = await connected(SimulatedNetwork(SimulatedClock()))
    assert isinstance(there, End)
    for data in (b"one", b"two", b"three"):
        here.transport.write(data)
    await turns()
    assert there.chunks == [b"one", b"two", b"three"]
    there.transport.write(b"back")
    await turns()
    assert here.chunks == [b"back"]


@on_a_loop
async def test_a_chance_cuts_the_bytes_anywhere_and_the_same_way_for_the_same_seed() -> None:
    cuts = []
    for _ in range(2):
        here, there = await connected(SimulatedNetwork(SimulatedClock(), Chance(5)))
        assert isinstance(there, End)
        here.transport.write(bytes(range(200)))
        await turns(300)
        assert b"".join(there.chunks) == bytes(range(200))
        cuts.append([len(chunk) for chunk in there.chunks])
    assert cuts[0] == cuts[1]
    assert len(cuts[0]) > 1


@on_a_loop
async def test_a_buffered_protocol_is_fed_through_its_own_buffer() -> None:
    here, there = await connected(SimulatedNetwork(SimulatedClock()), Buffered())
    assert isinstance(there, Buffered)
    here.transport.write(b"more than three")
    await turns()
    assert there.seen == b"more than three"


@on_a_loop
async def test_a_delay_is_kept_by_the_clock_and_never_reorders() -> None:
    clock = SimulatedClock()
    network = SimulatedNetwork(clock, delay_seconds=2.0)
    here, there = await connected(network)
    assert isinstance(there, End)
    here.transport.write(b"slow")
    network.delay_seconds = 1.0
    here.transport.write(b"fast")
    await turns()
    assert there.chunks == []
    clock.advance(2)
    await turns()
    assert there.chunks == [b"slow", b"fast"]


@on_a_loop
async def test_a_reader_that_pauses_fills_the_writer() -> None:
    here, there = await connected(SimulatedNetwork(SimulatedClock()))
    assert isinstance(there, End)
    here.transport.set_write_buffer_limits(high=10, low=5)
    there.transport.pause_reading()
    here.transport.write(bytes(8))
    assert here.events == []
    here.transport.write(bytes(8))
    assert here.events == ["pause"]
    assert here.transport.get_write_buffer_size() == 16
    there.transport.resume_reading()
    await turns()
    assert here.events == ["pause", "resume"]
    assert here.transport.get_write_buffer_size() == 0


@on_a_loop
async def test_closing_delivers_what_was_written_first() -> None:
    here, there = await connected(SimulatedNetwork(SimulatedClock()))
    assert isinstance(there, End)
    there.transport.pause_reading()
    here.transport.write(b"last words")
    here.transport.close()
    here.transport.write(b"too late")
    await turns()
    assert here.events == []
    there.transport.resume_reading()
    await turns()
    assert there.chunks == [b"last words"]
    assert there.events == ["eof", "lost"]
    assert here.events == ["lost"]
    assert here.error is there.error is None


@on_a_loop
async def test_half_a_connection_may_go_on_talking() -> None:
    there = End(stays_after_eof=True)
    here, _ = await connected(SimulatedNetwork(SimulatedClock()), there)
    here.transport.write_eof()
    await turns()
    assert there.events == ["eof"]
    there.transport.write(b"still here")
    await turns()
    assert here.chunks == [b"still here"]


@on_a_loop
async def test_aborting_resets_the_other_side() -> None:
    here, there = await connected(SimulatedNetwork(SimulatedClock()))
    assert isinstance(there, End)
    here.transport.abort()
    await turns()
    assert here.events == there.events == ["lost"]
    assert here.error is None
    assert isinstance(there.error, ConnectionResetError)


@on_a_loop
async def test_a_partition_holds_everything_back_until_it_heals() -> None:
    network = SimulatedNetwork(SimulatedClock())
    here, there = await connected(network)
    assert isinstance(there, End)
    host, port = there.transport.local
    network.partition(host, port)
    here.transport.write(b"to")
    there.transport.write(b"from")
    connecting = asyncio.ensure_future(network.connect(host, port, End()))
    await turns()
    assert here.chunks == there.chunks == []
    assert not connecting.done()
    connecting.cancel()
    network.heal(host, port)
    await turns()
    assert (here.chunks, there.chunks) == ([b"from"], [b"to"])


@on_a_loop
async def test_a_reset_breaks_both_ends() -> None:
    network = SimulatedNetwork(SimulatedClock())
    here, there = await connected(network)
    assert isinstance(there, End)
    network.reset(*there.transport.local)
    await turns()
    assert here.events == there.events == ["lost"]


@on_a_loop
async def test_nobody_listening_refuses_and_a_taken_address_cannot_be_taken_again() -> None:
    network = SimulatedNetwork(SimulatedClock())
    with pytest.raises(ConnectionRefusedError):
        await network.connect("127.0.0.1", 80, End())
    await network.listen("localhost", 80, lambda host, port: End(), backlog=1, exhausted=lambda: None)
    with pytest.raises(OSError, match="in use") as caught:
        await network.listen("127.0.0.1", 80, lambda host, port: End(), backlog=1, exhausted=lambda: None)
    assert caught.value.errno == errno.EADDRINUSE


@on_a_loop
async def test_who_listens_on_all_addresses_is_reached_on_each() -> None:
    network = SimulatedNetwork(SimulatedClock())
    await network.listen("0.0.0.0", 80, lambda host, port: End(), backlog=1, exhausted=lambda: None)
    await network.connect("10.9.8.7", 80, End())


@on_a_loop
async def test_a_peer_that_is_turned_away_learns_of_it_after_connecting() -> None:
    network = SimulatedNetwork(SimulatedClock())
    await network.listen("127.0.0.1", 80, lambda host, port: None, backlog=1, exhausted=lambda: None)
    end = End()
    await network.connect("127.0.0.1", 80, end)
    await turns()
    assert end.events == ["lost"]
