"""A member of a set that elects its master serves no reader before it knows that the end of its log stays.

After a start all of a log can be read, also what no other member has. Another one may lead meanwhile, and
give the places of those messages to others: a group that had read them here would pass over what took their
places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

Why = Callable[[], str | None]
"""Why nobody may read here; None when all may."""


def sure_reads(handlers: Mapping[int, Handler], why_not: Why) -> dict[int, Handler]:
    """The same handlers, with those of readers behind the question whether they may."""
    guarded: dict[int, Handler] = dict(handlers)
    for code in READS & handlers.keys():
        guarded[code] = _SureReads(handlers[code], why_not)
    return guarded


class _SureReads:
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
