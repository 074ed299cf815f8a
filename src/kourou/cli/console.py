"""`kourou console`: the web console and the HTTP interface; alone here, beside a broker in `kourou start`."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from kourou.cli.connection import client_access, name_server_option
from kourou.cli.serving import log_options, log_to_stderr, serve
from kourou.errors import MissingExtra

if TYPE_CHECKING:
    from kourou.console.server import ConsoleServer
    from kourou.local.node import Node

EXTRA = ("starlette", "uvicorn", "jinja2", "argon2")
DEFAULT_PORT = 8080


@click.command()
@click.option("--data", default="kourou-data", show_default=True, help="Folder for accounts and audit log.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True)
@click.option("--allow-host", multiple=True, help="A name browsers may call it by. May be repeated.")
@click.option("--certificate", type=click.Path(), help="Serve HTTPS with this certificate (PEM).")
@click.option("--key", type=click.Path(), help="The certificate's key (PEM).")
@click.option("--insecure", is_flag=True, help="Allow plain HTTP on an address others can reach.")
@click.option(
    "--reset-password",
    "forgetful",
    metavar="USER",
    help="Print a one-time password for USER and exit; the console must be stopped.",
)
@log_options("warning")
@name_server_option
def console(
    data: str,
    host: str,
    port: int,
    allow_host: tuple[str, ...],
    certificate: str | None,
    key: str | None,
    insecure: bool,
    forgetful: str | None,
    log_level: str,
    name_server: str,
) -> int:
    """Run the web console of a cluster. Its first user is admin, with the one-time password it prints."""
    if not is_installed():
        raise MissingExtra("the console needs an extra: pip install 'kourou[console]'")
    from kourou.console.config import ConsoleConfig
    from kourou.console.server import ConsoleServer

    if forgetful is not None:
        click.echo(_new_password(folder_of(data), forgetful))
        return 0
    log_to_stderr(log_level)
    config = ConsoleConfig(
        name_server=name_server,
        folder=folder_of(data),
        host=host,
        port=port,
        allowed_hosts=allow_host,
        certificate=certificate,
        key=key,
        insecure=insecure,
        **client_access(),
    )
    server = ConsoleServer(config)

    def ready() -> None:
        click.echo(f"console listens on {server.address}; name servers {name_server}")
        if server.first_password is not None:
            click.echo(first_words(server.first_password))

    return serve(lambda: server, ready, lambda: None)


def _new_password(folder: str, user: str) -> str:
    from kourou.console.login import Accounts
    from kourou.doors.chance import Chance
    from kourou.doors.clock import RealClock
    from kourou.doors.private_folder import PrivateFolder

    accounts = Accounts(PrivateFolder(folder), clock=RealClock(), chance=Chance())
    return f"{user} can log in once with {accounts.reset_password(user)}, and has to choose a password then"


def is_installed() -> bool:
    """Whether the extra is there; nothing is imported to find out."""
    return all(find_spec(name) is not None for name in EXTRA)


def folder_of(data: str) -> str:
    return os.path.join(os.path.abspath(data), "console")


def first_words(password: str) -> str:
    return f"log in as admin with the one-time password {password}"


class WithConsole:
    """A node and its console, started and stopped together; the console's port is any where 8080 is taken."""

    def __init__(self, node: Node, data: str, port: int | None) -> None:
        self._node = node
        self._data = data
        self._port = port
        self.console: ConsoleServer | None = None

    async def start(self) -> None:
        await self._node.start()
        if not is_installed():
            return
        from kourou.console.config import ConsoleConfig
        from kourou.console.server import ConsoleServer

        given = client_access()
        config = ConsoleConfig(
            name_server=self._node.name_server.address,
            folder=folder_of(self._data),
            port=DEFAULT_PORT if self._port is None else self._port,
            access=given["access"] or self._node.inner,
            tls=given["tls"],
        )
        console = ConsoleServer(config, any_port=self._port is None)
        try:
            await console.start()
        except BaseException:
            await self._node.stop()
            raise
        self.console = console

    async def stop(self) -> None:
        if self.console is not None:
            await self.console.stop()
        await self._node.stop()
