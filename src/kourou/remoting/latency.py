"""How long requests take, from when they are handled until they are answered; by code.

Whoever wants to know wraps its tables, once, when it starts; without that nothing is paid. A request costs
0.7 us more then, one of a run (`RunHandler`) next to nothing: a run is timed as a whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from functools import partial
from typing import Final

from kourou.doors.clock import Clock
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.frame import Frame
from kourou.remoting.answer import Answer, Handler, RunAnswers, RunHandler
from kourou.remoting.figures import Histogram

BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
_BOUNDS_SECONDS: Final = tuple(bound / 1000 for bound in BOUNDS_MS)
_CODES: Final = frozenset(map(int, RequestCode))


class Latencies:
    """Counts since the start, of each code, and of those that were parked (long polls) apart."""

    def __init__(self, clock: Clock) -> None:
        self.now = clock.monotonic
        self._counts: dict[tuple[int, bool], list[int]] = {}
        self._seconds: dict[tuple[int, bool], float] = {}

    def handlers(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """The same table, with a watch on it."""
        return {code: self._timed(code, handler) for code, handler in handlers.items()}

    def run_handlers(self, run_handlers: Mapping[bytes, RunHandler]) -> dict[bytes, RunHandler]:
        return {key: _TimedRun(handler, _code_in(key), self) for key, handler in run_handlers.items()}

    def histograms(self) -> list[tuple[str, bool, Histogram]]:
        """Of each code: its name, whether these were parked, and how many took how long, in ms."""
        found = []
        for (code, was_parked), counts in sorted(self._counts.items()):
            histogram = Histogram(BOUNDS_MS)
            histogram.counts = list(counts)
            histogram.total = self._seconds[code, was_parked] * 1000
            name = RequestCode(code).name.lower() if code in _CODES else str(code)
            found.append((name, was_parked, histogram))
        return found

    def note(self, code: int, began: float, requests: int = 1, *, was_parked: bool = False) -> None:
        """So many requests that were begun then are answered now."""
        seconds = self.now() - began
        key = (code, was_parked)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = [0] * (len(BOUNDS_MS) + 1)
            self._seconds[key] = 0.0
        counts[bisect_left(_BOUNDS_SECONDS, seconds)] += requests
        self._seconds[key] += seconds * requests

    def _timed(self, code: int, handler: Handler) -> Handler:
        now, note = self.now, self.note

        def timed(request: Command, answer: Answer) -> None:
            answer.note = partial(note, code, now())
            handler(request, answer)

        return timed


class _TimedRun:
    def __init__(self, handler: RunHandler, code: int, latencies: Latencies) -> None:
        self._handler = handler
        self._code = code
        self._now = latencies.now
        self._note = latencies.note
        self.spans_connections = handler.spans_connections

    def __call__(self, frames: list[Frame], answers: RunAnswers) -> int:
        answers.note = partial(self._note, self._code, self._now())
        return self._handler(frames, answers)


def _code_in(key: bytes) -> int:
    """The code in the beginning of a header: `{"code":310,`."""
    return int(key.partition(b":")[2].partition(b",")[0])
