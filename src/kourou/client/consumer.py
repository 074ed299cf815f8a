"""Receiving messages in a loop: `Consumer` blocks, `AsyncConsumer` awaits.

    async with kourou.AsyncConsumer("billing", "orders") as messages:
        async for message in messages:
            async with message.process():
                ...

Under it is the same engine as under `PushConsumer`: the members of a group share the queues, messages that
fail come again. Here the loop is the handler: what it takes is in flight until `process()` ends, or until the
message is told itself: `done()`, `retry()`, `dead_letter()`.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from kourou.client.consume_hooks import ConsumeAttempt
from kourou.client.consumer_settings import ConsumerSettings
from kourou.client.consuming import Consuming
from kourou.client.delays import DelayLevel
from kourou.client.outcomes import DeadLetter, RetryLater
from kourou.client.push_consumer import LoopThread
from kourou.client.settings import checked_timeout
from kourou.client.workers import Finished, Listener, Task
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock, RealClock
from kourou.doors.files import RealFiles
from kourou.doors.network import RealNetwork
from kourou.errors import ConfigError
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from kourou.client.options import ConsumerOptions


class Delivery(ReceivedMessage):
    """A received message that wants to hear what became of it, once."""

    __slots__ = ("_settle",)

    def __init__(self, message: ReceivedMessage, settle: Callable[[BaseException | None], None]) -> None:
        super().__init__(message.source, message.broker_name)
        self.show_as(message.topic)
        self._settle: Callable[[BaseException | None], None] | None = settle

    @property
    def is_settled(self) -> bool:
        return self._settle is None

    def done(self) -> None:
        """It need not come again."""
        self._tell(None)

    def retry(self, delay: float | timedelta | DelayLevel | None = None) -> None:
        """It shall come again, when `RetryLater` says."""
        self._tell(RetryLater(delay))

    def dead_letter(self, reason: str = "") -> None:
        """It goes to the group's dead letters."""
        self._tell(DeadLetter(reason))

    def process(self) -> Processing:
        """For `with` and `async with`: done when the block ends, and on an error in it to come again.

        The error goes to the log and no further, so that the loop goes on; `RetryLater` and `DeadLetter`
        have their meaning. What is no `Exception` (cancellation, Ctrl-C) leaves the block: then the message
        counts as not handled, and comes again when this consumer is gone.
        """
        return Processing(self)

    def _tell(self, failure: BaseException | None) -> None:
        settle, self._settle = self._settle, None
        if settle is None:
            raise ConfigError(f"{self!r} was settled already: a message is done, or comes again, once")
        settle(failure)


