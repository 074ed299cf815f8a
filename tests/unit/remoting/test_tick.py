from __future__ import annotations

import asyncio

import pytest

from kourou.remoting.tick import Tick
from tests.unit.remoting.simulated_world import on_a_loop, turns


@on_a_loop
async def test_all_work_runs_before_all_flushes_in_the_order_it_came() -> None:
    tick = Tick(asyncio.get_running_loop())
    seen: list[str] = []
    tick.flush_at_end(lambda: seen.append("flush"))
    tick.at_end(lambda: seen.append("first"))
    tick.at_end(lambda: (seen.append("second"), tick.at_end(lambda: seen.append("asked by work")))[0])
    assert seen == []
    await turns(1)
    assert seen == ["first", "second", "asked by work", "flush"]


@on_a_loop
async def test_what_is_asked_for_by_a_flush_belongs_to_the_next_tick() -> None:
    tick = Tick(asyncio.get_running_loop())
    seen: list[str] = []
    tick.flush_at_end(lambda: tick.at_end(lambda: seen.append("later")))
    await turns(1)
    assert seen == []
    await turns(1)
    assert seen == ["later"]


@on_a_loop
async def test_the_rest_comes_after_the_writes_and_its_own_writes_at_once() -> None:
    tick = Tick(asyncio.get_running_loop())
    seen: list[str] = []

    def rest() -> None:
        seen.append("rest")
        tick.flush_at_end(lambda: seen.append("write of the rest"))
        tick.after_writes(lambda: seen.append("more"))
        tick.at_end(lambda: seen.append("work of the next tick"))

    tick.after_writes(rest)
    tick.flush_at_end(lambda: seen.append("write"))
    tick.at_end(lambda: seen.append("work"))
    await turns(1)
    assert seen == ["work", "write", "rest", "write of the rest", "more"]
    await turns(1)
    assert seen[5:] == ["work of the next tick"]


@on_a_loop
async def test_a_tick_that_only_has_a_rest_is_one_too() -> None:
    tick = Tick(asyncio.get_running_loop())
    seen: list[str] = []
    for _ in range(2):
        tick.after_writes(lambda: seen.append("rest"))
        await turns(1)
    assert seen == ["rest", "rest"]


@on_a_loop
async def test_what_a_write_asks_for_keeps_its_place_in_the_next_tick() -> None:
    tick = Tick(asyncio.get_running_loop())
    seen: list[str] = []
    tick.flush_at_end(lambda: tick.at_end(lambda: seen.append("later")))
    tick.after_writes(lambda: seen.append("rest"))
    await turns(1)
    assert seen == ["rest"]
    await turns(1)
    assert seen == ["rest", "later"]


@on_a_loop
async def test_failing_work_does_not_take_away_the_others_turn(caplog: pytest.LogCaptureFixture) -> None:
    tick = Tick(asyncio.get_running_loop())
    seen: list[str] = []
    for _ in range(2):
        tick.at_end(lambda: 1 / 0)  # type: ignore[arg-type,return-value]
        tick.at_end(lambda: seen.append("work"))
        tick.flush_at_end(lambda: 1 / 0)  # type: ignore[arg-type,return-value]
        tick.flush_at_end(lambda: seen.append("flush"))
        await turns(1)
    assert seen == ["work", "flush"] * 2
    assert "ZeroDivisionError" in caplog.text
