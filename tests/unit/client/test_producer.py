from __future__ import annotations

import threading
from typing import Any

import pytest

from kourou.client.operations import Outgoing, SendResult
from kourou.client.producer import Sending
from kourou.client.steps import Call, Operation
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.errors import ConfigError, ConnectionLost, Refused
from kourou.message import Message
from kourou.protocol import properties, record
from kourou.protocol.bodies import HeartbeatData, MessageQueue
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.compression import decompress
from kourou.protocol.headers import SendMessageV2, SendReply, UnregisterClient
from kourou.protocol.message_id import parse_unique_id
from tests.unit.client.conversation import TWO_BROKERS, play, reply, route_of


class Cluster:
    """Takes every message; remembers them."""

    def __init__(self) -> None:
        self.sends: list[tuple[str, SendMessageV2, bytes]] = []
        self.heartbeats: list[tuple[str, HeartbeatData]] = []
        self.farewells: list[tuple[str, UnregisterClient]] = []
        self.failure: Refused | ConnectionLost | None = None

    def __call__(self, step: Call) -> Command | None:
        command = step.command
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return reply(body=route_of(TWO_BROKERS).encode())
        if command.code == RequestCode.HEART_BEAT:
            assert step.one_way
            self.heartbeats.append((step.address, HeartbeatData.decode(command.body)))
            return None
        if command.code == RequestCode.UNREGISTER_CLIENT:
            assert step.one_way
            self.farewells.append((step.address, command.parse(UnregisterClient)))
            return None
        header = command.parse(SendMessageV2)
        self.sends.append((step.address, header, command.body))
        if self.failure is not None:
            raise self.failure
        return reply(SendReply("F" * 32, header.queue_id, len(self.sends)))


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def sending(clock: SimulatedClock, **changes: Any) -> Sending:
    values: dict[str, Any] = {
        "group": "g",
        "name_server": "n:9876",
        "send_timeout": 3.0,
        "retries": 2,
        "compress_over": 4096,
        "message_bytes_max": 100_000,
    }
    return Sending(**(values | changes), clock=clock, chance=Chance(5))


def send(sender: Sending, cluster: Cluster, message: Message, **how: Any) -> SendResult:
    operation: Operation[SendResult] = sender.send(
        message, how.get("key"), how.get("queue"), how.get("timeout")
    )
    return play(operation, cluster)[0]


def queue(broker: str, number: int, topic: str = "t") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker, queue_id=number)


# -------------------------------------------------------------------------------------------- what travels


def test_a_message_travels_with_its_properties_its_id_and_the_wish_to_be_stored(
    clock: SimulatedClock, cluster: Cluster
) -> None:
    message = Message("t", b"body", tags="new", keys=["a", "b"], properties={"colour": "red"}, flag=3)
    result = send(sending(clock), cluster, message)
    _, header, body = cluster.sends[0]
    table = properties.parse((header.properties or "").encode())
    assert table == {
        "TAGS": "new",
        "KEYS": "a b",
        "colour": "red",
        "UNIQ_KEY": result.message_id,
        "WAIT": "true",
    }
    assert (header.producer_group, header.flag, header.sys_flag, body) == ("g", 3, 0, b"body")
    assert header.born_timestamp == clock.now_ms()
    parse_unique_id(result.message_id)


def test_a_message_is_not_changed_by_sending_it_and_has_a_new_id_each_time(
    clock: SimulatedClock, cluster: Cluster
) -> None:
    message, sender = Message("t", b"body"), sending(clock)
    first, second = send(sender, cluster, message), send(sender, cluster, message)
    assert message.properties == {}
    assert first.message_id != second.message_id


def test_an_id_and_a_wish_of_one_s_own_are_kept(clock: SimulatedClock, cluster: Cluster) -> None:
    message = Message("t", b"body", properties={"UNIQ_KEY": "MINE", "WAIT": "false"})
    assert send(sending(clock), cluster, message).message_id == "MINE"
    assert "WAIT\x01false\x02" in (cluster.sends[0][1].properties or "")


