"""Run an operation to its end, blocking or async. The only place in the client that waits.

Both drivers do the same: perform the step an operation asks for, hand back what came of it, until the
operation returns. The async one imports its parts when it is first used, so that a program that never asks
for asyncio does not pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any

from kourou.client.steps import Call, Collect, Launch, Operation, Result, Settled, Step
from kourou.doors.clock import Clock, RealClock
from kourou.errors import MQError, Unreachable
from kourou.protocol.command import Command
from kourou.remoting.blocking import BlockingClient

if TYPE_CHECKING:
    import asyncio

    from kourou.remoting.client import Client

POLL_SECONDS = 1.0
"""The longest a thread waits before it looks up: for Ctrl-C, and for what another thread has read."""


class BlockingDriver:
    """Runs operations on plain sockets, in the thread that asks. Any number of threads may ask at once."""

    def __init__(self, client: BlockingClient | None = None, clock: Clock | None = None) -> None:
        self._clock = clock or RealClock()
        self._client = client or BlockingClient(clock=self._clock)
        self._settled: Settled = []

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

    def close(self) -> None:
        self._client.close()

    def _perform(self, step: Step) -> Any:
        if isinstance(step, Call):
            if step.one_way:
                return self._client.send_one_way(step.address, step.command)
            return self._client.call(step.address, step.command, step.timeout)
        if isinstance(step, Launch):
            call, then = step.call, partial(_keep, self._settled, step.token)
            return self._client.call_soon(call.address, call.command, call.timeout, then)
        return self._collect(step.timeout)

    def _collect(self, timeout: float) -> Settled:
        deadline = self._clock.monotonic() + timeout
        while not self._settled:
            remaining = deadline - self._clock.monotonic()
            self._client.poll(max(0.0, min(remaining, POLL_SECONDS)))
            if remaining <= 0:
                break
        return _taken(self._settled)


class AsyncDriver:
    """Runs operations on the running event loop. Any number of tasks may ask at once."""

    def __init__(self, client: Client | None = None) -> None:
        self._client = client
        self._settled: Settled = []
        self._arrival: asyncio.Future[None] | None = None

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

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _perform(self, step: Step) -> Any:
        client = self._client or self._connected()
        if isinstance(step, Call):
            if step.one_way:
                return await client.send_one_way(step.address, step.command)
            return await client.call(step.address, step.command, step.timeout)
        if isinstance(step, Launch):
            call = step.call
            return client.call_soon(call.address, call.command, call.timeout, self._keeper(step.token))
        return await self._collect(step)

    def _connected(self) -> Client:
        """The client of the loop that runs now; made here because none may run when a producer is made."""
        from kourou.doors.network import RealNetwork
        from kourou.remoting.client import Client

        self._client = Client(network=RealNetwork(), clock=RealClock())
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


def _keep(settled: Settled, token: Hashable, outcome: Command | Exception) -> None:
    if isinstance(outcome, Exception) and not isinstance(outcome, MQError):
        outcome = Unreachable(f"{type(outcome).__name__}: {outcome}")
    settled.append((token, outcome))


def _taken(settled: Settled) -> Settled:
    taken = settled[:]
    del settled[: len(taken)]  # not clear(): another thread may have added one since
    return taken
