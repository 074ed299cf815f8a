"""The wall clocks of real brokers, each set as a test likes (`KOUROU_CLOCK`)."""

from __future__ import annotations

import random
import time
from pathlib import Path

from kourou.doors.adjusted_clock import VARIABLE, set_clock

SECOND_MS = 1_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
STROBES = 10
STROBE_SECONDS = 0.1

LEAPS_MS = (
    SECOND_MS,
    -SECOND_MS,
    HOUR_MS,
    -HOUR_MS,
    DAY_MS,
    -DAY_MS,
    30 * DAY_MS,
    -1_700_000_000_000,
)
"""A second to a month, forward and back; and back to 1970."""

LASTING_MS = (0, HOUR_MS, -HOUR_MS, DAY_MS, -DAY_MS)
"""How far a clock may stay off, also over a start: no file is past its time by that."""


class WallClock:
    """Of one broker, whichever process that is at the moment."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.set(0)

    @property
    def environment(self) -> dict[str, str]:
        """What the broker is started with."""
        return {VARIABLE: str(self._path)}

    def set(self, ahead_ms: int) -> None:
        set_clock(str(self._path), ahead_ms)

    def trouble(self, chance: random.Random) -> int:
        """Leap, or leap to and fro ten times a second; then stay off by something else. How many leaps."""
        if chance.random() < 0.3:
            leaps = [chance.choice((SECOND_MS, DAY_MS)) * (number % 2) for number in range(STROBES)]
        else:
            leaps = [chance.choice(LEAPS_MS)]
        for ahead_ms in leaps:
            self.set(ahead_ms)
            time.sleep(STROBE_SECONDS)
        self.set(chance.choice(LASTING_MS))
        return len(leaps) + 1
