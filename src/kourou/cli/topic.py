"""`kourou topic …`: make topics, list them, see where they are and what is in them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from kourou.cli.changing import change_options
from kourou.cli.connection import broker_option, cluster_at, name_server_option
from kourou.cli.exit_codes import UNREACHABLE
from kourou.cli.output import Row, confirmed, counted, format_option, note, show
from kourou.cli.topic_queues import resize

if TYPE_CHECKING:
    from kourou.admin import Connection
    from kourou.admin.cluster import Node
    from kourou.admin.topics import TopicAt, Wanted

QUEUES_MAX = 65_535
KINDS = ("normal", "delay", "fifo", "transaction", "mixed", "unspecified", "retry", "dlq", "system")
MESSAGE_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "UNSPECIFIED")
PERMISSIONS = ("2", "4", "6")


@click.group()
def topic() -> None:
    """Make topics, list them, see where they are."""


topic.add_command(resize)


@topic.command("ls")
@click.option(
    "-a", "--all", "everything", is_flag=True, help="Also those of the system, retries and dead letters."
)
@click.option("-c", "--cluster", metavar="NAME", help="Only those of this cluster.")
@click.option("--kind", type=click.Choice(KINDS), help="Only topics of this kind.")
@click.option("--match", metavar="TEXT", help="Only topics with this in their name.")
@name_server_option
@format_option
def list_topics(
    everything: bool, cluster: str | None, kind: str | None, match: str | None, name_server: str, output: str
) -> None:
    """List the topics."""
    from kourou.admin import topics

    with cluster_at(name_server) as connection:
        if output == "table" and cluster is None and kind is None:
            rows: list[Row] = [{"topic": name} for name in topics.names(connection, everything=everything)]
        else:
            everything = everything or kind in ("retry", "dlq", "system")
            found = topics.all_topics(connection, everything=everything, cluster=cluster)
            rows = [
                {
                    "topic": each.name,
                    "kind": each.kind,
                    "brokers": list(each.brokers),
                    "read_queues": each.read_queues,
                    "write_queues": each.write_queues,
                    "perm": each.perm,
                    "order": each.order,
                    "settings_differ": each.settings_differ,
                }
                for each in found
                if kind in (None, each.kind)
            ]
    rows = [row for row in rows if match is None or match in str(row["topic"])]
    wide = ("kind", "brokers", "read_queues", "write_queues", "perm", "order", "settings_differ")
    show(rows, ("topic",), output, wide)


@topic.command()
@click.argument("name")
@click.option("-r", "--read-queues", type=click.IntRange(1, QUEUES_MAX), default=8, show_default=True)
@click.option("-w", "--write-queues", type=click.IntRange(1, QUEUES_MAX), default=8, show_default=True)
@click.option(
    "-p",
    "--perm",
    type=click.Choice(PERMISSIONS),
    default="6",
    show_default=True,
    help="2 may be written, 4 may be read, 6 both.",
)
@click.option("--order", is_flag=True, help="An ordered topic.")
@click.option("--type", "message_type", type=click.Choice(MESSAGE_TYPES), help="What messages it is for.")
@click.option(
    "--attribute",
    "attributes",
    metavar="NAME=VALUE",
    multiple=True,
    help="May be repeated; NAME= removes it.",
)
@broker_option
@click.option("-c", "--cluster", metavar="NAME", help="At every master of this cluster.")
@change_options
@name_server_option
@format_option
def create(
    name: str,
    read_queues: int,
    write_queues: int,
    perm: str,
    order: bool,
    message_type: str | None,
    attributes: tuple[str, ...],
    broker: str | None,
    cluster: str | None,
    dry_run: bool,
    yes: bool,
    name_server: str,
    output: str,
) -> int:
    """Make the topic NAME, or change it. Without -b and -c: at every master of the only cluster.

    One that is there with more queues is asked about: nobody reads those that go. `kourou topic resize` waits
    until they are empty.
    """
    from kourou.admin import topics
    from kourou.client import settings

    if broker and cluster:
        raise click.UsageError("-b and -c both say where; give one of them")
    topics.check_not_of_system(settings.checked_topic(name))
    changes = dict(map(_attribute, attributes))
    if message_type is not None:
        changes["message.type"] = message_type
    wanted = topics.Wanted(name, read_queues, write_queues, int(perm), order, attributes=changes)
    with cluster_at(name_server) as connection:
        nodes = _targets(connection, cluster, broker)
        if hidden := topics.hidden_by(connection, wanted, nodes):
            _ask_about(hidden, wanted, yes or dry_run)
        outcomes = topics.save(connection, wanted, nodes) if not dry_run else []
    failed = {outcome.of: str(outcome.error) for outcome in outcomes if outcome.error is not None}
    rows: list[Row] = [
        {
            "topic": name,
            "broker": node.address,
            "read_queues": None if node in failed else read_queues,
            "write_queues": None if node in failed else write_queues,
            "perm": None if node in failed else int(perm),
            "error": failed.get(node),
        }
        for node in nodes
    ]
    columns = ["topic", "broker", "read_queues", "write_queues", "perm"]
    show(rows, [*columns, "error"] if failed else columns, output)
    if dry_run:
        note("nothing was changed")
    for error in (outcome.error for outcome in outcomes if outcome.error is not None):
        raise error
    return 0


def _ask_about(hidden: list[TopicAt], wanted: Wanted, yes: bool) -> None:
    places = ", ".join(f"{each.read_queues}/{each.write_queues} at {each.broker}" for each in hidden)
    confirmed(
        f"Topic '{wanted.name}' has more queues than {wanted.read_queues}/{wanted.write_queues} ({places}); "
        "what lies in those that go is not read any more; `kourou topic resize` waits until they are empty.",
        yes,
    )


def _attribute(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--attribute")
    return name, value


def _targets(connection: Connection, cluster: str | None, broker: str | None) -> list[Node]:
    """Where to make a change; a broker's address is enough to reach that broker, without any name server."""
    from kourou.admin import topics
    from kourou.admin.cluster import Node
    from kourou.remoting.address import parse_address

    if broker is not None and ":" in broker:
        parse_address(broker)
        return [Node("", broker, 0, broker)]
    return topics.targets(connection, cluster, broker)


