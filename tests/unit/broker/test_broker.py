"""A broker as a whole: what it serves, how it starts, and what it undoes when it cannot."""

from __future__ import annotations

import errno

import pytest

from kourou.errors import ConfigError, Corrupt, DiskFault, StoreLocked
from kourou.protocol.codes import RequestCode
from tests.unit.broker.broker_world import PORT, STORE, BrokerWorld


def test_it_serves_what_it_says(world: BrokerWorld) -> None:
    assert world.start().handled_codes >= {  # all of them: docs/compatibility.md, which tests/docs compares
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.GET_TIMER_METRICS,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.QUERY_CONSUME_QUEUE,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.END_TRANSACTION,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.RECALL_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.GET_BROKER_RUNTIME_INFO,
    }


def test_what_it_does_not_serve_is_answered_so(world: BrokerWorld) -> None:
    world.start()
    reply = world.connect().ask(RequestCode.POP_MESSAGE)
    assert reply.code == 3
    assert "200050 not supported" in (reply.remark or "")


def test_the_fast_port_can_be_switched_off(world: BrokerWorld) -> None:
    world.start(fast_port_enabled=False)
    with pytest.raises(ConnectionRefusedError):
        world.connect(fast=True)


def test_port_zero_takes_any_free_pair_and_advertises_it(world: BrokerWorld) -> None:
    broker = world.start(port=0)
    assert not broker.address.endswith(":0")
    assert world.connect().send().code == 0
    assert world.connect(fast=True).send().code == 0
    assert world.connect().records()[0].stored_at()[1] == int(broker.address.rpartition(":")[2])


@pytest.mark.parametrize("taken", [PORT, PORT - 2])
def test_a_taken_port_is_named_and_everything_undone(world: BrokerWorld, taken: int) -> None:
    world.listener({}, taken)
    with pytest.raises(ConfigError, match=f"127.0.0.1:{taken}"):
        world.start()
    assert not world.files.exists(f"{STORE}/abort")
    world.start(port=20911)  # the store is free
    assert world.connect().send().code == 0
    with pytest.raises(ConnectionRefusedError):  # and so is the port that was not taken
        world.connect_to("127.0.0.1", PORT if taken != PORT else PORT - 2)


def test_a_store_in_use_is_left_alone(world: BrokerWorld) -> None:
    first = world.start()
    with pytest.raises(StoreLocked, match=STORE):
        world.start(port=20911)
    world.broker = first
    assert world.connect().send().code == 0


@pytest.mark.parametrize("name", ["topics", "subscriptionGroup", "consumerOffset"])
def test_a_spoilt_file_of_ours_keeps_it_from_starting_and_is_not_overwritten(
    world: BrokerWorld, name: str
) -> None:
    path = f"{STORE}/config/{name}.json"
    world.files.make_folders(f"{STORE}/config")
    world.files.write_atomically(path, b"{spoilt")
    with pytest.raises(Corrupt, match=f"{name}.json is unreadable"):
        world.start()
    assert world.files.read(path) == b"{spoilt"


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EIO, DiskFault), (errno.EACCES, ConfigError), (errno.EROFS, ConfigError)]
)
def test_a_folder_that_cannot_be_used_is_named(
    world: BrokerWorld, number: int, kind: type[Exception]
) -> None:
    world.files.fail("make_folder", error=number)
    with pytest.raises(kind, match=f"the data folder {STORE} cannot be used"):
        world.start()


def test_topics_groups_and_offsets_are_there_after_a_restart(world: BrokerWorld) -> None:
    world.start()
    world.make_topic("orders", queues=3)
    peer = world.connect()
    peer.pull("orders", group="billing", sys_flag=5, commit_offset=9)
    world.stop()
    broker = world.start()
    assert broker.topics.named("orders").write_queue_nums == 3
    assert "billing" in broker.groups.all
    assert broker.offsets.get("billing", "orders", 0) == 9
