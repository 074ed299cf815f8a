"""Who wants to hear when the route of a topic changes: clients of ours, which say so when they ask for it.

    GET_ROUTEINFO_BY_TOPIC with kourouWatch=true  ->  the connection watches the topic
    the route changes                             ->  KOUROU_ROUTE_CHANGED with the topic's name, once

A watch is for one change: whoever hears of it asks for the route again, and thereby watches it again. So
nobody is told more often than he asks, and who does not listen any more is soon left alone. Changes of a
tenth of a second are told together, and to some connections at a time, so that a broker with thousands of
topics neither keeps the name server busy nor brings all clients here in one instant.

A client that is not told, because there are too many or it does not read, asks every 30 s as all clients do.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from kourou.doors.clock import Clock, Timer
from kourou.protocol.bodies import TopicList
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import FLAG_ONE_WAY, request
from kourou.protocol.names import topic_fault
from kourou.remoting.connection import Connection

WATCHES_MAX: Final = 100_000
TOPICS_OF_CONNECTION_MAX: Final = 1_000

GATHER_SECONDS: Final = 0.1
TURN_SECONDS: Final = 0.01
CONNECTIONS_OF_TURN: Final = 200
"""A few milliseconds of work, and 20,000 clients a second that will ask."""
WATCHES_OF_TURN: Final = 5_000


class RouteWatches:
    """Topics and the connections that watch them. Not thread-safe: one event loop owns them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Dictionaries for their order: what is told first must not hang on where things lie in memory.
        self._by_topic: dict[str, dict[Connection, None]] = {}
        self._by_connection: dict[Connection, set[str]] = {}
        self._changed: dict[str, None] = {}
        self._news: dict[Connection, dict[str, None]] = {}
        self._timer: Timer | None = None
        self.count = 0
        self.told = 0  # since the start

    def add(self, topic: str, connection: Connection) -> None:
        """`connection` shall hear of the next change. Quietly not done where the limits are reached."""
        watchers = self._by_topic.get(topic)
        if watchers is not None and connection in watchers:
            return
        if self.count >= WATCHES_MAX or not connection.is_open or topic_fault(topic) is not None:
            return
        topics = self._by_connection.get(connection)
        if topics is None:
            topics = self._by_connection[connection] = set()
            connection.on_close(self._forget)
        elif len(topics) >= TOPICS_OF_CONNECTION_MAX:
            return
        topics.add(topic)
        self._by_topic.setdefault(topic, {})[connection] = None
        self.count += 1

    def changed(self, topic: str) -> None:
        """The route of `topic` is not what it was: tell who watches it, soon."""
        if topic in self._by_topic:
            self._changed[topic] = None
            if self._timer is None:
                self._timer = self._clock.later(GATHER_SECONDS, self._take_turn)

    def all_changed(self) -> None:
        """Any route may be another."""
        for topic in self._by_topic:
            self.changed(topic)

    def stop(self) -> None:
        """Tell nobody any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _take_turn(self) -> None:
        self._timer = None
        self._gather()
        self._tell()
        if self._changed or self._news:
            self._timer = self._clock.later(TURN_SECONDS, self._take_turn)

    def _gather(self) -> None:
        """Put together what each connection is to hear."""
        gathered = 0
        while self._changed and gathered < WATCHES_OF_TURN:
            topic, _ = self._changed.popitem()
            watchers = self._by_topic.pop(topic, {})  # empty when all have hung up since
            for connection in watchers:
                self._by_connection[connection].discard(topic)
                self._news.setdefault(connection, {})[topic] = None
            self.count -= len(watchers)
            gathered += len(watchers)

    def _tell(self) -> None:
        for connection in list(islice(self._news, CONNECTIONS_OF_TURN)):
            topics = self._news.pop(connection)
            if connection.is_writable:
                self.told += 1
                body = TopicList(topic_list=list(topics)).encode()
                connection.send_one_way(
                    request(RequestCode.KOUROU_ROUTE_CHANGED, body=body, flag=FLAG_ONE_WAY)
                )

    def _forget(self, connection: Connection) -> None:
        topics = self._by_connection.pop(connection, set())
        for topic in topics:
            watchers = self._by_topic[topic]
            del watchers[connection]
            if not watchers:
                del self._by_topic[topic]
        self.count -= len(topics)
        self._news.pop(connection, None)
