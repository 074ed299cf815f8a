"""From what a page has to say to HTML: templates, and how numbers, times and bodies are written.

Every value is escaped by the template engine; nothing is ever marked as safe. What a template asks for and
was not given is an error, not an empty place.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from kourou import __version__
from kourou.console.charts import NOTHING, short
from kourou.console.login import Role
from kourou.console.texts import LANGUAGES
from kourou.console.visit import THEMES, link

if TYPE_CHECKING:
    from kourou.console.visit import Visit

SECTIONS = (
    # path, name, sign
    ("/", "Overview", "overview"),
    ("/brokers", "Brokers", "broker"),
    ("/topics", "Topics", "topic"),
    ("/groups", "Groups", "group"),
    ("/messages", "Messages", "message"),
    ("/dead-letters", "Dead letters", "dead"),
    ("/delayed", "Delayed", "clock"),
    ("/transactions", "Transactions", "half"),
    ("/traces", "Traces", "trace"),
    ("/connections", "Connections", "plug"),
    ("/access", "Access", "key"),
    ("/users", "Users", "user"),
    ("/audit", "Audit log", "audit"),
    ("/api", "HTTP interface", "api"),
)


class Showing:
    """The templates, compiled when first used."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("kourou.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update(
            number=number, short=short, moment=moment, ago=ago, size=size, percent=percent, part=_part
        )
        self._environment.globals.update(
            link=link, sections=SECTIONS, languages=LANGUAGES, themes=THEMES, version=__version__, Role=Role
        )

    def page(
        self, visit: Visit, template: str, notices: list[tuple[str, str]], context: dict[str, Any]
    ) -> str:
        return self._environment.get_template(template).render(
            visit=visit,
            t=visit.say,
            notices=notices,
            csrf=visit.session.csrf if visit.session is not None else "",
            now_ms=visit.desk.clock.now_ms(),
            name_server=visit.desk.config.name_server,
            **context,
        )


def number(value: float | None) -> str:
    """1,234,567; a rate with one place below ten."""
    if value is None:
        return NOTHING
    if abs(value) < 10 and value != int(value):
        return f"{value:.1f}"
    return f"{value:,.0f}"


def moment(at_ms: int | None) -> str:
    """2026-11-16 07:47:18, in the server's time; a dash for never."""
    if not at_ms or at_ms < 0 or at_ms > 253_402_300_799_000:
        return NOTHING
    return datetime.fromtimestamp(at_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")


def ago(milliseconds: float | None) -> str:
    """How long that is: 12 s, 5 min, 3 h, 2 d."""
    if milliseconds is None:
        return NOTHING
    seconds = milliseconds / 1000
    for bound, unit_seconds, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if abs(seconds) < bound:
            return f"{seconds / unit_seconds:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def size(count: float | None) -> str:
    """Bytes as people say them: 812 B, 1.4 KiB, 3.2 GiB."""
    if count is None:
        return NOTHING
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def percent(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio * 100:.1f} %"


def _part(text: str) -> str:
    """As a part of a path."""
    return quote(text, safe="")
