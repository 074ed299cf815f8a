"""Which queue a message goes to.

    Turns        each queue in its turn; after a failure, a queue at another broker
    by_key       one key, one queue: Java's hash of the key
    by_function  the caller's own choice

A keyed message keeps its queue also while that queue's broker is away (`order="strict"`): its hash runs over
the queues the topic has when everybody is there, so the send fails until the broker is back, and two messages
of one key are never in two queues. With `order="normal"` it runs over the queues that are left: the message
gets through, and may overtake an earlier one that waits at the broker that is away.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import Literal, TypeAlias

from kourou.client.namespaces import queue_with_namespace, queue_without_namespace
from kourou.client.routes import Route
from kourou.client.sends import Choose
from kourou.doors.chance import Chance
from kourou.errors import ConfigError
from kourou.message import Message
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.java_hash import java_hash

COUNTER_START_MAX = 1 << 31

Order: TypeAlias = Literal["strict", "normal"]
Select: TypeAlias = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Picks one of the queues of a topic for a message."""


class Turns:
    """Each queue of a topic in its turn, from a random start, so that many producers do not march in step.

    Every thread has turns of its own, as in the Java client; all tasks of an event loop share theirs.
    """

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._of_this_thread = threading.local()

    def choose(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        """The next queue; one at another broker than `avoid`, if there is any."""
        counter = self.counter(queues[0].topic)
        for _ in range(len(queues)):
            queue = queues[next(counter) % len(queues)]
            if queue.broker_name != avoid:
                return queue
        return queues[next(counter) % len(queues)]

    def next_of(self, route: Route, failed: MessageQueue | None) -> MessageQueue:
        return self.choose(route.write_queues, None if failed is None else failed.broker_name)

    def counter(self, topic: str) -> count[int]:
        """This thread's own count for a topic."""
        counters: dict[str, count[int]] | None = getattr(self._of_this_thread, "counters", None)
        if counters is None:
            counters = self._of_this_thread.counters = {}
        counter = counters.get(topic)
        if counter is None:
            counter = counters[topic] = count(self._chance.randrange(COUNTER_START_MAX))
        return counter


def by_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """The queue of `key`: the same one as the Java client's, as long as the queues stay the same."""
    return queues[abs(java_hash(key)) % len(queues)]  # |h % n| in Java, whose % keeps the sign


def strictly(key: str) -> Choose:
    """The key's queue, whether its broker is there or not."""
    return lambda route, failed: by_key(route.ordered_queues, key)


def among_those_left(key: str, moved: Callable[[], None]) -> Choose:
    """The key's queue while its broker is there; otherwise another, of which `moved` is told."""
    lost: set[str] = set()

    def choose(route: Route, failed: MessageQueue | None) -> MessageQueue:
        if failed is not None:
            lost.add(failed.broker_name)
        left = [queue for queue in route.write_queues if queue.broker_name not in lost]
        chosen = by_key(left or route.write_queues, key)
        if chosen != by_key(route.ordered_queues, key):
            moved()
        return chosen

    return choose


def by_function(select: Select, message: Message, namespace: str | None = None) -> Choose:
    """What `select` says; raises ConfigError when that is none of the topic's queues."""

    def choose(route: Route, failed: MessageQueue | None) -> MessageQueue:
        queues = tuple(queue_without_namespace(namespace, queue) for queue in route.write_queues)
        chosen = select(queues, message)
        if chosen not in queues:
            raise ConfigError(
                f"the function given to select a queue returned {chosen!r}, which is none of the "
                f"{len(queues)} queues of '{message.topic}' it was given"
            )
        return queue_with_namespace(namespace, chosen)

    return choose


def only(queue: MessageQueue) -> Choose:
    return lambda route, failed: queue
