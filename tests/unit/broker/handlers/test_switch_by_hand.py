"""A master that is to hand over waits for an heir that has just started, and goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from kourou.broker.handlers.switching import HAND_OVER_SECONDS_MAX, SwitchHandler
from kourou.doors.clock import SimulatedClock
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.switching import Switch
from kourou.remoting.answer import Answer

HEIR = "10.0.0.2:10911"


class World:
    """A master with 233 bytes, whose replicas are what the test says."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.refused: list[str | None] = []
        self.answers: list[Command] = []
        self.is_idle = False
        self.is_operator_there = True
        self.primary = SimpleNamespace(acked={}, end=233, lacking=frozenset())

        async def become_idle(term: int) -> None:
            self.is_idle = True

        self.handler = SwitchHandler(
            None,
            replicating=cast("Any", SimpleNamespace(primary=self.primary, become_idle=become_idle)),
            role=cast("Any", SimpleNamespace(is_master=True, term=3)),
            store=cast("Any", SimpleNamespace(refuse_appends=self.refused.append, wrote=233)),
            clock=self.clock,
        )

    async def hand_over(self, at: float, change: Callable[[], None], seconds: float) -> None:
        self.handler(
            request(RequestCode.KOUROU_SWITCH, Switch("hand-over", heir=HEIR)),
            cast("Answer", _Recorder(self.answers, self.is_operator_there)),
        )
        self.clock.later(at, change)
        for _ in range(round(seconds / 0.01)):
            await asyncio.sleep(0)
            self.clock.advance(0.01)
        await asyncio.sleep(0)


class _Recorder:
    def __init__(self, answers: list[Command], is_open: bool) -> None:
        self._answers = answers
        self.connection = SimpleNamespace(peer="10.0.0.9:1", is_open=is_open)

    def __call__(self, answer: Command) -> None:
        self._answers.append(answer)


def test_an_heir_that_begins_to_follow_in_time_leads() -> None:
    world = World()

    def follows() -> None:
        assert not world.refused  # as long as nobody is there to take over, sends go on
        world.primary.acked[HEIR] = 233

    asyncio.run(world.hand_over(2.0, follows, 3.0))
    assert [answer.code for answer in world.answers] == [ResponseCode.SUCCESS]
    assert world.is_idle
    assert len(world.refused) == 1


def test_an_heir_that_is_not_there_is_told_after_a_while_and_nothing_has_changed() -> None:
    world = World()
    asyncio.run(world.hand_over(1.0, lambda: None, HAND_OVER_SECONDS_MAX - 0.1))
    assert not world.answers
    world = World()
    asyncio.run(world.hand_over(1.0, lambda: None, HAND_OVER_SECONDS_MAX + 0.2))
    [answer] = world.answers
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert f"{HEIR} does not follow this master; nobody does" in answer.remark
    assert not world.is_idle
    assert not world.refused


def test_when_the_operator_has_gone_the_master_goes_on() -> None:
    world = World()
    world.is_operator_there = False
    asyncio.run(world.hand_over(2.0, lambda: world.primary.acked.update({HEIR: 233}), 3.0))
    assert not world.is_idle
    assert not world.refused
