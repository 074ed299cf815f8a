"""Run an operation to its end, blocking or async. The only place in the client that waits.

Both drivers do the same: perform the step an operation asks for, hand back what came of it, until the
operation returns. The async one imports its parts when it is first used, so that a program that never asks
for asyncio does not pay for it.

    run       now, for the one who waits
    start     now, and nobody waits: somebody is told the result
    attend    from now on, beside everything else: read what brokers ask of us, and do chores in time

The blocking driver has no thread until the first `start` or `attend`; then one, which reads for all. What a
broker asks of us goes to `handlers`, in whichever thread reads at the time: a handler is quick, or hands on.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from kourou.client.steps import (
    Arrival,
    Call,
    Collect,
    Fetch,
    Hear,
    Launch,
    Operation,
    Pause,
    Result,
    Settled,
    Step,
    Wait,
)
from kourou.doors.clock import Clock, RealClock
from kourou.errors import ConfigError, ConnectionLost, MQError, Unreachable
from kourou.protocol.command import Command
from kourou.remoting.answer import Handler
from kourou.remoting.blocking import NO_HANDLERS, BlockingClient
from kourou.remoting.config import ClientTls

if TYPE_CHECKING:
    import asyncio

    from kourou.remoting.client import Client

POLL_SECONDS = 1.0
"""The longest a thread waits before it looks up: for Ctrl-C, and for what another thread has read."""

CHORES_AGAIN_SECONDS = 3.0
"""After chores that failed."""

Chores: TypeAlias = Callable[[], Operation[float]]
"""Makes what is to be done regularly; that returns the seconds until it wants to be done again."""

Told: TypeAlias = Callable[[Any], None]
"""Is told a result, or the exception there is instead of one."""

_log = logging.getLogger("kourou.client")


class BlockingDriver:
    """Runs operations on plain sockets, in the thread that asks. Any number of threads may ask at once."""

    def __init__(
        self,
        client: BlockingClient | None = None,
        clock: Clock | None = None,
        *,
        handlers: Mapping[int, Handler] = NO_HANDLERS,
        tls: ClientTls | None = None,
        sign: Callable[[Command], None] | None = None,
    ) -> None:
        self._clock = clock or RealClock()
        self._client = client or BlockingClient(clock=self._clock, handlers=handlers, tls=tls, sign=sign)
        self._settled: Settled = []
        self._lock = threading.Lock()
        self._attendant: threading.Thread | None = None
        self._is_closed = False
        self._chores: list[_Chore] = []
        self._resumable: deque[tuple[_Started, Any]] = deque()
        self._started: set[_Started] = set()
        self._waits: list[tuple[float, int, _Once]] = []
        self._numbers = count()

    def run(self, operation: Operation[Result]) -> Result:
        try:
            step = next(operation)
            while True:
                try:
                    outcome = self._perform(step)
                except MQError as error:
                    step = operation.throw(error)
                else:
                    step = operation.send(outcome)
        except StopIteration as done:
            result: Result = done.value
            return result
        finally:
            operation.close()  # at once, when the wait was interrupted or cancelled

    def start(self, operation: Operation[Result], then: Callable[[Result | Exception], None]) -> None:
        """Run it without waiting; `then` is told what came of it, in a thread of the driver's choice."""
        self.attend()
        started = _Started(operation, then)
        with self._lock:
            self._started.add(started)
            is_closed = self._is_closed
        if is_closed:  # nobody would go on with it
            operation.close()
            self._finish(started, _closed())
        else:
            self._advance(started, None)

    def attend(self, chores: Chores | None = None) -> None:
        """From now on read what brokers send by themselves, and do `chores`, first at once."""
        with self._lock:
            if self._is_closed:
                return
            if chores is not None:
                self._chores.append(_Chore(chores))
            if self._attendant is None:
                self._client.hear_wakes()
                self._attendant = threading.Thread(target=self._keep_reading, name="kourou", daemon=True)
                self._attendant.start()
        if chores is not None:
            self._client.wake()

    def close(self) -> None:
        """Hang up. What was started and is not done is told ConnectionLost."""
        with self._lock:
            self._is_closed = True
            attendant = self._attendant
        if attendant is not None:
            self._client.wake()
            if attendant is not threading.current_thread():
                attendant.join(2 * POLL_SECONDS)  # it may be in the middle of a connect
        self._client.close()
        self._resume()
        with self._lock:
            left = list(self._started)
        for started in left:
            self._finish(started, _closed())

    def _perform(self, step: Step) -> Any:
        if isinstance(step, Call):
            if step.one_way:
                return self._client.send_one_way(step.address, step.command)
            return self._client.call(step.address, step.command, step.timeout)
        if isinstance(step, Launch):
            call, then = step.call, partial(_keep, self._settled, step.token)
            return self._client.call_soon(call.address, call.command, call.timeout, then)
        if isinstance(step, Collect):
            return self._collect(step.timeout)
        if isinstance(step, Pause):
            threading.Event().wait(step.seconds)
            return None
        if isinstance(step, Fetch):
            from kourou.remoting.blocking_http import fetch_text

            return fetch_text(step.url, step.timeout)
        if isinstance(step, Hear):
            return self._client.hear(step.address)
        return self._wait(step)

    def _collect(self, timeout: float) -> Settled:
        deadline = self._clock.monotonic() + timeout
        while not self._settled:
            remaining = deadline - self._clock.monotonic()
            self._client.poll(max(0.0, min(remaining, POLL_SECONDS)))
            if remaining <= 0:
                break
        return _taken(self._settled)

    def _wait(self, step: Wait) -> Any:
        if step.from_broker:
            self.attend()  # somebody has to read what we wait for
        there = threading.Event()
        step.arrival.when_there(there.set)
        there.wait(step.timeout)
        return step.arrival.value

    # ------------------------------------------------------------------------- what nobody waits for

    def _advance(self, started: _Started, outcome: Any) -> None:
        """Take steps until one is on its way. Called by one thread at a time for each operation."""
        operation = started.operation
        try:
            step = operation.throw(outcome) if isinstance(outcome, Exception) else operation.send(outcome)
            while True:
                try:
                    if isinstance(step, Call) and not step.one_way:
                        self._client.call_soon(
                            step.address, step.command, step.timeout, partial(self._on_outcome, started)
                        )
                        return
                    if isinstance(step, Wait):
                        arrived = _Once(partial(self._on_arrival, started, step.arrival))
                        with self._lock:
                            heapq.heappush(
                                self._waits,
                                (self._clock.monotonic() + step.timeout, next(self._numbers), arrived),
                            )
                        step.arrival.when_there(arrived)
                        self._wake_attendant()
                        return
                    outcome = self._perform(step)
                except MQError as error:
                    step = operation.throw(error)
                else:
                    step = operation.send(outcome)
        except StopIteration as done:
            self._finish(started, done.value)
        except Exception as error:
            self._finish(started, error)

    def _on_outcome(self, started: _Started, outcome: Command | Exception) -> None:
        """In a thread that reads for others: it shall not be held up by what we do next, say a connect."""
        self._resumable.append((started, _foreseen(outcome)))
        self._wake_attendant()

    def _on_arrival(self, started: _Started, arrival: Arrival) -> None:
        self._resumable.append((started, arrival.value))
        self._wake_attendant()

    def _wake_attendant(self) -> None:
        """It looks what can go on before it waits again, so only others have to wake it."""
        if threading.current_thread() is not self._attendant:
            self._client.wake()

    def _resume(self) -> None:
        while self._resumable:
            try:
                started, outcome = self._resumable.popleft()
            except IndexError:  # another thread was faster: one that closes
                return
            self._advance(started, outcome)

    def _finish(self, started: _Started, result: Any) -> None:
        with self._lock:
            if started not in self._started:
                return
            self._started.discard(started)
        try:
            started.then(result)
        except Exception:
            _log.exception("what was to be told the result of a request failed")

    # ---------------------------------------------------------------------------------- the attendant

    def _keep_reading(self) -> None:
        while not self._is_closed:
            try:
                self._resume()
                seconds = self._do_chores()
                if not self._resumable:
                    self._client.poll(max(0.0, min(seconds, POLL_SECONDS)))
            except Exception:  # the top of a loop: nothing may end it
                _log.exception("reading what brokers send failed")
                threading.Event().wait(POLL_SECONDS)

    def _do_chores(self) -> float:
        """Do what is due; the seconds until something is."""
        soonest = min(POLL_SECONDS, self._end_waits())
        for chore in list(self._chores):
            left = chore.due - self._clock.monotonic()
            if left <= 0:
                left = self._do(chore)
                chore.due = self._clock.monotonic() + left
            soonest = min(soonest, left)
        return soonest

    def _end_waits(self) -> float:
        """Go on with what has waited long enough; the seconds until something has."""
        while True:
            with self._lock:
                if not self._waits:
                    return POLL_SECONDS
                left = self._waits[0][0] - self._clock.monotonic()
                if left > 0:
                    return left
                _, _, arrived = heapq.heappop(self._waits)
            arrived()

    def _do(self, chore: _Chore) -> float:
        try:
            return self.run(chore.make())
        except MQError as error:
            _log.warning("%s", error)
            return CHORES_AGAIN_SECONDS


