"""The HTTP interface on a page: every operation, its fields, and how to call it."""

from __future__ import annotations

from starlette.responses import Response

from kourou.console.api.openapi import described
from kourou.console.page import get
from kourou.console.visit import Visit


def show(visit: Visit) -> Response:
    by_tag: dict[str, list[tuple[str, str, dict[str, object]]]] = {}
    for path, methods in described()["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    return visit.show(
        "interface.html",
        section="/api",
        by_tag=by_tag,
        base=str(visit.request.base_url).rstrip("/") + "/api/v1",
    )


PAGES = [get("/api", show)]
