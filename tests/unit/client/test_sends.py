from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kourou.client import sends
from kourou.client.routes import NameServers, Route, Routes
from kourou.client.sends import Outgoing, Plan, SendResult, SendStatus
from kourou.client.steps import Call, Operation
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.errors import (
    Busy,
    ConnectionLost,
    MQError,
    Refused,
    TimedOut,
    Unreachable,
)
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, field_texts
from kourou.protocol.headers import GetRoute, SendMessageV2, SendReply
from tests.unit.client.conversation import TWO_BROKERS, asked, play, reply, route_of

QUEUE = MessageQueue(topic="t", broker_name="broker-a", queue_id=2)
SENT = SendReply("0A000001" + "0" * 24, queue_id=3, queue_offset=41, transaction_id="X")


class Brokers:
    """A name server that knows two brokers, and brokers that answer what they are told, in order."""

    def __init__(self, *outcomes: Command | MQError) -> None:
        self.outcomes: Iterator[Command | MQError] = iter(outcomes)
        self.sends: list[Call] = []
        self.lookups = 0

    def __call__(self, step: Call) -> Command:
        if step.command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            self.lookups += 1
            assert step.command.parse(GetRoute).topic == "t"
            return reply(body=route_of(TWO_BROKERS).encode())
        self.sends.append(step)
        outcome = next(self.outcomes)
        if isinstance(outcome, MQError):
            raise outcome
        return outcome


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def routes(clock: SimulatedClock) -> Routes:
    return Routes(NameServers(["n:9876"], Chance(1), clock), clock)


def alternately(route: Route, failed: MessageQueue | None) -> MessageQueue:
    avoid = None if failed is None else failed.broker_name
    return next(queue for queue in route.write_queues if queue.broker_name != avoid)


def silent(_address: str) -> Operation[None]:
    yield from ()


def sending(
    routes: Routes, clock: SimulatedClock, *, retries: int = 2, timeout: float = 3.0, **others: Any
) -> Operation[SendResult]:
    outgoing = Outgoing("g", "t", b"body", "TAGS\x01new\x02", "ID", flag=5, born_ms=77)
    plan = Plan(alternately, silent, timeout, retries, **others)
    return sends.send(outgoing, routes, plan, clock)


def test_a_send_names_the_queue_and_tells_where_the_message_is(routes: Routes, clock: SimulatedClock) -> None:
    brokers = Brokers(reply(SENT))
    result, _ = play(sending(routes, clock), brokers)
    assert result == SendResult(
        SendStatus.SEND_OK,
        "ID",
        SENT.message_id,
        MessageQueue(topic="t", broker_name="broker-a", queue_id=3),
        41,
        "X",
        "DefaultRegion",
    )
    (call,) = brokers.sends
    assert asked(call) == ("a:10911", RequestCode.SEND_MESSAGE_V2)
    assert call.command.body == b"body"
    assert call.command.fields == {
        "a": "g",
        "b": "t",
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "77",
        "h": "5",
        "i": "TAGS\x01new\x02",
        "j": "0",
        "k": "false",
        "m": "false",
    }


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.SUCCESS, SendStatus.SEND_OK),
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
def test_a_stored_message_is_a_result_whatever_was_slow(
    routes: Routes, clock: SimulatedClock, code: int, status: SendStatus
) -> None:
    brokers = Brokers(reply(SENT, code=code))
    result, _ = play(sending(routes, clock), brokers)
    assert result.status is status
    assert len(brokers.sends) == 1


@pytest.mark.parametrize("code", [17, 14, 1, 2, 16, 204, 205])
def test_another_broker_is_tried_after_a_refusal_that_may_be_its_own(
    routes: Routes, clock: SimulatedClock, code: int
) -> None:
    brokers = Brokers(reply(code=code), reply(SENT))
    result, _ = play(sending(routes, clock), brokers)
    assert result.queue.broker_name == "broker-b"
    assert [call.address for call in brokers.sends] == ["a:10911", "b:10911"]


@pytest.mark.parametrize("error", [Unreachable("refused"), ConnectionLost("lost"), TimedOut("late")])
def test_another_broker_is_tried_after_a_network_error(
    routes: Routes, clock: SimulatedClock, error: MQError
) -> None:
    brokers = Brokers(error, reply(SENT))
    result, _ = play(sending(routes, clock), brokers)
    assert result.queue.broker_name == "broker-b"


