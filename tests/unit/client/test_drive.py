"""Both drivers, with clients that answer at once: the same operation, the same outcome."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kourou.client.drive import AsyncDriver, BlockingDriver
from kourou.client.steps import Arrival, Call, Collect, Launch, Operation, Wait
from kourou.doors.clock import SimulatedClock
from kourou.errors import ConfigError, ConnectionLost, MQError, Unreachable
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command, request
from tests.unit.client.conversation import reply

Run = Callable[[Operation[Any]], Any]


class Peers:
    """A client without a network: every address answers its own name, "down" cannot be reached."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        self.one_way: list[str] = []
        self.launched: list[tuple[str, Callable[[Command | Exception], None]]] = []
        self.is_closed = False

    def call(self, address: str, command: Command, timeout: float) -> Command:
        if address == "down":
            raise Unreachable("it is down")
        return reply(remark=address)

    def send_one_way(self, address: str, command: Command) -> None:
        self.one_way.append(address)

    def call_soon(
        self, address: str, command: Command, timeout: float, then: Callable[[Command | Exception], None]
    ) -> None:
        if address == "down":
            raise Unreachable("it is down")
        self.launched.append((address, then))

    def poll(self, seconds: float) -> None:
        """One launched call is answered at a time; without any, time passes."""
        if self.launched:
            address, then = self.launched.pop(0)
            then(ConnectionLost("hung up") if address == "rude" else reply(remark=address))
        else:
            self.clock.advance(seconds)

    def close(self) -> None:
        self.is_closed = True


class AsyncPeers(Peers):
    async def call(self, *arguments: Any) -> Command:  # type: ignore[override]
        return super().call(*arguments)

    async def send_one_way(self, *arguments: Any) -> None:  # type: ignore[override]
        super().send_one_way(*arguments)

    def call_soon(self, *arguments: Any) -> None:
        super().call_soon(*arguments)
        asyncio.get_running_loop().call_soon(self.poll, 0)

    async def close(self) -> None:  # type: ignore[override]
        super().close()


@pytest.fixture(params=["blocking", "async"])
def run(request: pytest.FixtureRequest) -> Run:
    clock = SimulatedClock()
    if request.param == "blocking":
        return BlockingDriver(Peers(clock), clock).run  # type: ignore[arg-type]
    driver = AsyncDriver(AsyncPeers(clock))  # type: ignore[arg-type]
    return lambda operation: asyncio.run(driver.run(operation))


def ask(address: str) -> Call:
    return Call(address, request(RequestCode.HEART_BEAT), 3.0)


def test_an_operation_is_sent_its_replies_and_returns_its_result(run: Run) -> None:
    def operation() -> Operation[list[str | None]]:
        first = yield ask("a")
        second = yield ask("b")
        return [first.remark, second.remark]

    assert run(operation()) == ["a", "b"]


def test_an_operation_without_steps_just_returns(run: Run) -> None:
    def operation() -> Operation[int]:
        yield from ()
        return 7

    assert run(operation()) == 7


def test_a_failed_step_is_thrown_in_and_can_be_dealt_with(run: Run) -> None:
    def operation() -> Operation[str | None]:
        try:
            yield ask("down")
        except Unreachable:
            answer = yield ask("b")
        return str(answer.remark)

    assert run(operation()) == "b"


def test_what_an_operation_raises_reaches_the_caller(run: Run) -> None:
    def gives_up() -> Operation[None]:
        yield ask("down")

    def objects() -> Operation[None]:
        yield ask("a")
        raise ConfigError("not like this")

    with pytest.raises(Unreachable, match="it is down"):
        run(gives_up())
    with pytest.raises(ConfigError, match="not like this"):
        run(objects())


def test_a_one_way_call_has_no_reply(run: Run) -> None:
    def operation() -> Operation[object]:
        return (yield msgspec.structs.replace(ask("a"), one_way=True))

    assert run(operation()) is None


def test_launched_calls_are_collected_with_their_tokens_whatever_came_of_them(run: Run) -> None:
    def operation() -> Operation[dict[object, object]]:
        for token, address in enumerate(["a", "rude", "b"]):
            yield Launch(token, ask(address))
        outcomes: dict[object, object] = {}
        while len(outcomes) < 3:
            for token, outcome in (yield Collect(5.0)):
                outcomes[token] = type(outcome) if isinstance(outcome, MQError) else outcome.remark
        return outcomes

    assert run(operation()) == {0: "a", 1: ConnectionLost, 2: "b"}


def test_a_call_that_cannot_be_launched_fails_there(run: Run) -> None:
    def operation() -> Operation[str]:
        try:
            yield Launch(1, ask("down"))
        except Unreachable as error:
            return str(error)
        return "launched"

    assert run(operation()) == "it is down"


def test_collecting_nothing_ends_in_time(run: Run) -> None:
    def operation() -> Operation[object]:
        return (yield Collect(0.001))

    assert run(operation()) == []


def test_blocking_waits_look_up_every_second() -> None:
    clock = SimulatedClock()
    seen: list[float] = []

    class Patient(Peers):
        def poll(self, seconds: float) -> None:
            seen.append(seconds)
            super().poll(seconds)

    def operation() -> Operation[object]:
        return (yield Collect(2.5))

    assert BlockingDriver(Patient(clock), clock).run(operation()) == []  # type: ignore[arg-type]
    assert seen == pytest.approx([1.0, 1.0, 0.5, 0.0])


