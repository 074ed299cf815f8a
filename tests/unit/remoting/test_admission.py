from __future__ import annotations

from kourou.remoting.admission import HOSTS_REMEMBERED_MAX, Admission
from kourou.remoting.config import ServerConfig


def test_a_host_may_spend_a_second_s_worth_at_once_and_then_at_the_rate() -> None:
    admission = Admission(ServerConfig(accepts_per_second_max=10))
    assert sum(admission.enter("a", 0.0) is None for _ in range(50)) == 10
    assert admission.enter("b", 0.0) is None
    assert sum(admission.enter("a", 0.5) is None for _ in range(50)) == 5
    assert sum(admission.enter("a", 100.0) is None for _ in range(50)) == 10


def test_a_refused_peer_takes_no_place() -> None:
    admission = Admission(ServerConfig(connections_max=3, connections_per_peer_max=2))
    assert [admission.enter("a", 0.0) for _ in range(3)] == [None, None, "connections_per_peer_max"]
    assert [admission.enter("b", 0.0) for _ in range(2)] == [None, "connections_max"]
    admission.leave("a")
    assert admission.enter("b", 0.0) is None


def test_hosts_that_come_and_go_are_forgotten() -> None:
    admission = Admission(ServerConfig())
    for number in range(3 * HOSTS_REMEMBERED_MAX):
        assert admission.enter(str(number), number / 1000) is None
        admission.leave(str(number))
    assert len(admission._allowance) <= HOSTS_REMEMBERED_MAX
    assert not admission._open_by_host
