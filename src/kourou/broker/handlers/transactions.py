"""How a transaction ended, as its producer says; and having producers asked once more."""

from __future__ import annotations

from functools import partial

from kourou.broker.half_messages import COMMIT, ROLLBACK
from kourou.broker.transactions import Transactions
from kourou.errors import ProtocolError, Refused
from kourou.protocol import message_id
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import EndTransaction, ResumeCheck
from kourou.remoting.answer import Answer
from kourou.store.flush import StoreStatus

NOT_KNOWN_YET = 0


class EndTransactionHandler:
    """END_TRANSACTION (37). "Not known yet" gets no answer, as in the original: it will be asked."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(EndTransaction)
        if header.outcome == NOT_KNOWN_YET:
            answer.park()
            return
        if header.outcome not in (COMMIT, ROLLBACK):
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"commitOrRollback is {header.outcome}: {COMMIT} commits, {ROLLBACK} rolls back, "
                f"{NOT_KNOWN_YET} leaves it open",
            )

        self._transactions.end(header, partial(_stored, request, answer))


class ResumeCheckHandler:
    """RESUME_CHECK_HALF_MESSAGE (323): producers are asked again about a transaction that was given up."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def __call__(self, request: Command, answer: Answer) -> None:
        offset_id = request.parse(ResumeCheck).offset_id or ""
        try:
            place = message_id.parse_offset_id(offset_id).physical_offset
        except ProtocolError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"msgId: {error}") from None
        self._transactions.resume(place, partial(_stored, request, answer))


def _stored(request: Command, answer: Answer, status: StoreStatus) -> None:
    if status.is_stored:
        answer(request.reply())
    else:
        answer(request.reply(code=ResponseCode.SERVICE_NOT_AVAILABLE, remark=status.reason))
