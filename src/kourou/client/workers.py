"""Who calls the handlers: threads of our own for functions, tasks for coroutines.

    event loop --submit--> tasks --(whoever is free takes the next)--> handler
               <--finished, together-- done

Tasks lie in one place and are taken one by one, so a slow one never keeps others waiting behind it. What
has ended is told together: the loop is woken once for all that ended before it came round.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from kourou.client.handlers import check_handled, is_async
from kourou.client.held_queue import HeldQueue
from kourou.client.outcomes import failures_in
from kourou.doors.clock import Clock
from kourou.message import ReceivedMessage

if TYPE_CHECKING:
    import asyncio

    from kourou.client.consume_hooks import ConsumeHooks

Handler = Callable[[Any], object]
"""Is given one message, or a list of them; returns when that is done, raises when it is not. What it returns
does not matter, unless it is a coroutine, or tells of each message of a list (`outcomes.py`)."""


class Listener:
    """A handler, and how it wants to be called."""

    __slots__ = ("batch_size", "handler", "hooks", "is_async", "ordered")

    def __init__(self, handler: Handler, *, ordered: bool = False, batch_size: int | None = None) -> None:
        self.handler = handler
        self.ordered = ordered
        self.batch_size = batch_size
        """How many messages at most in one call; None for a handler that takes one, and not a list of one."""
        self.is_async = is_async(handler)
        self.hooks: ConsumeHooks | None = None

    def observe(self, hooks: ConsumeHooks) -> None:
        """From now on these are told of every call."""
        self.hooks = hooks
        self.handler = hooks.around(self.handler)

    def units(self, messages: list[ReceivedMessage]) -> list[list[ReceivedMessage]]:
        """The messages as they are handed to it, call by call."""
        size = self.batch_size or 1
        return [messages[at : at + size] for at in range(0, len(messages), size)]


class Task:
    """Messages of one queue for one handler, unit by unit; a unit is what the handler is called with.

    It ends with its last unit, with the first that fails, or when its queue is no longer ours.
    """

    __slots__ = (
        "_failures",
        "done",
        "ended_at",
        "failure",
        "generation",
        "held",
        "listener",
        "started_at",
        "units",
    )

    def __init__(self, held: HeldQueue, listener: Listener, units: list[list[ReceivedMessage]]) -> None:
        self.held = held
        self.generation = held.generation
        self.listener = listener
        self.units = units
        self.done = 0
        """How many units were handled."""
        self.failure: BaseException | None = None
        """Of the unit after those that were handled."""
        self._failures: list[BaseException | None] | None = None
        self.started_at: float | None = None
        """When its handler was called for the unit it is at."""
        self.ended_at: float | None = None
        """When that returned, once it has."""

    @property
    def goes_on(self) -> bool:
        return self.held.goes_on(self.generation)

    def returned(self, outcome: object) -> bool:
        """The handler came back with this from the unit it is at; whether it is to be given the next one."""
        if self.listener.batch_size is not None and self._failed_partly(outcome):
            return False
        self.done += 1
        return True

    def _failed_partly(self, outcome: object) -> bool:
        unit = self.units[self.done]
        failures = failures_in(outcome, len(unit))
        if failures is None:
            return False
        at, self.failure = next((at, each) for at, each in enumerate(failures) if each is not None)
        if self.listener.ordered:  # nothing behind one that failed counts as handled
            parts = [part for part in (unit[:at], unit[at : at + 1], unit[at + 1 :]) if part]
            self.units[self.done : self.done + 1] = parts
            self.done += at > 0
        else:
            self._failures = failures
        return True

    def outcomes(self) -> list[tuple[ReceivedMessage, BaseException | None]]:
        """What became of each message of the unit that failed."""
        unit = self.units[self.done]
        return list(zip(unit, self._failures or [self.failure] * len(unit), strict=True))

    def messages(self) -> list[ReceivedMessage]:
        return [message for unit in self.units for message in unit]


Finished = Callable[[list[Task]], None]
"""Told, on the event loop, of tasks that have ended."""


class Workers(Protocol):
    def start(self, finished: Finished) -> None:
        """Called once, on the event loop that `finished` is to be called on."""

    def submit(self, tasks: Iterable[Task]) -> None:
        """Have them done, in no particular order."""

    def running(self) -> list[Task]:
        """Those whose handler has been called and has not returned."""

    def cancel_waiting(self) -> list[Task]:
        """Those whose handler has not been called yet; it will not be."""

    def stop(self) -> None:
        """Nobody is waited for."""


class ThreadWorkers:
    """Up to `count` threads, each started when it is first needed."""

    def __init__(self, count: int, name: str, clock: Clock) -> None:
        self._count = count
        self._name = name
        self._clock = clock
        self._tasks: deque[Task] = deque()
        self._done: deque[Task] = deque()
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._awake: set[int] = set()
        self._current: dict[int, Task] = {}
        self._is_told = False

    def start(self, finished: Finished) -> None:
        import asyncio

        self._finished = finished
        self._loop = asyncio.get_running_loop()

    def submit(self, tasks: Iterable[Task]) -> None:
        self._tasks.extend(tasks)
        waiting = len(self._tasks)
        # A thread counts as awake before it takes a task: this may start one too many, never one too few.
        while len(self._threads) < min(self._count, len(self._awake) + waiting):
            number = len(self._threads) + 1
            thread = threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        for _ in range(min(waiting, self._count) - self._wake.qsize()):
            self._wake.put(True)

    def running(self) -> list[Task]:
        return list(self._current.values())

    def cancel_waiting(self) -> list[Task]:
        cancelled = []
        while self._tasks:
            try:
                cancelled.append(self._tasks.popleft())
            except IndexError:  # a thread was faster
                break
        return cancelled

    def stop(self) -> None:
        self.cancel_waiting()
        for _ in self._threads:
            self._wake.put(False)

    # -------------------------------------------------------------------------------------- in each thread

    def _work(self) -> None:
        tasks, me = self._tasks, threading.get_ident()
        while self._wake.get():
            self._awake.add(me)
            while tasks:
                try:
                    task = tasks.popleft()
                except IndexError:  # another thread was faster
                    break
                self._current[me] = task
                self._handle(task)
                task.ended_at = self._clock.monotonic()
                self._current.pop(me, None)
                self._report(task)
            self._awake.discard(me)

    def _handle(self, task: Task) -> None:
        task.started_at = self._clock.monotonic()
        handler, is_batched = task.listener.handler, task.listener.batch_size is not None
        for unit in task.units:
            if not task.goes_on:
                break
            try:
                returned = handler(unit if is_batched else unit[0])
                if returned is not None:
                    check_handled(handler, returned)
                if not is_batched:
                    task.done += 1
                elif not task.returned(returned):
                    break
            except BaseException as failure:
                # Whatever it is, SystemExit included: a thread that ends here would be missed for ever.
                task.failure = failure
                break
            if task.done < len(task.units):
                task.started_at = self._clock.monotonic()

    def _report(self, task: Task) -> None:
        self._done.append(task)
        if not self._is_told:
            self._is_told = True
            try:
                self._loop.call_soon_threadsafe(self._tell)
            except RuntimeError:  # the loop is closed: nobody wants to know any more
                return

    def _tell(self) -> None:
        self._is_told = False  # first: who reports from now on tells again
        done = self._done
        ended = [done.popleft() for _ in range(len(done))]
        if ended:
            self._finished(ended)


class TaskWorkers:
    """Up to `count` handlers at a time on the event loop; plain functions go to threads.

    A worker is a task that handles what there is, then ends. Each calls in the next one while more is
    waiting; a handler that never waits for anything is therefore served by one of them, without a task and a
    turn of the loop per message.
    """

    def __init__(self, count: int, name: str, clock: Clock) -> None:
        self._count = count
        self._clock = clock
        self._threads = ThreadWorkers(count, name, clock)
        self._tasks: deque[Task] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._is_one_coming = False
        self._current: dict[asyncio.Task[None], Task] = {}
        self._done: list[Task] = []

    def start(self, finished: Finished) -> None:
        import asyncio

        self._finished = finished
        self._loop = asyncio.get_running_loop()
        self._threads.start(finished)

    def submit(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            if task.listener.is_async:
                self._tasks.append(task)
            else:
                self._threads.submit([task])
        self._call_in_another()

    def running(self) -> list[Task]:
        return [*self._current.values(), *self._threads.running()]

    def cancel_waiting(self) -> list[Task]:
        cancelled = [*self._tasks, *self._threads.cancel_waiting()]
        self._tasks.clear()
        return cancelled

    def stop(self) -> None:
        self._tasks.clear()
        self._threads.stop()
        for worker in self._workers:
            worker.cancel()

    def _call_in_another(self) -> None:
        if self._tasks and not self._is_one_coming and len(self._workers) < self._count:
            self._is_one_coming = True
            worker = self._loop.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def _work(self) -> None:
        import asyncio

        self._is_one_coming = False
        me = asyncio.current_task()
        assert me is not None
        while self._tasks:
            task = self._current[me] = self._tasks.popleft()
            self._call_in_another()
            try:
                await self._handle(task)
                task.ended_at = self._clock.monotonic()
            except asyncio.CancelledError:
                if me.cancelling():
                    raise
                task.failure = RuntimeError("the handler was cancelled")
            finally:
                del self._current[me]
            self._report(task)

    def _report(self, task: Task) -> None:
        self._done.append(task)
        if len(self._done) == 1:
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        done, self._done = self._done, []
        self._finished(done)

    async def _handle(self, task: Task) -> None:
        task.started_at = self._clock.monotonic()
        handler, is_batched = task.listener.handler, task.listener.batch_size is not None
        for unit in task.units:
            if not task.goes_on:
                break
            try:
                returned = handler(unit if is_batched else unit[0])
                assert isinstance(returned, Awaitable)
                if not task.returned(await returned):
                    break
            except Exception as failure:
                task.failure = failure
                break
            if task.done < len(task.units):
                task.started_at = self._clock.monotonic()
