"""Which queue a message goes to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from kourou.doors.chance import Chance
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.java_hash import java_hash

COUNTER_START_MAX = 1 << 31


class Turns:
    """Each queue of a topic in its turn, from a random start, so that many producers do not march in step.

    Any number of threads may ask: `next` on a count is one step for all of them.
    """

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._counters: dict[str, count[int]] = {}

    def choose(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        """The next queue; one at another broker than `avoid`, if there is any."""
        counter = self._counter(queues[0].topic)
        for _ in range(len(queues)):
            queue = queues[next(counter) % len(queues)]
            if queue.broker_name != avoid:
                return queue
        return queues[next(counter) % len(queues)]

    def _counter(self, topic: str) -> count[int]:
        counter = self._counters.get(topic)
        if counter is None:
            started = count(self._chance.randrange(COUNTER_START_MAX))
            counter = self._counters.setdefault(topic, started)  # another thread may have been first
        return counter


def by_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """The queue of `key`: the same one as the Java client's, as long as the queues stay the same."""
    return queues[abs(java_hash(key)) % len(queues)]  # |h % n| in Java, whose % keeps the sign
