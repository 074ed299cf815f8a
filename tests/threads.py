"""Whether threads are left behind."""

from __future__ import annotations

import threading
import time

PATIENCE_SECONDS = 20.0


def no_more_than(count: int) -> bool:
    """Whether no more than `count` threads are left, soon: one that has ended may need a moment to go."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while threading.active_count() > count:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
