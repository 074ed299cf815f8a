"""A program of handlers: `App` collects them, `kourou run module:app` runs them.

    app = kourou.App("localhost:9876")

    @app.on("orders", group="mail", tag="new")
    def send_mail(order: Order) -> None: ...

Each group is a consumer of its own; all of them run on one event loop, plain functions in threads. What a
handler is given is read off its signature (`payloads.py`).
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from kourou.client.payloads import taking_messages
from kourou.client.push_consumer import AsyncPushConsumer
from kourou.client.settings import checked_consumer_group, checked_topic
from kourou.errors import ConfigError

if TYPE_CHECKING:
    from kourou.client.options import ConsumerOptions

Handled = TypeVar("Handled", bound=Callable[..., object])


class App:
    """Handlers of any number of topics and groups.

    `group` is for handlers that name none. `ConsumerSettings` has the other keywords, for all groups alike.
    """

    def __init__(
        self,
        name_server: str | Iterable[str] | None = None,
        *,
        group: str | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self.name_server = name_server
        self._group = None if group is None else checked_consumer_group(group)
        self._options = options
        self._handlers: list[tuple[str, str, Callable[[Any], object], dict[str, Any]]] = []
        self._consumers: list[AsyncPushConsumer] = []

    def on(
        self,
        topic: str,
        *,
        group: str | None = None,
        tag: str | None = None,
        tags: str | None = None,
        sql: str | None = None,
        ordered: bool = False,
    ) -> Callable[[Handled], Handled]:
        """Decorates the handler of a topic for a group; the function itself stays as it is.

        `tag` is one tag, `tags` several (`"new || paid"`), `sql` an SQL92 expression.
        """
        named = group or self._group
        if named is None:
            raise ConfigError(f"no group is given for the handler of '{topic}': group=, here or at the App")
        checked_topic(topic)
        if tag is not None and tags is not None:
            raise ConfigError("tag and tags both say which messages are wanted; give one")
        wanted = {"tags": tags if tag is None else tag, "sql": sql, "ordered": ordered}

        def add(handler: Handled) -> Handled:
            self._handlers.append((checked_consumer_group(named), topic, taking_messages(handler), wanted))
            return handler

        return add

    async def start(self) -> None:
        """Join all groups; when one cannot be joined, none is."""
        if self._consumers:
            raise ConfigError("this App is running already")
        if not self._handlers:
            raise ConfigError("this App has no handlers; add one with @app.on(...)")
        by_group: dict[str, AsyncPushConsumer] = {}
        for group, topic, handler, wanted in self._handlers:
            if group not in by_group:
                by_group[group] = AsyncPushConsumer(group, self.name_server, **self._options)
            by_group[group].on(topic, **wanted)(handler)
        try:
            for consumer in by_group.values():
                self._consumers.append(consumer)
                await consumer.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Let handlers at work end, and leave all groups."""
        consumers, self._consumers = self._consumers, []
        await asyncio.gather(*(consumer.close() for consumer in consumers))

    def run(self) -> None:
        """Run until SIGINT or SIGTERM; for a program's own `if __name__ == "__main__"`."""
        if threading.current_thread() is not threading.main_thread():
            raise ConfigError(
                "App.run waits for signals, which Python delivers to the main thread alone; elsewhere await "
                "start() and stop()"
            )
        asyncio.run(self._run())

    async def _run(self) -> None:
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, asked.set)
        await self.start()
        await asked.wait()
        await self.stop()
