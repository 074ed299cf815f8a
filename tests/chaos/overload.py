"""A broker that everybody wants too much of, and one client that only wants what it always gets.

    idle     connections that said something once, and now nothing
    slow     readers who ask for megabytes and take a few kilobytes a second
    trickle  senders of a frame that comes a byte at a time, and never ends
    upload   senders of megabytes over a link of one megabyte a second, which they may
    flood    producers that always have a window of sends under way, however long the answers take

They live in a process of their own, nice to everybody else, and do as they are told line by line:

    {"do": "idle", "count": 10000}      ─▶  {"open": 10000, "lost": 0}
    {"do": "told"}                      ─▶  what the replies said, by code, and how many there were

The client that measures is in the process of the test: one request at a time, a send and a pull in turn.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from statistics import median, quantiles
from typing import Any, NamedTuple

from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command, decode, request
from kourou.protocol.frame import FrameReader
from kourou.protocol.headers import QueueNamed
from tests.unit.broker.broker_world import pull, send

TOPIC, LARGE = "orders", "large"
BODY = b"x" * 1024
LARGE_BODY = b"y" * 8 * 1024
PULLS_OF_A_SLOW_READER = 8
SLOW_BYTES, SLOW_SECONDS = 4 * 1024, 0.5
HOSTS_FROM, CONNECTIONS_A_HOST = 2, 400
"""Each of 127.0.0.2, 127.0.0.3 … has so many connections: a broker bounds what one host may have."""
SECONDS_MAX = 60.0
TRICKLE_SECONDS = 0.2
UPLOAD_BYTES_A_SECOND, UPLOAD_SECONDS = 1_000_000, 0.05


# ---------------------------------------------------------------------------------------- who measures


class Latencies(NamedTuple):
    """In milliseconds."""

    requests: int
    p50: float
    p99: float
    longest: float
    """Whoever waits asks nothing meanwhile: one long wait is one request, and no p99 shows it."""

    def __str__(self) -> str:
        slow = f"p99 {self.p99:7.2f} ms, longest {self.longest:6.0f} ms"
        return f"p50 {self.p50:6.2f} ms, {slow} ({self.requests} requests)"


class Bystander:
    """Somebody with one request at a time."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader()

    def ask(self, command: Command) -> Command:
        self._socket.sendall(command.encode())
        while True:
            data = self._socket.recv(1 << 20)
            assert data, "the broker hung up on a client that did nothing wrong"
            for frame in self._reader.feed(data):
                return decode(frame)

    def measured(self, seconds: float, rounds: int = 1) -> Latencies:
        """How long sends and pulls take, in turn, for so long; of several rounds what is in the middle: what
        else a machine does now and then is no fault of the broker's, and a broker's fault is there always."""
        found = [self._measured(seconds / rounds) for _ in range(rounds)]
        return Latencies(
            sum(each.requests for each in found),
            median(each.p50 for each in found),
            median(each.p99 for each in found),
            max(each.longest for each in found),
        )

    def _measured(self, seconds: float, pause: float = 0.004) -> Latencies:
        took: list[float] = []
        end = time.monotonic() + seconds
        queue_offset = 0
        while time.monotonic() < end or len(took) < 20:
            for command in (send(TOPIC, BODY, queue_id=3), pull(TOPIC, 3, queue_offset, message_count_max=1)):
                begin = time.perf_counter()
                reply = self.ask(command)
                took.append((time.perf_counter() - begin) * 1000)
                assert reply.code in (0, 19, 20), reply
            queue_offset += 1
            time.sleep(pause)
        cuts = quantiles(took, n=100, method="inclusive")
        return Latencies(len(took), cuts[49], cuts[98], max(took))

    def close(self) -> None:
        self._socket.close()


