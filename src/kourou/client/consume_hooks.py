"""Hooks around the handling of messages: told before a handler gets them, and after, with what came of it.

A listener without hooks is called as it is; one with hooks is wrapped once, when it is subscribed. So they
cost nothing where there are none. With a loop instead of a handler (`Consumer`) they are told when the loop
takes a message, and when the message is settled.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from kourou.client.handlers import check_handled, is_async
from kourou.doors.clock import Clock
from kourou.message import ReceivedMessage

_log = logging.getLogger("kourou.client")


class ConsumeAttempt:
    """One call of a handler, as hooks see it."""

    __slots__ = ("began_ms", "ended_ms", "failure", "group", "in_handler", "messages", "notes")

    def __init__(
        self, group: str, messages: Sequence[ReceivedMessage], began_ms: int, *, in_handler: bool
    ) -> None:
        self.group = group
        self.messages = messages
        self.began_ms = began_ms
        self.ended_ms = began_ms
        self.failure: BaseException | None = None
        """What the handler raised, or said first of one of several messages; None before it was called, and
        when all was done."""
        self.in_handler = in_handler
        """Whether both hooks are called in the thread or task of the handler."""
        self.notes: dict[object, Any] = {}
        """For hooks: what one has to remember until after."""


class ConsumeHook(Protocol):
    """Is told of every call of a handler. What it raises is logged, and stops nothing."""

    def before_consume(self, attempt: ConsumeAttempt) -> None: ...
    def after_consume(self, attempt: ConsumeAttempt) -> None: ...


class ConsumeHooks:
    """All hooks of one consumer."""

    def __init__(self, group: str, hooks: Sequence[ConsumeHook], clock: Clock) -> None:
        self._group = group
        self._hooks = hooks
        self._clock = clock

    def begin(self, messages: Sequence[ReceivedMessage], *, in_handler: bool = False) -> ConsumeAttempt:
        attempt = ConsumeAttempt(self._group, messages, self._clock.now_ms(), in_handler=in_handler)
        for hook in self._hooks:
            _tell(hook.before_consume, attempt)
        return attempt

    def end(self, attempt: ConsumeAttempt, failure: BaseException | None) -> None:
        attempt.failure = failure
        attempt.ended_ms = self._clock.now_ms()
        for hook in reversed(self._hooks):
            _tell(hook.after_consume, attempt)

    def around(self, handler: Callable[[Any], object]) -> Callable[[Any], object]:
        """The handler, with hooks before and after."""
        if is_async(handler):
            return self._around_coroutine(handler)

        def hooked(given: Any) -> object:
            attempt = self.begin(_messages(given), in_handler=True)
            try:
                returned = handler(given)
                check_handled(handler, returned)
            except BaseException as failure:
                self.end(attempt, failure)
                raise
            self.end(attempt, _first_failure(returned))
            return returned

        return hooked

    def _around_coroutine(self, handler: Callable[[Any], Awaitable[object]]) -> Callable[[Any], object]:
        async def hooked(given: Any) -> object:
            attempt = self.begin(_messages(given), in_handler=True)
            try:
                returned = await handler(given)
            except BaseException as failure:
                self.end(attempt, failure)
                raise
            self.end(attempt, _first_failure(returned))
            return returned

        return hooked


def _messages(given: ReceivedMessage | list[ReceivedMessage]) -> list[ReceivedMessage]:
    return given if isinstance(given, list) else [given]


def _first_failure(returned: object) -> BaseException | None:
    each_of = returned if isinstance(returned, list | tuple) else ()
    return next((each for each in each_of if isinstance(each, BaseException)), None)


def _tell(hook: Callable[[ConsumeAttempt], None], attempt: ConsumeAttempt) -> None:
    try:
        hook(attempt)
    except Exception:
        _log.exception("a consume hook failed")
