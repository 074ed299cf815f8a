"""Topic -> queues: asked of the name servers, kept for 30 s, asked again at once when it is in doubt.

    NameServers    whom to ask (`name_servers.py`)
    Route          the answer: the queues of a topic and the addresses of their brokers
    Routes         the answers we have

A route that cannot be asked for again stays in use: brokers go on working without any name server. Whoever
wants a route that is just being asked for waits for that answer, so that there is one question at a time for
each topic.

Name servers of ours also say when a route has changed (`route_news.py`). It is then asked for soon; once a
second at most, however often they say so.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable
from functools import reduce
from operator import attrgetter, or_
from typing import TYPE_CHECKING, TypeAlias

from kourou.client.address_map import AddressMap
from kourou.client.name_servers import LOOKUP_SECONDS, NameServers
from kourou.client.refusals import accepted, explained
from kourou.client.steps import Arrival, Call, Hear, Operation, Pause, Wait
from kourou.doors.clock import Clock
from kourou.errors import (
    Denied,
    MQError,
    NoMaster,
    NotFound,
    ProtocolError,
    Refused,
    TimedOut,
    Unreachable,
)
from kourou.protocol.bodies import PERM_READ, PERM_WRITE, QUEUES_MAX, MessageQueue, TopicRouteData
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import GetRoute, TopicNamed
from kourou.protocol.names import DEFAULT_TOPIC
from kourou.remoting.address import format_address, parse_address
from kourou.remoting.complaints import Complaints

if TYPE_CHECKING:
    from kourou.client.route_cache import RouteCache

__all__ = ["LOOKUP_SECONDS", "MASTER", "REFRESH_SECONDS", "NameServers", "Route", "Routes"]

REFRESH_SECONDS = 30.0
KNOWN_LOOKUP_SECONDS = 1.0
"""For a route that is only to be refreshed: whoever has one does not wait longer for a newer one."""

LEADERLESS_SECONDS = 0.1
"""A broker whose replicas are there and whose master is not gets a new one soon: so soon it is asked for."""

AGAIN_SECONDS = 3.0
"""Until somebody asks again for a route that nobody could tell."""

ELSEWHERE_SECONDS = 1.0
"""To find a broker at another address than it tells, even when nothing is left of a send's own time."""
ELSEWHERE_AGAIN_SECONDS = 30.0
"""Until it is looked for again where it was not."""

NEWS_AGAIN_SECONDS = 1.0
"""Between two questions for a route that only a name server's word is the reason for."""

NEWS_SPREAD_SECONDS = 0.2
"""All clients of a topic hear of its change at once; over so long a time they ask."""

LISTEN_SECONDS = 0.1
"""While it is busy, who does not read all the time looks so often whether a name server said something."""

DEFAULT_TOPIC_QUEUES_MAX = 4
QUEUE_COUNT_DIGITS_MAX = 5
MASTER = 0

_log = logging.getLogger("kourou.client")