class Processing:
    """The block in which a message is handled."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def __enter__(self) -> Delivery:
        return self._delivery

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is not None and not isinstance(error, Exception):
            return False
        if not self._delivery.is_settled:
            self._delivery._tell(error)
        return True

    async def __aenter__(self) -> Delivery:
        return self._delivery

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return self.__exit__(kind, error, traceback)


class Deliveries:
    """The workers of a consumer whose handler is a loop: they put messages where the loop takes them."""

    def __init__(self, clock: Clock, put: Callable[[Task], None], take_all: Callable[[], list[Task]]) -> None:
        self._clock = clock
        self._put = put
        self._take_all = take_all
        self._running: dict[Task, None] = {}

    def start(self, finished: Finished) -> None:
        self._finished = finished
        self._loop = asyncio.get_running_loop()

    def submit(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            self._put(task)

    def running(self) -> list[Task]:
        return list(self._running)

    def cancel_waiting(self) -> list[Task]:
        return self._take_all()

    def stop(self) -> None:
        self._take_all()

    def deliver(self, task: Task) -> Delivery | None:
        """The next message of a task, to whoever wants it; None when it is no longer ours to handle.

        Any thread may ask, and settle.
        """
        if not task.goes_on:  # its queue was given up, or moved elsewhere, while it lay here
            self._tell(self._finished, [task])
            return None
        task.started_at = self._clock.monotonic()
        self._running[task] = None
        (message,) = task.units[task.done]
        hooks = task.listener.hooks
        attempt = None if hooks is None else hooks.begin([message])
        return Delivery(message, lambda failure: self._settle(task, attempt, failure))

    def _settle(self, task: Task, attempt: ConsumeAttempt | None, failure: BaseException | None) -> None:
        if attempt is not None and task.listener.hooks is not None:
            task.listener.hooks.end(attempt, failure)
        self._tell(self._settled, task, failure)

    def _tell(self, whom: Callable[..., None], *what: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(whom, *what)
        except RuntimeError:  # the consumer is closed, and its loop gone
            return

    def _settled(self, task: Task, failure: BaseException | None) -> None:
        self._running.pop(task, None)
        task.ended_at = self._clock.monotonic()
        task.failure = failure
        if failure is None:
            task.done += 1
            if task.done < len(task.units) and task.goes_on:
                self._put(task)
                return
        self._finished([task])


class Left:
    """What is left of the time somebody waits: all there is without a timeout."""

    def __init__(self, clock: Clock, timeout: float | None) -> None:
        self._clock = clock
        self._until = None if timeout is None else clock.monotonic() + checked_timeout(timeout)

    def seconds(self) -> float | None:
        return None if self._until is None else max(0.0, self._until - self._clock.monotonic())


def _check_entered(consuming: Consuming) -> None:
    """Before that nothing is read, and whoever waited would wait for ever."""
    if not consuming.is_started and not consuming.is_stopping:
        raise ConfigError("this consumer is not running: it reads inside its `with` or `async with` block")


def _handled_in_a_loop(message: Any) -> None:
    raise AssertionError("a loop takes the messages of this consumer; no function does")


class Consumer:
    """Messages of one topic, in a loop; the members of a group share them.

        with kourou.Consumer("billing", "orders", name_server="localhost:9876") as messages:
            for message in messages:
                with message.process():
                    print(message.body)

    `tags`, `sql` and `ordered` are those of `PushConsumer.on`, everything else those of `PushConsumer`. It
    reads from when it is entered until it is closed; then the loop ends. Several threads may take messages.
    """

    def __init__(
        self,
        group: str,
        topic: str,
        name_server: str | Iterable[str] | None = None,
        *,
        tags: str | None = None,
        sql: str | None = None,
        ordered: bool = False,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._arrived: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._clock = clock = RealClock()
        self._deliveries = Deliveries(clock, self._arrived.put, self._take_all)
        self._consuming = Consuming(
            group,
            name_server,
            ConsumerSettings(**options),
            workers=self._deliveries,
            clock=clock,
            chance=Chance(),
            files=RealFiles(),
        )
        self._consuming.subscribe(topic, tags, sql, Listener(_handled_in_a_loop, ordered=ordered))
        self._loop = LoopThread(f"kourou-{group}")

    def receive(self, timeout: float | None = None) -> Delivery | None:
        """The next message; None when none came in `timeout` seconds, or the consumer was closed."""
        _check_entered(self._consuming)
        left = Left(self._clock, timeout)
        while True:
            try:
                task = self._arrived.get(timeout=left.seconds())
            except queue.Empty:
                return None
            if task is None:
                self._arrived.put(None)  # for the next one who waits
                return None
            if (delivery := self._deliveries.deliver(task)) is not None:
                return delivery

    def positions(self) -> dict[MessageQueue, int]:
        """As `PushConsumer.positions`."""
        return self._loop.call(self._consuming.positions)

    def close(self, drain: float | None = None) -> None:
        """Wait up to `drain` seconds (by default 10) for messages in process, keep the place, leave."""
        seconds = self._consuming.settings.drain_seconds if drain is None else drain
        self._loop.end(self._consuming.stop(seconds))
        self._consuming.is_stopping = True
        self._arrived.put(None)

    def _take_all(self) -> list[Task]:
        taken: list[Task] = []
        while True:
            try:
                task = self._arrived.get_nowait()
            except queue.Empty:  # not asked before: a thread may take the last one at any time
                return taken
            if task is not None:
                taken.append(task)

    def __iter__(self) -> Iterator[Delivery]:
        """Every message, until the consumer is closed."""
        while (message := self.receive()) is not None:
            yield message

    def __enter__(self) -> Self:
        try:
            self._loop.run(self._consuming.start(RealNetwork()))
        except BaseException:
            self.close(0.0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(0.0)


class AsyncConsumer:
    """Messages of one topic, in an `async for`; the members of a group share them.

        async with kourou.AsyncConsumer("billing", "orders", name_server="localhost:9876") as messages:
            async for message in messages:
                async with message.process():
                    print(message.body)

    Everything is as with `Consumer`, but awaited. Several tasks may take messages.
    """

    def __init__(
        self,
        group: str,
        topic: str,
        name_server: str | Iterable[str] | None = None,
        *,
        tags: str | None = None,
        sql: str | None = None,
        ordered: bool = False,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._arrived: asyncio.Queue[Task | None] = asyncio.Queue()
        self._clock = clock = RealClock()
        self._deliveries = Deliveries(clock, self._arrived.put_nowait, self._take_all)
        self._consuming = Consuming(
            group,
            name_server,
            ConsumerSettings(**options),
            workers=self._deliveries,
            clock=clock,
            chance=Chance(),
            files=RealFiles(),
        )
        self._consuming.subscribe(topic, tags, sql, Listener(_handled_in_a_loop, ordered=ordered))

    async def receive(
        self,
        timeout: float | None = None,  # noqa: ASYNC109  # as in the blocking form
    ) -> Delivery | None:
        """As `Consumer.receive`."""
        _check_entered(self._consuming)
        left = Left(self._clock, timeout)
        while True:
            try:
                async with asyncio.timeout(left.seconds()):
                    task = await self._arrived.get()
            except TimeoutError:
                return None
            if task is None:
                self._arrived.put_nowait(None)  # for the next one who waits
                return None
            if (delivery := self._deliveries.deliver(task)) is not None:
                return delivery

    def positions(self) -> dict[MessageQueue, int]:
        """As `PushConsumer.positions`."""
        return self._consuming.positions()

    async def close(self, drain: float | None = None) -> None:
        """As `Consumer.close`."""
        await self._consuming.stop(self._consuming.settings.drain_seconds if drain is None else drain)
        self._arrived.put_nowait(None)

    def _take_all(self) -> list[Task]:
        taken = []
        while not self._arrived.empty():
            if (task := self._arrived.get_nowait()) is not None:
                taken.append(task)
        return taken

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        """Every message, until the consumer is closed."""
        while (message := await self.receive()) is not None:
            yield message

    async def __aenter__(self) -> Self:
        try:
            await self._consuming.start(RealNetwork())
        except BaseException:
            await self.close(0.0)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close(0.0)
