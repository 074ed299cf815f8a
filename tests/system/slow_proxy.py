"""A proxy in front of a server that can be made slow, or dead, while a test runs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator


class SlowProxy:
    """Passes bytes on; what the server answers waits for `delay` seconds."""

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self.delay = 0.0
        self.address = ""
        self.connections = 0

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self.server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        from_server, to_server = await asyncio.open_connection(*self._target)
        try:
            await asyncio.gather(self._pass(reader, to_server, False), self._pass(from_server, writer, True))
        finally:
            writer.close()
            to_server.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_slow: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if is_slow and self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()


@contextlib.contextmanager
def slow_proxy(target: str) -> Iterator[SlowProxy]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    proxy = SlowProxy(target)
    asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(5)
    try:
        yield proxy
    finally:

        async def end() -> None:
            proxy.server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()
