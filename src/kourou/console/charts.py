"""Line charts as SVG, drawn here: no library in the browser, nothing but numbers in the picture.

    x: time, oldest on the left     y: from 0 to a round number above the largest value

What is drawn is handed to a template as paths and labels; colours are the style sheet's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import floor, log10

WIDTH, HEIGHT = 560, 150
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 8, 20
POINTS_MAX = 180

NOTHING = "\u2013"


@dataclass(frozen=True)
class Line:
    name: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Drawn:
    name: str
    path: str
    area: str
    last: str


@dataclass(frozen=True)
class Chart:
    lines: list[Drawn]
    y_labels: list[tuple[float, str]]
    x_labels: list[tuple[float, str]]
    summary: str
    """The same in words, for those who do not see the picture."""
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    bottom: int = HEIGHT - BOTTOM


def chart(times_ms: Sequence[int], lines: Sequence[Line], unit: str = "", top: float | None = None) -> Chart:
    """Lines over the same moments; `top` is the highest value shown, by default a round one."""
    step = max(1, -(-len(times_ms) // POINTS_MAX))
    times = list(times_ms)[::-1][::step][::-1]
    shown = [Line(line.name, list(line.values)[::-1][::step][::-1]) for line in lines]
    highest = max((value for line in shown for value in line.values if value is not None), default=0.0)
    ceiling = top if top is not None else round_above(highest)
    first, last = (times[0], times[-1]) if times else (0, 1)
    span = max(1, last - first)

    def x(at_ms: int) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (at_ms - first) / span, 1)

    def y(value: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(value, ceiling) / ceiling), 1)

    drawn = [_drawn(line, times, x, y, unit) for line in shown]
    return Chart(
        lines=drawn,
        y_labels=[(y(part * ceiling), short(part * ceiling) + unit) for part in (0.0, 0.5, 1.0)],
        x_labels=[(x(at), _clock_time(at)) for at in ((first, last) if last - first > 1000 else ())],
        summary="; ".join(f"{line.name}: {line.last}" for line in drawn),
    )


def _drawn(
    line: Line, times: Sequence[int], x: Callable[[int], float], y: Callable[[float], float], unit: str
) -> Drawn:
    points = [(x(at), y(value)) for at, value in zip(times, line.values, strict=True) if value is not None]
    path = " ".join(f"{'L' if number else 'M'}{px} {py}" for number, (px, py) in enumerate(points))
    area = f"{path} L{points[-1][0]} {y(0)} L{points[0][0]} {y(0)} Z" if len(points) > 1 else ""
    known = [value for value in line.values if value is not None]
    return Drawn(line.name, path, area, short(known[-1]) + unit if known else NOTHING)


def round_above(value: float) -> float:
    """1, 2 or 5 and zeros, not below `value`; 1 for nothing."""
    if value <= 1:
        return 1.0
    size = 10.0 ** floor(log10(value))
    return next(size * part for part in (1, 2, 5, 10) if size * part >= value)


def short(value: float) -> str:
    """Four characters or so: 0.4, 12, 1.2k, 34M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            number = value / size
            return f"{number:.1f}{letter}".replace(".0", "") if number < 100 else f"{number:.0f}{letter}"
    return f"{value:.1f}".removesuffix(".0") if value < 100 else f"{value:.0f}"


def _clock_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).strftime("%H:%M:%S")
