"""Receiving messages when one asks for them, with the queues shared out or chosen: lite pull.

    subscribe(topic)     the members of the group share the queues, as with a push consumer
    assign(queues)       these queues and no others, whoever else there is

Messages are read ahead and lie ready; `poll` takes some. What one `poll` brought counts as done with the next
one, or with `commit`. There is no retrying: what the program does not manage it must keep for itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import msgspec

from kourou.client import operations
from kourou.client.assignment import assign_fixed
from kourou.client.consumer_settings import ConsumerSettings
from kourou.client.consuming import Consuming
from kourou.client.held_queue import HeldQueue
from kourou.client.namespaces import queue_with_namespace
from kourou.client.operations import Start, checked_start
from kourou.client.push_consumer import LoopThread
from kourou.client.settings import checked_count, checked_timeout
from kourou.client.workers import Finished, Listener, Task
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock, RealClock
from kourou.doors.files import Files, RealFiles
from kourou.doors.network import Network, RealNetwork
from kourou.errors import ConfigError
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import MessageQueue
from kourou.remoting.limit import Limit

if TYPE_CHECKING:
    from kourou.client.options import ConsumerOptions

POLL_SECONDS = 5.0

_log = logging.getLogger("kourou.client")


class LitePullConsumer:
    """Messages of any number of topics or queues, when asked for. For one thread at a time.

        with kourou.LitePullConsumer("billing", name_server="localhost:9876") as consumer:
            consumer.subscribe("orders", tags="new || paid")
            while True:
                for message in consumer.poll(timeout=5.0):
                    print(message.body)

    The group's place moves past what a `poll` brought when the next one is called, and is stored every five
    seconds and at the end; with `auto_commit=False` only when `commit` says so. `ConsumerSettings` has the
    other keywords.
    """

    def __init__(
        self,
        group: str,
        name_server: str | Iterable[str] | None = None,
        *,
        auto_commit: bool = True,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._polling = Polling(
            group,
            name_server,
            ConsumerSettings(**options),
            auto_commit=auto_commit,
            network=RealNetwork(),
            clock=RealClock(),
            chance=Chance(),
            files=RealFiles(),
        )
        self._loop = LoopThread(f"kourou-{group}")

    def subscribe(self, topic: str, *, tags: str | None = None, sql: str | None = None) -> None:
        """Want messages of a topic; the members of the group share its queues."""
        self._loop.call(self._polling.subscribe, topic, tags, sql)

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Every queue of a topic that can be read, for `assign`."""
        return self._loop.run(self._polling.queues(topic))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues, whoever else there is; once, and before anything is polled."""
        self._loop.call(self._polling.assign, queues)

    def poll(self, max_messages: int = 32, timeout: float = POLL_SECONDS) -> list[ReceivedMessage]:
        """The next messages, as soon as there is one; an empty list when none came in `timeout` seconds."""
        return self._loop.run(self._polling.poll(max_messages, timeout))

    def commit(self) -> None:
        """Everything polled so far is done: store that, and return when it is stored.

        Every queue is tried; then the first failure is raised, if there was one.
        """
        self._loop.run(self._polling.commit())

    def seek(self, queue: MessageQueue, where: int | Start) -> None:
        """Go on elsewhere in a queue of ours: at an offset, "earliest", "latest" or a moment."""
        self._loop.run(self._polling.seek(queue, where))

    def pause(self, *queues: MessageQueue) -> None:
        """Poll nothing of these queues for now."""
        self._loop.call(self._polling.pause, queues)

    def resume(self, *queues: MessageQueue) -> None:
        """Go on with these queues."""
        self._loop.call(self._polling.resume, queues)

    def positions(self) -> dict[MessageQueue, int]:
        """The queues that are ours; the offset is that of the first message that is not done."""
        return self._loop.call(self._polling.consuming.positions)

    def close(self) -> None:
        """Leave the group; what the last `poll` brought is not counted as done."""
        self._loop.end(self._polling.consuming.stop(0.0))
        self._polling.consuming.is_stopping = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncLitePullConsumer:
    """Messages of any number of topics or queues, when asked for, for asyncio. For one task at a time.

        async with kourou.AsyncLitePullConsumer("billing", name_server="localhost:9876") as consumer:
            consumer.subscribe("orders", tags="new || paid")
            for message in await consumer.poll(timeout=5.0):
                print(message.body)

    Everything is as with `LitePullConsumer`, but awaited.
    """

    def __init__(
        self,
        group: str,
        name_server: str | Iterable[str] | None = None,
        *,
        auto_commit: bool = True,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._polling = Polling(
            group,
            name_server,
            ConsumerSettings(**options),
            auto_commit=auto_commit,
            network=RealNetwork(),
            clock=RealClock(),
            chance=Chance(),
            files=RealFiles(),
        )

    def subscribe(self, topic: str, *, tags: str | None = None, sql: str | None = None) -> None:
        """As `LitePullConsumer.subscribe`."""
        self._polling.subscribe(topic, tags, sql)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """As `LitePullConsumer.queues`."""
        return await self._polling.queues(topic)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """As `LitePullConsumer.assign`."""
        self._polling.assign(queues)

    async def poll(
        self,
        max_messages: int = 32,
        timeout: float = POLL_SECONDS,  # noqa: ASYNC109  # as in the blocking form
    ) -> list[ReceivedMessage]:
        """As `LitePullConsumer.poll`."""
        return await self._polling.poll(max_messages, timeout)

    async def commit(self) -> None:
        """As `LitePullConsumer.commit`."""
        await self._polling.commit()

    async def seek(self, queue: MessageQueue, where: int | Start) -> None:
        """As `LitePullConsumer.seek`."""
        await self._polling.seek(queue, where)

    def pause(self, *queues: MessageQueue) -> None:
        """As `LitePullConsumer.pause`."""
        self._polling.pause(queues)

    def resume(self, *queues: MessageQueue) -> None:
        """As `LitePullConsumer.resume`."""
        self._polling.resume(queues)

    def positions(self) -> dict[MessageQueue, int]:
        """As `LitePullConsumer.positions`."""
        return self._polling.consuming.positions()

    async def close(self) -> None:
        """As `LitePullConsumer.close`."""
        await self._polling.consuming.stop(0.0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class Polling:
    """What both forms have in common: the engine, and the messages it has brought. On one event loop."""

    def __init__(
        self,
        group: str,
        name_server: str | Iterable[str] | None,
        settings: ConsumerSettings,
        *,
        auto_commit: bool,
        network: Network,
        clock: Clock,
        chance: Chance,
        files: Files,
    ) -> None:
        self.consuming = Consuming(
            group,
            name_server,
            settings,
            workers=self,
            clock=clock,
            chance=chance,
            files=files,
            polled=True,
            auto_commit=auto_commit,
        )
        self._network = network
        self._clock = clock
        self._ready: deque[Task] = deque()
        self._polled: list[Task] = []
        self._arrival: asyncio.Event | None = None
        self._starting: asyncio.Task[None] | None = None
        self._assigned: list[MessageQueue] = []

    def subscribe(self, topic: str, tags: str | None = None, sql: str | None = None) -> None:
        if self._assigned:
            raise ConfigError("queues are assigned here; subscribe with another consumer")
        self.consuming.subscribe(topic, tags, sql, Listener(_polled))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        consuming = self.consuming
        chosen = list(map(self._at_broker, _each(queues)))
        if consuming.subscriptions:
            raise ConfigError("topics are subscribed here, or queues assigned already; use another consumer")
        if not chosen:
            raise ConfigError("no queue is given to be assigned")
        self._assigned = chosen
        consuming.settings = msgspec.structs.replace(consuming.settings, assign=assign_fixed(chosen))
        for topic in sorted({queue.topic for queue in chosen}):
            consuming.subscribe(topic, None, None, Listener(_polled))

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        return await self.consuming.queues(topic, self._network)

    async def poll(
        self,
        messages_max: int,
        timeout: float,  # noqa: ASYNC109
    ) -> list[ReceivedMessage]:
        checked_count("max_messages", messages_max, 1)
        checked_timeout(timeout)
        await self._be_started()
        self._finish_polled()
        taken = self._take(messages_max)
        if not taken and timeout > 0:
            await self._wait(timeout)
            taken = self._take(messages_max)
        self._polled = taken
        messages = [message for task in taken for message in task.units[0]]
        hooks = self.consuming.hooks
        if hooks is not None and messages:
            hooks.end(hooks.begin(messages), None)  # what becomes of them, nobody here will know
        return messages

    async def _be_started(self) -> None:
        """It starts with the first poll, whose caller may give up: the next waits for the same start."""
        consuming, starting = self.consuming, self._starting
        if starting is not None and starting.done():
            if consuming.is_started and not consuming.is_stopping:
                return
            starting = None
        if starting is None:
            starting = self._starting = asyncio.ensure_future(self._start())
            starting.add_done_callback(_seen)
        await asyncio.shield(starting)

    async def _start(self) -> None:
        await self.consuming.start(self._network)
        for queue in self._assigned:
            if queue not in self.consuming.held:
                _log.warning(
                    "group %s has nothing to read from %s, which is assigned: there is no such queue, or its "
                    "broker is away; it is read when it appears, and `queues` tells those there are",
                    self.consuming.group,
                    queue,
                )

    async def _wait(self, seconds: float) -> None:
        self._arrival = asyncio.Event()
        try:
            async with Limit(self._clock, seconds):
                await self._arrival.wait()
        except TimeoutError:
            pass  # then nothing has come
        finally:
            self._arrival = None

    def _take(self, messages_max: int) -> list[Task]:
        """Ready messages that are still ours; those of paused queues stay where they are."""
        taken: list[Task] = []
        kept: list[Task] = []
        while self._ready and len(taken) < messages_max:
            task = self._ready.popleft()
            if task.goes_on:
                (kept if task.held.queue in self.consuming.paused else taken).append(task)
        self._ready.extendleft(reversed(kept))
        return taken

    def _finish_polled(self) -> None:
        polled, self._polled = self._polled, []
        for task in polled:
            task.done = 1
        if polled:
            self._finished(polled)

    async def commit(self) -> None:
        self._check_running()
        self._finish_polled()
        if (failure := await self.consuming.commit()) is not None:
            raise failure

    async def seek(self, queue: MessageQueue, where: int | Start) -> None:
        await self._be_started()
        held = self._held(queue)
        queue = held.queue
        if isinstance(where, int):
            if isinstance(where, bool) or where < 0:
                raise ConfigError(f"seek to {where!r}: an offset is a number from 0 on")
            offset = where
        else:
            at = operations.place(self.consuming.brokers.reader(queue), queue, checked_start(where))
            offset = await self.consuming.brokers.run(at)
        self._finish_polled()
        self.consuming.move_to(held, offset)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        self._check_running()
        self.consuming.paused.update(self._held(queue).queue for queue in queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        self._check_running()
        for held in map(self._held, queues):
            self.consuming.paused.discard(held.queue)
            self.consuming.fetching.go_on(held)
        if self._ready and self._arrival is not None:
            self._arrival.set()

    def _held(self, queue: MessageQueue) -> HeldQueue:
        held = self.consuming.held.get(self._at_broker(queue))
        if held is None:
            raise ConfigError(f"{queue} is not read here; `positions` tells the queues that are")
        return held

    def _at_broker(self, queue: object) -> MessageQueue:
        if not isinstance(queue, MessageQueue):
            raise ConfigError(f"{queue!r} is no queue; give those that `queues` tells")
        return queue_with_namespace(self.consuming.settings.namespace, queue)

    def _check_running(self) -> None:
        if not self.consuming.is_started or self.consuming.is_stopping:
            raise ConfigError("this consumer is not running: poll first, and not after it was closed")

    # -------------------------------------------------------------------------- as the workers of the engine

    def start(self, finished: Finished) -> None:
        self._finished = finished

    def submit(self, tasks: Iterable[Task]) -> None:
        self._ready.extend(tasks)
        if self._arrival is not None:
            self._arrival.set()

    def running(self) -> list[Task]:
        return []

    def cancel_waiting(self) -> list[Task]:
        cancelled = list(self._ready)
        self._ready.clear()
        if self._arrival is not None:
            self._arrival.set()  # nothing will come any more
        return cancelled

    def stop(self) -> None:
        self._ready.clear()


def _seen(starting: asyncio.Task[None]) -> None:
    """Its failure is told to who polls, if anybody still does."""
    if not starting.cancelled():
        starting.exception()


def _each(queues: Any) -> Iterable[Any]:
    return queues if isinstance(queues, Iterable) else [queues]


def _polled(message: object) -> None:
    raise AssertionError("the messages of this consumer are polled; no function takes them")
