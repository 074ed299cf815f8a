"""What went through this broker, counted cheaply: one addition per message and topic.

Totals only; rates are differences that whoever asks twice can take. For them there are looks: all totals side
by side, 16 bytes each. Dozens of looks are kept, and with ten thousand topics each would otherwise cost
megabytes, and the loop some ten milliseconds.

    look     forgotten │ orders │ bills │ …        every name has a place, from the first time it is counted

What is no more is forgotten (`keep_only`): its totals go to those of all that were, so that the broker's do
not fall, and its place to the next name. A look from before that name came has nothing to say of it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Container, Hashable, Mapping
from itertools import chain
from typing import Final, Generic, NamedTuple, TypeVar

MESSAGE_SIZE_BOUNDS: Final = (1024, 4096, 512 * 1024, 1 << 20, 2 << 20, 4 << 20)

Name = TypeVar("Name", bound=Hashable)


class Flow(NamedTuple):
    """Messages and bytes since the broker started."""

    messages: int
    size_bytes: int


class Look(NamedTuple):
    """All totals at one moment: messages, bytes, messages, bytes …"""

    number: int
    put: array[int]
    got: array[int]

    @property
    def put_messages(self) -> int:
        return sum(self.put[::2])

    @property
    def got_messages(self) -> int:
        return sum(self.got[::2])


class _Totals(Generic[Name]):
    """Messages and bytes by name."""

    def __init__(self) -> None:
        self.by_name: dict[Name, list[int]] = {}
        self._places: dict[Name, tuple[int, int]] = {}  # which one, and since which look
        self._all = [[0, 0]]  # by place; the first is that of all who were forgotten
        self._free: list[int] = []

    def begin(self, name: Name, looks: int) -> list[int]:
        """The totals of one that is counted for the first time, after so many looks."""
        counts = self.by_name[name] = [0, 0]
        if self._free:
            place = self._free.pop()
            self._all[place] = counts
        else:
            place = len(self._all)
            self._all.append(counts)
        self._places[name] = place, looks
        return counts

    def keep_only(self, is_there: Callable[[Name], bool]) -> None:
        for name in [name for name in self.by_name if not is_there(name)]:
            counts, place = self.by_name.pop(name), self._places.pop(name)[0]
            self._all[0] = [was + more for was, more in zip(self._all[0], counts, strict=True)]
            self._all[place] = [0, 0]
            self._free.append(place)

    def side_by_side(self) -> array[int]:
        return array("q", chain.from_iterable(self._all))

    def of(self, name: Name) -> Flow | None:
        counts = self.by_name.get(name)
        return None if counts is None else Flow(*counts)

    def at(self, name: Name, look: int, totals: array[int]) -> Flow | None:
        """As `of`, in the look of this number."""
        place, since = self._places.get(name, (0, 0))
        if not place or look < since or 2 * place >= len(totals):
            return None
        return Flow(totals[2 * place], totals[2 * place + 1])

    @property
    def sum(self) -> Flow:
        return Flow(sum([messages for messages, _ in self._all]), sum([size for _, size in self._all]))


class Stats:
    """Put and get totals: of the broker, of each topic, of each group in a topic."""

    def __init__(self) -> None:
        self._put: _Totals[str] = _Totals()
        self._got: _Totals[tuple[str, str]] = _Totals()
        self._put_to = self._put.by_name
        self._got_from = self._got.by_name
        self._looks = 0
        self.sizes = [0] * (len(MESSAGE_SIZE_BOUNDS) + 1)
        """How many messages were of which size, those of one call by their average."""

    def put(self, topic: str, messages: int, size_bytes: int) -> None:
        counts = self._put_to.get(topic)
        if counts is None:
            counts = self._put.begin(topic, self._looks)
        counts[0] += messages
        counts[1] += size_bytes
        if messages:
            self.sizes[bisect_left(MESSAGE_SIZE_BOUNDS, size_bytes // messages)] += messages

    def got(self, topic: str, group: str, messages: int, size_bytes: int) -> None:
        counts = self._got_from.get((topic, group))
        if counts is None:
            counts = self._got.begin((topic, group), self._looks)
        counts[0] += messages
        counts[1] += size_bytes

    def keep_only(self, topics: Container[str], groups: Container[str]) -> None:
        """Forget what was counted by the names of topics and groups that are no more."""
        self._put.keep_only(lambda topic: topic in topics)
        self._got.keep_only(lambda name: name[0] in topics and name[1] in groups)

    def look(self) -> Look:
        """How everything stands now."""
        number, self._looks = self._looks, self._looks + 1
        return Look(number, self._put.side_by_side(), self._got.side_by_side())

    def put_to(self, topic: str, look: Look | None = None) -> Flow | None:
        """What was put into one topic up to `look`, or up to now; None when that is nothing."""
        return self._put.of(topic) if look is None else self._put.at(topic, look.number, look.put)

    def got_from(self, topic: str, group: str, look: Look | None = None) -> Flow | None:
        """What one group got of one topic up to `look`, or up to now; None when that is nothing."""
        name = topic, group
        return self._got.of(name) if look is None else self._got.at(name, look.number, look.got)

    @property
    def put_by_topic(self) -> Mapping[str, Flow]:
        """All of them; for one there is `put_to`."""
        return {topic: Flow(*counts) for topic, counts in self._put_to.items()}

    @property
    def got_by_topic_and_group(self) -> Mapping[tuple[str, str], Flow]:
        return {key: Flow(*counts) for key, counts in self._got_from.items()}

    @property
    def put_total(self) -> Flow:
        return self._put.sum

    @property
    def got_total(self) -> Flow:
        return self._got.sum
