"""What is checked before anybody looks at a request, and what every answer carries.

    Host not ours              421   a page elsewhere has pointed its own name at this machine (DNS rebinding)
    two lengths, odd method    400   a proxy before us might read another request out of it
    a body beyond the bound    413   also one that does not say how long it is
    a body that never ends     408   whoever sends a byte a minute holds nothing for long

The answer's headers let a browser run our script, use our styles, talk to us, and nothing else.
"""

from __future__ import annotations

import asyncio

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kourou.console.config import BODY_BYTES_MAX

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
HEADERS_MAX = 100
BODY_SECONDS_MAX = 30.0

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)

SAFETY = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """Stands before the application."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str], *, is_tls: bool) -> None:
        self._app = app
        self._hosts = hosts
        self._safety = [(name.encode(), value.encode()) for name, value in SAFETY.items()]
        if is_tls:
            self._safety.append((b"strict-transport-security", b"max-age=31536000"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._sender(scope, send)
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, answer)
            return
        try:
            async with asyncio.timeout(BODY_SECONDS_MAX):
                body = await _whole_body(receive)
        except TimeoutError:
            await _refused(408, "this request takes too long to come")(scope, receive, answer)
            return
        if body is None:
            await _too_large()(scope, receive, answer)
            return
        await self._app(scope, _with_body(body, receive), answer)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        named = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if len(named) != 1 or host_name(named[0]) not in self._hosts:
            return _refused(421, "this console is not known by that name; see kourou console --allow-host")
        if scope["method"] not in METHODS or len(headers) > HEADERS_MAX:
            return _refused(400, "this request is not understood")
        lengths = [value for name, value in headers if name in (b"content-length", b"transfer-encoding")]
        if len(lengths) > 1:
            return _refused(400, "this request has two lengths")
        length = lengths[0].decode("latin-1") if lengths else "0"
        if length.isdecimal() and int(length[:20]) > BODY_BYTES_MAX:
            return _too_large()
        return None

    def _sender(self, scope: Scope, send: Send) -> Send:
        is_static = scope["path"].startswith("/static/")

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers: list[tuple[bytes, bytes]] = list(message.get("headers", ()))
                headers += self._safety
                if not is_static:
                    headers.append((b"cache-control", b"no-store"))
                message = {**message, "headers": headers}
            await send(message)

        return send_safely


def host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    name, colon, port = host.rpartition(":")
    if colon and (port.isdecimal() or not port) and (name.endswith("]") or ":" not in name):
        host = name
    return host.lower().strip("[]").rstrip(".")


async def _whole_body(receive: Receive) -> bytes | None:
    """All of it, before anybody looks at any of it; None when it is too long."""
    parts, size = [], 0
    while True:
        message = await receive()
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > BODY_BYTES_MAX:
            return None
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _with_body(body: bytes, receive: Receive) -> Receive:
    told = False

    async def receive_body_first() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_body_first


def _too_large() -> PlainTextResponse:
    return _refused(413, f"a request may have {BODY_BYTES_MAX // 1024 // 1024} MiB")


def _refused(status: int, why: str) -> PlainTextResponse:
    return PlainTextResponse(why + "\n", status, {"connection": "close"})
