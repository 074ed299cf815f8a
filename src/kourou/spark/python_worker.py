"""The Python process of an executor that runs our tasks: what is done in it once, before the first."""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext


def settle() -> None:
    """For every task to call first; nothing happens outside of a task."""
    if TaskContext.get() is not None:
        _settle_once()


@cache
def _settle_once() -> None:
    """Spark looks for garbage after each task, among modules that stay as long as the process does: 15 ms a
    task, in which a worker takes no other. What is there now is spared that; bench: topic, micro-batch."""
    gc.freeze()
