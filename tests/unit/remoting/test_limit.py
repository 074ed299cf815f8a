from __future__ import annotations

import asyncio

import pytest

from kourou.doors.clock import SimulatedClock
from kourou.remoting.limit import Limit
from tests.unit.remoting.simulated_world import on_a_loop, turns


async def wait_for_ever(clock: SimulatedClock, seconds: float) -> None:
    async with Limit(clock, seconds):
        await asyncio.get_running_loop().create_future()


@on_a_loop
async def test_what_takes_too_long_ends_with_a_timeout() -> None:
    clock = SimulatedClock()
    task = asyncio.ensure_future(wait_for_ever(clock, 3.0))
    await turns()
    clock.advance(2.9)
    await turns()
    assert not task.done()
    clock.advance(0.2)
    with pytest.raises(TimeoutError, match="no answer within 3 s"):
        await task


@on_a_loop
async def test_a_cancelled_task_stays_cancelled() -> None:
    task = asyncio.ensure_future(wait_for_ever(SimulatedClock(), 3.0))
    await turns()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@on_a_loop
async def test_what_is_done_in_time_is_left_alone() -> None:
    clock = SimulatedClock()
    async with Limit(clock, 3.0):
        await turns()
    clock.advance(5)
    await turns()


@on_a_loop
async def test_a_task_that_ran_into_a_limit_is_not_a_cancelled_one() -> None:
    clock = SimulatedClock()

    async def work() -> int:
        with pytest.raises(TimeoutError):
            await wait_for_ever(clock, 3.0)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    task = asyncio.ensure_future(work())
    await turns()
    clock.advance(3.1)
    assert await task == 0


@on_a_loop
async def test_who_is_cancelled_while_the_limit_is_reached_stays_cancelled() -> None:
    clock = SimulatedClock()
    task = asyncio.ensure_future(wait_for_ever(clock, 3.0))
    await turns()
    task.cancel()
    clock.advance(3.1)
    with pytest.raises(asyncio.CancelledError):
        await task
