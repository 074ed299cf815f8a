"""What went through a broker."""

from __future__ import annotations

from kourou.broker.stats import Flow, Stats
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers import TopicNamed
from tests.unit.broker.broker_world import BrokerWorld, Peer, send


def test_totals_are_kept_by_topic_and_by_group() -> None:
    stats = Stats()
    stats.put("orders", 1, 100)
    stats.put("orders", 2, 50)
    stats.put("bills", 1, 7)
    stats.got("orders", "billing", 3, 150)
    assert stats.put_by_topic == {"orders": Flow(3, 150), "bills": Flow(1, 7)}
    assert stats.got_by_topic_and_group == {("orders", "billing"): Flow(3, 150)}
    assert (stats.put_total, stats.got_total) == (Flow(4, 157), Flow(3, 150))


def test_a_new_broker_has_seen_nothing() -> None:
    assert Stats().put_total == Stats().got_total == Flow(0, 0)


def test_a_broker_counts_what_is_stored_and_what_is_read(peer: Peer, world: BrokerWorld) -> None:
    peer.begin(*[send(body=b"%d" % number) for number in range(3)])
    reply = peer.pull()
    stats = world.broker.stats
    assert stats.put_by_topic == {"orders": Flow(3, len(reply.body))}
    assert stats.got_by_topic_and_group == {("orders", "readers"): Flow(3, len(reply.body))}


# --------------------------------------------------------------------------------- topics that come and go


def test_what_is_no_more_is_forgotten_and_the_brokers_totals_do_not_fall() -> None:
    stats = Stats()
    stats.put("orders", 2, 20)
    stats.put("bills", 1, 7)
    stats.got("orders", "billing", 3, 30)
    stats.got("bills", "billing", 1, 7)
    stats.got("bills", "others", 1, 7)
    before = stats.look()
    stats.keep_only({"bills"}, {"billing"})
    assert stats.put_by_topic == {"bills": Flow(1, 7)}
    assert stats.got_by_topic_and_group == {("bills", "billing"): Flow(1, 7)}
    assert (stats.put_total, stats.got_total) == (Flow(3, 27), Flow(5, 44))
    after = stats.look()
    assert (after.put_messages, after.got_messages) == (before.put_messages, before.got_messages) == (3, 5)


def test_who_takes_the_place_of_another_begins_with_nothing() -> None:
    stats = Stats()
    stats.put("orders", 100, 1000)
    before = stats.look()
    stats.keep_only((), ())
    stats.put("bills", 1, 7)
    assert stats.put_to("bills", before) is None
    assert stats.put_to("orders", before) is None
    after = stats.look()
    stats.put("bills", 1, 7)
    assert stats.put_to("bills", after) == Flow(1, 7)
    assert stats.put_to("bills") == Flow(2, 14)


def test_topics_that_come_and_go_take_no_more_room_than_those_that_stay() -> None:
    stats = Stats()
    for number in range(1_000):
        stats.put(f"topic-{number}", 1, 1)
        stats.got(f"topic-{number}", "readers", 1, 1)
        stats.keep_only((), ())
    look = stats.look()
    assert (len(look.put), len(look.got)) == (4, 4)
    assert look.put_messages == look.got_messages == 1_000


def test_a_broker_forgets_the_counts_of_a_deleted_topic(peer: Peer, world: BrokerWorld) -> None:
    peer.begin(send(body=b"one"))
    peer.pull()
    world.broker.transactions.committed["orders"] += 1
    assert peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicNamed("orders")).code == 0
    world.pass_time(61)
    stats = world.broker.stats
    assert (stats.put_by_topic, stats.got_by_topic_and_group) == ({}, {})
    assert stats.put_total.messages == 1
    assert not world.broker.transactions.committed
