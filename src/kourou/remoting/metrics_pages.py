"""The three pages of a server for those who watch over it.

/metrics    figures, as Prometheus reads them        /metrics/exporter    under rocketmq-exporter's names
/health     200 while it can go on, else 503 and why
/ready      200 when it serves, else 503 and why
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from typing import Final, Protocol

from kourou.doors.clock import Clock
from kourou.doors.network import Network
from kourou.errors import ConfigError, MissingExtra
from kourou.remoting.address import format_address, is_loopback
from kourou.remoting.figures import CONTENT_TYPE, Figures
from kourou.remoting.http import HttpServer, Page
from kourou.remoting.metrics_settings import IF_POSSIBLE, MetricsSettings

FRESH_SECONDS: Final = 1.0
"""A page is not made more often: asking for it must not be a way to keep a server busy."""


class Source(Protocol):
    """Who has figures. `head` is what `Figures` begins with: the labels all have, and the most series."""

    @property
    def head(self) -> tuple[dict[str, str], int]: ...

    def steps(self, figures: Figures) -> Iterator[None]:
        """Tell them all, with a breath now and then."""


Trouble = Callable[[], str | None]
"""Why something is not as it should be; None when it is."""

logger = logging.getLogger(__name__)


class MetricsPages:
    """Serves them on one port."""

    def __init__(
        self,
        settings: MetricsSettings,
        *,
        figures: Source,
        exporter_figures: Source | None = None,
        unhealthy: Trouble,
        not_ready: Trouble,
        network: Network,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._unhealthy = unhealthy
        self._not_ready = not_ready
        self._sources = {"/metrics": figures}
        if exporter_figures is not None and settings.metrics_exporter_page:
            self._sources["/metrics/exporter"] = exporter_figures
        self._kept: dict[str, tuple[float, Page]] = {}
        self._making: dict[str, asyncio.Task[Page]] = {}
        self._server = HttpServer(
            self.page,
            network=network,
            clock=clock,
            host=settings.metrics_host,
            port=settings.metrics_port,
            names={"localhost"} if is_loopback(settings.metrics_host) else None,
        )
        self._is_served = False
        self.refused: str | None = None
        """Why they are not served although they were to be, if possible."""

    async def start(self) -> None:
        """Serve, if that was asked for. Raises ConfigError when the port cannot be had."""
        if not self._settings.is_metered:
            if self._settings.metrics_exporter not in ("", "DISABLE"):
                logger.warning(
                    "metricsExporterType %s is not served here: use PROM", self._settings.metrics_exporter
                )
            return
        try:
            await self._server.start()
        except ConfigError as error:
            if self._settings.metrics_exporter != IF_POSSIBLE:
                raise
            self.refused = str(error)
            logger.info("no metrics: %s (metricsPromExporterPort)", error)
            return
        self._is_served = True
        logger.info("metrics at http://%s/metrics", self.address)

    async def stop(self) -> None:
        for making in list(self._making.values()):
            making.cancel()
        if self._is_served:
            await self._server.stop()

    @property
    def address(self) -> str | None:
        """Where the pages are; None when they are not."""
        return format_address(self._settings.metrics_host, self._server.port) if self._is_served else None

    def page(self, path: str) -> Page | Awaitable[Page] | None:
        if path == "/health":
            return _state(self._unhealthy())
        if path == "/ready":
            return _state(self._unhealthy() or self._not_ready())
        source = self._sources.get(path)
        if source is None:
            return None
        made, page = self._kept.get(path, (0.0, None))
        if page is not None and self._clock.monotonic() - made <= FRESH_SECONDS:
            return page
        making = self._making.get(path)
        if making is None:  # whoever asks meanwhile gets the same
            making = self._making[path] = asyncio.get_running_loop().create_task(self._make(path, source))
            making.add_done_callback(lambda _: self._making.pop(path, None))
        return asyncio.shield(making)

    async def _make(self, path: str, source: Source) -> Page:
        """Figures are gathered a few at a time, and written down beside: messages come first."""
        figures = Figures(*source.head)
        for _ in source.steps(figures):
            await asyncio.sleep(0)
        try:
            text = await asyncio.get_running_loop().run_in_executor(None, figures.exposition)
            page = Page(text, CONTENT_TYPE)
        except MissingExtra as error:
            page = Page(f"{error}\n".encode(), status=HTTPStatus.NOT_IMPLEMENTED)
        self._kept[path] = (self._clock.monotonic(), page)
        return page


def _state(trouble: str | None) -> Page:
    if trouble is None:
        return Page(b"ok\n")
    return Page(f"{trouble}\n".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
