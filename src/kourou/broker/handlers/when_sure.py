"""A member of a set that elects its master tells nobody of the end of its log before it knows that it stays.

After a start all of a log can be read, also what no other member has. Another one may lead meanwhile, and
give the places of those messages to others: a group that had read them here would pass over what took their
places.

A new master does not show the end it inherited before others have it. What was staged or decided there it
does not know until then, so that it takes nothing that depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Final

from kourou.errors import Busy
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.frame import Frame
from kourou.remoting.answer import Answer, Handler, RunAnswers, RunHandler

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
        RequestCode.END_TRANSACTION,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.KOUROU_STAGE,
        RequestCode.KOUROU_COMMIT_STAGED,
        RequestCode.KOUROU_ABORT_STAGED,
        RequestCode.KOUROU_STAGED_STATE,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT,
    }
)
"""Whatever depends on what was decided before, or says how far deliveries are."""

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


class SureRuns:
    """The fast way of pulls: it is left to the plain one to refuse."""

    spans_connections = False

    def __init__(self, runs: RunHandler, why_not: Why) -> None:
        self._runs = runs
        self._why_not = why_not

    def __call__(self, frames: list[Frame], answers: RunAnswers) -> int:
        return 0 if self._why_not() is not None else self._runs(frames, answers)
