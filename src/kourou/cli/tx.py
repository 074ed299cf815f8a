"""`kourou tx …`: half messages, and how their transactions are to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kourou.cli.changing import change_options
from kourou.cli.connection import cluster_at, name_server_option
from kourou.cli.message import FOUND_COLUMNS, FOUND_WIDE, found_row
from kourou.cli.output import Row, confirmed, format_option, note, show

if TYPE_CHECKING:
    from kourou.admin.transactions import Half

COLUMNS = ("state", "message_id", "topic", "producer_group", "broker", "age_seconds", "checks", "keys")


@click.group()
def tx() -> None:
    """See half messages, resume, commit or roll back."""


@tx.command("ls")
@click.option("--discarded", is_flag=True, help="Those that were given up, not those that wait.")
@click.option("-t", "--topic", help="Only for this topic.")
@click.option("-g", "--group", help="Only of this producer group.")
@click.option("-b", "--broker", metavar="BROKER", help="Only at this broker.")
@name_server_option
@format_option
def list_halves(
    discarded: bool, topic: str | None, group: str | None, broker: str | None, name_server: str, output: str
) -> None:
    """List the half messages that wait for the end of their transaction."""
    from kourou.admin import transactions

    with cluster_at(name_server) as connection:
        look = transactions.discarded if discarded else transactions.open_halves
        halves = [
            half
            for half in look(connection, broker)
            if topic in (None, half.topic) and group in (None, half.producer_group)
        ]
        now_ms = connection.clock.now_ms()
    show([_row(half, now_ms) for half in halves], COLUMNS, output, ("offset_id", "transaction_id", "tags"))


def _row(half: Half, now_ms: int) -> Row:
    return {
        "state": half.state,
        "message_id": half.message_id,
        "offset_id": half.offset_id,
        "transaction_id": half.transaction_id,
        "topic": half.topic,
        "producer_group": half.producer_group,
        "broker": half.broker,
        "born_ms": half.born_ms,
        "stored_ms": half.stored_ms,
        "age_seconds": max(0, now_ms - half.stored_ms) // 1000,
        "checks": half.checks,
        "tags": half.tags,
        "keys": half.keys,
    }


@tx.command("show")
@click.argument("message_id")
@name_server_option
@format_option
def show_half(message_id: str, name_server: str, output: str) -> None:
    """Show the half message with this id."""
    from kourou.admin import transactions

    with cluster_at(name_server) as connection:
        half = transactions.find(connection, message_id)
    show([found_row(half.message, output)], FOUND_COLUMNS, output, FOUND_WIDE)


@tx.command()
@click.argument("message_id")
@change_options
@name_server_option
@format_option
def resume(message_id: str, dry_run: bool, yes: bool, name_server: str, output: str) -> None:
    """Have producers asked again about a half message that was given up."""
    from kourou.admin import transactions
    from kourou.errors import ConfigError

    with cluster_at(name_server) as connection:
        half = transactions.find(connection, message_id)
        if half.state != "discarded":
            raise ConfigError(f"half message {message_id} was not given up: its producers are still asked")
        show([_row(half, connection.clock.now_ms())], COLUMNS, output)
        if dry_run:
            note("nothing was changed")
            return
        confirmed(f"Producers of group '{half.producer_group}' are asked about {half.message_id} again.", yes)
        transactions.resume(connection, half)


@tx.command()
@click.argument("message_id")
@change_options
@name_server_option
@format_option
def commit(message_id: str, dry_run: bool, yes: bool, name_server: str, output: str) -> None:
    """Commit in the producer's stead: consumers get the message."""
    _end(message_id, True, dry_run, yes, name_server, output)


@tx.command()
@click.argument("message_id")
@change_options
@name_server_option
@format_option
def rollback(message_id: str, dry_run: bool, yes: bool, name_server: str, output: str) -> None:
    """Roll back in the producer's stead: nobody ever gets the message."""
    _end(message_id, False, dry_run, yes, name_server, output)


def _end(message_id: str, commits: bool, dry_run: bool, yes: bool, name_server: str, output: str) -> None:
    from kourou.admin import transactions

    with cluster_at(name_server) as connection:
        half = transactions.find(connection, message_id)
        show([_row(half, connection.clock.now_ms())], COLUMNS, output)
        if dry_run:
            note("nothing was changed")
            return
        fate = "delivered to its consumers" if commits else "rolled back, and nobody ever gets it"
        confirmed(f"Half message {half.message_id} of '{half.topic}' is {fate}.", yes)
        transactions.end(connection, half, commit=commits)
