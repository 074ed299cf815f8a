"""From a form to a deed and back to a page: what was done is told, and what to type for the same."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from kourou.console.deeds.deed import Deed, command_line, do
from kourou.console.given import Given
from kourou.console.visit import Visit


def carry_out(visit: Visit, deed: Deed, told: str, to: str, given: Given | None = None) -> Response:
    """Do what the form asks, say `told`, and show the page at `to`."""
    given = given or visit.form()
    do(deed, given, visit)
    return done(visit, deed, given, told, to)


def done(visit: Visit, deed: Deed, given: Given, told: str, to: str) -> Response:
    visit.tell(told)
    if line := command(visit, deed, given):
        visit.tell(line, "cli")
    return visit.go(to)


def command(visit: Visit, deed: Deed, given: Given | None = None, **fields: Any) -> str:
    """What to type for it; places not filled in are in capitals."""
    return command_line(deed, given or Given(fields), visit.desk.config.name_server)
