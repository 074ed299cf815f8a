"""What carries the election out: messages are checked, memory is on disk first, roles change in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kourou.broker.config import BrokerConfig
from kourou.broker.switching import Roles, Switching
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.files import Files
from kourou.doors.memory_files import MemoryFiles
from kourou.errors import Busy, ConfigError, Corrupt, ProtocolError, Refused
from kourou.replication.ballots import (
    Ask,
    Envelope,
    Message,
    Position,
    Propose,
    Record,
    Taken,
    Vote,
    decoded,
    encoded,
    signed,
)

ME, OTHER, THIRD = "127.0.0.1:10911", "127.0.0.1:10921", "127.0.0.1:10931"
SET, SECRET = "c/shop", "sixteen characters"
PATH = "config/election.json"


class World:
    """One member, whose roles, replicas and connections are noted instead of had."""

    def __init__(
        self,
        files: Files | None = None,
        flushes_at_once: bool = True,
        is_damaged: bool = False,
        has_lost_its_end: bool = False,
    ) -> None:
        self.files = files or MemoryFiles()
        self.files.make_folders("config")
        self.clock = SimulatedClock()
        self.became: list[tuple[Any, ...]] = []
        self.sent: list[tuple[str, Message]] = []
        self.required: list[frozenset[str]] = []
        config = BrokerConfig(election_members=(ME, OTHER, THIRD))

        async def become(*what: Any) -> None:
            self.became.append(what)

        self.switching = Switching(
            config,
            replica_set=SET,
            secret=SECRET,
            flushes_at_once=flushes_at_once,
            is_damaged=lambda: is_damaged,
            has_lost_its_end=lambda: has_lost_its_end,
            roles=Roles(
                lambda term: become("master", term),
                lambda term, master, address: become("slave", term, master, address),
                lambda term: become("idle", term),
                lambda why: None,
            ),
            primary=SimpleNamespace(acked={}, shown=0, end=0, require=self.required.append),  # type: ignore[arg-type]
            replica=SimpleNamespace(stop=lambda: self.became.append(("stop",))),  # type: ignore[arg-type]
            client=SimpleNamespace(call_soon=self._call),  # type: ignore[arg-type]
            files=self.files,
            folder="config",
            clock=self.clock,
            chance=Chance(1),
        )

    def _call(self, to: str, command: Any, timeout: float, then: Callable[[Any], None]) -> None:
        self.sent.append((to, decoded(command.body).message))

    def tell(self, message: Message, *, sender: str = OTHER, of: str = SET, secret: str = SECRET) -> Any:
        answer = self.switching.handle(encoded(signed(Envelope(of, sender, message), secret)))
        return decoded(answer).message if answer else None


def played(story: Callable[[World], Any], **options: Any) -> World:
    async def run() -> World:
        world = World(**options)
        world.switching.start(ME, "127.0.0.1:10912")
        story(world)
        for _ in range(5):
            await asyncio.sleep(0)
        return world

    return asyncio.run(run())


def record(term: int) -> Record:
    return Record(term, 0, OTHER, frozenset({ME, OTHER}))


def test_a_vote_is_on_disk_before_it_is_given() -> None:
    def story(world: World) -> None:
        vote = world.tell(Ask(3, False, Position()))
        assert isinstance(vote, Vote)
        assert vote.granted
        assert b'"promised": 3' in world.files.read(PATH)

    assert played(story).became[0] == ("stop",), "bytes of an older term are let go first"


def test_a_proposed_master_is_followed_at_its_address() -> None:
    def story(world: World) -> None:
        taken = world.tell(Propose(record(2), 1, 1.0, "127.0.0.1:10922"))
        assert isinstance(taken, Taken)
        assert taken.granted
        assert world.switching.why_not() == f"not the master of term 2: that is {OTHER}; look it up again"

    assert played(story).became == [("slave", 2, OTHER, "127.0.0.1:10922")]


def test_roles_change_towards_the_newest_decision() -> None:
    def story(world: World) -> None:
        world.tell(Propose(record(2), 1, 1.0, "a:1"))
        world.clock.advance(2.0)
        world.tell(Ask(3, False, Position()))
        world.tell(Propose(record(3), 1, 1.0, "a:1"))

    assert played(story).became[-1] == ("slave", 3, OTHER, "a:1")


def test_other_sets_strangers_and_garbage_are_refused() -> None:
    def story(world: World) -> None:
        with pytest.raises(Refused, match="this is a broker of c/shop, not of c/other"):
            world.tell(Ask(1, True, Position()), of="c/other")
        with pytest.raises(Refused, match="the proof does not fit"):
            world.tell(Ask(1, True, Position()), secret="another secret of 16")
        with pytest.raises(ProtocolError):
            world.switching.handle(b"garbage")
        assert world.tell(Ask(9, False, Position()), sender="127.0.0.1:1") is None

    assert played(story).became == []


def test_a_member_that_cannot_write_down_its_promise_takes_no_further_part() -> None:
    def story(world: World) -> None:
        def full(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

        world.files.write_atomically = full  # type: ignore[method-assign]
        assert world.tell(Ask(3, False, Position())) is None
        with pytest.raises(Busy, match="takes no part"):
            world.tell(Ask(4, False, Position()))
        assert world.switching.why_not() is not None

    assert ("idle", 3) in played(story).became


@pytest.mark.parametrize("rotten", [b"", b"\0" * 100, b'{"promised": 1}x'])
def test_a_member_whose_promises_are_unreadable_does_not_vote_by_older_ones(rotten: bytes) -> None:
    files = played(lambda world: [world.tell(Ask(term, False, Position())) for term in (3, 4)]).files
    assert files.exists(PATH + ".bak")
    files.write_atomically(PATH, rotten, keep_previous=False)
    with pytest.raises(Corrupt, match=r"election\.json is unreadable .*start it with an empty one"):
        played(lambda world: None, files=files)


def test_a_broker_with_a_damaged_log_says_that_it_gives_way(caplog: pytest.LogCaptureFixture) -> None:
    def nothing(world: World) -> None:
        pass

    played(nothing)
    assert "damaged" not in caplog.text
    played(nothing, is_damaged=True)
    assert "log is damaged: it leads only when no other member does" in caplog.text


def test_after_a_power_cut_with_asynchronous_flush_the_log_is_doubted() -> None:
    def first(world: World) -> None:
        world.tell(Propose(record(1), 1, 1.0, "a:1"))

    def doubts(world: World) -> None:
        taken = world.tell(Propose(record(2), 1, 1.0, "a:1"))
        assert taken.doubtful is expected

    files = played(first, flushes_at_once=False).files  # there is no boot id in memory: another one each time
    expected = True
    played(doubts, files=files, flushes_at_once=False)
    expected = False
    played(doubts, files=played(first).files)


def test_a_log_that_has_lost_its_end_is_doubted(caplog: pytest.LogCaptureFixture) -> None:
    def doubts(world: World) -> None:
        assert world.tell(Propose(record(2), 1, 1.0, "a:1")).doubtful

    played(doubts, has_lost_its_end=True)
    assert "log has lost its end: it does not lead before it has caught up" in caplog.text


def test_the_set_must_know_its_member() -> None:
    world = asyncio.run(_made())
    assert world.switching.own_id(OTHER) == 2
    with pytest.raises(ConfigError, match="does not name this broker"):
        world.switching.own_id("127.0.0.1:1")


async def _made() -> World:
    return World()
