"""Named places at which a broker can be made to fail, to see what is left of it.

    KOUROU_FAILPOINT=name:nth:kill      end like kill -9, the nth time the place is reached
                     name:nth:error     an input/output error there; `nth+`: from then on each time
                     name:nth:delay     wait a second there; `delay=50`: 50 milliseconds
    several of them are parted by commas

Nothing is armed unless that variable is set or a test says so, and then a place costs nothing:

    at the disk     the places are in `failing_files.py`, which is used only then
    elsewhere       `reached(name)` on roads that are seldom taken; once a tick, `if ARMED:` before it

Names that begin with `before-` and `after-` stand around what the rest of the name says.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Final

from kourou.errors import ConfigError

VARIABLE: Final = "KOUROU_FAILPOINT"
DELAY_MS: Final = 1000

AT_THE_DISK: Final[Mapping[str, str]] = {
    "append-pwrite": "records of a tick are written to the log",
    "append-fdatasync": "the log is synced",
    "file-roll-create": "a new file of the log is made",
    "file-roll-fallocate": "blocks of the log's file are reserved",
    "dir-fsync": "the log's folder is synced",
    "consumequeue-create": "a new file of a consume queue is made",
    "consumequeue-write": "entries are written to a consume queue",
    "consumequeue-flush": "a consume queue is synced, for a checkpoint",
    "index-write": "the key index is written",
    "index-flush": "the key index is synced",
    "checkpoint-write": "the checkpoint is written",
    "checkpoint-flush": "the checkpoint is synced",
    "offset-snapshot-write": "the consumers' offsets are written beside the former ones",
    "offset-snapshot-flush": "the offsets just written are synced",
    "offset-snapshot-rename": "they take the place of the former ones",
    "topic-config-write": "the topics are written beside the former ones",
    "topic-config-rename": "they take the place of the former ones",
    "group-config-rename": "the groups just written take the place of the former ones",
    "delay-progress-rename": "the progress of delay levels takes the place of the former one",
    "timer-progress-rename": "the progress of timers takes the place of the former one",
    "timer-slot-write": "the list of pending timers is written",
    "timer-slot-rename": "it takes the place of the former one",
    "config-dir-fsync": "a folder with small files is synced",
    "retention-unlink": "a file of the log that is past its time is removed",
    "consumequeue-unlink": "a file of a consume queue is removed",
    "abort-file": "the note that a broker is at work is made, or removed",
    "any-write": "anything is written to any file",
    "any-fdatasync": "any file is synced",
    "any-rename": "any file takes the place of another",
}
"""What happens around the places that belong to a file; each has one before and one after it."""

ELSEWHERE: Final[Mapping[str, str]] = {
    "before-append-buffer": "a tick is over, its records are in memory only",
    "after-append-buffer": "they are written; whoever does not wait for the disk knows",
    "before-ack-send": "stored as asked for; the senders do not know yet",
    "after-ack-send": "the senders' answers are on their way",
    "before-recovery-rebuild": "a start is about to walk the log",
    "after-recovery-rebuild": "queues have been built again from the log",
    "before-recovery-truncate": "a start has found the end of the log",
    "after-recovery-truncate": "what lay behind that end is gone",
    "before-half-append": "a half message is about to be stored",
    "after-half-append": "it is in memory",
    "before-op-append": "a transaction is about to end",
    "after-op-append": "the mark that a transaction has ended is in memory",
    "before-commit-visible": "a committed message is stored; its producer does not know",
    "after-commit-visible": "its producer's answer is on its way",
    "before-rollback": "a rollback is stored; its producer does not know",
    "after-rollback": "its producer's answer is on its way",
    "before-timer-enqueue": "a timed message is stored; the timers do not know",
    "after-timer-enqueue": "the timers know",
    "before-timer-fire": "timed messages are due",
    "after-timer-fire": "their copies are in memory",
    "before-delay-fire": "messages of a delay level are due",
    "after-delay-fire": "their copies are in memory",
    "before-retry-append": "a consumer gives a message back",
    "before-dlq-append": "a message is about to become a dead letter",
    "after-retry-append": "it is in memory, for its retry or among the dead letters",
    "after-dlq-append": "it is in memory, among the dead letters",
    "before-lock-grant": "a consumer asks for queues of its own",
    "after-lock-grant": "it has them, and does not know yet",
    "before-rebalance-publish": "a group has changed; its members do not know",
    "after-rebalance-publish": "its members have been told",
    "before-namesrv-register": "a registration is about to be sent",
    "after-namesrv-register": "it is on its way to every name server",
    "before-namesrv-expire": "a name server gives up brokers that are silent",
    "after-namesrv-expire": "it has looked, and whoever was silent is gone from its routes",
}

OF_THE_MASTER: Final[Mapping[str, str]] = {
    "before-ha-send": "a master is about to send its slave what the log has gained",
    "after-ha-send": "it is on its way",
}

OF_THE_SLAVE: Final[Mapping[str, str]] = {
    "before-ha-handshake": "a slave is about to greet its master",
    "after-ha-handshake": "it knows where the two logs agree, and has asked for what follows",
    "before-ha-apply": "bytes of the master's log have come",
    "after-ha-apply": "they are written; the master does not know",
    "before-ha-ack": "a slave is about to tell its master what it has",
    "after-ha-ack": "that is on its way",
}

OF_A_NEW_MASTER: Final[Mapping[str, str]] = {
    "before-promote-epoch-write": "a slave is to lead, and its new term is not on the disk",
    "after-promote-epoch-write": "the term has begun, on the disk",
    "before-promote-open": "what the old master sent is taken over; nothing may be sent here yet",
    "after-promote-open": "messages are taken; no name server knows",
}

BETWEEN_BROKERS: Final[Mapping[str, str]] = {**OF_THE_MASTER, **OF_THE_SLAVE, **OF_A_NEW_MASTER}
"""What only a broker with a master, a slave or a new term comes past."""

POINTS: Final[Mapping[str, str]] = {
    **{
        f"{side}-{name}": what if side == "before" else f"done: {what}"
        for name, what in AT_THE_DISK.items()
        for side in ("before", "after")
    },
    **ELSEWHERE,
    **BETWEEN_BROKERS,
}

Action = Callable[[str], None]
"""Told the name of the place."""


class Armed:
    """One place, from which reach on it strikes, and how."""

    def __init__(self, nth: int, is_repeated: bool, action: Action) -> None:
        self._left = nth
        self._is_repeated = is_repeated
        self._action = action
        self.reached = 0

    def reach(self, name: str) -> None:
        self.reached += 1
        self._left -= 1
        if self._left == 0 or (self._left < 0 and self._is_repeated):
            self._action(name)


ARMED: Final[dict[str, Armed]] = {}
"""Empty, but in a test."""


def reached(name: str) -> None:
    """This place is reached; what comes after it may never happen."""
    if ARMED:
        assert name in POINTS, name
        armed = ARMED.get(name)
        if armed is not None:
            armed.reach(name)


def arm(name: str, nth: int, action: Action, *, is_repeated: bool = False) -> Armed:
    """Have `action` called the nth time the place is reached. Raises ConfigError without such a place."""
    if name not in POINTS:
        raise ConfigError(
            f"{VARIABLE}: no place is called {name!r}; `python -m kourou.doors.failpoints` lists them"
        )
    armed = ARMED[name] = Armed(nth, is_repeated, action)
    return armed


def disarm() -> None:
    ARMED.clear()


def arm_from(environment: Mapping[str, str]) -> bool:
    """Arm what the variable names; whether that was anything. Raises ConfigError when it makes no sense."""
    for each in filter(None, environment.get(VARIABLE, "").split(",")):
        name, nth, action = _parsed(each)
        arm(name, int(nth.rstrip("+")), action, is_repeated=nth.endswith("+"))
    return bool(ARMED)


def _parsed(text: str) -> tuple[str, str, Action]:
    name, _, rest = text.strip().partition(":")
    nth, _, what = rest.partition(":")
    kind, _, amount = what.partition("=")
    is_number = nth.rstrip("+").isdigit() and int(nth.rstrip("+")) > 0 and len(nth) <= 10
    if not is_number or kind not in ("kill", "error", "delay") or (amount and not amount.isdigit()):
        raise ConfigError(f"{VARIABLE} is {text!r}; write name:nth:kill, name:nth:error or name:nth:delay")
    if kind == "kill":
        return name, nth, kill
    return name, nth, error if kind == "error" else delay(int(amount or DELAY_MS))


def kill(name: str) -> None:
    """End at once, with nothing flushed and nobody told."""
    os.kill(os.getpid(), signal.SIGKILL)


def error(name: str) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO), name)


def delay(milliseconds: int) -> Action:
    return lambda name: time.sleep(milliseconds / 1000)


if __name__ == "__main__":
    for point, meaning in POINTS.items():
        print(f"{point:<34}{meaning}")
