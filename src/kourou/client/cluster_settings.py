"""What can be said about a cluster, by producers and consumers alike: where it is, and how to talk to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from kourou.client.address_map import AddressMap
from kourou.client.finding import find_name_servers
from kourou.client.name_servers import NameServers
from kourou.client.routes import Routes
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock, RealClock
from kourou.errors import ConfigError
from kourou.protocol.command import Command
from kourou.protocol.names import topic_fault
from kourou.remoting.config import ClientTls

if TYPE_CHECKING:
    from kourou.access.credentials import Credentials
    from kourou.client.route_cache import RouteCache
    from kourou.client.telemetry import Telemetry


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a client reaches its cluster."""

    # A Struct and no dataclass, as all settings of clients: to define one takes a fiftieth of the time, which
    # everybody pays who imports a client (docs/decisions/0023).

    properties: Mapping[str, str] | None = None
    """Properties of the original: rocketmq.namesrv.addr, rocketmq.namesrv.domain (`finding.py`)."""
    namespace: str | None = None
    """Topics and groups are `namespace%name` to the brokers, and `name` to the program."""
    tls: ClientTls | None = None
    """Talk TLS to name servers and brokers."""
    access: Credentials | None = None
    """Sign every request."""
    address_map: Mapping[str, str] | None = None
    """Where brokers really are: {told: real}, with ports or without."""
    route_cache: str | os.PathLike[str] | None = None
    """A file to keep routes in, for when no name server answers."""
    telemetry: Telemetry | None = None
    """Tell OpenTelemetry of what is sent and handled, and have messages carry the trace they belong to."""

    def __post_init__(self) -> None:
        AddressMap(self.address_map)
        if self.namespace is not None:
            self._check_namespace(self.namespace)
        for name, kind in (("tls", ClientTls), ("properties", Mapping)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise ConfigError(f"{name} is {value!r}, but must be a {kind.__name__}")
        # By what they can do, so that who has none of them does not import them.
        if self.access is not None and not hasattr(self.access, "sign"):
            raise ConfigError(f"access is {self.access!r}, but must be Credentials")
        if self.telemetry is not None and not hasattr(self.telemetry, "begin_send"):
            raise ConfigError(f"telemetry is {self.telemetry!r}, but must be a Telemetry")
        if self.route_cache is not None and not isinstance(self.route_cache, str | os.PathLike):
            raise ConfigError(f"route_cache is {self.route_cache!r}, but must be the name of a file")

    def _check_namespace(self, namespace: object) -> None:
        if not isinstance(namespace, str):
            raise ConfigError(f"namespace is {namespace!r}, but must be a name")
        if fault := topic_fault(namespace):
            raise ConfigError(f"namespace: {fault}")

    def routes(self, name_server: str | Iterable[str] | None, clock: Clock, chance: Chance) -> Routes:
        """The routes of this cluster, none asked for yet; raises ConfigError when nobody says where it is."""
        found = find_name_servers(name_server, self.properties)
        return Routes(
            NameServers(found.addresses, chance, clock, address_server=found.address_server),
            clock,
            address_map=AddressMap(self.address_map),
            cache=None if self.route_cache is None else _cache(os.fspath(self.route_cache)),
        )

    @property
    def sign(self) -> Callable[[Command], None] | None:
        access = self.access
        if access is None:
            return None
        now_ms = RealClock().now_ms
        return lambda command: access.sign(command, now_ms())


def _cache(path: str) -> RouteCache:
    from kourou.client.route_cache import RouteCache  # few programs want one
    from kourou.doors.files import RealFiles

    return RouteCache(path, RealFiles())
