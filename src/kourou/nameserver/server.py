"""One name server: tables, handlers, a listening port and three timers.

    every 10 s      brokers that have been silent for too long are taken out      (first after 5 s)
    every 10 min    the key-value configuration is written to the log             (first after 1 min)
    every 2 min     with clusterTest: where production's name servers are

It lives on whatever event loop starts it, alone or beside a broker, and knows no other name server.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from kourou.doors.chance import Chance
from kourou.doors.clock import Clock, Timer
from kourou.doors.files import Files
from kourou.doors.network import Network
from kourou.errors import MQError
from kourou.nameserver.config import NameServerConfig
from kourou.nameserver.handlers import (
    BrokerHandlers,
    ConfigHandlers,
    KvHandlers,
    TopicHandlers,
    handler_table,
)
from kourou.nameserver.kv import KeyValues
from kourou.nameserver.own_config import OwnConfig
from kourou.nameserver.route_answers import EncodedRoutes, RouteHandler
from kourou.nameserver.routes import Routes
from kourou.nameserver.watches import RouteWatches
from kourou.nameserver.witness import Witness
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.remoting.access import Access
from kourou.remoting.access_handlers import access_handlers
from kourou.remoting.address import format_address
from kourou.remoting.client import Client
from kourou.remoting.config import ServerConfig
from kourou.remoting.server import Server
from kourou.remoting.tick import Tick

if TYPE_CHECKING:  # they bring HTTP with them, and are imported when they are asked for
    from kourou.nameserver.address_page import AddressPage
    from kourou.nameserver.production import Production
    from kourou.remoting.metrics_pages import MetricsPages

FIRST_SCAN_SECONDS: Final = 5.0
KV_LOG_SECONDS: Final = 600.0
FIRST_KV_LOG_SECONDS: Final = 60.0
NEWS_MAX: Final = 1_000
"""Notifications on their way at once; brokers also ask for themselves."""

logger = logging.getLogger(__name__)


class NameServer:
    """Start it, and brokers and clients may come to `address`."""

    def __init__(
        self,
        config: NameServerConfig,
        *,
        network: Network,
        clock: Clock,
        files: Files,
        chance: Chance,
        tick: Tick | None = None,
        access: Access | None = None,
    ) -> None:
        self._config = config
        self._network = network
        self._clock = clock
        self._chance = chance
        self._tick = tick
        self._encoded = EncodedRoutes()
        self._own = OwnConfig(config, files)
        self.access = access or Access(
            config, folder=_folder_of(config.kv_config_path), files=files, clock=clock, chance=chance
        )
        self._kv = KeyValues(files, config.kv_config_path)
        self._witness = Witness(files, f"{_folder_of(config.kv_config_path)}/witness.json", clock)
        self._watches = RouteWatches(clock)
        self.routes: Final = Routes(self._route_changed)
        self._brokers = BrokerHandlers(self.routes, self._kv, self._own, clock, self._notify)
        self._route: RouteHandler | None = None
        self._server: Server | None = None
        self._page: AddressPage | None = None
        self.pages: MetricsPages | None = None
        self._client: Client | None = None
        self._production: Production | None = None
        self._timers: list[Timer] = []
        self._scan_timer: Timer | None = None
        self._news: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The real one, when 0 was asked for."""
        return self._config.port if self._server is None else self._server.port

    @property
    def address(self) -> str:
        """What brokers and clients are told: `127.0.0.1:9876`."""
        return format_address(self._config.host.strip("[]"), self.port)

    @property
    def address_server(self) -> str | None:
        """Where the address list is served, when it is."""
        return None if self._page is None else self._page.address

    async def start(self) -> None:
        """Load what was kept, listen, begin to watch. Raises ConfigError or Corrupt; then nothing runs."""
        self._kv.load()
        self._witness.load()
        self.access.load()
        tick = self._tick or Tick(asyncio.get_running_loop())
        self._client = Client(
            network=self._network, clock=self._clock, tick=tick, chance=self._chance, sign=self.access.sign
        )
        if self._config.cluster_test:
            from kourou.nameserver.production import Production

            self._production = Production(
                self._config,
                client=self._client,
                network=self._network,
                clock=self._clock,
                chance=self._chance,
            )
        try:
            await self._listen(tick)
        except BaseException:
            await self.stop(drain_seconds=0.0)
            raise
        if self._production is not None:
            self._production.start()
        self.access.start()
        self._timers = [self._clock.every(KV_LOG_SECONDS, self._kv.log, first=FIRST_KV_LOG_SECONDS)]
        self._scan_every(self._config.scan_interval_ms)
        self._own.on_change(lambda: self._scan_every(self._own.now.scan_interval_ms))
        logger.info("name server listens on %s", self.address)

    async def stop(self, drain_seconds: float = 3.0) -> None:
        """Answer what is being worked on, then hang up. Harmless when it never started."""
        for timer in (*self._timers, *([self._scan_timer] if self._scan_timer else [])):
            timer.cancel()
        self._timers, self._scan_timer = [], None
        self.access.stop()
        self._watches.stop()
        if self._production is not None:
            self._production.stop()
        if self._page is not None:
            await self._page.stop()
        if self.pages is not None:
            await self.pages.stop()
        if self._server is not None:
            await self._server.stop(drain_seconds)
        for task in self._news:
            task.cancel()
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _listen(self, tick: Tick) -> None:
        config = self._config
        self._route = RouteHandler(
            self.routes, self._encoded, self._kv, self._own, self._clock, self._watches, self._production
        )
        handlers = handler_table(
            self._route,
            self._brokers,
            TopicHandlers(self.routes, self._own),
            KvHandlers(self._kv, self._route_changed),
            ConfigHandlers(self._own),
        )
        about_accounts = access_handlers(
            self.access, name="name server", cluster="", address=lambda: self.address
        )
        server = Server(
            self.access.handlers(
                {**handlers, **about_accounts, RequestCode.KOUROU_REPLICA_SET: self._witness}
            ),
            _server_config(config),
            network=self._network,
            clock=self._clock,
            tick=tick,
            name="name server",
        )
        await server.start()
        self._server = server
        self._own.listens_on(server.port)
        if config.is_metered:
            await self._show_figures()
        if config.address_server:
            from kourou.nameserver.address_page import AddressPage

            served = config.address_server_list or self.address
            page = AddressPage(config.address_server, served, network=self._network, clock=self._clock)
            await page.start()
            self._page = page

    async def _show_figures(self) -> None:
        from kourou.nameserver.metrics import NameServerMetrics
        from kourou.remoting.metrics_pages import MetricsPages

        metrics = NameServerMetrics(
            self._config,
            routes=self.routes,
            brokers=self._brokers,
            lookups=lambda: self._route,
            server=lambda: self._server,
            address=lambda: self.address,
            access=self.access,
            clock=self._clock,
        )
        pages = MetricsPages(
            self._config,
            figures=metrics,
            unhealthy=lambda: None,
            not_ready=self._why_not_ready,
            network=self._network,
            clock=self._clock,
        )
        await pages.start()
        self.pages = pages

    def _why_not_ready(self) -> str | None:
        return None if self._server is not None else "it does not listen"

    def _route_changed(self, topic: str) -> None:
        self._encoded.forget(topic)
        self._watches.changed(topic)

    def _scan_every(self, interval_ms: int) -> None:
        if self._scan_timer is not None:
            self._scan_timer.cancel()
        interval = interval_ms / 1000
        self._scan_timer = self._clock.every(
            interval, self._brokers.scan, first=min(interval, FIRST_SCAN_SECONDS)
        )

    def _notify(self, address: str, news: Command) -> None:
        if self._client is None or len(self._news) >= NEWS_MAX:
            return
        task = asyncio.get_running_loop().create_task(self._send(self._client, address, news))
        self._news.add(task)
        task.add_done_callback(self._news.discard)

    async def _send(self, client: Client, address: str, news: Command) -> None:
        try:
            await client.send_one_way(address, news)
        except MQError as error:
            logger.info("%s was not told of the new lowest broker id: %s", address, error)


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0] or "."


def _server_config(config: NameServerConfig) -> ServerConfig:
    return ServerConfig(
        host=config.host.strip("[]"),
        port=config.port,
        backlog=config.backlog,
        idle_seconds=config.idle_seconds,
        tls=config.tls(),
    )
