"""A name server as voter: it promises a term once, also after a crash, and keeps what it promised on disk."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.doors.clock import SimulatedClock
from kourou.doors.memory_files import MemoryFiles
from kourou.errors import Busy, Corrupt, ProtocolError, Refused
from kourou.nameserver.witness import SETS_MAX, Witness
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command, request
from kourou.replication.ballots import (
    Ask,
    Envelope,
    HandOver,
    Message,
    Position,
    Propose,
    Record,
    decoded,
    encoded,
)

PATH = "namesrv/witness.json"
LEASE = 1.0


def ask(term: int) -> Ask:
    return Ask(term, False, Position(), lease=LEASE)


def propose(term: int) -> Propose:
    return Propose(Record(term, 0, "a:1", frozenset({"a:1"})), 1, LEASE)


class World:
    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.clock = SimulatedClock()
        self.witness = Witness(self.files, PATH, self.clock)
        self.witness.load()

    def restart(self) -> None:
        self.witness = Witness(self.files, PATH, self.clock)
        self.witness.load()

    def tell(self, message: Message, replica_set: str = "c/shop") -> Any:
        answers: list[Command] = []
        body = encoded(Envelope(replica_set, "a:1", message))
        self.witness(request(RequestCode.KOUROU_REPLICA_SET, body=body), answers.append)  # type: ignore[arg-type]
        return decoded(answers[0].body).message


@pytest.fixture
def world() -> World:
    return World()


def test_a_term_is_promised_once_also_after_a_crash(world: World) -> None:
    assert world.tell(ask(3)).granted
    assert not world.tell(ask(3)).granted
    world.restart()
    assert not world.tell(ask(3)).granted
    assert world.tell(ask(4)).granted


def test_after_a_start_it_waits_for_the_leases_it_may_have_granted(world: World) -> None:
    assert world.tell(propose(1)).granted
    world.restart()
    assert not world.tell(ask(2)).granted
    world.clock.advance(LEASE)
    assert world.tell(ask(2)).granted


def test_replica_sets_do_not_disturb_each_other(world: World) -> None:
    assert world.tell(propose(7), "c/one").granted
    assert world.tell(ask(1), "c/other").granted


def test_what_cannot_be_kept_is_not_promised(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(world.files, "write_atomically", full)
    with pytest.raises(Busy, match=r"witness\.json cannot be written"):
        world.tell(ask(1))
    monkeypatch.undo()
    assert world.tell(ask(1)).granted


def test_a_damaged_memory_is_not_taken_for_an_empty_one(world: World) -> None:
    world.tell(ask(1))
    world.files.write_atomically(PATH, b'{"ballots": {')
    with pytest.raises(Corrupt, match="what this name server promised"):
        world.restart()


def test_there_is_a_most_of_replica_sets(world: World) -> None:
    for number in range(SETS_MAX):
        world.tell(Ask(1, True, Position()), f"c/{number}")
    with pytest.raises(Refused, match="which is the most"):
        world.tell(ask(1), "c/one-more")


@pytest.mark.parametrize("lease", [0.0, -1.0, 3600.0])
def test_a_lease_has_a_sensible_length(world: World, lease: float) -> None:
    with pytest.raises(ProtocolError, match="a lease of"):
        world.tell(Ask(1, False, Position(), lease=lease))


def test_a_witness_is_no_heir(world: World) -> None:
    with pytest.raises(Refused, match="asked for votes"):
        world.tell(HandOver(1))
