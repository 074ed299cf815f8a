"""`kourou cluster …`: a whole cluster of processes on this machine, for development and tests."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import click

from kourou.cli.changing import DURATION
from kourou.cli.output import format_option, show
from kourou.errors import ConfigError, MQError, Unreachable

if TYPE_CHECKING:
    from kourou.admin.cluster import Node
    from kourou.local.machine_cluster import MachineCluster

DEFAULT_FOLDER = "kourou-cluster"
READY_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.1

data_option = click.option(
    "--data", default=DEFAULT_FOLDER, show_default=True, help="Folder of the cluster: files, logs, messages."
)
name_argument = click.argument("names", metavar="NAME...", nargs=-1, required=True)


@click.group()
def cluster() -> None:
    """Run a whole cluster on this machine, for development and tests."""


@cluster.command()
@click.option(
    "--layout",
    type=click.Choice(["1m", "2m", "2m-2s-async", "2m-2s-sync", "3n-auto"]),
    help="m masters, s slaves; 3n-auto: three brokers that elect their master. As the folder has it, or 1m.",
)
@click.option("--name-servers", type=click.IntRange(1, 9), default=1, show_default=True, help="How many.")
@click.option("--name-server-port", type=click.IntRange(0, 65535), default=9876, show_default=True)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=10911,
    show_default=True,
    help="Of the first broker; the next ones are 10 apart. 0 takes free ones.",
)
@click.option(
    "-s", "--set", "settings", metavar="KEY=VALUE", multiple=True, help="A setting of every broker."
)
@data_option
@format_option
def up(
    layout: str | None,
    name_servers: int,
    name_server_port: int,
    port: int,
    settings: tuple[str, ...],
    data: str,
    output: str,
) -> None:
    """Start a cluster; it goes on running until `kourou cluster down`."""
    machine = _machine(data)
    machine.up(
        layout,
        name_servers=name_servers,
        name_server_port=name_server_port,
        port=port,
        settings=dict(map(_setting, settings)),
    )
    _wait_until_ready(machine)
    _show(machine, output)
    if output == "table":
        click.echo(f"\nFor other commands:  export NAMESRV_ADDR='{machine.name_servers}'")


def _setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise click.UsageError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def _wait_until_ready(machine: MachineCluster) -> None:
    """Until every broker is registered; raises when one has ended, with its last words."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        servers = machine.servers()
        for server in servers:
            if server.state == "stopped":
                raise ConfigError(f"{server.name} did not start: {machine.last_words(server.name)}")
        missing = _unregistered(machine)
        if not missing:
            return
        if time.monotonic() > deadline:
            raise Unreachable(
                f"not registered after {READY_SECONDS_MAX:g} s: {', '.join(missing)}; see the logs below "
                f"{machine.folder}"
            )
        time.sleep(LOOK_SECONDS)


def _unregistered(machine: MachineCluster) -> list[str]:
    """Brokers that a name server does not know, and replica sets without a master."""
    wanted = {server.address: server for server in machine.servers() if server.kind == "broker"}
    led = {server.broker for server in wanted.values()}
    known = set(wanted)
    for address in machine.name_servers.split(";"):
        nodes = _nodes(address)
        known &= {node.address for node in nodes}
        led &= {node.broker for node in nodes if node.is_master}
    missing = [server.name for address, server in wanted.items() if address not in known]
    return missing + sorted({server.broker for server in wanted.values()} - led)


def _nodes(address: str) -> list[Node]:
    from kourou.admin import Connection
    from kourou.admin import cluster as nodes_of

    try:
        with Connection(address, timeout=1.0) as connection:
            return nodes_of.nodes(connection)
    except MQError:
        return []


@cluster.command()
@data_option
@format_option
def status(data: str, output: str) -> None:
    """Show the servers of the cluster, and what each broker is."""
    _show(_machine(data), output)


@cluster.command()
@name_argument
@data_option
def kill(names: tuple[str, ...], data: str) -> None:
    """kill -9 one or more servers."""
    _tell(data, names, signal.SIGKILL, "killed")


@cluster.command()
@name_argument
@data_option
def stop(names: tuple[str, ...], data: str) -> None:
    """Stop one or more servers in order."""
    _tell(data, names, signal.SIGTERM, "stopped")


@cluster.command()
@name_argument
@data_option
@click.option("--seconds", type=DURATION, help="Go on by itself after so long.")
def pause(names: tuple[str, ...], data: str, seconds: float | None) -> None:
    """Stop the clockwork of servers (SIGSTOP). They keep their connections and answer nothing."""
    _tell(data, names, signal.SIGSTOP, "paused")
    if seconds is not None:
        time.sleep(seconds)
        _tell(data, names, signal.SIGCONT, "resumed")


@cluster.command()
@name_argument
@data_option
def resume(names: tuple[str, ...], data: str) -> None:
    """Let paused servers go on."""
    _tell(data, names, signal.SIGCONT, "resumed")


@cluster.command()
@name_argument
@data_option
def start(names: tuple[str, ...], data: str) -> None:
    """Start servers again that were killed or stopped."""
    machine = _machine(data)
    for name in names:
        machine.start(name)
        click.echo(f"{name} started")


@cluster.command()
@data_option
@click.option("--wipe", is_flag=True, help="Remove the messages, too, and all files of the cluster.")
def down(data: str, wipe: bool) -> None:
    """Stop everything in order."""
    machine = _machine(data)
    killed = machine.down(wipe=wipe)
    for name in killed:
        click.echo(f"{name} did not stop in time and was killed", err=True)
    click.echo(f"the cluster in {data} is down" + ("; its files are gone" if wipe else ""))


def _tell(data: str, names: tuple[str, ...], number: signal.Signals, what: str) -> None:
    machine = _machine(data)
    for name in names:
        machine.tell(name, number)
        click.echo(f"{name} {what}")


def _machine(data: str) -> MachineCluster:
    from kourou.doors.files import RealFiles
    from kourou.local.machine_cluster import MachineCluster

    return MachineCluster(data, RealFiles())


def _show(machine: MachineCluster, output: str) -> None:
    known = {node.address: node for address in machine.name_servers.split(";") for node in _nodes(address)}
    rows = []
    for server in machine.servers():
        node = known.get(server.address)
        role = "" if node is None else "master" if node.is_master else f"slave {node.broker_id}"
        rows.append(
            {
                "name": server.name,
                "kind": server.kind,
                "address": server.address,
                "state": server.state,
                "process": server.process,
                "broker": server.broker or None,
                "role": role or None,
            }
        )
    show(rows, ("name", "kind", "address", "state", "process", "broker", "role"), output)
