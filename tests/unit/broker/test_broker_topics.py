"""The topics of a broker."""

from __future__ import annotations

import pytest

from kourou.broker.config import BrokerConfig
from kourou.broker.state_file import StateFile
from kourou.broker.topics import Topics, check_new_topic
from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import NotFound, Refused
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import ResponseCode


def topics_on(files: SimulatedFiles, **settings: object) -> Topics:
    files.make_folders("store/config")
    config = BrokerConfig(**settings)  # type: ignore[arg-type]
    topics = Topics(config, StateFile(files, "store/config/topics.json"), SimulatedClock())
    topics.load()
    return topics


def test_a_new_broker_has_the_system_topics_of_the_original() -> None:
    topics = topics_on(SimulatedFiles(), broker_name="broker-a")
    shapes = {name: (topic.write_queue_nums, topic.perm) for name, topic in topics.all.items()}
    assert shapes == {
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (8, 7),
        "BenchmarkTest": (1024, 6),
        "DefaultCluster": (16, 7),
        "broker-a": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
        "rmq_sys_wheel_timer": (1, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 6),
    }


def test_topics_survive_a_restart_with_their_data_version() -> None:
    files = SimulatedFiles()
    topics = topics_on(files)
    topics.save({"orders": TopicConfig(topic_name="orders", read_queue_nums=3, write_queue_nums=2, perm=6)})
    again = topics_on(files)
    assert again.all == topics.all
    assert again.data_version == topics.data_version


def test_saving_what_is_there_already_changes_nothing() -> None:
    topics = topics_on(SimulatedFiles())
    told: list[int] = []
    topics.on_change(lambda: told.append(topics.data_version.counter))
    topic = TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4)
    topics.save({"orders": topic})
    topics.save({"orders": topic})
    assert len(told) == 1


def test_a_send_creates_a_topic_after_the_default_ones_pattern() -> None:
    topics = topics_on(SimulatedFiles())
    topic = topics.create_for_send("orders", "TBW102", 4, 0)
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (4, 4, 6)
    wide = topics.create_for_send("wide", "TBW102", 100, 0)
    assert wide.write_queue_nums == 8


def test_no_topic_is_created_without_a_default_one_to_inherit_from() -> None:
    topics = topics_on(SimulatedFiles(), auto_create_topic=False)
    with pytest.raises(NotFound, match="kourou topic create orders") as refused:
        topics.create_for_send("orders", "TBW102", 4, 0)
    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
    with pytest.raises(NotFound):
        topics_on(SimulatedFiles()).create_for_send("orders", "SELF_TEST_TOPIC", 4, 0)


def test_switching_auto_creation_off_also_holds_for_a_folder_that_had_it_on() -> None:
    files = SimulatedFiles()
    topics_on(files)
    with pytest.raises(NotFound):
        topics_on(files, auto_create_topic=False).create_for_send("orders", "TBW102", 4, 0)


def test_sends_create_only_so_many_topics() -> None:
    topics = topics_on(SimulatedFiles(), auto_created_topics_max=2)
    topics.create_for_send("one", "TBW102", 4, 0)
    topics.create_for_send("two", "TBW102", 4, 0)
    with pytest.raises(Refused, match="autoCreatedTopicsMax"):
        topics.create_for_send("three", "TBW102", 4, 0)


def test_a_name_servers_word_on_order_is_kept_and_not_announced() -> None:
    topics = topics_on(SimulatedFiles())
    topics.save({"orders": TopicConfig(topic_name="orders")})
    told: list[None] = []
    topics.on_change(lambda: told.append(None))
    topics.set_ordered(["orders"])
    assert topics.named("orders").order
    topics.set_ordered([])
    assert not topics.named("orders").order
    assert told == []


@pytest.mark.parametrize(
    ("name", "read", "write", "perm", "complaint"),
    [
        ("../evil", 8, 8, 6, "illegal characters"),
        ("TBW102", 8, 8, 6, "belongs to the system"),
        ("orders", 0, 8, 6, "readQueueNums is 0"),
        ("orders", 8, 100_000, 6, "writeQueueNums is 100000"),
        ("orders", 8, 8, 9, "perm is 9"),
    ],
)
def test_impossible_topics_are_refused_with_the_value(
    name: str, read: int, write: int, perm: int, complaint: str
) -> None:
    with pytest.raises(Refused, match=complaint) as refused:
        check_new_topic(name, read, write, perm)
    assert refused.value.code == ResponseCode.INVALID_PARAMETER
