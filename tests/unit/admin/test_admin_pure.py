"""What the figures, names and lines an operator is shown are made of; no network."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.admin import brokers, dlq, groups, messages, offsets, switching, topics
from kourou.admin.cluster import Node, without_master
from kourou.admin.groups import Lag, QueueLag
from kourou.admin.offsets import QueueMove
from kourou.errors import ConfigError
from kourou.message import ReceivedMessage
from kourou.protocol import record
from kourou.protocol.message_id import parse_unique_id
from kourou.protocol.properties import encode
from kourou.protocol.switching import ReplicaState


def received(topic: str = "orders", body: bytes = b"x", **properties: str) -> ReceivedMessage:
    host = record.pack_host("127.0.0.1", 10911)
    data = record.encode(
        topic=topic.encode(),
        queue_id=0,
        queue_offset=5,
        physical_offset=1000,
        body=body,
        properties=encode(properties),
        born_ms=1,
        born_host=host,
        store_ms=2,
        store_host=host,
        flag=0,
        sys_flag=0,
        reconsume_times=0,
        prepared_offset=0,
    )
    return record.to_received(record.decode(data), "broker-a")


# ------------------------------------------------------------------------------------------------- brokers


def test_a_table_of_figures_is_read_whatever_is_missing() -> None:
    nothing = brokers.runtime_of({})
    assert (nothing.version, nothing.in_tps, nothing.put_today, nothing.is_active) == ("", 0.0, 0, True)
    odd = brokers.runtime_of({"putTps": "x y", "commitLogMaxOffset": "many", "brokerActive": "false"})
    assert (odd.in_tps, odd.log_max, odd.is_active) == (0.0, 0, False)


def test_days_are_differences_of_totals() -> None:
    runtime = brokers.runtime_of(
        {
            "msgPutTotalYesterdayMorning": "10",
            "msgPutTotalTodayMorning": "15",
            "msgPutTotalTodayNow": "100",
            "putTps": "1.5 2.5 3.5",
            "getTransferedTps": "7.0 0 0",  # as 4.9 spells it
        }
    )
    assert (runtime.put_yesterday, runtime.put_today) == (5, 85)
    assert (runtime.in_tps, runtime.out_tps) == (1.5, 7.0)


def test_a_setting_cannot_smuggle_in_another() -> None:
    body = brokers.properties_text({"region": "a\nrocketmqHome=/tmp"})
    assert body.count(b"\n") == 1
    with pytest.raises(ConfigError, match="nothing to set"):
        brokers.properties_text({})


# -------------------------------------------------------------------------------------------------- topics


@pytest.mark.parametrize(
    ("name", "attributes", "kind"),
    [
        ("orders", {}, "normal"),
        ("orders", {"message.type": "FIFO"}, "fifo"),
        ("orders", {"message.type": "NORMAL"}, "normal"),
        ("%RETRY%billing", {}, "retry"),
        ("%DLQ%billing", {}, "dlq"),
        ("TBW102", {}, "system"),
        ("rmq_sys_wheel_timer", {}, "system"),
        ("DefaultCluster", {}, "system"),
        ("DefaultCluster_REPLY_TOPIC", {}, "system"),
    ],
)
def test_a_topic_is_of_a_kind(name: str, attributes: dict[str, str], kind: str) -> None:
    assert topics.kind_of(name, attributes, {"DefaultCluster", "broker-a"}) == kind


# -------------------------------------------------------------------------------------------------- groups


def queue(lag: int, last_ms: int = 0) -> QueueLag:
    return QueueLag("g", "t", "b", 0, 10 + lag, 10, 12, lag, 2, last_ms)


def test_lag_adds_up() -> None:
    lag = Lag("g", (queue(3), queue(0), queue(7)), 1.0)
    assert (lag.total, lag.in_flight, [each.lag for each in lag]) == (10, 6, [3, 0, 7])


def test_a_backlog_is_as_old_as_what_was_read_last() -> None:
    assert queue(3, 1_000).behind_ms(5_000) == 4_000
    assert queue(0, 1_000).behind_ms(5_000) == 0
    assert queue(3, 0).behind_ms(5_000) == 0
    assert queue(3, 9_000).behind_ms(5_000) == 0


@pytest.mark.parametrize("name", ["TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS", "CID_ONSAPI_PULL"])
def test_groups_of_the_system_are_known(name: str) -> None:
    assert groups.is_system_group(name)
    assert not groups.is_system_group("billing")


def move(before: int | None, after: int, least: int = 0, most: int = 100) -> QueueMove:
    return offsets.QueueMove("g", "t", "b", 0, before, after, least, most)


@pytest.mark.parametrize(
    ("moved", "again", "skipped", "lag"),
    [
        (move(50, 20), 30, 0, 80),
        (move(50, 90), 0, 40, 10),
        (move(50, 50), 0, 0, 50),
        (move(None, 100), 0, 100, 0),
        (move(None, 0), 0, 0, 100),
        (move(5, 60, least=40), 0, 20, 40),  # what is gone by age is not skipped
    ],
)
def test_a_move_says_what_it_means(moved: QueueMove, again: int, skipped: int, lag: int) -> None:
    assert (moved.again, moved.skipped, moved.lag_after) == (again, skipped, lag)


# ------------------------------------------------------------------------------------------------ messages


def test_a_message_is_described_as_json_can_tell_it() -> None:
    row = messages.described(received(TAGS="new", KEYS="a b", UNIQ_KEY="ID"))
    assert (row["body"], row["message_id"], row["keys"], row["broker"]) == ("x", "ID", "a b", "broker-a")
    assert row["stored_at"] == "1970-01-01T00:00:00.002+00:00"
    assert messages.described(received(body=b"\xff\xfe"))["body_base64"] == "//4="


def test_a_time_nobody_can_have_meant_is_shown_as_its_number() -> None:
    assert messages.moment(1 << 62) == str(1 << 62)


def test_trace_lines_are_read_in_any_version() -> None:
    pub = ["Pub", "100", "R", "shop", "orders", "ID", "tag", "key", "b:1", "5", "7", "0", "OID", "true", "h"]
    before = ["SubBefore", "200", "R", "billing", "REQ", "ID", "1", "key"]
    after_4_9 = ["SubAfter", "REQ", "ID", "3", "false", "key", "2"]
    end = [
        "EndTransaction",
        "150",
        "R",
        "shop",
        "orders",
        "ID",
        "tag",
        "key",
        "b:1",
        "1",
        "T",
        "COMMIT_MESSAGE",
        "true",
    ]
    lines = "\x02".join(
        "\x01".join(each) for each in (pub, before, after_4_9, end, ["Nonsense", "x"], ["Pub", "?"])
    )
    told = received("RMQ_SYS_TRACE_TOPIC", lines.encode())
    steps = messages._with_times(list(messages.trace_steps(told)))
    assert [(step.kind, step.time_ms, step.group) for step in steps] == [
        ("Pub", 100, "shop"),
        ("EndTransaction", 150, "shop"),
        ("SubBefore", 200, "billing"),
        ("SubAfter", 203, "billing"),
    ]
    assert (steps[0].spent_ms, steps[0].detail) == (7, "normal")
    assert (steps[3].is_success, steps[3].detail, steps[3].retry_times) == (False, "exception", 1)
    assert "asked by the broker" in steps[1].detail


# --------------------------------------------------------------------------------------------- dead letters

DEAD: dict[str, Any] = {
    "topic": "%DLQ%billing",
    "body": b"sour milk",
    "RETRY_TOPIC": "orders",
    "ORIGIN_MESSAGE_ID": "FIRST",
    "UNIQ_KEY": "ID",
    "KEYS": "42",
    "TAGS": "new",
    "colour": "red",
    "DELAY": "3",
    "MAX_RECONSUME_TIMES": "16",
}


def test_a_dead_letter_says_where_it_came_from() -> None:
    letter = received(**DEAD)
    assert (dlq.first_topic(letter), dlq.first_id(letter)) == ("orders", "FIRST")
    unknown = received("%DLQ%billing")
    assert (dlq.first_topic(unknown), dlq.first_id(unknown)) == (None, unknown.offset_id)


def test_a_dead_letter_for_its_group_goes_by_the_retry_topic_under_its_first_name() -> None:
    again = dlq.again(received(**DEAD), "%RETRY%billing")
    assert (again.topic, again.body, again.tags, again.keys) == ("%RETRY%billing", b"sour milk", "new", "42")
    assert again.properties["RETRY_TOPIC"] == "orders"
    assert again.properties["colour"] == "red"
    assert not {"DELAY", "MAX_RECONSUME_TIMES"} & again.properties.keys()


def test_a_dead_letter_is_sent_again_under_an_id_of_its_own_and_always_the_same() -> None:
    letter = received(**DEAD)
    ids = {dlq.again(letter, target).properties["UNIQ_KEY"] for target in ("%RETRY%billing", "orders")}
    assert ids == {dlq.resent_id(letter)}
    assert letter.message_id not in ids
    assert letter.offset_id not in ids
    parse_unique_id(dlq.resent_id(letter))


def test_a_dead_letter_for_everybody_is_a_new_message_of_its_first_topic() -> None:
    letter = received(**DEAD)
    again = dlq.again(letter, "orders")
    assert again.topic == "orders"
    assert not {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID"} & again.properties.keys()
    assert again.properties["DLQ_RESENT_FROM"] == letter.offset_id


@pytest.mark.parametrize(
    ("wanted", "takes"),
    [
        (dlq.Filter(), True),
        (dlq.Filter(ids=frozenset({"FIRST"})), True),
        (dlq.Filter(ids=frozenset({"ID"})), True),
        (dlq.Filter(ids=frozenset({"other"})), False),
        (dlq.Filter(topic="orders", key="42", tags="new", contains="milk"), True),
        (dlq.Filter(topic="prices"), False),
        (dlq.Filter(key="4"), False),
        (dlq.Filter(tags="old"), False),
        (dlq.Filter(contains="honey"), False),
        (dlq.Filter(begin_ms=2, end_ms=2), True),
        (dlq.Filter(begin_ms=3), False),
        (dlq.Filter(end_ms=1), False),
    ],
)
def test_dead_letters_are_chosen(wanted: dlq.Filter, takes: bool) -> None:
    assert wanted.takes(received(**DEAD)) is takes


def test_a_broker_of_which_only_replicas_are_there_has_no_master() -> None:
    known = [Node("c", "a", 0, "h:1"), Node("c", "a", 1, "h:2"), Node("c", "b", 2, "h:3")]
    assert without_master(known) == ["b"]


# ----------------------------------------------------------------------------------------------- replicas


def test_whether_a_replica_is_in_sync_is_said_by_its_master_and_by_nobody_else() -> None:
    one, other = (Node("c", "a", number, f"127.0.0.1:{port}") for number, port in ((1, 10921), (2, 10931)))
    master = ReplicaState(
        role="SYNC_MASTER", term=3, log_end=9, ha_address="", is_elected=True, in_sync=[one.address]
    )
    assert [switching.is_in_sync(each, master) for each in (one, other)] == [True, False]
    assert switching.is_in_sync(one, None) is None, "a lone slave cannot know"
