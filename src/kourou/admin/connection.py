"""The way to a cluster for those who look after it: one connection, any number of threads.

    Connection ──▶ name servers     whichever answers, or each of them: they do not talk to each other
               └─▶ brokers          by address; several at once, and one that is gone does not stop the rest

What is asked is in the modules beside this one, as plain functions that take a Connection first. Errors are
those of `kourou.errors`; each names who was asked for what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeVar

from kourou.client.address_map import AddressMap
from kourou.client.cluster_settings import ClusterSettings
from kourou.client.drive import BlockingDriver
from kourou.client.name_servers import NameServers
from kourou.client.refusals import accepted
from kourou.client.routes import Routes
from kourou.client.signing import Credentials
from kourou.client.steps import Call, Operation
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock, RealClock
from kourou.errors import MQError, Refused, TimedOut, Unreachable
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.remoting.config import ClientTls

TIMEOUT_SECONDS = 5.0
LEFT_ALONE_SECONDS = 10.0
"""Who did not answer in time is not asked again for so long: one that hangs must not hold up every look."""

AT_ONCE_MAX = 16
"""So many are asked at the same time."""

Result = TypeVar("Result")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Outcome(Generic[Item, Result]):
    """What came of asking one of several: a result, or the error there is instead."""

    of: Item
    result: Result | None = None
    error: MQError | None = None


class Connection:
    """A cluster, as its operators reach it. Close it, or use it in a `with`."""

    def __init__(
        self,
        name_server: str | Iterable[str] | None = None,
        *,
        access: Credentials | None = None,
        tls: ClientTls | None = None,
        timeout: float | None = None,
        clock: Clock | None = None,
        address_map: dict[str, str] | None = None,
    ) -> None:
        self.clock = clock or RealClock()
        self.timeout = TIMEOUT_SECONDS if timeout is None else timeout
        self._silent: dict[str, float] = {}
        self.access = access
        self.tls = tls
        settings = ClusterSettings(access=access, tls=tls, address_map=address_map)
        self.routes: Routes = settings.routes(name_server, self.clock, Chance())
        self.driver = BlockingDriver(clock=self.clock, tls=tls, sign=settings.sign)
        self._real_address = AddressMap(address_map)

    @property
    def name_servers(self) -> NameServers:
        return self.routes.name_servers

    @property
    def name_server(self) -> str:
        """All of them, as `-n` takes them."""
        return ";".join(sorted(self.name_servers.addresses))

    def run(self, operation: Operation[Result]) -> Result:
        """Carry out one of the client's operations."""
        return self.driver.run(operation)

    def ask(
        self,
        address: str,
        command: Command,
        what: str,
        *,
        timeout: float | None = None,
        expected: Sequence[int] = (ResponseCode.SUCCESS,),
    ) -> Command:
        """The answer of the server at `address`; raises what a refusal means, or Unreachable."""

        def operation() -> Operation[Command]:
            call = Call(self._real_address(address), command, timeout or self.timeout)
            reply: Command = yield call
            return accepted(reply, f"{address}, {what}", expected)

        if self._silent.get(address, 0.0) > self.clock.monotonic():
            raise Unreachable(f"{address}, {what}: it did not answer a moment ago, and is left alone")
        try:
            return self.run(operation())
        except TimedOut:
            self._silent[address] = self.clock.monotonic() + LEFT_ALONE_SECONDS
            raise

    def ask_name_server(
        self, command: Command, what: str, *, expected: Sequence[int] = (ResponseCode.SUCCESS,)
    ) -> Command:
        """The answer of the first name server that gives one."""
        reply = self.run(self.name_servers.ask(command, self.timeout))
        return accepted(reply, what, expected)

    def each(self, items: Iterable[Item], do: Callable[[Item], Result]) -> list[Outcome[Item, Result]]:
        """`do` for each of them, several at once, in the given order; errors are kept, not raised."""

        def attempt(item: Item) -> Outcome[Item, Result]:
            try:
                return Outcome(item, do(item))
            except MQError as error:
                return Outcome(item, error=error)

        listed = list(items)
        if len(listed) < 2:
            return [attempt(item) for item in listed]
        with ThreadPoolExecutor(min(len(listed), AT_ONCE_MAX)) as pool:
            return list(pool.map(attempt, listed))

    def all(
        self, items: Iterable[Item], do: Callable[[Item], Result], change: str = ""
    ) -> list[tuple[Item, Result]]:
        """As `each`, for those who want all of them: the first error is raised.

        With `change`, what is being done, the error also says who did it and who did not.
        """
        outcomes = self.each(items, do)
        failed = [outcome for outcome in outcomes if outcome.error is not None]
        if failed:
            raise _half_done(outcomes, failed, change)
        return [(outcome.of, outcome.result) for outcome in outcomes]  # type: ignore[misc]

    def some(
        self, items: Iterable[Item], do: Callable[[Item], Result]
    ) -> tuple[list[tuple[Item, Result]], list[Outcome[Item, Result]]]:
        """As `each`: what worked, and what did not. Raises the first error when nothing worked."""
        outcomes = self.each(items, do)
        failed = [outcome for outcome in outcomes if outcome.error is not None]
        if failed and len(failed) == len(outcomes):
            assert failed[0].error is not None
            raise failed[0].error
        worked = [(outcome.of, outcome.result) for outcome in outcomes if outcome.error is None]
        return worked, failed  # type: ignore[return-value]

    def close(self) -> None:
        """Hang up."""
        self.driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _half_done(
    outcomes: list[Outcome[Item, Result]], failed: list[Outcome[Item, Result]], change: str
) -> MQError:
    first = failed[0].error
    assert first is not None
    if len(outcomes) == 1 or not change:
        return first
    done = [_name(outcome.of) for outcome in outcomes if outcome.error is None]
    text = (
        f"{change}: done at {', '.join(done) or 'none'}, but not at "
        + "; ".join(f"{_name(outcome.of)} ({outcome.error})" for outcome in failed)
        + "; run it again when that is mended"
    )
    return type(first)(first.code, text) if isinstance(first, Refused) else type(first)(text)


def _name(item: object) -> str:
    """An address, or a broker's."""
    return str(getattr(item, "address", item))
