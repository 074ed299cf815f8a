"""A few small pages over HTTP/1.1: the name server's address list, metrics, health. And fetching one.

Only GET and HEAD, no bodies, a request head of at most 8 KiB that has to be there in 10 seconds. Whoever
needs more puts a real web server in front.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast
from urllib.parse import SplitResult, urlsplit

from kourou.doors.clock import Clock, Timer
from kourou.doors.network import Listener, Network
from kourou.errors import AddressTaken, ConfigError, ProtocolError, Unreachable
from kourou.remoting.address import format_address, is_ip_address
from kourou.remoting.complaints import Complaints
from kourou.remoting.config import ClientTls
from kourou.remoting.failures import in_words
from kourou.remoting.limit import Limit
from kourou.remoting.tls import client_context

logger = logging.getLogger(__name__)

HEAD_BYTES_MAX = 8 * 1024
HEAD_SECONDS = 10.0
CONNECTIONS_MAX = 512
PIPELINED_MAX = 16
END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True)
class Page:
    """What is shown at a path."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = HTTPStatus.OK


Pages = Callable[[str], Page | Awaitable[Page] | None]
"""The page at a path (without its query), or None when there is none; one that takes long may come later."""


class HttpServer:
    """Serves `pages` on one port."""

    def __init__(
        self,
        pages: Pages,
        *,
        network: Network,
        clock: Clock,
        host: str = "127.0.0.1",
        port: int = 0,
        names: Collection[str] | None = None,
    ) -> None:
        """With `names`, only requests that ask for one of them, or for an address, are served: a web page
        whose name was pointed at this machine (DNS rebinding) reads nothing."""
        self.pages = pages
        self.names = names
        self.clock = clock
        self.complaints = Complaints(logger, clock)
        self.connections: set[_HttpConnection] = set()
        self._network = network
        self._host = host
        self._port = port
        self._listener: Listener | None = None

    async def start(self) -> None:
        """Listen; raises ConfigError naming the way out when the address cannot be had."""
        try:
            self._listener = await self._network.listen(
                self._host, self._port, self._accept, backlog=128, exhausted=lambda: None
            )
        except OSError as error:
            address = format_address(self._host, self._port)
            kind = AddressTaken if error.errno == errno.EADDRINUSE else ConfigError
            raise kind(
                f"cannot serve HTTP on {address}: {error.strerror or error}; "
                "stop what holds that address, or choose another one"
            ) from None

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.close()

    @property
    def port(self) -> int:
        return self._port if self._listener is None else self._listener.addresses[0][1]

    def _accept(self, host: str, port: int) -> asyncio.BaseProtocol | None:
        return _HttpConnection(self) if len(self.connections) < CONNECTIONS_MAX else None


