"""What stories of a master that changes share: brokers that elect theirs, at rest and looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from kourou.errors import MQError
from kourou.protocol.bodies import TopicRouteData
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import request
from kourou.protocol.headers import GetRoute
from kourou.remoting.client import Client
from tests.sim.elected_brokers import World
from tests.sim.machines import BROKER_PORT, BrokerMachine, Machine, SeededChance
from tests.sim.simulation import _nothing_from_outside
from tests.sim.virtual_time import VirtualLoop

LEADS_SECONDS = 20.0
POLL_SECONDS = 0.05


def played(story: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """The story, in a time of its own."""
    loop = VirtualLoop()
    with _nothing_from_outside():
        try:
            return loop.run_until_complete(story())
        finally:
            loop.close()


def now() -> float:
    return asyncio.get_running_loop().time()


async def until(is_so: Callable[[], object], seconds: float, what: str) -> float:
    """Wait for it; how long it took."""
    began = now()
    while not is_so():
        assert now() - began <= seconds, f"{what} after {seconds:g} s"
        await asyncio.sleep(0.01)
    return now() - began


async def begun(seed: int) -> World:
    """A world whose brokers are up."""
    world = World(seed)
    world.name_server.start()
    for machine in world.brokers:
        await machine.start()
    return world


async def settled(world: World) -> BrokerMachine:
    """The master, when all are in sync."""
    await until(world._is_settled, LEADS_SECONDS, "not all are in sync")
    master = world.master()
    assert master is not None
    return master


def address(machine: BrokerMachine) -> str:
    return f"{machine.host}:{BROKER_PORT}"


class RouteWatcher:
    """A client that asks a name server for a route, again and again."""

    def __init__(self, world: World, topic: str) -> None:
        self._name_server = world.name_server.address
        self._topic = topic
        self.ids: dict[str, int] = {}
        """Address to brokerId, as last seen."""
        machine = Machine(world.network, "127.0.3.8", SeededChance(8))
        machine.boot()
        self._client = Client(network=machine.network, clock=machine.clock, chance=machine.chance)
        machine.spawn(self._watch())

    async def _watch(self) -> None:
        while True:
            try:
                header = GetRoute(topic=self._topic, accept_standard_json_only=True)
                asked = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
                reply = await self._client.call(self._name_server, asked, 1.0)
                if reply.code == ResponseCode.SUCCESS:
                    route = TopicRouteData.decode(reply.body)
                    self.ids = {
                        where: number
                        for broker in route.broker_datas
                        for number, where in broker.broker_addrs.items()
                    }
            except MQError:
                pass  # the next one may be answered
            await asyncio.sleep(POLL_SECONDS)