class _Chore:
    __slots__ = ("due", "make")

    def __init__(self, make: Chores) -> None:
        self.make = make
        self.due = 0.0


class _Once:
    """Calls once, however often it is called."""

    __slots__ = ("_call", "_lock")

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._lock = threading.Lock()

    def __call__(self) -> None:
        if self._lock.acquire(blocking=False):
            self._call()


class _Started:
    """An operation nobody waits for."""

    __slots__ = ("operation", "then")

    def __init__(self, operation: Operation[Any], then: Told) -> None:
        self.operation = operation
        self.then = then


class AsyncDriver:
    """Runs operations on the running event loop. Any number of tasks may ask at once."""

    def __init__(
        self,
        client: Client | None = None,
        *,
        handlers: Mapping[int, Handler] = NO_HANDLERS,
        tls: ClientTls | None = None,
        sign: Callable[[Command], None] | None = None,
    ) -> None:
        self._client = client
        self._handlers = handlers
        self._tls = tls
        self._sign = sign
        self._settled: Settled = []
        self._arrival: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
        self._is_closed = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, operation: Operation[Result]) -> Result:
        try:
            step = next(operation)
            while True:
                try:
                    outcome = await self._perform(step)
                except MQError as error:
                    step = operation.throw(error)
                else:
                    step = operation.send(outcome)
        except StopIteration as done:
            result: Result = done.value
            return result
        finally:
            operation.close()  # at once, when the wait was interrupted or cancelled

    def start(self, operation: Operation[Result], then: Callable[[Result | Exception], None]) -> None:
        """Run it without waiting; `then` is told what came of it, on the event loop."""
        self._keep_task(self._run_and_tell(operation, then))

    def attend(self, chores: Chores | None = None) -> None:
        """From now on do `chores`, first at once. (What brokers send is read in any case.)"""
        if chores is not None:
            self._keep_task(self._keep_doing(chores))

    async def close(self) -> None:
        """Hang up. What was started and is not done is told ConnectionLost, and so is whoever goes on."""
        import asyncio

        self._is_closed = True
        if self._loop not in (None, asyncio.get_running_loop()):
            self._client = None  # its connections are another loop's, which is closed most likely
            return
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _perform(self, step: Step) -> Any:
        client = self._client or self._connected()
        if self._running_loop is not None and self._running_loop() is not self._loop:
            raise ConfigError(
                "this client belongs to another event loop, its connections do; make one in each: inside "
                "the coroutine that is given to asyncio.run()"
            )
        if isinstance(step, Call):
            if step.one_way:
                return await client.send_one_way(step.address, step.command)
            return await client.call(step.address, step.command, step.timeout)
        if isinstance(step, Launch):
            call = step.call
            return client.call_soon(call.address, call.command, call.timeout, self._keeper(step.token))
        if isinstance(step, Collect):
            return await self._collect(step)
        if isinstance(step, Pause):
            import asyncio

            return await asyncio.sleep(step.seconds)
        if isinstance(step, Fetch):
            from kourou.doors.network import RealNetwork
            from kourou.remoting.http import fetch_text

            return await fetch_text(
                step.url, network=RealNetwork(), clock=RealClock(), timeout_seconds=step.timeout
            )
        if isinstance(step, Hear):
            return None  # the event loop reads everything
        return await _arrived(step)

    def _connected(self) -> Client:
        """The client of the loop that runs now; made here because none may run when a producer is made."""
        if self._is_closed:  # a send that was under way would try again, and nobody would ever hang up
            raise ConnectionLost("this client was closed meanwhile")
        import asyncio

        from kourou.doors.network import RealNetwork
        from kourou.remoting.client import Client

        self._running_loop = asyncio.get_running_loop
        self._loop = asyncio.get_running_loop()
        self._client = Client(
            network=RealNetwork(),
            clock=RealClock(),
            handlers=self._handlers,
            tls=self._tls,
            sign=self._sign,
        )
        return self._client

    def _keeper(self, token: Hashable) -> Callable[[Command | Exception], None]:
        def keep(outcome: Command | Exception) -> None:
            _keep(self._settled, token, outcome)
            if self._arrival is not None and not self._arrival.done():
                self._arrival.set_result(None)

        return keep

    async def _collect(self, step: Collect) -> Settled:
        import asyncio

        if not self._settled:
            self._arrival = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(step.timeout):
                    await self._arrival
            except TimeoutError:
                pass  # then nothing has come
            finally:
                self._arrival = None
        return _taken(self._settled)

    def _keep_task(self, work: Any) -> None:
        import asyncio

        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # a task nobody holds may vanish
        task.add_done_callback(self._tasks.discard)

    async def _run_and_tell(self, operation: Operation[Any], then: Told) -> None:
        import asyncio

        try:
            result: Any = await self.run(operation)
        except asyncio.CancelledError:
            then(_closed())
            raise
        except Exception as error:
            result = error
        try:
            then(result)
        except Exception:
            _log.exception("what was to be told the result of a request failed")

    async def _keep_doing(self, chores: Chores) -> None:
        import asyncio

        while True:
            try:
                seconds = await self.run(chores())
            except MQError as error:
                _log.warning("%s", error)
                seconds = CHORES_AGAIN_SECONDS
            except Exception:  # the top of a loop: nothing may end it
                _log.exception("what is to be done regularly failed")
                seconds = CHORES_AGAIN_SECONDS
            await asyncio.sleep(seconds)


async def _arrived(step: Wait) -> Any:
    import asyncio

    there = asyncio.get_running_loop().create_future()
    step.arrival.when_there(lambda: None if there.done() else there.set_result(None))
    try:
        async with asyncio.timeout(step.timeout):
            await there
    except TimeoutError:
        pass  # then nothing has come
    return step.arrival.value


def _closed() -> ConnectionLost:
    return ConnectionLost("the client was closed before there was an answer")


def _keep(settled: Settled, token: Hashable, outcome: Command | Exception) -> None:
    settled.append((token, _foreseen(outcome)))


def _foreseen(outcome: Command | Exception) -> Command | MQError:
    if isinstance(outcome, Exception) and not isinstance(outcome, MQError):
        return Unreachable(f"{type(outcome).__name__}: {outcome}")
    return outcome


def _taken(settled: Settled) -> Settled:
    taken = settled[:]
    del settled[: len(taken)]  # not clear(): another thread may have added one since
    return taken
