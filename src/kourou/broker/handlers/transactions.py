"""How a transaction ended, as its producer says."""

from __future__ import annotations

from kourou.broker.half_messages import COMMIT, ROLLBACK
from kourou.broker.transactions import Transactions
from kourou.errors import Refused
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import EndTransaction
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

        def stored(status: StoreStatus) -> None:
            if status.is_stored:
                answer(request.reply())
            else:
                answer(request.reply(code=ResponseCode.SERVICE_NOT_AVAILABLE, remark=status.reason))

        self._transactions.end(header, stored)
