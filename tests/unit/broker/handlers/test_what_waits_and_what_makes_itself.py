"""What a peer can make the broker keep is bounded, and written down once for many."""

from __future__ import annotations

from kourou.protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import PullMessage
from tests.unit.broker.broker_world import BrokerWorld


def heartbeat(groups: list[str]) -> Command:
    consumers = [
        ConsumerData(group_name=name, subscription_data_set=[SubscriptionData(topic="orders")])
        for name in groups
    ]
    body = HeartbeatData(client_id="c", consumer_data_set=consumers).encode()
    return request(RequestCode.HEART_BEAT, None, body)


def test_a_waiting_pull_keeps_no_body_and_no_expression(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    peer.create_topic("orders", 4)
    marker = b"carried along for nothing " * 1000
    pull = PullMessage(
        "g",
        "orders",
        0,
        0,
        32,
        sys_flag=6,
        suspend_timeout_ms=15_000,
        subscription="a || b" + " " * 20_000,
    )
    waiting = peer.begin(request(RequestCode.PULL_MESSAGE, pull, marker))
    assert not waiting.is_answered
    assert len(world.broker.long_poll) == 1
    assert held_bytes(world) < 10_000


def held_bytes(world: BrokerWorld) -> int:
    """The text that parked readers hold on to."""
    cells = [
        cell.cell_contents
        for readers in world.broker.long_poll._parked.values()
        for waiting in readers
        for cell in waiting.retry.__closure__ or ()
    ]
    headers = [cell for cell in cells if isinstance(cell, PullMessage)]
    commands = [cell for cell in cells if isinstance(cell, Command)]
    assert headers
    assert commands
    return sum(len(header.subscription or "") for header in headers) + sum(len(c.body) for c in commands)


def test_all_groups_of_a_heartbeat_are_saved_with_one_write_each_file(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    written: list[str] = []
    write = world.files.write_atomically

    def counting(path: str, data: bytes, *, keep_previous: bool = True, private: bool = False) -> None:
        written.append(path.rpartition("/")[2])
        write(path, data, keep_previous=keep_previous, private=private)

    world.files.write_atomically = counting  # type: ignore[method-assign]
    groups = [f"group-{number}" for number in range(100)]
    assert peer.begin(heartbeat(groups)).reply.code == ResponseCode.SUCCESS
    assert sorted(written) == ["subscriptionGroup.json", "topics.json"]
    world.files.write_atomically = write  # type: ignore[method-assign]
    world.stop()
    world.start()
    assert set(groups) <= world.broker.groups.all.keys()
    assert {f"%RETRY%{name}" for name in groups} <= world.broker.topics.all.keys()


def test_there_are_only_so_many_groups(world: BrokerWorld) -> None:
    world.start(groups_max=10)  # eight are the system's
    peer = world.connect()
    assert peer.begin(heartbeat(["one", "two"])).reply.code == ResponseCode.SUCCESS
    refused = peer.begin(heartbeat(["three"])).reply
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "consumerGroupsMax" in (refused.remark or "")


def test_retry_topics_made_by_sends_count_as_made_by_sends(world: BrokerWorld) -> None:
    world.start(auto_created_topics_max=2)
    peer = world.connect()
    assert peer.send("%RETRY%one").code == ResponseCode.SUCCESS
    assert peer.send("%RETRY%two").code == ResponseCode.SUCCESS
    assert "autoCreatedTopicsMax" in (peer.send("%RETRY%three").remark or "")
    assert peer.send("rmq_sys_mine").code == ResponseCode.TOPIC_NOT_EXIST
    assert peer.send("%RETRY%").code == ResponseCode.INVALID_PARAMETER
