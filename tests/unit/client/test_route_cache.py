from __future__ import annotations

import pytest

from kourou.client.name_servers import NameServers
from kourou.client.route_cache import RouteCache
from kourou.client.routes import Routes
from kourou.client.steps import Call
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import Unreachable
from kourou.protocol.command import Command
from tests.unit.client.conversation import TWO_BROKERS, play, reply, route_of

PATH = "/data/kourou/routes.json"


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


class Cluster:
    def __init__(self) -> None:
        self.is_up = True
        self.lookups = 0

    def __call__(self, step: Call) -> Command:
        self.lookups += 1
        if not self.is_up:
            raise Unreachable("connection refused")
        return reply(body=route_of(TWO_BROKERS).encode())


def routes(files: SimulatedFiles, clock: SimulatedClock) -> Routes:
    return Routes(NameServers(["n:1"], Chance(1), clock), clock, cache=RouteCache(PATH, files))


def test_a_known_topic_works_after_a_restart_without_any_name_server(files: SimulatedFiles) -> None:
    cluster, clock = Cluster(), SimulatedClock()
    before, _ = play(routes(files, clock).to_publish("t", 3.0), cluster)
    cluster.is_up = False
    restarted = routes(files, clock)
    after, _ = play(restarted.to_publish("t", 3.0), cluster)
    assert after.write_queues == before.write_queues
    assert after.master("broker-a") == "a:10911"
    with pytest.raises(Unreachable, match="no name server answers"):
        play(restarted.to_publish("unknown", 3.0), cluster)


def test_name_servers_are_asked_again_soon_after_and_believed(files: SimulatedFiles) -> None:
    cluster, clock = Cluster(), SimulatedClock()
    play(routes(files, clock).to_publish("t", 3.0), cluster)
    cluster.is_up = False
    restarted = routes(files, clock)
    play(restarted.to_publish("t", 3.0), cluster)
    cluster.is_up, cluster.lookups = True, 0
    clock.advance(3)
    play(restarted.to_publish("t", 9.0), cluster)
    assert cluster.lookups == 1


def test_the_file_is_written_when_a_route_has_changed_and_only_then(files: SimulatedFiles) -> None:
    cache = RouteCache(PATH, files)
    cache.keep("t", route_of(TWO_BROKERS))
    writes = files.counts.copy()
    cache.keep("t", route_of(TWO_BROKERS))
    assert files.counts == writes
    cache.keep("t", route_of({"broker-a": {0: "moved:1"}}))
    kept = RouteCache(PATH, files).get("t")
    assert kept is not None
    assert kept.broker_datas[0].broker_addrs == {0: "moved:1"}


def test_clients_that_share_a_file_keep_each_other_s_routes(files: SimulatedFiles) -> None:
    cluster, clock = Cluster(), SimulatedClock()
    one, other = routes(files, clock), routes(files, clock)
    play(one.to_publish("t", 3.0), cluster)
    play(other.to_publish("u", 3.0), cluster)
    cluster.is_up = False
    restarted = routes(files, clock)
    for topic in ("t", "u"):
        assert play(restarted.to_publish(topic, 3.0), cluster)[0].write_queues


@pytest.mark.parametrize("content", [b"", b"nonsense", b"[1]", b'{"t": 7}', b'{"t": {"brokerDatas": 3}}'])
def test_a_file_that_makes_no_sense_is_as_good_as_none(files: SimulatedFiles, content: bytes) -> None:
    files.make_folders("/data/kourou")
    files.write_atomically(PATH, content)
    cache = RouteCache(PATH, files)
    assert cache.get("t") is None
    cache.keep("t", route_of(TWO_BROKERS))
    assert RouteCache(PATH, files).get("t") is not None


def test_a_full_disk_does_not_stop_a_client(files: SimulatedFiles) -> None:
    files.capacity = 0
    cache = RouteCache(PATH, files)
    cache.keep("t", route_of(TWO_BROKERS))
    assert cache.get("t") is not None
