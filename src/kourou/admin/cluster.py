"""Which brokers there are, and how each of them fares."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.admin import brokers
from kourou.admin.brokers import Runtime
from kourou.admin.connection import Connection
from kourou.client import operations
from kourou.client.routes import MASTER
from kourou.errors import NoMaster, NotFound
from kourou.protocol.bodies import ClusterInfo
from kourou.protocol.codes import ResponseCode


@dataclass(frozen=True)
class Node:
    """A broker as the name servers know it."""

    cluster: str
    broker: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER


@dataclass(frozen=True)
class NodeState:
    """A broker and how it fares; `error` says why that is not known."""

    node: Node
    runtime: Runtime | None = None
    error: str | None = None


def info(connection: Connection) -> ClusterInfo:
    """As the name servers tell it."""
    return connection.run(operations.cluster_info(connection.name_servers))


def nodes(connection: Connection, cluster: str | None = None) -> list[Node]:
    """All brokers, or those of one cluster; raises NotFound when that cluster does not exist."""
    told = info(connection)
    if cluster is not None and cluster not in told.cluster_addr_table:
        known = ", ".join(sorted(told.cluster_addr_table)) or "none"
        raise NotFound(ResponseCode.BROKER_NOT_EXIST, f"no cluster '{cluster}'; known: {known}")
    return [
        Node(broker.cluster, name, broker_id, address)
        for name, broker in sorted(told.broker_addr_table.items())
        if cluster is None or broker.cluster == cluster
        for broker_id, address in sorted(broker.broker_addrs.items())
    ]


def masters(connection: Connection, cluster: str | None = None) -> list[Node]:
    """The brokers one can write to; raises NoMaster when there is none."""
    found = [node for node in nodes(connection, cluster) if node.is_master]
    if not found:
        asked = ", ".join(connection.name_servers.addresses)
        where = "" if cluster is None else f" of cluster '{cluster}'"
        raise NoMaster(
            ResponseCode.BROKER_NOT_EXIST,
            f"no master{where} is registered at {asked}; start a broker, and wait until it is",
        )
    return found


def readable(connection: Connection) -> list[Node]:
    """Of each broker the one that can be read: its master, else the replica that acts for it."""
    first: dict[str, Node] = {}
    for each in sorted(nodes(connection), key=lambda node: node.broker_id):
        first.setdefault(each.broker, each)
    return sorted(first.values(), key=lambda node: node.broker)


def without_master(known: list[Node]) -> list[str]:
    """The names of those brokers of which only replicas are there: nobody can write to them."""
    return sorted({each.broker for each in known} - {each.broker for each in known if each.is_master})


def node(connection: Connection, name_or_address: str) -> Node:
    """The broker of this name (its master, or a replica that acts for it), or at this address."""
    known = nodes(connection)
    named = [each for each in known if name_or_address in (each.broker, each.address)]
    if not named:
        names = ", ".join(sorted({each.broker for each in known})) or "none"
        raise NotFound(ResponseCode.BROKER_NOT_EXIST, f"no broker '{name_or_address}'; known: {names}")
    return min(named, key=lambda each: each.broker_id)


def clusters(connection: Connection) -> dict[str, list[str]]:
    """The names of all brokers by cluster."""
    return {name: sorted(names) for name, names in sorted(info(connection).cluster_addr_table.items())}


def state(connection: Connection, cluster: str | None = None) -> list[NodeState]:
    """All brokers, each asked how it fares."""
    outcomes = connection.each(
        nodes(connection, cluster), lambda each: brokers.runtime(connection, each.address)
    )
    return [
        NodeState(outcome.of, outcome.result, None if outcome.error is None else str(outcome.error))
        for outcome in outcomes
    ]
