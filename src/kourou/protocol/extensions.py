"""Requests that only a Kourou broker answers; Apache's brokers say REQUEST_CODE_NOT_SUPPORTED to all of them.

A client asks for the capabilities first (`KOUROU_CAPABILITIES`), and does with the rest as they say. Names
and numbers are described in `docs/compatibility.md`. The codes stay below 32768: in a binary header a code
has 16 bits.
"""

from __future__ import annotations

import msgspec

from kourou.protocol.headers import WireHeader
from kourou.protocol.numbers import Int32, Int64


class Capabilities(WireHeader, frozen=True):
    """Reply of KOUROU_CAPABILITIES (30001). A number that is missing or 0: that request is not served."""

    kourou_version: str
    broker_name: str = ""
    bulk_pull_bytes_max: Int32 = 0
    staged_chunk_bytes_max: Int32 = 0


class BulkPull(WireHeader, frozen=True):
    """KOUROU_BULK_PULL (30002): a pull without the limits of a pull. Answered like one, and at once."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    bytes_max: Int32
    """Of records, all together; one record always comes."""
    queue_offset_end: Int64 | None = None
    """Where to stop, if not at the end of the queue."""
    subscription: str | None = None
    expression_type: str | None = None
    headers_only: bool = False
    """Leave the bodies out: every record says that its body has no bytes, and keeps the CRC it had."""


class StageMessages(WireHeader, frozen=True):
    """KOUROU_STAGE (30003): a chunk (`staged.py`) of messages that nobody sees before
    KOUROU_COMMIT_STAGED."""

    topic: str
    producer: str
    number: Int64
    stage: str
    sequence: Int32
    """Of the chunk in its stage: 0, 1, 2, … without a gap."""


class StageReply(WireHeader, frozen=True):
    state: str
    """`staged`; `repeated`: it was there already; `committed`: the whole transaction is over already."""


class StagedTransaction(WireHeader, frozen=True):
    """KOUROU_COMMIT_STAGED (30004), KOUROU_ABORT_STAGED (30005), KOUROU_STAGED_STATE (30006).

    The body of the first and, if it is to be checked, of the last is a `Decision`.
    """

    producer: str
    number: Int64


class StagedReply(WireHeader, frozen=True):
    """What became of a transaction; the body is the decision in force, if that is known."""

    state: str
    """`open`, `ready` (all that the decision names is here) or `committed`."""
    messages: Int64 = 0


class StageCount(msgspec.Struct, frozen=True, array_like=True):
    """One stage, as whoever wrote it counted."""

    stage: str
    chunks: int
    messages: int


class Decision(msgspec.Struct, frozen=True):
    """Which stages make up a transaction, on every broker that has any: the others never were."""

    brokers: dict[str, list[StageCount]]


def encode_decision(decision: Decision) -> bytes:
    return msgspec.json.encode(decision)


def decode_decision(data: bytes) -> Decision:
    """Raises msgspec.MsgspecError when `data` is something else."""
    return msgspec.json.decode(data, type=Decision)
