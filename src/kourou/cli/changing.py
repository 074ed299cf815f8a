"""What all commands that change something have: `--dry-run` and `--yes`; and what they take as a moment."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

if TYPE_CHECKING:
    _Type = click.ParamType[Any]
else:
    _Type = click.ParamType  # not generic before click 8.2

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
TEN_YEARS = 10 * 365 * _UNITS["d"]
"""Nobody waits longer, and no clock of the system's takes much more."""


def change_options(command: Command) -> Command:
    """`--dry-run` and `--yes`, handed over under these names."""
    dry_run = click.option("--dry-run", is_flag=True, help="Only show what would be done.")
    yes = click.option("-y", "--yes", is_flag=True, help="Do it without asking.")
    return dry_run(yes(command))


def seconds_of(text: str) -> float:
    """`90`, `90s`, `5m`, `2h`, `1d`, `250ms`; raises ValueError."""
    given = text.strip().lower()
    for unit in sorted(_UNITS, key=len, reverse=True):
        if given.endswith(unit):
            return _number(given[: -len(unit)]) * _UNITS[unit]
    return _number(given)


def _number(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return value


class Duration(_Type):
    """So many seconds, or with a unit: 250ms, 90s, 5m, 2h, 1d; from `least` to `most` seconds."""

    name = "duration"

    def __init__(self, least: float = 0.0, most: float = TEN_YEARS) -> None:
        self._least = least
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        try:
            seconds = seconds_of(value)
        except ValueError:
            self.fail(f"{value!r} is no duration: say 90, 90s, 5m, 2h or 1d", param, ctx)
        if not self._least <= seconds <= self._most:
            self.fail(f"{value!r} is not in {self._least:g} s to {self._most:.0f} s", param, ctx)
        return seconds


class Rate(click.FloatRange):
    """So many a second: more than none, and a number (`nan` is in every range of click's)."""

    name = "rate"

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        rate = float(super().convert(value, param, ctx))
        if not math.isfinite(rate):
            self.fail(f"{value!r} is no rate: say a number more than 0, like 1000 or 0.5", param, ctx)
        return rate


class Moment(_Type):
    """A moment: ISO 8601 (local time if it does not say), ms since 1970, or `10m` for ten minutes ago."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return moment_of(value)
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is no moment: say 2026-01-31T12:00:00, 1700000000000 (ms), now, or 10m for ten "
                "minutes ago",
                param,
                ctx,
            )


def moment_of(text: str) -> datetime:
    """What `Moment` takes, as a moment of the local zone; raises ValueError."""
    given = text.strip()
    now = datetime.now().astimezone()
    if given == "now":
        return now
    if given.isascii() and given.isdecimal() and len(given) >= 11:
        return datetime.fromtimestamp(int(given) / 1000, UTC).astimezone()
    try:
        return now - timedelta(seconds=seconds_of(given.removesuffix(" ago").removesuffix("ago")))
    except ValueError:
        return datetime.fromisoformat(given).astimezone()


def ms_of(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


DURATION = Duration()
SOME_TIME = Duration(least=0.001)
"""One that is not over before it begins."""
RATE = Rate()
MOMENT = Moment()
