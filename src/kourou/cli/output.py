"""What commands print: tables for people, JSON and CSV for programs. Nothing a server says moves the cursor.

Text from outside (topic names, remarks, bodies) may hold escape sequences that a terminal would obey, or
marks that turn the reading direction. They are shown as what they are: `\\x1b[2J`. A cell of a CSV file that
a spreadsheet would take for a formula is told that it is text.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from kourou.cli.exit_codes import FAILED
from kourou.errors import ConfigError

FORMATS = ("table", "wide", "json", "jsonl", "csv")

Row = Mapping[str, object]
Command = TypeVar("Command", bound=Callable[..., Any])

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0 and C1 control characters, DEL
    "\u200e\u200f\u2028-\u202e\u2066-\u2069"  # marks and overrides of direction, line separators
    "\ud800-\udfff]"  # halves of characters
)
_FORMULA = re.compile(r"[=+@\t\r-](?!\d+(\.\d+)?$)")
_NO_HEADERS = "kourou.no-headers"


def format_option(command: Command) -> Command:
    """`-o table|wide|json|jsonl|csv`, handed over as `output`; `--no-headers` is remembered for `show`."""

    def remember(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:
        ctx.meta[_NO_HEADERS] = given

    output = click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="How to print: a table, one with all columns, one JSON array, one JSON object a line, or CSV.",
    )
    no_headers = click.option(
        "--no-headers",
        is_flag=True,
        expose_value=False,
        callback=remember,
        help="Tables and CSV without their first line.",
    )
    return output(no_headers(command))


def show(rows: Iterable[Row], columns: Sequence[str], output: str, wide: Sequence[str] = ()) -> None:
    """Print rows in the format asked for; `columns` are the fields a table has, in order, and `wide` those
    that `-o wide` and CSV have besides.

    `jsonl` prints each row as it comes.
    """
    if output == "jsonl":
        for row in rows:
            click.echo(as_json(row))
    elif output == "json":
        click.echo(as_json(list(rows), indent=2))
    elif output == "csv":
        _show_csv(rows, [*columns, *wide])
    else:
        shown = [*columns, *wide] if output == "wide" else columns
        _show_table([[as_text(_cell(row.get(column))) for column in shown] for row in rows], shown)


def as_json(value: object, indent: int | None = None) -> str:
    """JSON that a terminal takes for text: control characters are escaped, also those JSON would allow."""
    lines = json.dumps(value, ensure_ascii=False, indent=indent).split("\n")
    return "\n".join(_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", line) for line in lines)


def as_text(value: object) -> str:
    """A value as one harmless line of text; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    return _UNSAFE.sub(_escaped, str(value))


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def _cell(value: object) -> object:
    """As it stands in one cell: lists and tables in a few words, numbers short, truth as yes or no."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, list | tuple):
        return ", ".join(str(each) for each in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    return value


def counted(count: int, noun: str) -> str:
    """`1 message`, `2 messages`: for nouns that only take an s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def is_terminal() -> bool:
    return sys.stdout.isatty()


def has_cursor() -> bool:
    """Whether a screen can be drawn over and over; the terminal of an editor or a build log cannot."""
    return is_terminal() and os.environ.get("TERM") not in ("dumb", "unknown")


def confirmed(what: str, yes: bool) -> None:
    """Ask whether to do it; where nobody can be asked, `--yes` must have been given. A no ends it."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(f"{what} There is nobody to ask: say --yes to do it, --dry-run to only look.")
    if not click.confirm(f"{what} Do it?", err=True):
        note("nothing was changed")
        raise click.exceptions.Exit(FAILED)


def note(what: str) -> None:
    """A word to the person, beside what is printed."""
    click.echo(f"kourou: {as_text(what)}", err=True)


@contextmanager
def progress(total: int | None) -> Iterator[Callable[[], None]]:
    """A bar on stderr where somebody looks, and elsewhere nothing; each call is one piece of work done."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)


def _show_csv(rows: Iterable[Row], columns: Sequence[str]) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    if not _headless():
        writer.writerow(columns)
    for row in rows:
        writer.writerow([_csv_cell(row.get(column)) for column in columns])


def _csv_cell(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = as_text(value if isinstance(value, float) else _cell(value))
    return f"'{text}" if isinstance(value, str) and _FORMULA.match(text) else text


def _headless() -> bool:
    ctx = click.get_current_context(silent=True)
    return bool(ctx is not None and ctx.meta.get(_NO_HEADERS))


def _show_table(rows: list[list[str]], columns: Sequence[str]) -> None:
    headings = [column.replace("_", " ") for column in columns]
    if is_terminal():
        _show_rich_table(rows, headings)
        return
    lines = rows if _headless() else [headings, *rows]
    widths = [max(map(len, cells)) for cells in zip(headings, *rows, strict=True)]
    for cells in lines:
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        click.echo(line.rstrip())


def _show_rich_table(rows: list[list[str]], headings: list[str]) -> None:
    """A table that fits the terminal; where no table does without breaking words, each row as a list."""
    from rich.box import SIMPLE_HEAD  # only where somebody looks: it takes 50 ms to import
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()  # honours NO_COLOR by itself
    widths = _widths([headings, *rows], console.width - 2 * len(headings) - 1)
    if widths is None and not _headless():
        _show_lists(rows, headings)
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_header=not _headless())
    for number, heading in enumerate(headings):
        table.add_column(heading, overflow="fold", width=None if widths is None else widths[number])
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _widths(lines: list[list[str]], room: int) -> list[int] | None:
    """How wide each column may be for all to fit into `room` with no word broken; None when they cannot."""
    from rich.cells import cell_len

    columns = list(zip(*lines, strict=True))
    least = [max(cell_len(word) for cell in cells for word in (cell.split() or [""])) for cells in columns]
    if sum(least) > room:
        return None
    widths = [min(room, max(map(cell_len, cells))) for cells in columns]
    while (excess := sum(widths) - room) > 0:  # the widest that can give something gives
        width, widest = max((width, at) for at, width in enumerate(widths) if width > least[at])
        widths[widest] -= min(excess, max(1, (width - least[widest]) // 8))
    return widths


def _show_lists(rows: list[list[str]], headings: list[str]) -> None:
    """Every cell on a line of its own: an id is in one piece, to be copied."""
    room = max(map(len, headings))
    for number, row in enumerate(rows):
        if number:
            click.echo()
        for heading, cell in zip(headings, row, strict=True):
            click.echo(f"{click.style(heading, bold=True)}{' ' * (room - len(heading))}  {cell}".rstrip())
