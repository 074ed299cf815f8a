"""`kourou timer …`: messages that wait for their time, and taking them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kourou.cli.changing import change_options
from kourou.cli.connection import cluster_at, name_server_option
from kourou.cli.message import FOUND_COLUMNS, FOUND_WIDE, found_row
from kourou.cli.output import Row, confirmed, counted, format_option, note, show

if TYPE_CHECKING:
    from kourou.admin.timers import Waiting

COLUMNS = ("due", "in_seconds", "kind", "topic", "message_id", "broker", "tags", "keys")


@click.group()
def timer() -> None:
    """See messages that wait for their time, take them back."""


@timer.command("ls")
@click.option("-t", "--topic", help="Only for this topic.")
@click.option("-b", "--broker", metavar="BROKER", help="Only at this broker.")
@click.option("--count", type=click.IntRange(1), default=64, show_default=True, help="At most so many.")
@name_server_option
@format_option
def list_waiting(topic: str | None, broker: str | None, count: int, name_server: str, output: str) -> None:
    """List the messages that are not due yet, the soonest first."""
    from kourou.admin import timers

    with cluster_at(name_server) as connection:
        found = timers.waiting(connection, topic=topic, broker=broker, count=count)
        now_ms = connection.clock.now_ms()
    show([_row(each, now_ms) for each in found], COLUMNS, output, ("level", "offset_id"))


def _row(each: Waiting, now_ms: int) -> Row:
    from kourou.admin import messages

    return {
        "due": messages.moment(each.due_ms),
        "due_ms": each.due_ms,
        "in_seconds": max(0, each.due_ms - now_ms) // 1000,
        "kind": each.kind,
        "level": each.level,
        "topic": each.topic,
        "message_id": each.message_id,
        "offset_id": each.offset_id,
        "broker": each.broker,
        "tags": each.tags,
        "keys": each.keys,
    }


@timer.command("count")
@name_server_option
@format_option
def count_waiting(name_server: str, output: str) -> None:
    """Say how many messages of each topic wait for a moment of their own."""
    from kourou.admin import timers

    with cluster_at(name_server) as connection:
        found = timers.counts(connection)
    show(
        [{"topic": topic, "messages": count} for topic, count in found.items()], ("topic", "messages"), output
    )


@timer.command("show")
@click.argument("message_id")
@name_server_option
@format_option
def show_waiting(message_id: str, name_server: str, output: str) -> None:
    """Show the message with this id while it waits."""
    from kourou.admin import timers

    with cluster_at(name_server) as connection:
        found = timers.find(connection, message_id)
    show([found_row(found.message, output)], FOUND_COLUMNS, output, FOUND_WIDE)


@timer.command()
@click.argument("message_ids", metavar="MESSAGE_ID…", nargs=-1, required=True)
@change_options
@name_server_option
@format_option
def cancel(message_ids: tuple[str, ...], dry_run: bool, yes: bool, name_server: str, output: str) -> None:
    """Take messages back that are not due yet: nobody ever gets them.

    Brokers allow it when recallMessageEnable is set. Messages of a delay level cannot be taken back.
    """
    from kourou.admin import timers

    with cluster_at(name_server) as connection:
        found = [timers.find(connection, each) for each in message_ids]
        now_ms = connection.clock.now_ms()
        show([_row(each, now_ms) for each in found], COLUMNS, output)
        if dry_run:
            note("nothing was changed")
            return
        confirmed(f"Taken back: {counted(len(found), 'message')}; nobody ever gets what is taken back.", yes)
        for each in found:
            timers.cancel(connection, each)
