"""A client as one writes it in an afternoon: asyncio streams, the json module, one request at a time.

The yardstick for our own client: the same requests, none of its care. It has one connection to a broker, as
every client of RocketMQ has, and whoever wants to send waits for its turn; or, which no client does, one
connection for every sender.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import struct
import time
from typing import Any

SEND_MESSAGE_V2 = 310

_opaques = itertools.count(1)


class NaiveClient:
    """One connection, one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._turn = asyncio.Lock()

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)

    async def send(self, topic: str, queue_id: int, body: bytes) -> None:
        fields = {
            "a": "naive",
            "b": topic,
            "c": "TBW102",
            "d": "4",
            "e": str(queue_id),
            "f": "0",
            "g": str(int(time.time() * 1000)),
            "h": "0",
            "i": f"UNIQ_KEY\x01{next(_opaques):032X}\x02WAIT\x01true\x02",
            "j": "0",
            "k": "false",
            "m": "false",
        }
        header = json.dumps(
            {
                "code": SEND_MESSAGE_V2,
                "language": "OTHER",
                "version": 401,
                "opaque": next(_opaques),
                "flag": 0,
                "extFields": fields,
            }
        ).encode()
        async with self._turn:
            reply = await self._ask(header, body)
        assert reply["code"] == 0, reply

    async def _ask(self, header: bytes, body: bytes) -> dict[str, Any]:
        self._writer.write(struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body)
        await self._writer.drain()
        (length,) = struct.unpack(">I", await self._reader.readexactly(4))
        answer = await self._reader.readexactly(length)
        (header_length,) = struct.unpack(">I", answer[:4])
        reply: dict[str, Any] = json.loads(answer[4 : 4 + (header_length & 0xFFFFFF)])
        return reply

    def close(self) -> None:
        self._writer.close()


async def send_for(
    address: str, topic: str, queues: int, body: bytes, senders: int, connections: int, seconds: float
) -> tuple[int, float]:
    """How many messages `senders` at a time have sent, and in how many seconds."""
    host, port = address.rsplit(":", 1)
    clients = [NaiveClient(host, int(port)) for _ in range(connections)]
    for client in clients:
        await client.connect()
    began = time.perf_counter()
    deadline = began + seconds
    sent = 0

    async def keep_sending(client: NaiveClient, queue_id: int) -> None:
        nonlocal sent
        while time.perf_counter() < deadline:
            await client.send(topic, queue_id, body)
            sent += 1

    await asyncio.gather(
        *(keep_sending(clients[number % connections], number % queues) for number in range(senders))
    )
    spent = time.perf_counter() - began
    for client in clients:
        client.close()
    return sent, spent