@pytest.mark.parametrize(
    "code", sorted(set(map(int, ResponseCode)) - {0, 10, 11, 12, 17, 14, 1, 2, 16, 204, 205})
)
def test_any_other_refusal_is_raised_at_once(routes: Routes, clock: SimulatedClock, code: int) -> None:
    brokers = Brokers(reply(code=code, remark="because"))
    with pytest.raises(
        Refused, match=r"broker-a \(a:10911\) refused a message for queue 0 of 't': because \["
    ) as refused:
        play(sending(routes, clock), brokers)
    assert (refused.value.code, refused.value.remark) == (code, "because")
    assert len(brokers.sends) == 1


def test_two_retries_are_two_and_the_error_tells_the_tries(routes: Routes, clock: SimulatedClock) -> None:
    busy = [reply(code=ResponseCode.SYSTEM_BUSY, remark="[OVERLOAD]") for _ in range(4)]
    brokers = Brokers(*busy)
    with pytest.raises(Busy) as failed:
        play(sending(routes, clock), brokers)
    assert len(brokers.sends) == 3
    assert str(failed.value).startswith(
        "sending to 't' failed: 3 tries in 0 ms "
        "(broker-a queue 0, broker-b queue 0, broker-a queue 0); last: broker-a (a:10911) refused"
    )
    assert failed.value.remark == "[OVERLOAD]"


def test_without_retries_the_first_failure_is_the_last(routes: Routes, clock: SimulatedClock) -> None:
    brokers = Brokers(ConnectionLost("it hung up"))
    with pytest.raises(ConnectionLost, match=r"1 try in 0 ms \(broker-a queue 0\); last: it hung up"):
        play(sending(routes, clock, retries=0), brokers)


def test_one_timeout_is_for_all_tries_together(routes: Routes, clock: SimulatedClock) -> None:
    seen: list[float] = []

    def slow(step: Call) -> Command:
        if step.command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return reply(body=route_of(TWO_BROKERS).encode())
        seen.append(step.timeout)
        clock.advance(2.0)
        raise ConnectionLost("lost")

    with pytest.raises(ConnectionLost, match="2 tries in 4000 ms"):
        play(sending(routes, clock), slow)
    assert seen == pytest.approx([3.0, 1.0])


def test_a_send_whose_time_went_into_finding_brokers_says_so(routes: Routes, clock: SimulatedClock) -> None:
    def slow(step: Call) -> Command:
        clock.advance(3.0)
        return reply(body=route_of(TWO_BROKERS).encode())

    with pytest.raises(TimedOut, match="no time was left to send to 't'"):
        play(sending(routes, clock), slow)


def test_after_a_failed_try_the_next_send_asks_for_the_route_again(
    routes: Routes, clock: SimulatedClock
) -> None:
    brokers = Brokers(ConnectionLost("lost"), reply(SENT), reply(SENT), reply(SENT))
    for _ in range(3):
        play(sending(routes, clock), brokers)
    assert brokers.lookups == 2


def test_a_send_reply_without_its_fields_is_refused_with_their_names(
    routes: Routes, clock: SimulatedClock
) -> None:
    with pytest.raises(Refused, match="msgId"):
        play(sending(routes, clock, retries=0), Brokers(reply()))


def test_a_one_way_send_is_flagged_and_tried_once(routes: Routes, clock: SimulatedClock) -> None:
    outgoing = Outgoing("g", "t", b"body", "", "ID")
    brokers = Brokers(Unreachable("refused"))
    with pytest.raises(Unreachable):
        play(sends.send_one_way(outgoing, routes, Plan(alternately, silent, 3.0), clock), brokers)
    (call,) = brokers.sends
    assert call.one_way
    assert call.command.is_one_way


@pytest.mark.parametrize("batch", [True, False])
def test_the_fields_of_a_send_are_those_of_its_header(batch: bool) -> None:
    outgoing = Outgoing("g", "t", b"body", "TAGS\x01new\x02", "ID", 0x101, -5, 77, batch)
    header = SendMessageV2(
        "g", "t", "TBW102", 4, 2, 0x101, 77, -5, outgoing.properties, 0, False, None, batch
    )
    assert dict(outgoing.request(QUEUE).fields) == field_texts(header)


def test_a_batch_goes_out_as_one(routes: Routes) -> None:
    command = Outgoing("g", "t", b"", "", "ID", batch=True).request(QUEUE)
    assert command.code == RequestCode.SEND_BATCH_MESSAGE
    assert command.fields["m"] == "true"


# ---------------------------------------------------------------------------------- what can be asked for


def test_another_broker_is_tried_when_one_stored_without_confirming_if_that_is_wished(
    routes: Routes, clock: SimulatedClock
) -> None:
    slow = reply(SENT, code=ResponseCode.FLUSH_DISK_TIMEOUT)
    brokers = Brokers(slow, reply(SENT))
    result, _ = play(sending(routes, clock, another_when_not_stored=True), brokers)
    assert (result.status, result.broker_name) == (SendStatus.SEND_OK, "broker-b")
    assert len(brokers.sends) == 2


