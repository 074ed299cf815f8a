"""With `clusterTest`: topics that are unknown here are asked of the production name servers.

Their addresses are given (`productEnvAddress`), or fetched from an HTTP address server under the name of
the environment (`productEnvAddressServer`, `productEnvName`), again every two minutes; the last good list is
kept. Nothing waits: a client's question is parked until production has spoken, for two seconds at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from kourou.doors.chance import Chance
from kourou.doors.clock import Clock, Timer
from kourou.doors.network import Network
from kourou.errors import MQError
from kourou.nameserver.config import NameServerConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import GetRoute
from kourou.remoting.address import parse_address
from kourou.remoting.client import Client
from kourou.remoting.http import fetch_text

ANSWER_SECONDS: Final = 2.0
"""Less than the 3 s a client waits for us, so that it hears an answer and not silence."""

FETCH_SECONDS: Final = 120.0
QUESTIONS_MAX: Final = 1_000
"""Open at once; what comes on top is answered 'unknown' right away."""

logger = logging.getLogger(__name__)


class Production:
    """The name servers of another environment."""

    def __init__(
        self,
        config: NameServerConfig,
        *,
        client: Client,
        network: Network,
        clock: Clock,
        chance: Chance,
    ) -> None:
        self._addresses = [each for each in config.product_env_address.split(";") if each]
        self._page = _page(config)
        self._client = client
        self._clock = clock
        self._chance = chance
        self._network = network
        self._open = 0
        self._timer: Timer | None = None
        self._fetching: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._page is not None:
            self._timer = self._clock.every(FETCH_SECONDS, self._fetch_soon, first=0.0)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._fetching is not None:
            self._fetching.cancel()

    def ask(self, topic: str, then: Callable[[bytes | None], None]) -> None:
        """Tell `then` the body of production's answer; None when it has no such topic or is out of reach."""
        if not self._addresses or self._open >= QUESTIONS_MAX:
            then(None)
            return
        self._open += 1

        def answered(reply: Command | Exception) -> None:
            self._open -= 1
            if isinstance(reply, Exception):
                logger.info("production did not answer for a topic: %s", reply)
                then(None)
            else:
                then(reply.body if reply.code == ResponseCode.SUCCESS and reply.body else None)

        question = request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute(topic=topic, accept_standard_json_only=True)
        )
        self._client.call_soon(self._chance.choice(self._addresses), question, ANSWER_SECONDS, answered)

    def _fetch_soon(self) -> None:
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.get_running_loop().create_task(self._fetch_addresses())

    async def _fetch_addresses(self) -> None:
        assert self._page is not None
        try:
            text = await fetch_text(
                self._page, network=self._network, clock=self._clock, timeout_seconds=ANSWER_SECONDS
            )
            lines = text.split()
            addresses = [each for each in (lines[0] if lines else "").split(";") if each]
            for each in addresses:
                parse_address(each)
        except MQError as error:
            logger.warning("no production name servers from %s: %s", self._page, error)
            return
        if addresses:
            self._addresses = addresses


def _page(config: NameServerConfig) -> str | None:
    server = config.product_env_address_server
    if not server:
        return None
    unit = config.product_env_name.strip()
    name = f"nsaddr-{quote(unit, safe='')}?nofix=1" if unit else "nsaddr"
    return f"http://{server}/rocketmq/{name}"