class _HttpConnection(asyncio.Protocol):
    """One client: heads in, pages out, until it or we have had enough."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: Timer | None = None
        self._making: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.connections.add(self)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._making is not None:
            self._making.cancel()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _await_head(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._server.clock.later(HEAD_SECONDS, self._give_up)

    def _give_up(self) -> None:
        assert self._transport is not None
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._received += data
        if self._making is None:
            self._serve_received()
        elif len(self._received) > HEAD_BYTES_MAX:
            self._give_up()

    def _serve_received(self) -> None:
        assert self._transport is not None
        for _ in range(PIPELINED_MAX):
            if self._making is not None:
                return
            end = self._received.find(END_OF_HEAD)
            if self._transport.is_closing():
                return
            if end < 0 and len(self._received) <= HEAD_BYTES_MAX:
                return
            if end < 0 or end > HEAD_BYTES_MAX:
                self._answer(_error_page(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), keep_alive=False)
                return
            head = bytes(self._received[:end])
            del self._received[: end + len(END_OF_HEAD)]
            self._await_head()
            self._serve(head)
        self.close()

    def _serve(self, head: bytes) -> None:
        try:
            request = _parse_head(head)
        except ProtocolError:
            self._answer(_error_page(HTTPStatus.BAD_REQUEST), keep_alive=False)
            return
        if request.method not in ("GET", "HEAD"):
            self._answer(_error_page(HTTPStatus.METHOD_NOT_ALLOWED), keep_alive=False)
            return
        names = self._server.names
        if names is not None and request.host and not _is_address_or(names, request.host):
            self._answer(_error_page(HTTPStatus.MISDIRECTED_REQUEST), keep_alive=False)
            return
        page = self._page(request.path)
        if isinstance(page, Page):
            self._answer(page, keep_alive=request.keep_alive, is_head=request.method == "HEAD")
        else:
            self._making = asyncio.get_running_loop().create_task(self._answer_later(page, request))

    def _page(self, path: str) -> Page | Awaitable[Page]:
        try:
            return self._server.pages(path) or _error_page(HTTPStatus.NOT_FOUND)
        except Exception as error:
            return self._failed(path, error)

    async def _answer_later(self, making: Awaitable[Page], request: _Request) -> None:
        """What else has come meanwhile waits its turn."""
        try:
            page = await making
        except Exception as error:
            page = self._failed(request.path, error)
        self._making = None
        self._answer(page, keep_alive=request.keep_alive, is_head=request.method == "HEAD")
        self._serve_received()

    def _failed(self, path: str, error: Exception) -> Page:
        self._server.complaints.warn("page", f"making the page {path} failed", error)
        return _error_page(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _answer(self, page: Page, *, keep_alive: bool, is_head: bool = False) -> None:
        assert self._transport is not None
        status = HTTPStatus(page.status)
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"Content-Type: {page.content_type}",
            f"Content-Length: {len(page.body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            f"Connection: {'keep-alive' if keep_alive else 'close'}",
        ]
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append("Allow: GET, HEAD")
        head = "\r\n".join(lines).encode() + END_OF_HEAD
        self._transport.write(head if is_head else head + page.body)
        if not keep_alive:
            self._transport.close()


def _error_page(status: HTTPStatus) -> Page:
    return Page(f"{status.phrase}\n".encode(), status=status)


@dataclass(frozen=True)
class _Request:
    method: str
    path: str
    host: str
    keep_alive: bool


def _parse_head(head: bytes) -> _Request:
    """The request in `head`; ProtocolError when it is not one we take."""
    try:
        first, *rest = head.decode("ascii").split("\r\n")
        method, target, version = first.split(" ")
    except ValueError:
        raise ProtocolError("no HTTP request") from None
    fields = _parse_fields(rest)
    if version not in ("HTTP/1.0", "HTTP/1.1") or not target.startswith("/") or not method.isalpha():
        raise ProtocolError("no HTTP/1 request for a path")
    if version == "HTTP/1.1" and "host" not in fields:
        raise ProtocolError("no host given")
    if "transfer-encoding" in fields or fields.get("content-length", "0") != "0":
        raise ProtocolError("requests with a body are not taken")
    connection = fields.get("connection", "").lower()
    keep_alive = connection != "close" if version == "HTTP/1.1" else connection == "keep-alive"
    return _Request(method, target.partition("?")[0], fields.get("host", ""), keep_alive)


def _is_address_or(names: Collection[str], host: str) -> bool:
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    return name.lower() in names or is_ip_address(name)


def _parse_fields(lines: list[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise ProtocolError("unreadable header line")
        fields[name.lower()] = value.strip()
    return fields


# ---------------------------------------------------------------------------------------------- fetching


async def fetch_text(
    url: str, *, network: Network, clock: Clock, timeout_seconds: float = 3.0, bytes_max: int = 64 * 1024
) -> str:
    """The text at an http or https `url`. No redirects, nothing longer than `bytes_max`.

    Raises ConfigError for a URL that is none, Unreachable when the page cannot be had.
    """
    parts = _parse_url(url)
    assert parts.hostname is not None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    request = (
        f"GET {target} HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}\r\n"
        "Accept: text/plain, */*\r\nConnection: close\r\n\r\n"
    ).encode()
    reply = _Reply(bytes_max + HEAD_BYTES_MAX)
    context = client_context(ClientTls()) if parts.scheme == "https" else None
    try:
        async with Limit(clock, timeout_seconds):
            transport = await network.connect(parts.hostname, port, reply, tls=context)
            try:
                cast(asyncio.Transport, transport).write(request)
                received = await reply.all
            finally:
                transport.close()
    except OSError as error:
        raise Unreachable(f"cannot fetch {url}: {in_words(error)}") from None
    except ProtocolError as error:
        raise Unreachable(f"cannot fetch {url}: {error}") from None
    return _text_in(received, url, bytes_max)


def _parse_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        has_port = parts.port != 0  # raises when it is none
    except ValueError:
        has_port, parts = False, SplitResult("", "", "", "", "")
    if parts.scheme not in ("http", "https") or not parts.hostname or not has_port:
        raise ConfigError(f"'{url}' is not a URL of the form http://host:port/path")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(f"URL {url!r} has characters that must be percent-encoded")
    return parts


class _Reply(asyncio.Protocol):
    """Gathers bytes until the server closes the connection."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._received = bytearray()
        self.all: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > self._bytes_max and not self.all.done():
            self.all.set_exception(ProtocolError(f"it is longer than {self._bytes_max} bytes"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.all.done():
            self.all.set_result(bytes(self._received))


def _text_in(received: bytes, url: str, bytes_max: int) -> str:
    head, end, body = received.partition(END_OF_HEAD)
    try:
        first, *rest = head.decode("latin-1").split("\r\n")
        version, status, *_ = first.split(" ")
        fields = _parse_fields(rest)
        if not end or not version.startswith("HTTP/1."):
            raise ProtocolError("no HTTP reply")
        if fields.get("transfer-encoding", "").lower() == "chunked":
            body = _joined_chunks(body)
        elif "content-length" in fields and len(body) != int(fields["content-length"]):
            raise ProtocolError("the reply ended early")
        text = body.decode()
    except (ValueError, ProtocolError) as error:
        raise Unreachable(f"cannot fetch {url}: not an HTTP reply that can be read ({error})") from None
    if status != "200":
        raise Unreachable(f"cannot fetch {url}: the server answers {status}")
    if len(body) > bytes_max:
        raise Unreachable(f"cannot fetch {url}: it is longer than {bytes_max} bytes")
    return text


def _joined_chunks(body: bytes) -> bytes:
    """A chunked body as one: size in hex, line end, that many bytes, line end; 0 is the last."""
    chunks: list[bytes] = []
    while True:
        line, end, body = body.partition(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        if not end or size < 0 or len(body) < size:
            raise ProtocolError("the reply ended early")
        if size == 0:
            return b"".join(chunks)
        chunks.append(body[:size])
        body = body[size + 2 :]
