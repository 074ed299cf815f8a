"""Reading the queues that are ours: one pull per queue is always on its way, unless there is a reason not to.

why a queue is not read                     what sets it going again
too much of it is in flight                 a handler finished (`go_on`)
its topic is paused                         `go_on`, by whoever resumes it
it is ordered, and not locked by us         the lock, when it is had (`go_on`)
a pull failed a moment ago                  a timer
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial

from kourou.client import operations
from kourou.client.brokers import Brokers
from kourou.client.consumer_settings import ConsumerSettings
from kourou.client.figures import Figures
from kourou.client.held_queue import HeldQueue
from kourou.client.routes import MASTER
from kourou.doors.clock import Clock
from kourou.errors import Busy, ConnectionLost, MQError, NotFound, Unreachable
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.command import Command
from kourou.remoting.complaints import Complaints

SUSPEND_SECONDS = 15.0
"""How long a broker may hold a pull that finds nothing."""
PULL_TIMEOUT_SECONDS = 30.0
AGAIN_SECONDS = 1.0
"""Until a queue whose pull failed is asked for again."""
REFUSED_SECONDS = 3.0
"""The same when the broker said no: that will hardly change soon."""
BUSY_SECONDS = 0.02
NOT_HELD_SECONDS = 0.1
"""A broker that does not hold pulls is asked ten times a second, not ten thousand times."""

_log = logging.getLogger("kourou.client")


class Fetching:
    """Pulls, and hands over what they bring. Belongs to the event loop."""

    def __init__(
        self,
        group: str,
        brokers: Brokers,
        settings: ConsumerSettings,
        clock: Clock,
        *,
        figures: Figures,
        arrived: Callable[[HeldQueue, list[ReceivedMessage]], None],
        moved: Callable[[HeldQueue], None],
        failed: Callable[[], None],
        paused: Collection[str | MessageQueue],
        commits: bool,
    ) -> None:
        """`arrived` takes messages; `moved` is told when a broker sends us elsewhere in a queue, `failed`
        when one could not be read. `paused` topics and queues are not read. With `commits` the group's
        place travels with each pull."""
        self._group = group
        self._brokers = brokers
        self._settings = settings
        self._clock = clock
        self._figures = figures
        self._arrived = arrived
        self._moved = moved
        self._failed = failed
        self._commits = commits
        self._paused = paused
        self._complaints = Complaints(_log, clock)
        self.is_stopped = False

    def go_on(self, held: HeldQueue) -> None:
        """Ask for more of it, if it is time to."""
        if held.is_pulling or held.fetch_offset is None or held.is_ending or self.is_stopped:
            return
        if self._is_paused(held) or self._is_full(held):
            return
        now = self._clock.monotonic()
        if held.not_before > now or (held.ordered and held.locked_until <= now):
            return  # a timer, or the lock, comes back here
        commit = self._place_to_tell(held)
        command = operations.pull_request(
            held.queue,
            held.fetch_offset,
            held.subscription,
            self._group,
            count=self._settings.pull_messages,
            suspend=SUSPEND_SECONDS,
            commit=commit,
        )
        held.is_pulling = True
        held.pulled_at = now
        settle = partial(self._settle, held, held.generation, commit)
        try:
            address = self._brokers.reader(held.queue, held.broker_id)
        except NotFound as error:
            settle(error)
        else:
            self._brokers.call_soon(address, command, PULL_TIMEOUT_SECONDS, settle)

    def _is_paused(self, held: HeldQueue) -> bool:
        return held.queue.topic in self._paused or held.queue in self._paused

    def _is_full(self, held: HeldQueue) -> bool:
        settings = self._settings
        return (
            held.messages_in_flight >= settings.queue_messages_max
            or held.bytes_in_flight >= settings.queue_bytes_max
            or (not held.ordered and held.span >= settings.queue_span_max)
        )

    def _place_to_tell(self, held: HeldQueue) -> int | None:
        """The place to commit with this pull; a replica would not keep it."""
        offset = held.commit_offset
        if not self._commits or not offset or offset == held.committed or held.broker_id != MASTER:
            return None
        return offset

    def _settle(
        self, held: HeldQueue, generation: int, commit: int | None, outcome: Command | Exception
    ) -> None:
        if not held.counts(generation):
            return
        held.is_pulling = False
        try:
            if isinstance(outcome, Exception):
                raise outcome
            pulled = operations.pulled(outcome, held.queue, held.subscription)
        except MQError as error:
            self._set_back(held, error)
            return
        if commit is not None:
            held.committed = commit
        if not self._is_paused(held):  # else it was on its way already, and is read again afterwards
            self._take_in(held, pulled)

    def _take_in(self, held: HeldQueue, pulled: operations.Pulled) -> None:
        before = held.fetch_offset
        held.broker_id = pulled.suggested_broker_id
        held.pulled_at_ms = self._clock.now_ms()
        if pulled.moved:
            _log.warning(
                "queue %d of %s at %s holds offsets %d to %d, not %s: going on at %d",
                *(held.queue.queue_id, held.queue.topic, held.queue.broker_name),
                *(pulled.min_offset, pulled.max_offset, before, pulled.next_offset),
            )
            held.correct_to(pulled.next_offset)
            self._moved(held)
        elif pulled.messages:
            seconds = self._clock.monotonic() - held.pulled_at
            self._figures.of(held.queue.topic).pulled(len(pulled.messages), seconds)
            held.take(pulled.messages, pulled.next_offset)
            self._arrived(held, pulled.messages)
        else:
            held.fetch_offset = pulled.next_offset
            if pulled.next_offset == before and self._clock.monotonic() - held.pulled_at < NOT_HELD_SECONDS:
                self._wait(held, NOT_HELD_SECONDS)
                return
        self.go_on(held)

    def _set_back(self, held: HeldQueue, error: MQError) -> None:
        held.broker_id = MASTER
        if isinstance(error, Busy):
            self._wait(held, BUSY_SECONDS)
            return
        if isinstance(error, Unreachable | NotFound):
            # The first try after a connection was lost is made at once: it may have been idle for long.
            was_lost = isinstance(error, ConnectionLost) and self._clock.monotonic() - held.pulled_at > 1
            self._wait(held, NOT_HELD_SECONDS if was_lost else AGAIN_SECONDS)
            self._brokers.routes.doubt(held.queue.topic)
            self._failed()
        else:
            self._wait(held, REFUSED_SECONDS)
        queue = held.queue
        self._complaints.warn(
            f"read {queue.topic} {queue.broker_name}",
            f"cannot read queue {queue.queue_id} of {queue.topic} at {queue.broker_name}, trying again: "
            f"{error}",
        )

    def _wait(self, held: HeldQueue, seconds: float) -> None:
        held.not_before = self._clock.monotonic() + seconds
        self._clock.later(seconds, partial(self._wait_is_over, held, held.not_before))

    def _wait_is_over(self, held: HeldQueue, until: float) -> None:
        # Not by the clock: a timer may ring a nanosecond early, and it does not ring again.
        if held.not_before == until:
            held.not_before = 0.0
        self.go_on(held)
