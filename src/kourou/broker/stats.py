"""What went through this broker, counted cheaply: one addition per message and topic.

Totals only; rates are differences that whoever asks twice can take. For them there are looks: all totals side
by side, in the order in which their names were first counted, 16 bytes each. Dozens of looks are kept, and
with ten thousand topics each would otherwise cost megabytes, and the loop some ten milliseconds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Mapping
from itertools import chain
from typing import Final, NamedTuple

MESSAGE_SIZE_BOUNDS: Final = (1024, 4096, 512 * 1024, 1 << 20, 2 << 20, 4 << 20)


class Flow(NamedTuple):
    """Messages and bytes since the broker started."""

    messages: int
    size_bytes: int


class Look(NamedTuple):
    """All totals at one moment: messages, bytes, messages, bytes …"""

    put: array[int]
    got: array[int]

    @property
    def put_messages(self) -> int:
        return sum(self.put[::2])

    @property
    def got_messages(self) -> int:
        return sum(self.got[::2])


class Stats:
    """Put and get totals: of the broker, of each topic, of each group in a topic."""

    def __init__(self) -> None:
        self._put: dict[str, list[int]] = {}
        self._got: dict[tuple[str, str], list[int]] = {}
        self._put_places: dict[str, int] = {}  # in a look
        self._got_places: dict[tuple[str, str], int] = {}
        self.sizes = [0] * (len(MESSAGE_SIZE_BOUNDS) + 1)
        """How many messages were of which size, those of one call by their average."""

    def put(self, topic: str, messages: int, size_bytes: int) -> None:
        counts = self._put.get(topic)
        if counts is None:
            self._put_places[topic] = 2 * len(self._put)
            counts = self._put[topic] = [0, 0]
        counts[0] += messages
        counts[1] += size_bytes
        if messages:
            self.sizes[bisect_left(MESSAGE_SIZE_BOUNDS, size_bytes // messages)] += messages

    def got(self, topic: str, group: str, messages: int, size_bytes: int) -> None:
        counts = self._got.get((topic, group))
        if counts is None:
            self._got_places[topic, group] = 2 * len(self._got)
            counts = self._got[topic, group] = [0, 0]
        counts[0] += messages
        counts[1] += size_bytes

    def look(self) -> Look:
        """How everything stands now."""
        put, got = self._put.values(), self._got.values()
        return Look(array("q", chain.from_iterable(put)), array("q", chain.from_iterable(got)))

    def put_to(self, topic: str, look: Look | None = None) -> Flow | None:
        """What was put into one topic up to `look`, or up to now; None when that is nothing."""
        if look is None:
            return _flow(self._put.get(topic))
        return _at(look.put, self._put_places.get(topic))

    def got_from(self, topic: str, group: str, look: Look | None = None) -> Flow | None:
        """What one group got of one topic up to `look`, or up to now; None when that is nothing."""
        if look is None:
            return _flow(self._got.get((topic, group)))
        return _at(look.got, self._got_places.get((topic, group)))

    @property
    def put_by_topic(self) -> Mapping[str, Flow]:
        """All of them; for one there is `put_to`."""
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


def _flow(counts: list[int] | None) -> Flow | None:
    return None if counts is None else Flow(*counts)


def _at(totals: array[int], place: int | None) -> Flow | None:
    return None if place is None or place >= len(totals) else Flow(totals[place], totals[place + 1])


def _sum(counts: Collection[list[int]]) -> Flow:
    return Flow(sum([messages for messages, _ in counts]), sum([size for _, size in counts]))