def test_ids_are_unique_among_threads(clock: SimulatedClock) -> None:
    sender = sending(clock)
    ids: list[str] = []

    def many() -> None:
        ids.extend(sender._with_id(Message("t", b"x"))["UNIQ_KEY"] for _ in range(500))

    threads = [threading.Thread(target=many) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 4000


@pytest.mark.parametrize(("size", "is_compressed"), [(4095, False), (4096, True), (50_000, True)])
def test_large_bodies_travel_compressed_so_that_every_consumer_can_read_them(
    clock: SimulatedClock, cluster: Cluster, size: int, is_compressed: bool
) -> None:
    send(sending(clock), cluster, Message("t", b"x" * size))
    _, header, body = cluster.sends[0]
    assert header.sys_flag == (1 if is_compressed else 0)
    assert (len(body) < size) == is_compressed
    assert decompress(header.sys_flag, body) == b"x" * size


def test_a_body_that_compression_would_not_shrink_travels_as_it_is(
    clock: SimulatedClock, cluster: Cluster
) -> None:
    body = Chance(1).randbytes(5000)
    send(sending(clock), cluster, Message("t", body))
    assert (cluster.sends[0][1].sys_flag, cluster.sends[0][2]) == (0, body)


def test_compression_can_be_switched_off(clock: SimulatedClock, cluster: Cluster) -> None:
    send(sending(clock, compress_over=None), cluster, Message("t", b"x" * 50_000))
    assert cluster.sends[0][1].sys_flag == 0


# ------------------------------------------------------------------------------------------- which queue


def test_messages_take_turns_among_all_queues(clock: SimulatedClock, cluster: Cluster) -> None:
    sender = sending(clock)
    results = [send(sender, cluster, Message("t", b"x")) for _ in range(8)]
    assert len({result.queue for result in results}) == 8


def test_a_key_has_one_queue_and_is_never_moved(clock: SimulatedClock, cluster: Cluster) -> None:
    sender = sending(clock)
    results = [send(sender, cluster, Message("t", b"x"), key="order-42") for _ in range(5)]
    (only,) = {result.queue for result in results}
    cluster.failure = ConnectionLost("gone")
    with pytest.raises(ConnectionLost, match=rf"1 try in 0 ms \({only.broker_name} queue {only.queue_id}\)"):
        send(sender, cluster, Message("t", b"x"), key="order-42")
    assert len(cluster.sends) == 6


def test_a_named_queue_is_used_and_no_other(clock: SimulatedClock, cluster: Cluster) -> None:
    sender = sending(clock)
    assert send(sender, cluster, Message("t", b"x"), queue=queue("broker-b", 2)).queue == queue("broker-b", 2)
    cluster.failure = ConnectionLost("gone")
    with pytest.raises(ConnectionLost, match=r"1 try .*broker-b queue 2"):
        send(sender, cluster, Message("t", b"x"), queue=queue("broker-b", 2))


def test_contradictions_about_the_queue_are_errors(clock: SimulatedClock, cluster: Cluster) -> None:
    sender = sending(clock)
    with pytest.raises(ConfigError, match="key and queue are both given"):
        send(sender, cluster, Message("t", b"x"), key="a", queue=queue("broker-a", 0))
    with pytest.raises(ConfigError, match="queue of topic 'other' is given for a message to 't'"):
        send(sender, cluster, Message("t", b"x"), queue=queue("broker-a", 0, "other"))


def test_the_queues_of_a_topic_can_be_asked_for(clock: SimulatedClock, cluster: Cluster) -> None:
    queues, _ = play(sending(clock).queues("t"), cluster)
    assert len(queues) == 8


# ------------------------------------------------------------------------------------------------ batches


def test_a_batch_is_one_request_with_an_id_for_each_message(clock: SimulatedClock, cluster: Cluster) -> None:
    messages = [Message("t", b"one", tags="a", flag=7), Message("t", b"two")]
    operation = sending(clock).send_batch(messages, None, None, None)
    result, _ = play(operation, cluster)
    ((_, header, body),) = cluster.sends
    items = record.decode_batch(body)
    tables = [properties.parse(item.properties) for item in items]
    assert header.batch is True
    assert header.properties == "WAIT\x01true\x02"
    assert [(item.flag, item.body) for item in items] == [(7, b"one"), (0, b"two")]
    assert result.message_id == ",".join(table["UNIQ_KEY"] for table in tables)
    assert tables[0]["TAGS"] == "a"


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "empty batch"),
        ([Message("t", b"x"), Message("u", b"x")], "one topic"),
        ([Message("t", b"x", properties={"DELAY": "3"})], "one by one"),
        ([Message("%RETRY%g", b"x")], "one by one"),
        ([Message("t", b"x" * 60_000), Message("t", b"x" * 60_000)], "send it in parts"),
    ],
)
def test_what_cannot_be_a_batch_is_an_error(clock: SimulatedClock, messages: list[Message], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        sending(clock).send_batch(messages, None, None, None)


# ------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Message("t", b""), "has no body"),
        (Message("t", b"x" * 100_001), "has 100001 bytes, and at most 100000"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "belongs to the brokers"),
        (Message("t", b"x", properties={"big": "v" * 32_767}), "at most 32767"),
    ],
    ids=["empty", "large", "forbidden", "properties"],
)
def test_what_no_broker_would_take_is_not_sent(
    clock: SimulatedClock, cluster: Cluster, message: Message, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        send(sending(clock), cluster, message)
    assert cluster.sends == []


def test_properties_spoilt_after_the_message_was_made_are_noticed(
    clock: SimulatedClock, cluster: Cluster
) -> None:
    message = Message("t", b"x")
    message.properties["colour"] = "red\x01blue"
    with pytest.raises(ConfigError, match="U\\+0001"):
        send(sending(clock), cluster, message)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"group": "a b"}, "illegal characters"),
        ({"group": ""}, "blank"),
        ({"group": None}, "must be a name"),
        ({"name_server": "nowhere"}, "not of the form host:port"),
        ({"send_timeout": 0}, "send_timeout is 0"),
        ({"retries": -1}, "retries is -1"),
        ({"compress_over": "big"}, "compress_over is 'big'"),
    ],
)
def test_a_producer_that_cannot_work_is_not_made(
    clock: SimulatedClock, changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        sending(clock, **changes)


def test_a_closed_producer_says_so(clock: SimulatedClock, cluster: Cluster) -> None:
    sender = sending(clock)
    assert sender.end()
    assert not sender.end()
    with pytest.raises(ConfigError, match="this producer is closed; make a new one"):
        send(sender, cluster, Message("t", b"x"))


# ------------------------------------------------------------------------------------------------ presence


def test_each_broker_is_told_who_sends_before_the_first_message(
    clock: SimulatedClock, cluster: Cluster
) -> None:
    sender = sending(clock)
    for _ in range(8):
        send(sender, cluster, Message("t", b"x"))
    assert sorted(address for address, _ in cluster.heartbeats) == ["a:10911", "b:10911"]
    heartbeat = cluster.heartbeats[0][1]
    assert [each.group_name for each in heartbeat.producer_data_set] == ["g"]
    assert heartbeat.client_id == sender.presence.client_id
    clock.advance(31)
    send(sender, cluster, Message("t", b"x"), queue=queue("broker-a", 0))
    assert len(cluster.heartbeats) == 3


def test_leaving_is_told_to_those_who_were_told(clock: SimulatedClock, cluster: Cluster) -> None:
    sender = sending(clock)
    send(sender, cluster, Message("t", b"x"), queue=queue("broker-b", 0))
    play(sender.presence.leave(), cluster)
    ((address, farewell),) = cluster.farewells
    assert address == "b:10911"
    assert (farewell.client_id, farewell.producer_group) == (sender.presence.client_id, "g")


def test_a_heartbeat_that_did_not_get_through_is_due_again(clock: SimulatedClock) -> None:
    sender = sending(clock)

    def lost(step: Call) -> None:
        raise ConnectionLost("gone")

    for _ in range(2):
        with pytest.raises(ConnectionLost):
            play(sender.presence.announce("a:1"), lost)


def test_two_clients_of_one_process_are_two(clock: SimulatedClock) -> None:
    assert sending(clock).presence.client_id != sending(clock).presence.client_id


def test_one_way_messages_are_prepared_like_any_other(clock: SimulatedClock) -> None:
    seen: list[Call] = []

    def take(step: Call) -> Command | None:
        seen.append(step)
        return None if step.one_way else reply(body=route_of(TWO_BROKERS).encode())

    play(sending(clock).send_one_way(Message("t", b"x" * 5000), "k", None), take)
    assert seen[-1].command.is_one_way
    assert seen[-1].command.parse(SendMessageV2).sys_flag == 1


def test_outgoing_messages_know_nothing_of_queues() -> None:
    assert "queue_id" not in Outgoing._fields
