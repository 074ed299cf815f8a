"""One queue while it is this member's: what was read, what is being handled, what is done.

      ... done | handed out, some done ............ | read by the next pull
               ^ commit_offset                        ^ fetch_offset

Handlers finish in any order; the group's place is before the first message that is not done, so nothing is
lost when this member disappears, and only what was in flight comes twice. When a queue is lost or its place
is changed from outside, `generation` moves on, and whatever belongs to an older one no longer counts.
"""

from __future__ import annotations

from collections import deque

from kourou.client.held_keys import HeldKeys
from kourou.client.operations import Subscription
from kourou.client.routes import MASTER
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import MessageQueue


class HeldQueue:
    """A queue that is ours. Belongs to the event loop; other threads only ask `goes_on`."""

    __slots__ = (
        "_done",
        "_pending",
        "attempts",
        "broker_id",
        "bytes_in_flight",
        "committed",
        "consumed_at_ms",
        "fetch_offset",
        "generation",
        "is_busy",
        "is_dropped",
        "is_ending",
        "is_pulling",
        "is_unsure",
        "keys",
        "locked_until",
        "missing_since",
        "not_before",
        "ordered",
        "pulled_at",
        "pulled_at_ms",
        "queue",
        "resumes_at",
        "subscription",
        "waiting",
    )

    def __init__(self, queue: MessageQueue, subscription: Subscription, *, ordered: bool) -> None:
        self.queue = queue
        self.subscription = subscription
        self.ordered = ordered
        self.fetch_offset: int | None = None
        """Where the next pull begins; None until that is known."""
        self.committed: int | None = None
        """What the offset store has for sure."""
        self.generation = 0
        self.is_ending = False
        """Nothing new is read or handed out; what is being handled may still end."""
        self.is_dropped = False
        """It is somebody else's: what comes of anything no longer counts."""
        self.is_pulling = False
        self.broker_id = MASTER
        self.not_before = 0.0
        """No pull before this moment: something failed."""
        self.pulled_at = 0.0
        self.pulled_at_ms = 0
        self.consumed_at_ms = 0
        self.bytes_in_flight = 0
        self._pending: deque[int] = deque()  # offsets, rising
        self._done: set[int] = set()  # those of them that are done, but not the first
        # Only when ordered: what waits for its turn, and for how long nothing may go on.
        self.waiting: deque[ReceivedMessage] = deque()
        self.keys = HeldKeys()
        self.is_busy = False
        self.attempts = 0
        """How often the first of `waiting` has failed here."""
        self.resumes_at = 0.0
        self.locked_until = 0.0
        self.is_unsure = False
        """Its lock could not be renewed in time: somebody else may have it soon."""
        self.missing_since: float | None = None
        """Since when its broker is not in the route any more."""

    # -------------------------------------------------------------------------------------------- its place

    @property
    def commit_offset(self) -> int | None:
        """Everything before it is done."""
        return self._pending[0] if self._pending else self.fetch_offset

    @property
    def messages_in_flight(self) -> int:
        return len(self._pending)

    @property
    def span(self) -> int:
        """How far the last message in flight is from the first."""
        return self._pending[-1] - self._pending[0] if self._pending else 0

    def bounds(self) -> tuple[int, int]:
        """The first and the last offset in flight; zeros when there is none."""
        return (self._pending[0], self._pending[-1]) if self._pending else (0, 0)

    def take(self, messages: list[ReceivedMessage], next_offset: int) -> None:
        """These were read, and reading goes on at `next_offset`."""
        self.fetch_offset = next_offset
        for message in messages:
            self._pending.append(message.queue_offset)
            self.bytes_in_flight += message.size

    def finish(self, messages: list[ReceivedMessage]) -> None:
        """These need no further care."""
        pending, done = self._pending, self._done
        for message in messages:
            self.bytes_in_flight -= message.size
            offset = message.queue_offset
            if pending and pending[0] == offset:
                pending.popleft()
            else:
                done.add(offset)
        while done and pending and pending[0] in done:
            done.remove(pending.popleft())

    def move_to(self, queue_offset: int) -> None:
        """Go on there; what is in flight no longer counts."""
        self.forget_in_flight()
        self.fetch_offset = queue_offset
        self.committed = None
        self.not_before = 0.0

    def correct_to(self, queue_offset: int) -> None:
        """The broker does not hold what we asked for, but what begins, or ends, there.

        Where messages have expired, those in flight are still to be done, and reading goes on behind the gap.
        Where a queue has lost its end, what is in flight behind it is gone, and its places go to other
        messages: all that is not done is read again.
        """
        if self.fetch_offset is not None and queue_offset > self.fetch_offset:
            self.fetch_offset = queue_offset
        else:
            first = self.commit_offset
            self.move_to(queue_offset if first is None else min(first, queue_offset))

    def forget_in_flight(self) -> None:
        self.generation += 1
        self.fetch_offset = None
        self.is_pulling = False
        self.is_busy = False
        self.attempts = 0
        self.resumes_at = 0.0
        self.bytes_in_flight = 0
        self._pending.clear()
        self._done.clear()
        self.waiting.clear()
        self.keys.clear()

    def counts(self, generation: int) -> bool:
        """Whether what comes of a pull or a handler of that generation matters."""
        return self.generation == generation and not self.is_dropped

    def goes_on(self, generation: int) -> bool:
        """Whether a handler may be given the next message of that generation."""
        is_ours = not self.is_ending and not self.is_dropped and not self.is_unsure
        return self.generation == generation and is_ours

    def __repr__(self) -> str:
        return f"<HeldQueue {self.queue.topic} {self.queue.broker_name} {self.queue.queue_id}>"
