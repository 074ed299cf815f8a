"""A bound on how long a captured request can be used again, for those who switch it on.

The original's signature holds for ever: nothing in it says when it was made. Two things help. A send holds
the time its message was born, which is signed; and our own client says of every request when it was signed.
With a window of so many seconds

    a send, or a change, whose time is out of the window       is refused
    one that was seen in the window already                    is refused
    a change that does not say when it was signed              is refused, unless it comes from this machine
    anything else                                              is not looked at: it changes nothing

Clocks must agree as well as that. A client that repeats a send byte by byte, as Java's does when an
asynchronous send times out, is refused the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kourou.access.signatures import SIGNATURE, SIGNED_AT
from kourou.errors import Denied
from kourou.protocol.codes import ResponseCode

SEEN_MAX: Final = 1_000_000
_BORN: Final = ("g", "bornTimestamp")
_LOOPBACK: Final = ("127.", "::1")


class ReplayWindow:
    """Remembers the signatures of the last `seconds` in two halves; the older one is forgotten as a whole."""

    def __init__(self, seconds: int, now_ms: Callable[[], int]) -> None:
        self._window_ms = seconds * 1000
        self._now_ms = now_ms
        self._since_ms = now_ms()
        self._seen: set[str] = set()
        self._seen_before: set[str] = set()

    def check(self, fields: Mapping[str, str], address: str, *, is_change: bool) -> None:
        """Raises Denied when this request is too old, or was here before."""
        now_ms = self._now_ms()
        signed_ms = _time(fields)
        if signed_ms is None:
            if is_change and not address.startswith(_LOOPBACK):
                raise _denied("it does not say when it was signed")
            return
        if abs(now_ms - signed_ms) > self._window_ms:
            raise _denied(f"it was signed {abs(now_ms - signed_ms)} ms from now")
        self._forget(now_ms)
        given = fields.get(SIGNATURE, "")
        if given in self._seen or given in self._seen_before or len(self._seen) >= SEEN_MAX:
            raise _denied("it was here before")
        self._seen.add(given)

    def _forget(self, now_ms: int) -> None:
        """One half lasts as long as a signature can be good: until the end of its window, from its start."""
        if now_ms - self._since_ms > 2 * self._window_ms:
            self._seen_before, self._seen = self._seen, set()
            self._since_ms = now_ms


def _time(fields: Mapping[str, str]) -> int | None:
    for name in (SIGNED_AT, *_BORN):
        given = fields.get(name, "")
        if given.isascii() and given.isdecimal() and len(given) < 20:
            return int(given)
    return None


def _denied(why: str) -> Denied:
    return Denied(ResponseCode.NO_PERMISSION, f"No permission: a repeated request is not taken: {why}")
