"""How a command reaches the cluster: `-n`, NAMESRV_ADDR, and operations run on plain sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from kourou.client.drive import BlockingDriver
    from kourou.client.routes import NameServers, Routes

Command = TypeVar("Command", bound=Callable[..., Any])


def name_server_option(command: Command) -> Command:
    """`-n host:port[;host:port]`, handed over as `name_server`."""
    return click.option(
        "-n",
        "--name-server",
        metavar="ADDRESS",
        envvar="NAMESRV_ADDR",
        show_envvar=True,
        default="127.0.0.1:9876",
        show_default=True,
        help="Name server host:port; several separated by ';'.",
    )(command)


class Cluster(NamedTuple):
    driver: BlockingDriver
    name_servers: NameServers
    routes: Routes


@contextmanager
def cluster_at(name_server: str | None) -> Iterator[Cluster]:
    """A connection to the name servers, for as long as a command runs."""
    from kourou.client.drive import BlockingDriver
    from kourou.client.routes import NameServers, Routes
    from kourou.client.settings import name_server_addresses
    from kourou.doors.chance import Chance
    from kourou.doors.clock import RealClock

    clock = RealClock()
    name_servers = NameServers(name_server_addresses(name_server), Chance(), clock)
    driver = BlockingDriver()
    try:
        yield Cluster(driver, name_servers, Routes(name_servers, clock))
    finally:
        driver.close()
