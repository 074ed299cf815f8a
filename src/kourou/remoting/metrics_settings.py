"""What every server can be told about its metrics, under RocketMQ's names where it has some."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeVar

from kourou.doors.configuration import Key, one_of, text, whole_number, yes_no
from kourou.errors import ConfigError
from kourou.remoting.address import is_loopback

OFF: Final = "DISABLE"
ON: Final = "PROM"
IF_POSSIBLE: Final = "AUTO"
"""Where nobody said anything and somebody runs a server: on its usual port, if that is free."""

Settings = TypeVar("Settings", bound="MetricsSettings")


@dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    """The part of a server's settings that is about figures. Nothing is served unless it is asked for."""

    metrics_exporter: str = ""
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 5557
    metrics_exporter_page: bool = False
    metrics_queues_max: int = 1_000
    metrics_series_max: int = 10_000

    def check_metrics(self, insecure: bool) -> None:
        """Figures tell the names of topics, groups and clients: not to everybody on the network."""
        if self.is_metered and not insecure and not is_loopback(self.metrics_host):
            raise ConfigError(
                f"metricsPromExporterHost {self.metrics_host} would let anyone on the network read topics, "
                "groups and figures: listen on 127.0.0.1, or accept it with --insecure (insecure=true)"
            )

    @property
    def is_metered(self) -> bool:
        return self.metrics_exporter in (ON, IF_POSSIBLE)


def shown_if_possible(settings: Settings) -> Settings:
    """The settings of a server that somebody runs and watches, who did not say anything about metrics."""
    return replace(settings, metrics_exporter=settings.metrics_exporter or IF_POSSIBLE)


METRICS_KEYS: Final = (
    Key("metricsExporterType", "metrics_exporter", one_of(OFF, ON, IF_POSSIBLE, "OTLP_GRPC", "LOG", "")),
    Key("metricsPromExporterHost", "metrics_host", text("a host name or address", bool)),
    Key("metricsPromExporterPort", "metrics_port", whole_number(0, 65535)),
    Key("metricsExporterPage", "metrics_exporter_page", yes_no()),
    Key("metricsQueuesMax", "metrics_queues_max", whole_number(0, 1_000_000)),
    Key("metricsOtelCardinalityLimit", "metrics_series_max", whole_number(1, 1_000_000)),
)
