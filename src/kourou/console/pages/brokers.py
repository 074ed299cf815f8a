"""Brokers: how each fares, how it is set, what it is told to let go of; and the name servers."""

from __future__ import annotations

from starlette.responses import Response

from kourou.admin import brokers as admin
from kourou.admin import cluster, nameservers
from kourou.console.deeds import brokers as deeds
from kourou.console.deeds.deed import do
from kourou.console.login import Role
from kourou.console.page import get, post
from kourou.console.pages.carried import carry_out, command, done
from kourou.console.visit import Visit, link
from kourou.errors import MQError


def show_all(visit: Visit) -> Response:
    return visit.show(
        "brokers.html",
        section="/brokers",
        states=cluster.state(visit.desk.connection),
        name_servers=nameservers.state(visit.desk.connection),
        command=command(visit, deeds.LIST),
    )


def show(visit: Visit) -> Response:
    query = visit.query()
    connection = visit.desk.connection
    node = cluster.node(connection, query.text("broker"))
    runtime = admin.runtime(connection, node.address)
    wanted = query.text("search", "").lower()
    settings, settings_error = {}, None
    try:
        found = deeds.without_secrets(admin.configuration(connection, node.address))
        settings = {key: found[key] for key in sorted(found) if wanted in key.lower()}
    except MQError as error:
        settings_error = str(error)
    chosen = query.text("key", "")
    return visit.show(
        "broker.html",
        section="/brokers",
        node=node,
        runtime=runtime,
        settings=settings,
        settings_error=settings_error,
        search=query.text("search", ""),
        tab=query.text("tab", "state"),
        chosen=chosen if chosen in settings else "",
        command=command(visit, deeds.CONFIGURE, broker=node.broker, key=chosen or "KEY"),
        write_command=command(visit, deeds.WRITE, broker=node.broker, writable="false"),
        clean_command=command(visit, deeds.CLEAN, broker=node.broker),
        cleanings=deeds.CLEANINGS,
    )


def configure(visit: Visit) -> Response:
    form = visit.form()
    broker, key = form.text("broker"), form.text("key")
    told = visit.say("{key} is set at {broker}.", key=key, broker=broker)
    return carry_out(visit, deeds.CONFIGURE, told, link("brokers", broker, tab="settings", search=key))


def clean(visit: Visit) -> Response:
    form = visit.form()
    result = do(deeds.CLEAN, form, visit)
    told = visit.say("{broker} has let go of {what}.", broker=result["broker"], what=result["cleaned"])
    return done(visit, deeds.CLEAN, form, told, link("brokers", form.text("broker")))


def write(visit: Visit) -> Response:
    form = visit.form()
    told = (
        visit.say("Producers find {broker} again.", broker=form.text("broker"))
        if form.yes("writable")
        else visit.say("Producers do not find {broker} any more.", broker=form.text("broker"))
    )
    return carry_out(visit, deeds.WRITE, told, link("brokers", form.text("broker")))


PAGES = [
    get("/brokers", show_all),
    get("/brokers/{broker}", show),
    post("/brokers/configure", configure, Role.ADMIN),
    post("/brokers/clean", clean, Role.ADMIN),
    post("/brokers/write", write, Role.ADMIN),
]
