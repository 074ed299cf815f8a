"""Who is connected: producers and consumers."""

from __future__ import annotations

from starlette.responses import Response

from kourou.admin import groups, producers
from kourou.admin.groups import Member
from kourou.admin.producers import Producer
from kourou.console.page import get
from kourou.console.paging import page_of
from kourou.console.visit import Visit
from kourou.errors import MQError

GROUPS_MAX = 200


def show(visit: Visit) -> Response:
    query, connection = visit.query(), visit.desk.connection
    tab = query.choice("tab", ("producers", "consumers"), "producers")
    wanted = query.text("search", "").lower()
    rows: list[Producer] | list[tuple[str, Member]] = []
    error, is_cut = None, False
    try:
        if tab == "producers":
            rows = [
                each
                for each in producers.all_producers(connection)
                if wanted in f"{each.group} {each.client_id} {each.address}".lower()
            ]
        else:
            names = groups.names(connection)
            is_cut = len(names) > GROUPS_MAX
            outcomes = connection.each(names[:GROUPS_MAX], lambda group: groups.members(connection, group))
            rows = [
                (outcome.of, member)
                for outcome in outcomes
                if outcome.result is not None
                for member in outcome.result.members
                if wanted in f"{outcome.of} {member.client_id} {member.address}".lower()
            ]
    except MQError as failure:
        error = str(failure)
    return visit.show(
        "connections.html",
        section="/connections",
        tab=tab,
        page=page_of(rows, query),
        search=query.text("search", ""),
        error=error,
        is_cut=is_cut,
    )


PAGES = [get("/connections", show)]
