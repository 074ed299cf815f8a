from __future__ import annotations

import threading
from typing import Any

import pytest

from kourou.client.delays import DelayLevel
from kourou.client.producer_settings import ProducerSettings
from kourou.client.sending import Sending, Where
from kourou.client.sends import Outgoing, SendResult
from kourou.client.steps import Call, Operation
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.errors import ConfigError, ConnectionLost, Refused, Unreachable
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
        if command.code == RequestCode.GET_TOPIC_STATS_INFO:
            raise Unreachable("there is no other way to a broker")
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
    group, name_server = changes.pop("group", "g"), changes.pop("name_server", "n:9876")
    settings = ProducerSettings(**({"message_bytes_max": 100_000} | changes))
    return Sending(group, name_server, settings, clock, Chance(5))


def send(sender: Sending, cluster: Cluster, message: Message, **how: Any) -> SendResult:
    where = Where(**{name: how.pop(name) for name in Where._fields if name in how})
    operation: Operation[SendResult] = sender.send(message, where, **how)
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
        ids.extend(sender.with_id({})["UNIQ_KEY"] for _ in range(500))

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
    operation = sending(clock).send_batch(messages)
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
        sending(clock).send_batch(messages)


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

    play(sending(clock).send_one_way(Message("t", b"x" * 5000), Where("k")), take)
    assert seen[-1].command.is_one_way
    assert seen[-1].command.parse(SendMessageV2).sys_flag == 1


def test_outgoing_messages_know_nothing_of_queues() -> None:
    assert "queue_id" not in Outgoing._fields


# -------------------------------------------------------------------------------------------- order promised


class Shrinking(Cluster):
    """Two brokers, of which one is away, and perhaps no longer in the route."""

    def __init__(self) -> None:
        super().__init__()
        self.away: str | None = None
        self.in_route = True

    def __call__(self, step: Call) -> Command | None:
        if step.command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and not self.in_route:
            left = {name: ids for name, ids in TWO_BROKERS.items() if ids[0] != self.away}
            return reply(body=route_of(left).encode())
        if step.address == self.away:
            raise Unreachable("connection refused")
        return super().__call__(step)


def key_at(sender: Sending, cluster: Cluster, address: str) -> str:
    """A key whose queue is at this broker."""
    for number in range(100):
        send(sender, cluster, Message("t", b"x"), key=f"key-{number}")
        if cluster.sends[-1][0] == address:
            return f"key-{number}"
    raise AssertionError("no key for that broker")


@pytest.mark.parametrize("in_route", [True, False])
def test_strict_order_fails_until_the_broker_of_the_queue_is_back(
    clock: SimulatedClock, in_route: bool
) -> None:
    sender, cluster = sending(clock), Shrinking()
    key = key_at(sender, cluster, "a:10911")
    its_queue = cluster.sends[-1][1].queue_id
    cluster.away, cluster.in_route = "a:10911", in_route
    clock.advance(31)
    for _ in range(3):
        with pytest.raises(Unreachable, match=rf"broker-a queue {its_queue}"):
            send(sender, cluster, Message("t", b"x"), key=key)
    cluster.away, cluster.in_route = None, True
    clock.advance(31)
    assert send(sender, cluster, Message("t", b"x"), key=key).queue == queue("broker-a", its_queue)
    assert sender.moved_keys == 0


@pytest.mark.parametrize("in_route", [True, False])
def test_normal_order_goes_to_the_queues_that_are_left_and_counts_it(
    clock: SimulatedClock, in_route: bool
) -> None:
    sender, cluster = sending(clock), Shrinking()
    key = key_at(sender, cluster, "a:10911")
    before = cluster.sends[-1][1].queue_id
    cluster.away, cluster.in_route = "a:10911", in_route
    clock.advance(31)
    moved = {send(sender, cluster, Message("t", b"x"), key=key, order="normal").queue for _ in range(3)}
    assert len(moved) == 1
    assert {each.broker_name for each in moved} == {"broker-b"}
    assert sender.moved_keys == 3
    cluster.away, cluster.in_route = None, True
    clock.advance(31)
    back = send(sender, cluster, Message("t", b"x"), key=key, order="normal").queue
    assert back == queue("broker-a", before)
    assert sender.moved_keys == 3


# ---------------------------------------------------------------------------------------------- namespaces


