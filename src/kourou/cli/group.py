"""`kourou group …`: who consumes, how far they are, and where they go on."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

import click

from kourou.cli.changing import MOMENT, change_options
from kourou.cli.connection import broker_option, cluster_at, name_server_option
from kourou.cli.exit_codes import UNREACHABLE
from kourou.cli.output import Row, as_text, confirmed, counted, format_option, note, progress, show

if TYPE_CHECKING:
    from kourou.admin.groups import GroupState
    from kourou.admin.offsets import QueueMove, Where

STATE_COLUMNS = ("group", "members", "consume_type", "message_model", "tps", "lag")
LAG_COLUMNS = (
    "topic",
    "broker",
    "queue_id",
    "broker_offset",
    "consumer_offset",
    "lag",
    "in_flight",
    "behind",
)
MOVE_COLUMNS = ("topic", "broker", "queue_id", "before", "after", "again", "skipped", "lag_after")


@click.group()
def group() -> None:
    """See who consumes and how far they are; move where they go on."""


@group.command("ls")
@click.option("-a", "--all", "everything", is_flag=True, help="Also those of the system.")
@click.option("--match", metavar="TEXT", help="Only groups with this in their name.")
@name_server_option
@format_option
def list_groups(everything: bool, match: str | None, name_server: str, output: str) -> None:
    """List the groups: members, rate, lag."""
    from kourou.admin import groups

    with cluster_at(name_server) as connection:
        found = groups.names(connection, everything=everything)
        states = groups.states(connection, [name for name in found if match is None or match in name])
    show([_state_row(each) for each in states], STATE_COLUMNS, output, ("version", "topics", "disagreements"))
    for state in states:
        for why in state.disagreements:
            note(f"group {state.group}: {why}")


def _state_row(state: GroupState) -> Row:
    return {**asdict(state), "topics": list(state.topics), "disagreements": list(state.disagreements)}


@group.command("show")
@click.argument("name")
@name_server_option
@format_option
def show_group(name: str, name_server: str, output: str) -> None:
    """Show the settings of the group NAME at each broker that knows it."""
    from kourou.admin import groups

    with cluster_at(name_server) as connection:
        found = groups.show(connection, name)
    rows: list[Row] = [
        {
            "group": name,
            "broker": node.broker,
            "consume_enable": config.consume_enable,
            "consume_broadcast_enable": config.consume_broadcast_enable,
            "consume_from_min_enable": config.consume_from_min_enable,
            "retry_max_times": config.retry_max_times,
            "retry_queue_nums": config.retry_queue_nums,
            "consume_message_orderly": config.consume_message_orderly,
            "consume_timeout_minute": config.consume_timeout_minute,
            "notify_consumer_ids_changed_enable": config.notify_consumer_ids_changed_enable,
            "attributes": dict(config.attributes),
        }
        for node, config in found
    ]
    columns = ("group", "broker", "consume_enable", "retry_max_times", "retry_queue_nums")
    wide = [name for name in rows[0] if name not in columns]
    show(rows, columns, output, wide)


@group.command()
@click.argument("name")
@click.option("-t", "--topic", help="Only this topic.")
@click.option("--owners", is_flag=True, help="Also who has each queue; every member is asked.")
@name_server_option
@format_option
def lag(name: str, topic: str | None, owners: bool, name_server: str, output: str) -> int:
    """Show how far the group NAME is in each queue."""
    from kourou.admin import groups, messages

    with cluster_at(name_server) as connection:
        found = groups.lag(connection, name, topic, owners=owners)
        now_ms = connection.clock.now_ms()
    rows: list[Row] = [
        {
            **asdict(queue),
            "behind": _duration(queue.behind_ms(now_ms)),
            "behind_ms": queue.behind_ms(now_ms),
            "last_consumed": messages.moment(queue.last_consumed_ms) if queue.last_consumed_ms else None,
        }
        for queue in found.queues
    ]
    columns = (*LAG_COLUMNS, "client_id") if owners else LAG_COLUMNS
    show(rows, columns, output, ("pull_offset", "last_consumed"))
    if output in ("table", "wide"):
        click.echo(f"\nlag {found.total}, in flight {found.in_flight}, {found.tps:.2f} a second")
    for missing in found.missing:
        note(f"not asked: {missing}")
    return UNREACHABLE if found.missing else 0


def _duration(ms: int) -> str:
    if ms <= 0:
        return ""
    seconds = ms // 1000
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


@group.command()
@click.argument("name")
@name_server_option
@format_option
def members(name: str, name_server: str, output: str) -> None:
    """List the consumers of the group NAME that are connected. Says what the group wants, too."""
    from kourou.admin import groups

    with cluster_at(name_server) as connection:
        found = groups.members(connection, name)
    wants = {each.topic: f"{each.kind} {each.expression}" for each in found.subscriptions}
    rows: list[Row] = [
        {
            **asdict(member),
            "brokers": list(member.brokers),
            "consume_type": found.consume_type,
            "message_model": found.message_model,
            "consume_from": found.consume_from,
            "subscriptions": wants,
        }
        for member in found.members
    ]
    wide = ("consume_type", "message_model", "consume_from", "subscriptions")
    show(rows, ("client_id", "address", "language", "version", "brokers"), output, wide)
    if output == "table":
        click.echo(f"\n{found.consume_type} {found.message_model} {found.consume_from}")
        for topic, expression in wants.items():
            click.echo(as_text(f"{topic}  {expression}"))
    for why in found.disagreements:
        note(why)


@group.command()
@click.argument("name")
@click.argument("client_id", required=False)
@click.option("--stacks", is_flag=True, help="Also the stack of every thread.")
@name_server_option
@format_option
def info(name: str, client_id: str | None, stacks: bool, name_server: str, output: str) -> None:
    """Ask members of the group NAME what they have to do. Which queues, and how fast they are."""
    from kourou.admin import groups

    with cluster_at(name_server) as connection:
        ids = (
            [client_id]
            if client_id
            else [each.client_id for each in groups.members(connection, name).members]
        )
        told = connection.all(ids, lambda each: groups.running_info(connection, name, each, stacks=stacks))
    rows: list[Row] = [
        {
            "client_id": client,
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue_id": queue.queue_id,
            "commit_offset": held.commit_offset,
            "cached": held.cached_msg_count,
            "locked": held.locked,
            "consume_ok_tps": told_of.status_table[queue.topic].consume_ok_tps
            if queue.topic in told_of.status_table
            else 0.0,
            "consume_rt_ms": told_of.status_table[queue.topic].consume_rt
            if queue.topic in told_of.status_table
            else 0.0,
            **({"properties": dict(told_of.properties)} if output in ("json", "jsonl") else {}),
        }
        for client, told_of in told
        for queue, held in sorted(told_of.mq_table.items())
    ]
    columns = ("client_id", "topic", "broker", "queue_id", "commit_offset", "cached", "locked")
    show(rows, columns, output, ("consume_ok_tps", "consume_rt_ms"))
    if stacks:
        for client, told_of in told:
            click.echo(f"\n{as_text(client)}")
            for line in (told_of.jstack or "no stacks were told").splitlines():
                click.echo(as_text(line))


@group.command()
@click.argument("name")
@click.option("--retries", type=click.IntRange(-1, 1_000_000), help="How often a message is tried again.")
@click.option("--retry-queues", type=click.IntRange(0, 65_535), help="Queues of its retry topic.")
@click.option("--enable/--disable", "enabled", default=None, help="Whether it may consume at all.")
@click.option("--broadcast/--no-broadcast", "broadcast", default=None, help="Whether it may broadcast.")
@click.option("--ordered/--not-ordered", "ordered", default=None, help="Whether it consumes in order (5.x).")
@broker_option
@click.option("-c", "--cluster", metavar="NAME", help="At every master of this cluster.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@name_server_option
@format_option
def create(
    name: str,
    retries: int | None,
    retry_queues: int | None,
    enabled: bool | None,
    broadcast: bool | None,
    ordered: bool | None,
    broker: str | None,
    cluster: str | None,
    dry_run: bool,
    name_server: str,
    output: str,
) -> None:
    """Make the group NAME, or change what is said. Without -b and -c: at every master of the only cluster."""
    from msgspec.structs import replace

    from kourou.admin import groups, topics
    from kourou.errors import NotFound
    from kourou.protocol.bodies import SubscriptionGroupConfig

    if broker and cluster:
        raise click.UsageError("-b and -c both say where; give one of them")
    given = {
        "retry_max_times": retries,
        "retry_queue_nums": retry_queues,
        "consume_enable": enabled,
        "consume_broadcast_enable": broadcast,
        "consume_message_orderly": ordered,
    }
    changes = {field: value for field, value in given.items() if value is not None}
    with cluster_at(name_server) as connection:
        nodes = topics.targets(connection, cluster, broker)
        try:
            known = {node.address: config for node, config in groups.show(connection, name)}
        except NotFound:
            known = {}
        rows: list[Row] = []
        for node in nodes:
            before = known.get(node.address)
            config = replace(before or SubscriptionGroupConfig(group_name=name), **changes)
            rows.append(
                {
                    "group": name,
                    "broker": node.broker,
                    "is_new": before is None,
                    "consume_enable": config.consume_enable,
                    "retry_max_times": config.retry_max_times,
                    "retry_queue_nums": config.retry_queue_nums,
                }
            )
            if not dry_run:
                for outcome in groups.save(connection, config, [node]):
                    if outcome.error is not None:
                        raise outcome.error
    columns = ("group", "broker", "is_new", "consume_enable", "retry_max_times", "retry_queue_nums")
    show(rows, columns, output)
    if dry_run:
        note("nothing was changed")


@group.command()
@click.argument("name")
@click.option("-t", "--topic", required=True, help="The topic to go on elsewhere in.")
@click.option(
    "--to-time", type=MOMENT, help="The first message stored then or later; 10m is ten minutes ago."
)
@click.option("--to-offset", type=click.IntRange(0), help="This offset; mostly together with --queue.")
@click.option("--earliest", is_flag=True, help="The first message there is.")
@click.option("--latest", is_flag=True, help="Behind the last message there is.")
@click.option(
    "--queue", "queues", type=click.IntRange(0), multiple=True, help="Only this queue; may be repeated."
)
@click.option("-b", "--broker", metavar="BROKER", help="Only queues of this broker.")
@change_options
@name_server_option
@format_option
def reset(
    name: str,
    topic: str,
    to_time: datetime | None,
    to_offset: int | None,
    earliest: bool,
    latest: bool,
    queues: tuple[int, ...],
    broker: str | None,
    dry_run: bool,
    yes: bool,
    name_server: str,
    output: str,
) -> None:
    """Have the group NAME go on elsewhere. Per queue it is shown first what that means.

    Members that are connected are told, and go on there; a group without members goes on there when one
    comes.
    """
    from kourou.admin import offsets

    where = _where(to_time, to_offset, earliest, latest)
    with cluster_at(name_server) as connection:
        moves = offsets.plan(connection, name, topic, where, queues=queues or None, broker=broker)
        _show_moves(moves, output)
        if dry_run:
            note("nothing was changed")
            return
        confirmed(_meaning(moves), yes)
        with progress(len(moves)) as told:
            offsets.apply(connection, moves, told)
    note(f"group '{name}' goes on there in {counted(len(moves), 'queue')} of '{topic}'")


def _where(to_time: datetime | None, to_offset: int | None, earliest: bool, latest: bool) -> Where:
    said = [to_time is not None, to_offset is not None, earliest, latest]
    if sum(said) != 1:
        raise click.UsageError("say where, once: --to-time, --to-offset, --earliest or --latest")
    if to_time is not None:
        return to_time
    if to_offset is not None:
        return to_offset
    return "earliest" if earliest else "latest"


def _show_moves(moves: list[QueueMove], output: str) -> None:
    rows: list[Row] = [
        {
            **asdict(move),
            "again": move.again,
            "skipped": move.skipped,
            "lag_after": move.lag_after,
        }
        for move in moves
    ]
    show(rows, MOVE_COLUMNS, output, ("min_offset", "max_offset"))


def _meaning(moves: list[QueueMove]) -> str:
    again, skipped = sum(move.again for move in moves), sum(move.skipped for move in moves)
    return f"{counted(again, 'message')} to read again, {skipped} never to be read."


@group.command()
@click.argument("name")
@click.option("-t", "--topic", required=True, help="The topic whose backlog is to be forgotten.")
@change_options
@name_server_option
@format_option
def skip(name: str, topic: str, dry_run: bool, yes: bool, name_server: str, output: str) -> None:
    """Forget the backlog of the group NAME. It goes on with what comes from now on."""
    from kourou.admin import offsets

    with cluster_at(name_server) as connection:
        moves = offsets.skip(connection, name, topic)
        _show_moves(moves, output)
        if dry_run:
            note("nothing was changed")
            return
        confirmed(_meaning(moves), yes)
        offsets.apply(connection, moves)


@group.command()
@click.argument("source")
@click.argument("target")
@click.option("-t", "--topic", required=True, help="The topic.")
@change_options
@name_server_option
@format_option
def clone(
    source: str, target: str, topic: str, dry_run: bool, yes: bool, name_server: str, output: str
) -> None:
    """Have the group TARGET go on where the group SOURCE is."""
    from kourou.admin import offsets

    with cluster_at(name_server) as connection:
        moves = offsets.clone(connection, source, target, topic)
        _show_moves(moves, output)
        if dry_run:
            note("nothing was changed")
            return
        confirmed(_meaning(moves), yes)
        offsets.apply(connection, moves)


@group.command()
@click.argument("name")
@broker_option
@click.option("-c", "--cluster", metavar="NAME", help="At every master of this cluster.")
@click.option("--keep-offsets", is_flag=True, help="Remember where it was.")
@click.option("--idempotent", is_flag=True, help="No error when there is no such group.")
@change_options
@name_server_option
@format_option
def rm(
    name: str,
    broker: str | None,
    cluster: str | None,
    keep_offsets: bool,
    idempotent: bool,
    dry_run: bool,
    yes: bool,
    name_server: str,
    output: str,
) -> None:
    """Delete the group NAME, with its retries and dead letters."""
    from kourou.admin import groups, topics
    from kourou.errors import NoMaster, NotFound

    with cluster_at(name_server) as connection:
        try:
            groups.show(connection, name)
        except NotFound as error:
            if not idempotent or isinstance(error, NoMaster):
                raise
            note(f"there is no group '{name}'")
            return
        state = groups.state(connection, name)
        row = {"group": name, "members": state.members, "topics": list(state.topics), "lag": state.lag}
        show([row], ("group", "members", "topics", "lag"), output)
        if dry_run:
            note("nothing was changed")
            return
        online = f" It has {counted(state.members, 'member')}." if state.members else ""
        confirmed(f"Group '{name}', its retries and its dead letters go.{online}", yes)
        groups.delete(
            connection, name, topics.targets(connection, cluster, broker), keep_offsets=keep_offsets
        )
