"""Both forms of the client behind one blocking surface, so that one test serves both."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import kourou


class Form:
    """One way to use the client: makes producers and consumers whose every method blocks."""

    def __init__(
        self,
        name: str,
        start: Callable[[type], Callable[..., AbstractContextManager[Any]]],
        runner: asyncio.Runner | None = None,
    ) -> None:
        self.name = name
        self._runner = runner
        self.producer = start(kourou.Producer if name == "blocking" else kourou.AsyncProducer)
        self.consumer = start(kourou.PullConsumer if name == "blocking" else kourou.AsyncPullConsumer)
        self.transactions = start(
            kourou.TransactionProducer if name == "blocking" else kourou.AsyncTransactionProducer
        )

    def inside(self, context: Any) -> AbstractContextManager[Any]:
        """A context manager of the library's as a blocking one."""
        return context if self._runner is None else _inside(self._runner, context)

    def run(self, awaitable: Any) -> Any:
        """Run a coroutine of the async form."""
        assert self._runner is not None
        return self._runner.run(awaitable)

    def until(self, done: Callable[[], bool], seconds: float = 10.0) -> None:
        """Wait, with the event loop running if there is one, until `done` or too late."""
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            if self._runner is None:
                time.sleep(0.01)
            else:
                self._runner.run(asyncio.sleep(0.01))
        assert done(), f"not so within {seconds} s"


class _Waiting:
    """An async object as a blocking one: what would be awaited is run to its end."""

    def __init__(self, runner: asyncio.Runner, inner: Any) -> None:
        self._runner = runner
        self._inner = self.itself = inner

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
def _inside(runner: asyncio.Runner, context: Any) -> Iterator[Any]:
    async def enter() -> Any:
        return await context.__aenter__()

    async def leave(error: BaseException | None) -> Any:
        return await context.__aexit__(type(error) if error else None, error, None)

    entered = runner.run(enter())
    try:
        yield entered
    except BaseException as error:
        if not runner.run(leave(error)):
            raise
    else:
        runner.run(leave(None))


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

        yield {"blocking": Form("blocking", lambda kind: kind), "async": Form("async", start, runner)}
