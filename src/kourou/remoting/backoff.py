"""How long to wait before the next try to connect: longer after each failure, and never all at once."""

from __future__ import annotations

from kourou.doors.chance import Chance

FIRST_SECONDS = 0.1
SECONDS_MAX = 5.0


class Backoff:
    """0.1 s, doubled with every failure up to `seconds_max`; a random half of it is waited at least."""

    __slots__ = ("_chance", "_failures", "_seconds_max", "not_before")

    def __init__(self, chance: Chance, seconds_max: float = SECONDS_MAX) -> None:
        self._chance = chance
        self._seconds_max = seconds_max
        self._failures = 0
        self.not_before = 0.0
        """The monotonic time of the next try."""

    def failed(self, now: float) -> None:
        seconds = min(self._seconds_max, FIRST_SECONDS * 2 ** min(self._failures, 16))
        self.not_before = now + seconds * self._chance.uniform(0.5, 1.0)
        self._failures += 1

    def succeeded(self) -> None:
        self._failures = 0
        self.not_before = 0.0
