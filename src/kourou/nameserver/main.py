"""A name server as a process of its own: real doors, and signals that end it gently."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Final

from kourou.doors.chance import Chance
from kourou.doors.clock import RealClock
from kourou.doors.files import RealFiles
from kourou.doors.network import RealNetwork
from kourou.nameserver.config import NameServerConfig
from kourou.nameserver.server import NameServer

DRAIN_SECONDS: Final = 3.0

logger = logging.getLogger(__name__)


def run(config: NameServerConfig, started: Callable[[NameServer], None] | None = None) -> int:
    """Serve until SIGTERM or SIGINT, then drain; returns the exit code.

    `started` is called once when it listens. A second signal ends it without draining. Raises MQError
    (port in use, damaged file), which carries its own exit code.
    """
    return asyncio.run(_serve(config, started))


async def _serve(config: NameServerConfig, started: Callable[[NameServer], None] | None) -> int:
    server = NameServer(config, network=RealNetwork(), clock=RealClock(), files=RealFiles(), chance=Chance())
    signals: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number.name)
    await server.start()
    if started is not None:
        started(server)
    logger.info("%s: draining", await signals.get())
    draining = asyncio.ensure_future(server.stop(DRAIN_SECONDS))
    impatient = asyncio.ensure_future(signals.get())
    await asyncio.wait((draining, impatient), return_when=asyncio.FIRST_COMPLETED)
    if not draining.done():
        draining.cancel()
        return 1
    impatient.cancel()
    draining.result()
    logger.info("name server stopped")
    return 0
