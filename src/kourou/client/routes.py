"""Topic -> queues: asked of the name servers, kept for 30 s, asked again at once when it is in doubt.

    NameServers    whom to ask: one of several, for as long as it answers
    Route          the answer: the queues of a topic and the addresses of their brokers
    Routes         the answers we have

A route that cannot be asked for again stays in use: brokers go on working without any name server.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from operator import attrgetter, or_

from kourou.client.refusals import accepted, explained
from kourou.client.steps import Call, Operation
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock
from kourou.errors import Denied, NotFound, Unreachable
from kourou.protocol.bodies import PERM_READ, PERM_WRITE, MessageQueue, TopicRouteData
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import GetRoute
from kourou.protocol.names import DEFAULT_TOPIC

REFRESH_SECONDS = 30.0
LOOKUP_SECONDS = 3.0
KNOWN_LOOKUP_SECONDS = 1.0
"""For a route that is only to be refreshed: whoever has one does not wait longer for a newer one."""

AGAIN_SECONDS = 3.0
"""Until somebody asks again for a route that nobody could tell."""

DEFAULT_TOPIC_QUEUES_MAX = 4
MASTER = 0


class NameServers:
    """Several name servers, all equally good. One is kept for as long as it answers."""

    def __init__(self, addresses: Sequence[str], chance: Chance, clock: Clock) -> None:
        self.addresses = tuple(chance.sample(addresses, len(addresses)))
        self._clock = clock
        self._current = 0

    def ask(
        self, command: Command, timeout: float = LOOKUP_SECONDS, doubtful: Collection[int] = ()
    ) -> Operation[Command]:
        """The reply of the first one that gives any; raises Unreachable when none does.

        A reply with one of the `doubtful` codes is believed only after the others were asked as well:
        name servers do not talk to each other, and one that was just started knows less than the rest.
        `timeout` is for all of them together; each gets an even share of what is left of it.
        """
        deadline = self._clock.monotonic() + timeout
        doubted: Command | None = None
        failures: list[str] = []
        count = len(self.addresses)
        for turn in range(count):
            index = (self._current + turn) % count
            address = self.addresses[index]
            share = (deadline - self._clock.monotonic()) / (count - turn)
            try:
                reply: Command = yield Call(address, command, max(share, 0.001))
            except Unreachable as error:
                failures.append(f"{address}: {error}")
                continue
            if reply.code not in doubtful:
                self._current = index
                return reply
            doubted = reply
        if doubted is not None:
            return doubted
        raise Unreachable(f"no name server answers ({'; '.join(failures)}); is one running there?")


class Route:
    """The queues of one topic, and where their brokers are."""

    __slots__ = ("_addresses", "_permission", "read_queues", "topic", "write_queues")

    def __init__(self, topic: str, route: TopicRouteData, queues_max: int | None = None) -> None:
        self.topic = topic
        self._addresses = {broker.broker_name: broker.broker_addrs for broker in route.broker_datas}
        permissions = [each.perm for each in route.queue_datas]
        self._permission = reduce(or_, permissions) if permissions else PERM_READ | PERM_WRITE
        self.write_queues = self._queues(route, PERM_WRITE, queues_max)
        self.read_queues = self._queues(route, PERM_READ, queues_max)

    def master(self, broker_name: str) -> str:
        """Where to write to; raises NotFound when that broker is not (or no longer) part of the route."""
        address = self._addresses.get(broker_name, {}).get(MASTER)
        if address is None:
            raise NotFound(
                ResponseCode.BROKER_NOT_EXIST,
                f"broker '{broker_name}' has no master for topic '{self.topic}'; its masters are: "
                + (", ".join(name for name, ids in self._addresses.items() if MASTER in ids) or "none"),
            )
        return address

    def reader(self, broker_name: str, broker_id: int = MASTER) -> str:
        """Where to read from: the one with this id if it is there, else the master, else any replica."""
        by_id = self._addresses.get(broker_name, {})
        address = by_id.get(broker_id) or by_id.get(MASTER)
        return address if address is not None else by_id[min(by_id)] if by_id else self.master(broker_name)

    def check_readable(self) -> None:
        """Raises Denied when no broker lets anybody read the topic."""
        if not self._permission & PERM_READ:
            raise self._denied("read")

    def check_writable(self) -> None:
        """Raises Denied when no broker lets anybody write to the topic, NotFound when none could take it."""
        if not self._permission & PERM_WRITE:
            raise self._denied("written to")
        if not self.write_queues:
            raise NotFound(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic '{self.topic}' has no queue that can be written to: its brokers have no master; "
                f"see: kourou topic route {self.topic}",
            )

    def _denied(self, what: str) -> Denied:
        return Denied(
            ResponseCode.NO_PERMISSION,
            f"topic '{self.topic}' may not be {what}: its permission is {self._permission}; "
            f"change it with: kourou topic create {self.topic} --perm 6",
        )

    def _queues(
        self, route: TopicRouteData, permission: int, queues_max: int | None
    ) -> tuple[MessageQueue, ...]:
        queues = []
        for each in sorted(route.queue_datas, key=attrgetter("broker_name")):
            addresses = self._addresses.get(each.broker_name, {})
            if not each.perm & permission or not addresses:
                continue
            if permission == PERM_WRITE and MASTER not in addresses:
                continue
            count = each.write_queue_nums if permission == PERM_WRITE else each.read_queue_nums
            if queues_max is not None:
                count = min(count, queues_max)
            queues += [
                MessageQueue(topic=self.topic, broker_name=each.broker_name, queue_id=queue_id)
                for queue_id in range(count)
            ]
        return tuple(queues)


class _Known:
    __slots__ = ("fresh_until", "route")

    def __init__(self, route: Route, fresh_until: float) -> None:
        self.route = route
        self.fresh_until = fresh_until


class Routes:
    """The routes of the topics in use."""

    def __init__(self, name_servers: NameServers, clock: Clock) -> None:
        self.name_servers = name_servers
        self._clock = clock
        self._known: dict[str, _Known] = {}

    def to_publish(self, topic: str, deadline: float) -> Operation[Route]:
        """Queues to write to. For a topic that is not there yet, the default topic's: sending creates it.

        Raises NotFound when there are none, Denied when nobody may write to those there are.
        """
        try:
            route = yield from self._current(topic, deadline)
        except NotFound as unknown:
            try:
                default = yield from self.ask(DEFAULT_TOPIC, self._time_left(deadline))
            except NotFound:
                raise unknown from None
            route = Route(topic, default, DEFAULT_TOPIC_QUEUES_MAX)
            self._keep(route)
        route.check_writable()
        return route

    def to_read(self, topic: str, deadline: float) -> Operation[Route]:
        """Queues to read from; raises NotFound when nobody knows the topic."""
        return (yield from self._current(topic, deadline))

    def ask(self, topic: str, timeout: float) -> Operation[TopicRouteData]:
        """What the name servers say now; raises NotFound when none of them knows the topic."""
        command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute(topic, accept_standard_json_only=True))
        reply = yield from self.name_servers.ask(command, timeout, doubtful=(ResponseCode.TOPIC_NOT_EXIST,))
        try:
            accepted(reply, f"route of topic '{topic}'")
        except NotFound as error:
            asked = ", ".join(self.name_servers.addresses)
            raise explained(
                error, f"no topic '{topic}' at {asked}; create it with: kourou topic create {topic}"
            ) from None
        return TopicRouteData.decode(reply.body)

    def doubt(self, topic: str) -> None:
        """Something at one of its brokers failed: the next who wants this route shall ask again."""
        known = self._known.get(topic)
        if known is not None:
            known.fresh_until = self._clock.monotonic()

    def _current(self, topic: str, deadline: float) -> Operation[Route]:
        known = self._known.get(topic)
        now = self._clock.monotonic()
        if known is None:
            body = yield from self.ask(topic, self._time_left(deadline))
        elif now < known.fresh_until:
            return known.route
        else:
            # Whoever comes by while we ask goes on with the old one, and so do we if nobody can tell.
            known.fresh_until = now + AGAIN_SECONDS
            try:
                body = yield from self.ask(topic, min(self._time_left(deadline), KNOWN_LOOKUP_SECONDS))
            except (NotFound, Unreachable):
                return known.route
        return self._keep(Route(topic, body))

    def _keep(self, route: Route) -> Route:
        self._known[route.topic] = _Known(route, self._clock.monotonic() + REFRESH_SECONDS)
        return route

    def _time_left(self, deadline: float) -> float:
        return max(deadline - self._clock.monotonic(), 0.001)
