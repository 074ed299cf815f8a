"""A name server's figures: the brokers it knows, how lately it heard from each, and what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kourou.doors.clock import Clock
from kourou.nameserver.config import NameServerConfig
from kourou.nameserver.handlers import BrokerHandlers
from kourou.nameserver.route_answers import RouteHandler
from kourou.nameserver.routes import Routes
from kourou.remoting.access import Access
from kourou.remoting.figures import Figures, gathered
from kourou.remoting.server import Server


class NameServerMetrics:
    """Makes the page of one name server."""

    def __init__(
        self,
        config: NameServerConfig,
        *,
        routes: Routes,
        brokers: BrokerHandlers,
        lookups: Callable[[], RouteHandler | None],
        server: Callable[[], Server | None],
        address: Callable[[], str],
        access: Access,
        clock: Clock,
    ) -> None:
        self._config = config
        self._routes = routes
        self._brokers = brokers
        self._lookups = lookups
        self._server = server
        self._address = address
        self._access = access
        self._clock = clock

    @property
    def head(self) -> tuple[dict[str, str], int]:
        return {"node_type": "nameserver", "node_id": self._address()}, self._config.metrics_series_max

    def figures(self) -> Figures:
        return gathered(self)

    def steps(self, figures: Figures) -> Iterator[None]:
        self._known_brokers(figures)
        yield
        figures.gauge("rocketmq_namesrv_brokers", "Brokers that are registered.", self._routes.broker_count)
        figures.gauge("rocketmq_namesrv_topics", "Topics that have a route.", len(self._routes.topics()))
        figures.counter(
            "rocketmq_namesrv_broker_expired_total",
            "Brokers taken out because they were silent for too long.",
            self._brokers.expired,
        )
        figures.counter(
            "rocketmq_namesrv_broker_lost_total",
            "Brokers taken out because their connection was gone.",
            self._brokers.lost,
        )
        route = self._lookups()
        if route is not None:
            figures.counter(
                "rocketmq_namesrv_route_lookups_total", "Routes asked for.", route.asked, result="all"
            )
            figures.counter(
                "rocketmq_namesrv_route_lookups_missed_total", "Of them, topics nobody has.", route.missed
            )
            figures.gauge(
                "rocketmq_namesrv_route_watches",
                "Topics that clients want to hear of, each of every client.",
                route.watches.count,
            )
            figures.counter(
                "rocketmq_namesrv_route_news_total",
                "Messages to clients that routes have changed.",
                route.watches.told,
            )
        self._port(figures)

    def _known_brokers(self, figures: Figures) -> None:
        now = self._clock.monotonic()
        for life in self._routes.lives(now):
            labels = {"cluster": life.cluster, "broker": life.name, "address": life.address}
            figures.gauge(
                "rocketmq_namesrv_broker_heartbeat_age_seconds",
                "How long ago a broker was last heard of.",
                life.silent_seconds,
                **labels,
            )
            figures.gauge(
                "rocketmq_namesrv_broker_heartbeat_interval_seconds",
                "How long it was between the last two times.",
                life.interval_seconds,
                **labels,
            )
            figures.gauge(
                "rocketmq_namesrv_broker_expiry_seconds",
                "After how long a silence it is taken out.",
                life.expiry_seconds,
                **labels,
            )

    def _port(self, figures: Figures) -> None:
        server = self._server()
        if server is not None:
            counters = server.counters
            figures.gauge("rocketmq_connections", "Open connections.", len(server.connections))
            figures.counter("rocketmq_requests_total", "Requests since the start.", counters.requests)
            for reason, count in (*counters.refused.items(), *counters.held_back.items()):
                figures.counter(
                    "rocketmq_backpressure_total",
                    "How often peers were refused or held back.",
                    count,
                    reason=reason,
                )
        if self._access.is_on:
            guard = self._access.guard
            for reason, count in (("unauthenticated", guard.unauthenticated), ("denied", guard.denied)):
                figures.counter(
                    "rocketmq_access_refused_total",
                    "Requests of nobody known, and of somebody who may not.",
                    count,
                    reason=reason,
                )
