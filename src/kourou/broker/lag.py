"""How far behind consumers are, in messages and in time, as the broker knows it at this moment.

    queue     min ──────────── committed ─────── pulled ─────────── max
                                    └─ in flight ──┘└──── ready ─────┘
                                    └────────────── lag ─────────────┘

Until a group's first commit in a queue it counts from where it pulls: it may have begun at the end. What it
has not pulled either counts from the first message that is still there, as in the original. Groups that
broadcast keep their offsets to themselves, so nothing can be said of them; nor of a group or a topic that was
deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kourou.broker.groups import Groups
from kourou.broker.members import Members
from kourou.broker.offsets import CommittedOffsets
from kourou.broker.topics import Topics
from kourou.doors.clock import Clock
from kourou.protocol.names import DEAD_LETTER_PREFIX, SYSTEM_GROUPS
from kourou.store.store import Store

LATENCIES_MAX: Final = 500
"""So many times of messages are looked up at once; each is a read."""


class QueueLag(NamedTuple):
    """One group in one queue."""

    queue_id: int
    lag: int
    in_flight: int
    waiting_since_ms: int | None
    """When the first message it is not done with was stored; None when there is none, or it was not asked."""
    ready_since_ms: int | None


class TopicLag(NamedTuple):
    """One group in one topic."""

    group: str
    topic: str
    queues: list[QueueLag]

    @property
    def lag(self) -> int:
        return sum(queue.lag for queue in self.queues)

    @property
    def in_flight(self) -> int:
        return sum(queue.in_flight for queue in self.queues)

    def latency_ms(self, now_ms: int) -> int:
        """How long the longest waiting message has been waiting."""
        return _since([queue.waiting_since_ms for queue in self.queues], now_ms)

    def queueing_ms(self, now_ms: int) -> int:
        """The same of those that nobody has fetched yet."""
        return _since([queue.ready_since_ms for queue in self.queues], now_ms)


def _since(times: list[int | None], now_ms: int) -> int:
    known = [each for each in times if each is not None]
    return max(0, now_ms - min(known)) if known else 0


class Lags:
    """Counts when it is asked, and keeps nothing."""

    def __init__(
        self,
        *,
        topics: Topics,
        groups: Groups,
        members: Members,
        offsets: CommittedOffsets,
        store: Store,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._members = members
        self._offsets = offsets
        self._store = store
        self._clock = clock
        self._looks_left = 0

    def all(self) -> Iterator[TopicLag]:
        """Every group in every topic it reads."""
        self._looks_left = LATENCIES_MAX
        for group, topic in sorted(self._pairs()):
            lag = self._of(group, topic)
            if lag is not None:
                yield lag

    def _pairs(self) -> set[tuple[str, str]]:
        pairs = set()
        for key in self._offsets.all.offset_table:
            topic, _, group = key.partition("@")
            pairs.add((group, topic))
        for name, members in self._members.consumer_groups.items():
            pairs.update((name, topic) for topic in members.subscriptions)
        return {pair for pair in pairs if self._counts(*pair)}

    def _counts(self, group: str, topic: str) -> bool:
        if group in SYSTEM_GROUPS or self._groups.get(group) is None or topic.startswith(DEAD_LETTER_PREFIX):
            return False
        online = self._members.consumer_group(group)
        return online is None or not online.is_broadcast

    def _of(self, group: str, topic: str) -> TopicLag | None:
        config = self._topics.get(topic)
        if config is None:
            return None
        queues = [self._of_queue(group, topic, queue_id) for queue_id in range(config.read_queue_nums)]
        return TopicLag(group, topic, queues)

    def _of_queue(self, group: str, topic: str, queue_id: int) -> QueueLag:
        store = self._store
        start, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        committed = self._offsets.get(group, topic, queue_id)
        pulled = self._offsets.pull_offset(group, topic, queue_id)
        if committed is None:
            committed = pulled if pulled > 0 else start
        committed = min(max(committed, start), end)
        pulled = min(max(pulled, committed), end)
        return QueueLag(
            queue_id,
            end - committed,
            pulled - committed,
            self._stored_ms(topic, queue_id, committed, end),
            self._stored_ms(topic, queue_id, pulled, end),
        )

    def _stored_ms(self, topic: str, queue_id: int, queue_offset: int, end: int) -> int | None:
        if queue_offset >= end or self._looks_left <= 0:
            return None
        self._looks_left -= 1
        return self._store.stored_ms(topic, queue_id, queue_offset)
