"""Is somebody else there under this broker's name and number?

Two brokers under one name and one brokerId take each other's place at the name servers every few seconds,
and producers and consumers find now the one, now the other. So a start asks first. Whoever does not answer
within a second is not there; whoever answers under another name has got the port of one that is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kourou.errors import ConfigError, MQError
from kourou.protocol.bodies import ClusterInfo
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import request
from kourou.remoting.client import Client

PATIENCE_SECONDS = 1.0


async def refuse_a_twin(
    client: Client, name_servers: Iterable[str], broker_name: str, broker_id: int, address: str
) -> None:
    """Raises ConfigError, with the way out, when another broker answers under this name and number."""
    known = await asyncio.gather(
        *(_address_at(client, name_server, broker_name, broker_id) for name_server in name_servers)
    )
    for other in sorted({each for each in known if each is not None and each != address}):
        if await _is_called(client, other, broker_name):
            raise ConfigError(_what_to_do(broker_name, broker_id, other))


async def _address_at(client: Client, name_server: str, broker_name: str, broker_id: int) -> str | None:
    try:
        reply = await client.call(name_server, request(RequestCode.GET_BROKER_CLUSTER_INFO), PATIENCE_SECONDS)
        if reply.code != ResponseCode.SUCCESS:
            return None
        broker = ClusterInfo.decode(reply.body).broker_addr_table.get(broker_name)
    except MQError:
        return None
    return None if broker is None else broker.broker_addrs.get(broker_id)


async def _is_called(client: Client, address: str, broker_name: str) -> bool:
    try:
        reply = await client.call(address, request(RequestCode.GET_BROKER_CONFIG), PATIENCE_SECONDS)
    except MQError:
        return False
    return f"brokerName={broker_name}".encode() in reply.body.splitlines()


def _what_to_do(broker_name: str, broker_id: int, other: str) -> str:
    if broker_id:
        return (
            f"brokerName {broker_name} has a slave with brokerId {broker_id} already, at {other}: give this "
            "one another brokerId, or stop that one"
        )
    return (
        f"brokerName {broker_name} has a master already, at {other}: give this broker another brokerName, "
        "start it as a slave (brokerRole=SLAVE, brokerId=1), or stop that one"
    )
