"""Pictures where one would rather look than read: a heat map, lines over time, bars. PNG bytes, no window.

matplotlib is imported when a picture is asked for, with a canvas of its own: no display, no global state.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kourou.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT, DOTS = 10.0, 5.0, 110
LINES_MAX = 10
"""More than that in one plot nobody can tell apart."""


def heat_map(
    title: str, columns: Sequence[str], rows: Sequence[str], counts: Sequence[Sequence[int]], label: str
) -> bytes:
    """`counts[row][column]`, the first row at the bottom; dark is many."""
    from matplotlib.colors import LogNorm

    figure, axes = _figure(title)
    top = max((value for row in counts for value in row), default=0)
    image = axes.imshow(
        [[value or float("nan") for value in row] for row in counts],
        origin="lower",
        aspect="auto",
        cmap="viridis_r",
        norm=LogNorm(1, max(top, 2)),
        interpolation="nearest",
    )
    _ticks(axes, columns, rows)
    figure.colorbar(image, ax=axes, label=label)
    return _png(figure)


def lines(title: str, series: Mapping[str, Sequence[tuple[int, float]]], unit: str) -> bytes:
    """Values over time (milliseconds since 1970), one line a name; those that rise highest, when many."""
    figure, axes = _figure(title)
    highest = sorted(
        series, key=lambda name: max((value for _, value in series[name]), default=0.0), reverse=True
    )
    for name in sorted(highest[:LINES_MAX]):
        points = sorted(series[name])
        moments: list[Any] = [datetime.fromtimestamp(moment / 1000, UTC) for moment, _ in points]
        axes.plot(moments, [value for _, value in points], marker=".", label=_plain(name))
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if series:
        axes.legend(fontsize=8)
    figure.autofmt_xdate()
    return _png(figure)


def bars(title: str, values: Mapping[str, float], unit: str) -> bytes:
    """One bar a name, in the order given."""
    figure, axes = _figure(title)
    names = [_plain(name) for name in values]
    axes.barh(range(len(names)), list(values.values()), color="#3b6ea5")
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.grid(axis="x", alpha=0.3)
    return _png(figure)


def _figure(title: str) -> tuple[Figure, Axes]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("pictures need matplotlib: pip install 'kourou[spark]'") from error
    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DOTS, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(_plain(title))
    return figure, axes


def _ticks(axes: Axes, columns: Sequence[str], rows: Sequence[str]) -> None:
    step = max(1, len(columns) // 12)
    axes.set_xticks(range(0, len(columns), step), columns[::step], rotation=30, fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)


def _plain(text: str) -> str:
    """A name from outside is no formula: `$` starts one in matplotlib."""
    return text.replace("$", r"\$")


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
