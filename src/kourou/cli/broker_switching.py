"""`kourou broker drain`, `promote` and `replicas`: take a broker out of service, let another one lead."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from kourou.cli.changing import DURATION, Duration, change_options
from kourou.cli.connection import cluster_at, name_server_option
from kourou.cli.exit_codes import CHECK_FAILED
from kourou.cli.output import Row, as_text, counted, format_option, is_terminal, note, show
from kourou.errors import MQError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kourou.admin.draining import DrainPlan
    from kourou.admin.steps import Step

LOOK_SECONDS = 1.0


class NotDrained(MQError):
    """Something is left, and nobody said that it may be."""

    exit_code = CHECK_FAILED


class NotPromoted(MQError):
    """It was asked to lead, and does not."""

    exit_code = CHECK_FAILED


@click.command()
@click.argument("name")
@click.option(
    "--route-period",
    type=Duration(most=3600),
    default=30.0,
    show_default=True,
    help="Seconds without a send until every producer has learnt of it.",
)
@click.option("--timeout", type=DURATION, default=600.0, show_default=True, help="Seconds to wait, at most.")
@click.option("--keep-running", is_flag=True, help="Do not stop it in the end.")
@change_options
@name_server_option
def drain(
    name: str,
    route_period: float,
    timeout: float,
    keep_running: bool,
    dry_run: bool,
    yes: bool,
    name_server: str,
) -> None:
    """Take the broker NAME out of service. No more sends, wait until all is consumed, stop it.

    Left off with Ctrl-C, it goes on serving readers; run it again to go on, or let producers find it again
    with `kourou broker write NAME on`.
    """
    from kourou.admin import draining

    with cluster_at(name_server) as connection:
        planned = draining.plan(connection, name)
        _show_plan(planned)
        if dry_run:
            note("nothing was changed")
            return
        if planned.only_here and not yes:
            raise NotDrained(
                f"{', '.join(planned.only_here)}: nobody could write to these topics any more. Create them "
                "at another broker first (kourou topic create TOPIC -b ADDRESS), or say --yes; nothing was "
                "changed"
            )
        is_done = follow(draining.drain(connection, planned, period_seconds=route_period), timeout)
        left = draining.left(connection, planned.node)
        if not is_done and not yes:
            raise NotDrained(
                f"{planned.node.broker} is not drained after {timeout:g} s, and goes on running; left: "
                f"{draining.described(left)}. Run it again, or with --yes to stop it all the same"
            )
        if keep_running:
            return
        draining.stop_all(connection, planned)
        click.echo(f"{planned.node.broker} stops; left behind: {draining.described(left)}")


def _show_plan(planned: DrainPlan) -> None:
    from kourou.admin import draining

    node = planned.node
    count = counted(len(planned.topics), "topic")
    click.echo(f"broker {node.broker} at {node.address}, cluster {node.cluster}: {count}")
    click.echo(f"  writable nowhere else: {', '.join(planned.only_here) or 'none'}")
    click.echo(f"  left to consume:       {draining.described(planned.left)}")
    if planned.replicas:
        addresses = ", ".join(replica.address for replica in planned.replicas)
        what = "which stop, too: " if planned.is_elected else "which stay:  "
        click.echo(f"  replicas, {what}{addresses}")


def follow(steps: Iterable[Step], timeout: float) -> bool:
    """Show each step as it is taken; whether they came to their end in time."""
    deadline = time.monotonic() + timeout
    shown = ""
    for step in steps:
        text = as_text(step.what)
        if is_terminal() and step.is_waiting:
            click.echo(f"\r\x1b[K… {text}", nl=False)
        elif text != shown:
            click.echo(f"{'…' if step.is_waiting else '✓'} {text}")
        shown = text
        if step.is_waiting:
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_SECONDS)
            if is_terminal():
                click.echo("\r\x1b[K", nl=False)
    return True


@click.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Also when it is behind: what it lacks is lost.")
@click.option(
    "--role",
    type=click.Choice(["SYNC_MASTER", "ASYNC_MASTER"]),
    help="What it leads as; by default as the old master. Brokers that elect have it in their files.",
)
@change_options
@name_server_option
def promote(name: str, force: bool, role: str | None, dry_run: bool, yes: bool, name_server: str) -> None:
    """Make the replica at this address the master. Its master becomes a replica of it.

    The old master takes no more messages, the new one gets what it lacks, then they change places.
    """
    from kourou.admin import switching
    from kourou.cli.output import confirmed

    with cluster_at(name_server) as connection:
        planned = switching.plan(connection, name)
        click.echo(switching.described(planned))
        switching.check(planned, force=force)
        if dry_run:
            note("nothing was changed")
            return
        confirmed(f"{planned.heir.address} becomes the master of {planned.heir.broker}.", yes)
        steps = switching.promote(connection, planned, force=force, role=role or "")
        if not follow(steps, switching.SECONDS_MAX):
            heir, why = planned.heir, switching.why_not_yet(planned)
            raise NotPromoted(
                f"{heir.address} does not lead {heir.broker} after {switching.SECONDS_MAX:g} s: {why}"
            )


@click.command()
@click.argument("name", required=False)
@name_server_option
@format_option
def replicas(name: str | None, name_server: str, output: str) -> None:
    """Show who leads, who follows and how far they are. Of the brokers called NAME, or of all."""
    from kourou.admin import switching

    with cluster_at(name_server) as connection:
        found = switching.states(connection, name)
    rows: list[Row] = [
        {
            "broker": each.node.broker,
            "address": each.node.address,
            "broker_id": each.node.broker_id,
            "role": each.role,
            "term": each.term,
            "log_end": each.log_end,
            "behind": each.behind,
            "in_sync": each.is_in_sync,
            "master": each.master,
            "error": each.error,
        }
        for each in found
    ]
    columns = ("broker", "address", "broker_id", "role", "term", "log_end", "behind", "in_sync", "error")
    show(rows, columns, output)
