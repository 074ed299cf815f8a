"""What attackers do, and what they find: a guarded broker, signed and unsigned requests, raw bytes."""

from __future__ import annotations

from typing import Any

from kourou.access.credentials import Credentials
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.command import request as make_request
from tests.guarded_cluster import ADMIN, PLAIN_ACL, READER, SHOP
from tests.unit.broker.broker_world import STORE, BrokerWorld, Peer, send

__all__ = ["ADMIN", "READER", "SHOP", "guard", "honest_is_served", "raw", "raw_header", "signed", "strike"]


def guard(world: BrokerWorld, acl: str = PLAIN_ACL, **settings: Any) -> Peer:
    """Start a broker that asks everybody who they are; the operator has made the topics."""
    world.files.make_folders(f"{STORE}/config")
    world.files.write_atomically(f"{STORE}/config/plain_acl.yml", acl.encode())
    world.start(acl_enabled=True, **settings)
    for topic in ("Orders", "Prices", "TOPIC_ORDER", "Secret"):
        world.make_topic(topic)
    return world.connect()


def signed(command: Command, by: Credentials = SHOP) -> Command:
    by.sign(command)
    return command


def request(code: int, body: bytes = b"", /, **fields: str) -> Command:
    command = make_request(code, None, body)
    command.replace_fields(fields)
    return command


def raw(length: int, tagged: int = 0, rest: bytes = b"") -> bytes:
    """A frame's beginning, true or not."""
    return (length & 0xFFFFFFFF).to_bytes(4, "big") + (tagged & 0xFFFFFFFF).to_bytes(4, "big") + rest


def raw_header(header: bytes, body: bytes = b"") -> bytes:
    """A whole frame around a header that may be anything."""
    return raw(4 + len(header) + len(body), len(header), header + body)


def strike(world: BrokerWorld, data: bytes) -> Peer:
    """Send these bytes over a connection of their own."""
    evil = world.connect()
    evil.transport.write(data)
    world.settle()
    return evil


def honest_is_served(world: BrokerWorld) -> bool:
    """Another client goes on as if nothing had happened."""
    return world.connect().begin(send("orders", b"honest")).reply.code == 0


def delayed_reply(world: BrokerWorld, peer: Peer, command: Command) -> Command:
    """The answer to a request, after the wait that strangers are made to wait."""
    waiting = peer.begin(command)
    world.pass_time(6)
    return waiting.reply


ALL_CODES = tuple(int(code) for code in RequestCode)
