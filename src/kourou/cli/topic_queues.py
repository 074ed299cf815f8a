"""`kourou topic resize`: more queues at once; fewer when those that go are empty."""

from __future__ import annotations

import click

from kourou.cli.broker_switching import NotDrained, follow
from kourou.cli.changing import DURATION, Duration, change_options
from kourou.cli.connection import broker_option, cluster_at, name_server_option
from kourou.cli.output import confirmed, counted, note

QUEUES_MAX = 65_535


@click.command()
@click.argument("name")
@click.argument("queues", type=click.IntRange(1, QUEUES_MAX))
@broker_option
@click.option(
    "--route-period",
    type=Duration(most=3600),
    default=30.0,
    show_default=True,
    help="Seconds without a send until every producer has learnt of it.",
)
@click.option("--timeout", type=DURATION, default=600.0, show_default=True, help="Seconds to wait, at most.")
@change_options
@name_server_option
def resize(
    name: str,
    queues: int,
    broker: str | None,
    route_period: float,
    timeout: float,
    dry_run: bool,
    yes: bool,
    name_server: str,
) -> None:
    """Give the topic NAME so many QUEUES at each of its brokers.

    Fewer: first nobody writes to those that go; when every group has read what is in them, nobody reads them
    any more. Left off in between, there are fewer queues to write to and all to read; run it again.
    """
    from kourou.admin import draining, topics

    topics.check_not_of_system(name)
    with cluster_at(name_server) as connection:
        for part in topics.show(connection, name):
            click.echo(
                f"{part.broker}: {part.write_queues} write and {part.read_queues} read queues of '{name}'"
            )
        if dry_run:
            note("nothing was changed")
            return
        confirmed(f"Topic '{name}' gets {counted(queues, 'queue')} at each broker.", yes)
        steps = draining.resize(connection, name, queues, broker=broker, period_seconds=route_period)
        if not follow(steps, timeout):
            raise NotDrained(
                f"the queues of '{name}' from {queues} on are not empty after {timeout:g} s; they go on "
                "being read. Run it again"
            )
