"""How long requests take, until they are answered."""

from __future__ import annotations

from kourou.remoting.figures import Histogram
from tests.unit.broker.broker_world import BrokerWorld, pull, send


def of(world: BrokerWorld, name: str, *, was_parked: bool = False) -> Histogram:
    (found,) = [
        histogram
        for code, parked, histogram in world.broker._latencies.histograms()
        if (code, parked) == (name, was_parked)
    ]
    return found


def test_requests_are_timed_one_by_one_in_runs_and_when_they_wait() -> None:
    world = BrokerWorld()
    try:
        world.start(metrics_exporter="AUTO")
        peer = world.connect()
        peer.send("orders", b"the first of its queue takes the plain way")
        peer.begin_all([send("orders", b"x") for _ in range(20)])
        assert sum(of(world, "send_message_v2").counts) == 21
        peer.begin_all([pull("orders", 0, 0) for _ in range(3)])
        assert sum(of(world, "pull_message").counts) == 3
        waiting = peer.begin(pull("orders", 0, 21, wait_ms=15_000))
        world.pass_time(2)
        peer.send("orders", b"at last")
        assert waiting.is_answered
        parked = of(world, "pull_message", was_parked=True)
        assert sum(parked.counts) == 1
        assert 1_500 < parked.total < 2_600
        assert sum(of(world, "pull_message").counts) == 3
    finally:
        world.close()


def test_without_metrics_nobody_holds_a_watch() -> None:
    world = BrokerWorld()
    try:
        world.start()
        world.connect().send("orders", b"x")
        assert world.broker._latencies.histograms() == []
    finally:
        world.close()
