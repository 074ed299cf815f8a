"""A name server and a broker on one event loop, with the real doors; the disk may be one in memory."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

from kourou.access.credentials import Credentials
from kourou.broker.broker import Broker
from kourou.broker.config import BrokerConfig
from kourou.doors.chance import Chance
from kourou.doors.clock import RealClock
from kourou.doors.failing_files import machine_files
from kourou.doors.files import Files, RealFiles
from kourou.doors.network import RealNetwork
from kourou.errors import ConfigError
from kourou.nameserver.config import NameServerConfig
from kourou.nameserver.server import NameServer
from kourou.remoting.access import Access

INNER_ACCOUNT: Final = "kourou-inner"
"""Known in this process only, under a secret that is made anew each time."""


def data_folder(given: str) -> str:
    """The whole path of a folder that is there, or can be made; raises ConfigError where a file is."""
    files, path = RealFiles(), os.path.abspath(given)
    above = path
    while not files.exists(above) and above != os.path.dirname(above):
        above = os.path.dirname(above)
    if files.exists(above) and not files.is_folder(above):
        where = "is a file" if above == path else f"cannot be made: {above} is a file"
        raise ConfigError(f"the data folder '{given}' {where}; name another one (--data, data=)")
    return path


class Node:
    """Both of them. The broker registers with this name server, and with those its configuration names."""

    name_server: NameServer
    broker: Broker

    def __init__(
        self, name_server: NameServerConfig, broker: BrokerConfig, files: Files | None = None
    ) -> None:
        self._name_server_config = name_server
        self._broker_config = broker
        self._files = files or machine_files(os.environ)
        self._running: list[NameServer | Broker] = []
        self.inner: Credentials | None = None
        """With access control: whom its own parts show themselves as."""

    @property
    def is_running(self) -> bool:
        return len(self._running) == 2

    async def start(self) -> None:
        """Serve; whatever fails, nothing is left running."""
        network, clock, files, chance = RealNetwork(), RealClock(), self._files, Chance()
        try:
            access = self._shared_access(files, clock, chance)
            self.name_server = NameServer(
                self._name_server_config,
                network=network,
                clock=clock,
                files=files,
                chance=chance,
                access=access,
            )
            await self.name_server.start()
            self._running.append(self.name_server)
            name_servers = (self.name_server.address, *self._broker_config.name_servers)
            self.broker = Broker(
                replace(self._broker_config, name_servers=name_servers),
                network=network,
                clock=clock,
                files=files,
                chance=chance,
                process_id=os.getpid(),
                access=access,
            )
            await self.broker.start()
            self._running.append(self.broker)
        except BaseException:
            await self.stop()
            raise

    def _shared_access(self, files: Files, clock: RealClock, chance: Chance) -> Access | None:
        """One set of accounts for both; and one they have for each other."""
        config = self._broker_config
        if not config.is_access_controlled:
            return None
        folder = f"{config.store_path}/config"
        access = Access(config, folder=folder, files=files, clock=clock, chance=chance)
        self.inner = Credentials(INNER_ACCOUNT, chance.secret_bytes(32).hex())
        access.trust(self.inner)
        return access

    async def stop(self) -> None:
        """The broker first: it says goodbye to the name server."""
        while self._running:
            await self._running.pop().stop()
