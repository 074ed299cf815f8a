"""The list of name servers as plain text over HTTP, at the paths where clients look for it.

    GET /rocketmq/nsaddr                     127.0.0.1:9876;127.0.0.1:9877
    GET /rocketmq/nsaddr-<unit>?nofix=1      the same: one list serves every unit

A client without a name server address asks for the first when `rocketmq.namesrv.domain` names this server,
and for the second when it has a unit name; whatever else stands in the query is its own business.
"""

from __future__ import annotations

import re
from typing import Final

from kourou.doors.clock import Clock
from kourou.doors.network import Network
from kourou.remoting.address import format_address
from kourou.remoting.http import HttpServer, Page

_LIST_PATH: Final = re.compile(r"/rocketmq/nsaddr(-[^/]+)?")


class AddressPage:
    """Serves one list at `address`."""

    def __init__(self, listen: str, served: str, *, network: Network, clock: Clock) -> None:
        host, _, port = listen.rpartition(":")
        self._host = host.strip("[]")
        self._served = ";".join(each.strip() for each in served.split(";") if each.strip())
        self._server = HttpServer(self._page, network=network, clock=clock, host=self._host, port=int(port))

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop()

    @property
    def address(self) -> str:
        return format_address(self._host, self._server.port)

    def _page(self, path: str) -> Page | None:
        return Page(self._served.encode() + b"\n") if _LIST_PATH.fullmatch(path) else None
