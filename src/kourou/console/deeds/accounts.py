"""Deeds around the console's own users, their tokens, and the audit log."""

from __future__ import annotations

from typing import Any

from kourou.console.deeds.deed import Deed, Field
from kourou.console.desk import Desk
from kourou.console.given import Given
from kourou.console.login import Account, Role
from kourou.console.paging import page_of
from kourou.console.visit import Visit

USER = Field("user", "The user's name.", needed=True)
ROLE = Field("role", "What they may do.", needed=True, choices=tuple(Role))


def without_secrets(account: Account) -> dict[str, Any]:
    """A user as an admin may see them: no hash of anything."""
    return {
        "user": account.name,
        "role": account.role,
        "must_change_password": account.must_change,
        "created_ms": account.created_ms,
        "tokens": [
            {"id": token.id, "label": token.label, "created_ms": token.created_ms} for token in account.tokens
        ],
    }


def _list(desk: Desk, given: Given, visit: Visit) -> Any:
    return [without_secrets(account) for account in desk.accounts.all()]


def _add(desk: Desk, given: Given, visit: Visit) -> Any:
    role = Role(given.choice("role", tuple(Role)))
    return {"user": given.text("user"), "one_time_password": desk.accounts.add(given.text("user"), role)}


def _set_role(desk: Desk, given: Given, visit: Visit) -> Any:
    desk.accounts.set_role(given.text("user"), Role(given.choice("role", tuple(Role))))
    return {"user": given.text("user")}


def _reset(desk: Desk, given: Given, visit: Visit) -> Any:
    password = desk.accounts.reset_password(given.text("user"))
    desk.sessions.end_all_of(given.text("user"))
    return {"user": given.text("user"), "one_time_password": password}


def _remove(desk: Desk, given: Given, visit: Visit) -> Any:
    desk.accounts.remove(given.text("user"))
    desk.sessions.end_all_of(given.text("user"))
    return {"user": given.text("user")}


def _issue(desk: Desk, given: Given, visit: Visit) -> Any:
    return {"token": desk.accounts.issue_token(visit.user, given.text("label", "no name"))}


def _revoke(desk: Desk, given: Given, visit: Visit) -> Any:
    desk.accounts.revoke_token(visit.user, given.text("token_id"))
    return {"token_id": given.text("token_id")}


def _audit(desk: Desk, given: Given, visit: Visit) -> Any:
    page = page_of(desk.audit.find(given.text("search", "")), given)
    return {"total": page.total, "page": page.number, "entries": page.rows}


LIST = Deed("user.list", "The console's users", Role.ADMIN, "GET", "/users", _list)
ADD = Deed(
    "user.add",
    "Add a user; tells a one-time password",
    Role.ADMIN,
    "PUT",
    "/users/{user}",
    _add,
    (USER, ROLE),
    on="user",
)
SET_ROLE = Deed(
    "user.role",
    "Change what a user may do",
    Role.ADMIN,
    "PATCH",
    "/users/{user}",
    _set_role,
    (USER, ROLE),
    on="user",
)
RESET = Deed(
    "user.reset",
    "Give a user a new one-time password",
    Role.ADMIN,
    "POST",
    "/users/{user}/password",
    _reset,
    (USER,),
    on="user",
)
REMOVE = Deed(
    "user.remove", "Remove a user", Role.ADMIN, "DELETE", "/users/{user}", _remove, (USER,), on="user"
)
ISSUE = Deed(
    "token.issue",
    "A token for a program of yours; shown this once",
    Role.VIEWER,
    "POST",
    "/tokens",
    _issue,
    (Field("label", "What it is for."),),
    on="label",
)
REVOKE = Deed(
    "token.revoke",
    "Take back a token of yours",
    Role.VIEWER,
    "DELETE",
    "/tokens/{token_id}",
    _revoke,
    (Field("token_id", "Its id.", needed=True),),
    on="token_id",
)
AUDIT = Deed(
    "audit.list",
    "Who changed what, the newest first",
    Role.ADMIN,
    "GET",
    "/audit",
    _audit,
    (Field("search", "Only entries with this text."), Field("page", "From 1.", "integer")),
)

DEEDS = (LIST, ADD, SET_ROLE, RESET, REMOVE, ISSUE, REVOKE, AUDIT)
