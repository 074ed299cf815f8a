"""The end of the console, told to those who wait for messages: they would keep it from ending."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from typing import Any, TypeVar

from kourou.errors import Busy
from kourou.protocol.codes import ResponseCode

Result = TypeVar("Result")


class Ending:
    """Begun on the loop that waits, told from any thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told = asyncio.Event()

    def begin(self) -> None:
        self._loop = asyncio.get_running_loop()

    def tell(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._told.set)

    async def before_it(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What `work` gives; raises Busy when the end comes first, and `work` is cancelled."""
        task, told = asyncio.ensure_future(work), asyncio.ensure_future(self._told.wait())
        try:
            await asyncio.wait({task, told}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Busy(ResponseCode.SYSTEM_BUSY, "the console is about to end; ask again when it is back")
        finally:
            for each in (task, told):
                each.cancel()
            await asyncio.gather(task, told, return_exceptions=True)

    async def parts_before_it(self, parts: AsyncGenerator[Result, None]) -> AsyncIterator[Result]:
        """Its parts, up to the end of either."""
        try:
            while True:
                yield await self.before_it(_next(parts))
        except (_AllTold, Busy):
            return
        finally:
            await parts.aclose()


class _AllTold(Exception):
    """No more parts. A coroutine cannot raise what an iterator would."""


async def _next(parts: AsyncGenerator[Result, None]) -> Result:
    try:
        return await anext(parts)
    except StopAsyncIteration:
        raise _AllTold from None
