from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import pytest

from kourou.doors.chance import Chance
from kourou.protocol.command import Command, decode
from kourou.protocol.frame import FrameReader
from kourou.remoting.config import ClientTls, ServerConfig, TlsConfig
from kourou.remoting.tls import client_context
from tests.remoting.certificates import Authority
from tests.unit.remoting.simulated_world import ECHO, Peer, World, ask, on_a_loop, turns


class TlsPeer:
    """A TLS client over a raw peer, by OpenSSL's memory buffers."""

    def __init__(self, peer: Peer, context: ssl.SSLContext) -> None:
        self.peer = peer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._taken = 0

    async def shake_hands(self) -> None:
        while True:
            try:
                self._session.do_handshake()
                return
            except ssl.SSLWantReadError:
                before = len(self.peer.chunks)
                await self._exchange()
                assert len(self.peer.chunks) > before, "the server has nothing to say"

    async def ask(self, *commands: Command) -> list[Command]:
        self._session.write(b"".join(each.encode() for each in commands))
        await self._exchange()
        received = b""
        while True:
            try:
                received += self._session.read(1 << 16)
            except ssl.SSLWantReadError:
                return [decode(frame) for frame in FrameReader().feed(received)]

    async def say_goodbye(self, *commands: Command) -> None:
        self._session.write(b"".join(each.encode() for each in commands))
        with contextlib.suppress(ssl.SSLWantReadError):
            self._session.unwrap()
        await self._exchange()

    async def _exchange(self) -> None:
        if self._outgoing.pending:
            self.peer.transport.write(self._outgoing.read())
        await turns(3000)
        for chunk in self.peer.chunks[self._taken :]:
            self._incoming.write(chunk)
        self._taken = len(self.peer.chunks)


class Quiet(Peer):
    """Does not try to read frames in what is encrypted."""

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def serve(world: World, authority: Authority, mode: str) -> None:
    files = authority.issue("server", "localhost")
    tls = TlsConfig(mode=mode, certificate=files.certificate, key=files.key)  # type: ignore[arg-type]
    await world.serve(config=ServerConfig(tls=tls))


async def tls_peer(world: World, authority: Authority) -> TlsPeer:
    quiet = Quiet()
    await world.network.connect("127.0.0.1", world.server.port, quiet)
    return TlsPeer(quiet, client_context(ClientTls(trust=authority.ca)))


@pytest.mark.parametrize("chance", [None, Chance(1)])
@on_a_loop
async def test_permissive_serves_both_by_their_first_byte(
    authority: Authority, chance: Chance | None
) -> None:
    world = World(chance)
    await serve(world, authority, "permissive")
    plain = await world.peer()
    await plain.send(ask(ECHO, 1, b"plain"))
    await turns(1000)
    encrypted = await tls_peer(world, authority)
    await encrypted.shake_hands()
    replies = await encrypted.ask(ask(ECHO, 1, b"one"), ask(ECHO, 2, bytes(20_000)))
    assert [r.body for r in plain.replies] == [b"plain"]
    assert [len(r.body) for r in replies] == [3, 20_000]


@on_a_loop
async def test_enforcing_closes_plain_clients(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    await serve(world, authority, "enforcing")
    plain = await world.peer()
    await plain.send(ask(ECHO))
    assert plain.is_lost
    assert plain.replies == []
    assert "TLS is enforced here" in caplog.text
    encrypted = await tls_peer(world, authority)
    await encrypted.shake_hands()
    assert len(await encrypted.ask(ask(ECHO))) == 1


@on_a_loop
async def test_disabled_closes_tls_clients_and_says_why(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    await world.serve(config=ServerConfig(tls=TlsConfig(mode="disabled")))
    encrypted = await tls_peer(world, authority)
    with pytest.raises(AssertionError, match="nothing to say"):
        await encrypted.shake_hands()
    assert encrypted.peer.is_lost
    assert "it speaks TLS, which is disabled here" in caplog.text


@on_a_loop
async def test_a_handshake_that_never_ends_counts_as_no_first_frame(authority: Authority) -> None:
    world = World()
    await serve(world, authority, "permissive")
    silent, half = await world.peer(), await world.peer()
    half.transport.write(b"\x16\x03\x01\x02\x00\x01")
    await world.pass_time(9)
    assert not silent.is_lost
    assert not half.is_lost
    await world.pass_time(2)
    assert silent.is_lost
    assert half.is_lost
    assert world.server.counters.closed == {"first frame": 2}


@on_a_loop
async def test_broken_tls_closes_only_its_own_connection(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    await serve(world, authority, "permissive")
    honest = await tls_peer(world, authority)
    await honest.shake_hands()
    broken = Quiet()
    await world.network.connect("127.0.0.1", world.server.port, broken)
    broken.transport.write(b"\x16" + bytes(200))
    await turns()
    assert broken.is_lost
    assert len(caplog.records) == 1
    assert len(await honest.ask(ask(ECHO))) == 1


@on_a_loop
async def test_answers_of_a_tick_are_one_write_with_tls_too(authority: Authority) -> None:
    world = World()
    await serve(world, authority, "enforcing")
    peer = await tls_peer(world, authority)
    await peer.shake_hands()
    await peer.ask(ask(ECHO))
    theirs = world.network.transports[1]
    before = len(theirs.written)
    assert len(await peer.ask(*(ask(ECHO, number) for number in range(50)))) == 50
    assert len(theirs.written) == before + 1


@on_a_loop
async def test_a_tls_goodbye_ends_the_connection_after_the_last_answers(authority: Authority) -> None:
    world = World()
    await serve(world, authority, "enforcing")
    peer = await tls_peer(world, authority)
    await peer.shake_hands()
    assert len(await peer.ask(ask(ECHO))) == 1
    await peer.say_goodbye(ask(ECHO, 2, b"last"))
    assert peer.peer.is_lost
    assert world.server.counters.closed == {"peer": 1}
    assert world.server.counters.requests == 2
