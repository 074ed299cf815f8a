"""A TCP proxy that can be cut, made deaf in one direction, or slow, while a test runs.

with fault_proxy() as proxy:
    proxy.leads_to(address)          from now on
    proxy.cut()                      every connection breaks, new ones are refused
    proxy.silence()                  connections stay, nothing goes through; `silence(back=False)`: one way
    proxy.slow(200_000)              bytes a second
    proxy.heal()
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

PIECE_BYTES = 16 * 1024


class FaultProxy:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._target: tuple[str, int] | None = None
        self._is_cut = False
        self._is_silent = {"there": False, "back": False}
        self._bytes_a_second = 0.0
        self._writers: set[asyncio.StreamWriter] = set()
        self.address = ""
        self.passed_bytes = 0

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self.server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    def leads_to(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._loop.call_soon_threadsafe(self._hang_up)

    def cut(self) -> None:
        self._is_cut = True
        self._loop.call_soon_threadsafe(self._hang_up)

    def silence(self, *, there: bool = True, back: bool = True) -> None:
        self._is_silent = {"there": there, "back": back}

    def slow(self, bytes_a_second: float) -> None:
        self._bytes_a_second = bytes_a_second

    def heal(self) -> None:
        self._is_cut = False
        self._is_silent = {"there": False, "back": False}
        self._bytes_a_second = 0.0

    def _hang_up(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self._is_cut or self._target is None:
                return
            from_server, to_server = await asyncio.open_connection(*self._target)
            self._writers.add(to_server)
            ways = (self._pass(reader, to_server, "there"), self._pass(from_server, writer, "back"))
            done, rest = await asyncio.wait(
                [asyncio.ensure_future(way) for way in ways], return_when=asyncio.FIRST_COMPLETED
            )
            for each in rest:
                each.cancel()
            await asyncio.gather(*done, *rest, return_exceptions=True)
            self._writers.discard(to_server)
            to_server.transport.abort()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(PIECE_BYTES):
                while self._is_silent[way]:
                    await asyncio.sleep(0.02)
                if self._bytes_a_second:
                    await asyncio.sleep(len(data) / self._bytes_a_second)
                self.passed_bytes += len(data)
                writer.write(data)
                await writer.drain()


@contextlib.contextmanager
def fault_proxy() -> Iterator[FaultProxy]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    proxy = FaultProxy(loop)
    asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(5)
    try:
        yield proxy
    finally:

        async def end() -> None:
            proxy.server.close()
            proxy._hang_up()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()
