"""`kourou check …`: for monitoring systems. One line that says how things stand, and an exit code.

    LAG WARNING - group billing is 1200 messages (8 s) behind | 'billing'=1200;1000;10000;0

The code is 0 when all is well and 6 when not, as everywhere in `kourou`; what cannot be found out ends with
the code of its error. With `--nagios` it is what plugins of Nagios, Icinga and their like end with: 0 fine, 1
warning, 2 critical, 3 unknown. Behind the bar stand the figures, as those systems read them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from kourou.cli.changing import DURATION
from kourou.cli.connection import cluster_at, name_server_option
from kourou.cli.exit_codes import CHECK_FAILED
from kourou.cli.output import as_text, counted
from kourou.errors import MQError

OK, WARNING, CRITICAL, UNKNOWN = range(4)
WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
def check() -> None:
    """Check a cluster for a monitoring system."""


def _nagios_option(command: Command) -> Command:
    return click.option(
        "--nagios", is_flag=True, help="End with 0 fine, 1 warning, 2 critical, 3 unknown, as Nagios expects."
    )(command)


def _told(what: str, nagios: bool, verdict: int, text: str, figures: str = "") -> int:
    click.echo(as_text(f"{what} {WORDS[verdict]} - {text}" + (f" | {figures}" if figures else "")))
    if nagios:
        return verdict
    return OK if verdict == OK else CHECK_FAILED


def _unknown(what: str, nagios: bool, error: MQError) -> int:
    if not nagios:
        raise error
    return _told(what, nagios, UNKNOWN, str(error))


def _verdict(value: float, warn: float | None, crit: float | None) -> int:
    if crit is not None and value >= crit:
        return CRITICAL
    return WARNING if warn is not None and value >= warn else OK


def _in_order(warn: float | None, crit: float | None, which: str) -> None:
    """Whoever mixes them up would never be warned."""
    if warn is not None and crit is not None and warn > crit:
        raise click.UsageError(
            f"--warn{which} {warn:g} is more than --crit{which} {crit:g}: it would never warn"
        )


@check.command()
@click.option("-g", "--group", "names", multiple=True, help="A group; may be repeated. Else all of them.")
@click.option("-t", "--topic", help="Only this topic.")
@click.option("--warn", type=click.IntRange(1), help="Warn from this lag on.")
@click.option("--crit", type=click.IntRange(1), help="Critical from this lag on.")
@click.option("--warn-seconds", type=DURATION, help="Warn when the backlog is that old.")
@click.option("--crit-seconds", type=DURATION, help="Critical when the backlog is that old.")
@_nagios_option
@name_server_option
def lag(
    names: tuple[str, ...],
    topic: str | None,
    warn: int | None,
    crit: int | None,
    warn_seconds: float | None,
    crit_seconds: float | None,
    nagios: bool,
    name_server: str,
) -> int:
    """Whether groups keep up: their lag in messages, and in seconds."""
    from kourou.admin import groups

    if warn is None and crit is None and warn_seconds is None and crit_seconds is None:
        raise click.UsageError("say what is too much: --warn, --crit, --warn-seconds or --crit-seconds")
    _in_order(warn, crit, "")
    _in_order(warn_seconds, crit_seconds, "-seconds")
    try:
        with cluster_at(name_server) as connection:
            now_ms = connection.clock.now_ms()
            found = connection.all(
                names or groups.names(connection), lambda each: groups.lag(connection, each, topic)
            )
    except MQError as error:
        return _unknown("LAG", nagios, error)
    worst, said, figures = OK, [], []
    for name, each in found:
        behind = max((queue.behind_ms(now_ms) / 1000 for queue in each.queues), default=0.0)
        verdict = max(
            _verdict(each.total, warn, crit),
            _verdict(behind, warn_seconds, crit_seconds),
            WARNING if each.missing else OK,
        )
        worst = max(worst, verdict)
        if verdict != OK:
            missing = f", not asked: {'; '.join(each.missing)}" if each.missing else ""
            said.append(f"group {name} is {counted(each.total, 'message')} ({behind:.0f} s) behind{missing}")
        figures.append(f"'{name}'={each.total};{warn or ''};{crit or ''};0")
    text = (
        "; ".join(said)
        or f"{counted(len(found), 'group')}, none too far behind: "
        f"{counted(sum(each.total for _, each in found), 'message')} in all"
    )
    return _told("LAG", nagios, worst, text, " ".join(figures))


@check.command()
@click.option(
    "--brokers", "least", type=click.IntRange(1), default=1, show_default=True, help="At least so many."
)
@click.option("--warn-disk", type=click.IntRange(1, 100), default=75, show_default=True, help="Percent used.")
@click.option("--crit-disk", type=click.IntRange(1, 100), default=90, show_default=True, help="Percent used.")
@_nagios_option
@name_server_option
def cluster(least: int, warn_disk: int, crit_disk: int, nagios: bool, name_server: str) -> int:
    """Whether all name servers and brokers answer, and have room."""
    from kourou.admin import cluster as clusters
    from kourou.admin import nameservers

    _in_order(warn_disk, crit_disk, "-disk")

    try:
        with cluster_at(name_server) as connection:
            names = nameservers.state(connection)
            found = clusters.state(connection)
    except MQError as error:
        return _told("CLUSTER", nagios, CRITICAL, str(error))
    troubles = [(CRITICAL, f"name server {each.address} does not answer") for each in names if not each.is_up]
    alive = [each for each in found if each.runtime is not None]
    troubles += [(CRITICAL, f"{each.node.broker}: {each.error}") for each in found if each.runtime is None]
    troubles += [
        (CRITICAL, f"{broker} has no master: nobody can write to it")
        for broker in clusters.without_master([each.node for each in found])
    ]
    if len(alive) < least:
        troubles.append((CRITICAL, f"{len(alive)} of {least} brokers answer"))
    for each in alive:
        assert each.runtime is not None
        used = each.runtime.disk_ratio * 100
        verdict = _verdict(used, warn_disk, crit_disk)
        if verdict != OK:
            troubles.append((verdict, f"the disk of {each.node.broker} is {used:.0f} % full"))
        if not each.runtime.is_active:
            troubles.append((WARNING, f"{each.node.broker} is not active"))
    worst = max((verdict for verdict, _ in troubles), default=OK)
    text = "; ".join(what for _, what in troubles)
    return _told(
        "CLUSTER",
        nagios,
        worst,
        text or f"answering: {counted(len(names), 'name server')} and {counted(len(alive), 'broker')}",
        f"brokers={len(alive)};;{least};0",
    )


@check.command()
@click.option("--warn", type=click.IntRange(1), default=1, show_default=True, help="Warn from so many on.")
@click.option("--crit", type=click.IntRange(1), help="Critical from so many on.")
@_nagios_option
@name_server_option
def dlq(warn: int, crit: int | None, nagios: bool, name_server: str) -> int:
    """Whether there are dead letters."""
    from kourou.admin import dlq as dead_letters

    _in_order(warn, crit, "")
    try:
        with cluster_at(name_server) as connection:
            found = [each for each in dead_letters.all_groups(connection) if each.messages]
    except MQError as error:
        return _unknown("DLQ", nagios, error)
    total = sum(each.messages for each in found)
    text = "; ".join(f"group {each.group} has {each.messages}" for each in found) or "no dead letters"
    return _told(
        "DLQ", nagios, _verdict(total, warn, crit), text, f"dead_letters={total};{warn};{crit or ''};0"
    )
