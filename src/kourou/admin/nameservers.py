"""Name servers: their settings and key-value store, and which brokers may be written to.

They do not talk to each other, so what is changed is told to each of them; a name server that cannot be told
is an error that names it, because it would go on telling clients the old state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kourou.admin.brokers import properties_text
from kourou.admin.connection import Connection
from kourou.errors import Unreachable
from kourou.protocol import java_properties
from kourou.protocol.bodies import KVTable
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import (
    AddedReply,
    BrokerNamed,
    KvKey,
    KvNamespace,
    KvValue,
    PutKv,
    WipedReply,
)


@dataclass(frozen=True)
class NameServerState:
    """A name server, and whether it answers."""

    address: str
    is_up: bool
    settings: dict[str, str]
    error: str | None = None


def addresses(connection: Connection) -> list[str]:
    return sorted(connection.name_servers.addresses)


def state(connection: Connection) -> list[NameServerState]:
    """All of them, each asked for its settings."""
    outcomes = connection.each(addresses(connection), lambda address: configuration(connection, address))
    return [
        NameServerState(
            outcome.of,
            not isinstance(outcome.error, Unreachable),
            outcome.result or {},
            None if outcome.error is None else str(outcome.error),
        )
        for outcome in outcomes
    ]


def configuration(connection: Connection, address: str) -> dict[str, str]:
    """GET_NAMESRV_CONFIG."""
    reply = connection.ask(address, request(RequestCode.GET_NAMESRV_CONFIG), "asked for its settings")
    return dict(java_properties.parse(reply.body))


def configure(connection: Connection, changes: Mapping[str, str], only: list[str] | None = None) -> list[str]:
    """UPDATE_NAMESRV_CONFIG at all of them, or at some; returns who was told."""
    body = properties_text(changes)
    return tell_all(
        connection,
        lambda: request(RequestCode.UPDATE_NAMESRV_CONFIG, body=body),
        f"setting {', '.join(sorted(changes))}",
        only,
    )


def kv_get(connection: Connection, namespace: str, key: str) -> str | None:
    """GET_KV_CONFIG; None when it is not set."""
    reply = connection.ask_name_server(
        request(RequestCode.GET_KV_CONFIG, KvKey(namespace, key)),
        f"looking up {namespace}/{key}",
        expected=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
    )
    return reply.parse(KvValue).value if reply.code == ResponseCode.SUCCESS else None


def kv_list(connection: Connection, namespace: str) -> dict[str, str]:
    """GET_KVLIST_BY_NAMESPACE."""
    reply = connection.ask_name_server(
        request(RequestCode.GET_KVLIST_BY_NAMESPACE, KvNamespace(namespace)),
        f"listing {namespace}",
        expected=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
    )
    return KVTable.decode(reply.body).table if reply.code == ResponseCode.SUCCESS else {}


def kv_put(connection: Connection, namespace: str, key: str, value: str) -> list[str]:
    """PUT_KV_CONFIG."""
    header = PutKv(namespace, key, value)
    return tell_all(
        connection, lambda: request(RequestCode.PUT_KV_CONFIG, header), f"setting {namespace}/{key}"
    )


def kv_delete(connection: Connection, namespace: str, key: str) -> list[str]:
    """DELETE_KV_CONFIG."""
    header = KvKey(namespace, key)
    return tell_all(
        connection, lambda: request(RequestCode.DELETE_KV_CONFIG, header), f"deleting {namespace}/{key}"
    )


def wipe_write(connection: Connection, broker: str) -> dict[str, int]:
    """WIPE_WRITE_PERM_OF_BROKER: producers find its queues no more; by name server, how many topics."""
    told = _each(connection, lambda: request(RequestCode.WIPE_WRITE_PERM_OF_BROKER, BrokerNamed(broker)))
    return {address: reply.parse(WipedReply).wipe_topic_count for address, reply in told}


def add_write(connection: Connection, broker: str) -> dict[str, int]:
    """ADD_WRITE_PERM_OF_BROKER: the opposite."""
    told = _each(connection, lambda: request(RequestCode.ADD_WRITE_PERM_OF_BROKER, BrokerNamed(broker)))
    return {address: reply.parse(AddedReply).add_topic_count for address, reply in told}


def _each(connection: Connection, make: Callable[[], Command]) -> list[tuple[str, Command]]:
    what = "changing who may be written to"
    return connection.all(addresses(connection), lambda address: connection.ask(address, make(), what), what)


def tell_all(
    connection: Connection, make: Callable[[], Command], what: str, only: list[str] | None = None
) -> list[str]:
    """Tell each name server; raises an error that names those who could not be told."""
    told = connection.all(
        only or addresses(connection), lambda address: connection.ask(address, make(), what), what
    )
    return [address for address, _ in told]
