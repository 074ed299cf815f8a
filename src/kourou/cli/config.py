"""`kourou config …`: what a server would run with, and who said so."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from kourou.cli.output import Row, as_text, format_option, show

if TYPE_CHECKING:
    from kourou.doors.configuration import Vocabulary


@click.group()
def config() -> None:
    """See what a server would run with, and who said so."""


@config.command("show")
@click.argument("server", type=click.Choice(["broker", "nameserver"]), default="broker")
@click.option("-c", "--config", "path", type=click.Path(), help="Its configuration file.")
@click.option("-n", "--name-server", metavar="ADDRESSES", help="As for the broker.")
@click.option("--port", type=click.IntRange(0, 65535), help="As for the server.")
@click.option("--data", type=click.Path(), help="As for the broker.")
@click.option("--insecure", is_flag=True, help="As for the server.")
@click.option("--origin", is_flag=True, help="Also where each value comes from.")
@click.option("--changed", is_flag=True, help="Only what is not a default.")
@format_option
def show_config(
    server: str,
    path: str | None,
    name_server: str | None,
    port: int | None,
    data: str | None,
    insecure: bool,
    origin: bool,
    changed: bool,
    output: str,
) -> None:
    """Print what a server would run with. Default < file < environment < flag."""
    from kourou.cli.configuration import all_notices
    from kourou.cli.environment import check_environment
    from kourou.doors.configuration import read_settings
    from kourou.doors.files import RealFiles

    check_environment(os.environ)
    vocabulary, kind = _of(server)
    flags = {
        "name_servers": name_server,
        "port": port,
        "store_path": data,
        "insecure": True if insecure else None,
    }
    for field, value in flags.items():
        if value is not None and field not in vocabulary.by_field:
            raise click.UsageError(f"a name server has no setting for {value!r}; it is a broker's")
    settings = read_settings(
        vocabulary, files=RealFiles(), path=path, environment=os.environ, flags=_given(flags)
    )
    config = settings.build(kind)
    for notice in all_notices(settings, config):
        click.echo(f"kourou: {as_text(notice)}", err=True)
    rows: list[Row] = [
        {"key": name, "value": setting.value, **({"origin": setting.origin} if origin else {})}
        for name, setting in settings.explain(config)
        if not changed or setting.origin != "default"
    ]
    show(rows, ("key", "value", "origin") if origin else ("key", "value"), output)


@config.command("check")
@click.argument("server", type=click.Choice(["broker", "nameserver"]), default="broker")
@click.option("-c", "--config", "path", type=click.Path(), help="Its configuration file.")
def check_config(server: str, path: str | None) -> None:
    """Say whether a server would start. With its file and the environment."""
    from kourou.cli.configuration import configured

    vocabulary, kind = _of(server)
    configured(kind, vocabulary, path, {})
    click.echo(f"the {vocabulary.what} would start with this")


def _given(flags: Mapping[str, object]) -> dict[str, object]:
    return {field: value for field, value in flags.items() if value is not None}


def _of(server: str) -> tuple[Vocabulary, type[object]]:
    if server == "broker":
        from kourou.broker.config import KEYS, BrokerConfig

        return KEYS, BrokerConfig
    from kourou.nameserver.config import KEYS as NAME_SERVER_KEYS
    from kourou.nameserver.config import NameServerConfig

    return NAME_SERVER_KEYS, NameServerConfig
