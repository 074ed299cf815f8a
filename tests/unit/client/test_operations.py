from __future__ import annotations

from collections.abc import Iterator

import pytest

from kourou.client import operations
from kourou.client.operations import Subscription, TopicSettings
from kourou.client.routes import NameServers, Routes
from kourou.client.steps import Call
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.errors import (
    ConfigError,
    Denied,
    MQError,
    NotFound,
    ProtocolError,
    Unreachable,
)
from kourou.protocol.bodies import BrokerData, ClusterInfo, MessageQueue, TopicList
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import GetRoute, OffsetReply, PullReply, SendReply
from tests.unit.client.conversation import TWO_BROKERS, asked, play, reply, route_of, stored

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


# ------------------------------------------------------------------------------------------------- pulling


def pulled_with(code: int, body: bytes = b"", tags: str = "*") -> operations.Pulled:
    answer = reply(PullReply(0, next_begin_offset=12, min_offset=3, max_offset=20), body, code=code)
    operation = operations.pull("a:1", QUEUE, 10, Subscription("t", tags, 1), "g")
    result, _ = play(operation, lambda step: answer)
    return result


def test_a_pull_brings_its_own_subscription() -> None:
    command = operations.pull_request(QUEUE, 7, Subscription("t", "b||a ", 99), "g", count=16, suspend=15.0)
    assert command.code == RequestCode.PULL_MESSAGE
    assert command.fields == {
        "consumerGroup": "g",
        "topic": "t",
        "queueId": "2",
        "queueOffset": "7",
        "maxMsgNums": "16",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": "a || b",
        "subVersion": "99",
        "expressionType": "TAG",
    }


def test_a_pull_that_shall_not_wait_says_so() -> None:
    command = operations.pull_request(QUEUE, 7, Subscription("t", "*", 1), "g")
    assert (command.fields["sysFlag"], command.fields["suspendTimeoutMillis"]) == ("4", "0")


def test_the_caller_waits_longer_than_the_broker() -> None:
    operation = operations.pull("a:1", QUEUE, 0, Subscription("t", "*", 1), "g", suspend=15.0, timeout=3.0)
    assert next(operation).timeout == 18.0  # type: ignore[union-attr]


def test_found_messages_are_decoded_with_their_broker() -> None:
    pulled = pulled_with(ResponseCode.SUCCESS, stored(10) + stored(11))
    assert [message.queue_offset for message in pulled.messages] == [10, 11]
    assert {message.broker_name for message in pulled.messages} == {"broker-a"}
    assert (pulled.next_offset, pulled.min_offset, pulled.max_offset, pulled.moved) == (12, 3, 20, False)


def test_tags_are_compared_in_full_since_hashes_collide() -> None:
    # "Aa" and "BB" have the same Java hash, so a broker lets both through.
    body = stored(10, "Aa") + stored(11, "BB") + stored(12)
    assert [message.tags for message in pulled_with(0, body, "BB").messages] == ["BB"]
    assert len(pulled_with(0, body, "*").messages) == 3
    assert len(pulled_with(0, body, "Aa || BB").messages) == 2


@pytest.mark.parametrize("code", [ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY])
def test_no_message_is_a_result_and_not_an_error(code: int) -> None:
    pulled = pulled_with(code)
    assert (pulled.messages, pulled.next_offset, pulled.moved) == ([], 12, False)


def test_an_offset_that_is_not_there_is_corrected() -> None:
    pulled = pulled_with(ResponseCode.PULL_OFFSET_MOVED)
    assert (pulled.moved, pulled.next_offset) == (True, 12)


def test_a_pull_may_be_denied() -> None:
    with pytest.raises(Denied, match=r"pulling from queue 2 of 't' at broker-a: no \[NO_PERMISSION \(16\)\]"):
        play(
            operations.pull("a:1", QUEUE, 0, Subscription("t", "*", 1), "g"),
            lambda step: reply(code=ResponseCode.NO_PERMISSION, remark="no"),
        )


def test_records_that_make_no_sense_are_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        pulled_with(ResponseCode.SUCCESS, b"\0\0\0\x40garbage")


# ------------------------------------------------------------------------------------------------- offsets


def test_a_committed_offset_is_a_number_or_none() -> None:
    operation = operations.committed_offset("a:1", QUEUE, "g")
    result, (call,) = play(operation, lambda step: reply(OffsetReply(17)))
    assert result == 17
    assert call.command.fields["setZeroIfNotFound"] == "false"
    operation = operations.committed_offset("a:1", QUEUE, "g")
    result, _ = play(operation, lambda step: reply(code=ResponseCode.QUERY_NOT_FOUND))
    assert result is None


