"""Which member of a group may consume a queue in order: at most one at a time.

A lock is a lease. Its owner renews it by asking again and loses it after a minute of silence; until then
nobody else gets the queue, not even when the owner's connection is gone: it may still be at work on what it
read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kourou.doors.clock import Clock
from kourou.protocol.bodies import MessageQueue

LEASE_SECONDS: Final = 60.0
SWEEP_SECONDS: Final = 60.0


class _Lease(NamedTuple):
    client_id: str
    until: float


class QueueLocks:
    """All leases of a broker, by group, topic and queue. What a client calls this broker does not matter."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[tuple[str, int], _Lease]] = {}
        self._swept = clock.monotonic()

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Those of `queues` that are `client_id`'s for the next minute, as it named them."""
        now = self._clock.monotonic()
        self._sweep(now)
        leases = self._groups.setdefault(group, {})
        locked = []
        for queue in queues:
            key = (queue.topic, queue.queue_id)
            lease = leases.get(key)
            if lease is None or lease.client_id == client_id or lease.until < now:
                leases[key] = _Lease(client_id, now + LEASE_SECONDS)
                locked.append(queue)
        return locked

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give back those of `queues` that are `client_id`'s."""
        leases = self._groups.get(group)
        if leases is None:
            return
        for queue in queues:
            key = (queue.topic, queue.queue_id)
            lease = leases.get(key)
            if lease is not None and lease.client_id == client_id:
                del leases[key]
        if not leases:
            del self._groups[group]

    def is_ordered(self, group: str) -> bool:
        """Whether any queue is locked for this group: its members consume in order."""
        now = self._clock.monotonic()
        return any(lease.until >= now for lease in self._groups.get(group, {}).values())

    def owner(self, group: str, topic: str, queue_id: int) -> str | None:
        lease = self._groups.get(group, {}).get((topic, queue_id))
        return lease.client_id if lease is not None and lease.until >= self._clock.monotonic() else None

    def _sweep(self, now: float) -> None:
        if now - self._swept < SWEEP_SECONDS:
            return
        self._swept = now
        for group, leases in list(self._groups.items()):
            for key in [key for key, lease in leases.items() if lease.until < now]:
                del leases[key]
            if not leases:
                del self._groups[group]
