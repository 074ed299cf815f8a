"""Transactions: a message that is stored now, and visible when something else has happened.

    half message stored --> the caller's own work --> END_TRANSACTION (37), one-way: commit or roll back
                                    |
                                    '-- nobody told, or unknown: the broker asks (39), any producer of the
                                        group that is there; it answers with 37 again

The answer is lost when a connection breaks, and nobody waits for it: the broker asks again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from kourou.client.sends import SendResult, SendStatus
from kourou.client.steps import Call, Operation
from kourou.errors import MQError, ProtocolError, Unreachable
from kourou.message import KEYS, TAGS, UNIQUE_KEY, ReceivedMessage
from kourou.protocol import record
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import FLAG_ONE_WAY, Command, request
from kourou.protocol.headers import CheckTransaction, EndTransaction
from kourou.protocol.message_id import parse_offset_id

TIMEOUT_SECONDS = 3.0
REMARK_CHARACTERS_MAX = 512
NO_PROPERTIES: Mapping[str, str] = {}

_log = logging.getLogger("kourou.client")


class TransactionEnd(NamedTuple):
    """How a transaction ended, as hooks see it."""

    group: str
    topic: str
    message_id: str
    transaction_id: str | None
    state: TransactionState
    address: str
    """Of the broker that is told."""
    from_check: bool
    """Whether a broker asked for it."""
    tags: str | None = None
    keys: str | None = None
    region: str | None = None
    """Of the broker, as far as it is known."""


class EndTransactionHook(Protocol):
    """Is told before a broker is told. What it raises is logged, and stops nothing."""

    def end_transaction(self, end: TransactionEnd) -> None: ...


class TransactionState(Enum):
    """What is to become of the message of a transaction; the values are those that travel."""

    COMMIT = 8
    """Consumers get it."""
    ROLLBACK = 12
    """Nobody gets it."""
    UNKNOWN = 0
    """The broker shall ask again later."""


def check_half_stored(sent: SendResult) -> None:
    """Raises when the half message is not as safe as it should be: then the work had better not begin."""
    if sent.status is not SendStatus.SEND_OK:
        raise Unreachable(
            f"the transaction was not begun: its message {sent.message_id} is stored at {sent.broker_name}, "
            f"but not confirmed ({sent.status.value}); it is rolled back, try again"
        )


def end_of(
    group: str, topic: str, sent: SendResult, state: TransactionState, why: Exception | None = None
) -> Command:
    """The request that ends the transaction a half message began."""
    header = EndTransaction(
        producer_group=group,
        half_queue_offset=sent.queue_offset,
        physical_offset=parse_offset_id(sent.offset_id).physical_offset,
        outcome=state.value,
        from_check=False,
        unique_id=sent.message_id,
        transaction_id=sent.transaction_id,
        topic=topic,
    )
    return _end(header, None if why is None else f"executeLocalTransactionBranch exception: {_told(why)}")


class Check(NamedTuple):
    """A broker's question about a half message."""

    address: str
    """Of the broker that asks."""
    header: CheckTransaction
    message: ReceivedMessage
    topic: str
    """As the broker knows it."""

    @property
    def group(self) -> str | None:
        return self.message.properties.get("PGROUP")

    def answer(self, group: str, state: TransactionState, why: BaseException | None = None) -> Command:
        header = EndTransaction(
            producer_group=group,
            half_queue_offset=self.header.half_queue_offset,
            physical_offset=self.header.physical_offset,
            outcome=state.value,
            from_check=True,
            unique_id=self.message.properties.get(UNIQUE_KEY) or self.message.offset_id,
            transaction_id=self.header.transaction_id,
            topic=self.topic,
        )
        return _end(header, None if why is None else f"checkLocalTransactionState Exception, {_told(why)}")


def parse_check(command: Command, address: str) -> Check:
    """What CHECK_TRANSACTION_STATE (39) asks; raises ProtocolError when it holds no message."""
    header = command.parse(CheckTransaction)
    try:
        message = record.to_received(record.decode(command.body), header.broker_name or "")
    except ProtocolError as error:
        raise ProtocolError(f"{address} asks about a transaction without its message: {error}") from None
    return Check(address, header, message, message.topic)


def tell(
    address: str,
    command: Command,
    hooks: Iterable[EndTransactionHook] = (),
    properties: Mapping[str, str] = NO_PROPERTIES,
) -> Operation[None]:
    """Send the end of a transaction; a failure is only noted, since the broker will ask.

    `properties` are those of its message.
    """
    for hook in hooks:
        try:
            hook.end_transaction(_seen(address, command.parse(EndTransaction), properties))
        except Exception:
            _log.exception("an end-transaction hook failed")
    try:
        yield Call(address, command, TIMEOUT_SECONDS, one_way=True)
    except MQError as error:
        _log.warning("the end of a transaction was not told, the broker will ask for it: %s", error)


def _seen(address: str, header: EndTransaction, properties: Mapping[str, str]) -> TransactionEnd:
    return TransactionEnd(
        header.producer_group,
        header.topic or "",
        header.unique_id or "",
        header.transaction_id,
        TransactionState(header.outcome),
        address,
        header.from_check,
        properties.get(TAGS),
        properties.get(KEYS),
        properties.get("MSG_REGION"),
    )


def _end(header: EndTransaction, remark: str | None) -> Command:
    command = request(RequestCode.END_TRANSACTION, header, flag=FLAG_ONE_WAY)
    command.remark = remark
    return command


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:REMARK_CHARACTERS_MAX]
