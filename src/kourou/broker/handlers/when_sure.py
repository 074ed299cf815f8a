"""A member of a set that elects its master tells nobody of the end of its log before it knows that it stays.

After a start all of a log can be read, also what no other member has. Another one may lead meanwhile, and
give the places of those messages to others: a group that had read them here would pass over what took their
places.

A new master does not show the end it inherited before others have it. What was staged or decided there it
does not know until then, so that it takes nothing that depends on it. How a transaction ended is told once,
and mostly by a request that nobody answers: it waits, where another one is refused and asked again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Set
from typing import Final

from kourou.doors.clock import Clock
from kourou.errors import Busy
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.frame import Frame
from kourou.remoting.answer import Answer, Handler, RunAnswers, RunHandler, is_foreseen, refusal

READS: Final = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.KOUROU_BULK_PULL,
        RequestCode.GET_MAX_OFFSET,
    }
)
"""Whatever says how far a queue goes, to one who goes on from there."""

DECIDES: Final = frozenset(
    {
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.KOUROU_STAGE,
        RequestCode.KOUROU_COMMIT_STAGED,
        RequestCode.KOUROU_ABORT_STAGED,
        RequestCode.KOUROU_STAGED_STATE,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT,
    }
)
"""Whatever depends on what was decided before, or says how far deliveries are. Ends of transactions wait."""

KEPT_MAX: Final = 10_000
"""So many ends of transactions wait for a new master; of the others producers are asked."""
KEPT_A_TURN: Final = 128

logger = logging.getLogger(__name__)

Why = Callable[[], str | None]
"""Why this cannot be answered here and now; None when it can."""


def when_sure(handlers: Mapping[int, Handler], codes: Set[int], why_not: Why) -> dict[int, Handler]:
    """The same handlers, with those of `codes` behind the question whether they may."""
    guarded: dict[int, Handler] = dict(handlers)
    for code in codes & handlers.keys():
        guarded[code] = _WhenSure(handlers[code], why_not)
    return guarded


class _WhenSure:
    def __init__(self, handler: Handler, why_not: Why) -> None:
        self._handler = handler
        self._why_not = why_not

    def __call__(self, request: Command, answer: Answer) -> None:
        if (why := self._why_not()) is not None:
            raise Busy(ResponseCode.SERVICE_NOT_AVAILABLE, why)
        self._handler(request, answer)


class UntilSure:
    """Requests that wait until they can be handled; `look` says that this may be so now, or never."""

    def __init__(self, handler: Handler, why_not: Why, clock: Clock) -> None:
        self._handler = handler
        self._why_not = why_not
        self._clock = clock
        self._kept: deque[tuple[Command, Answer]] = deque()

    def __len__(self) -> int:
        return len(self._kept)

    def __call__(self, request: Command, answer: Answer) -> None:
        why = self._why_not()
        if why is None:
            self._handler(request, answer)
        elif len(self._kept) >= KEPT_MAX:
            raise Busy(ResponseCode.SERVICE_NOT_AVAILABLE, why)
        else:
            request.body = b""
            answer.park()
            self._kept.append((request, answer))

    def look(self) -> None:
        """Handle those that wait, in the order they came and some at a time; or refuse them all."""
        why = self._why_not()
        for _ in range(min(len(self._kept), KEPT_MAX if why is not None else KEPT_A_TURN)):
            request, answer = self._kept.popleft()
            try:
                if why is not None:
                    raise Busy(ResponseCode.SERVICE_NOT_AVAILABLE, why)
                self._handler(request, answer)
            except Exception as error:
                if not is_foreseen(error):
                    logger.exception("a request that had waited could not be handled")
                answer(refusal(request, error))
        if self._kept:
            self._clock.later(0, self.look)


class SureRuns:
    """The fast way of pulls: it is left to the plain one to refuse."""

    spans_connections = False

    def __init__(self, runs: RunHandler, why_not: Why) -> None:
        self._runs = runs
        self._why_not = why_not

    def __call__(self, frames: list[Frame], answers: RunAnswers) -> int:
        return 0 if self._why_not() is not None else self._runs(frames, answers)
