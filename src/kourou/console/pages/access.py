"""The brokers' own access control: users and what they may do, and the accounts of the ACL file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.responses import Response

from kourou.admin import access as admin
from kourou.console.deeds import access as deeds
from kourou.console.deeds.deed import Deed
from kourou.console.given import Given
from kourou.console.login import Role
from kourou.console.page import Page, get, post
from kourou.console.pages.carried import carry_out, command
from kourou.console.visit import Visit, link
from kourou.errors import MQError

TABS = ("users", "policies", "accounts")


def show(visit: Visit) -> Response:
    query, connection = visit.query(), visit.desk.connection
    tab = query.choice("tab", TABS, "users")
    found: dict[str, list[Any]] = {name: [] for name in TABS}
    white: dict[str, list[str]] = {}
    error = None
    try:
        if tab == "accounts":
            accounts, white = admin.accounts(connection)
            found[tab] = _together(accounts, ("access_key",))
        elif tab == "policies":
            found[tab] = _together(admin.grants(connection), ("subject", "policy", "resource"))
        else:
            found[tab] = _together(admin.users(connection), ("name",))
    except MQError as failure:
        error = str(failure)
    deed = {"users": deeds.CREATE_USER, "policies": deeds.GRANT, "accounts": deeds.SAVE_ACCOUNT}[tab]
    return visit.show(
        "access.html",
        section="/access",
        tab=tab,
        found=found[tab],
        white=sorted({pattern for patterns in white.values() for pattern in patterns}),
        actions=deeds.ACTIONS,
        error=error,
        command=command(visit, deed),
    )


def _together(rows: Iterable[Any], names: tuple[str, ...]) -> list[tuple[Any, list[str], bool]]:
    """What several servers know, once: the first of them, all servers, and whether they agree."""
    by_key: dict[tuple[object, ...], list[Any]] = {}
    for row in rows:
        by_key.setdefault(tuple(getattr(row, name) for name in names), []).append(row)
    return [
        (same[0], [row.server for row in same], len({_without_server(row) for row in same}) == 1)
        for _, same in sorted(by_key.items(), key=lambda item: [str(part) for part in item[0]])
    ]


def _without_server(row: Any) -> tuple[object, ...]:
    return tuple(value for name, value in vars(row).items() if name != "server")


def _doing(deed: Deed, told: str, tab: str) -> Page:
    def handler(visit: Visit) -> Response:
        form = visit.form()
        given = Given({name: value for name in _names(deed) if (value := form.raw(name)) not in (None, "")})
        text = visit.say(told, name=given.text(deed.on))
        return carry_out(visit, deed, text, link("access", tab=tab), given)

    return post("/access/" + deed.name.partition(".")[2], handler, Role.ADMIN)


def _names(deed: Deed) -> list[str]:
    return [field.name for field in deed.fields]


PAGES = [
    get("/access", show, Role.ADMIN),
    _doing(deeds.CREATE_USER, "User {name} is made.", "users"),
    _doing(deeds.UPDATE_USER, "User {name} is changed.", "users"),
    _doing(deeds.DELETE_USER, "User {name} is deleted.", "users"),
    _doing(deeds.GRANT, "The policies of {name} are changed.", "policies"),
    _doing(deeds.REVOKE, "The policies of {name} are changed.", "policies"),
    _doing(deeds.SAVE_ACCOUNT, "Account {name} is saved.", "accounts"),
    _doing(deeds.DELETE_ACCOUNT, "Account {name} is deleted.", "accounts"),
]

TOLD = (
    *("User {name} is made.", "User {name} is changed.", "User {name} is deleted."),
    *("The policies of {name} are changed.", "Account {name} is saved.", "Account {name} is deleted."),
)
"""What is said, for the one who checks that all of it can be said in every language."""
