"""Who waits for replicas, and what readers may see meanwhile.

    written ─▶ on our disk, as flushDiskType asks ─┬▶ on enough replicas   visible; its sender hears OK
                                                   ├▶ too few are there    it hears SLAVE_NOT_AVAILABLE
                                                   └▶ not within its time  it hears FLUSH_SLAVE_TIMEOUT

Nothing is visible before it lies on enough replicas, or its sender has been told that it does not: readers of
a master whose only slave is down go on, as the original's do. With `is_strict` they wait for the slave.

In a set that elects its master (`is_elected`) a message is visible when every replica that may lead next has
it, whatever its sender was told: the next master might lack it, and give its place in the queue to another
message, which a group that has read the first one would pass over.

The store tells of each write and hands over who waits once the disk's part is done; whoever knows the
replicas (`replication.primary`) says how far enough of them are, and whether there are enough of them at all.
"""

from __future__ import annotations

from collections.abc import Callable

from kourou.doors.clock import Clock, Timer
from kourou.store.flush import (
    FLUSH_SLAVE_TIMEOUT,
    OK,
    SLAVE_NOT_AVAILABLE,
    StoreStatus,
    Then,
    failed,
    tell,
    tell_stored,
)


class _Group:
    """What one tick wrote."""

    __slots__ = ("deadline", "held")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.held: list[tuple[StoreStatus, list[Then]]] = []


class ReplicaWait:
    """The replicas' part in whether a message is stored."""

    def __init__(
        self,
        clock: Clock,
        timeout_ms: int,
        is_available: Callable[[int], bool],
        *,
        is_strict: bool = False,
        is_elected: bool = False,
    ) -> None:
        """`is_available(end)`: whether enough replicas are there, and close enough to `end`, to wait for."""
        self._clock = clock
        self._timeout = timeout_ms / 1000
        self._is_available = is_available
        self._is_strict = is_strict
        self._is_elected = is_elected
        self._groups: dict[int, _Group] = {}  # by where each ends, ascending
        self._timer: Timer | None = None
        self.replicated = 0
        """Enough replicas have everything before this."""
        self.passed = 0
        """Readers may see what ends before this, as far as replicas are concerned."""
        self.gate: Callable[[], str | None] = lambda: None
        """Asked before anybody is told that enough replicas have it: why not, or None."""
        self.on_passed: Callable[[], None] = lambda: None
        """Called when `passed` has moved, before anybody is told."""

    def __len__(self) -> int:
        return sum(len(members) for group in self._groups.values() for _, members in group.held)

    def begin(self, end: int) -> None:
        """What the log holds already has been seen by readers; an elected master's end perhaps not yet."""
        if not self._is_elected:
            self.passed = max(self.passed, end)

    def wrote(self, end: int) -> None:
        """The log reaches to `end` now."""
        if end <= self.replicated:
            return
        if not self._is_available(end):
            self._pass(end)
            return
        self._groups[end] = _Group(self._clock.monotonic() + self._timeout)
        if self._timer is None:
            self._timer = self._clock.later(self._timeout, self._expire)

    def hold(self, end: int, members: list[Then], status: StoreStatus) -> None:
        """The disk's part of what ends at `end` went as `status` says: tell them when replicas have it."""
        if self.replicated >= end:
            self._tell([(status, members)])
            return
        group = self._groups.get(end) or self._group_after(end)
        if group is not None:
            group.held.append((status, members))
        else:
            tell(members, FLUSH_SLAVE_TIMEOUT if self._is_available(end) else SLAVE_NOT_AVAILABLE)

    def _group_after(self, end: int) -> _Group | None:
        return next((group for place, group in self._groups.items() if place >= end), None)

    def reached(self, end: int) -> None:
        """Enough replicas have everything before `end`."""
        if end <= self.replicated:
            return
        self.replicated = end
        done = []
        for place in list(self._groups):
            if place > end:
                break
            done += self._groups.pop(place).held
        self._pass(end, is_safe=True)
        self._tell(done)

    def safe(self, end: int) -> None:
        """Whoever leads next has everything before `end`."""
        self._pass(end, is_safe=True)

    def look_again(self) -> None:
        """Replicas have gone: whoever waits for them in vain is told now."""
        groups = self._groups
        if groups and not self._is_available(next(reversed(groups))):
            self._give_up(list(groups), SLAVE_NOT_AVAILABLE)

    def release(self, status: StoreStatus = FLUSH_SLAVE_TIMEOUT) -> None:
        """Nobody waits for replicas any more: this broker's role has changed, or it stops."""
        self._give_up(list(self._groups), status)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        late = [end for end, group in self._groups.items() if group.deadline <= now]
        self._give_up(late, FLUSH_SLAVE_TIMEOUT)
        first = next(iter(self._groups.values()), None)
        if first is not None:
            self._timer = self._clock.later(max(0.0, first.deadline - now), self._expire)

    def _give_up(self, ends: list[int], status: StoreStatus) -> None:
        held = [members for end in ends for _, members in self._groups.pop(end).held]
        if ends:
            self._pass(ends[-1])
        for members in held:
            tell(members, status)

    def _pass(self, end: int, *, is_safe: bool = False) -> None:
        if end > self.passed and (is_safe or not (self._is_strict or self._is_elected)):
            self.passed = end
            self.on_passed()

    def _tell(self, held: list[tuple[StoreStatus, list[Then]]]) -> None:
        why = self.gate() if held else None
        for status, members in held:
            if why is not None:
                tell(members, failed(why))
            elif status is OK:
                tell_stored(members)
            else:
                tell(members, status)
