"""What commands print: tables for people, JSON for programs. Nothing a server says can move the cursor.

Text from outside (topic names, remarks, bodies) may hold escape sequences that a terminal would obey, or
marks that turn the reading direction. They are shown as what they are: `\\x1b[2J`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

FORMATS = ("table", "json", "jsonl")

Row = Mapping[str, object]
Command = TypeVar("Command", bound=Callable[..., Any])

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0 and C1 control characters, DEL
    "\u200e\u200f\u2028-\u202e\u2066-\u2069"  # marks and overrides of direction, line separators
    "\ud800-\udfff]"  # halves of characters
)


def format_option(command: Command) -> Command:
    """`-o table|json|jsonl`, handed over as `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="How to print: a table, one JSON array, or one JSON object a line.",
    )(command)


def show(rows: Iterable[Row], columns: Sequence[str], output: str) -> None:
    """Print rows in the format asked for; `columns` are the fields a table has, in order.

    `jsonl` prints each row as it comes.
    """
    if output == "jsonl":
        for row in rows:
            click.echo(as_json(row))
    elif output == "json":
        click.echo(as_json(list(rows), indent=2))
    else:
        _show_table([[as_text(row.get(column)) for column in columns] for row in rows], columns)


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


def is_terminal() -> bool:
    return sys.stdout.isatty()


def _show_table(rows: list[list[str]], columns: Sequence[str]) -> None:
    headings = [column.replace("_", " ") for column in columns]
    if is_terminal():
        _show_rich_table(rows, headings)
        return
    widths = [max(map(len, cells)) for cells in zip(headings, *rows, strict=True)]
    for cells in [headings, *rows]:
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        click.echo(line.rstrip())


def _show_rich_table(rows: list[list[str]], headings: list[str]) -> None:
    from rich.box import SIMPLE_HEAD  # only where somebody looks: it takes 50 ms to import
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)  # honours NO_COLOR by itself
