from __future__ import annotations

import asyncio

import pytest

from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_network import SimulatedNetwork, SimulatedTransport
from kourou.errors import ConfigError, Unreachable
from kourou.remoting.http import HttpServer, Page, fetch_text
from tests.unit.remoting.simulated_world import on_a_loop, turns


def pages(path: str) -> Page | None:
    if path == "/broken":
        raise RuntimeError("a secret of ours")
    return Page(b"10.0.0.1:9876;10.0.0.2:9876") if path == "/rocketmq/nsaddr" else None


class Browser(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


class World:
    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.network = SimulatedNetwork(self.clock)

    async def serve(self) -> HttpServer:
        self.server = HttpServer(pages, network=self.network, clock=self.clock, port=8080)
        await self.server.start()
        return self.server

    async def say(self, text: str | bytes) -> Browser:
        browser = Browser()
        await self.network.connect("127.0.0.1", 8080, browser)
        browser.transport.write(text.encode() if isinstance(text, str) else text)
        await turns()
        return browser


@on_a_loop
async def test_a_page_is_served_whatever_the_query() -> None:
    world = World()
    await world.serve()
    browser = await world.say("GET /rocketmq/nsaddr?nofix=1 HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, body = browser.received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 27" in head
    assert b"Content-Type: text/plain; charset=utf-8" in head
    assert body == b"10.0.0.1:9876;10.0.0.2:9876"
    assert not browser.is_lost


@on_a_loop
async def test_head_gives_the_head_and_no_body() -> None:
    world = World()
    await world.serve()
    browser = await world.say("HEAD /rocketmq/nsaddr HTTP/1.0\r\n\r\n")
    assert b"Content-Length: 27" in browser.received
    assert browser.received.endswith(b"\r\n\r\n")
    assert browser.is_lost


@on_a_loop
async def test_requests_on_one_connection_are_answered_in_order_however_they_arrive() -> None:
    world = World()
    await world.serve()
    request = b"GET /rocketmq/nsaddr HTTP/1.1\r\nHost: x\r\n\r\nGET /other HTTP/1.1\r\nHost: x\r\n\r\n"
    browser = await world.say(b"")
    for byte in request:
        browser.transport.write(bytes([byte]))
        await turns(4)
    assert browser.received.count(b"HTTP/1.1 200 OK") == 1
    assert browser.received.index(b"200 OK") < browser.received.index(b"404 Not Found")


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", "404 Not Found"),
        ("GET /broken HTTP/1.1\r\nHost: x\r\n\r\n", "500 Internal Server Error"),
        ("POST /rocketmq/nsaddr HTTP/1.1\r\nHost: x\r\n\r\n", "405 Method Not Allowed"),
        ("GET /rocketmq/nsaddr HTTP/1.1\r\n\r\n", "400 Bad Request"),
        ("GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", "400 Bad Request"),
        ("GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", "400 Bad Request"),
        ("GET / HTTP/2.0\r\nHost: x\r\n\r\n", "400 Bad Request"),
        ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", "400 Bad Request"),
        ("GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "400 Bad Request"),
        ("GET / HTTP/1.1\r\nHost : x\r\n\r\n", "400 Bad Request"),
        ("nonsense\r\n\r\n", "400 Bad Request"),
        ("GET /ä HTTP/1.1\r\nHost: x\r\n\r\n", "400 Bad Request"),
        ("GET / HTTP/1.1\r\nHost: x\r\nX: " + "x" * 9000, "431 Request Header Fields Too Large"),
        ("GET / HTTP/1.1\r\nHost: x\r\nX: " + "x" * 9000 + "\r\n\r\n", "431 Request Header Fields Too Large"),
    ],
)
@on_a_loop
async def test_what_cannot_be_served_gets_the_status_that_says_so(request_text: str, status: str) -> None:
    world = World()
    await world.serve()
    browser = await world.say(request_text)
    assert browser.received.startswith(f"HTTP/1.1 {status}\r\n".encode())
    assert b"secret" not in browser.received
    assert browser.is_lost == status.startswith(("400", "405", "431"))
    assert (b"Allow: GET, HEAD" in browser.received) == status.startswith("405")


@on_a_loop
async def test_a_head_that_does_not_end_is_not_waited_for() -> None:
    world = World()
    await world.serve()
    browser = await world.say("GET / HTTP/1.1\r\n")
    for _ in range(11):
        world.clock.advance(1)
        browser.transport.write(b"x")
        await turns()
    assert browser.is_lost
    assert not world.server.connections


@on_a_loop
async def test_a_taken_address_is_named_and_stopping_closes_all() -> None:
    world = World()
    server = await world.serve()
    with pytest.raises(ConfigError, match=r"cannot serve HTTP on 127\.0\.0\.1:8080: .* choose another"):
        await world.serve()
    browser = await world.say("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await server.stop()
    await turns()
    assert browser.is_lost


# ---------------------------------------------------------------------------------------------- fetching


@on_a_loop
async def test_what_is_served_can_be_fetched() -> None:
    world = World()
    await world.serve()
    text = await fetch_text(
        "http://localhost:8080/rocketmq/nsaddr?a=b", network=world.network, clock=world.clock
    )
    assert text == "10.0.0.1:9876;10.0.0.2:9876"
    with pytest.raises(Unreachable, match=r"cannot fetch http://localhost:8080/x: the server answers 404"):
        await fetch_text("http://localhost:8080/x", network=world.network, clock=world.clock)
    with pytest.raises(Unreachable, match="Connection refused"):
        await fetch_text("http://localhost:1/x", network=world.network, clock=world.clock)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "localhost:8080",
            "ftp://x/",
            "http://",
            "file:///etc/passwd",
            "http://x:99999/",
            "http://x:0/",
        ),
        *("http://[::1/", "http://x:y/", "http://x/a b", "http://x/ä", "http://x/\x01"),
    ],
)
@on_a_loop
async def test_what_is_no_url_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a URL of the form|must be percent-encoded"):
        await fetch_text(url, network=World().network, clock=SimulatedClock())


class Canned(asyncio.Protocol):
    """Answers everything with the same bytes."""

    def __init__(self, reply: bytes) -> None:
        self._reply = reply

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._reply:
            self._transport.write(self._reply)
            self._transport.close()


async def fetch_canned(reply: bytes) -> str:
    world = World()
    await world.network.listen(
        "127.0.0.1", 80, lambda host, port: Canned(reply), backlog=1, exhausted=lambda: None
    )
    fetching = asyncio.ensure_future(fetch_text("http://127.0.0.1", network=world.network, clock=world.clock))
    await turns()
    world.clock.advance(4)
    return await fetching


@on_a_loop
async def test_chunks_are_joined() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
    assert await fetch_canned(chunked) == "abcde"


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (b"", "no answer within 3 s"),
        (b"SSH-2.0-x\r\n\r\n", "not an HTTP reply"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", "ended early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc", "ended early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc", "not an HTTP reply"),
        (b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe", "not an HTTP reply"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(70_000), "longer than 65536 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(700_000), "longer than"),
    ],
)
@on_a_loop
async def test_a_reply_that_is_not_one_is_unreachable_and_says_why(reply: bytes, why: str) -> None:
    with pytest.raises(Unreachable, match=why):
        await fetch_canned(reply)
