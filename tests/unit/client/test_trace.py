"""Message trace: the text Java's TraceDataEncoder (4.9.8) writes, and when it is sent."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.client.consume_hooks import ConsumeAttempt
from kourou.client.outcomes import DeadLetter, RetryLater
from kourou.client.producer_settings import ProducerSettings
from kourou.client.sending import Sending
from kourou.client.sends import Outgoing, SendAttempt, SendResult, SendStatus
from kourou.client.steps import Operation
from kourou.client.trace import LINES_WAITING_MAX, ConsumeTrace, Line, SendTrace, Tracing, messages_of
from kourou.client.transactions import TransactionEnd, TransactionState
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.protocol import properties, record
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message_id import UniqueIds
from tests.unit.client.consuming_world import ConsumingWorld

ID, OFFSET_ID = "7F0000010007A1B2C3D400000001", "7F00000100002A9F0000000000000000"


class Told(Tracing):
    """A trace that is only looked at."""

    def __init__(self) -> None:
        clock = SimulatedClock()
        sending = Sending("inner", "127.0.0.1:9876", ProducerSettings(), clock, Chance(1))
        self.started: list[Operation[None]] = []
        self.chores: list[Any] = []
        super().__init__("shop", "RMQ_SYS_TRACE_TOPIC", sending, self.started.append, self.chores.append)

    @property
    def lines(self) -> list[str]:
        return [each.text for each in self._lines]


def attempt(told: Told, **changes: Any) -> SendAttempt:
    table = {"UNIQ_KEY": ID, "TAGS": "new", "KEYS": "42 43", **changes.pop("table", {})}
    table = {name: value for name, value in table.items() if value}
    text = properties.encode(table).decode()
    outgoing = Outgoing("space%shop", "space%orders", b"12345", text, ID, **changes.pop("more", {}))
    queue = MessageQueue(topic="space%orders", broker_name="broker-a", queue_id=2)
    made = SendAttempt(outgoing, queue, "10.0.0.7:10911", 1_700_000_000_000)
    made.result = SendResult(SendStatus.SEND_OK, ID, OFFSET_ID, queue, 7, None, "north")._replace(**changes)
    return made


def after_send(**changes: Any) -> list[str]:
    told, clock = Told(), SimulatedClock(now_ms=1_700_000_000_012)
    SendTrace(told, "space", clock).after_send(attempt(told, **changes))
    return told.lines


def fields(text: str) -> list[str]:
    assert text.endswith("\x02")
    return text[:-1].split("\x01")


def test_a_send_is_told_as_java_tells_it() -> None:
    (text,) = after_send()
    assert fields(text) == [
        *("Pub", "1700000000000", "north", "shop", "orders", ID, "new", "42 43", "10.0.0.7:10911", "5"),
        *("12", "0", OFFSET_ID, "true"),
    ]


def test_what_a_message_does_not_have_is_null() -> None:
    (text,) = after_send(table={"TAGS": "", "KEYS": ""}, region=None)
    assert fields(text)[2] == "DefaultRegion"
    assert fields(text)[6:8] == ["null", "null"]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, "0"),
        ({"more": {"sys_flag": 4}}, "1"),
        ({"table": {"DELAY": "3"}}, "3"),
        ({"table": {"TIMER_DELAY_SEC": "3"}}, "0"),
    ],
)
def test_the_kind_of_a_message_is_told(changes: dict[str, Any], kind: str) -> None:
    (text,) = after_send(**changes)
    assert fields(text)[11] == kind


def test_a_message_that_was_stored_and_not_confirmed_is_told_as_not_done() -> None:
    (text,) = after_send(status=SendStatus.FLUSH_DISK_TIMEOUT)
    assert fields(text)[13] == "false"


def test_nothing_is_told_when_the_broker_says_so_or_there_is_no_answer() -> None:
    assert after_send(is_traced=False) == []
    told = Told()
    unanswered = attempt(told)
    unanswered.result = None
    SendTrace(told, None, SimulatedClock()).after_send(unanswered)
    assert told.lines == []


@pytest.mark.parametrize(
    ("state", "name"),
    [
        (TransactionState.COMMIT, "COMMIT_MESSAGE"),
        (TransactionState.ROLLBACK, "ROLLBACK_MESSAGE"),
        (TransactionState.UNKNOWN, "UNKNOW"),
    ],
)
def test_the_end_of_a_transaction_is_told_as_java_tells_it(state: TransactionState, name: str) -> None:
    told, clock = Told(), SimulatedClock(now_ms=5000)
    end = TransactionEnd("space%shop", "space%orders", ID, "TX", state, "10.0.0.7:10911", True, None, "42")
    SendTrace(told, "space", clock).end_transaction(end)
    assert fields(told.lines[0]) == [
        *("EndTransaction", "5000", "DefaultRegion", "shop", "orders", ID, "null", "42", "10.0.0.7:10911"),
        *("2", "TX", name, "true"),
    ]


@pytest.mark.parametrize(
    ("failure", "spent_ms", "done", "code"),
    [
        (None, 40, "true", "0"),
        (None, 60_000, "true", "1"),
        (ValueError("x"), 40, "false", "2"),
        (RetryLater(), 40, "false", "4"),
        (DeadLetter(), 40, "false", "4"),
        (RetryLater(), 60_000, "false", "1"),
    ],
)
def test_handling_is_told_before_and_after(
    failure: Exception | None, spent_ms: int, done: str, code: str
) -> None:
    world = ConsumingWorld()
    try:
        world.make_topic("orders", queues=1)
        member = world.consumer().on().start()
        world.send("orders", b"x", properties={"UNIQ_KEY": ID, "KEYS": "42"})
        (message,) = member.received
        told = Told()
        hook = ConsumeTrace(told, UniqueIds(b"\0\0\0\1", 1, 1), 60.0)
        call = ConsumeAttempt("billing", [message], 1000, in_handler=True)
        hook.before_consume(call)
        call.failure, call.ended_ms = failure, 1000 + spent_ms
        hook.after_consume(call)
        before, after = map(fields, told.lines)
        request_id = before[4]
        assert before == ["SubBefore", "1000", "DefaultRegion", "billing", request_id, ID, "0", "42"]
        ended = str(1000 + spent_ms)
        assert after == ["SubAfter", request_id, ID, str(spent_ms), done, "42", code, ended, "billing"]
    finally:
        world.close()


def test_a_message_that_is_not_to_be_traced_is_not() -> None:
    world = ConsumingWorld(trace_on=False)
    try:
        world.make_topic("orders", queues=1)
        member = world.consumer().on().start()
        world.send("orders", b"x")
        told = Told()
        call = ConsumeAttempt("billing", member.received, 1000, in_handler=True)
        hook = ConsumeTrace(told, UniqueIds(b"\0\0\0\1", 1, 1), 60.0)
        hook.before_consume(call)
        hook.after_consume(call)
        assert told.lines == []
    finally:
        world.close()


def test_lines_about_one_topic_travel_together_with_all_they_can_be_found_by() -> None:
    lines = [
        Line("orders", "a\x02", ("1", "k1", "k2")),
        Line("bills", "b\x02", ("2",)),
        Line("orders", "c\x02", ("3", "k1")),
    ]
    orders, bills = messages_of("traces", lines)
    assert (orders.topic, orders.body, orders.keys) == ("traces", b"a\x02c\x02", "1 k1 k2 3")
    assert (bills.body, bills.keys) == (b"b\x02", "2")


def test_twenty_lines_are_sent_at_once_fewer_in_time_and_too_many_are_dropped() -> None:
    told = Told()
    for number in range(19):
        told.add(Line("orders", f"{number}\x02", ()))
    assert (len(told.started), len(told.chores)) == (0, 1)
    told.add(Line("orders", "19\x02", ()))
    assert len(told.started) == 1
    for _ in range(LINES_WAITING_MAX):
        told.add(Line("orders", "more\x02", ()))
    assert (len(told.started), len(told.lines)) == (1, LINES_WAITING_MAX)


def test_a_consumer_tells_its_trace_every_five_seconds_and_when_it_leaves() -> None:
    world = ConsumingWorld()
    try:
        world.make_topic("orders", queues=1)
        world.make_topic("traces", queues=1)
        reader = world.consumer("tracers").on("traces").start()
        member = world.consumer("billing", trace="traces").on().start()
        world.send("orders", b"x", properties={"UNIQ_KEY": ID})
        assert (len(member.received), reader.bodies) == (1, [])
        world.pass_time(5)
        (told,) = reader.received
        assert [fields(text + "\x02")[0] for text in told.body.decode().split("\x02")[:-1]] == [
            "SubBefore",
            "SubAfter",
        ]
        assert told.keys == ID
        world.send("orders", b"y")
        member.close()
        world.pass_time(1)
        assert len(reader.received) == 2
    finally:
        world.close()


def test_hooks_are_told_of_every_call_and_cannot_disturb_it() -> None:
    seen: list[tuple[str, list[bytes], str]] = []

    class Hook:
        def before_consume(self, call: ConsumeAttempt) -> None:
            seen.append(("before", [message.body for message in call.messages], call.group))
            raise RuntimeError("a fault of the hook's own")

        def after_consume(self, call: ConsumeAttempt) -> None:
            seen.append(("after", [message.body for message in call.messages], repr(call.failure)))

    def fail(message: Any) -> None:
        raise RetryLater

    world = ConsumingWorld()
    try:
        world.make_topic("orders", queues=1)
        world.consumer("billing", hooks=[Hook()]).on(handler=fail).start()
        world.send("orders", b"x")
        assert seen == [("before", [b"x"], "billing"), ("after", [b"x"], "RetryLater(None)")]
    finally:
        world.close()


def test_a_message_of_a_broker_that_does_not_say_where_it_is_is_told_all_the_same() -> None:
    told = Told()
    hook = ConsumeTrace(told, UniqueIds(b"\0\0\0\1", 1, 1), 60.0)
    host = record.pack_host("127.0.0.1", 10911)
    stored = record.encode(
        topic=b"orders",
        body=b"x",
        properties=b"UNIQ_KEY\x01" + ID.encode() + b"\x02",
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        flag=0,
        sys_flag=0,
        reconsume_times=0,
        prepared_offset=0,
        born_ms=1,
        born_host=host,
        store_ms=2,
        store_host=host,
    )
    plain = record.to_received(record.decode(stored), "broker-a")
    hook.before_consume(ConsumeAttempt("billing", [plain], 1000, in_handler=True))
    assert fields(told.lines[0])[2] == "null"
