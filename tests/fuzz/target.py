"""What is fuzzed: a name, something to feed bytes to, and examples to begin with.

A target takes any bytes and returns. It lets through only the errors its parser is documented to raise;
anything else it raises is a finding, and so is an input that takes too long or too much memory.
"""

from __future__ import annotations

import asyncio
import logging
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kourou.errors import MQError

SECONDS_MAX = 1.5
"""Of the processor, for one input of up to `INPUT_BYTES_MAX`; a healthy one takes a hundredth."""
INPUT_BYTES_MAX = 64 * 1024
MEMORY_FACTOR_MAX, MEMORY_BYTES_FREE = 64, 8 * 1024 * 1024
"""Small values become objects, and what is refused is told of; what grows beyond this has no bound."""


@dataclass(frozen=True)
class Target:
    name: str
    feed: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    words: tuple[bytes, ...] = ()
    """What inputs are made of, besides the seeds."""
    examples: int = 150
    """So many in `make test`: fewer where each takes a broker."""


class TooMuch(AssertionError):
    """An input costs more than its size explains."""


def judge(target: Target, data: bytes, *, weigh: bool = False) -> None:
    """Feed it; raises whatever is not documented, and TooMuch."""
    begin = time.process_time()
    if weigh:
        _weigh(target, data)
    else:
        target.feed(data)
    seconds = time.process_time() - begin
    if seconds > SECONDS_MAX * (5 if weigh else 1):
        raise TooMuch(f"{len(data)} bytes took {seconds:.1f} s of the processor")


def _weigh(target: Target, data: bytes) -> None:
    tracemalloc.start()
    try:
        target.feed(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if peak > MEMORY_FACTOR_MAX * len(data) + MEMORY_BYTES_FREE:
        raise TooMuch(f"{len(data)} bytes took {peak} bytes of memory")


class Faults(logging.Handler):
    """Of a server that answers whatever happens: what went wrong inside it that nobody foresaw."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] and not isinstance(record.exc_info[1], MQError):
            self.found.append(record.exc_info[1])

    def of_the_loop(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or AssertionError(context["message"])
        self.found.append(error)

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Raise the first of them at the end."""
        self.found.clear()
        yield
        if self.found:
            raise self.found[0]


def faults_of(loop: asyncio.AbstractEventLoop) -> Faults:
    """Whatever is logged with a traceback, and whatever the loop has caught."""
    faults = Faults()
    logger = logging.getLogger("kourou")
    logger.addHandler(faults)
    logger.propagate = False
    loop.set_exception_handler(faults.of_the_loop)
    return faults
