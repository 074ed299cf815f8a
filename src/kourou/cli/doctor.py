"""`kourou doctor`: look at everything that usually goes wrong, and say what to do about it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

import click

from kourou.cli.connection import cluster_at, name_server_option
from kourou.cli.output import format_option, show
from kourou.errors import MQError

if TYPE_CHECKING:
    from kourou.admin import Connection
    from kourou.admin.cluster import NodeState

CHECK_FAILED = 6
FILES_WANTED = 10_000
CLOCK_SECONDS_MAX = 5.0
DISK_WARNING, DISK_TROUBLE = 0.75, 0.90
BEHIND_BYTES_MAX = 16 * 1024 * 1024

Verdict = Literal["ok", "hint", "trouble"]


@dataclass(frozen=True)
class Finding:
    """What one look found."""

    verdict: Verdict
    about: str
    what: str
    do: str = ""


@click.command()
@click.option("-q", "--quiet", is_flag=True, help="Only what is not well.")
@name_server_option
@format_option
def doctor(quiet: bool, name_server: str, output: str) -> int:
    """Check addresses, ports, clocks, disks, limits, routes and subscriptions; say what to do."""
    findings = []
    with cluster_at(name_server) as connection:
        for examine in EXAMINATIONS:
            try:
                findings += list(examine(connection))
            except MQError as error:
                findings.append(Finding("trouble", examine.__name__.strip("_"), str(error)))
                if examine is _name_servers:
                    break
    listed = [each for each in findings if not quiet or each.verdict != "ok"]
    show([asdict(each) for each in listed], ("verdict", "about", "what", "do"), output)
    troubles = sum(each.verdict == "trouble" for each in findings)
    if output in ("table", "wide"):
        hints = sum(each.verdict == "hint" for each in findings)
        click.echo(f"\n{troubles} troubles, {hints} hints" if troubles or hints else "\nAll is well.")
    return CHECK_FAILED if troubles else 0


def _this_machine(connection: Connection) -> Iterator[Finding]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES_WANTED:
        yield Finding(
            "hint",
            "this machine",
            f"a process may open {soft} files",
            f"a broker wants {FILES_WANTED}: ulimit -n {min(hard, 65_536) if hard > 0 else 65_536}, "
            "or LimitNOFILE= in its unit file",
        )
    else:
        yield Finding("ok", "this machine", f"a process may open {soft} files")
    near = [name for name in os.environ if name.startswith("KOUROU_")]
    if near:
        from kourou.cli.environment import misspelt

        for name, hint in misspelt(os.environ):
            yield Finding(
                "trouble", "this machine", f"the environment variable {name} means nothing{hint}", ""
            )


def _name_servers(connection: Connection) -> Iterator[Finding]:
    from kourou.admin import nameservers

    states = nameservers.state(connection)
    for each in states:
        if each.is_up:
            yield Finding("ok", f"name server {each.address}", "answers")
        else:
            yield Finding(
                "trouble",
                f"name server {each.address}",
                each.error or "does not answer",
                "start it, or take it out of -n, NAMESRV_ADDR and namesrvAddr of the brokers",
            )
    if not any(each.is_up for each in states):
        raise MQError("no name server answers, so nothing else can be looked at")
    if len(states) == 1:
        yield Finding(
            "hint", "name servers", "there is only one", "two keep clients going while one restarts"
        )


def _brokers(connection: Connection) -> Iterator[Finding]:
    from kourou.admin import cluster as clusters

    states = clusters.state(connection)
    if not states:
        yield Finding(
            "trouble",
            "brokers",
            f"none is registered at {connection.name_server}",
            "start one with: kourou broker -n " + connection.name_server,
        )
    for state in states:
        yield from _broker(connection, state)
    for broker in {state.node.broker for state in states}:
        if not any(state.node.broker == broker and state.node.is_master for state in states):
            yield Finding(
                "trouble", f"broker {broker}", "has no master: nobody can write to it", "start its master"
            )


def _broker(connection: Connection, state: NodeState) -> Iterator[Finding]:
    node, runtime = state.node, state.runtime
    about = f"broker {node.broker} ({node.address})"
    if runtime is None:
        yield Finding(
            "trouble",
            about,
            state.error or "does not answer",
            "it is down, or tells clients an address they cannot reach: see brokerIP1",
        )
        return
    yield Finding("ok", about, f"answers, version {runtime.version}")
    if runtime.disk_ratio >= DISK_WARNING:
        yield Finding(
            "trouble" if runtime.disk_ratio >= DISK_TROUBLE else "hint",
            about,
            f"its disk is {runtime.disk_ratio * 100:.0f} % full",
            f"make room, or keep less: kourou broker config set {node.broker} fileReservedTime=48",
        )
    if runtime.dispatch_behind_bytes > BEHIND_BYTES_MAX:
        yield Finding(
            "hint", about, f"{runtime.dispatch_behind_bytes} bytes are stored and not yet to be read", ""
        )
    if not runtime.is_active:
        yield Finding("trouble", about, "is not active", "see its log")
    different = runtime.table.get("groupsWithDifferentSubscriptions", "0")
    if different not in ("", "0"):
        yield Finding(
            "trouble", about, f"{different} groups have members that want different things", "see below"
        )
    yield from _fast_port(connection, node.address, about)


def _fast_port(connection: Connection, address: str, about: str) -> Iterator[Finding]:
    """Java producers may use the port two below the broker's own."""
    from kourou.protocol.codes import RequestCode
    from kourou.protocol.command import request
    from kourou.remoting.address import format_address, parse_address

    host, port = parse_address(address)
    try:
        connection.ask(
            format_address(host, port - 2),
            request(RequestCode.GET_BROKER_RUNTIME_INFO),
            "the fast port",
            timeout=2,
        )
    except MQError:
        yield Finding(
            "hint",
            about,
            f"its fast port {port - 2} does not answer",
            "clients with vipChannelEnabled use it",
        )


