"""A bound on how long a request can be used again."""

from __future__ import annotations

import pytest

from kourou.access.replay import ReplayWindow
from kourou.errors import Denied


class Clock:
    ms = 1_000_000


def window(clock: Clock, seconds: int = 30) -> ReplayWindow:
    return ReplayWindow(seconds, lambda: clock.ms)


def fields(signature: str, ms: int | None, name: str = "g") -> dict[str, str]:
    return {"Signature": signature, **({} if ms is None else {name: str(ms)})}


def test_a_signature_is_good_once_as_long_as_it_is_good() -> None:
    clock = Clock()
    seen = window(clock)
    seen.check(fields("a", clock.ms), "10.1.2.3", is_change=False)
    for _ in range(20):
        with pytest.raises(Denied):
            seen.check(fields("a", 1_000_000), "10.1.2.3", is_change=False)
        clock.ms += 5_000
    seen.check(fields("b", clock.ms, "SignedAt"), "10.1.2.3", is_change=True)


@pytest.mark.parametrize("ms", [0, 969_999, 1_030_001, 10**15])
def test_what_is_older_or_newer_than_the_window_is_refused(ms: int) -> None:
    with pytest.raises(Denied, match="from now"):
        window(Clock()).check(fields("a", ms), "127.0.0.1", is_change=False)


def test_a_change_says_when_it_was_signed_or_comes_from_here() -> None:
    seen = window(Clock())
    seen.check(fields("a", None), "127.0.0.1", is_change=True)
    seen.check(fields("a", None), "10.1.2.3", is_change=False)
    with pytest.raises(Denied, match="when it was signed"):
        seen.check(fields("a", None), "10.1.2.3", is_change=True)
