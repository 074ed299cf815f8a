"""`kourou broker`: a broker alone, told by RocketMQ's own configuration file; and a word with those that run.

Without a verb it runs a broker, as it always did; with one it asks a cluster's brokers, or changes them.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import click

from kourou.cli.broker_switching import drain, promote, replicas
from kourou.cli.changing import change_options
from kourou.cli.configuration import configured
from kourou.cli.connection import cluster_at, name_server_option
from kourou.cli.exit_codes import UNREACHABLE
from kourou.cli.output import Row, confirmed, format_option, note, show
from kourou.cli.serving import log_options, log_to_stderr, serve
from kourou.errors import ConfigError, MQError

if TYPE_CHECKING:
    from kourou.admin.cluster import NodeState
    from kourou.broker.config import BrokerConfig

logger = logging.getLogger(__name__)

LIST_COLUMNS = (
    "cluster",
    "broker",
    "broker_id",
    "address",
    "version",
    "in_tps",
    "out_tps",
    "disk_used",
    "state",
)
LIST_WIDE = ("put_today", "got_today", "timers_waiting", "page_cache_wait_ms", "oldest_message", "error")


@click.group(invoke_without_command=True)
@click.option(
    "-c", "--config", "path", type=click.Path(), help="A broker.conf of RocketMQ's, read unchanged."
)
@click.option("-n", "--name-server", metavar="ADDRESSES", help="host:port; several separated by ';'.")
@click.option("-p", "--print-config", is_flag=True, help="Print the effective configuration and exit.")
@click.option("--port", type=click.IntRange(0, 65535), help="listenPort, whatever the file says.")
@click.option("--data", type=click.Path(), help="storePathRootDir, whatever the file says.")
@click.option("--insecure", is_flag=True, help="Allow an address that other machines can reach.")
@log_options("info")
@click.pass_context
def broker(
    ctx: click.Context,
    path: str | None,
    name_server: str | None,
    print_config: bool,
    port: int | None,
    data: str | None,
    insecure: bool,
    log_level: str,
) -> int:
    """Run a broker; or, with a verb, ask and change those that run."""
    if ctx.invoked_subcommand is not None:
        return 0
    from kourou.broker.broker import Broker
    from kourou.broker.config import KEYS, BrokerConfig
    from kourou.doors.adjusted_clock import machine_clock
    from kourou.doors.chance import Chance
    from kourou.doors.failing_files import machine_files
    from kourou.doors.network import RealNetwork
    from kourou.remoting.metrics_settings import shown_if_possible

    flags = {
        "name_servers": name_server,
        "port": port,
        "store_path": data,
        "insecure": True if insecure else None,
    }
    config = shown_if_possible(configured(BrokerConfig, KEYS, path, flags))
    if print_config:
        click.echo(KEYS.as_properties(config), nl=False)
        return 0
    log_to_stderr(log_level)
    made: list[Broker] = []

    def make() -> Broker:
        made.append(
            Broker(
                config,
                network=RealNetwork(),
                clock=machine_clock(os.environ),
                files=machine_files(os.environ),
                chance=Chance(),
                process_id=os.getpid(),
            )
        )
        return made[0]

    def ready() -> None:
        names = ";".join(config.name_servers) or "none: nobody will find it by name"
        where = _where(config, made[0].address)
        click.echo(f"broker {config.broker_name} listens on {where}; name servers {names}")

    def fault() -> MQError | None:
        return made[0].fault

    def reread() -> None:
        """Name servers come and go while a broker runs: what the file says of them is taken anew."""
        try:
            found = configured(BrokerConfig, KEYS, path, flags)
        except MQError as error:
            logger.error("the configuration is left as it was: %s", error)
        else:
            made[0].registration.use(found.name_servers)

    return serve(make, ready, fault, lambda: made[0].is_asked_to_stop, reread)


def _where(config: BrokerConfig, told: str) -> str:
    """Where it listens, and what clients are told where that is something else."""
    from kourou.remoting.address import format_address, parse_address

    if not config.is_told_elsewhere:
        return told
    return f"{format_address(config.host.strip('[]'), parse_address(told)[1])}, which clients know as {told}"


# ------------------------------------------------------------------------------------- those that run

for _verb in (drain, promote, replicas):
    broker.add_command(_verb)


@broker.command("ls")
@click.option("-c", "--cluster", metavar="NAME", help="Only those of this cluster.")
@name_server_option
@format_option
def list_brokers(cluster: str | None, name_server: str, output: str) -> int:
    """List the brokers, each asked how it fares."""
    from kourou.admin import cluster as clusters

    with cluster_at(name_server) as connection:
        found = clusters.state(connection, cluster)
    show([_state_row(each) for each in found], LIST_COLUMNS, output, LIST_WIDE)
    for each in found:
        if each.error is not None:
            note(each.error)
    return UNREACHABLE if any(each.error is not None for each in found) else 0


def _state_row(state: NodeState) -> Row:
    from kourou.admin import messages

    node, runtime = state.node, state.runtime
    row: dict[str, object] = {
        "cluster": node.cluster,
        "broker": node.broker,
        "broker_id": node.broker_id,
        "address": node.address,
        "state": "unreachable" if runtime is None else "active" if runtime.is_active else "inactive",
        "error": state.error,
    }
    if runtime is not None:
        row |= {
            "version": runtime.version,
            "in_tps": round(runtime.in_tps, 2),
            "out_tps": round(runtime.out_tps, 2),
            "disk_used": f"{runtime.disk_ratio * 100:.0f}%",
            "disk_ratio": runtime.disk_ratio,
            "put_today": runtime.put_today,
            "got_today": runtime.got_today,
            "put_yesterday": runtime.put_yesterday,
            "got_yesterday": runtime.got_yesterday,
            "timers_waiting": runtime.timers_waiting,
            "page_cache_wait_ms": runtime.page_cache_wait_ms,
            "oldest_message": messages.moment(runtime.earliest_message_ms)
            if runtime.earliest_message_ms > 0
            else None,
        }
    return row


@broker.command("show")
@click.argument("name")
@name_server_option
@format_option
def show_broker(name: str, name_server: str, output: str) -> None:
    """Show every figure a broker tells of itself. NAME may be its host:port."""
    from kourou.admin import brokers
    from kourou.admin import cluster as clusters

    with cluster_at(name_server) as connection:
        node = clusters.node(connection, name)
        runtime = brokers.runtime(connection, node.address)
    show(
        [{"key": key, "value": value} for key, value in sorted(runtime.table.items())],
        ("key", "value"),
        output,
    )


@broker.group("config")
def broker_config() -> None:
    """See and change the settings of a broker that runs."""


@broker_config.command("show")
@click.argument("name")
@click.option("--match", metavar="TEXT", help="Only keys with this in their name.")
@name_server_option
@format_option
def show_config(name: str, match: str | None, name_server: str, output: str) -> None:
    """Show the settings of the broker NAME."""
    from kourou.admin import brokers
    from kourou.admin import cluster as clusters

    with cluster_at(name_server) as connection:
        found = brokers.configuration(connection, clusters.node(connection, name).address)
    rows: list[Row] = [
        {"key": key, "value": value}
        for key, value in sorted(found.items())
        if match is None or match.lower() in key.lower()
    ]
    show(rows, ("key", "value"), output)


@broker_config.command("set")
@click.argument("name")
@click.argument("settings", metavar="KEY=VALUE…", nargs=-1, required=True)
@change_options
@name_server_option
@format_option
def set_config(
    name: str, settings: tuple[str, ...], dry_run: bool, yes: bool, name_server: str, output: str
) -> None:
    """Change settings of the broker NAME while it runs. All, or none.

    Only those marked (remote) in the reference can be changed so. A broker of ours forgets them when it
    stops: what is to stay belongs into its configuration file.
    """
    from kourou.admin import brokers
    from kourou.admin import cluster as clusters

    changes = dict(map(_setting, settings))
    with cluster_at(name_server) as connection:
        address = clusters.node(connection, name).address
        before = brokers.configuration(connection, address)
        rows: list[Row] = [
            {"key": key, "before": before.get(key), "after": value} for key, value in changes.items()
        ]
        show(rows, ("key", "before", "after"), output)
        if dry_run:
            note("nothing was changed")
            return
        confirmed(f"{len(changes)} settings of broker '{name}' change.", yes)
        brokers.configure(connection, address, changes)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        raise ConfigError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


@broker.command()
@click.argument("name")
@click.argument("what", type=click.Choice(["log", "queues", "topics"]))
@change_options
@name_server_option
def clean(name: str, what: str, dry_run: bool, yes: bool, name_server: str) -> None:
    """Have the broker NAME let go of what has expired. Of log files, queues, or queues of deleted topics."""
    from kourou.admin import brokers
    from kourou.admin import cluster as clusters

    clean = {
        "log": brokers.delete_expired_log,
        "queues": brokers.clean_expired_queues,
        "topics": brokers.clean_unused_topics,
    }[what]
    with cluster_at(name_server) as connection:
        address = clusters.node(connection, name).address
        if dry_run:
            note(f"nothing was changed; {address} would be asked")
            return
        confirmed(f"Broker '{name}' lets go of what has expired.", yes)
        clean(connection, address)


@broker.command("write")
@click.argument("name")
@click.argument("allowed", type=click.Choice(["on", "off"]))
@change_options
@name_server_option
@format_option
def write_permission(
    name: str, allowed: str, dry_run: bool, yes: bool, name_server: str, output: str
) -> None:
    """Whether producers find the queues of the broker NAME. At every name server.

    With `on`, a broker that was drained takes messages again.
    """
    from kourou.admin import cluster as clusters
    from kourou.admin import draining, nameservers

    with cluster_at(name_server) as connection:
        node = clusters.node(connection, name)
        if dry_run:
            note(f"nothing was changed; {', '.join(nameservers.addresses(connection))} would be told")
            return
        what = "find it again" if allowed == "on" else "find it no more"
        confirmed(f"Producers {what}: broker '{node.broker}'.", yes)
        if allowed == "on":
            told = draining.undo(connection, node)
        else:
            told = nameservers.wipe_write(connection, node.broker)
    rows = [{"name_server": address, "topics": topics} for address, topics in told.items()]
    show(rows, ("name_server", "topics"), output)
