"""TLS on the same port, over real sockets: modes, verification, reload, on both event loops."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kourou.doors.clock import RealClock
from kourou.doors.network import RealNetwork
from kourou.errors import ConfigError, MQError, Unreachable
from kourou.protocol.command import Command
from kourou.remoting import server as server_module
from kourou.remoting.blocking import BlockingClient
from kourou.remoting.client import Client
from kourou.remoting.config import ClientTls, ServerConfig, TlsConfig
from tests.remoting.certificates import Authority, Files
from tests.remoting.real_world import BIG, BIG_BYTES, ECHO, ask, is_closed, replies, serving

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return LOOPS[request.param]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def tls(files: Files, **options: Any) -> ServerConfig:
    return ServerConfig(tls=TlsConfig(certificate=files.certificate, key=files.key, **options))


def call(address: str, with_tls: ClientTls | None, body: bytes = b"x") -> bytes:
    with BlockingClient(tls=with_tls) as client:
        return client.call(address, Command(ECHO, body=body), 5.0).body


def call_async(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    address: str,
    with_tls: ClientTls | None,
    code: int = ECHO,
) -> bytes:
    async def run() -> bytes:
        client = Client(network=RealNetwork(), clock=RealClock(), tls=with_tls)
        try:
            replies = await asyncio.gather(
                *(client.call(address, Command(code, body=b"x"), 5.0) for _ in range(20))
            )
            return replies[0].body
        finally:
            await client.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(run())


def test_both_clients_speak_tls_and_plain_to_a_permissive_server(
    authority: Authority, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    files = authority.issue("server", "127.0.0.1", "localhost")
    trusting = ClientTls(trust=authority.ca)
    with serving(tls(files), new_loop=new_loop) as running:
        for with_tls in (trusting, None):
            assert call(running.address, with_tls) == b"x"
            assert call_async(new_loop, running.address, with_tls) == b"x"
            assert call(f"localhost:{running.port}", with_tls) == b"x"
            assert len(call_async(new_loop, running.address, with_tls, BIG)) == BIG_BYTES
        large = bytes(range(256)) * 20_000
        assert call(running.address, trusting, large) == large


def test_an_enforcing_server_closes_plain_clients(
    authority: Authority, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    files = authority.issue("server", "127.0.0.1")
    with serving(tls(files, mode="enforcing"), new_loop=new_loop) as running:
        with pytest.raises(Unreachable):
            call(running.address, None)
        assert call(running.address, ClientTls(trust=authority.ca)) == b"x"


def test_a_disabled_server_closes_tls_clients_which_are_told_what_to_look_at(
    authority: Authority, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    with serving(ServerConfig(tls=TlsConfig(mode="disabled")), new_loop=new_loop) as running:
        for client in (call, lambda *args: call_async(new_loop, *args)):
            with pytest.raises(Unreachable, match=f"cannot reach {running.address}: "):
                client(running.address, ClientTls(trust=authority.ca))
        assert call(running.address, None) == b"x"


@pytest.mark.parametrize("kind", ["expired", "self-signed", "wrong host"])
def test_a48_a_client_refuses_a_certificate_it_cannot_trust(kind: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    stranger = Authority(tmp_path, "another CA")
    files = {
        "expired": lambda: authority.issue("server", "127.0.0.1", is_expired=True),
        "self-signed": lambda: stranger.issue("server", "127.0.0.1"),
        "wrong host": lambda: authority.issue("server", "broker-a.example"),
    }[kind]()
    with serving(tls(files)) as running:
        trusting = ClientTls(trust=authority.ca)
        expected = "its certificate is not trusted .*; name the CA that signed it, or the name it was given"
        with pytest.raises(Unreachable, match=expected):
            call(running.address, trusting)
        with pytest.raises(Unreachable, match=expected):
            call_async(asyncio.new_event_loop, running.address, trusting)
        assert call(running.address, ClientTls(verify=False)) == b"x"
        assert call_async(asyncio.new_event_loop, running.address, ClientTls(verify=False)) == b"x"
        if kind == "wrong host":
            named = ClientTls(trust=authority.ca, server_name="broker-a.example")
            assert call(running.address, named) == b"x"
            assert call_async(asyncio.new_event_loop, running.address, named) == b"x"


def test_a48_old_tls_is_refused(authority: Authority) -> None:
    files = authority.issue("server", "127.0.0.1")
    with serving(tls(files)) as running:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        with running.connect() as plain, pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(plain)
        assert call(running.address, ClientTls(trust=authority.ca)) == b"x"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_spoken(authority: Authority, version: ssl.TLSVersion) -> None:
    files = authority.issue("server", "127.0.0.1")
    with serving(tls(files)) as running:
        context = ssl.create_default_context(cafile=authority.ca)
        context.minimum_version = context.maximum_version = version
        with running.connect() as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped:
            wrapped.sendall(ask(ECHO, 1, b"x" * 100_000))
            assert len(replies(wrapped, 1)[0].body) == 100_000
            assert wrapped.version() == version.name.replace("_", ".")


def test_a_required_client_certificate_is_required(
    authority: Authority, tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    files = authority.issue("server", "127.0.0.1")
    ours = authority.issue("client", password="sesame")
    strange = Authority(tmp_path, "another CA").issue("stranger")
    config = tls(files, trust=authority.ca, require_client_certificate=True, mode="enforcing")
    with serving(config, new_loop=new_loop) as running:
        known = ClientTls(
            trust=authority.ca, certificate=ours.certificate, key=ours.key, key_password="sesame"
        )
        assert call(running.address, known) == b"x"
        assert call_async(new_loop, running.address, known) == b"x"
        for certificate, key in ((None, None), strange):
            unknown = ClientTls(trust=authority.ca, certificate=certificate, key=key)
            with pytest.raises(MQError):
                call(running.address, unknown)
            with pytest.raises(MQError):
                call_async(new_loop, running.address, unknown)


def test_a_reloaded_certificate_is_for_new_handshakes_and_old_connections_go_on(authority: Authority) -> None:
    files = authority.issue("server", "127.0.0.1")
    with serving(tls(files)) as running, BlockingClient(tls=ClientTls(trust=authority.ca)) as old:
        assert old.call(running.address, Command(ECHO)).code == 0
        before = _serial(running.port)
        authority.issue("renewed", "127.0.0.1", files=files)
        assert _serial(running.port) == before
        running.on_loop(running.server.reload_certificates)
        after = _serial(running.port)
        assert after != before
        assert old.call(running.address, Command(ECHO)).code == 0
        assert running.server.counters.accepted == 4  # `old` kept its connection

        Path(files.key).write_text("gone wrong")
        with pytest.raises(ConfigError, match="are not a PEM certificate and its PEM key"):
            running.on_loop(running.server.reload_certificates)
        assert _serial(running.port) == after


def test_a_changed_file_is_noticed_by_itself(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "CERTIFICATE_LOOK_SECONDS", 0.02)
    files = authority.issue("server", "127.0.0.1")
    with serving(tls(files)) as running:
        before = _serial(running.port)
        authority.issue("renewed", "127.0.0.1", files=files)
        deadline = time.monotonic() + 5
        while _serial(running.port) == before and time.monotonic() < deadline:
            time.sleep(0.02)
        assert _serial(running.port) != before
        Path(files.certificate).write_text("half written")
        time.sleep(0.1)
        assert _serial(running.port) != before


def test_unreadable_certificates_stop_the_start(authority: Authority) -> None:
    files = authority.issue("server", "127.0.0.1")
    with (
        pytest.raises(ConfigError, match=r"'/nowhere\.pem' or key .* cannot be read: No such file"),
        serving(tls(files._replace(certificate="/nowhere.pem"))),
    ):
        pass


def test_garbage_after_the_first_byte_closes_at_once(authority: Authority) -> None:
    files = authority.issue("server", "127.0.0.1")
    with serving(tls(files)) as running, running.connect(1.0) as evil:
        evil.sendall(b"\x16" + bytes(100))
        received = evil.recv(100)
        assert received == b"" or received[0] == 0x15  # an alert, then the end
        assert received == b"" or is_closed(evil)


def test_a_tls_reader_that_does_not_read_is_closed(authority: Authority) -> None:
    files = authority.issue("server", "127.0.0.1")
    config = ServerConfig(
        tls=TlsConfig(certificate=files.certificate, key=files.key),
        write_stall_seconds=0.3,
        write_buffer_pause_bytes=64 * 1024,
    )
    with serving(config) as running, running.connect() as plain:
        context = ssl.create_default_context(cafile=authority.ca)
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped:
            wrapped.sendall(b"".join(ask(BIG, number) for number in range(30)))
            deadline = time.monotonic() + 5
            while not running.server.counters.closed and time.monotonic() < deadline:
                time.sleep(0.02)
            assert running.server.counters.closed == {"stalled": 1}


def _serial(port: int) -> str:
    """The serial number of the certificate the server shows now."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), 5) as plain,
        context.wrap_socket(plain) as wrapped,
    ):
        return ssl.DER_cert_to_PEM_cert(wrapped.getpeercert(True) or b"")
