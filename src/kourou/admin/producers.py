"""Who sends: the producers that are connected."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.admin import cluster as clusters
from kourou.admin.cluster import Node
from kourou.admin.connection import Connection
from kourou.errors import NotFound
from kourou.protocol.admin_bodies import ProducerTable
from kourou.protocol.bodies import ProducerConnection
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import request
from kourou.protocol.headers import ProducerGroupNamed
from kourou.protocol.versions import version_name


@dataclass(frozen=True)
class Producer:
    """One producer at one broker."""

    group: str
    client_id: str
    address: str
    language: str
    version: str
    broker: str
    last_heard_ms: int | None = None


def all_producers(connection: Connection, broker: str | None = None) -> list[Producer]:
    """GET_ALL_PRODUCER_INFO at every master, or at one broker."""
    nodes = clusters.masters(connection) if broker is None else [clusters.node(connection, broker)]

    def asked(node: Node) -> list[Producer]:
        reply = connection.ask(
            node.address, request(RequestCode.GET_ALL_PRODUCER_INFO), "asked for its producers"
        )
        return [
            Producer(
                group,
                each.client_id,
                each.remote_ip,
                each.language,
                version_name(each.version),
                node.broker,
                each.last_update_timestamp,
            )
            for group, found in ProducerTable.decode(reply.body).data.items()
            for each in found
        ]

    found, _ = connection.some(nodes, asked)
    listed = [each for _, producers in found for each in producers]
    return sorted(listed, key=lambda each: (each.group, each.client_id, each.broker))


def connected(connection: Connection, group: str) -> list[Producer]:
    """GET_PRODUCER_CONNECTION_LIST; raises NotFound when nobody of the group is connected."""

    def asked(node: Node) -> list[Producer]:
        reply = connection.ask(
            node.address,
            request(RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupNamed(group)),
            f"asked for the producers of group '{group}'",
            expected=(ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR),
        )
        if reply.code != ResponseCode.SUCCESS:
            return []
        return [
            Producer(
                group,
                each.client_id,
                each.client_addr,
                each.language,
                version_name(each.version),
                node.broker,
            )
            for each in ProducerConnection.decode(reply.body).connection_set
        ]

    found, _ = connection.some(clusters.masters(connection), asked)
    listed = [each for _, producers in found for each in producers]
    if not listed:
        raise NotFound(ResponseCode.CONSUMER_NOT_ONLINE, f"no producer of group '{group}' is connected")
    return sorted(listed, key=lambda each: (each.client_id, each.broker))
