"""Plain frames or TLS on one port, told apart by the first byte.

0x16 begins a TLS handshake and no frame: as a length it would be above 352 MiB. `FirstByte` looks at it,
puts the right protocol in its place and is gone, so a plain connection pays nothing after that.

TLS runs over OpenSSL's memory buffers rather than asyncio's `start_tls`, which has no way to be given the
bytes that were read to find out.

    transport -> TlsProtocol -> decrypted -> Connection.received
    transport <- encrypted  <- TlsTransport.write <- Connection
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, cast

from kourou.remoting.connection import TLS_HANDSHAKE, Connection
from kourou.remoting.switchboard import READ_BYTES_MAX
from kourou.remoting.tls import CERTIFICATE_NAME, Certificates, common_name


class FirstByte(asyncio.BufferedProtocol):
    """Waits for one byte, then hands over to the plain or the TLS side."""

    __slots__ = ("_certificates", "_connection", "_is_plain_allowed", "_transport", "_warn")

    def __init__(
        self,
        connection: Connection,
        certificates: Certificates,
        is_plain_allowed: bool,
        warn: Callable[[str, str], None],
    ) -> None:
        self._connection = connection
        self._certificates = certificates
        self._is_plain_allowed = is_plain_allowed
        self._warn = warn
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connection.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        transport, connection = self._transport, self._connection
        assert transport is not None
        data = bytes(connection.get_buffer(nbytes)[:nbytes])
        if data[0] == TLS_HANDSHAKE:
            tls = TlsProtocol(connection, transport, self._certificates.context, self._warn)
            transport.set_protocol(tls)
            tls.received(data)
        elif self._is_plain_allowed:
            transport.set_protocol(connection)
            connection.received(data)
        else:
            self._warn("plain", f"closing the plain connection from {connection.peer}: TLS is enforced here")
            connection.abort("plain")

    def eof_received(self) -> None:
        self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)


class TlsProtocol(asyncio.BufferedProtocol):
    """The TLS side of an accepted connection: decrypts for it, and encrypts what it writes."""

    __slots__ = ("_connection", "_incoming", "_is_agreed", "_outgoing", "_session", "_transport", "_warn")

    def __init__(
        self,
        connection: Connection,
        transport: asyncio.Transport,
        context: ssl.SSLContext,
        warn: Callable[[str, str], None],
    ) -> None:
        self._connection = connection
        self._transport = transport
        self._warn = warn
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_agreed = False
        connection.talk_through(TlsTransport(self, transport))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self.received(bytes(self._connection.get_buffer(nbytes)[:nbytes]))

    def received(self, data: bytes) -> None:
        self._incoming.write(data)
        try:
            if not self._is_agreed:
                self._session.do_handshake()
                self._is_agreed = True
                self._connection.facts[CERTIFICATE_NAME] = common_name(self._session.getpeercert())
            self._decrypt()
        except ssl.SSLWantReadError:
            self._send_encrypted()
        except ssl.SSLError as error:
            self._send_encrypted()  # the alert that tells the peer why
            reason = error.reason or "broken TLS"
            self._warn("tls", f"closing the TLS connection from {self._connection.peer}: {reason}")
            self._connection.close("tls")

    def _decrypt(self) -> None:
        """Hand over all that is readable, until OpenSSL wants more (SSLWantReadError) or it is the end."""
        chunks: list[bytes] = []
        try:
            while chunk := self._session.read(READ_BYTES_MAX):  # one record, 16 KiB, at a time
                chunks.append(chunk)
        finally:
            if chunks:
                self._connection.received(b"".join(chunks))
        self._connection.close("peer")  # it said goodbye

    def write(self, data: bytes) -> None:
        if self._is_agreed:
            self._session.write(data)
            self._send_encrypted()

    def say_goodbye(self) -> None:
        """Best effort: many peers just hang up, and so may we."""
        if self._is_agreed:
            with contextlib.suppress(ssl.SSLError):  # "want read": the peer's goodbye is not waited for
                self._session.unwrap()
            self._send_encrypted()

    def _send_encrypted(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def eof_received(self) -> None:
        self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)


class TlsTransport(asyncio.Transport):
    """What the connection writes to: encrypts, and leaves buffering and pausing to the transport below."""

    __slots__ = ("_below", "_tls")

    def __init__(self, tls: TlsProtocol, below: asyncio.Transport) -> None:
        super().__init__()
        self._tls = tls
        self._below = below

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._tls.write(bytes(data))

    def close(self) -> None:
        self._tls.say_goodbye()
        self._below.close()

    def abort(self) -> None:
        self._below.abort()

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def pause_reading(self) -> None:
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._below.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._below.get_extra_info(name, default)
