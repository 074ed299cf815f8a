"""What went through a broker."""

from __future__ import annotations

from kourou.broker.stats import Flow, Stats
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
