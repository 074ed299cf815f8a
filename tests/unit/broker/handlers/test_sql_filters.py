"""Filtering by SQL92: asked for in a heartbeat or with a pull, checked before a consumer starts."""

from __future__ import annotations

import pytest

from kourou.protocol.bodies import CheckClient, ConsumerData, HeartbeatData, SubscriptionData
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.record import decode_all
from tests.unit.broker.broker_world import BrokerWorld, Peer, pull


def check(peer: Peer, expression: str, expression_type: str = "SQL92") -> Command:
    subscription = SubscriptionData(
        topic="orders", sub_string=expression, expression_type=expression_type, sub_version=1
    )
    body = CheckClient(client_id="c1", group="readers", subscription_data=subscription).encode()
    return peer.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body)


def subscribe(peer: Peer, expression: str, topic: str = "orders") -> Command:
    subscription = SubscriptionData(
        topic=topic, sub_string=expression, expression_type="SQL92", sub_version=1
    )
    consumer = ConsumerData(group_name="readers", subscription_data_set=[subscription])
    return peer.ask(
        RequestCode.HEART_BEAT, body=HeartbeatData(client_id="c1", consumer_data_set=[consumer]).encode()
    )


def bodies(reply: Command) -> list[bytes]:
    return [record.body for record in decode_all(reply.body)]


@pytest.fixture
def peer(world: BrokerWorld) -> Peer:
    world.start(property_filter=True)
    peer = world.connect()
    for number in range(10):
        peer.send(
            "orders", b"%d" % number, properties={"n": str(number), "TAGS": "odd" if number % 2 else "even"}
        )
    return peer


def test_a_pull_brings_its_own_expression(peer: Peer) -> None:
    reply = peer.pull(tags="n > 6 OR n = 2", expression_type="SQL92")
    assert bodies(reply) == [b"2", b"7", b"8", b"9"]
    assert bodies(peer.pull(tags="TAGS = 'odd' AND n < 4", expression_type="SQL92")) == [b"1", b"3"]


def test_the_expression_of_a_heartbeat_is_used(peer: Peer) -> None:
    assert subscribe(peer, "n BETWEEN 3 AND 5").code == 0
    reply = peer.begin(pull(tags=None, sys_flag=0, subscription_version=1)).reply
    assert bodies(reply) == [b"3", b"4", b"5"]


def test_when_nothing_matches_the_reader_goes_on_behind_it(peer: Peer) -> None:
    reply = peer.pull(tags="n > 100", expression_type="SQL92")
    assert reply.code == 20
    assert reply.fields["nextBeginOffset"] == "10"


def test_a_waiting_reader_is_woken_by_what_it_wants_and_by_nothing_else(
    world: BrokerWorld, peer: Peer
) -> None:
    waiting = world.connect().begin(
        pull(queue_offset=10, tags="n = 11", expression_type="SQL92", wait_ms=15_000)
    )
    peer.send("orders", b"10", properties={"n": "10"})
    assert not waiting.is_answered
    peer.send("orders", b"11", properties={"n": "11"})
    assert bodies(waiting.reply) == [b"11"]


def test_a_bad_expression_is_refused_with_place_and_reason(peer: Peer) -> None:
    for reply in (check(peer, "n > "), peer.pull(tags="n > ", expression_type="SQL92")):
        assert reply.code == 23
        assert "at character 5: a value is missing" in (reply.remark or "")


def test_a_bad_expression_in_a_heartbeat_is_told_to_who_pulls(peer: Peer) -> None:
    assert subscribe(peer, "n >").code == 0
    reply = peer.begin(pull(tags=None, sys_flag=0, subscription_version=1)).reply
    assert reply.code == 27
    assert "at character 4: a value is missing" in (reply.remark or "")


def test_a_good_expression_passes_the_check(peer: Peer) -> None:
    assert check(peer, "n > 5 AND TAGS IS NOT NULL").code == 0
    assert check(peer, "TagA || TagB", "TAG").code == 0


def test_a_filter_of_another_kind_is_refused(peer: Peer) -> None:
    reply = check(peer, "x", "XPATH")
    assert reply.code == 23
    assert "'XPATH'" in (reply.remark or "")


def test_without_the_setting_sql_is_refused(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    peer.send("orders", b"x")
    for reply in (check(peer, "n > 5"), peer.pull(tags="n > 5", expression_type="SQL92")):
        assert reply.code == 1
        assert "enablePropertyFilter" in (reply.remark or "")
    assert check(peer, "TagA", "TAG").code == 0


@pytest.mark.parametrize(("filtered", "expected"), [(False, [b"back"]), (True, [])])
def test_retries_are_filtered_only_where_that_is_set(
    world: BrokerWorld, filtered: bool, expected: list[bytes]
) -> None:
    world.start(property_filter=True, filter_retries=filtered)
    world.make_topic("%RETRY%readers", 1)
    peer = world.connect()
    peer.send("%RETRY%readers", b"back", properties={"n": "1"})
    assert bodies(peer.pull("%RETRY%readers", tags="n > 5", expression_type="SQL92")) == expected
