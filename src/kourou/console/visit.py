"""One request, and who makes it: what a page or an operation of the interface is given.

    cookie kourou_session   a browser: a change needs the session's token in the form (or in x-csrf-token)
    Authorization: Bearer   a program: no cookie, so nothing another site could make a browser send

A browser tells where a request comes from (Origin, Sec-Fetch-Site); a change that another site sent is
refused before anything else is looked at. The peer's address is the socket's: what proxies claim is not
believed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from kourou.console.given import Given
from kourou.console.guard import host_name
from kourou.console.login import Account, Role
from kourou.console.sessions import Session, is_token_of
from kourou.console.texts import LANGUAGES, preferred, say
from kourou.errors import Denied
from kourou.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from kourou.console.desk import Desk
    from kourou.console.showing import Showing

COOKIE, LANGUAGE_COOKIE, THEME_COOKIE = "kourou_session", "kourou_language", "kourou_theme"
THEMES = ("auto", "light", "dark")
FIELDS_MAX = 5000
PREFERENCE_SECONDS = 365 * 24 * 3600

_log = logging.getLogger("kourou.console")


class Visit:
    """A request, from whom, and what they filled in."""

    def __init__(self, request: Request, desk: Desk, showing: Showing, body: bytes = b"") -> None:
        self.request = request
        self.desk = desk
        self._showing = showing
        self.body = body
        self.session: Session | None = None
        self.account: Account | None = None
        self.is_program = False
        self._recognise()

    def _recognise(self) -> None:
        scheme, _, token = self.request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            self.is_program = True
            self.account = self.desk.accounts.with_token(token.strip())
            return
        found = self.desk.sessions.find(self.request.cookies.get(COOKIE, ""))
        if found is not None:
            self.session, self.account = found

    # ------------------------------------------------------------------------------- who, and may they

    @property
    def address(self) -> str:
        client = self.request.client
        return client.host if client is not None else "?"

    @property
    def user(self) -> str:
        return self.account.name if self.account is not None else ""

    def may(self, role: Role) -> bool:
        return self.account is not None and not self.account.must_change and self.account.role.allows(role)

    def need(self, role: Role) -> None:
        """Raises Denied when they may not."""
        if self.account is not None and self.account.must_change:
            raise Denied(
                ResponseCode.NO_PERMISSION,
                f"{self.user} has a one-time password, which is good for one thing: choose one of your own "
                "at /password, in a browser; then log in with it, or make a token at /account",
            )
        if not self.may(role):
            mine = self.account.role if self.account is not None else "nobody"
            raise Denied(ResponseCode.NO_PERMISSION, f"this needs the role {role}; {self.user} is {mine}")

    @property
    def is_from_elsewhere(self) -> bool:
        """Whether a page of another site has sent it."""
        headers = self.request.headers
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return True
        origin = headers.get("origin")
        if origin is None:
            return False
        host = headers.get("host", "")
        return urlsplit(origin).netloc.lower() != host.lower() or host_name(host) == ""

    def check_change(self, token: str) -> None:
        """Raises Denied unless the one who asks for a change has meant it."""
        if self.is_from_elsewhere:
            raise Denied(ResponseCode.NO_PERMISSION, "another site sent this; nothing was done")
        if not self.is_program and (self.session is None or not is_token_of(self.session, token)):
            raise Denied(ResponseCode.NO_PERMISSION, "this form is too old; load the page again and repeat")

    def audit(self, deed: str, on: str, details: dict[str, str], outcome: str = "ok") -> None:
        """Keep who did what. When that cannot be kept, who did it is told."""
        try:
            self.desk.audit.write(
                user=self.user, address=self.address, deed=deed, on=on, details=details, result=outcome
            )
        except OSError as error:
            _log.error("the audit log cannot be written: %s", error)
            self.tell(f"not in the audit log, which cannot be written: {error.strerror}", "bad")

    # ------------------------------------------------------------------------------- what they filled in

    def query(self) -> Given:
        return Given(dict(self.request.query_params), self.request.path_params)

    def form(self) -> Given:
        """A form's fields; one that was given several times is a list."""
        pairs = parse_qsl(
            self.body.decode(errors="replace"), keep_blank_values=True, max_num_fields=FIELDS_MAX
        )
        fields: dict[str, Any] = {}
        for name, value in pairs:
            if name in fields:
                before = fields[name]
                fields[name] = [*before, value] if isinstance(before, list) else [before, value]
            else:
                fields[name] = value
        return Given(fields, self.request.path_params)

    # ------------------------------------------------------------------------------------------- answers

    @property
    def language(self) -> str:
        chosen = self.request.cookies.get(LANGUAGE_COOKIE, "")
        return chosen if chosen in LANGUAGES else preferred(self.request.headers.get("accept-language", ""))

    @property
    def theme(self) -> str:
        chosen = self.request.cookies.get(THEME_COOKIE, "")
        return chosen if chosen in THEMES else "auto"

    def say(self, text: str, /, **values: object) -> str:
        return say(self.language, text, **values)

    def show(self, template: str, status: int = 200, **context: Any) -> Response:
        """A page. What was to be told on the next page is told on this one."""
        notices: list[tuple[str, str]] = []
        if self.session is not None:
            notices, self.session.notices = self.session.notices, []
        return HTMLResponse(self._showing.page(self, template, notices, context), status)

    def tell(self, text: str, kind: str = "good") -> None:
        """Say it on the page that comes next. Kinds: good, bad, cli, secret."""
        if self.session is not None:
            self.session.notices.append((kind, text))

    def go(self, path: str) -> Response:
        """Have the browser look there now."""
        return RedirectResponse(path, 303)

    @property
    def path_and_query(self) -> str:
        url = self.request.url
        return url.path + (f"?{url.query}" if url.query else "")

    def here(self, **changes: object) -> str:
        """This page's address with other query parameters; None takes one away."""
        query: dict[str, object] = {**dict(self.request.query_params), **changes}
        return self.request.url.path + _query_text(query)

    def keep_cookie(self, response: Response, name: str, value: str, seconds: int | None = None) -> Response:
        response.set_cookie(
            name,
            value,
            max_age=seconds,
            path="/",
            secure=self.desk.config.is_tls,
            httponly=True,
            samesite="strict",
        )
        return response


def link(*parts: str, **query: object) -> str:
    """A path of our own, each part made safe: `link("topics", name, tab="queues")`."""
    return "/" + "/".join(quote(part, safe="") for part in parts) + _query_text(query)


def _query_text(query: Mapping[str, object]) -> str:
    text = urlencode({name: value for name, value in query.items() if value not in (None, "")})
    return f"?{text}" if text else ""


def own_path(path: str) -> str:
    """Where to go after a login: a path of ours, or the first page."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_ours else "/"
