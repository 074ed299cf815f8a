"""What `delay=` may be, and the properties it becomes.

    DelayLevel(3)         DELAY=3                     one of the broker's 18 levels; every RocketMQ knows them
    30, 1.5, timedelta    TIMER_DELAY_SEC / _MS       from when the broker gets the message
    datetime              TIMER_DELIVER_MS            at this moment; at once when it is past

A broker of 4.x does not know the last two and would deliver at once: `sending.py` asks before it sends.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypeAlias

from kourou.errors import ConfigError

DELAY = "DELAY"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"

TIMER_PROPERTIES = frozenset({TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS})

LEVEL_MAX = 18
SECONDS_MAX = 366 * 24 * 3600
"""No broker takes a longer delay, whatever it is set to; most take three days."""


class DelayLevel(int):
    """One of the delay levels of a broker: 1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min, 30 min, 1 h, 2 h.

    Those are the 18 levels a broker has unless its `messageDelayLevel` says otherwise.
    """

    def __new__(cls, level: int) -> DelayLevel:
        if type(level) not in (int, DelayLevel) or not 1 <= level <= LEVEL_MAX:
            raise ConfigError(f"delay level {level!r} does not exist: levels are 1 to {LEVEL_MAX}")
        return super().__new__(cls, level)

    def __repr__(self) -> str:
        return f"DelayLevel({int(self)})"


Delay: TypeAlias = float | timedelta | datetime | DelayLevel
"""How much later: seconds or a timedelta, a moment, or a level."""


def delay_properties(delay: Delay) -> dict[str, str]:
    """The properties that make a broker hold a message back; none for a delay of 0."""
    if isinstance(delay, DelayLevel):
        return {DELAY: str(int(delay))}
    if isinstance(delay, datetime):
        return {TIMER_DELIVER_MS: str(round(delay.timestamp() * 1000))}
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ConfigError(
            f"delay is {delay!r}: give seconds, a timedelta, a datetime or a DelayLevel, as in delay=30"
        )
    if not 0 <= seconds <= SECONDS_MAX:
        raise ConfigError(f"delay is {delay!r}: it must be from 0 to {SECONDS_MAX} seconds")
    if seconds == 0:
        return {}
    if seconds == int(seconds):
        return {TIMER_DELAY_SEC: str(int(seconds))}
    return {TIMER_DELAY_MS: str(max(1, round(seconds * 1000)))}
