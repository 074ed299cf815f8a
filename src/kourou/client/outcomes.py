"""What a handler may say about a message besides "done", by raising it.

    returns               done
    raises RetryLater     once more, after a while
    raises DeadLetter     never again: it goes to the group's dead letters
    raises anything else  once more, after the usual while, and the log tells why

A handler of batches says it of all its messages that way, or of each: by returning a list with one item for
each of them, where an exception means what it would mean when raised, and anything else that it is done. (So
does what `asyncio.gather(..., return_exceptions=True)` returns.)

The brokers of RocketMQ know eighteen whiles, the delay levels; a number of seconds is rounded up to one.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import timedelta

from kourou.client.delays import DelayLevel
from kourou.errors import ConfigError

DELAY_SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""The delay of each level, from level 1 on; a broker may be configured otherwise."""

BY_ATTEMPTS = 0
"""The level that leaves it to the broker: 10 s after the first attempt, longer after each."""
GIVE_UP = -1
"""The level that makes a message a dead letter."""


class RetryLater(Exception):  # it says what shall happen, and is no error
    """Raise it in a handler: the message shall come once more.

        raise kourou.RetryLater()                        after 10 s, and longer with each attempt
        raise kourou.RetryLater(60)                      after a minute; a timedelta will do as well
        raise kourou.RetryLater(kourou.DelayLevel(3))    after RocketMQ's delay level 3, 10 s

    Seconds are rounded up to a delay level (1, 5, 10, 30 s, 1 to 10 min, 20, 30 min, 1, 2 h). With an ordered
    handler the queue waits, as long as was asked for, and goes on with the same message.
    """

    def __init__(self, delay: float | timedelta | DelayLevel | None = None) -> None:
        super().__init__(delay)
        self.level = BY_ATTEMPTS
        self.seconds: float | None = None
        """None when none were asked for."""
        if isinstance(delay, DelayLevel):
            self.level = int(delay)
            self.seconds = float(DELAY_SECONDS[delay - 1])
        elif delay is not None:
            self.seconds = _checked_seconds(delay)
            self.level = bisect_left(DELAY_SECONDS, self.seconds) + 1

    def __str__(self) -> str:
        return "once more, please" if self.seconds is None else f"once more in {self.seconds:g} s, please"


def _checked_seconds(delay: object) -> float:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if not isinstance(seconds, int | float) or not 0 <= seconds <= DELAY_SECONDS[-1]:
        raise ConfigError(
            f"delay is {delay!r}: give 0 to {DELAY_SECONDS[-1]} seconds, a timedelta or a DelayLevel"
        )
    return float(seconds)


class DeadLetter(Exception):  # it says what shall happen, and is no error
    """Raise it in a handler: the message goes to the group's dead letters, `%DLQ%` and the group's name."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "given up by its handler")


def failures_in(returned: object, count: int) -> list[BaseException | None] | None:
    """What a handler that was given `count` messages says of each; None when it says that all are done.

    Raises ConfigError when it says of some that they failed, and nobody can tell of which.
    """
    if not isinstance(returned, list | tuple):
        return None
    failures = [each if isinstance(each, BaseException) else None for each in returned]
    if all(failure is None for failure in failures):
        return None
    if len(failures) != count:
        raise ConfigError(
            f"a handler was given {count} messages and returned {len(failures)} outcomes, some of them "
            "failures: return one for each message, in their order"
        )
    return failures


def delay_level(failure: BaseException) -> int:
    """The level a message is handed back with after this failure."""
    if isinstance(failure, DeadLetter):
        return GIVE_UP
    return failure.level if isinstance(failure, RetryLater) else BY_ATTEMPTS