def _clocks(connection: Connection) -> Iterator[Finding]:
    """A message's store time is the broker's: a clock that is off makes searches by time and timers wrong."""
    from kourou.admin import brokers
    from kourou.admin import cluster as clusters

    for node in clusters.masters(connection):
        before = time.time()
        table = brokers.runtime(connection, node.address).table
        told = table.get("kourouNowMillis")
        if told is None or not told.isdecimal():
            continue
        off = int(told) / 1000 - (before + time.time()) / 2
        about = f"clock of {node.broker}"
        if abs(off) > CLOCK_SECONDS_MAX:
            yield Finding("trouble", about, f"{off:+.1f} s from this machine's", "run a time service on both")
        else:
            yield Finding("ok", about, f"{off:+.1f} s from this machine's")


def _topics(connection: Connection) -> Iterator[Finding]:
    from kourou.admin import topics

    found = topics.all_topics(connection)
    for topic in found:
        if topic.settings_differ:
            yield Finding(
                "hint",
                f"topic {topic.name}",
                "its brokers do not agree on queues or permission",
                f"look: kourou topic show {topic.name}",
            )
        if topic.perm & 6 != 6:
            yield Finding(
                "hint", f"topic {topic.name}", f"its permission is {topic.perm}: not read and written", ""
            )
    routed = set(topics.names(connection, everything=True))
    for topic in found:
        if topic.name not in routed:
            yield Finding(
                "trouble",
                f"topic {topic.name}",
                "its brokers have it, and no name server tells of it",
                "brokers register every 30 s; if it stays so, see whether they reach every name server",
            )
    yield Finding("ok", "topics", f"{len(found)} topics looked at")


def _groups(connection: Connection) -> Iterator[Finding]:
    from kourou.admin import groups

    states = groups.states(connection)
    for state in states:
        for why in state.disagreements:
            yield Finding(
                "trouble",
                f"group {state.group}",
                why,
                "give all members the same subscriptions: what one does not want is lost to the others",
            )
        if state.lag and not state.members:
            yield Finding(
                "hint",
                f"group {state.group}",
                f"{state.lag} messages wait, and nobody is connected",
                f"start a consumer, or forget it: kourou group skip {state.group} -t TOPIC",
            )
        if state.error is not None:
            yield Finding("trouble", f"group {state.group}", state.error)
    yield Finding("ok", "groups", f"{len(states)} groups looked at")


def _dead_letters(connection: Connection) -> Iterator[Finding]:
    from kourou.admin import dlq

    for each in dlq.all_groups(connection):
        if each.messages:
            yield Finding(
                "hint",
                f"group {each.group}",
                f"has {each.messages} dead letters",
                f"look: kourou dlq show {each.group}",
            )


EXAMINATIONS: tuple[Callable[[Connection], Iterator[Finding]], ...] = (
    _this_machine,
    _name_servers,
    _brokers,
    _clocks,
    _topics,
    _groups,
    _dead_letters,
)
