"""The console as one application: which path leads to what, and what becomes of an error.

    /static/…     styles, script, signs
    /api/v1/…     the HTTP interface: JSON in and out, a status for every error
    everything else is a page: who is not logged in is sent to the login, and from there back

Pages and operations are plain functions that may block; each request has a thread of its own while it is
answered. Only what waits for messages waits on the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from kourou.console.api.routes import api_routes
from kourou.console.guard import Guard
from kourou.console.page import Page, where_it_came_from
from kourou.console.pages import PAGES
from kourou.console.showing import Showing
from kourou.console.statuses import status_of
from kourou.console.visit import Visit, link
from kourou.errors import MQError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import ASGIApp

    from kourou.console.desk import Desk

FIRST_STEPS = ("/password", "/logout", "/preferences")
"""What one may do with a password that has to be changed."""

_log = logging.getLogger("kourou.console")


def application(desk: Desk) -> ASGIApp:
    """All of it, behind its guard."""
    showing = Showing()
    routes: list[BaseRoute] = [
        Mount("/static", StaticFiles(packages=[("kourou.console", "static")])),
        *api_routes(desk, showing),
        *(Route(page.path, _endpoint(page, desk, showing), methods=[page.method]) for page in PAGES),
    ]

    @asynccontextmanager
    async def living(app: Starlette) -> AsyncIterator[None]:
        desk.ending.begin()
        yield
        await desk.receivers.close()
        await run_in_threadpool(desk.sampler.stop)
        desk.connection.close()

    app = Starlette(routes=routes, lifespan=living, exception_handlers={404: _lost(desk, showing)})
    return Guard(app, desk.config.hosts, is_tls=desk.config.is_tls)


def _endpoint(page: Page, desk: Desk, showing: Showing) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        body = await request.body() if page.method == "POST" else b""
        return await run_in_threadpool(_answer, page, Visit(request, desk, showing, body))

    return endpoint


def _lost(desk: Desk, showing: Showing) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def lost(request: Request, error: Exception) -> Response:
        visit = Visit(request, desk, showing)
        if visit.account is None:
            return _to_login(visit)
        return visit.show("error.html", 404, title=visit.say("There is no such page"), error="")

    return lost


def _answer(page: Page, visit: Visit) -> Response:
    try:
        if not page.is_public:
            if visit.account is None:
                return _to_login(visit)
            if visit.account.must_change and page.path not in FIRST_STEPS:
                return visit.go("/password")
            if page.path not in FIRST_STEPS:
                visit.need(page.role)
        if page.method == "POST" and not page.is_public:
            visit.check_change(visit.form().text("csrf", ""))
        return page.handler(visit)
    except MQError as error:
        return _failed(page, visit, error)
    except Exception:  # the top of a request: nothing inside may be seen by who made it
        _log.exception("%s %s failed", page.method, page.path)
        return visit.show(
            "error.html", 500, title=visit.say("Something went wrong here"), error=visit.say("See the log.")
        )


def _to_login(visit: Visit) -> Response:
    # A link from another site is followed without the cookie (SameSite=Strict); a page that sends the browser
    # to the same place once more makes it a visit of our own, with the cookie.
    if visit.request.headers.get("sec-fetch-site") == "cross-site":
        return visit.show("again.html")
    here = visit.path_and_query if visit.request.method == "GET" else where_it_came_from(visit)
    return visit.go(link("login", to=None if here == "/" else here))


def _failed(page: Page, visit: Visit, error: MQError) -> Response:
    if page.method == "POST" and visit.session is not None and page.back is not None:
        visit.tell(str(error), "bad")
        return visit.go(page.back(visit))
    return visit.show("error.html", status_of(error), title=visit.say("That did not work"), error=str(error))
