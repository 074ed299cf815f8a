"""A client that writes exactly once, made of raw requests: for the tests of `sequences.py` and its
handlers."""

from __future__ import annotations

from collections.abc import Iterable

from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command, request
from kourou.protocol.extensions import (
    Decision,
    StageCount,
    StagedReply,
    StagedTransaction,
    StageMessages,
    StageReply,
    encode_decision,
)
from kourou.protocol.staged import StagedMessage, encode_chunk
from tests.unit.broker.broker_world import BrokerWorld, Peer, Waiting

BORN_MS = 1_600_000_000_000


def message(body: bytes, queue_id: int = 0, **properties: str) -> StagedMessage:
    given = {"UNIQ_KEY": body.hex().upper().zfill(32), **properties}
    text = "".join(f"{name}\x01{value}\x02" for name, value in given.items())
    return StagedMessage(queue_id, 0, BORN_MS, body, text.encode())


def messages(bodies: Iterable[bytes], queue_id: int = 0) -> list[StagedMessage]:
    return [message(body, queue_id) for body in bodies]


class StagingPeer:
    """One attempt to write one transaction: counts what it staged, and commits just that."""

    def __init__(
        self,
        world: BrokerWorld,
        *,
        producer: str = "query",
        number: int = 0,
        stage: str = "0.0",
        peer: Peer | None = None,
        broker_name: str = "broker-a",
    ) -> None:
        self._world = world
        self.peer = peer or world.connect()
        self.producer, self.number, self.stage_id = producer, number, stage
        self.chunks = self.messages = 0
        self._broker_name = broker_name

    def stage(
        self, chunk: list[StagedMessage], topic: str = "orders", sequence: int | None = None
    ) -> Command:
        reply = self.raw_stage(encode_chunk(chunk), topic, self.chunks if sequence is None else sequence)
        if sequence is None and reply.code == 0:
            self.chunks += 1
            self.messages += len(chunk)
        return reply

    def raw_stage(self, body: bytes, topic: str = "orders", sequence: int = 0) -> Command:
        header = StageMessages(topic, self.producer, self.number, self.stage_id, sequence)
        return self.peer.ask(RequestCode.KOUROU_STAGE, header, body)

    @property
    def count(self) -> StageCount:
        return StageCount(self.stage_id, self.chunks, self.messages)

    def begin_commit(self, *counts: StageCount) -> Waiting:
        decision = Decision({self._broker_name: list(counts or (self.count,))})
        return self.peer.begin(
            request(RequestCode.KOUROU_COMMIT_STAGED, self.header, encode_decision(decision))
        )

    def commit(self, *counts: StageCount) -> Command:
        waiting = self.begin_commit(*counts)
        if not waiting.is_answered:
            self._world.pass_time(0.5, step=0.01)
        return waiting.reply

    def abort(self) -> Command:
        return self.peer.ask(RequestCode.KOUROU_ABORT_STAGED, self.header)

    def state(self, *counts: StageCount) -> Command:
        body = encode_decision(Decision({self._broker_name: list(counts)})) if counts else b""
        return self.peer.ask(RequestCode.KOUROU_STAGED_STATE, self.header, body)

    @property
    def header(self) -> StagedTransaction:
        return StagedTransaction(self.producer, self.number)


def state_of(reply: Command) -> str:
    """What a reply says of a chunk or of a transaction."""
    assert reply.code == 0, reply.remark
    if "messages" in reply.fields:
        return reply.parse(StagedReply).state
    return reply.parse(StageReply).state


def all_bodies(peer: Peer, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    """Every message of a queue, over as many pulls as it takes."""
    found: list[bytes] = []
    while True:
        records = peer.records(topic, queue_id, len(found))
        if not records:
            return found
        assert [record.queue_offset for record in records] == list(
            range(len(found), len(found) + len(records))
        )
        found += [record.body for record in records]
