"""The HTTP interface's paths: every deed, receiving, and the description of it all.

Who asks shows a token (`Authorization: Bearer …`) or comes from a browser with a session; a change from a
browser also needs the session's token in `x-csrf-token`. A body is JSON and says so: what a form of another
site can send is not.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kourou.console.api import receive
from kourou.console.api.openapi import described
from kourou.console.api.plain import plain
from kourou.console.deeds.catalogue import DEEDS
from kourou.console.deeds.deed import Deed, do
from kourou.console.given import Given
from kourou.console.login import Role
from kourou.console.statuses import status_of
from kourou.console.visit import Visit
from kourou.errors import ConfigError, MQError

if TYPE_CHECKING:
    from kourou.console.desk import Desk
    from kourou.console.showing import Showing

ROOT = "/api/v1"

_log = logging.getLogger("kourou.console")

Work = Callable[[Visit, Given], Awaitable[Any]]


def api_routes(desk: Desk, showing: Showing) -> list[Route]:
    def route(path: str, method: str, role: Role, work: Work) -> Route:
        return Route(ROOT + path, _endpoint(desk, showing, method, role, work), methods=[method])

    return [
        route("/openapi.json", "GET", Role.VIEWER, _describe),
        route("/topics/{topic}/receive", "POST", Role.OPERATOR, receive.receive),
        route("/topics/{topic}/stream", "GET", Role.OPERATOR, receive.events),
        route("/topics/{topic}/tail", "GET", Role.VIEWER, receive.tail),
        route("/receipts/{receipt}", "POST", Role.OPERATOR, receive.settle),
        *(route(deed.path, deed.method, deed.role, _doing(deed)) for deed in DEEDS),
        Route(ROOT + "/{rest:path}", _nowhere, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
    ]


async def _describe(visit: Visit, given: Given) -> Any:
    return described()


async def _nowhere(request: Request) -> Response:
    return _refused(
        404, "NotFound", f"there is no {request.method} {request.url.path}; see {ROOT}/openapi.json"
    )


def _doing(deed: Deed) -> Work:
    async def work(visit: Visit, given: Given) -> Any:
        return await run_in_threadpool(do, deed, given, visit)

    return work


def _endpoint(desk: Desk, showing: Showing, method: str, role: Role, work: Work) -> Any:
    async def endpoint(request: Request) -> Response:
        visit = Visit(request, desk, showing, await request.body())
        try:
            refusal = _who(visit, method, role)
            if refusal is not None:
                return refusal
            result = await work(visit, _given(visit, method))
        except MQError as error:
            return _refused(status_of(error), type(error).__name__, str(error))
        except Exception:  # the top of a request: nothing inside may be seen by who made it
            _log.exception("%s %s failed", method, request.url.path)
            return _refused(500, "Failure", "something went wrong here; see the console's log")
        if hasattr(result, "__aiter__"):
            return StreamingResponse(
                result, media_type="text/event-stream", headers={"x-accel-buffering": "no"}
            )
        return _answered(200, plain(result))

    return endpoint


def _who(visit: Visit, method: str, role: Role) -> Response | None:
    """Who is not known is told so, who knocks too often has to wait; raises Denied for who may not."""
    if visit.account is None:
        by_tokens = f"tokens from {visit.address}"  # apart: a script's old token keeps no person out
        if visit.is_program:
            visit.desk.attempts.failed("a token", by_tokens)
        wait = visit.desk.attempts.seconds_to_wait("a token", by_tokens)
        if wait:
            return _refused(429, "Busy", "too many wrong tokens", {"retry-after": str(wait)})
        return _refused(
            401,
            "Denied",
            "show a token: Authorization: Bearer kourou_…; you make one at /account, in a browser",
            {"www-authenticate": "Bearer"},
        )
    visit.need(role)
    if method != "GET":
        visit.check_change(visit.request.headers.get("x-csrf-token", ""))
    return None


def _given(visit: Visit, method: str) -> Given:
    query = dict(visit.request.query_params)
    if method == "GET" or not visit.body:
        return Given(query, visit.request.path_params)
    kind = visit.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ConfigError(
            f"the body is {kind or 'of no kind'}; send JSON, and say content-type: application/json"
        )
    try:
        fields = msgspec.json.decode(visit.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"the body is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ConfigError("the body is no JSON object")
    return Given(query, fields, visit.request.path_params)


def _refused(status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> Response:
    return _answered(status, {"error": {"kind": kind, "message": message}}, headers)


def _answered(status: int, value: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value) + b"\n", status, headers, "application/json")
