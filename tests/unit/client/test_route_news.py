"""A name server says that a route has changed: it is asked for soon, and not too often."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kourou.client.route_news import route_news
from kourou.client.routes import (
    LISTEN_SECONDS,
    NEWS_AGAIN_SECONDS,
    NEWS_SPREAD_SECONDS,
    NameServers,
    Routes,
)
from kourou.client.steps import Call, Hear
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.errors import ProtocolError, Unreachable
from kourou.protocol.bodies import TopicList
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import FLAG_ONE_WAY, Command, request
from kourou.protocol.headers import GetRoute
from kourou.remoting.answer import Answer
from tests.unit.client.consuming_world import ConsumingWorld
from tests.unit.client.conversation import TWO_BROKERS, play, reply, route_of

UNTOLD = float("inf")


class Desk:
    """A client's routes, and a name server that counts what it is asked."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.routes = Routes(NameServers(["n:1"], Chance(7), self.clock), self.clock)
        self.table: dict[str, Any] = {"t": route_of(TWO_BROKERS), "u": route_of(TWO_BROKERS)}
        self.asked: list[GetRoute] = []
        self.is_down = False
        self.while_asked: Callable[[], object] = lambda: None

    def want(self, topic: str = "t") -> Any:
        route, _ = play(self.routes.to_read(topic, self.clock.monotonic() + 3), self._answer)
        return route

    def _answer(self, step: Call) -> Command:
        self.asked.append(step.command.parse(GetRoute))
        self.while_asked()
        if self.is_down:
            raise Unreachable("down")
        found = self.table.get(self.asked[-1].topic)
        return reply(body=found.encode()) if found else reply(code=ResponseCode.TOPIC_NOT_EXIST)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_only_who_listens_asks_to_be_told(desk: Desk) -> None:
    desk.want()
    assert desk.asked[-1].kourou_watch is None
    route_news(desk.routes)
    desk.want("u")
    assert desk.asked[-1].kourou_watch is True


def test_a_route_that_has_changed_is_asked_for_soon(desk: Desk) -> None:
    desk.want()
    desk.clock.advance(5.0)
    seconds = desk.routes.changed(["t"])
    assert seconds is not None
    assert 0 <= seconds <= NEWS_SPREAD_SECONDS
    desk.table["t"] = route_of({**TWO_BROKERS, "broker-c": {0: "c:10911"}})
    desk.clock.advance(seconds + 0.001)
    assert len(desk.want().read_queues) == 12
    desk.want()
    assert len(desk.asked) == 2
    assert desk.routes.news_due("t") == UNTOLD


def test_clients_do_not_all_ask_in_one_instant() -> None:
    def spread(seed: int) -> float | None:
        desk = Desk()
        desk.routes.name_servers.chance.seed(seed)
        desk.want()
        desk.clock.advance(5.0)
        return desk.routes.changed(["t"])

    assert len({spread(seed) for seed in range(20)}) == 20


def test_however_often_it_is_said_a_route_is_asked_for_once_a_second(desk: Desk) -> None:
    desk.want()
    for _ in range(1000):
        desk.clock.advance(0.01)
        desk.routes.changed(["t", "t", "u"])
        desk.want()
    assert len(desk.asked) <= 1 + 10 / NEWS_AGAIN_SECONDS


def test_what_is_not_in_use_is_no_news_and_not_remembered(desk: Desk) -> None:
    desk.want()
    desk.clock.advance(5.0)
    assert desk.routes.changed(f"made up {number}" for number in range(10_000)) is None
    assert desk.routes.topics() == ["t"]
    assert desk.routes.changed(["t"]) is not None
    assert desk.routes.changed(["t"]) is None, "known already"


@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_said_while_a_route_is_asked_for_is_not_lost(desk: Desk, is_first: bool) -> None:
    if not is_first:
        desk.want()
        desk.clock.advance(31.0)
    desk.while_asked = lambda: desk.routes.changed(["t"])
    desk.want()
    asked = len(desk.asked)
    desk.while_asked = lambda: None
    assert desk.routes.news_due("t") == NEWS_AGAIN_SECONDS
    desk.clock.advance(NEWS_AGAIN_SECONDS)
    desk.want()
    assert len(desk.asked) == asked + 1
    assert desk.routes.news_due("t") == UNTOLD


def test_news_nobody_can_confirm_do_not_make_a_client_ask_without_end(desk: Desk) -> None:
    desk.want()
    desk.clock.advance(5.0)
    desk.routes.changed(["t"])
    desk.clock.advance(0.3)
    desk.is_down = True
    desk.want()
    assert desk.routes.news_due("t") == UNTOLD
    desk.want()
    assert len(desk.asked) == 2


def test_who_has_no_reader_listens_now_and_then_while_it_is_busy(desk: Desk) -> None:
    desk.want()
    desk.routes.reads_when_asked = True
    heard: list[float] = []

    def answer(step: Any) -> Command | None:
        if isinstance(step, Hear):
            assert step.address == "n:1"
            heard.append(desk.clock.monotonic())
            return None
        return desk._answer(step)

    for _ in range(1000):
        desk.clock.advance(0.001)
        play(desk.routes.to_read("t", desk.clock.monotonic() + 3), answer)
    assert len(heard) == pytest.approx(1.0 / LISTEN_SECONDS, abs=1)
    assert len(desk.asked) == 1


def news(topics: Iterable[str]) -> Command:
    body = TopicList(topic_list=list(topics)).encode()
    return request(RequestCode.KOUROU_ROUTE_CHANGED, body=body, flag=FLAG_ONE_WAY)


def test_who_wants_to_act_is_told_when(desk: Desk) -> None:
    told: list[float] = []
    (handler,) = route_news(desk.routes, told.append).values()
    answer = Answer(None, 0, 1)  # type: ignore[arg-type]
    desk.want()
    desk.clock.advance(5.0)
    handler(news(["u"]), answer)
    assert told == []
    handler(news(["t"]), answer)
    assert len(told) == 1
    with pytest.raises(ProtocolError):
        handler(request(RequestCode.KOUROU_ROUTE_CHANGED, body=b"[1"), answer)


def test_a_name_server_that_goes_on_and_on_does_not_make_a_consumer_spin() -> None:
    world = ConsumingWorld()
    world.make_topic("orders", queues=4)
    member = world.consumer().on("orders").start()
    world.pass_time(130)
    engine = member.engine
    (handler,) = route_news(engine.routes, engine._routes_changed).values()
    looks = 0
    look_at = engine._rebalance._look_at

    async def counted(topic: str) -> float:
        nonlocal looks
        looks += topic == "orders"
        return await look_at(topic)

    engine._rebalance._look_at = counted  # type: ignore[method-assign]

    async def say() -> None:
        handler(news(["orders", "%RETRY%billing", "nonsense"]), Answer(None, 0, 1))  # type: ignore[arg-type]

    for _ in range(200):
        world.run(say())
        world.pass_time(0.05)
    assert 5 <= looks <= 25, "in ten seconds, of two topics"
    world.send("orders", b"one")
    assert [each.body for each in member.received] == [b"one"]
    world.close()
