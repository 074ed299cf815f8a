"""Answers to whoever had a topic or a group made: not before it would outlast this broker.

    made and on the disk ──┬─▶ the name servers know ─────┐
                           └─▶ slaves have it (replicas) ─┴─▶ answered

Both are waited for at the same time, and nobody else waits. What could not be done is said; the topic or
group is made all the same, and may be made again to be sure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kourou.broker.registration import Registration
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.remoting.answer import Answer
from kourou.store.flush import FLUSH_SLAVE_TIMEOUT, OK, StoreStatus, Then


class Made:
    """Who is waited for before something counts as made."""

    def __init__(
        self,
        registration: Registration,
        when_copied: Callable[[Then], None],
        topic_changed: Callable[[str], None],
    ) -> None:
        """`when_copied(then)` calls `then` when slaves have the topics and groups as they are now;
        `topic_changed(name)` is told when name servers know of it."""
        self._registration = registration
        self._when_copied = when_copied
        self._topic_changed = topic_changed

    def topics(self, request: Command, answer: Answer, what: str, topics: Collection[str]) -> None:
        """`what` as in "topic 'orders' is"; `topics` are those that may be others now."""
        waiting = _Waiting(request, answer, what)

        def registered(refusals: list[str]) -> None:
            for topic in topics:
                self._topic_changed(topic)
            waiting.registered(refusals)

        self._when_copied(waiting.copied)
        self._registration.register_now(registered)

    def groups(self, request: Command, answer: Answer, what: str) -> None:
        """No name server knows of groups."""
        waiting = _Waiting(request, answer, what)
        waiting.registered([])
        self._when_copied(waiting.copied)


class _Waiting:
    def __init__(self, request: Command, answer: Answer, what: str) -> None:
        self._request = request
        self._answer = answer
        self._what = what
        self._refusals: list[str] | None = None
        self._status: StoreStatus | None = None

    def registered(self, refusals: list[str]) -> None:
        self._refusals = refusals
        self._look()

    def copied(self, status: StoreStatus) -> None:
        self._status = status
        self._look()

    def _look(self) -> None:
        if self._refusals is None or self._status is None:
            return
        code, remark = ResponseCode.SUCCESS, None
        if self._refusals:
            code = ResponseCode.SYSTEM_ERROR
            remark = f"{self._what} made, but not registered: {'; '.join(self._refusals)}"
        elif self._status is FLUSH_SLAVE_TIMEOUT:
            code = ResponseCode.FLUSH_SLAVE_TIMEOUT
            remark = (
                f"{self._what} made here, but slaves did not confirm it in time (slaveTimeout): it may be "
                "gone if another broker takes over now; make it again to be sure"
            )
        elif self._status is not OK:
            remark = f"{self._what} made on this master alone: too few slaves are in sync"
        self._answer(self._request.reply(code=code, remark=remark))
