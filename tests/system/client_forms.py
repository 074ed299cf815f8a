"""Both forms of the client behind one blocking surface, so that one test serves both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import kourou


class Form:
    """One way to use the client: makes producers and consumers whose every method blocks."""

    def __init__(
        self, name: str, start: Callable[[type], Callable[..., AbstractContextManager[Any]]]
    ) -> None:
        self.name = name
        self.producer = start(kourou.Producer if name == "blocking" else kourou.AsyncProducer)
        self.consumer = start(kourou.PullConsumer if name == "blocking" else kourou.AsyncPullConsumer)


class _Waiting:
    """An async object as a blocking one: what would be awaited is run to its end."""

    def __init__(self, runner: asyncio.Runner, inner: Any) -> None:
        self._runner = runner
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if not inspect.iscoroutinefunction(method):
                return method(*arguments, **options)

            async def wait() -> Any:
                return await method(*arguments, **options)

            return self._runner.run(wait())

        return call

    def __iter__(self) -> Iterator[Any]:
        messages = aiter(self._inner)

        async def following() -> Any:
            return await anext(messages)

        while True:
            yield self._runner.run(following())


@contextmanager
def forms() -> Iterator[dict[str, Form]]:
    with asyncio.Runner() as runner:

        def start(kind: type) -> Callable[..., AbstractContextManager[Any]]:
            @contextmanager
            def started(*arguments: Any, **options: Any) -> Iterator[Any]:
                async def enter() -> Any:
                    return await made.__aenter__()

                async def leave() -> None:
                    await made.__aexit__(None, None, None)

                made = kind(*arguments, **options)
                runner.run(enter())
                try:
                    yield _Waiting(runner, made)
                finally:
                    runner.run(leave())

            return started

        yield {"blocking": Form("blocking", lambda kind: kind), "async": Form("async", start)}
