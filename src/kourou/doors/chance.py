"""The way to randomness: one seeded generator, so that a simulation can be played again from an integer."""

from __future__ import annotations

import os
import random


class Chance(random.Random):
    """A source of chance. With a seed it repeats itself; without one it does not.

    Not for secrets: those come from `secret_bytes`.
    """

    def secret_bytes(self, count: int) -> bytes:
        """Bytes nobody can guess (also not from a seed)."""
        return os.urandom(count)