def test_an_unknown_group_is_not_taken_for_a_new_one() -> None:
    with pytest.raises(NotFound, match="SUBSCRIPTION_GROUP_NOT_EXIST"):
        play(
            operations.committed_offset("a:1", QUEUE, "g"),
            lambda step: reply(code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        )


def test_an_offset_is_stored_at_the_next_broker_when_the_first_is_away() -> None:
    def answer(step: Call) -> Command:
        if step.address != "c:1":
            raise Unreachable(f"cannot reach {step.address}")
        return reply(None)

    _, calls = play(operations.commit_offset(["a:1", "b:1", "c:1"], QUEUE, "g", 9), answer)
    assert [call.address for call in calls] == ["a:1", "b:1", "c:1"]
    with pytest.raises(Unreachable, match="b:1"):
        play(operations.commit_offset(["a:1", "b:1"], QUEUE, "g", 9), answer)


def test_offsets_are_asked_for_and_stored_under_rocketmq_s_names() -> None:
    def answer(step: Call) -> Command:
        return reply(OffsetReply(5))

    for operation, code, fields in [
        (operations.commit_offset(["a:1"], QUEUE, "g", 9), 15, {"consumerGroup": "g", "commitOffset": "9"}),
        (operations.max_offset("a:1", QUEUE), 30, {}),
        (operations.min_offset("a:1", QUEUE), 31, {}),
        (operations.offset_at("a:1", QUEUE, 1234), 29, {"timestamp": "1234"}),
    ]:
        _, (call,) = play(operation, answer)
        assert asked(call) == ("a:1", code)
        assert call.command.fields == {"topic": "t", "queueId": "2"} | fields


# --------------------------------------------------------------------------------------- topics and cluster


def test_a_topic_is_created_with_what_rocketmq_wants_to_know() -> None:
    _, (call,) = play(operations.create_topic("a:1", TopicSettings("t", 4, 2, 6)), lambda step: reply())
    assert asked(call) == ("a:1", RequestCode.UPDATE_AND_CREATE_TOPIC)
    assert call.command.fields == {
        "topic": "t",
        "readQueueNums": "4",
        "writeQueueNums": "2",
        "perm": "6",
        "defaultTopic": "TBW102",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }


def cluster(**clusters: list[str]) -> Command:
    brokers = {
        name: BrokerData(broker_name=name, cluster=each, broker_addrs={0: f"{name}:1", 1: f"{name}1:1"})
        for each, names in clusters.items()
        for name in names
    }
    return reply(body=ClusterInfo(broker_addr_table=brokers, cluster_addr_table=clusters).encode_fastjson())


def masters(routes: Routes, answer: Command, name: str | None = None) -> list[str]:
    found, _ = play(operations.masters(routes.name_servers, name), lambda step: answer)
    return [master.address for master in found]


def test_masters_are_those_of_the_only_or_the_named_cluster(routes: Routes) -> None:
    assert masters(routes, cluster(one=["b", "a"])) == ["a:1", "b:1"]
    assert masters(routes, cluster(one=["a"], two=["b"]), "two") == ["b:1"]


def test_masters_in_doubt_are_an_error(routes: Routes) -> None:
    with pytest.raises(ConfigError, match="2 clusters: one, two; say which"):
        masters(routes, cluster(one=["a"], two=["b"]))
    with pytest.raises(NotFound, match="no cluster 'three'; known: one, two"):
        masters(routes, cluster(one=["a"], two=["b"]), "three")
    with pytest.raises(NotFound, match="no broker is registered at n:9876"):
        masters(routes, cluster())


def test_the_list_of_topics_leaves_the_system_s_own_out(routes: Routes) -> None:
    lists = {
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: [
            *("orders", "a", "c", "TBW102", "%RETRY%g", "%DLQ%g", "c_REPLY_TOPIC", "rmq_sys_wheel_timer"),
        ],
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: ["c", "a"],
    }

    def answer(step: Call) -> Command:
        return reply(body=TopicList(topic_list=lists[RequestCode(step.command.code)]).encode())

    assert play(operations.topic_names(routes.name_servers), answer)[0] == ["orders"]
    assert len(play(operations.topic_names(routes.name_servers, everything=True), answer)[0]) == 8


def test_a_route_is_told_broker_by_broker(routes: Routes) -> None:
    parts, _ = play(
        operations.route_parts(routes, "t"), lambda step: reply(body=route_of(TWO_BROKERS).encode())
    )
    assert parts[0] == operations.RoutePart("c", "broker-a", "0=a:10911 1=a1:10911", 4, 4, 6)
    assert len(parts) == 2
