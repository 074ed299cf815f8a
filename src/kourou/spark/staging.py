"""Rows to a Kourou broker, exactly once: staged by tasks, made final by the driver.

    task      chunks 0, 1, 2, … of its stage to each broker ─▶ acknowledged ─▶ `StagedPart` to the driver
    driver    is any broker past this transaction? ─▶ has each all it needs? ─▶ commit at one after the other

What a broker does with them is told in `broker/sequences.py`. Chunks to one broker go out one after the
other on one connection; when one is not acknowledged, it and all behind it go out again: those that were
there already are confirmed, and not taken twice.

Brokers decide one after the other, in the order of their names, and each keeps the decision about all of
them: a driver that died in between leaves enough for the next one to bring it to its end.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
import numpy as np
import pyarrow.compute as pc

from kourou.client import operations
from kourou.client.refusals import accepted, refusal
from kourou.client.routes import MASTER
from kourou.errors import ConfigError, MQError, NotFound, TimedOut, Unreachable
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.extensions import (
    Capabilities,
    Decision,
    StageCount,
    StagedReply,
    StagedTransaction,
    StageMessages,
    StageReply,
    decode_decision,
    encode_decision,
)
from kourou.spark.cluster import Cluster
from kourou.spark.offsets import Queue
from kourou.spark.outgoing import Numbers, Outgoing, contents
from kourou.spark.queue_rows import QueueRows, by_topic, grouped
from kourou.spark.sending import AGAIN_SECONDS, POLL_SECONDS, cut, failure, is_passing

CHUNK_BYTES = 1024 * 1024
CHUNK_MESSAGES = 8_192
IN_FLIGHT_BYTES = 8 * 1024 * 1024
STAGE_SECONDS = 10.0
COMMIT_SECONDS = 20.0
_ROW_BYTES = 64  # of a chunk for each row, besides its body: its numbers and a part of its properties

_log = logging.getLogger("kourou.spark")


@dataclass(frozen=True)
class Transaction:
    """What a driver commits at once."""

    producer: str
    number: int

    @property
    def header(self) -> StagedTransaction:
        return StagedTransaction(self.producer, self.number)


@dataclass(frozen=True)
class StagedPart:
    """What one task staged: by broker, how many chunks and how many messages."""

    stage: str
    brokers: dict[str, tuple[int, int]] = field(default_factory=dict)
    is_over: bool = False
    """The transaction was committed before; nothing was staged that counts."""


class Stager:
    """One attempt to write one part of a transaction. `finish` returns when all of it is acknowledged."""

    def __init__(
        self,
        cluster: Cluster,
        transaction: Transaction,
        stage: str,
        *,
        patience_seconds: float,
        first_turn: int = 0,
    ) -> None:
        self._cluster = cluster
        self._transaction = transaction
        self._stage = stage
        self._patience = patience_seconds
        self._first_turn = first_turn
        self._queue_rows: dict[str, QueueRows] = {}
        self._lanes: dict[str, _Lane] = {}
        self.is_over = False

    def send(self, rows: Outgoing) -> None:
        """Take in some rows; returns while they may be on their way. Raises what any of them failed with."""
        if self.is_over:
            return
        for topic, of_topic in by_topic(rows):
            choice = self._choice(topic)
            numbers = choice.of(of_topic)
            queue_ids = np.array([queue.queue_id for queue in choice.queues])[numbers]
            broker_names = [queue.broker_name for queue in choice.queues]
            if len(set(broker_names)) == 1:
                self._stage_rows(topic, broker_names[0], of_topic, queue_ids)
                continue
            names = sorted(set(broker_names))
            broker_numbers = np.array([names.index(name) for name in broker_names])[numbers]
            for number, chosen in grouped(broker_numbers):
                self._stage_rows(topic, names[number], of_topic.take(chosen), queue_ids[chosen])

    def finish(self) -> StagedPart:
        while not self.is_over and any(lane.unacknowledged for lane in self._lanes.values()):
            self._take_in(wait=True)
        counts = {name: (lane.chunks, lane.messages) for name, lane in self._lanes.items()}
        return StagedPart(self._stage, {} if self.is_over else counts, self.is_over)

    def _choice(self, topic: str) -> QueueRows:
        choice = self._queue_rows.get(topic)
        if choice is None:
            route = self._cluster.route(topic)
            route.check_writable()
            choice = self._queue_rows[topic] = QueueRows(route, self._first_turn)
        return choice

    def _stage_rows(self, topic: str, broker_name: str, rows: Outgoing, queue_ids: Numbers) -> None:
        lane = self._lanes.get(broker_name)
        if lane is None:
            lane = self._lanes[broker_name] = _Lane(broker_name, self._chunk_bytes(topic, broker_name))
        ends = np.cumsum(np.asarray(pc.binary_length(rows.bodies)) + _ROW_BYTES, dtype=np.int64)
        for start, stop in cut(ends, lane.chunk_bytes, CHUNK_MESSAGES):
            if self.is_over:
                return
            body = chunk_bytes(rows.slice(start, stop), queue_ids[start:stop])
            each = _Chunk(topic, lane.chunks, body, stop - start)
            lane.chunks += 1
            lane.messages += each.count
            self._wait_for_room(len(body))
            lane.unacknowledged.append(each)
            if not lane.is_broken:
                self._launch(lane, each)
            self._take_in(wait=False)

    def _chunk_bytes(self, topic: str, broker_name: str) -> int:
        """How large a chunk may be there, with room for properties; raises ConfigError if none is taken."""
        try:
            address = self._cluster.route(topic).master(broker_name)
            reply = self._cluster.client.call(
                address, request(RequestCode.KOUROU_CAPABILITIES), STAGE_SECONDS
            )
        except (Unreachable, NotFound):
            return CHUNK_BYTES  # it will be waited for
        if reply.code != ResponseCode.SUCCESS:
            raise foreign(broker_name)
        return min(CHUNK_BYTES, reply.parse(Capabilities).staged_chunk_bytes_max // 2)

    def _wait_for_room(self, size: int) -> None:
        """So much is on its way, and no more."""
        while not self.is_over and self._bytes and self._bytes + size > IN_FLIGHT_BYTES:
            self._take_in(wait=True)

    @property
    def _bytes(self) -> int:
        return sum(len(each.body) for lane in self._lanes.values() for each in lane.unacknowledged)

    # ---------------------------------------------------------------------------------------- on their way

    def _launch(self, lane: _Lane, each: _Chunk) -> None:
        lane.in_flight += 1
        tell = partial(self._tell, lane, each, lane.tries)
        try:
            route = self._cluster.route(each.topic)
            topic, address = route.topic, route.master(lane.broker_name)
            header = StageMessages(
                topic, self._transaction.producer, self._transaction.number, self._stage, each.sequence
            )
            command = request(RequestCode.KOUROU_STAGE, header, each.body)
            self._cluster.client.call_soon(address, command, STAGE_SECONDS, tell)
        except (Unreachable, NotFound) as error:
            tell(error)

    def _tell(self, lane: _Lane, each: _Chunk, tries: int, outcome: Command | Exception) -> None:
        lane.settled.append((each, tries, outcome))

    def _take_in(self, *, wait: bool) -> None:
        lanes = list(self._lanes.values())
        if wait and not any(lane.settled for lane in lanes):
            self._cluster.client.poll(POLL_SECONDS)
        for lane in lanes:
            while lane.settled and not self.is_over:
                lane.in_flight -= 1
                self._settle(lane, *lane.settled.popleft())
            if lane.is_broken and not lane.in_flight and not self.is_over:
                self._go_on(lane)

    def _settle(self, lane: _Lane, each: _Chunk, tries: int, outcome: Command | Exception) -> None:
        error = self._error(lane, each, outcome)
        if error is None:  # whoever has this one has all before it
            while lane.unacknowledged and lane.unacknowledged[0].sequence <= each.sequence:
                lane.unacknowledged.popleft()
                lane.failed_since = 0.0
            return
        if lane.is_broken or tries != lane.tries or each not in lane.unacknowledged:
            return  # what is behind the one that failed fails, too
        now = self._cluster.clock.monotonic()
        lane.failed_since = lane.failed_since or now
        may_pass = is_passing(error) or lane.unacknowledged[0] is not each
        if not may_pass or now - lane.failed_since > self._patience:
            raise failure(error, self._what(lane, each), self._patience if may_pass else None)
        lane.is_broken = True
        lane.not_before = now + AGAIN_SECONDS

    def _go_on(self, lane: _Lane) -> None:
        """Send everything again that is not acknowledged, in order."""
        if self._cluster.clock.monotonic() < lane.not_before:
            return
        lane.is_broken = False
        lane.tries += 1
        self._cluster.doubt([Queue(each.topic, lane.broker_name, 0) for each in lane.unacknowledged])
        for each in list(lane.unacknowledged):
            self._launch(lane, each)

    def _error(self, lane: _Lane, each: _Chunk, outcome: Command | Exception) -> MQError | None:
        if isinstance(outcome, Command):
            if outcome.code == ResponseCode.SUCCESS:
                self.is_over = outcome.parse(StageReply).state == "committed"
                return None
            if outcome.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise foreign(lane.broker_name)
            return refusal(outcome.code, outcome.remark, self._what(lane, each))
        if isinstance(outcome, MQError):
            return outcome
        raise outcome

    def _what(self, lane: _Lane, each: _Chunk) -> str:
        return f"topic '{each.topic}', broker {lane.broker_name}: {each.count} rows"


class _Lane:
    """The chunks of a stage that go to one broker."""

    def __init__(self, broker_name: str, chunk_bytes: int) -> None:
        self.broker_name = broker_name
        self.chunk_bytes = chunk_bytes
        self.chunks = self.messages = 0
        self.unacknowledged: deque[_Chunk] = deque()
        self.settled: deque[tuple[_Chunk, int, Command | Exception]] = deque()
        self.in_flight = 0
        self.tries = 0
        self.is_broken = False
        self.failed_since = self.not_before = 0.0


class _Chunk:
    __slots__ = ("body", "count", "sequence", "topic")

    def __init__(self, topic: str, sequence: int, body: bytes, count: int) -> None:
        self.topic = topic
        self.sequence = sequence
        self.body = body
        self.count = count


def chunk_bytes(rows: Outgoing, queue_ids: Numbers) -> bytes:
    """A chunk of these rows, as `protocol/staged.py` draws it; the bodies are copied once, as they lie."""
    properties = contents(rows.properties)
    head = np.array([len(rows), len(properties)], dtype=">u4")
    columns = (
        head,
        np.asarray(queue_ids).astype(">i4"),
        rows.flags.astype(">i4"),
        rows.born_ms.astype(">i8"),
        np.asarray(pc.binary_length(rows.bodies)).astype(">i4"),
        np.asarray(pc.binary_length(rows.properties)).astype(">i4"),
    )
    return b"".join((*(column.tobytes() for column in columns), contents(rows.bodies).data, properties.data))


def foreign(broker_name: str) -> ConfigError:
    return ConfigError(
        f"broker {broker_name} is not a Kourou broker, and cannot write exactly once: use the option "
        "delivery=at-least-once, where a repeated row has the same msgId"
    )


# ------------------------------------------------------------------------------------------------- the driver


class Committer:
    """What a driver does at the end of a transaction."""

    def __init__(self, cluster: Cluster, transaction: Transaction, patience_seconds: float) -> None:
        self._cluster = cluster
        self._transaction = transaction
        self._patience = patience_seconds

    def check_capable(self) -> None:
        """Raises ConfigError when a broker of the cluster cannot write exactly once."""
        for name in self._brokers():
            reply = self._ask(name, RequestCode.KOUROU_CAPABILITIES, None, b"")
            if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise foreign(name)
            accepted(reply, f"capabilities of broker {name}")
            if not reply.parse(Capabilities).staged_chunk_bytes_max:
                raise foreign(name)

    def commit(self, parts: Sequence[StagedPart]) -> int:
        """Make final what these parts are, or what was decided before; returns how many messages that are."""
        decision = decision_of(parts)
        if not decision.brokers and not any(part.is_over for part in parts):
            return 0
        in_force = self._decided_before(decision, is_over=any(part.is_over for part in parts))
        if in_force is not None:
            decision = in_force
        messages = 0
        for name in sorted(decision.brokers):
            reply, other = self._commit_at(name, decision)
            if other is not None and other != decision:
                _log.warning("%s was decided before; what was decided then is brought to its end", self._what)
                return self._commit_all(other)
            messages += reply.messages
        return messages

    def abort(self) -> None:
        """Have what was staged forgotten; a broker that is away forgets it by itself."""
        for name in self._brokers():
            try:
                self._call(name, RequestCode.KOUROU_ABORT_STAGED, b"")
            except MQError as error:
                _log.warning("%s is not aborted at broker %s: %s", self._what, name, error)

    def _commit_all(self, decision: Decision) -> int:
        return sum(self._commit_at(name, decision)[0].messages for name in sorted(decision.brokers))

    def _decided_before(self, decision: Decision, *, is_over: bool) -> Decision | None:
        """The decision that is in force already, if there is one; and every broker has all it is to commit.

        With one broker there is nothing to agree upon, and the commit itself tells."""
        names = sorted({*self._brokers(), *decision.brokers})
        if len(names) == 1 and not is_over:
            return None
        for name in names:
            body = encode_decision(decision) if name in decision.brokers and not is_over else b""
            reply = self._call(name, RequestCode.KOUROU_STAGED_STATE, body)
            if reply.parse(StagedReply).state == "committed":
                return decode_decision(reply.body) if reply.body else Decision({})
        return None

    def _commit_at(self, name: str, decision: Decision) -> tuple[StagedReply, Decision | None]:
        reply = self._call(name, RequestCode.KOUROU_COMMIT_STAGED, encode_decision(decision))
        return reply.parse(StagedReply), decode_decision(reply.body) if reply.body else None

    def _call(self, name: str, code: RequestCode, body: bytes) -> Command:
        """The broker's answer, also when it comes back only after a while; raises what it refuses with."""
        reply = self._ask(name, code, self._transaction.header, body)
        if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise foreign(name)
        return accepted(reply, f"{self._what}, broker {name}")

    def _ask(self, name: str, code: RequestCode, header: msgspec.Struct | None, body: bytes) -> Command:
        clock = self._cluster.clock
        give_up = clock.monotonic() + self._patience
        while True:
            try:
                reply = self._cluster.client.call(
                    self._address(name), request(code, header, body), COMMIT_SECONDS
                )
                error: MQError = refusal(reply.code, reply.remark, f"{self._what}, broker {name}")
                if reply.code == ResponseCode.SUCCESS or not is_passing(error):
                    return reply
            except TimedOut as late:
                # A large transaction takes its time; whoever still answers is still at work.
                error = late
                if code == RequestCode.KOUROU_COMMIT_STAGED and self._is_alive(name):
                    give_up = clock.monotonic() + self._patience
            except (Unreachable, NotFound) as away:
                error = away
            if clock.monotonic() > give_up:
                raise failure(error, f"{self._what}, broker {name}", self._patience)
            self._cluster.client.poll(AGAIN_SECONDS)

    def _is_alive(self, name: str) -> bool:
        try:
            command = request(RequestCode.KOUROU_CAPABILITIES)
            return self._cluster.client.call(self._address(name), command, 3.0).code == ResponseCode.SUCCESS
        except MQError:
            return False

    def _brokers(self) -> list[str]:
        info = self._cluster.run(operations.cluster_info(self._cluster.routes.name_servers))
        return sorted(name for name, data in info.broker_addr_table.items() if MASTER in data.broker_addrs)

    def _address(self, name: str) -> str:
        info = self._cluster.run(operations.cluster_info(self._cluster.routes.name_servers))
        data = info.broker_addr_table.get(name)
        if data is None or MASTER not in data.broker_addrs:
            raise NotFound(
                ResponseCode.BROKER_NOT_EXIST,
                f"no name server knows a master of broker {name}: is it running?",
            )
        return data.broker_addrs[MASTER]

    @property
    def _what(self) -> str:
        return f"transaction {self._transaction.number} of {self._transaction.producer}"


def decision_of(parts: Sequence[StagedPart]) -> Decision:
    brokers: dict[str, list[StageCount]] = {}
    for part in parts:
        for name, (chunks, messages) in part.brokers.items():
            if chunks:
                brokers.setdefault(name, []).append(StageCount(part.stage, chunks, messages))
    return Decision(brokers)
