"""A name server without sockets: real tables and handlers, a clock that stands still, a disk in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import SimulatedFiles
from kourou.nameserver.config import NameServerConfig
from kourou.nameserver.handlers import (
    BrokerHandlers,
    ConfigHandlers,
    KvHandlers,
    TopicHandlers,
    handler_table,
)
from kourou.nameserver.kv import KeyValues
from kourou.nameserver.own_config import OwnConfig
from kourou.nameserver.route_answers import EncodedRoutes, RouteHandler
from kourou.nameserver.routes import Routes
from kourou.nameserver.watches import RouteWatches
from kourou.protocol.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicTable, register_crc
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command, decode
from kourou.protocol.command import request as make_request
from kourou.protocol.frame import FrameReader
from kourou.protocol.headers import RegisterBroker
from kourou.remoting.answer import Answer, Handler, one_way, refusal

KV_PATH = "data/namesrv/kvConfig.json"


class Peer:
    """The end of a connection that a handler sees, and all it was sent."""

    def __init__(self, peer: str = "10.9.8.7:5000") -> None:
        self.peer = peer
        self.is_open = self.is_writable = True
        self.replies: list[Command] = []
        self.facts: dict[object, Any] = {}  # what access control remembers of it
        self.peer_host = peer.rpartition(":")[0]
        self._on_close: list[Callable[[Any], None]] = []

    def on_close(self, callback: Callable[[Any], None]) -> None:
        self._on_close.append(callback)

    def settle(self, size: int) -> None:
        pass

    def send_frame(self, frame: bytes) -> None:
        (whole,) = FrameReader().feed(frame)
        self.replies.append(decode(whole))

    def send_one_way(self, command: Command) -> None:
        self.send_frame(one_way(command, 1))

    def close(self, reason: str) -> None:
        if self.is_open:
            self.is_open = False
            for callback in self._on_close:
                callback(self)


class Desk:
    """Asks the handler table as a connection would."""

    def __init__(self, **settings: Any) -> None:
        self.clock = SimulatedClock()
        self.files = SimulatedFiles()
        self.news: list[tuple[str, Command]] = []
        self.open(**settings)

    def open(self, **settings: Any) -> None:
        """A new process over the same disk: tables empty, what was kept is there."""
        self.own = OwnConfig(NameServerConfig(kv_config_path=KV_PATH, **settings), self.files)
        self.kv = KeyValues(self.files, KV_PATH)
        self.kv.load()
        self.encoded = EncodedRoutes()
        self.watches = RouteWatches(self.clock)
        self.routes = Routes(self._changed)
        self.brokers = BrokerHandlers(
            self.routes,
            self.kv,
            self.own,
            self.clock,
            lambda address, news: self.news.append((address, news)),
        )
        self.handlers: Mapping[int, Handler] = handler_table(
            RouteHandler(self.routes, self.encoded, self.kv, self.own, self.clock, self.watches, None),
            self.brokers,
            TopicHandlers(self.routes, self.own),
            KvHandlers(self.kv, self._changed),
            ConfigHandlers(self.own),
        )

    def _changed(self, topic: str) -> None:
        self.encoded.forget(topic)
        self.watches.changed(topic)

    def ask(
        self,
        code: int,
        header: msgspec.Struct | None = None,
        body: bytes = b"",
        *,
        version: int = 409,
        serialization: int = 0,
        peer: Peer | None = None,
    ) -> Command:
        """The reply to one request."""
        command = make_request(code, header, body)
        command.opaque, command.version, command.serialization = 7, version, serialization
        (frame,) = FrameReader().feed(command.encode())
        received = decode(frame)
        peer = peer or Peer()
        answer = Answer(peer, 1, 0)  # type: ignore[arg-type]
        try:
            self.handlers[code](received, answer)
        except Exception as error:
            answer(refusal(received, error))
        reply = peer.replies[-1]
        assert reply.opaque == 7
        return reply

    def register(
        self,
        *topics: str,
        name: str = "broker-a",
        id: int = 0,
        address: str = "10.0.0.1:10911",
        cluster: str = "DefaultCluster",
        counter: int = 1,
        state_version: int = 0,
        peer: Peer | None = None,
        version: int = 479,
        body: bytes | None = None,
        crc: int | None = None,
        **more: Any,
    ) -> Command:
        """Register a broker with these topics, 4 queues each."""
        if body is None:
            body = registration_body(*topics, counter=counter, state_version=state_version)
        header = RegisterBroker(
            broker_name=name,
            broker_address=address,
            cluster_name=cluster,
            broker_id=id,
            ha_server_address=more.pop("ha_server_address", address.replace("10911", "10912")),
            body_crc32=register_crc(body) if crc is None else crc,
            **more,
        )
        return self.ask(RequestCode.REGISTER_BROKER, header, body, version=version, peer=peer)


def registration_body(*topics: str, counter: int = 1, state_version: int = 0, perm: int = 6) -> bytes:
    table = TopicTable(
        data_version=DataVersion(counter=counter, state_version=state_version, timestamp=1),
        topic_config_table={
            topic: TopicConfig(topic_name=topic, read_queue_nums=4, write_queue_nums=4, perm=perm)
            for topic in topics
        },
    )
    return RegisterBrokerBody(topic_table=table).encode()


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def make_desk() -> type[Desk]:
    return Desk


@pytest.fixture
def make_peer() -> type[Peer]:
    return Peer
