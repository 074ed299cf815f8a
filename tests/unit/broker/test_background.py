"""The thread that waits for the disk."""

from __future__ import annotations

import asyncio
import threading

from kourou.broker.background import BackgroundThread


def test_jobs_run_elsewhere_in_order_and_their_end_is_told_on_the_loop() -> None:
    async def run() -> None:
        thread = BackgroundThread(asyncio.get_running_loop())
        here = threading.get_ident()
        jobs: list[int] = []
        told: list[tuple[int, bool]] = []
        finished = asyncio.Event()

        def done(number: int, error: BaseException | None) -> None:
            assert error is None
            told.append((number, threading.get_ident() == here))
            if number == 2:
                finished.set()

        for number in range(3):

            def job(number: int = number) -> None:
                assert threading.get_ident() != here
                jobs.append(number)

            thread.run(job, lambda error, number=number: done(number, error))  # type: ignore[misc]
        await asyncio.wait_for(finished.wait(), 5)
        thread.close()
        assert jobs == [0, 1, 2]
        assert told == [(0, True), (1, True), (2, True)]

    asyncio.run(run())


def test_what_goes_wrong_in_a_job_is_told_and_the_next_one_runs() -> None:
    async def run() -> None:
        thread = BackgroundThread(asyncio.get_running_loop())
        outcomes: asyncio.Queue[BaseException | None] = asyncio.Queue()

        def fail() -> None:
            raise OSError(5, "Input/output error")

        thread.run(fail, outcomes.put_nowait)
        thread.run(lambda: None, outcomes.put_nowait)
        first = await asyncio.wait_for(outcomes.get(), 5)
        assert isinstance(first, OSError)
        assert await asyncio.wait_for(outcomes.get(), 5) is None
        thread.close()

    asyncio.run(run())