@topic.command("show")
@click.argument("name")
@name_server_option
@format_option
def show_topic(name: str, name_server: str, output: str) -> None:
    """Show the settings of the topic NAME at each of its brokers."""
    from kourou.admin import topics

    with cluster_at(name_server) as connection:
        parts = topics.show(connection, name)
    columns = ("topic", "cluster", "broker", "address", "read_queues", "write_queues", "perm", "order")
    show([asdict(part) for part in parts], columns, output, ("attributes",))


@topic.command()
@click.argument("name")
@name_server_option
@format_option
def route(name: str, name_server: str, output: str) -> None:
    """Show which brokers have the topic NAME, and how many of its queues."""
    from kourou.client import operations, settings

    with cluster_at(name_server) as connection:
        parts = connection.run(operations.route_parts(connection.routes, settings.checked_topic(name)))
    show([part._asdict() for part in parts], operations.RoutePart._fields, output)


@topic.command()
@click.argument("name")
@name_server_option
@format_option
def stats(name: str, name_server: str, output: str) -> int:
    """Show where the queues of the topic NAME begin and end. And when each was last written to."""
    from kourou.admin import messages, topics

    with cluster_at(name_server) as connection:
        found = topics.stats(connection, name)
    rows: list[Row] = [
        {
            "broker": queue.broker,
            "queue_id": queue.queue_id,
            "min_offset": queue.min_offset,
            "max_offset": queue.max_offset,
            "messages": queue.messages,
            "last_updated": messages.moment(queue.last_updated_ms) if queue.last_updated_ms else None,
        }
        for queue in found.queues
    ]
    show(rows, ("broker", "queue_id", "min_offset", "max_offset", "messages", "last_updated"), output)
    if output in ("table", "wide"):
        click.echo(f"\n{counted(found.messages, 'message')}, {found.put_tps:.2f} a second")
    for missing in found.missing:
        note(f"not asked: {missing}")
    return UNREACHABLE if found.missing else 0


@topic.command("groups")
@click.argument("name")
@name_server_option
@format_option
def groups_of(name: str, name_server: str, output: str) -> None:
    """List the groups that consume the topic NAME, or ever did."""
    from kourou.admin import topics

    with cluster_at(name_server) as connection:
        found = topics.groups_of(connection, name)
    show([{"group": group} for group in found], ("group",), output)


@topic.command()
@click.argument("name")
@click.argument("permission", type=click.Choice(PERMISSIONS))
@broker_option
@change_options
@name_server_option
@format_option
def perm(
    name: str, permission: str, broker: str | None, dry_run: bool, yes: bool, name_server: str, output: str
) -> None:
    """Set what may be done with the topic NAME. 2 may be written, 4 may be read, 6 both."""
    from kourou.admin import topics

    topics.check_not_of_system(name)
    with cluster_at(name_server) as connection:
        before = [
            part for part in topics.show(connection, name) if broker in (None, part.broker, part.address)
        ]
        rows: list[Row] = [
            {"topic": name, "broker": part.broker, "before": part.perm, "after": int(permission)}
            for part in before
        ]
        show(rows, ("topic", "broker", "before", "after"), output)
        if dry_run:
            note("nothing was changed")
            return
        confirmed(f"The permission of topic '{name}' becomes {permission}.", yes)
        topics.set_permission(connection, name, int(permission), broker)


@topic.command()
@click.argument("name")
@click.option("-c", "--cluster", metavar="NAME", help="Only at the brokers of this cluster.")
@click.option("--idempotent", is_flag=True, help="No error when there is no such topic.")
@change_options
@name_server_option
@format_option
def rm(
    name: str,
    cluster: str | None,
    idempotent: bool,
    dry_run: bool,
    yes: bool,
    name_server: str,
    output: str,
) -> None:
    """Delete the topic NAME, its messages, and where its readers were."""
    from kourou.admin import topics
    from kourou.errors import NoMaster, NotFound

    topics.check_not_of_system(name)
    with cluster_at(name_server) as connection:
        count, readers = 0, list[str]()
        try:
            count = topics.stats(connection, name).messages
            readers = topics.groups_of(connection, name)
        except NoMaster:
            raise  # nobody could say whether there is such a topic
        except NotFound:
            if topics.exists(connection, name):
                note(f"its brokers have no topic '{name}' any more, and the name servers still tell of it")
            elif idempotent:
                note(f"there is no topic '{name}'")
                return
            else:
                raise
        row = {"topic": name, "messages": count, "groups": readers}
        show([row], ("topic", "messages", "groups"), output)
        if dry_run:
            note("nothing was changed")
            return
        confirmed(f"Topic '{name}' and its {counted(count, 'message')} go.", yes)
        topics.delete(connection, name, cluster)
