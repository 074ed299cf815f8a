"""Places in queues: as a table here, as JSON in Spark's checkpoint and in options.

    {"orders": {"broker-a": {"0": 23, "1": 7}}}        topic, broker, queue, the offset of the next message

Spark compares offsets as text, so the text of one table is always the same: keys are sorted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from kourou.errors import ConfigError


class Queue(NamedTuple):
    """One queue of one broker."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of '{self.topic}' at {self.broker_name}"


Offsets: TypeAlias = dict[Queue, int]


class Range(NamedTuple):
    """Messages of one queue: from `start` on, `end` not among them."""

    queue: Queue
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def to_json(offsets: Mapping[Queue, int]) -> dict[str, Any]:
    """As Spark keeps them, in an order that depends on nothing but the queues."""
    table: dict[str, Any] = {}
    for queue in sorted(offsets):
        by_queue = table.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})
        by_queue[str(queue.queue_id)] = offsets[queue]
    return table


def from_json(table: Mapping[str, Any]) -> Offsets:
    """What `to_json` wrote; raises ConfigError for what is none."""
    try:
        return {
            Queue(topic, broker_name, int(queue_id)): _offset(offset)
            for topic, brokers in table.items()
            for broker_name, queues in brokers.items()
            for queue_id, offset in queues.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(
            f"the checkpoint has an offset that is not ours: {str(table)[:200]}; is it another query's?"
        ) from None


def _offset(offset: object) -> int:
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise ValueError(offset)
    return offset
