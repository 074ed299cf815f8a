"""Consumer groups: lag per queue, members and what they tell of themselves, resets with a preview."""

from __future__ import annotations

from starlette.responses import Response

from kourou.admin import groups as admin
from kourou.admin import offsets
from kourou.admin.groups import Members
from kourou.console.deeds import groups as deeds
from kourou.console.given import Given
from kourou.console.login import Role
from kourou.console.page import get, post
from kourou.console.pages.carried import carry_out, command
from kourou.console.paging import page_of
from kourou.console.visit import Visit, link
from kourou.errors import MQError, NotFound
from kourou.protocol.names import RETRY_PREFIX


def show_all(visit: Visit) -> Response:
    query = visit.query()
    wanted = query.text("search", "").lower()
    everything = query.yes("everything")
    names = [
        group.name
        for group in admin.all_groups(visit.desk.connection, everything=everything)
        if wanted in group.name.lower()
    ]
    page = page_of(names, query, 25)
    return visit.show(
        "groups.html",
        section="/groups",
        page=page,
        states=admin.states(visit.desk.connection, page.rows),
        search=query.text("search", ""),
        everything=everything,
        command=command(visit, deeds.LIST),
    )


def show(visit: Visit) -> Response:
    query, connection = visit.query(), visit.desk.connection
    name = query.text("group")
    config = admin.show(connection, name)
    members = _members(visit, name)
    lag = admin.lag(connection, name, owners=query.text("tab", "lag") == "lag")
    topics = sorted({queue.topic for queue in lag.queues} | _subscribed(members))
    return visit.show(
        "group.html",
        section="/groups",
        name=name,
        config=config[0][1],
        brokers=[node.broker for node, _ in config],
        members=members,
        lag=lag,
        topics=topics,
        topic=next((topic for topic in topics if not topic.startswith(RETRY_PREFIX)), ""),
        tab=query.text("tab", "lag"),
        command=command(visit, deeds.LAG, group=name),
        reset_command=command(visit, deeds.RESET, group=name),
        skip_command=command(visit, deeds.SKIP, group=name),
        save_command=command(visit, deeds.SAVE, group=name, retry_max=config[0][1].retry_max_times),
    )


def _members(visit: Visit, group: str) -> Members | None:
    try:
        return admin.members(visit.desk.connection, group)
    except NotFound:
        return None


def _subscribed(members: Members | None) -> set[str]:
    return {each.topic for each in members.subscriptions} if members is not None else set()


def show_member(visit: Visit) -> Response:
    query = visit.query()
    group, client = query.text("group"), query.text("client")
    info, error = None, None
    try:
        info = deeds.running_info(visit.desk, group, client, query.yes("stacks"))
    except MQError as failure:
        error = str(failure)
    return visit.show(
        "member.html",
        section="/groups",
        group=group,
        client=client,
        info=info,
        stacks=query.yes("stacks"),
        error=error,
        command=command(visit, deeds.RUNNING, group=group, client=client),
    )


def preview(visit: Visit) -> Response:
    """What a reset would do, and the button that does exactly this."""
    query = visit.query()
    moves = deeds.plan(visit.desk, query)
    return visit.show(
        "reset.html",
        section="/groups",
        group=query.text("group"),
        topic=query.text("topic"),
        moves=moves,
        fields={name: query.text(name, "") for name in ("where", "time", "offset", "queues")},
        again=sum(move.again for move in moves),
        skipped=sum(move.skipped for move in moves),
        is_online=_members(visit, query.text("group")) is not None,
        command=command(visit, deeds.RESET, query),
    )


def reset(visit: Visit) -> Response:
    form = visit.form()
    group, topic = form.text("group"), form.text("topic")
    told = visit.say("{group} goes on at its new place in {topic}.", group=group, topic=topic)
    return carry_out(visit, deeds.RESET, told, link("groups", group), form)


def preview_skip(visit: Visit) -> Response:
    query = visit.query()
    group, topic = query.text("group"), query.text("topic")
    moves = offsets.skip(visit.desk.connection, group, topic)
    return visit.show(
        "skip.html",
        section="/groups",
        group=group,
        topic=topic,
        moves=moves,
        skipped=sum(move.skipped for move in moves),
        command=command(visit, deeds.SKIP, query),
    )


def skip(visit: Visit) -> Response:
    form = visit.form()
    told = visit.say(
        "{group} has skipped its backlog of {topic}.", group=form.text("group"), topic=form.text("topic")
    )
    return carry_out(visit, deeds.SKIP, told, link("groups", form.text("group")))


def show_new(visit: Visit) -> Response:
    return visit.show("group_new.html", section="/groups", command=command(visit, deeds.SAVE))


def save(visit: Visit) -> Response:
    form = visit.form()
    boxes = {name: form.yes(name) for name in ("enabled", "broadcast", "ordered")}
    given = Given({name: form.text(name, "") for name in ("group", "retry_max", "retry_queues")}, boxes)
    name = form.text("group")
    return carry_out(
        visit, deeds.SAVE, visit.say("Group {group} is saved.", group=name), link("groups", name), given
    )


def show_delete(visit: Visit) -> Response:
    name = visit.query().text("group")
    return visit.show(
        "group_delete.html",
        section="/groups",
        name=name,
        members=_members(visit, name),
        command=command(visit, deeds.DELETE, group=name),
    )


def delete(visit: Visit) -> Response:
    told = visit.say("Group {group} is deleted.", group=visit.form().text("group"))
    return carry_out(visit, deeds.DELETE, told, "/groups")


PAGES = [
    get("/groups", show_all),
    get("/new-group", show_new, Role.OPERATOR),
    get("/groups/{group}", show),
    get("/groups/{group}/member", show_member, Role.OPERATOR),
    get("/groups/{group}/reset", preview),
    get("/groups/{group}/skip", preview_skip),
    get("/groups/{group}/delete", show_delete, Role.OPERATOR),
    post("/groups/reset", reset),
    post("/groups/skip", skip),
    post("/groups/save", save),
    post("/groups/delete", delete),
]