def told_while_not_reading(address: str, pulls: int, sends: int, seconds: float) -> tuple[list[int], int]:
    """Somebody asks for much, sends something behind it, and reads nothing for so long: what the sends were
    answered; and what one more is, when everything has been read."""
    host, _, port = address.rpartition(":")
    codes: dict[int, int] = {}
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * 1024)
        peer.settimeout(SECONDS_MAX)
        peer.connect((host, int(port)))
        commands = [pull(LARGE, number % 4, 0) for number in range(pulls)]
        commands += [send(TOPIC, b"behind them", queue_id=0) for _ in range(sends)]
        for opaque, command in enumerate(commands):
            command.opaque = opaque
        peer.sendall(b"".join(command.encode() for command in commands))
        time.sleep(seconds)
        reader = FrameReader()
        _read(peer, reader, codes, len(commands))
        last = send(TOPIC, b"one more", queue_id=0)
        last.opaque = len(commands)
        peer.sendall(last.encode())
        _read(peer, reader, codes, len(commands) + 1)
    return [codes[opaque] for opaque in range(pulls, pulls + sends)], codes[len(commands)]


def _read(peer: socket.socket, reader: FrameReader, codes: dict[int, int], count: int) -> None:
    while len(codes) < count:
        data = peer.recv(1 << 20)
        assert data, "the broker hung up on somebody who was slow for a moment"
        for frame in reader.feed(data):
            reply = decode(frame)
            codes[reply.opaque] = reply.code


# ------------------------------------------------------------------------------------------- the crowd


class Crowd:
    """The other process, seen from here."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def do(self, what: str, **more: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the crowd has died"
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def crowd(address: str) -> Iterator[Crowd]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.overload", address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Crowd(process)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


class _People:
    """Everybody of the crowd, and what they were told."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._idle: list[_Idle] = []
        self._slow: list[asyncio.Task[None]] = []
        self._flood: list[_Flooder] = []
        self.codes: Counter[int] = Counter()
        self.lost = 0
        self.read_slowly = 0
        self._trickling: list[asyncio.Task[float]] = []
        self._uploading: list[asyncio.Task[int]] = []

    async def idle(self, count: int) -> dict[str, Any]:
        self._idle += [peer for peer in await self._connected(count, lambda: _Idle(self)) if peer]
        return {"open": len(self._idle), "lost": self.lost}

    async def slow(self, count: int) -> dict[str, Any]:
        for number in range(count):
            self._slow.append(asyncio.ensure_future(self._read_slowly(number)))
            if number % 50 == 49:
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        return {"open": sum(not task.done() for task in self._slow), "read": self.read_slowly}

    async def trickle(self, count: int, frames: int) -> dict[str, Any]:
        """Each sends so many whole frames, and then one by the byte."""
        self._trickling += [asyncio.ensure_future(self._trickle(frames)) for _ in range(count)]
        return {}

    async def trickled(self) -> dict[str, Any]:
        """How many seconds those had that were hung up on, and how many still go on."""
        over = [task.result() for task in self._trickling if task.done()]
        return {"seconds": over, "open": len(self._trickling) - len(over)}

    async def upload(self, count: int, size: int) -> dict[str, Any]:
        self._uploading += [asyncio.ensure_future(self._upload(size)) for _ in range(count)]
        return {}

    async def uploaded(self) -> dict[str, Any]:
        """What they were told in the end."""
        return {"codes": await asyncio.gather(*self._uploading)}

    async def flood(self, count: int, window: int) -> dict[str, Any]:
        peers = await self._connected(count, lambda: _Flooder(self, window))
        self._flood += [peer for peer in peers if peer]
        return {"open": len(self._flood), "lost": self.lost}

    async def leave(self) -> dict[str, Any]:
        """The flood is over."""
        for peer in self._flood:
            peer.leave()
        self._flood.clear()
        return {}

    async def told(self) -> dict[str, Any]:
        """What was answered since the last time this was asked."""
        codes, self.codes = self.codes, Counter()
        return {"codes": {str(code): count for code, count in codes.items()}, "lost": self.lost}

    async def _connected(self, count: int, make: Any) -> list[Any]:
        loop = asyncio.get_running_loop()
        peers: list[Any] = []
        for number in range(count):
            source = f"127.0.0.{HOSTS_FROM + (number // CONNECTIONS_A_HOST) % 200}"
            try:
                _, peer = await loop.create_connection(make, *self._address, local_addr=(source, 0))
            except OSError:
                self.lost += 1
            else:
                peers.append(peer)
        return peers

    async def _trickle(self, frames: int) -> float:
        """For how many seconds the broker put up with it."""
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection(*self._address, local_addr=("127.0.0.251", 0))
        for _ in range(frames):
            writer.write(request(RequestCode.GET_MAX_OFFSET, QueueNamed(TOPIC, 0)).encode())
            await reader.read(1 << 16)
        began = loop.time()
        hung_up = asyncio.ensure_future(reader.read())
        frame = send(TOPIC, BODY, queue_id=0).encode()
        for at in range(len(frame) - 1):
            with suppress(OSError):
                writer.write(frame[at : at + 1])
            if (await asyncio.wait([hung_up], timeout=TRICKLE_SECONDS))[0]:
                break
        with suppress(OSError):
            await hung_up
        writer.close()
        return loop.time() - began

    async def _upload(self, size: int) -> int:
        """The code of the answer; -1 without one."""
        reader, writer = await asyncio.open_connection(*self._address, local_addr=("127.0.0.252", 0))
        frame = send(TOPIC, b"u" * size, queue_id=0).encode()
        part = int(UPLOAD_BYTES_A_SECOND * UPLOAD_SECONDS)
        frames = FrameReader()
        with suppress(OSError):
            for at in range(0, len(frame), part):
                writer.write(frame[at : at + part])
                await asyncio.sleep(UPLOAD_SECONDS)
            while data := await reader.read(1 << 16):
                for answer in frames.feed(data):
                    writer.close()
                    return decode(answer).code
        return -1

    async def _read_slowly(self, number: int) -> None:
        """Ask for much, take little: with a small window of its own, so that it is the broker that waits."""
        loop = asyncio.get_running_loop()
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * 1024)
        peer.setblocking(False)
        peer.bind((f"127.0.0.{220 + number // CONNECTIONS_A_HOST}", 0))
        try:
            await loop.sock_connect(peer, self._address)
            asked = b"".join(pull(LARGE, number % 4, 0).encode() for _ in range(PULLS_OF_A_SLOW_READER))
            await loop.sock_sendall(peer, asked)
            while data := await loop.sock_recv(peer, SLOW_BYTES):
                self.read_slowly += len(data)
                await asyncio.sleep(SLOW_SECONDS)
        except OSError:
            pass
        finally:
            peer.close()


