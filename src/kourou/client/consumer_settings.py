"""What can be set about a consumer that is fed by its brokers, with the original's defaults."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, get_args

from kourou.client.assignment import Assign, assign_evenly
from kourou.client.cluster_settings import ClusterSettings
from kourou.client.consume_hooks import ConsumeHook
from kourou.client.held_keys import KeyOf
from kourou.client.operations import Start, checked_start
from kourou.client.settings import (
    checked_count,
    checked_drain,
    checked_hooks,
    checked_seconds,
    checked_trace,
)
from kourou.errors import ConfigError

MIB = 1024 * 1024

OrderedFailure = Literal["dead-letter", "skip", "block"]


class ConsumerSettings(ClusterSettings, frozen=True, kw_only=True):
    """The settings of a consumer that is fed by its brokers; times in seconds.

    Reading from a queue pauses while more than `queue_messages_max` of its messages, or more than
    `queue_bytes_max` bytes of them, are in flight, or (unless it is ordered) while the first one in flight
    is `queue_span_max` behind the last: so many could come twice after a crash.
    """

    broadcast: bool = False
    """Every consumer of the group gets every message, instead of their sharing them."""
    start: Start = "latest"
    """Where a group begins that was never here: "latest", "earliest" or a datetime."""
    retries: int | None = None
    """How often a failed message comes again before it becomes a dead letter; None leaves it to the group's
    settings at the brokers, 16 unless changed."""
    threads: int = 20
    """Handlers that run at a time."""
    pull_messages: int = 32
    """Asked for at once; a broker may be set to give fewer."""
    queue_messages_max: int = 1000
    queue_bytes_max: int = 100 * MIB
    queue_span_max: int = 2000
    assign: Assign = assign_evenly
    """Which queues are whose; all members of a group must use the same: `kourou.assign_in_turn`, say."""
    consume_timeout: float = 900.0
    """A handler that has not returned by then: its message is handed back to be tried again. Looked at every
    10 s; not for ordered handlers, of which none may begin before the last has ended."""
    ordered_pause: float = 1.0
    """Until an ordered handler is tried again with the message it failed on."""
    ordered_failure: OrderedFailure = "dead-letter"
    """What becomes of a message an ordered handler failed on `retries` times: it goes to the dead letters, is
    skipped, or is tried for ever (as the original does) while all behind it in its queue wait."""
    ordered_key: KeyOf | None = None
    """Which key a message is of, for ordered handlers: while one that failed waits to be tried again, only
    those of its key wait, too, and the rest of its queue goes on. Without it, and for None, all wait."""
    commit_seconds: float = 5.0
    heartbeat_seconds: float = 30.0
    rebalance_seconds: float = 20.0
    """Between two looks at members and queues; changes are told by the brokers at once."""
    drain_seconds: float = 10.0
    """How long `close` waits for handlers that are at work."""
    offsets_file: str | os.PathLike[str] | None = None
    """Where a broadcast consumer keeps its place; by default where the original does (`offsets.py`)."""
    hooks: Sequence[ConsumeHook] = ()
    """Told of every call of a handler."""
    trace: bool | str = False
    """Tell the topic RMQ_SYS_TRACE_TOPIC of every message, as Java's `enableMsgTrace`; or another topic, by
    its name."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_start(self.start)
        if self.retries is not None:
            checked_count("retries", self.retries)
        for name in ("threads", "pull_messages", "queue_messages_max", "queue_bytes_max", "queue_span_max"):
            checked_count(name, getattr(self, name), 1)
        for name in ("consume_timeout", "ordered_pause", "commit_seconds", "heartbeat_seconds"):
            checked_seconds(name, getattr(self, name))
        checked_seconds("rebalance_seconds", self.rebalance_seconds)
        checked_trace(self.trace)
        checked_hooks("hooks", self.hooks, "before_consume", "after_consume")
        checked_drain("drain_seconds", self.drain_seconds)
        _check_callable("assign", self.assign, "a function such as kourou.assign_evenly")
        if self.ordered_key is not None:
            _check_callable("ordered_key", self.ordered_key, "a function of a message")
        if self.offsets_file is not None and not isinstance(self.offsets_file, str | os.PathLike):
            raise ConfigError(f"offsets_file is {self.offsets_file!r}, but must be the name of a file")
        if self.ordered_failure not in get_args(OrderedFailure):
            raise ConfigError(
                f"ordered_failure is {self.ordered_failure!r}; it is one of 'dead-letter', 'skip' and 'block'"
            )


def _check_callable(what: str, given: object, wanted: str) -> None:
    if not callable(given):
        raise ConfigError(f"{what} is {given!r}, but must be {wanted}")
