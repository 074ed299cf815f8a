"""Finding messages by key, by id and by their place in a consume queue."""

from __future__ import annotations

from typing import Any

import msgspec

from kourou.protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.headers import QueryConsumeQueue, QueryMessage, QueryMessageReply, ViewMessage
from kourou.protocol.record import decode_all
from tests.unit.broker.broker_world import BrokerWorld, Peer, send

EVER = {"begin_timestamp": 0, "end_timestamp": 1 << 62}


def query(peer: Peer, key: str, topic: str = "orders", most: int = 32, **more: object) -> Command:
    header = QueryMessage(**{"topic": topic, "key": key, "max_num": most, **EVER, **more})  # type: ignore[arg-type]
    return peer.ask(RequestCode.QUERY_MESSAGE, header)


def bodies(reply: Command) -> list[bytes]:
    assert reply.code == 0, reply.remark
    return [record.body for record in decode_all(reply.body)]


def test_a_message_is_found_by_its_keys_right_after_it_was_sent(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    sent = peer.send("orders", b"one", properties={"KEYS": "k1 k2"})
    reply = query(peer, "k2")
    assert bodies(reply) == [b"one"]
    header = reply.parse(QueryMessageReply)
    assert header.index_last_update_timestamp == world.clock.now_ms()
    assert header.index_last_update_phyoffset == 0
    assert sent.code == 0


def test_a_message_is_found_by_its_unique_id(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    peer.send("orders", b"one", properties={"UNIQ_KEY": "7F000001000018B4AAC20000000A0000"})
    assert bodies(query(peer, "7F000001000018B4AAC20000000A0000", is_unique_key=True, most=0)) == [b"one"]


def test_messages_of_a_run_and_of_a_batch_are_found(world: BrokerWorld) -> None:
    world.start()
    world.make_topic("orders")
    peer = world.connect()
    peer.begin_all([send("orders", b"%d" % number, properties={"KEYS": "k"}) for number in range(10)])
    assert bodies(query(peer, "k")) == [b"%d" % number for number in range(10)]
    assert bodies(query(peer, "k", most=3)) == [b"7", b"8", b"9"]


def test_an_unknown_key_is_answered_not_found_with_what_was_asked(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    peer.send("orders", b"one", properties={"KEYS": "k1"})
    reply = query(peer, "k9")
    assert reply.code == 22
    assert "key 'k9'" in (reply.remark or "")
    assert query(peer, "k1", begin_timestamp=world.clock.now_ms() + 1_000).code == 22
    assert query(peer, "k1", topic="other").code == 22
    assert query(peer, "k1", most=0).code == 22


def test_keys_are_found_after_a_restart_and_after_a_crash(world: BrokerWorld) -> None:
    world.start()
    world.connect().send("orders", b"one", properties={"KEYS": "k"})
    world.stop()
    world.start()
    world.connect().send("orders", b"two", properties={"KEYS": "k"})
    world.crash()
    world.start()
    world.pass_time(0.5)
    assert bodies(query(world.connect(), "k")) == [b"one", b"two"]


def test_a_message_is_viewed_by_its_place(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    peer.send("orders", b"one")
    (first,) = peer.records()
    peer.send("orders", b"two")
    reply = peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(offset=first.size))
    assert bodies(reply) == [b"two"]
    for place in (1, first.size + 1, 1 << 40, -1):
        refused = peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(offset=place))
        assert refused.code == 1
        assert f"can not find message by the offset, {place}" in (refused.remark or "")


def test_a_consume_queue_is_shown_entry_by_entry(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    peer.send("orders", b"one", properties={"TAGS": "TagA"})
    peer.send("orders", b"two")
    first, second = peer.records()
    header = QueryConsumeQueue(topic="orders", queue_id=0, index=0, count=10)
    page = msgspec.json.decode(peer.ask(RequestCode.QUERY_CONSUME_QUEUE, header).body)
    assert (page["minQueueIndex"], page["maxQueueIndex"]) == (0, 2)
    assert [
        (entry["physicOffset"], entry["physicSize"], entry["tagsCode"]) for entry in page["queueData"]
    ] == [
        (0, first.size, 2598919),
        (first.size, second.size, 0),
    ]
    unknown = peer.ask(
        RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueue(topic="orders", queue_id=99, index=0, count=1)
    )
    assert unknown.code == 1


def test_a_consume_queue_is_shown_with_what_a_group_wants_of_it(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    for tag in ("red", "green"):
        peer.send("orders", properties={"TAGS": tag})

    def page(group: str | None) -> dict[str, Any]:
        header = QueryConsumeQueue(topic="orders", queue_id=0, index=0, count=10, consumer_group=group)
        shown: dict[str, Any] = msgspec.json.decode(peer.ask(RequestCode.QUERY_CONSUME_QUEUE, header).body)
        assert all("msg" not in entry for entry in shown["queueData"])
        return shown

    assert "filterData" not in page(None)
    assert page("readers")["filterData"] == "readers@orders is not online!"
    assert [entry["eval"] for entry in page("readers")["queueData"]] == [False, False]
    wanted = [SubscriptionData(topic="orders", sub_string="red")]
    consumer = ConsumerData(group_name="readers", subscription_data_set=wanted)
    heartbeat = HeartbeatData(client_id="reader@1", consumer_data_set=[consumer])
    assert peer.ask(RequestCode.HEART_BEAT, body=heartbeat.encode()).code == 0
    shown = page("readers")
    assert shown["subscriptionData"]["subString"] == "red"
    assert shown["filterData"] == "null"
    assert [entry["eval"] for entry in shown["queueData"]] == [True, False]
