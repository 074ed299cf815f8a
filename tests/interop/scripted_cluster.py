"""A name server and two brokers that do what each message tells them to, and write down what they got.

A message's body is its script: what its first try gets, what its second, and so on, parted by blanks; tries
beyond the last word get what the last word says.

    17          the answer has this code
    close       the connection is closed instead of an answer
    silence     there is no answer
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from kourou.doors.clock import RealClock
from kourou.doors.network import RealNetwork
from kourou.protocol import properties
from kourou.protocol.bodies import BrokerData, QueueData, TopicRouteData
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import GetRoute, SendMessageV2, SendReply
from kourou.protocol.message_id import offset_id
from kourou.protocol.record import pack_host
from kourou.remoting.answer import Answer
from kourou.remoting.config import ServerConfig
from kourou.remoting.server import Server
from kourou.remoting.tick import Tick

QUEUES = 2
BROKERS = ("broker-a", "broker-b")
_STORED = (0, 10, 11, 12)


class Try(NamedTuple):
    """A message as it came to a broker."""

    body: str
    attempt: int
    broker: str
    queue: int


class ScriptedCluster:
    """`dead` names brokers that are in the route and not there."""

    def __init__(self, topic: str, dead: tuple[str, ...] = ()) -> None:
        self.topic = topic
        self.tries: list[Try] = []
        self._dead = dead
        self._attempts: Counter[str] = Counter()
        self._addresses: dict[str, str] = {}
        self._servers: list[Server] = []
        self.name_server = ""

    async def start(self) -> None:
        for name in BROKERS:
            server = await self._listen(
                {
                    RequestCode.SEND_MESSAGE_V2: partial(self._take, name),
                    RequestCode.HEART_BEAT: lambda command, answer: answer(command.reply()),
                    RequestCode.UNREGISTER_CLIENT: lambda command, answer: answer(command.reply()),
                    RequestCode.GET_TOPIC_STATS_INFO: lambda command, answer: answer(
                        command.reply(code=ResponseCode.TOPIC_NOT_EXIST)
                    ),
                }
            )
            host, port = server.addresses[0]
            self._addresses[name] = f"{host}:{port}"
            if name in self._dead:
                await server.stop(0)
                self._servers.remove(server)
        names = await self._listen({RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route})
        host, port = names.addresses[0]
        self.name_server = f"{host}:{port}"

    async def stop(self) -> None:
        for server in self._servers:
            await server.stop(0)

    async def _listen(self, handlers: object) -> Server:
        server = Server(
            handlers,  # type: ignore[arg-type]
            ServerConfig(),
            network=RealNetwork(),
            clock=RealClock(),
            tick=Tick(asyncio.get_running_loop()),
            name="scripted",
        )
        await server.start()
        self._servers.append(server)
        return server

    def _route(self, command: Command, answer: Answer) -> None:
        if command.parse(GetRoute).topic != self.topic:
            answer(command.reply(code=ResponseCode.TOPIC_NOT_EXIST, remark="not here"))
            return
        route = TopicRouteData(
            broker_datas=[
                BrokerData(broker_name=name, broker_addrs={0: address}, cluster="c")
                for name, address in self._addresses.items()
            ],
            queue_datas=[
                QueueData(broker_name=name, perm=6, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
                for name in BROKERS
            ],
        )
        answer(command.reply(body=route.encode()))

    def _take(self, broker: str, command: Command, answer: Answer) -> None:
        header = command.parse(SendMessageV2)
        unique_id = properties.parse((header.properties or "").encode())["UNIQ_KEY"]
        attempt = self._attempts[unique_id]
        self._attempts[unique_id] += 1
        body = command.body.decode()
        self.tries.append(Try(body, attempt, broker, header.queue_id))
        words = body.split()
        word = words[min(attempt, len(words) - 1)]
        if word == "close":
            answer.connection.close("as told")
        elif word != "silence":
            stored = SendReply(offset_id(pack_host("127.0.0.1", 1), attempt), header.queue_id, attempt)
            answer(command.reply(stored if int(word) in _STORED else None, code=int(word), remark="as told"))


@contextlib.contextmanager
def scripted_cluster(topic: str, dead: tuple[str, ...] = ()) -> Iterator[ScriptedCluster]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    cluster = ScriptedCluster(topic, dead)
    asyncio.run_coroutine_threadsafe(cluster.start(), loop).result(10)
    try:
        yield cluster
    finally:
        asyncio.run_coroutine_threadsafe(cluster.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()
