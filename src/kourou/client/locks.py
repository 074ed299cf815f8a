"""Locks on the queues of an ordered consumer: at most one member of a group handles a queue at a time.

A broker gives a lock for 60 s. It is renewed every 20 s and believed in for 30 s, so that we stop well before
somebody else may begin.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from kourou.client import membership
from kourou.client.brokers import Brokers
from kourou.client.held_queue import HeldQueue
from kourou.doors.clock import Clock
from kourou.errors import MQError, NotFound
from kourou.protocol.bodies import MessageQueue
from kourou.remoting.complaints import Complaints

RENEW_SECONDS = 20.0
VALID_SECONDS = 30.0
AGAIN_SECONDS = 1.0

_log = logging.getLogger("kourou.client")


class Locks:
    """The locks of one member. Belongs to the event loop."""

    def __init__(
        self,
        group: str,
        client_id: str,
        brokers: Brokers,
        clock: Clock,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        renewed: Callable[[HeldQueue], None],
        lost: Callable[[HeldQueue], None],
    ) -> None:
        """`renewed` and `lost` are told of each queue when its lock was."""
        self._group = group
        self._client_id = client_id
        self._brokers = brokers
        self._clock = clock
        self._spawn = spawn
        self._renewed = renewed
        self._lost = lost
        self._complaints = Complaints(_log, clock)

    async def lock(self, held: HeldQueue) -> bool:
        """Whether the queue is ours alone now; raises when its broker cannot be asked."""
        asked_at = self._clock.monotonic()
        address = self._brokers.master(held.queue)
        if held.queue not in await self._ask_for(address, [held.queue]):
            return False
        _locked(held, asked_at)
        return True

    def renew(self, queues: Iterable[HeldQueue]) -> None:
        """Keep those that are locked. Of one whose lock has run out nothing further is begun until then."""
        now = self._clock.monotonic()
        locked = [held for held in queues if held.locked_until > 0]
        for held in locked:
            held.is_unsure = held.locked_until <= now
        for address, ours in self._by_broker(locked).items():
            self._spawn(self._renew(address, ours))

    async def unlock(self, queues: Iterable[HeldQueue]) -> None:
        """Others may have them at once."""
        for address, ours in self._by_broker(held for held in queues if held.locked_until > 0).items():
            names = [held.queue for held in ours]
            try:
                await self._brokers.run(membership.unlock(address, self._client_id, self._group, names))
            except MQError as error:
                self._complaints.warn(
                    address, f"cannot unlock at {address}, so others wait a minute: {error}"
                )

    async def _renew(self, address: str, ours: list[HeldQueue]) -> None:
        asked_at = self._clock.monotonic()
        try:
            locked = await self._ask_for(address, [held.queue for held in ours])
        except MQError as error:
            self._complaints.warn(
                address, f"cannot renew the locks of group {self._group} at {address}: {error}"
            )
            self._clock.later(AGAIN_SECONDS, lambda: self.renew(ours))
            return
        for held in ours:
            if held.is_dropped:
                continue
            if held.queue in locked:
                _locked(held, asked_at)
                self._renewed(held)
            else:
                held.locked_until = 0.0
                self._lost(held)

    async def _ask_for(self, address: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        return await self._brokers.run(membership.lock(address, self._client_id, self._group, queues))

    def _by_broker(self, queues: Iterable[HeldQueue]) -> dict[str, list[HeldQueue]]:
        by_broker: dict[str, list[HeldQueue]] = {}
        for held in queues:
            try:
                by_broker.setdefault(self._brokers.master(held.queue), []).append(held)
            except NotFound:
                continue  # its broker is away: the lock ends by itself
        return by_broker


def _locked(held: HeldQueue, asked_at: float) -> None:
    held.locked_until = asked_at + VALID_SECONDS
    held.is_unsure = False
