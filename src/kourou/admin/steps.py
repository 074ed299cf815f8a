"""What an operation that takes its time says of itself, one after the other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """What has happened, or what is waited for."""

    what: str
    is_waiting: bool = False
