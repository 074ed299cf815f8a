from __future__ import annotations

import pytest

from kourou.client.name_servers import NameServers
from kourou.client.steps import Call, Fetch
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.errors import Unreachable
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command, request
from tests.unit.client.conversation import play, reply

URL = "http://domain:8080/rocketmq/nsaddr"


class AddressServer:
    """Tells what it is told to tell; None is one that is down."""

    def __init__(self, page: str | None) -> None:
        self.page = page
        self.fetches = 0
        self.asked: list[str] = []

    def __call__(self, step: Call | Fetch) -> str | Command:
        if isinstance(step, Fetch):
            assert step.url == URL
            self.fetches += 1
            if self.page is None:
                raise Unreachable("connection refused")
            return self.page
        self.asked.append(step.address)
        return reply()


def ask(servers: NameServers, world: AddressServer) -> str:
    play(servers.ask(request(RequestCode.GET_BROKER_CLUSTER_INFO)), world)
    return world.asked[-1]


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def servers(clock: SimulatedClock) -> NameServers:
    return NameServers((), Chance(1), clock, address_server=URL)


def test_the_list_is_fetched_with_the_first_request_after_10_s_and_then_every_2_minutes(
    servers: NameServers, clock: SimulatedClock
) -> None:
    world = AddressServer("a:1")
    fetches = []
    for _ in range(300):
        ask(servers, world)
        fetches.append(world.fetches)
        clock.advance(1)
    assert [second for second in range(300) if fetches[second] != (fetches[second - 1] if second else 0)] == [
        0,
        10,
        130,
        250,
    ]


def test_a_new_list_replaces_the_old_one(servers: NameServers, clock: SimulatedClock) -> None:
    world = AddressServer("a:1")
    assert ask(servers, world) == "a:1"
    world.page = "b:1"
    clock.advance(10)
    assert ask(servers, world) == "b:1"


@pytest.mark.parametrize("page", [None, "", "no address", "<html>"])
def test_the_last_good_list_stays(servers: NameServers, clock: SimulatedClock, page: str | None) -> None:
    world = AddressServer("a:1")
    ask(servers, world)
    world.page = page
    clock.advance(10)
    assert ask(servers, world) == "a:1"
    assert world.fetches == 2


@pytest.mark.parametrize("page", [None, "", "no address"])
def test_without_any_list_the_error_names_the_address_server(
    servers: NameServers, clock: SimulatedClock, page: str | None
) -> None:
    world = AddressServer(page)
    with pytest.raises(Unreachable, match=rf"address server at {URL} did not tell"):
        ask(servers, world)
    world.page = "a:1"
    clock.advance(1)
    assert ask(servers, world) == "a:1"
