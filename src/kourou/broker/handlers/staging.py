"""Writing exactly once: chunks are staged, a transaction is committed, aborted, asked about; and what we
are."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

import kourou
from kourou.broker.config import BrokerConfig
from kourou.broker.sequences import Outcome, Sequences
from kourou.errors import Refused
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.extensions import (
    Capabilities,
    Decision,
    StagedReply,
    StagedTransaction,
    StageMessages,
    StageReply,
    decode_decision,
    encode_decision,
)
from kourou.remoting.answer import Answer
from kourou.store.flush import FLUSH_SLAVE_TIMEOUT, FLUSH_TIMEOUT, OK, SLAVE_NOT_AVAILABLE, StoreStatus

BULK_PULL_BYTES_MAX: Final = 8 * 1024 * 1024
"""Half of what fits into a frame; more would hold up the other readers for longer than it gains."""


class CapabilitiesHandler:
    """KOUROU_CAPABILITIES (30001)."""

    def __init__(self, config: BrokerConfig) -> None:
        self._reply = Capabilities(
            kourou_version=kourou.__version__,
            broker_name=config.broker_name,
            bulk_pull_bytes_max=BULK_PULL_BYTES_MAX,
            # With what is added to it, a chunk has to fit into one file of the log.
            staged_chunk_bytes_max=min(config.message_bytes_max, config.segment_bytes // 2),
        )

    def __call__(self, request: Command, answer: Answer) -> None:
        answer(request.reply(self._reply))


class StageHandler:
    """KOUROU_STAGE (30003)."""

    def __init__(self, sequences: Sequences) -> None:
        self._sequences = sequences

    def __call__(self, request: Command, answer: Answer) -> None:
        def staged(state: str, status: StoreStatus) -> None:
            answer(_answer_to(request, StageReply(state), status))

        header = request.parse(StageMessages)
        self._sequences.stage(header, request.body, answer.connection.packed_peer, staged)


class CommitStagedHandler:
    """KOUROU_COMMIT_STAGED (30004): answered when every message of the transaction is stored."""

    def __init__(self, sequences: Sequences) -> None:
        self._sequences = sequences

    def __call__(self, request: Command, answer: Answer) -> None:
        header, decision = request.parse(StagedTransaction), _decision(request.body)
        request = Command(request.code, opaque=request.opaque, serialization=request.serialization)
        self._sequences.commit(header, decision, partial(_tell, request, answer))
        answer.park()


class AbortStagedHandler:
    """KOUROU_ABORT_STAGED (30005)."""

    def __init__(self, sequences: Sequences) -> None:
        self._sequences = sequences

    def __call__(self, request: Command, answer: Answer) -> None:
        self._sequences.abort(request.parse(StagedTransaction))
        answer(request.reply())


class StagedStateHandler:
    """KOUROU_STAGED_STATE (30006)."""

    def __init__(self, sequences: Sequences) -> None:
        self._sequences = sequences

    def __call__(self, request: Command, answer: Answer) -> None:
        decision = _decision(request.body) if request.body else None
        outcome = self._sequences.state(request.parse(StagedTransaction), decision)
        answer(_outcome(request, outcome))


_CODES = {
    FLUSH_TIMEOUT.name: ResponseCode.FLUSH_DISK_TIMEOUT,
    FLUSH_SLAVE_TIMEOUT.name: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    SLAVE_NOT_AVAILABLE.name: ResponseCode.SLAVE_NOT_AVAILABLE,
}
"""How it is said that something is stored, and not as safely as was asked for."""


def _decision(body: bytes) -> Decision:
    try:
        return decode_decision(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the body is no decision: {error}") from None


def _tell(request: Command, answer: Answer, outcome: Outcome, status: StoreStatus) -> None:
    if status is OK:
        answer(_outcome(request, outcome))
    else:
        answer(_answer_to(request, None, status))


def _outcome(request: Command, outcome: Outcome) -> Command:
    body = b"" if outcome.decision is None else encode_decision(outcome.decision)
    return request.reply(StagedReply(outcome.state, outcome.messages), body)


def _answer_to(request: Command, reply: StageReply | None, status: StoreStatus) -> Command:
    """Whoever wants it exactly once must hear that it is on the disk; what was not yet can be asked again."""
    if status is OK:
        return request.reply(reply)
    code = _CODES.get(status.name, ResponseCode.SERVICE_NOT_AVAILABLE)
    return request.reply(code=code, remark=status.reason)
