"""Receiving messages as they come: `PushConsumer` calls functions, `AsyncPushConsumer` coroutines as well.

The members of a group share its queues out among themselves (`consuming.py` does all of it). The async form
runs on the caller's event loop, the blocking one on a loop in a thread of its own: it needs a thread anyway,
to be there for its brokers while handlers are at work.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError, Future
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from kourou.client.consumer_settings import ConsumerSettings
from kourou.client.consuming import Consuming
from kourou.client.handlers import check_takes_one, is_async, name_of
from kourou.client.home import Home
from kourou.client.settings import checked_count
from kourou.client.workers import Listener, TaskWorkers, ThreadWorkers
from kourou.doors.chance import Chance
from kourou.doors.clock import RealClock
from kourou.doors.files import RealFiles
from kourou.doors.network import RealNetwork
from kourou.errors import ConfigError
from kourou.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from kourou.client.options import ConsumerOptions

Handled = TypeVar("Handled", bound=Callable[[Any], object])
T = TypeVar("T")

REST_SECONDS = 1.0
"""For what was cancelled to end."""


class PushConsumer:
    """Calls a function for each message.

        with kourou.PushConsumer("billing", name_server="localhost:9876") as consumer:

            @consumer.on("orders", tags="new || paid")
            def bill(message: kourou.ReceivedMessage) -> None:
                print(message.body)

            consumer.run_until_stopped()

    A handler that returns is done with its message. One that raises gets it again later: see `RetryLater` and
    `DeadLetter` for having a say in it. After `retries` more attempts (by default as its brokers have it for
    the group: 16) a message becomes a dead letter, in the topic `%DLQ%` + group. A message may come twice,
    when a member of the group crashes or queues change hands.

    All consumers of one `group` share the messages; with `broadcast` each of them gets all. A group that was
    never here begins at `start`: "latest", "earliest" or a moment. (As with the original, brokers let it
    begin with the first message of a young topic.) Up to `threads` handlers run at a time. `ConsumerSettings`
    has all the keywords.
    """

    def __init__(
        self,
        group: str,
        name_server: str | Iterable[str] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        settings, clock = ConsumerSettings(**options), RealClock()
        workers = ThreadWorkers(settings.threads, f"kourou-{group}", clock)
        self._consuming = Consuming(
            group, name_server, settings, workers=workers, clock=clock, chance=Chance(), files=RealFiles()
        )
        self._loop = LoopThread(f"kourou-{group}")
        self._stopped = threading.Event()

    def on(
        self,
        topic: str,
        *,
        tags: str | None = None,
        sql: str | None = None,
        ordered: bool = False,
        batch_size: int | None = None,
    ) -> Callable[[Handled], Handled]:
        """Decorates the handler of a topic.

        `tags` is `"new || paid"`, `sql` an SQL92 expression over properties (`"amount > 100"`); without
        either all messages are wanted. `ordered` handles the messages of each queue one after the other, and
        waits with all of them until a failed one is done. With `batch_size` the handler is given a list of up
        to so many messages, and answers for all of them; or for each, by returning a list with an exception
        for every message that failed, and anything else for the others.
        """

        def add(handler: Handled) -> Handled:
            if is_async(handler):
                raise ConfigError(
                    f"{name_of(handler)} is a coroutine function; AsyncPushConsumer calls those"
                )
            listener = _listener(handler, ordered, batch_size)
            self._loop.call(self._consuming.subscribe, topic, tags, sql, listener)
            return handler

        return add

    def start(self) -> None:
        """Join the group. Raises Unreachable when no name server answers, ConfigError without a handler.

        One that could not start is closed.
        """
        self._loop.run(self._consuming.start(RealNetwork()))

    def run_until_stopped(self) -> None:
        """Start, if that was not done yet, and return after `stop`, or on SIGINT or SIGTERM.

        The signals only when called in the main thread, which is where Python delivers them.
        """
        was_stopped = self._stopped.is_set()
        if not self._consuming.is_started:
            try:
                self.start()
            except ConfigError:
                if was_stopped or not self._stopped.is_set():
                    raise  # else somebody closed it meanwhile, and that is the end of it
        with _Signals(self._stopped.set):
            self._stopped.wait()
        self.close()

    def stop(self) -> None:
        """Let `run_until_stopped` return. May be called anywhere, in a handler as well."""
        self._stopped.set()

    def pause(self, *topics: str) -> None:
        """Read no more of these topics, or of any. What was read already is handled."""
        self._loop.call(self._consuming.pause, topics)

    def resume(self, *topics: str) -> None:
        """Go on reading these topics, or all."""
        self._loop.call(self._consuming.resume, topics)

    def positions(self) -> dict[MessageQueue, int]:
        """The queues that are this consumer's right now; everything before the offset is done."""
        return self._loop.call(self._consuming.positions)

    def close(self, drain: float | None = None) -> None:
        """Wait up to `drain` seconds (by default 10) for handlers at work, keep the place, leave the group.

        A closed consumer cannot be used again. A handler calls `stop` instead: here it would wait for itself.
        """
        self._stopped.set()
        seconds = self._consuming.settings.drain_seconds if drain is None else drain
        self._loop.end(self._consuming.stop(seconds))
        self._consuming.is_stopping = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncPushConsumer:
    """Calls a coroutine function for each message, or a plain one in a thread.

        async with kourou.AsyncPushConsumer("billing", name_server="localhost:9876") as consumer:

            @consumer.on("orders", tags="new || paid")
            async def bill(message: kourou.ReceivedMessage) -> None:
                print(message.body)

            await consumer.run_until_stopped()

    Everything is as with `PushConsumer`, but awaited. Up to `threads` coroutines run at a time, and as many
    threads for plain functions.
    """

    def __init__(
        self,
        group: str,
        name_server: str | Iterable[str] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        settings, clock = ConsumerSettings(**options), RealClock()
        workers = TaskWorkers(settings.threads, f"kourou-{group}", clock)
        self._consuming = Consuming(
            group, name_server, settings, workers=workers, clock=clock, chance=Chance(), files=RealFiles()
        )
        self._stopped = asyncio.Event()

    def on(
        self,
        topic: str,
        *,
        tags: str | None = None,
        sql: str | None = None,
        ordered: bool = False,
        batch_size: int | None = None,
    ) -> Callable[[Handled], Handled]:
        """As `PushConsumer.on`."""

        def add(handler: Handled) -> Handled:
            self._consuming.subscribe(topic, tags, sql, _listener(handler, ordered, batch_size))
            return handler

        return add

    async def start(self) -> None:
        """As `PushConsumer.start`."""
        await self._consuming.start(RealNetwork())

    async def run_until_stopped(self) -> None:
        """Start, if that was not done yet, and return after `stop`. Signals are the program's own affair."""
        was_stopped = self._stopped.is_set()
        if not self._consuming.is_started:
            try:
                await self.start()
            except ConfigError:
                if was_stopped or not self._stopped.is_set():
                    raise
        await self._stopped.wait()
        await self.close()

    def stop(self) -> None:
        """As `PushConsumer.stop`, on the event loop's own thread."""
        self._stopped.set()

    def pause(self, *topics: str) -> None:
        """As `PushConsumer.pause`."""
        self._consuming.pause(topics)

    def resume(self, *topics: str) -> None:
        """As `PushConsumer.resume`."""
        self._consuming.resume(topics)

    def positions(self) -> dict[MessageQueue, int]:
        """As `PushConsumer.positions`."""
        return self._consuming.positions()

    async def close(self, drain: float | None = None) -> None:
        """As `PushConsumer.close`."""
        self.stop()
        await self._consuming.stop(self._consuming.settings.drain_seconds if drain is None else drain)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _listener(handler: Callable[[Any], object], ordered: bool, batch_size: int | None) -> Listener:
    check_takes_one(handler)
    if batch_size is not None:
        checked_count("batch_size", batch_size, 1)
    return Listener(handler, ordered=ordered, batch_size=batch_size)


class LoopThread:
    """An event loop in a thread of its own, from the first use to `end`, and never again."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._home = Home("consumer")
        self._is_over = False
        self._lock = threading.Lock()
        self._awaited: set[Future[Any]] = set()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The outcome of `work`, waited for; raises ConfigError after `end`, and in a forked process.

        Also when `end` comes meanwhile, and `work` has not ended by then.
        """
        try:
            with self._lock:
                outcome = asyncio.run_coroutine_threadsafe(work, self._running())
                self._awaited.add(outcome)
        except ConfigError:
            work.close()
            raise
        try:
            return outcome.result()
        except CancelledError:
            raise ConfigError("this consumer was closed meanwhile; make a new one") from None
        except BaseException:
            outcome.cancel()  # after Ctrl-C nobody waits for it any more
            raise
        finally:
            self._awaited.discard(outcome)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """What `function` returns on the loop; here and now while there is none."""
        if self._loop is None:
            return function(*arguments)

        async def work() -> T:
            return function(*arguments)

        return self.run(work())

    def end(self, last: Coroutine[Any, Any, None]) -> None:
        """Do this last thing, if there was anything before it. Of several threads, all wait until it is done.

        It has to bear to be done twice: two threads may come at once.
        """
        with self._lock:
            loop = self._loop if self._home.is_here else None
            if loop is None:
                last.close()
                self._loop, self._is_over = None, True
                return
            done = asyncio.run_coroutine_threadsafe(last, loop)
        done.result()
        with self._lock:
            thread, self._thread = self._thread, None
            self._loop, self._is_over = None, True
            awaited = list(self._awaited)
        if thread is not None:
            for outcome in awaited:
                outcome.cancel()  # or who waits for it would wait for ever
            asyncio.run_coroutine_threadsafe(_come_to_rest(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            if thread is not threading.current_thread():
                thread.join()
            loop.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._is_over:
            raise ConfigError("this consumer is closed; make a new one")
        self._home.check()
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
            self._thread.start()
        return self._loop


async def _come_to_rest() -> None:
    """Return when what was cancelled on this event loop has ended, and no thread looks up names for it."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=REST_SECONDS)
    await asyncio.get_running_loop().shutdown_default_executor()


class _Signals:
    """SIGINT and SIGTERM call a function, as long as it lasts."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._on_signal)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._function()
