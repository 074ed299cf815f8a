"""What a pipeline has to tell: facts, tables, pictures and a verdict, for a terminal, a program or a browser.

A report is data. The command line prints it (`kourou/cli/pipeline.py`), `as_html` makes one page of it that
needs nothing beside it: pictures are inside. Whatever came from a message is escaped there.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple


class Rows(NamedTuple):
    """A table with a heading."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Mapping[str, object]]


class Picture(NamedTuple):
    title: str
    png: bytes


@dataclass(frozen=True, kw_only=True)
class Report:
    """`is_ok` is False when something that was looked for was found: a gap, a duplicate, a bad record."""

    title: str
    facts: Mapping[str, object]
    tables: Sequence[Rows] = ()
    pictures: Sequence[Picture] = ()
    remarks: Sequence[str] = ()
    is_ok: bool = True
    is_dry_run: bool = False
    details: Mapping[str, object] = field(default_factory=dict)
    """For programs only: what a person would not read."""

    def as_data(self) -> dict[str, object]:
        """For JSON."""
        return {
            "pipeline": self.title,
            "is_ok": self.is_ok,
            "is_dry_run": self.is_dry_run,
            **self.facts,
            "tables": {table.title: [dict(row) for row in table.rows] for table in self.tables},
            **({"remarks": list(self.remarks)} if self.remarks else {}),
            **self.details,
        }


def as_html(report: Report) -> str:
    """One page, complete in itself."""
    verdict = "ok>Nothing is wrong." if report.is_ok else "bad>Not everything is as it should be."
    parts = [
        f"<!doctype html><meta charset='utf-8'><title>{escape(report.title)}</title><style>{STYLE}</style>",
        f"<h1>{escape(report.title)}{' (dry run)' if report.is_dry_run else ''}</h1>",
        f"<p class={verdict}</p>",
        "<dl>",
        *(f"<dt>{escape(spoken(name))}<dd>{escape(shown(value))}" for name, value in report.facts.items()),
        "</dl>",
        *(f"<p>{escape(remark)}</p>" for remark in report.remarks),
        *(_picture(picture) for picture in report.pictures),
        *(_table(table) for table in report.tables),
    ]
    return "\n".join(parts) + "\n"


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222
} h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem } dl { display: grid;
grid-template-columns: max-content 1fr; gap: .2rem 1.5rem } dt { color: #666 } dd { margin: 0 } table {
border-collapse: collapse; font-variant-numeric: tabular-nums } th { text-align: left; color: #666 } td, th {
padding: .2rem .9rem .2rem 0; border-bottom: 1px solid #ddd; overflow-wrap: anywhere } img { max-width: 100% }
.ok { color: #17632f } .bad { color: #a4161a; font-weight: bold } """.replace("\n", " ")


def _picture(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode()
    title = escape(picture.title)
    return f"<h2>{title}</h2><img alt='{title}' src='data:image/png;base64,{data}'>"


def _table(table: Rows) -> str:
    head = "".join(f"<th>{escape(spoken(column))}" for column in table.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(shown(row.get(column)))}" for column in table.columns)
        for row in table.rows
    )
    return f"<h2>{escape(spoken(table.title))}</h2><table><tr>{head}{body}</table>"


def spoken(name: str) -> str:
    return name.replace("_", " ")


def shown(value: object) -> str:
    """A value for people: numbers grouped, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"
    return str(value)
