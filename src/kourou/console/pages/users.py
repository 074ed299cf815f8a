"""The console's own users, and the audit log."""

from __future__ import annotations

from starlette.responses import Response

from kourou.console.deeds import accounts as deeds
from kourou.console.deeds.deed import do
from kourou.console.login import Role
from kourou.console.page import get, post
from kourou.console.paging import page_of
from kourou.console.visit import Visit


def show_all(visit: Visit) -> Response:
    return visit.show("users.html", section="/users", accounts=visit.desk.accounts.all(), roles=list(Role))


def add(visit: Visit) -> Response:
    result = do(deeds.ADD, visit.form(), visit)
    visit.tell(visit.say("{user} can log in with the one-time password below.", user=result["user"]))
    visit.tell(result["one_time_password"], "secret")
    return visit.go("/users")


def set_role(visit: Visit) -> Response:
    result = do(deeds.SET_ROLE, visit.form(), visit)
    visit.tell(visit.say("The role of {user} is changed.", user=result["user"]))
    return visit.go("/users")


def reset(visit: Visit) -> Response:
    result = do(deeds.RESET, visit.form(), visit)
    visit.tell(visit.say("{user} can log in with the one-time password below.", user=result["user"]))
    visit.tell(result["one_time_password"], "secret")
    return visit.go("/users")


def remove(visit: Visit) -> Response:
    result = do(deeds.REMOVE, visit.form(), visit)
    visit.tell(visit.say("{user} is gone.", user=result["user"]))
    return visit.go("/users")


def show_audit(visit: Visit) -> Response:
    query = visit.query()
    return visit.show(
        "audit.html",
        section="/audit",
        page=page_of(visit.desk.audit.find(query.text("search", "")), query),
        search=query.text("search", ""),
    )


PAGES = [
    get("/users", show_all, Role.ADMIN),
    post("/users/add", add, Role.ADMIN),
    post("/users/role", set_role, Role.ADMIN),
    post("/users/reset", reset, Role.ADMIN),
    post("/users/remove", remove, Role.ADMIN),
    get("/audit", show_audit, Role.ADMIN),
]
