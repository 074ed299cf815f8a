"""The one thread besides the event loop's: it waits for the disk, so that the loop does not.

A job runs there, one at a time and in order; its end is told on the loop. (`Files.sync_all` takes a few more
threads for the moment in which many files are synced.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

Done = Callable[[BaseException | None], None]


class BackgroundThread:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kourou-flush")

    def run(self, job: Callable[[], None], done: Done) -> None:
        """Run `job` on the thread, then `done` on the loop, with what went wrong or None."""

        def work() -> None:
            try:
                job()
            except BaseException as error:  # whatever it was, the loop must hear of it
                outcome: BaseException | None = error
            else:
                outcome = None
            self._loop.call_soon_threadsafe(done, outcome)

        self._thread.submit(work)

    def close(self) -> None:
        """Wait for the job that is running, and end the thread."""
        self._thread.shutdown(wait=True)
