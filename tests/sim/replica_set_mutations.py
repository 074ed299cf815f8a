"""Faults put into the election on purpose, one at a time: the simulation must see each of them.

Those that need a crash between two messages are too rare for it; they are shown one by one in
`tests/unit/replication/test_election.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from kourou.replication.ballots import Ask, Ballot, Position, Record, Vote, Voter
from kourou.replication.election import Election
from kourou.replication.keeping_up import Advice, KeepingUp, Progress


def not_in_sync_is_elected() -> Any:
    """a replica leads that is not in sync"""
    return mock.patch.object(Election, "_may_lead", return_value=True)


def acknowledged_by_one() -> Any:
    """a message is acknowledged before the replicas have it"""
    return mock.patch.object(Election, "required", property(lambda self: frozenset()))


def votes_twice() -> Any:
    """a voter forgets what it promised"""

    def asked(self: Voter, now: float, ask: Ask, position: Position | None) -> Vote:
        self.ballot = Ballot(0, self.ballot.record)
        return real(self, now, ask, position)

    real = Voter.asked
    return mock.patch.object(Voter, "asked", asked)


def votes_during_a_lease() -> Any:
    """a voter promises a term while a lease lasts that it granted"""

    def asked(self: Voter, now: float, ask: Ask, position: Position | None) -> Vote:
        self.lease_until = 0.0
        return real(self, now, ask, position)

    real = Voter.asked
    return mock.patch.object(Voter, "asked", asked)


def no_wait_after_a_start() -> Any:
    """a voter that has just started does not wait for leases it may have granted"""

    def init(self: Voter, ballot: Ballot, lease_seconds: float, now: float) -> None:
        real(self, ballot, lease_seconds, now)
        self.lease_until = now

    real = Voter.__init__
    return mock.patch.object(Voter, "__init__", init)


def lease_for_ever() -> Any:
    """a master does not look at its lease"""

    def may_acknowledge(self: Election, now: float) -> bool:
        return self.role.value == "master"

    return mock.patch.object(Election, "may_acknowledge", may_acknowledge)


def old_bytes_are_taken() -> Any:
    """a replica that promised a higher term goes on taking bytes of the lower one"""
    return mock.patch.object(Election, "_stop_following", return_value=None)


def shrinks_at_once() -> Any:
    """a message no longer waits for a replica before a majority knows that it left"""

    def required(self: Election) -> frozenset[str]:
        newest = self._record or self._committed
        return frozenset() if newest is None else newest.in_sync - {self.me}

    return mock.patch.object(Election, "required", property(required))


def joins_too_early() -> Any:
    """a replica counts as in sync before it has all that was acknowledged"""

    def advice(self: KeepingUp, now: float, progress: Progress, in_sync: frozenset[str]) -> Advice:
        stay, _ = real(self, now, progress, in_sync)
        return Advice(stay | progress.acked.keys(), frozenset())

    real = KeepingUp.advice
    return mock.patch.object(KeepingUp, "advice", advice)


def inheritance_is_forgotten() -> Any:
    """a replica joins without what was acknowledged in earlier terms"""
    real = Election._become_master

    def become_master(self: Election, *args: Any) -> None:
        real(self, *args)
        self._inherited = 0

    near = mock.patch.object(KeepingUp, "_look", lambda self, now, replica, acked, end: acked is not None)
    both = contextlib.ExitStack()
    both.enter_context(near)
    both.enter_context(mock.patch.object(Election, "_become_master", become_master))
    return both


def doubt_is_ignored() -> Any:
    """a replica that lost bytes with the power leads"""
    real = Election.__init__

    def init(self: Election, *args: Any, **named: Any) -> None:
        real(self, *args, **{**named, "doubtful": False})

    return mock.patch.object(Election, "__init__", init)


def oldest_record_counts() -> Any:
    """a candidate goes by an old record"""

    def newest(votes: Any) -> Record | None:
        records = [vote.ballot.record for vote in votes if vote.ballot.record is not None]
        return min(records, key=lambda record: record.rank, default=None)

    return mock.patch("kourou.replication.election._newest_record", newest)


def half_is_enough() -> Any:
    """half of the voters count as a majority"""
    return mock.patch.object(Election, "majority", property(lambda self: max(1, len(self.voters) // 2)))


MUTATIONS: dict[str, Callable[[], Any]] = {
    each.__name__: each
    for each in (
        not_in_sync_is_elected,
        acknowledged_by_one,
        votes_twice,
        votes_during_a_lease,
        no_wait_after_a_start,
        lease_for_ever,
        old_bytes_are_taken,
        shrinks_at_once,
        joins_too_early,
        inheritance_is_forgotten,
        doubt_is_ignored,
        oldest_record_counts,
        half_is_enough,
    )
}


@contextlib.contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """With this mutation in our code, or with none."""
    if name is None:
        yield
        return
    with MUTATIONS[name]():
        yield