class Route:
    """The queues of one topic, and where their brokers are."""

    __slots__ = ("_addresses", "_permission", "ordered_queues", "read_queues", "topic", "write_queues")

    def __init__(
        self,
        topic: str,
        route: TopicRouteData,
        queues_max: int | None = None,
        before: Route | None = None,
        real_address: Callable[[str], str] = str,
    ) -> None:
        self.topic = topic
        self._addresses = {
            broker.broker_name: {number: real_address(told) for number, told in broker.broker_addrs.items()}
            for broker in route.broker_datas
        }
        permissions = [each.perm for each in route.queue_datas]
        self._permission = reduce(or_, permissions) if permissions else PERM_READ | PERM_WRITE
        self.write_queues = self._configured(route) or self._queues(route, PERM_WRITE, queues_max)
        self.read_queues = self._queues(route, PERM_READ, queues_max)
        self.ordered_queues = self._with_absent(before)
        """To write to, also those of brokers that are away: what a key is hashed over to keep its queue."""

    def masters(self) -> list[str]:
        """The addresses of all masters."""
        return [by_id[MASTER] for by_id in self._addresses.values() if MASTER in by_id]

    def broker_names(self) -> list[str]:
        """All brokers that have the topic and are there."""
        return sorted(name for name, by_id in self._addresses.items() if by_id)

    def addresses(self) -> set[str]:
        """Every broker that has something of the topic, replicas included."""
        return {address for by_id in self._addresses.values() for address in by_id.values()}

    def name_at(self, address: str) -> str | None:
        """Which of its brokers has this address."""
        return next((name for name, by_id in self._addresses.items() if address in by_id.values()), None)

    def master(self, broker_name: str) -> str:
        """Where to write to; raises NoMaster when that broker is not (or no longer) part of the route."""
        address = self._addresses.get(broker_name, {}).get(MASTER)
        if address is None:
            raise NoMaster(
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

    def keepers(self, broker_name: str) -> list[str]:
        """Where a group's place may be stored: at the master, or at a replica while that is away, which hands
        it on; raises NoMaster when the broker is not part of the route."""
        by_id = self._addresses.get(broker_name, {})
        return [by_id[broker_id] for broker_id in sorted(by_id)] or [self.master(broker_name)]

    @property
    def is_leaderless(self) -> bool:
        """Whether a broker of it has replicas, and no master at the moment."""
        return any(by_id and MASTER not in by_id for by_id in self._addresses.values())

    def has_replicas(self, broker_name: str) -> bool:
        """Whether another may become its master."""
        return len(self._addresses.get(broker_name, {})) > 1

    def has(self, broker_name: str) -> bool:
        """Whether that broker's master has something of the topic."""
        return MASTER in self._addresses.get(broker_name, {})

    def check_readable(self) -> None:
        """Raises Denied when no broker lets anybody read the topic."""
        if not self._permission & PERM_READ:
            raise self._denied("read")

    def check_writable(self) -> None:
        """Raises Denied when no broker lets anybody write to the topic, NoMaster when none could take it."""
        if not self._permission & PERM_WRITE:
            raise self._denied("written to")
        if not self.write_queues:
            raise NoMaster(
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

    def _configured(self, route: TopicRouteData) -> tuple[MessageQueue, ...]:
        """The queues an administrator laid down for an ordered topic: `broker-a:4;broker-b:4`."""
        configured = route.order_topic_conf
        if not configured:
            return ()
        queues = []
        for part in configured.split(";"):
            name, _, count = part.strip().partition(":")
            if count.isascii() and count.isdecimal() and len(count) <= QUEUE_COUNT_DIGITS_MAX:
                queues += [
                    MessageQueue(topic=self.topic, broker_name=name, queue_id=number)
                    for number in range(int(count))
                ]
        return tuple(queues)

    def _with_absent(self, before: Route | None) -> tuple[MessageQueue, ...]:
        present = {queue.broker_name for queue in self.write_queues}
        absent = [
            queue for queue in (before.ordered_queues if before else ()) if queue.broker_name not in present
        ]
        return tuple(sorted([*self.write_queues, *absent])) if absent else self.write_queues

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
            # More than a topic can have would be nonsense, and enough of it takes all the memory there is.
            count = min(count, QUEUES_MAX if queues_max is None else queues_max)
            queues += [
                MessageQueue(topic=self.topic, broker_name=each.broker_name, queue_id=queue_id)
                for queue_id in range(count)
            ]
        return tuple(queues)


class _Known:
    __slots__ = ("asked_at", "data", "fresh_until", "news_due", "queues_max", "route")

    def __init__(
        self,
        route: Route,
        data: TopicRouteData,
        queues_max: int | None,
        fresh_until: float,
        asked_at: float,
    ) -> None:
        self.route = route
        self.data = data
        self.queues_max = queues_max
        self.fresh_until = fresh_until
        self.asked_at = asked_at
        self.news_due = math.inf
        """When to ask because we were told that it has changed; infinite when we were not."""

    def ask_by(self, moment: float) -> None:
        self.news_due = moment
        self.fresh_until = min(self.fresh_until, moment)


_Question: TypeAlias = Callable[[str, float], Operation[Route]]
"""(topic, deadline) -> what there is to ask."""


class Routes:
    """The routes of the topics in use. Any number of threads may ask at once."""

    def __init__(
        self,
        name_servers: NameServers,
        clock: Clock,
        *,
        address_map: AddressMap | None = None,
        cache: RouteCache | None = None,
    ) -> None:
        self.name_servers = name_servers
        self._clock = clock
        self._address_map = address_map or AddressMap()
        self._cache = cache
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()
        self._asked: dict[tuple[_Question, str], list[Arrival]] = {}
        self._not_elsewhere: dict[str, float] = {}
        self.hears_news = False
        """Whether what name servers say by themselves is read, and handed to `changed`."""
        self.reads_when_asked = False
        """Whether it is read only when an operation says so: by a client that has no thread of its own."""
        self._listen_due = 0.0
        self._news_at = -math.inf
        self._complaints = Complaints(_log, clock)

    def to_publish(self, topic: str, deadline: float) -> Operation[Route]:
        """Queues to write to. For a topic that is not there yet, the default topic's: sending creates it.

        Raises NotFound when there are none, Denied when nobody may write to those there are.
        """
        try:
            route = yield from self._current(topic, deadline)
        except NotFound as unknown:
            try:
                route = yield from self._by_one(self._default_route, topic, deadline)
            except NotFound:
                raise unknown from None
        while (
            route.is_leaderless and not route.write_queues and self._time_left(deadline) > LEADERLESS_SECONDS
        ):
            yield Pause(LEADERLESS_SECONDS)
            route = yield from self._current(topic, deadline)
        route.check_writable()
        return route

    def to_read(self, topic: str, deadline: float) -> Operation[Route]:
        """Queues to read from; raises NotFound when nobody knows the topic."""
        return (yield from self._current(topic, deadline))

    def ask(self, topic: str, timeout: float) -> Operation[TopicRouteData]:
        """What the name servers say now; raises NotFound when none of them knows the topic."""
        watch = True if self.hears_news else None
        header = GetRoute(topic, accept_standard_json_only=True, kourou_watch=watch)
        command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        reply = yield from self.name_servers.ask(command, timeout, doubtful=(ResponseCode.TOPIC_NOT_EXIST,))
        try:
            return TopicRouteData.decode(accepted(reply, f"route of topic '{topic}'").body)
        except NotFound as error:
            asked = ", ".join(self.name_servers.addresses)
            raise explained(
                error, f"no topic '{topic}' at {asked}; create it with: kourou topic create {topic}"
            ) from None
        except ProtocolError:
            self.name_servers.turn_away()
            raise
        except Refused as error:
            self.name_servers.turn_away()
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            asked = ", ".join(self.name_servers.addresses)
            raise explained(
                error, f"{asked} is no name server, a broker perhaps: name servers mostly have port 9876"
            ) from None

    def doubt(self, topic: str) -> None:
        """Something at one of its brokers failed: the next who wants this route shall ask again."""
        known = self._known.get(topic)
        if known is not None:
            known.fresh_until = self._clock.monotonic()

    def changed(self, topics: Iterable[str]) -> float | None:
        """A name server says that these routes have changed: the next who wants one a moment from now asks.

        Returns the seconds until all of them may be asked for; None when that is no news to us.
        """
        now = self._news_at = self._clock.monotonic()
        soon = now + self.name_servers.chance.uniform(0.0, NEWS_SPREAD_SECONDS)
        moments = []
        for topic in topics:
            known = self._known.get(topic)
            if known is not None and known.news_due == math.inf:
                known.ask_by(max(soon, known.asked_at + NEWS_AGAIN_SECONDS))
                moments.append(known.news_due)
        return max(moments) - now if moments else None

    def news_due(self, topic: str) -> float:
        """The seconds until a route is to be asked for because it has changed; infinite when it has not."""
        known = self._known.get(topic)
        return math.inf if known is None else max(known.news_due - self._clock.monotonic(), 0.0)

    def topics(self) -> list[str]:
        """Those whose route is known."""
        return list(self._known)

    def masters(self) -> list[str]:
        """The addresses of all masters of the routes that are known."""
        found = (address for known in list(self._known.values()) for address in known.route.masters())
        return list(dict.fromkeys(found))

    def known(self, topic: str) -> Route:
        """The route of a topic whose route is known; KeyError for any other."""
        return self._known[topic].route

    def a_queue_of_each_broker(self) -> list[MessageQueue]:
        """One queue to write to, of whatever topic, of each broker in the known routes."""
        queues = (queue for known in list(self._known.values()) for queue in known.route.write_queues)
        return list({queue.broker_name: queue for queue in queues}.values())

    def elsewhere(self, broker_name: str, address: str) -> Operation[str | None]:
        """Where else a broker may be whose own address cannot be reached: at the host of the name server.

        So it is when both run in containers, or behind one NAT, that pass their ports on. Only a broker that
        has this very name is taken: each has a topic of its own name. None when there is no such thing.
        """
        name_server, now = self.name_servers.current, self._clock.monotonic()
        if name_server is None or self._not_elsewhere.get(address, now) > now:
            return None
        candidate = format_address(parse_address(name_server)[0], parse_address(address)[1])
        # Until we know better: nobody else looks meanwhile, nor too often.
        self._not_elsewhere[address] = now + ELSEWHERE_AGAIN_SECONDS
        if candidate in (address, name_server) or self._is_of_another(candidate):
            return None
        command = request(RequestCode.GET_TOPIC_STATS_INFO, TopicNamed(broker_name))
        try:
            reply: Command = yield Call(candidate, command, ELSEWHERE_SECONDS)
        except Unreachable:
            return None
        if reply.code != ResponseCode.SUCCESS:
            return None
        _log.warning("%s cannot be reached at %s, and is used at %s", broker_name, address, candidate)
        self._address_map.add(address, candidate)
        self._not_elsewhere.pop(address, None)
        for topic, known in list(self._known.items()):
            known.route = Route(topic, known.data, known.queues_max, known.route, self._address_map)
        return candidate

    def elsewhere_after(self, error: MQError, broker_name: str, address: str) -> Operation[str | None]:
        """The same after a failure, if that was one to connect: of any other the request may have arrived."""
        return (yield from self.elsewhere(broker_name, address)) if type(error) is Unreachable else None

    def _is_of_another(self, address: str) -> bool:
        """Whether a broker is there by its own word: a replica of the lost one, say, which has its name."""
        return any(known.route.name_at(address) is not None for known in list(self._known.values()))

    def _current(self, topic: str, deadline: float) -> Operation[Route]:
        known = self._known.get(topic)
        now = self._clock.monotonic()
        if known is None:
            return (yield from self._by_one(self._asked_or_cached, topic, deadline))
        if self.reads_when_asked and now >= self._listen_due:
            self._listen_due = now + LISTEN_SECONDS
            if self.name_servers.current is not None:
                yield Hear(self.name_servers.current)
        if now < known.fresh_until:
            return known.route
        # Whoever comes by while we ask goes on with the old one, and so do we if nobody can tell.
        known.fresh_until = now + AGAIN_SECONDS
        known.asked_at, known.news_due = now, math.inf
        try:
            data = yield from self.ask(topic, min(self._time_left(deadline), KNOWN_LOOKUP_SECONDS))
        except (NotFound, Unreachable):
            return known.route
        except MQError as error:  # nonsense, or a name server that is busy: the brokers know nothing of it
            self._complaints.warn(topic, f"the route of '{topic}' stays as it was: {error}")
            return known.route
        return self._keep(topic, data, now)

    def _by_one(self, question: _Question, topic: str, deadline: float) -> Operation[Route]:
        """The answer to a question about a topic we know nothing of: of all who want it, one asks."""
        arrival = Arrival()
        with self._lock:
            waiting = self._asked.get((question, topic))
            if waiting is None:
                self._asked[question, topic] = []
            else:
                waiting.append(arrival)
        if waiting is not None:
            answer = yield from _other_s_answer(arrival, topic, self._time_left(deadline))
            # Who asked was cancelled, which is nobody else's affair: one of us asks now.
            return (
                answer if isinstance(answer, Route) else (yield from self._by_one(question, topic, deadline))
            )
        outcome: Route | MQError | _GivenUp = _GivenUp()
        try:
            outcome = yield from question(topic, deadline)
            return outcome
        except MQError as error:
            outcome = error
            raise
        finally:
            with self._lock:
                waiting = self._asked.pop((question, topic))
            for each in waiting:
                each.put(outcome)

    def _asked_or_cached(self, topic: str, deadline: float) -> Operation[Route]:
        asked_at = self._clock.monotonic()
        try:
            data = yield from self.ask(topic, self._time_left(deadline))
        except Unreachable:
            cached = self._cache.get(topic) if self._cache is not None else None
            if cached is None:
                raise
            _log.warning("no name server answers: the route of '%s' is the one kept on disk", topic)
            route = self._keep(topic, cached, asked_at)
            self._known[topic].fresh_until = self._clock.monotonic() + AGAIN_SECONDS
            return route
        return self._keep(topic, data, asked_at)

    def _default_route(self, topic: str, deadline: float) -> Operation[Route]:
        """A guess: the first send makes the topic, or it is there and its broker had not said so yet."""
        asked_at = self._clock.monotonic()
        data = yield from self.ask(DEFAULT_TOPIC, self._time_left(deadline))
        route = self._keep(topic, data, asked_at, DEFAULT_TOPIC_QUEUES_MAX)
        self._known[topic].fresh_until = self._clock.monotonic() + AGAIN_SECONDS
        return route

    def _keep(
        self, topic: str, data: TopicRouteData, asked_at: float, queues_max: int | None = None
    ) -> Route:
        before = self._known.get(topic)
        route = Route(topic, data, queues_max, before.route if before else None, self._address_map)
        seconds = LEADERLESS_SECONDS if route.is_leaderless else REFRESH_SECONDS
        known = _Known(route, data, queues_max, self._clock.monotonic() + seconds, asked_at)
        if self._news_at >= asked_at:  # of this topic, perhaps, and after the answer was given
            known.ask_by(asked_at + NEWS_AGAIN_SECONDS)
        self._known[topic] = known
        if self._cache is not None and queues_max is None:
            self._cache.keep(topic, data)
        return route

    def _time_left(self, deadline: float) -> float:
        return max(deadline - self._clock.monotonic(), 0.001)


class _GivenUp:
    """What comes of a question nobody waits for any more."""


def _other_s_answer(arrival: Arrival, topic: str, timeout: float) -> Operation[Route | _GivenUp]:
    outcome: Route | MQError | _GivenUp | None = yield Wait(arrival, timeout, from_broker=False)
    if outcome is None:
        raise TimedOut(f"no name server told the route of '{topic}' within {timeout:g} s")
    if isinstance(outcome, MQError):
        raise outcome
    return outcome