def test_brokers_know_topics_and_groups_with_their_namespace_and_the_program_does_not(
    clock: SimulatedClock, cluster: Cluster
) -> None:
    sender = sending(clock, namespace="shop")
    given = queue("broker-b", 2)
    result = send(sender, cluster, Message("t", b"x"), queue=given)
    header = cluster.sends[0][1]
    assert (header.topic, header.producer_group) == ("shop%t", "shop%g")
    assert "INSTANCE_ID\x01shop\x02" in (header.properties or "")
    assert result.queue == given
    queues, _ = play(sender.queues("t"), cluster)
    assert {each.topic for each in queues} == {"t"}


def test_a_message_need_not_wait_until_it_is_stored(clock: SimulatedClock, cluster: Cluster) -> None:
    message = Message("t", b"x", wait_stored=False)
    assert not message.wait_stored
    send(sending(clock), cluster, message)
    assert "WAIT\x01false\x02" in (cluster.sends[0][1].properties or "")


@pytest.mark.parametrize(("name", "flag"), [("zlib", 0x1), ("lz4", 0x101), ("zstd", 0x201)])
def test_a_body_is_compressed_as_wished(
    clock: SimulatedClock, cluster: Cluster, name: str, flag: int
) -> None:
    send(sending(clock, compression=name), cluster, Message("t", b"x" * 5000))
    _, header, body = cluster.sends[0]
    assert header.sys_flag == flag
    assert decompress(header.sys_flag, body) == b"x" * 5000


# ------------------------------------------------------------------------------------------- later, at 4.x


@pytest.mark.parametrize(
    ("version", "language", "is_sent"), [(407, "JAVA", False), (479, "JAVA", True), (409, "PYTHON", True)]
)
def test_a_broker_that_knows_levels_only_gets_no_other_delay(
    clock: SimulatedClock, version: int, language: str, is_sent: bool
) -> None:
    class Old(Cluster):
        def __call__(self, step: Call) -> Command | None:
            if step.command.code == RequestCode.HEART_BEAT and not step.one_way:
                answer = reply()
                answer.version, answer.language = version, language
                return answer
            return super().__call__(step)

    sender, cluster = sending(clock), Old()
    send(sender, cluster, Message("t", b"x"), delay=DelayLevel(3))
    assert "DELAY\x013\x02" in (cluster.sends[0][1].properties or "")
    if is_sent:
        send(sender, cluster, Message("t", b"x"), delay=2.5)
        assert "TIMER_DELAY_MS\x012500\x02" in (cluster.sends[1][1].properties or "")
    else:
        with pytest.raises(ConfigError, match="knows delay levels only"):
            send(sender, cluster, Message("t", b"x"), delay=2.5)
        assert len(cluster.sends) == 1


def test_a_delay_is_said_once(clock: SimulatedClock, cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match="a property that says another"):
        send(sending(clock), cluster, Message("t", b"x", properties={"DELAY": "2"}), delay=5)


# ------------------------------------------------------------------------------------ who was slow is avoided


def test_a_broker_that_failed_is_avoided_when_that_is_wished(clock: SimulatedClock) -> None:
    sender, cluster = sending(clock, avoid_slow_brokers="4.9"), Shrinking()
    cluster.away = "a:10911"
    for _ in range(8):
        send(sender, cluster, Message("t", b"x"))
    cluster.away = None
    for _ in range(8):
        send(sender, cluster, Message("t", b"x"))
    assert {address for address, _, _ in cluster.sends} == {"b:10911"}
    clock.advance(601)
    for _ in range(8):
        send(sender, cluster, Message("t", b"x"))
    assert {address for address, _, _ in cluster.sends} == {"a:10911", "b:10911"}


def test_a_probe_finds_a_broker_that_is_back(clock: SimulatedClock) -> None:
    sender, cluster = sending(clock, avoid_slow_brokers="5", probe_brokers=True), Shrinking()
    cluster.away = "a:10911"
    for _ in range(8):
        send(sender, cluster, Message("t", b"x"))
    play(sender.probe(), cluster)
    clock.advance(60)
    cluster.sends.clear()
    cluster.away = None
    for _ in range(8):
        send(sender, cluster, Message("t", b"x"))
    assert {address for address, _, _ in cluster.sends} == {"b:10911"}
    seconds, steps = play(sender.probe(), lambda step: reply())
    assert seconds == 2.0
    assert [(step.address, step.command.code) for step in steps] == [("a:10911", RequestCode.GET_MAX_OFFSET)]
    for _ in range(8):
        send(sender, cluster, Message("t", b"x"))
    assert {address for address, _, _ in cluster.sends} == {"a:10911", "b:10911"}
