"""`kourou doctor`: look at everything that usually goes wrong, and say what to do about it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

import click

from kourou.cli.connection import cluster_at, name_server_option
from kourou.cli.exit_codes import CHECK_FAILED
from kourou.cli.output import counted, format_option, show
from kourou.errors import Denied, MQError, NoMaster, Unreachable

if TYPE_CHECKING:
    from kourou.admin import Connection
    from kourou.admin.brokers import Runtime
    from kourou.admin.cluster import NodeState
    from kourou.admin.groups import GroupState

FILES_WANTED = 10_000
CLOCK_SECONDS_MAX = 5.0
DISK_WARNING, DISK_TROUBLE = 0.75, 0.90
BEHIND_BYTES_MAX = 16 * 1024 * 1024

_START_A_MASTER = "start its master; with elections, see who may lead: kourou broker replicas"

Verdict = Literal["ok", "hint", "trouble"]


@dataclass(frozen=True)
class Finding:
    """What one look found. Whatever is not well comes with what to do about it."""

    verdict: Verdict
    about: str
    what: str
    do: str = ""

    def __post_init__(self) -> None:
        assert self.verdict == "ok" or self.do, f"nobody would know what to do about {self.what!r}"


@click.command()
@click.option("-q", "--quiet", is_flag=True, help="Only what is not well.")
@name_server_option
@format_option
def doctor(quiet: bool, name_server: str, output: str) -> int:
    """Check addresses, ports, clocks, disks, limits, routes and subscriptions; say what to do."""
    findings: list[Finding] = []
    with cluster_at(name_server) as connection:
        for examine in EXAMINATIONS:
            try:
                findings.extend(examine(connection))  # what it found before it failed is kept
            except NoMaster:
                continue  # the look at brokers said so
            except MQError as error:
                about = examine.__name__.strip("_").replace("_", " ")
                findings.append(Finding("trouble", about, str(error), _way_out(error)))
                if examine is _name_servers:
                    break
    listed = [each for each in findings if not quiet or each.verdict != "ok"]
    show([asdict(each) for each in listed], ("verdict", "about", "what", "do"), output)
    troubles = sum(each.verdict == "trouble" for each in findings)
    if output in ("table", "wide"):
        hints = sum(each.verdict == "hint" for each in findings)
        said = f"{counted(troubles, 'trouble')}, {counted(hints, 'hint')}"
        click.echo(f"\n{said}" if troubles or hints else "\nAll is well.")
    return CHECK_FAILED if troubles else 0


def _way_out(error: MQError) -> str:
    """What to do when it could not even be looked at."""
    if isinstance(error, Denied):
        return "look as somebody who may: KOUROU_ACCESS_KEY and KOUROU_SECRET_KEY, or --context"
    if isinstance(error, Unreachable):
        return "see whether it runs there, and whether this machine reaches it; then look again"
    return "see the log of the server that said so"


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
                "trouble",
                "this machine",
                f"the environment variable {name} means nothing{hint}",
                "servers do not start with it: correct it, or unset it",
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
        raise Unreachable("none answers, so nothing else can be looked at")
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
                "trouble", f"broker {broker}", "has no master: nobody can write to it", _START_A_MASTER
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
    yield Finding("ok", about, f"answers, {_version(runtime)}")
    if runtime.table.get("kourouNative") == "false":
        yield Finding(
            "hint",
            about,
            "runs without its native loops, so a message takes it longer",
            "see there why: kourou --version",
        )
    if runtime.disk_ratio >= DISK_WARNING:
        yield Finding(
            "trouble" if runtime.disk_ratio >= DISK_TROUBLE else "hint",
            about,
            f"its disk is {runtime.disk_ratio * 100:.0f} % full",
            "give it a larger disk, or let messages go sooner (they are gone then): "
            f"kourou broker config set {node.broker} fileReservedTime=48",
        )
    if runtime.dispatch_behind_bytes > BEHIND_BYTES_MAX:
        yield Finding(
            "hint",
            about,
            f"{runtime.dispatch_behind_bytes} bytes are stored and not yet to be read",
            "wait until it has caught up; if the figure grows, its disk or processor is too slow",
        )
    if not runtime.is_active:
        yield Finding("trouble", about, "is not active", "see its log: it says what it waits for")
    different = runtime.table.get("groupsWithDifferentSubscriptions", "0")
    if different not in ("", "0"):
        yield Finding(
            "trouble",
            about,
            f"groups with members that want different things: {different}",
            "see the lines of these groups, and give all members of a group the same subscriptions",
        )
    yield from _fast_port(connection, node.address, about)


def _version(runtime: Runtime) -> str:
    ours = runtime.table.get("kourouVersion")
    return f"Kourou {ours}, to clients {runtime.version}" if ours else f"version {runtime.version}"


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
            "open it to clients that set vipChannelEnabled; others do not need it",
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
        off = round(int(told) / 1000 - (before + time.time()) / 2, 1) + 0.0  # never -0.0
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
                "hint",
                f"topic {topic.name}",
                f"its permission is {topic.perm}: it is not both read and written",
                f"if that is not meant: kourou topic perm {topic.name} 6",
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
    yield Finding("ok", "topics", f"{counted(len(found), 'topic')} looked at")


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
                f"{counted(state.lag, 'message')} behind, and nobody is connected",
                "start its consumers; if nobody wants these messages any more, what would never be read is "
                f"shown by: kourou group skip {state.group} -t {_topic_of(state)} --dry-run",
            )
        if state.error is not None:
            yield Finding(
                "trouble",
                f"group {state.group}",
                state.error,
                f"see whether its brokers answer: kourou broker ls; then: kourou group show {state.group}",
            )
    yield Finding("ok", "groups", f"{counted(len(states), 'group')} looked at")


def _topic_of(state: GroupState) -> str:
    first = [topic for topic in state.topics if not topic.startswith("%")]
    return first[0] if len(first) == 1 else "TOPIC"


def _dead_letters(connection: Connection) -> Iterator[Finding]:
    from kourou.admin import dlq

    for each in dlq.all_groups(connection):
        if each.messages:
            yield Finding(
                "hint",
                f"group {each.group}",
                f"has {counted(each.messages, 'dead letter')}",
                f"see why they failed: kourou dlq show {each.group}; when that is mended: "
                f"kourou dlq resend {each.group} --all --dry-run",
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
