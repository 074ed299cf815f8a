"""How often somebody may try: a login that fails too often has to wait.

Counted for a user at an address, so that a stranger elsewhere cannot lock a user out, and for an address
alone, so that one cannot go through all names instead.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from math import ceil

from kourou.doors.clock import Clock

WINDOW_SECONDS = 60.0
FAILURES_OF_ONE_MAX = 5
FAILURES_OF_AN_ADDRESS_MAX = 20
REMEMBERED_MAX = 10_000


class Attempts:
    """Failed logins of the last minute. Any thread may ask."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failed: OrderedDict[tuple[str, ...], deque[float]] = OrderedDict()

    def seconds_to_wait(self, user: str, address: str) -> int:
        """0 when another try is welcome."""
        now = self._clock.monotonic()
        with self._lock:
            return max(
                self._wait((user, address), FAILURES_OF_ONE_MAX, now),
                self._wait((address,), FAILURES_OF_AN_ADDRESS_MAX, now),
            )

    def failed(self, user: str, address: str) -> None:
        now = self._clock.monotonic()
        with self._lock:
            for key in ((user, address), (address,)):
                self._failed.setdefault(key, deque(maxlen=FAILURES_OF_AN_ADDRESS_MAX)).append(now)
                self._failed.move_to_end(key)
            while len(self._failed) > REMEMBERED_MAX:
                self._failed.popitem(last=False)

    def succeeded(self, user: str, address: str) -> None:
        with self._lock:
            self._failed.pop((user, address), None)

    def _wait(self, key: tuple[str, ...], allowed: int, now: float) -> int:
        times = [at for at in self._failed.get(key, ()) if now - at < WINDOW_SECONDS]
        if len(times) < allowed:
            return 0
        return max(1, ceil(WINDOW_SECONDS - (now - times[-allowed])))
