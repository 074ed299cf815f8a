"""The brokers of the topics in use, and the way to them, for a client that runs on an event loop."""

from __future__ import annotations

from kourou.client.drive import AsyncDriver
from kourou.client.routes import LOOKUP_SECONDS, MASTER, Route, Routes
from kourou.client.steps import Operation, Result
from kourou.doors.clock import Clock
from kourou.errors import MQError, NotFound
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.pending import Settle
from kourou.remoting.client import Client


class Brokers:
    """Whom to ask about a queue. A route that is gone for now is remembered, so that its brokers are."""

    def __init__(self, client: Client, routes: Routes, clock: Clock) -> None:
        self.client = client
        self.routes = routes
        self._driver = AsyncDriver(client)
        self._clock = clock
        self._in_use: dict[str, Route] = {}

    async def run(self, operation: Operation[Result]) -> Result:
        return await self._driver.run(operation)

    def call_soon(self, address: str, command: Command, timeout: float, then: Settle) -> None:
        self.client.call_soon(address, command, timeout, then)

    async def look_up(self, topic: str) -> Route:
        """The route as it is known now; raises NotFound, Unreachable."""
        deadline = self._clock.monotonic() + LOOKUP_SECONDS
        route = self._in_use[topic] = await self.run(self.routes.to_read(topic, deadline))
        return route

    def known(self, topic: str) -> Route:
        """The route that was looked up last; KeyError when none was."""
        return self._in_use[topic]

    async def find_elsewhere(self, error: MQError, address: str) -> str | None:
        """Where else a broker is to whose address no connection could be made; None when nowhere."""
        names = (route.name_at(address) for route in self._in_use.values())
        name = next(filter(None, names), None)
        if name is None:
            return None
        found = await self.run(self.routes.elsewhere_after(error, name, address))
        if found is not None:
            self._in_use = {topic: self.routes.known(topic) for topic in self._in_use}
        return found

    def addresses(self) -> list[str]:
        """Every broker of every topic in use, replicas included."""
        return sorted({address for route in self._in_use.values() for address in route.addresses()})

    def master(self, queue: MessageQueue) -> str:
        """Where the places and locks of this queue are kept; raises NotFound when it is nowhere."""
        return self._route(queue).master(queue.broker_name)

    def keepers(self, queue: MessageQueue) -> list[str]:
        """Where its place may be stored, the best first; raises NotFound when it is nowhere."""
        return self._route(queue).keepers(queue.broker_name)

    def reader(self, queue: MessageQueue, broker_id: int = MASTER) -> str:
        """Where to read it; raises NotFound when it is nowhere."""
        return self._route(queue).reader(queue.broker_name, broker_id)

    def master_named(self, broker_name: str) -> str:
        """The broker a message came from, to hand it back; raises NotFound when it is nowhere."""
        for route in self._in_use.values():
            if route.has(broker_name):
                return route.master(broker_name)
        raise NotFound(ResponseCode.BROKER_NOT_EXIST, f"broker '{broker_name}' is in no route right now")

    def _route(self, queue: MessageQueue) -> Route:
        route = self._in_use.get(queue.topic)
        if route is None:
            raise NotFound(ResponseCode.TOPIC_NOT_EXIST, f"no route for topic '{queue.topic}'")
        return route
