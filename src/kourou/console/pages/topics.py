"""Topics: the list, one of them with its queues, route and groups; made, changed, deleted; a test message."""

from __future__ import annotations

from starlette.responses import Response

from kourou.admin import cluster
from kourou.admin import topics as admin
from kourou.console.deeds import messages as message_deeds
from kourou.console.deeds import topics as deeds
from kourou.console.deeds.deed import do
from kourou.console.given import Given
from kourou.console.login import Role
from kourou.console.page import get, post
from kourou.console.pages.carried import carry_out, command, done
from kourou.console.paging import page_of
from kourou.console.visit import Visit, link

KINDS = ("normal", "delay", "fifo", "transaction", "mixed", "retry", "dlq", "system")


def show_all(visit: Visit) -> Response:
    query = visit.query()
    wanted, kind = query.text("search", "").lower(), query.text("kind", "")
    everything = query.yes("everything") or kind in ("retry", "dlq", "system")
    found = [
        topic
        for topic in admin.all_topics(visit.desk.connection, everything=everything)
        if wanted in topic.name.lower() and kind in ("", topic.kind)
    ]
    return visit.show(
        "topics.html",
        section="/topics",
        page=page_of(found, query),
        search=query.text("search", ""),
        kind=kind,
        kinds=KINDS,
        everything=query.yes("everything"),
        command=command(visit, deeds.LIST, everything=everything),
    )


def show(visit: Visit) -> Response:
    query, connection = visit.query(), visit.desk.connection
    name = query.text("topic")
    parts = admin.show(connection, name)
    return visit.show(
        "topic.html",
        section="/topics",
        name=name,
        parts=parts,
        stats=admin.stats(connection, name),
        groups=admin.groups_of(connection, name),
        tab=query.text("tab", "queues"),
        command=command(visit, deeds.SHOW, topic=name),
        send_command=command(visit, message_deeds.SEND, topic=name),
        save_command=command(visit, deeds.SAVE, Given(_settings(parts[0]))) if parts else "",
        kinds=deeds.KINDS,
    )


def _settings(part: admin.TopicAt) -> dict[str, object]:
    """As they are: whoever copies the line changes nothing but what they change in it."""
    return {
        "topic": part.topic,
        "read_queues": part.read_queues,
        "write_queues": part.write_queues,
        "perm": part.perm,
        "order": part.order,
    }


def show_new(visit: Visit) -> Response:
    return visit.show(
        "topic_new.html",
        section="/topics",
        clusters=cluster.clusters(visit.desk.connection),
        kinds=deeds.KINDS,
        command=command(visit, deeds.SAVE),
    )


def save(visit: Visit) -> Response:
    name = visit.form().text("topic")
    return carry_out(
        visit, deeds.SAVE, visit.say("Topic {topic} is saved.", topic=name), link("topics", name)
    )


def show_delete(visit: Visit) -> Response:
    name = visit.query().text("topic")
    return visit.show(
        "topic_delete.html",
        section="/topics",
        name=name,
        stats=admin.stats(visit.desk.connection, name),
        groups=admin.groups_of(visit.desk.connection, name),
        command=command(visit, deeds.DELETE, topic=name),
    )


def delete(visit: Visit) -> Response:
    told = visit.say("Topic {topic} is deleted.", topic=visit.form().text("topic"))
    return carry_out(visit, deeds.DELETE, told, "/topics")


def send(visit: Visit) -> Response:
    form = visit.form()
    sent = do(message_deeds.SEND, form, visit)
    told = visit.say(
        "Sent as {id}, to queue {queue} of {broker}.",
        id=sent["message_id"],
        queue=sent["queue_id"],
        broker=sent["broker"],
    )
    to = link("topics", form.text("topic"), tab="send")
    return done(visit, message_deeds.SEND, form, told, to)


PAGES = [
    get("/topics", show_all),
    get("/new-topic", show_new, Role.OPERATOR),
    get("/topics/{topic}", show),
    get("/topics/{topic}/delete", show_delete, Role.OPERATOR),
    post("/topics/save", save),
    post("/topics/delete", delete),
    post("/topics/send", send),
]