def test_an_error_that_is_none_of_ours_is_collected_as_unreachable() -> None:
    clock = SimulatedClock()

    class Broken(Peers):
        def poll(self, seconds: float) -> None:
            self.launched.pop()[1](ValueError("a bug"))

    def operation() -> Operation[object]:
        yield Launch(1, ask("a"))
        ((_, outcome),) = yield Collect(1.0)
        return outcome

    outcome = BlockingDriver(Broken(clock), clock).run(operation())  # type: ignore[arg-type]
    assert isinstance(outcome, Unreachable)
    assert "ValueError: a bug" in str(outcome)


def test_a_cancelled_operation_is_ended_at_once() -> None:
    ended = []

    def operation() -> Operation[None]:
        try:
            yield Collect(60.0)
        finally:
            ended.append(True)

    async def main() -> None:
        waiting = asyncio.ensure_future(AsyncDriver(AsyncPeers(SimulatedClock())).run(operation()))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert ended

    asyncio.run(main())


def test_closing_a_driver_closes_its_client() -> None:
    peers = Peers(SimulatedClock())
    BlockingDriver(peers).close()  # type: ignore[arg-type]
    assert peers.is_closed
    async_peers = AsyncPeers(SimulatedClock())
    driver = AsyncDriver(async_peers)  # type: ignore[arg-type]
    asyncio.run(driver.close())
    asyncio.run(driver.close())
    assert async_peers.is_closed


# ----------------------------------------------------------------------------- nobody waits, or for another


class Attended:
    """A blocking client whose replies come when somebody polls."""

    def __init__(self) -> None:
        self.launched: list[tuple[str, Callable[[Any], None]]] = []
        self.outcomes: list[Any] = []
        self.woken = threading.Event()

    def hear_wakes(self) -> None:
        pass

    def wake(self) -> None:
        self.woken.set()

    def call_soon(self, address: str, command: Command, timeout: float, then: Callable[[Any], None]) -> None:
        self.launched.append((address, then))
        self.woken.set()

    def poll(self, seconds: float) -> None:
        while self.launched and self.outcomes:
            self.launched.pop(0)[1](self.outcomes.pop(0))
        self.woken.wait(0.01)
        self.woken.clear()

    def close(self) -> None:
        pass


def two_tries() -> Operation[str]:
    try:
        yield ask("first")
    except Unreachable:
        reply: Command = yield ask("second")
        return f"after {reply.code}"
    return "at once"


def test_what_is_started_goes_on_in_the_driver_s_own_thread_and_is_told_once() -> None:
    client = Attended()
    client.outcomes = [Unreachable("refused"), Command(7)]
    driver = BlockingDriver(client)  # type: ignore[arg-type]
    told: list[Any] = []
    done = threading.Event()

    def tell(result: object) -> None:
        told.append((result, threading.current_thread().name))
        done.set()

    driver.start(two_tries(), tell)
    assert done.wait(5)
    driver.close()
    assert told == [("after 7", "kourou")]


def test_what_is_started_and_not_done_when_a_driver_closes_is_told_so() -> None:
    driver = BlockingDriver(Attended())  # type: ignore[arg-type]
    told: list[Any] = []
    driver.start(two_tries(), told.append)
    driver.close()
    (error,) = told
    assert isinstance(error, ConnectionLost)
    assert "closed before there was an answer" in str(error)


def test_what_is_started_after_a_driver_was_closed_is_told_so() -> None:
    """Also what waits for something first: nobody is there any more to end that."""

    def waiting() -> Operation[None]:
        yield Wait(Arrival(), 60.0, from_broker=False)

    driver = BlockingDriver(Attended())  # type: ignore[arg-type]
    driver.close()
    told: list[Any] = []
    driver.start(waiting(), told.append)
    (error,) = told
    assert isinstance(error, ConnectionLost)


def test_a_closed_async_driver_makes_no_new_client() -> None:
    async def main() -> None:
        driver = AsyncDriver(AsyncPeers(SimulatedClock()))  # type: ignore[arg-type]
        await driver.close()
        with pytest.raises(ConnectionLost, match="closed meanwhile"):
            await driver.run(two_tries())

    asyncio.run(main())


def test_chores_are_done_again_when_they_want_to_be_and_after_a_failure() -> None:
    driver = BlockingDriver(Attended())  # type: ignore[arg-type]
    done: list[int] = []
    enough = threading.Event()

    def chores() -> Operation[float]:
        done.append(1)
        if len(done) == 3:
            enough.set()
            raise Unreachable("nobody there")
        yield from ()
        return 0.001

    driver.attend(chores)
    assert enough.wait(5)
    driver.close()
    assert len(done) == 3  # after a failure it takes seconds


def test_an_operation_waits_for_what_another_brings() -> None:
    def operation(arrival: Arrival) -> Operation[object]:
        return (yield Wait(arrival, 5.0, from_broker=False))

    def blocking() -> object:
        arrival = Arrival()
        threading.Timer(0.01, arrival.put, ["there"]).start()
        return BlockingDriver(Attended()).run(operation(arrival))  # type: ignore[arg-type]

    async def waiting() -> object:
        arrival = Arrival()
        asyncio.get_running_loop().call_later(0.01, arrival.put, "there, too")
        return await AsyncDriver(AsyncPeers(SimulatedClock())).run(operation(arrival))  # type: ignore[arg-type]

    assert blocking() == "there"
    assert asyncio.run(waiting()) == "there, too"


def test_who_waits_in_vain_gets_none() -> None:
    def operation() -> Operation[object]:
        return (yield Wait(Arrival(), 0.01, from_broker=False))

    assert BlockingDriver(Attended()).run(operation()) is None  # type: ignore[arg-type]
    driver = AsyncDriver(AsyncPeers(SimulatedClock()))  # type: ignore[arg-type]
    assert asyncio.run(driver.run(operation())) is None