class _Idle(asyncio.Protocol):
    """One request, then nothing."""

    def __init__(self, people: _People) -> None:
        self._people = people

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(request(RequestCode.GET_MAX_OFFSET, QueueNamed(TOPIC, 0)).encode())

    def connection_lost(self, exc: Exception | None) -> None:
        self._people.lost += 1


class _Flooder(asyncio.Protocol):
    """Sends a new message for each answer."""

    def __init__(self, people: _People, window: int) -> None:
        self._people = people
        self._window = window
        self._reader = FrameReader()
        self._message = send(TOPIC, BODY, queue_id=id(self) % 3).encode()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._message * self._window)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        frames = self._reader.feed(data)
        for frame in frames:
            code = 0 if b'"code":0' in frame.header else decode(frame).code
            self._people.codes[code] += 1
        if not self._transport.is_closing():
            self._transport.write(self._message * len(frames))

    def leave(self) -> None:
        assert self._transport is not None
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._people.lost += 1


async def _main(address: str) -> None:
    people = _People(address)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        wish = json.loads(line)
        answer = await getattr(people, wish.pop("do"))(**wish)
        print(json.dumps(answer), flush=True)


def descriptors_max() -> int:
    """How many this process, and the broker it starts, may have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


if __name__ == "__main__":
    descriptors_max()
    os.nice(5)  # the broker and whoever measures come first: it is the broker that is to be overloaded
    asyncio.run(_main(sys.argv[1]))
