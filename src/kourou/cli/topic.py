"""`kourou topic …`: make topics, list them, see where they are."""

from __future__ import annotations

import click

from kourou.cli.connection import cluster_at, name_server_option
from kourou.cli.output import format_option, show

QUEUES_MAX = 65_535


@click.group()
def topic() -> None:
    """Make topics, list them, see where they are."""


@topic.command()
@click.argument("name")
@click.option("-r", "--read-queues", type=click.IntRange(1, QUEUES_MAX), default=8, show_default=True)
@click.option("-w", "--write-queues", type=click.IntRange(1, QUEUES_MAX), default=8, show_default=True)
@click.option(
    "-p",
    "--perm",
    type=click.Choice(["2", "4", "6"]),
    default="6",
    show_default=True,
    help="2 may be written, 4 may be read, 6 both.",
)
@click.option("-b", "--broker", metavar="ADDRESS", help="Only at the broker at this host:port.")
@click.option("-c", "--cluster", metavar="NAME", help="At every master of this cluster.")
@name_server_option
@format_option
def create(
    name: str,
    read_queues: int,
    write_queues: int,
    perm: str,
    broker: str | None,
    cluster: str | None,
    name_server: str | None,
    output: str,
) -> None:
    """Make the topic NAME, or change it. Without -b and -c: at every master of the only cluster."""
    from kourou.client import operations, settings

    if broker and cluster:
        raise click.UsageError("-b and -c both say where; give one of them")
    wanted = operations.TopicSettings(settings.checked_topic(name), read_queues, write_queues, int(perm))
    with cluster_at(name_server or broker) as connected:  # a broker's address is enough to reach that broker
        if broker:
            addresses = [broker]
        else:
            masters = connected.driver.run(operations.masters(connected.name_servers, cluster))
            addresses = [master.address for master in masters]
        for address in addresses:
            connected.driver.run(operations.create_topic(address, wanted))
    rows = [
        {
            "topic": name,
            "broker": address,
            "read_queues": read_queues,
            "write_queues": write_queues,
            "perm": int(perm),
        }
        for address in addresses
    ]
    show(rows, ("topic", "broker", "read_queues", "write_queues", "perm"), output)


@topic.command("ls")
@click.option(
    "-a", "--all", "everything", is_flag=True, help="Also those of the system, retries and dead letters."
)
@name_server_option
@format_option
def list_topics(everything: bool, name_server: str | None, output: str) -> None:
    """List the topics."""
    from kourou.client import operations

    with cluster_at(name_server) as connected:
        names = connected.driver.run(operations.topic_names(connected.name_servers, everything=everything))
    show([{"topic": name} for name in names], ("topic",), output)


@topic.command()
@click.argument("name")
@name_server_option
@format_option
def route(name: str, name_server: str | None, output: str) -> None:
    """Show which brokers have the topic NAME, and how many of its queues."""
    from kourou.client import operations, settings

    with cluster_at(name_server) as connected:
        parts = connected.driver.run(operations.route_parts(connected.routes, settings.checked_topic(name)))
    rows = [part._asdict() for part in parts]
    show(rows, operations.RoutePart._fields, output)
