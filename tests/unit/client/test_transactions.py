from __future__ import annotations

import pytest

from kourou.client import transactions
from kourou.client.sends import SendResult, SendStatus
from kourou.client.transactions import TransactionState
from kourou.errors import ProtocolError, Unreachable
from kourou.protocol import record
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import request
from kourou.protocol.headers import CheckTransaction
from kourou.protocol.message_id import offset_id
from tests.unit.client.conversation import play

HOST = record.pack_host("10.0.0.1", 10911)
SENT = SendResult(
    SendStatus.SEND_OK,
    "UNIQUE",
    offset_id(HOST, 4711),
    MessageQueue(topic="t", broker_name="broker-a", queue_id=0),
    7,
    "TRANSACTION",
)


def half(group: str = "g", unique_id: str | None = "UNIQUE") -> bytes:
    properties = f"PGROUP\x01{group}\x02" + (f"UNIQ_KEY\x01{unique_id}\x02" if unique_id else "")
    return record.encode(
        topic=b"t",
        queue_id=1,
        flag=0,
        queue_offset=9,
        physical_offset=5000,
        sys_flag=0,
        born_ms=1,
        born_host=HOST,
        store_ms=2,
        store_host=HOST,
        reconsume_times=0,
        prepared_offset=0,
        body=b"body",
        properties=properties.encode(),
    )


def test_the_end_of_a_transaction_names_its_half_message_in_every_way() -> None:
    command = transactions.end_of("g", "t", SENT, TransactionState.COMMIT)
    assert command.code == RequestCode.END_TRANSACTION
    assert command.is_one_way
    assert command.remark is None
    assert dict(command.fields) == {
        "producerGroup": "g",
        "tranStateTableOffset": "7",
        "commitLogOffset": "4711",
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": "UNIQUE",
        "transactionId": "TRANSACTION",
        "topic": "t",
    }


def test_a_broker_is_told_why_a_transaction_was_rolled_back() -> None:
    command = transactions.end_of("g", "t", SENT, TransactionState.ROLLBACK, ValueError("no money"))
    assert command.fields["commitOrRollback"] == "12"
    assert command.remark == "executeLocalTransactionBranch exception: ValueError: no money"


def test_a_question_is_answered_with_the_places_it_names() -> None:
    header = CheckTransaction(9, 5000, "UNIQUE", "TRANSACTION", "OFFSET", "t", "broker-a")
    asked = request(RequestCode.CHECK_TRANSACTION_STATE, header, half())
    check = transactions.parse_check(asked, "10.0.0.1:10911")
    assert (check.group, check.message.body, check.message.broker_name) == ("g", b"body", "broker-a")
    command = check.answer("g", TransactionState.UNKNOWN, RuntimeError("away"))
    assert dict(command.fields) == {
        "producerGroup": "g",
        "tranStateTableOffset": "9",
        "commitLogOffset": "5000",
        "commitOrRollback": "0",
        "fromTransactionCheck": "true",
        "msgId": "UNIQUE",
        "transactionId": "TRANSACTION",
        "topic": "t",
    }
    assert command.remark == "checkLocalTransactionState Exception, RuntimeError: away"


def test_a_half_message_without_a_unique_id_is_named_by_its_place() -> None:
    asked = request(RequestCode.CHECK_TRANSACTION_STATE, CheckTransaction(9, 5000), half(unique_id=None))
    command = transactions.parse_check(asked, "a:1").answer("g", TransactionState.COMMIT)
    assert command.fields["msgId"] == offset_id(HOST, 5000)


@pytest.mark.parametrize("body", [b"", b"nonsense"])
def test_a_question_without_a_message_makes_no_sense(body: bytes) -> None:
    asked = request(RequestCode.CHECK_TRANSACTION_STATE, CheckTransaction(9, 5000), body)
    with pytest.raises(ProtocolError, match="a:1 asks about a transaction without its message"):
        transactions.parse_check(asked, "a:1")


@pytest.mark.parametrize("status", [status for status in SendStatus if status is not SendStatus.SEND_OK])
def test_a_half_message_that_is_not_safe_begins_no_transaction(status: SendStatus) -> None:
    transactions.check_half_stored(SENT)
    with pytest.raises(Unreachable, match=rf"not begun.*UNIQUE.*{status.value}.*rolled back"):
        transactions.check_half_stored(SENT._replace(status=status))


def test_an_end_that_cannot_be_told_is_no_error_because_the_broker_asks() -> None:
    def away(step: object) -> object:
        raise Unreachable("refused")

    _, steps = play(
        transactions.tell("a:1", transactions.end_of("g", "t", SENT, TransactionState.COMMIT)), away
    )
    assert len(steps) == 1


def test_hooks_see_how_a_transaction_ends_and_cannot_stop_it() -> None:
    seen: list[transactions.TransactionEnd] = []

    class Hook:
        def end_transaction(self, end: transactions.TransactionEnd) -> None:
            seen.append(end)
            raise RuntimeError("a fault of the hook's own")

    command = transactions.end_of("g", "t", SENT, TransactionState.ROLLBACK)
    table = {"TAGS": "new", "KEYS": "42", "MSG_REGION": "north"}
    _, steps = play(transactions.tell("a:1", command, [Hook()], table), lambda step: None)
    assert len(steps) == 1
    (end,) = seen
    assert end[:7] == ("g", "t", "UNIQUE", "TRANSACTION", TransactionState.ROLLBACK, "a:1", False)
    assert end[7:] == ("new", "42", "north")
