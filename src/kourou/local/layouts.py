"""Whole clusters as plans: which servers there are, and the configuration file of each.

    1m             one master
    2m             two masters
    2m-2s-async    two masters, each with a slave that follows when it can
    2m-2s-sync     two masters, each with a slave that has a message before it is acknowledged
    3n-auto        three brokers that elect their master

`kourou cluster up` runs them on one machine; the files under `deploy/` are the same for several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kourou.errors import ConfigError

CLUSTER: Final = "DefaultCluster"
BROKER_NAMES: Final = ("broker-a", "broker-b")


@dataclass(frozen=True)
class Server:
    """One process to be: `name` is its folder and what operators call it."""

    name: str
    kind: str
    """`nameserver` or `broker`."""
    host: str
    port: int
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def configuration(self) -> str:
        """The text of its namesrv.conf or broker.conf."""
        return "".join(f"{key}={value}\n" for key, value in self.settings.items())


@dataclass(frozen=True)
class Place:
    """Where a server goes: the host it is reached at, its port, and where its data is."""

    host: str
    port: int
    folder: str


Places = Callable[[str, str], Place]
"""(kind, name) -> its place."""


def planned(
    layout: str, places: Places, *, name_servers: int = 1, more: Mapping[str, str] | None = None
) -> list[Server]:
    """All servers of a layout; `more` are settings for every broker. Raises ConfigError for no layout."""
    if layout not in LAYOUTS:
        raise ConfigError(f"no layout '{layout}'; there are {', '.join(LAYOUTS)}")
    servers = [_name_server(f"nameserver-{number}", places) for number in range(1, name_servers + 1)]
    addresses = ";".join(server.address for server in servers)
    brokers = LAYOUTS[layout](places)
    return [
        *servers,
        *(
            Server(
                broker.name,
                broker.kind,
                broker.host,
                broker.port,
                {**_common(broker, addresses, places), **broker.settings, **(more or {})},
            )
            for broker in brokers
        ),
    ]


def _name_server(name: str, places: Places) -> Server:
    place = places("nameserver", name)
    settings = {"listenPort": str(place.port), "kvConfigPath": f"{place.folder}/kvConfig.json"}
    return Server(name, "nameserver", place.host, place.port, {"bindAddress": place.host, **settings})


def _broker(name: str, places: Places, **settings: str) -> Server:
    place = places("broker", name)
    return Server(name, "broker", place.host, place.port, settings)


def _common(broker: Server, name_servers: str, places: Places) -> dict[str, str]:
    folder = places("broker", broker.name).folder
    return {
        "brokerClusterName": CLUSTER,
        "bindAddress": broker.host,
        "listenPort": str(broker.port),
        "haListenPort": str(broker.port + 1),
        "namesrvAddr": name_servers,
        "storePathRootDir": f"{folder}/store",
    }


def _masters(count: int, role: str = "ASYNC_MASTER") -> Callable[[Places], list[Server]]:
    return lambda places: [
        _broker(name, places, brokerName=name, brokerRole=role) for name in BROKER_NAMES[:count]
    ]


def _pairs(role: str) -> Callable[[Places], list[Server]]:
    def make(places: Places) -> list[Server]:
        slaves = [
            _broker(f"{name}-s", places, brokerName=name, brokerRole="SLAVE", brokerId="1")
            for name in BROKER_NAMES
        ]
        return [*_masters(2, role)(places), *slaves]

    return make


def _elected(count: int) -> Callable[[Places], list[Server]]:
    def make(places: Places) -> list[Server]:
        names = [f"{BROKER_NAMES[0]}-{number}" for number in range(1, count + 1)]
        members = ";".join(_broker(name, places).address for name in names)
        common = {"brokerName": BROKER_NAMES[0], "brokerRole": "SYNC_MASTER", "electionMembers": members}
        return [_broker(name, places, **common) for name in names]

    return make


LAYOUTS: Final[Mapping[str, Callable[[Places], list[Server]]]] = {
    "1m": _masters(1),
    "2m": _masters(2),
    "2m-2s-async": _pairs("ASYNC_MASTER"),
    "2m-2s-sync": _pairs("SYNC_MASTER"),
    "3n-auto": _elected(3),
}
