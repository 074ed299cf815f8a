"""TLS for a protocol that is not ours to frame, on a port where there is no plain talk: the HA port.

    transport ──▶ Secured ──▶ decrypted ──▶ the protocol
    transport ◀── encrypted ◀── SecuredTransport ◀── the protocol

Over OpenSSL's memory buffers, as on the other ports (`first_byte.py`): that is the same on every event loop.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

READ_BYTES_MAX: Final = 256 * 1024


class Secured(asyncio.Protocol):
    """Decrypts for a protocol, and encrypts what it writes."""

    def __init__(
        self, protocol: asyncio.Protocol, context: ssl.SSLContext, failed: Callable[[str], None]
    ) -> None:
        """`failed(why)` is called when TLS cannot be agreed on, or breaks: then hang up."""
        self._protocol = protocol
        self._failed = failed
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_agreed = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._protocol.connection_made(SecuredTransport(self, self._transport))

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        try:
            if not self._is_agreed:
                self._session.do_handshake()
                self._is_agreed = True
                self._send_encrypted()
            self._decrypt()
        except ssl.SSLWantReadError:
            self._send_encrypted()
        except ssl.SSLError as error:
            self._send_encrypted()  # the alert that tells the peer why
            self._failed(f"TLS could not be agreed on: {error.reason or 'it broke off'}")

    def _decrypt(self) -> None:
        """Hand over all that is readable, until OpenSSL wants more (SSLWantReadError) or it is the end."""
        chunks: list[bytes] = []
        try:
            while chunk := self._session.read(READ_BYTES_MAX):
                chunks.append(chunk)
        finally:
            if chunks:
                self._protocol.data_received(b"".join(chunks))
        if self._transport is not None:  # it said goodbye
            self._transport.close()

    def write(self, data: bytes) -> None:
        if self._is_agreed:
            self._session.write(data)
            self._send_encrypted()

    def _send_encrypted(self) -> None:
        if self._outgoing.pending and self._transport is not None:
            self._transport.write(self._outgoing.read())

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)


class SecuredTransport(asyncio.Transport):
    """What the protocol writes to: encrypts, and leaves buffering and pausing to the transport below."""

    def __init__(self, secured: Secured, below: asyncio.Transport) -> None:
        super().__init__()
        self._secured = secured
        self._below = below

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._secured.write(bytes(data))

    def close(self) -> None:
        self._below.close()

    def abort(self) -> None:
        self._below.abort()

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._below.get_extra_info(name, default)
