"""A page: a path, who may see it, and the function that answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from starlette.responses import Response

from kourou.console.login import Role
from kourou.console.visit import Visit, own_path

Handler = Callable[[Visit], Response]


def where_it_came_from(visit: Visit) -> str:
    """The page a form was on: it says so itself."""
    return own_path(visit.form().text("back", "/"))


@dataclass(frozen=True)
class Page:
    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    role: Role = Role.VIEWER
    is_public: bool = False
    back: Callable[[Visit], str] | None = where_it_came_from
    """Where one is sent when a change fails, to read why."""


def get(path: str, handler: Handler, role: Role = Role.VIEWER) -> Page:
    return Page("GET", path, handler, role)


def post(path: str, handler: Handler, role: Role = Role.OPERATOR) -> Page:
    return Page("POST", path, handler, role)
