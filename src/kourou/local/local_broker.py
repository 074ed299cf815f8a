"""A real name server and a real broker inside this process, for tests and experiments.

    with kourou.LocalBroker() as broker:
        kourou.Producer("group", name_server=broker.name_server)

They run on an event loop in a thread of their own, on free ports of the loopback interface. Without a folder
given, the data goes to a temporary one and disappears with the broker; or it stays in memory, and no disk is
touched at all.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

from kourou.broker.config import BrokerConfig
from kourou.doors.clock import RealClock
from kourou.doors.files import Files
from kourou.doors.memory_files import MemoryFiles
from kourou.errors import ConfigError, MQError
from kourou.local.node import Node, data_folder
from kourou.nameserver.config import NameServerConfig

START_SECONDS_MAX = 30.0
IN_MEMORY = "/memory"
"""The folder of a broker whose disk nobody else sees."""


class LocalBroker:
    """Starts when entered, stops when left.

        with kourou.LocalBroker() as broker:
            producer = kourou.Producer("group", name_server=broker.name_server)

    In a coroutine `async with` does the same, without holding up the event loop meanwhile.

    `data` is the folder to keep everything in, for the next one to find; without it a temporary one is used.
    With `memory` no disk is touched, and everything is gone with the object. Settings are those of
    `BrokerConfig`, by field name.
    """

    def __init__(
        self, data: str | os.PathLike[str] | None = None, *, memory: bool = False, **settings: Any
    ) -> None:
        if memory and data is not None:
            raise ConfigError(f"data is '{os.fspath(data)}', and memory is asked for; give one of them")
        self._data = None if data is None else os.fspath(data)
        self._files: Files | None = MemoryFiles(RealClock().now_ms) if memory else None
        self._settings = settings
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._node: Node | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        """For `async with`: what starts and stops does not hold up the event loop."""
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    @property
    def name_server(self) -> str:
        """`host:port` for clients."""
        return self._running_node().name_server.address

    @property
    def address(self) -> str:
        """`host:port` of the broker itself."""
        return self._running_node().broker.address

    @property
    def data(self) -> str:
        """The folder it keeps everything in. One in memory has none, which is a ConfigError."""
        self._running_node()
        if self._data is None:
            raise ConfigError("this LocalBroker keeps everything in memory: it has no folder")
        return self._data

    def _running_node(self) -> Node:
        if self._node is None:
            raise MQError(
                "this LocalBroker is not running: use it in a with statement, or call start() first"
            )
        return self._node

    def start(self) -> None:
        """Returns when it serves."""
        if self._thread is not None:
            raise MQError("this LocalBroker is running already")
        if self._data is not None:
            data_folder(self._data)
        elif self._files is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="kourou-")
            self._data = self._temporary.name
        folder = self._data or IN_MEMORY
        try:
            name_server = NameServerConfig(port=0, kv_config_path=f"{folder}/namesrv/kvConfig.json")
            broker = BrokerConfig(**{"port": 0, "store_path": f"{folder}/store", **self._settings})
            node = Node(name_server, broker, self._files)
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="kourou-local", daemon=True)
            self._thread.start()
            self._run(node.start())
        except BaseException:
            self._end()
            raise
        self._node = node

    def stop(self) -> None:
        """Returns when everything acknowledged is on disk and nothing runs any more."""
        node, self._node = self._node, None
        if node is not None:
            try:
                self._run(node.stop())
            finally:
                self._end()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS_MAX)

    def _end(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._run(self._loop.shutdown_default_executor())  # asyncio looks up names in threads
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = self._thread = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = self._data = None
