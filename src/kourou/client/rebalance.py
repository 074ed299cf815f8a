"""Which queues are ours, looked at again and again.

    when                                                     what for
    a broker says that members came or left (40)             theirs are ours now, or ours theirs
    a name server says that a route has changed (30020)      there are other queues: a moment later
    a broker was lost, or a queue could not be read          it comes back any time: every 2 s, for 2 minutes
    queues have just changed hands, or are not all had       members may have seen different things: 1 s later
    otherwise every 20 s                                     nothing of the above reached us

Members do not talk to each other. Everybody asks the same broker who is there, and works out the same shares
(`assignment.py`); for a moment two may disagree, until both have looked again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from kourou.client.assignment import in_order
from kourou.client.brokers import Brokers
from kourou.client.consumer_settings import ConsumerSettings
from kourou.client.held_queue import HeldQueue
from kourou.client.membership import Membership
from kourou.doors.clock import Clock, Timer
from kourou.errors import ConfigError, MQError, NotFound
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.names import RETRY_PREFIX
from kourou.remoting.complaints import Complaints

SOON_SECONDS = 1.0
UNREST_SECONDS = 120.0
UNREST_STEP_SECONDS = 2.0
MISSING_SECONDS = 120.0
"""A queue whose broker left the route is kept that long, with what we know of it: brokers restart."""

_log = logging.getLogger("kourou.client")


class Rebalance:
    """Takes up the queues that are ours, gives up those that are not. Belongs to the event loop."""

    def __init__(
        self,
        group: str,
        client_id: str,
        topics: Collection[str],
        brokers: Brokers,
        membership: Membership,
        settings: ConsumerSettings,
        clock: Clock,
        *,
        held: dict[MessageQueue, HeldQueue],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        take_up: Callable[[MessageQueue], None],
        give_up: Callable[[HeldQueue], None],
    ) -> None:
        """`held` are the queues that are ours, kept by the caller in `take_up` and `give_up`."""
        self._group = group
        self._client_id = client_id
        self._topics = topics
        self._brokers = brokers
        self._membership = membership
        self._settings = settings
        self._clock = clock
        self._held = held
        self._spawn = spawn
        self._take_up = take_up
        self._give_up = give_up
        self._timer: Timer | None = None
        self._due = math.inf
        self._is_looking = False
        self._is_stopped = False
        self._began = clock.monotonic()
        self._unrest_until = 0.0
        self._complaints = Complaints(_log, clock)

    def look_soon(self, seconds: float = 0.0) -> None:
        """Look in so many seconds at the latest."""
        due = self._clock.monotonic() + seconds
        if self._is_stopped or due >= self._due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = self._clock.later(seconds, self._start_looking)

    def be_alert(self, seconds: float = SOON_SECONDS) -> None:
        """Something broke: look in so many seconds, and often for a while."""
        self._unrest_until = self._clock.monotonic() + UNREST_SECONDS
        self.look_soon(seconds)

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    async def look(self) -> None:
        """Look at all topics now; raises when not one of them could be looked at, or `assign` is at fault."""
        self._is_looking = True
        try:
            found = await asyncio.gather(*map(self._look_at, list(self._topics)), return_exceptions=True)
        finally:
            self._is_looking = False
        failures = [each for each in found if isinstance(each, BaseException)]
        seconds = [each for each in found if isinstance(each, float)]
        if self._clock.monotonic() < self._unrest_until:
            seconds.append(UNREST_STEP_SECONDS)
        seconds += map(self._brokers.routes.news_due, self._topics)
        self.look_soon(SOON_SECONDS if failures else min(seconds, default=SOON_SECONDS))
        for failure in failures:
            if not isinstance(failure, MQError) or isinstance(failure, ConfigError):
                raise failure
        if len(failures) == len(found):
            raise failures[0]
        for failure in failures:
            self._complain(failure)

    def _start_looking(self) -> None:
        self._timer, self._due = None, math.inf
        if self._is_looking:
            self.look_soon(0.05)  # what has changed meanwhile may have been missed
        else:
            self._spawn(self._look_again())

    async def _look_again(self) -> None:
        try:
            await self.look()
        except MQError as error:
            self._complain(error)

    def _complain(self, error: BaseException) -> None:
        if self._is_stopped:
            return
        self._complaints.warn(
            "look", f"group {self._group} cannot look for its queues, trying again: {error}"
        )

    async def _look_at(self, topic: str) -> float:
        """Take up and give up queues of one topic; seconds until it is to be looked at again."""
        if self._clock.monotonic() < self._unrest_until:
            self._brokers.routes.doubt(topic)
        try:
            route = await self._brokers.look_up(topic)
        except NotFound as error:
            if not topic.startswith(RETRY_PREFIX):  # that one appears after the group's first heartbeat
                self._complaints.warn(topic, f"group {self._group} waits for a topic to appear: {error}")
            is_young = self._clock.monotonic() - self._began < UNREST_SECONDS
            return SOON_SECONDS if is_young else UNREST_STEP_SECONDS
        await self._membership.join(route.addresses())
        route = self._brokers.known(topic)  # one of them may have been found elsewhere
        queues = mine = in_order(route.read_queues)
        if not self._settings.broadcast:
            everybody = await self._membership.everybody(route)
            if self._client_id not in everybody:
                self._membership.say_again()
                return SOON_SECONDS
            mine = self._share(queues, everybody)
        return SOON_SECONDS if self._is_stopped else self._hold(topic, set(mine), set(queues))

    def _share(self, queues: list[MessageQueue], everybody: list[str]) -> list[MessageQueue]:
        """What is ours as the program has it, whose function may fail or say anything."""
        try:
            mine = list(self._settings.assign(queues, everybody, self._client_id))
            strangers = set(mine) - set(queues)
        except MQError:
            raise
        except Exception as error:
            raise ConfigError(
                f"the function given as assign failed: {type(error).__name__}: {error}"
            ) from error
        if strangers:
            raise ConfigError(
                f"the function given as assign returned {next(iter(strangers))!r}, which is none of the "
                f"{len(queues)} queues it was given"
            )
        return mine

    def _hold(self, topic: str, mine: set[MessageQueue], every: set[MessageQueue]) -> float:
        """Ours are `mine` from now on, out of all there are; seconds until the next look."""
        changed = False
        for queue, held in list(self._held.items()):
            if queue.topic != topic:
                continue
            if queue in mine:
                held.missing_since = None
                changed |= held.is_ending  # to be taken up again, when it has ended
            elif queue in every or self._is_missed_for_long(held):
                changed = True
                self._give_up(held)
        for queue in in_order(mine - self._held.keys()):
            changed = True
            self._take_up(queue)
        return SOON_SECONDS if changed else self._settings.rebalance_seconds

    def _is_missed_for_long(self, held: HeldQueue) -> bool:
        now = self._clock.monotonic()
        if held.missing_since is None:
            held.missing_since = now
        self.be_alert(UNREST_STEP_SECONDS)
        return now - held.missing_since >= MISSING_SECONDS
