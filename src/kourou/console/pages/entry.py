"""In and out: login, logout, passwords, preferences, one's own account; and the search at the top."""

from __future__ import annotations

from starlette.responses import Response

from kourou.admin import messages
from kourou.console.deeds import accounts
from kourou.console.deeds.deed import do
from kourou.console.login import PASSWORD_CHARACTERS_MIN, Account, Role
from kourou.console.page import Page, get, post
from kourou.console.texts import LANGUAGES
from kourou.console.visit import (
    COOKIE,
    LANGUAGE_COOKIE,
    PREFERENCE_SECONDS,
    THEME_COOKIE,
    THEMES,
    Visit,
    link,
    own_path,
)
from kourou.errors import ConfigError, Denied, MQError
from kourou.protocol.codes import ResponseCode

MESSAGE_ID_CHARACTERS = (32, 40, 56)
"""Of unique ids and offset ids, IPv4 and IPv6."""


def _login_page(visit: Visit, error: str = "", status: int = 200) -> Response:
    given = visit.form() if visit.body else visit.query()
    return visit.show(
        "login.html",
        status,
        error=error,
        to=own_path(given.text("to", "/")),
        user=given.text("user", ""),
        is_first=not visit.desk.accounts.all(),
    )


def show_login(visit: Visit) -> Response:
    if visit.account is not None:
        return visit.go("/")
    return _login_page(visit)


def log_in(visit: Visit) -> Response:
    if visit.is_from_elsewhere:
        raise Denied(ResponseCode.NO_PERMISSION, "another site sent this; nothing was done")
    desk, form = visit.desk, visit.form()
    user, password = form.text("user", "")[:64], str(form.raw("password") or "")
    wait = desk.attempts.seconds_to_wait(user, visit.address)
    if wait:
        response = _login_page(visit, visit.say("Too many tries. Wait {seconds} s.", seconds=wait), 429)
        response.headers["retry-after"] = str(wait)
        return response
    account = desk.accounts.with_password(user, password)
    if account is None:
        desk.attempts.failed(user, visit.address)
        visit.audit("login", user, {}, "refused")
        return _login_page(visit, visit.say("User or password is wrong."), 403)
    desk.attempts.succeeded(user, visit.address)
    return _begin(visit, account, own_path(form.text("to", "/")))


def _begin(visit: Visit, account: Account, to: str) -> Response:
    """A session under a new name, whatever the browser had before."""
    visit.desk.sessions.end(visit.request.cookies.get(COOKIE, ""))
    cookie, visit.session = visit.desk.sessions.begin(account)
    visit.account = account
    visit.audit("login", account.name, {})
    return visit.keep_cookie(visit.go("/password" if account.must_change else to), COOKIE, cookie)


def log_out(visit: Visit) -> Response:
    visit.desk.sessions.end(visit.request.cookies.get(COOKIE, ""))
    visit.audit("logout", visit.user, {})
    response = visit.go("/login")
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response


def show_password(visit: Visit, error: str = "") -> Response:
    return visit.show("password.html", 400 if error else 200, least=PASSWORD_CHARACTERS_MIN, error=error)


def choose_password(visit: Visit) -> Response:
    desk, form = visit.desk, visit.form()
    assert visit.account is not None
    password = str(form.raw("password") or "")
    try:
        if not visit.account.must_change:
            _check_present(visit, str(form.raw("present") or ""))
        if password != form.raw("again"):
            raise ConfigError(visit.say("The two are not the same."))
        account = desk.accounts.choose_password(visit.user, password)
    except MQError as error:
        return show_password(visit, str(error))
    visit.audit("password.choose", visit.user, {})
    desk.sessions.end_all_of(visit.user)
    return _begin(visit, account, "/")


def _check_present(visit: Visit, password: str) -> None:
    attempts, address = visit.desk.attempts, visit.address
    if attempts.seconds_to_wait(visit.user, address):
        raise Denied(ResponseCode.NO_PERMISSION, "too many tries; wait a minute")
    if visit.desk.accounts.with_password(visit.user, password) is None:
        attempts.failed(visit.user, address)
        raise Denied(ResponseCode.NO_PERMISSION, visit.say("That is not your present password."))


def set_preferences(visit: Visit) -> Response:
    form = visit.form()
    response = visit.go(own_path(form.text("back", "/")))
    language, theme = form.text("language", ""), form.text("theme", "")
    if language in LANGUAGES:
        visit.keep_cookie(response, LANGUAGE_COOKIE, language, PREFERENCE_SECONDS)
    if theme in THEMES:
        visit.keep_cookie(response, THEME_COOKIE, theme, PREFERENCE_SECONDS)
    return response


def show_account(visit: Visit) -> Response:
    return visit.show("account.html", section="", account=visit.account)


def issue_token(visit: Visit) -> Response:
    result = do(accounts.ISSUE, visit.form(), visit)
    visit.tell(result["token"], "secret")
    return visit.go("/account")


def revoke_token(visit: Visit) -> Response:
    do(accounts.REVOKE, visit.form(), visit)
    visit.tell(visit.say("The token is dead."))
    return visit.go("/account")


def search(visit: Visit) -> Response:
    """Straight to what was meant: a message by its id, else topics with this in their name."""
    wanted = visit.query().text("q", "")
    if len(wanted) in MESSAGE_ID_CHARACTERS and all(letter in "0123456789abcdefABCDEF" for letter in wanted):
        try:
            messages.by_id(visit.desk.connection, wanted)
        except MQError:
            return visit.go(link("messages", by="id", message_id=wanted))
        return visit.go(link("messages", wanted))
    return visit.go(link("find", q=wanted))


PAGES = [
    Page("GET", "/login", show_login, is_public=True),
    Page("POST", "/login", log_in, is_public=True, back=None),
    Page("POST", "/logout", log_out),
    Page("GET", "/password", show_password),
    Page("POST", "/password", choose_password),
    Page("POST", "/preferences", set_preferences),
    get("/account", show_account),
    post("/account/tokens", issue_token, Role.VIEWER),
    post("/account/tokens/revoke", revoke_token, Role.VIEWER),
    get("/search", search),
]
