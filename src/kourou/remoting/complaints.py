"""Log lines about peers, at most one a minute for each kind: an attacker must not fill the disk.

What a peer sent may be in the text, so it is made printable: no line breaks, no escape sequences.
"""

from __future__ import annotations

import logging

from kourou.doors.clock import Clock

SECONDS_BETWEEN = 60.0
KINDS_MAX = 1024


class Complaints:
    """Says a thing once, then counts it until a minute has passed."""

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._said: dict[str, list[float]] = {}  # kind -> [when last said, how often since]

    def warn(self, kind: str, text: str, error: BaseException | None = None) -> None:
        """Log `text` unless this `kind` had its line; with `error`, its traceback too."""
        now = self._clock.monotonic()
        said = self._said.get(kind)
        if said is not None and now - said[0] < SECONDS_BETWEEN:
            said[1] += 1
            return
        more = f" ({said[1]:.0f} more like this since the last line)" if said and said[1] else ""
        if len(self._said) >= KINDS_MAX:
            self._said.clear()
        self._said[kind] = [now, 0]
        level = logging.WARNING if error is None else logging.ERROR
        self._logger.log(level, "%s%s", printable(text), more, exc_info=error)


def printable(text: str, characters_max: int = 500) -> str:
    """`text` on one line, in characters a terminal shows as they are."""
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:characters_max]
    )
    return shown if len(text) <= characters_max else shown + "…"
