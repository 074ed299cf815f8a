"""How a command reaches the cluster: `-n`, a context, NAMESRV_ADDR; see `contexts.py` for who wins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from kourou.cli.contexts import Context, chosen, credentials, tls

if TYPE_CHECKING:
    from kourou.admin import Connection
    from kourou.client.signing import Credentials
    from kourou.remoting.config import ClientTls

Command = TypeVar("Command", bound=Callable[..., Any])

_CHOSEN = "kourou.context"


def name_server_option(command: Command) -> Command:
    """`-n host:port[;host:port]` and `--context NAME`; the name servers are handed over as `name_server`."""

    def resolve(ctx: click.Context, parameter: click.Parameter, given: str | None) -> str:
        context = chosen(given, ctx.meta.get(_NAME))
        ctx.meta[_CHOSEN] = context
        return context.name_server

    def remember(ctx: click.Context, parameter: click.Parameter, given: str | None) -> None:
        ctx.meta[_NAME] = given

    name_server = click.option(
        "-n",
        "--name-server",
        metavar="ADDRESS",
        callback=resolve,
        help="Name server host:port; several separated by ';'.  [default: NAMESRV_ADDR, the current context, "
        "or 127.0.0.1:9876]",
    )
    context = click.option(
        "--context",
        metavar="NAME",
        callback=remember,
        expose_value=False,
        is_eager=True,
        help="A cluster by its name; see `kourou context`.",
    )
    return name_server(context(command))


_NAME = "kourou.context.name"


def broker_option(command: Command) -> Command:
    """`-b`, handed over as `broker`: where one may be meant, and otherwise all are."""
    return click.option(
        "-b", "--broker", metavar="BROKER", help="Only at the broker of this name or host:port."
    )(command)


def current_context() -> Context:
    """What the command line, the environment and the file said, in a command that has the option above."""
    ctx = click.get_current_context(silent=True)
    found = None if ctx is None else ctx.meta.get(_CHOSEN)
    return found if isinstance(found, Context) else chosen(None, None)


class Access(TypedDict):
    """As clients take it: who we are, and how we talk."""

    access: Credentials | None
    tls: ClientTls | None


def client_access() -> Access:
    context = current_context()
    return {"access": credentials(context), "tls": tls(context)}


@contextmanager
def cluster_at(name_server: str | None, timeout: float | None = None) -> Iterator[Connection]:
    """A connection to the cluster, for as long as a command runs."""
    from kourou.admin import Connection

    options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    with Connection(name_server, **client_access(), **options) as connection:
        yield connection
