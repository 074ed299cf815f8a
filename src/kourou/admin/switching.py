"""Which broker of a replica set leads, and letting another one do so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from kourou.admin import cluster as clusters
from kourou.admin.cluster import Node
from kourou.admin.connection import Connection
from kourou.admin.steps import Step
from kourou.errors import ConfigError, MQError, NotFound, Refused
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import request
from kourou.protocol.switching import ReplicaState, Switch, SwitchReply

SECONDS_MAX: Final = 30.0
HAND_OVER_SECONDS: Final = 10.0


@dataclass(frozen=True)
class State:
    """A broker in its replica set; `error` says why it is not known."""

    node: Node
    role: str = ""
    term: int = 0
    log_end: int = 0
    behind: int | None = None
    """Bytes of its master that it has not got."""
    is_in_sync: bool | None = None
    """Whether its master counts on it; None where nobody elects, or no master answers."""
    master: str = ""
    detail: ReplicaState | None = None
    error: str | None = None


@dataclass(frozen=True)
class SwitchPlan:
    """Who is to lead instead of whom."""

    heir: Node
    state: ReplicaState
    master: Node | None
    """Who leads now; None when nobody who can be reached does."""
    behind: int | None
    """Bytes the heir lacks; None: nobody knows."""


def state(connection: Connection, address: str) -> ReplicaState:
    """KOUROU_REPLICA_SET_STATE. Raises Refused where it is no Kourou broker."""
    reply = connection.ask(
        address, request(RequestCode.KOUROU_REPLICA_SET_STATE), "asked how its replica set stands"
    )
    try:
        return msgspec.json.decode(reply.body, type=ReplicaState)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{address}: its state makes no sense: {error}") from None


def states(connection: Connection, name: str | None = None) -> list[State]:
    """Of every broker, or of those of one name; raises NotFound when there is none."""
    nodes = [node for node in clusters.nodes(connection) if name in (None, node.broker, node.address)]
    if not nodes and name is not None:
        clusters.node(connection, name)  # which knows what to say
    outcomes = connection.each(nodes, lambda node: state(connection, node.address))
    masters = {
        outcome.of.broker: outcome.result
        for outcome in outcomes
        if outcome.result is not None and outcome.of.is_master
    }
    found = []
    for outcome in outcomes:
        node, detail = outcome.of, outcome.result
        if detail is None:
            found.append(State(node, error=str(outcome.error)))
            continue
        master = masters.get(node.broker)
        behind = None
        if not node.is_master and master is not None:
            behind = max(0, master.log_end - detail.log_end)
        in_sync = is_in_sync(node, master) if detail.is_elected else None
        found.append(
            State(
                *(node, detail.role, detail.term, detail.log_end, behind, in_sync, detail.master),
                detail=detail,
            )
        )
    return found


def is_in_sync(node: Node, master: ReplicaState | None) -> bool | None:
    """As its master says; None without one: what a replica heard last may long be wrong."""
    return None if master is None else node.address in master.in_sync


def plan(connection: Connection, address: str) -> SwitchPlan:
    """Look, and change nothing. Raises NotFound, ConfigError when it leads already."""
    nodes = clusters.nodes(connection)
    found = [node for node in nodes if node.address == address]
    if not found:
        slaves = [node for node in nodes if node.broker == address and not node.is_master]
        if len(slaves) != 1:
            which = slaves or nodes
            known = ", ".join(f"{node.address} ({node.broker} {node.broker_id})" for node in which)
            what = f"{address} has {len(slaves)} replicas" if slaves else f"no replica '{address}'"
            raise NotFound(
                ResponseCode.BROKER_NOT_EXIST,
                f"{what}: name one by its address; known: {known or 'none'}",
            )
        found = slaves
    heir = found[0]
    if heir.is_master:
        raise ConfigError(f"{heir.address} is the master of {heir.broker} already")
    detail = state(connection, heir.address)
    master = next((node for node in nodes if node.broker == heir.broker and node.is_master), None)
    if master is not None:
        try:
            end = state(connection, master.address).log_end
        except MQError:
            master = None
        else:
            return SwitchPlan(heir, detail, master, max(0, end - detail.log_end))
    return SwitchPlan(heir, detail, None, detail.lag)


def described(planned: SwitchPlan) -> str:
    """In one line."""
    who = "no master can be reached" if planned.master is None else f"the master is {planned.master.address}"
    behind = (
        "how far it is behind is not known" if planned.behind is None else f"it lacks {planned.behind} bytes"
    )
    return f"{planned.heir.broker}: {who}; {planned.heir.address} has {planned.state.log_end} bytes, {behind}"


def check(planned: SwitchPlan, *, force: bool) -> None:
    """Raises ConfigError when something would be lost that nobody agreed to lose."""
    if force or planned.master is not None:
        return  # a master that runs hands over what is missing
    if planned.behind is None:
        raise ConfigError(
            f"{planned.heir.address}: its master is away, and what that had is not known; start the master "
            "again, or say --force if what this replica lacks may be lost"
        )
    if planned.behind:
        raise ConfigError(
            f"{planned.heir.address} lacks {planned.behind} bytes of its master's log, which would be lost; "
            "start the master again, or say --force"
        )


def promote(connection: Connection, planned: SwitchPlan, *, force: bool, role: str = "") -> Iterator[Step]:
    """Change places. When the heir cannot, the old master goes on. `role`: what the heir is to lead as; by
    default, as the old one."""
    heir, master = planned.heir, planned.master
    term = planned.state.term
    if master is not None:
        try:
            term = _switch(connection, master, Switch("hand-over", heir=heir.address)).term
        except Refused:
            if not force:
                raise
            yield Step(f"{master.address} could not hand over; {heir.address} leads all the same")
        else:
            yield Step(f"{master.address} takes no more messages, and {heir.address} has everything")
    if not planned.state.is_elected or force:
        try:
            _switch(connection, heir, Switch("master", term=term + 1, role=role))
        except MQError:
            if master is not None and not planned.state.is_elected:
                _switch(connection, master, Switch("master", term=term + 2))
            raise
    if master is not None and not planned.state.is_elected:
        ha_address = planned.state.ha_address
        _switch(
            connection,
            master,
            Switch("slave", term=term + 1, master=heir.address, ha_address=ha_address),
        )
    yield from _until_known(connection, heir)


def why_not_yet(planned: SwitchPlan) -> str:
    """What may keep an heir that was asked to lead from doing so."""
    if planned.state.is_elected:
        voters = ", ".join([*planned.state.members, *planned.state.witnesses])
        return f"more than half of those who vote must see each other ({voters}); see: kourou broker replicas"
    return "the name servers do not tell so; see: kourou broker replicas"


def _switch(connection: Connection, node: Node, wanted: Switch) -> SwitchReply:
    reply = connection.ask(
        node.address,
        request(RequestCode.KOUROU_SWITCH, wanted),
        f"asked to be otherwise ({wanted.what})",
        timeout=HAND_OVER_SECONDS,
    )
    return reply.parse(SwitchReply)


def _until_known(connection: Connection, heir: Node) -> Iterator[Step]:
    while not any(node.is_master and node.address == heir.address for node in clusters.nodes(connection)):
        yield Step(f"the name servers do not know yet that {heir.address} leads", is_waiting=True)
    yield Step(f"{heir.address} is the master of {heir.broker}")
