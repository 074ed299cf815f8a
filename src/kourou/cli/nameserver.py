"""`kourou nameserver`: a name server alone, told by RocketMQ's own configuration file; and a word with those
that run.

Without a verb it runs a name server, as it always did.
"""

from __future__ import annotations

import os

import click

from kourou.cli.changing import change_options
from kourou.cli.configuration import configured
from kourou.cli.connection import cluster_at, name_server_option
from kourou.cli.exit_codes import UNREACHABLE
from kourou.cli.output import Row, confirmed, format_option, note, show
from kourou.cli.serving import log_options, log_to_stderr, serve
from kourou.errors import ConfigError


@click.group(invoke_without_command=True)
@click.option(
    "-c", "--config", "path", type=click.Path(), help="A namesrv.conf of RocketMQ's, read unchanged."
)
@click.option("-n", "ignored", metavar="ADDRESSES", help="Taken and ignored, as by the original.")
@click.option("-p", "--print-config", is_flag=True, help="Print the effective configuration and exit.")
@click.option("--port", type=click.IntRange(0, 65535), help="listenPort, whatever the file says.")
@click.option(
    "--address-server", metavar="HOST:PORT", help="Serve the address list there, at /rocketmq/nsaddr (HTTP)."
)
@click.option("--insecure", is_flag=True, help="Allow an address that other machines can reach.")
@log_options("info")
@click.pass_context
def nameserver(
    ctx: click.Context,
    path: str | None,
    ignored: str | None,
    print_config: bool,
    port: int | None,
    address_server: str | None,
    insecure: bool,
    log_level: str,
) -> int:
    """Run a name server; or, with a verb, ask and change those that run."""
    if ctx.invoked_subcommand is not None:
        return 0
    from kourou.doors.adjusted_clock import machine_clock
    from kourou.doors.chance import Chance
    from kourou.doors.files import RealFiles
    from kourou.doors.network import RealNetwork
    from kourou.nameserver.config import KEYS, NameServerConfig
    from kourou.nameserver.server import NameServer
    from kourou.remoting.metrics_settings import shown_if_possible

    flags = {"port": port, "address_server": address_server, "insecure": True if insecure else None}
    config = shown_if_possible(configured(NameServerConfig, KEYS, path, flags))
    if print_config:
        click.echo(KEYS.as_properties(config), nl=False)
        return 0
    log_to_stderr(log_level)
    clock = machine_clock(os.environ)
    server = NameServer(config, network=RealNetwork(), clock=clock, files=RealFiles(), chance=Chance())

    def ready() -> None:
        where = f"; address list at http://{server.address_server}/rocketmq/nsaddr" if address_server else ""
        click.echo(f"name server listens on {server.address}{where}")

    return serve(lambda: server, ready, lambda: None)


# ------------------------------------------------------------------------------------- those that run


@nameserver.command("ls")
@name_server_option
@format_option
def list_name_servers(name_server: str, output: str) -> int:
    """List the name servers, and whether each answers."""
    from kourou.admin import nameservers

    with cluster_at(name_server) as connection:
        found = nameservers.state(connection)
    rows: list[Row] = [
        {"address": each.address, "state": "up" if each.is_up else "unreachable", "error": each.error}
        for each in found
    ]
    show(rows, ("address", "state"), output, ("error",))
    return 0 if all(each.is_up for each in found) else UNREACHABLE


@nameserver.group("config")
def name_server_config() -> None:
    """See and change the settings of name servers that run."""


@name_server_config.command("show")
@click.option("--match", metavar="TEXT", help="Only keys with this in their name.")
@name_server_option
@format_option
def show_config(match: str | None, name_server: str, output: str) -> None:
    """Show the settings of each name server."""
    from kourou.admin import nameservers

    with cluster_at(name_server) as connection:
        found = connection.all(
            nameservers.addresses(connection), lambda each: nameservers.configuration(connection, each)
        )
    rows: list[Row] = [
        {"name_server": address, "key": key, "value": value}
        for address, settings in found
        for key, value in sorted(settings.items())
        if match is None or match.lower() in key.lower()
    ]
    show(rows, ("name_server", "key", "value"), output)


@name_server_config.command("set")
@click.argument("settings", metavar="KEY=VALUE…", nargs=-1, required=True)
@change_options
@name_server_option
def set_config(settings: tuple[str, ...], dry_run: bool, yes: bool, name_server: str) -> None:
    """Change settings of every name server while it runs. Only those marked (remote) in the reference."""
    from kourou.admin import nameservers

    changes = dict(map(_setting, settings))
    with cluster_at(name_server) as connection:
        if dry_run:
            note(f"nothing was changed; {', '.join(nameservers.addresses(connection))} would be told")
            return
        confirmed(f"{', '.join(changes)} change at {connection.name_server}.", yes)
        nameservers.configure(connection, changes)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        raise ConfigError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


@nameserver.group("kv")
def kv() -> None:
    """See and change the key-value store of the name servers."""


@kv.command("ls")
@click.argument("namespace")
@name_server_option
@format_option
def list_kv(namespace: str, name_server: str, output: str) -> None:
    """List the entries of NAMESPACE, as in ORDER_TOPIC_CONFIG."""
    from kourou.admin import nameservers

    with cluster_at(name_server) as connection:
        found = nameservers.kv_list(connection, namespace)
    rows: list[Row] = [{"key": key, "value": value} for key, value in sorted(found.items())]
    show(rows, ("key", "value"), output)


@kv.command("get")
@click.argument("namespace")
@click.argument("key")
@name_server_option
@format_option
def get_kv(namespace: str, key: str, name_server: str, output: str) -> None:
    """Show one entry."""
    from kourou.admin import nameservers
    from kourou.errors import NotFound
    from kourou.protocol.codes import ResponseCode

    with cluster_at(name_server) as connection:
        value = nameservers.kv_get(connection, namespace, key)
    if value is None:
        raise NotFound(ResponseCode.QUERY_NOT_FOUND, f"{namespace} has no key '{key}'")
    show([{"key": key, "value": value}], ("key", "value"), output)


@kv.command("put")
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
@change_options
@name_server_option
def put_kv(namespace: str, key: str, value: str, dry_run: bool, yes: bool, name_server: str) -> None:
    """Set one entry, at every name server."""
    from kourou.admin import nameservers

    with cluster_at(name_server) as connection:
        if dry_run:
            note(f"nothing was changed; it is {nameservers.kv_get(connection, namespace, key)!r} now")
            return
        confirmed(f"{namespace}/{key} becomes {value!r}.", yes)
        nameservers.kv_put(connection, namespace, key, value)


@kv.command("rm")
@click.argument("namespace")
@click.argument("key")
@change_options
@name_server_option
def remove_kv(namespace: str, key: str, dry_run: bool, yes: bool, name_server: str) -> None:
    """Delete one entry, at every name server."""
    from kourou.admin import nameservers

    with cluster_at(name_server) as connection:
        if dry_run:
            note(f"nothing was changed; it is {nameservers.kv_get(connection, namespace, key)!r} now")
            return
        confirmed(f"{namespace}/{key} goes.", yes)
        nameservers.kv_delete(connection, namespace, key)