@pytest.mark.parametrize("last", [ConnectionLost("lost"), reply(code=ResponseCode.MESSAGE_ILLEGAL)])
def test_a_message_that_is_stored_somewhere_is_not_called_lost(
    routes: Routes, clock: SimulatedClock, last: Command | MQError
) -> None:
    slow = reply(SENT, code=ResponseCode.SLAVE_NOT_AVAILABLE)
    result, _ = play(sending(routes, clock, retries=1, another_when_not_stored=True), Brokers(slow, last))
    assert result.status is SendStatus.SLAVE_NOT_AVAILABLE


@pytest.mark.parametrize("code", [17, 14, 1, 2, 16, 204, 205])
def test_without_codes_to_retry_a_refusal_is_final(routes: Routes, clock: SimulatedClock, code: int) -> None:
    brokers = Brokers(reply(code=code))
    with pytest.raises(Refused):
        play(sending(routes, clock, retried_codes=frozenset()), brokers)
    assert len(brokers.sends) == 1


def test_the_vip_channel_is_two_ports_below(routes: Routes, clock: SimulatedClock) -> None:
    brokers = Brokers(reply(SENT))
    play(sending(routes, clock, vip_channel=True), brokers)
    assert brokers.sends[0].address == "a:10909"


def test_an_observer_learns_how_each_try_went(routes: Routes, clock: SimulatedClock) -> None:
    seen: list[tuple[Any, ...]] = []

    class Observer:
        def tried(self, *how: Any) -> None:
            seen.append(how)

    outcomes: Iterator[MQError | Command] = iter(
        [ConnectionLost("lost"), reply(code=ResponseCode.SYSTEM_BUSY), reply(SENT)]
    )

    def slowly(step: Call) -> Command:
        if step.command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return reply(body=route_of(TWO_BROKERS).encode())
        clock.advance(0.5)
        outcome = next(outcomes)
        if isinstance(outcome, MQError):
            raise outcome
        return outcome

    play(sending(routes, clock, observer=Observer()), slowly)
    assert seen == [
        ("broker-a", 0.5, True, True),
        ("broker-b", 0.5, True, False),
        ("broker-a", 0.5, False, False),
    ]


def test_hooks_see_every_try_before_and_after(routes: Routes, clock: SimulatedClock) -> None:
    seen: list[tuple[Any, ...]] = []

    def around(attempt: sends.SendAttempt, is_over: bool) -> None:
        seen.append((attempt.queue.broker_name, attempt.address, is_over, attempt.result, attempt.error))

    lost = ConnectionLost("lost")
    result, _ = play(sending(routes, clock, around=around), Brokers(lost, reply(SENT)))
    assert seen == [
        ("broker-a", "a:10911", False, None, None),
        ("broker-a", "a:10911", True, None, lost),
        ("broker-b", "b:10911", False, None, None),
        ("broker-b", "b:10911", True, result, None),
    ]


def test_a_queue_whose_broker_is_away_is_unreachable_and_named(routes: Routes, clock: SimulatedClock) -> None:
    away = MessageQueue(topic="t", broker_name="broker-z", queue_id=3)
    plan = Plan(lambda route, failed: away, silent, 3.0)
    with pytest.raises(Unreachable, match=r"1 try .*\(broker-z queue 3\).*queue 3 of 't' cannot be reached"):
        play(sends.send(Outgoing("g", "t", b"x", "", "ID"), routes, plan, clock), Brokers())


def test_a_broker_at_another_address_than_it_tells_is_found_and_used(
    routes: Routes, clock: SimulatedClock
) -> None:
    greeted: list[str] = []

    def greet(address: str) -> Operation[None]:
        greeted.append(address)
        if address == "a:10911":
            raise Unreachable("no way there")
        yield from ()

    def world(step: Call) -> Command:
        if step.command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return reply(body=route_of(TWO_BROKERS).encode())
        assert step.address == "n:10911"
        return reply() if step.command.code == RequestCode.GET_TOPIC_STATS_INFO else reply(SENT)

    plan = Plan(alternately, greet, 3.0)
    outgoing = Outgoing("g", "t", b"x", "", "ID")
    result, _ = play(sends.send(outgoing, routes, plan, clock), world)
    assert (result.broker_name, greeted) == ("broker-a", ["a:10911", "n:10911"])
    play(sends.send(outgoing, routes, plan, clock), world)
    assert greeted[2:] == ["n:10911"]
