"""`asyncio.timeout` by our own clock, so that a simulated one decides."""

from __future__ import annotations

import asyncio

from kourou.doors.clock import Clock, Timer


class Limit:
    """`async with Limit(clock, 3.0):` raises TimeoutError (an OSError) when its body takes longer."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._timer: Timer | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelled_before = 0
        self._is_over = False

    async def __aenter__(self) -> None:
        task = self._task = asyncio.current_task()
        assert task is not None
        self._cancelled_before = task.cancelling()

        def over() -> None:
            self._is_over = True
            task.cancel()

        self._timer = self._clock.later(self._seconds, over)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._timer is not None
        assert self._task is not None
        self._timer.cancel()
        if not self._is_over:
            return
        # Our own cancellation is taken back, or whoever counts them (TaskGroup, Runner) takes it for theirs.
        is_only_ours = self._task.uncancel() <= self._cancelled_before
        if is_only_ours and kind is asyncio.CancelledError:
            raise TimeoutError(f"no answer within {self._seconds:g} s") from None
