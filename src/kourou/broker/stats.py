"""What went through this broker, counted cheaply: one addition per message and topic.

Totals only; rates are differences that whoever asks twice can take.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

MESSAGE_SIZE_BOUNDS: Final = (1024, 4096, 512 * 1024, 1 << 20, 2 << 20, 4 << 20)


class Flow(NamedTuple):
    """Messages and bytes since the broker started."""

    messages: int
    size_bytes: int


class Stats:
    """Put and get totals: of the broker, of each topic, of each group in a topic."""

    def __init__(self) -> None:
        self._put: dict[str, list[int]] = {}
        self._got: dict[tuple[str, str], list[int]] = {}
        self.sizes = [0] * (len(MESSAGE_SIZE_BOUNDS) + 1)
        """How many messages were of which size, those of one call by their average."""

    def put(self, topic: str, messages: int, size_bytes: int) -> None:
        counts = self._put.get(topic)
        if counts is None:
            counts = self._put[topic] = [0, 0]
        counts[0] += messages
        counts[1] += size_bytes
        if messages:
            self.sizes[bisect_left(MESSAGE_SIZE_BOUNDS, size_bytes // messages)] += messages

    def got(self, topic: str, group: str, messages: int, size_bytes: int) -> None:
        counts = self._got.get((topic, group))
        if counts is None:
            counts = self._got[topic, group] = [0, 0]
        counts[0] += messages
        counts[1] += size_bytes

    @property
    def put_by_topic(self) -> Mapping[str, Flow]:
        return {topic: Flow(*counts) for topic, counts in self._put.items()}

    @property
    def got_by_topic_and_group(self) -> Mapping[tuple[str, str], Flow]:
        return {key: Flow(*counts) for key, counts in self._got.items()}

    @property
    def put_total(self) -> Flow:
        return _sum(self._put.values())

    @property
    def got_total(self) -> Flow:
        return _sum(self._got.values())


def _sum(counts: Iterable[list[int]]) -> Flow:
    every = list(counts)
    return Flow(sum(messages for messages, _ in every), sum(size for _, size in every))
