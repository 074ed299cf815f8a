"""`kourou top`: how a cluster fares, live: rates of brokers, the busiest topics, groups that fall behind."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from kourou.cli.changing import Duration
from kourou.cli.connection import cluster_at, name_server_option
from kourou.cli.output import as_json, as_text, counted, has_cursor
from kourou.errors import MQError

if TYPE_CHECKING:
    from kourou.admin import Connection
    from kourou.admin.cluster import NodeState
    from kourou.admin.groups import GroupState


@dataclass(frozen=True)
class GroupLine:
    """A group, and whether it falls behind: by how many messages a second its lag grows."""

    state: GroupState
    growth: float


@dataclass(frozen=True)
class Look:
    """The cluster at one moment."""

    at: float
    nodes: list[NodeState]
    groups: list[GroupLine]
    error: str | None = None


@click.command()
@click.option(
    "--interval", type=Duration(least=0.2), default=2.0, show_default=True, help="Seconds between looks."
)
@click.option("--count", type=click.IntRange(1), help="Stop after so many looks.")
@click.option(
    "--groups", "groups_max", type=click.IntRange(1), default=15, show_default=True, help="Groups shown."
)
@click.option("--json", "as_lines", is_flag=True, help="One JSON object a look, instead of a screen.")
@name_server_option
def top(interval: float, count: int | None, groups_max: int, as_lines: bool, name_server: str) -> None:
    """Watch brokers, rates, lag and slow groups, until Ctrl-C."""
    with cluster_at(name_server) as connection, suppress(KeyboardInterrupt):
        if as_lines or not has_cursor():
            _lines(connection, interval, count, groups_max, as_lines)
        else:
            _screen(connection, interval, count, groups_max)


def look(connection: Connection, before: Look | None) -> Look:
    """Ask everybody; what cannot be asked now is said on the screen, and asked again."""
    from kourou.admin import cluster as clusters
    from kourou.admin import groups

    try:
        nodes, states = clusters.state(connection), groups.states(connection)
    except MQError as error:
        return Look(
            time.monotonic(), before.nodes if before else [], before.groups if before else [], str(error)
        )
    now = time.monotonic()
    was = {line.state.group: line.state.lag for line in before.groups} if before else {}
    passed = max(0.001, now - before.at) if before else 1.0
    lines = [
        GroupLine(state, (state.lag - was[state.group]) / passed if state.group in was else 0.0)
        for state in states
    ]
    lines.sort(key=lambda line: (-line.state.lag, -line.state.tps, line.state.group))
    return Look(now, nodes, lines)


def _lines(
    connection: Connection, interval: float, count: int | None, groups_max: int, as_json_: bool
) -> None:
    seen: Look | None = None
    done = 0
    while count is None or done < count:
        if done:
            time.sleep(interval)
        seen = look(connection, seen)
        click.echo(as_json(_as_row(seen, groups_max)) if as_json_ else as_text(_as_sentence(seen)))
        done += 1


def _as_row(seen: Look, groups_max: int) -> dict[str, object]:
    return {
        "brokers": [
            {
                "broker": each.node.broker,
                "broker_id": each.node.broker_id,
                "in_tps": each.runtime.in_tps if each.runtime else None,
                "out_tps": each.runtime.out_tps if each.runtime else None,
                "disk_ratio": each.runtime.disk_ratio if each.runtime else None,
                "error": each.error,
            }
            for each in seen.nodes
        ],
        "groups": [
            {
                "group": line.state.group,
                "members": line.state.members,
                "tps": line.state.tps,
                "lag": line.state.lag,
                "lag_growth": line.growth,
            }
            for line in seen.groups[:groups_max]
        ],
        "error": seen.error,
    }


def _as_sentence(seen: Look) -> str:
    if seen.error is not None:
        return seen.error
    rates = [each.runtime for each in seen.nodes if each.runtime is not None]
    lag = sum(line.state.lag for line in seen.groups)
    return (
        f"{len(rates)}/{len(seen.nodes)} brokers, in {sum(each.in_tps for each in rates):.1f}/s, "
        f"out {sum(each.out_tps for each in rates):.1f}/s, {counted(len(seen.groups), 'group')}, lag {lag}"
    )


def _screen(connection: Connection, interval: float, count: int | None, groups_max: int) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    def drawn(seen: Look) -> Group:
        brokers = Table(box=None, pad_edge=False, title="brokers", title_justify="left")
        for heading in ("cluster", "broker", "address", "in/s", "out/s", "disk", "timers", ""):
            brokers.add_column(heading)
        for each in seen.nodes:
            runtime = each.runtime
            cells = [each.node.cluster, each.node.broker, each.node.address]
            if runtime is None:
                cells += ["", "", "", "", "does not answer"]
            else:
                cells += [
                    f"{runtime.in_tps:.1f}",
                    f"{runtime.out_tps:.1f}",
                    f"{runtime.disk_ratio * 100:.0f} %",
                    str(runtime.timers_waiting),
                    "",
                ]
            brokers.add_row(*(Text(as_text(cell), "red" if runtime is None else "") for cell in cells))
        groups = Table(box=None, pad_edge=False, title="groups", title_justify="left")
        for heading in ("group", "members", "out/s", "lag", "grows/s", ""):
            groups.add_column(heading)
        for line in seen.groups[:groups_max]:
            word, colour = _word(line)
            state = line.state
            cells = [
                state.group,
                str(state.members),
                f"{state.tps:.1f}",
                str(state.lag),
                f"{line.growth:+.1f}",
                word,
            ]
            groups.add_row(*(Text(as_text(cell), colour) for cell in cells))
        head = Text(as_text(_as_sentence(seen)), "red" if seen.error else "bold")
        return Group(head, Text(), brokers, Text(), groups, Text("\nCtrl-C ends it", "dim"))

    seen = look(connection, None)
    done = 1
    with Live(drawn(seen), screen=True, auto_refresh=False) as live:
        live.refresh()
        while count is None or done < count:
            time.sleep(interval)
            seen = look(connection, seen)
            live.update(drawn(seen), refresh=True)
            done += 1


def _word(line: GroupLine) -> tuple[str, str]:
    """What is wrong with a group, in a word, and its colour."""
    state = line.state
    if state.disagreements:
        return "members disagree", "red"
    if state.lag and not state.members:
        return "nobody reads", "red"
    if state.lag and line.growth > 0:
        return "falls behind", "yellow"
    if state.lag and not state.tps and line.growth == 0:
        return "stuck", "red"
    return "", ""
