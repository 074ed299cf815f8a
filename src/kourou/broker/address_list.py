"""Name servers by way of an HTTP address server, if the user named one.

Asked for the first time after 10 seconds, then every 2 minutes. The answer is a line of addresses parted by
`;`. When it does not answer, or answers nonsense, the last good list stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from kourou.doors.clock import Clock, Timer
from kourou.doors.network import Network
from kourou.errors import MQError
from kourou.remoting.address import parse_address
from kourou.remoting.http import fetch_text

FIRST_SECONDS: Final = 10.0
PERIOD_SECONDS: Final = 120.0
TIMEOUT_SECONDS: Final = 3.0
DEFAULT_PORT: Final = 8080

logger = logging.getLogger(__name__)


class AddressList:
    """Keeps asking `url`, and hands every good list to `use`."""

    def __init__(
        self, url: str, use: Callable[[tuple[str, ...]], None], *, network: Network, clock: Clock
    ) -> None:
        self._url = url
        self._use = use
        self._network = network
        self._clock = clock
        self._timer: Timer | None = None
        self._asking: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._timer = self._clock.every(PERIOD_SECONDS, self._turn, first=FIRST_SECONDS)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()

    async def ask(self) -> None:
        """Ask once."""
        try:
            text = await fetch_text(
                self._url, network=self._network, clock=self._clock, timeout_seconds=TIMEOUT_SECONDS
            )
            addresses = parse_list(text)
        except MQError as error:
            logger.warning("address server %s: %s; keeping the name servers known so far", self._url, error)
            return
        if addresses:
            self._use(addresses)

    def _turn(self) -> None:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self.ask())


def list_url(domain: str, path: str) -> str:
    """Where the list is: port 8080 unless the domain names another."""
    host = domain if ":" in domain else f"{domain}:{DEFAULT_PORT}"
    return f"http://{host}/rocketmq/{path}"


def parse_list(text: str) -> tuple[str, ...]:
    """The addresses in an answer; raises ConfigError naming one that is none."""
    addresses = tuple(each for part in text.strip().split(";") if (each := part.strip()))
    for address in addresses:
        parse_address(address)
    return addresses
