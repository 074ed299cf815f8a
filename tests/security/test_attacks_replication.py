"""A55 to A57: strangers at the HA port, and strangers that say they are the master."""

from __future__ import annotations

import asyncio

import pytest

from kourou.doors.simulated_files import SimulatedFiles
from kourou.protocol.codes import ResponseCode
from kourou.replication.stream import FRAME, GREETING, REPORT, words
from tests.guarded_cluster import ADMIN, PLAIN_ACL
from tests.security.attackers import signed
from tests.unit.broker.broker_world import PORT, BrokerWorld, send
from tests.unit.replication.replica_world import ReplicaWorld

HA_PORT = PORT + 1


class Stranger(asyncio.Protocol):
    """Somebody at the HA port, or somebody a slave takes for its master."""

    def __init__(self, says: bytes = b"") -> None:
        self.says = says
        self.received = b""
        self.is_lost = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self.says:
            transport.write(self.says)

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


def strange(world: BrokerWorld, data: bytes) -> Stranger:
    stranger = Stranger(data)
    world.run(world.network.connect("127.0.0.1", HA_PORT, stranger))
    world.pass_time(2)
    return stranger


@pytest.mark.parametrize(
    "data",
    [
        bytes(range(255, 0, -1)),
        REPORT.pack(2**62),
        REPORT.pack(-2),
        REPORT.pack(10**9),
        GREETING + words(b"{not JSON"),
        GREETING + FRAME.pack(-1, 2**31 - 1),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["noise", "huge", "negative", "beyond", "words", "length", "http"],
)
def test_a55_what_is_no_slave_makes_no_message_replicated(world: BrokerWorld, data: bytes) -> None:
    world.start(broker_role="SYNC_MASTER")
    peer = world.connect()
    stranger = strange(world, data)
    waiting = peer.begin(send("orders", b"x"))
    world.pass_time(1)
    if waiting.is_answered:
        assert waiting.reply.code in (
            ResponseCode.SLAVE_NOT_AVAILABLE,
            ResponseCode.FLUSH_SLAVE_TIMEOUT,
        )
    if stranger.transport is not None and not stranger.is_lost:
        stranger.transport.write(REPORT.pack(2**62))
    world.pass_time(5)
    assert waiting.reply.code in (ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT)
    assert world.connect().bodies() in ([], [b"x"])


@pytest.mark.parametrize("data", [REPORT.pack(0), GREETING, GREETING + words(b"{}"), bytes(8)])
def test_a56_without_the_secret_nobody_gets_a_byte_of_the_log(world: BrokerWorld, data: bytes) -> None:
    world.start(broker_role="ASYNC_MASTER", ha_secret="known-to-members")
    world.connect().send("orders", b"a secret order")
    stranger = strange(world, data)
    world.pass_time(5)
    assert b"secret order" not in stranger.received
    assert b"known-to-members" not in stranger.received


@pytest.mark.parametrize(
    "says",
    [
        FRAME.pack(10**9, 100) + bytes(100),
        FRAME.pack(-5, 100) + bytes(100),
        FRAME.pack(0, -7),
        FRAME.pack(0, 100) + bytes(100),
        FRAME.pack(0, 2**31 - 1),
        bytes(range(200)),
    ],
    ids=["far away", "negative", "negative size", "no records", "huge", "noise"],
)
def test_a57_a_slave_takes_nothing_from_a_master_that_makes_no_sense(world: BrokerWorld, says: bytes) -> None:
    world.start()
    world.connect().send("orders", b"kept")
    world.stop()
    masters: list[Stranger] = []

    def accept(host: str, port: int) -> asyncio.BaseProtocol:
        masters.append(Stranger(says))
        return masters[-1]

    world.run(world.network.listen("127.0.0.1", 7777, accept, backlog=8, exhausted=lambda: None))
    world.start(broker_role="SLAVE", broker_id=1, ha_master_address="127.0.0.1:7777")
    end = world.broker.store.wrote
    world.pass_time(10)
    assert masters
    assert world.broker.store.wrote == end
    assert world.connect().bodies() == [b"kept"]


def test_members_that_ask_everybody_who_they_are_know_each_other() -> None:
    world = ReplicaWorld()
    try:
        for name in ("master", "slave"):
            files = world.disks[name] = SimulatedFiles(clock_ms=world.clock.now_ms)
            files.make_folders("store/config")
            files.write_atomically("store/config/plain_acl.yml", PLAIN_ACL.encode())
        settings = {"acl_enabled": True, "ha_secret": "known-to-members"}
        master, slave = world.pair(slave=settings, **settings)
        assert world.peer(master).begin(signed(send("made", b"x"), ADMIN)).reply.code == 0
        world.pass_time(10)
        assert slave.topics.get("made") is not None
        assert slave.store.wrote == master.store.wrote
        assert (master.access.guard.unauthenticated, master.access.guard.denied) == (0, 0)
        assert master.metrics.figures().value("rocketmq_replica_lag_bytes") == 0
    finally:
        world.close()
