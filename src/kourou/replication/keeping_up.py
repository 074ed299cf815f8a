"""Which replicas keep up with their master: what the in-sync set should be, from what each has acknowledged.

    in ──▶ out      not connected for a moment, or for too long never where the master's end was when asked
    out ──▶ near    lately where the master's end was: from now on it is waited for
    near ──▶ in     and has everything that was acknowledged or shown to anybody before

Only advice: the set itself changes when a majority has taken the record that says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

ABSENT_SECONDS_MAX: Final = 0.5
BEHIND_SECONDS_MAX: Final = 2.0
BACK_SECONDS_MAX: Final = 0.5
START_SECONDS: Final = 1.5
"""For the others to find a new master, before their absence counts."""


class Progress(NamedTuple):
    """How far the log has come, as its master sees it."""

    acked: Mapping[str, int]
    """Per connected replica."""
    confirmed: int
    """The end of what was acknowledged as replicated, or shown to readers."""
    end: int
    lacking: frozenset[str] = frozenset()
    """Replicas without a topic or group that somebody was told is there."""


class Advice(NamedTuple):
    stay: frozenset[str]
    """Those of the in-sync set that keep up."""
    near: frozenset[str]
    """Those outside that have nearly everything."""


class _Replica:
    __slots__ = ("asked_at", "asked_end", "near_at", "present_at", "was_there_at")

    def __init__(self, now: float) -> None:
        self.present_at = now
        self.was_there_at = now
        self.asked_at = now
        self.asked_end: int | None = None
        self.near_at = -math.inf


class KeepingUp:
    """Watches the replicas of one term."""

    def __init__(self, members: frozenset[str], now: float) -> None:
        self._replicas = {member: _Replica(now + START_SECONDS) for member in members}
        for replica in self._replicas.values():
            replica.asked_at = now

    def advice(self, now: float, progress: Progress, in_sync: frozenset[str]) -> Advice:
        """What the in-sync set should be, and who might join it."""
        stay, near = set(in_sync), set()
        for member, replica in self._replicas.items():
            acked = progress.acked.get(member)
            has_been_there = self._look(now, replica, acked, progress.end)
            if member in in_sync:
                absent, behind = now - replica.present_at, now - replica.was_there_at
                if absent > ABSENT_SECONDS_MAX or behind > BEHIND_SECONDS_MAX:
                    stay.discard(member)
            elif has_been_there:
                near.add(member)
        return Advice(frozenset(stay), frozenset(near))

    def _look(self, now: float, replica: _Replica, acked: int | None, end: int) -> bool:
        """Note where it is; whether it has lately been where the end was."""
        if acked is None:
            replica.asked_end = None
            replica.near_at = -math.inf
            return False
        replica.present_at = max(replica.present_at, now)
        if acked >= end:
            replica.near_at = now
        if replica.asked_end is None:
            replica.asked_at, replica.asked_end = now, end
        elif acked >= replica.asked_end:
            replica.was_there_at = max(replica.was_there_at, replica.asked_at)
            replica.near_at = max(replica.near_at, replica.asked_at)
            replica.asked_at, replica.asked_end = now, end
        return now - replica.near_at <= BACK_SECONDS_MAX
