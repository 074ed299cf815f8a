"""Messages: found by id, key, time or place; one of them in full; and a topic as it comes."""

from __future__ import annotations

from starlette.responses import Response

from kourou.admin import groups, topics
from kourou.admin import messages as admin
from kourou.console.bodies import beginning, shown
from kourou.console.deeds import messages as deeds
from kourou.console.deeds.deed import do
from kourou.console.given import Given
from kourou.console.page import get, post
from kourou.console.pages.carried import command, done
from kourou.console.visit import Visit, link
from kourou.errors import MQError
from kourou.message import ReceivedMessage

WAYS = ("time", "key", "id", "offset")


def find(visit: Visit) -> Response:
    query = visit.query()
    way = query.choice("by", WAYS, "time")
    found: list[ReceivedMessage] = []
    error = None
    is_asked = any(name in query for name in ("topic", "message_id"))
    if is_asked:
        try:
            found = _found(visit, way)
        except MQError as failure:
            error = str(failure)
        if way in ("id", "offset") and len(found) == 1 and error is None:
            return visit.go(link("messages", found[0].offset_id, topic=found[0].topic))
    return visit.show(
        "messages.html",
        section="/messages",
        way=way,
        ways=WAYS,
        query={name: query.text(name, "") for name in _FIELDS},
        oldest_first=query.yes("oldest_first"),
        found=[(message, beginning(message)) for message in found],
        is_asked=is_asked,
        error=error,
        command=command(visit, deeds.GET if way == "id" else deeds.FIND, query),
    )


_FIELDS = (
    *("topic", "key", "message_id", "begin", "end", "broker", "queue_id", "queue_offset"),
    *("tags", "contains", "count"),
)


def _found(visit: Visit, way: str) -> list[ReceivedMessage]:
    query, connection = visit.query(), visit.desk.connection
    if way == "id":
        return [admin.by_id(connection, query.text("message_id"), query.text("topic", "") or None)]
    if way == "key":
        return admin.by_key(connection, query.text("topic"), query.text("key"))
    if way == "offset":
        broker = query.text("broker", "") or topics.at_brokers(connection, query.text("topic"))[0].broker
        place = (query.number("queue_id", 0, most=65_535), query.number("queue_offset"))
        return [admin.by_offset(connection, query.text("topic"), broker, *place)]
    return admin.search(connection, deeds.search_from(query))


def show(visit: Visit) -> Response:
    query, connection = visit.query(), visit.desk.connection
    message_id, topic = query.text("message_id"), query.text("topic", "") or None
    try:
        message = admin.by_id(connection, message_id)
    except MQError:
        if topic is None:
            raise
        message = admin.by_id(connection, message_id, topic)
    members = []
    for group in _groups_of(visit, message.topic)[:20]:
        try:
            members += [(group, member.client_id) for member in groups.members(connection, group).members]
        except MQError:
            continue  # nobody of that group is connected
    return visit.show(
        "message.html",
        section="/messages",
        message=message,
        body=shown(message),
        properties=sorted(message.properties.items()),
        members=members[:50],
        command=command(visit, deeds.GET, message_id=message.offset_id),
    )


def _groups_of(visit: Visit, topic: str) -> list[str]:
    try:
        return topics.groups_of(visit.desk.connection, topic)
    except MQError:
        return []


def consume(visit: Visit) -> Response:
    form = visit.form()
    group, _, client = form.text("member").partition("|")
    given = Given({"group": group, "client": client, "message_id": form.text("message_id")})
    result = do(deeds.CONSUME, given, visit)
    told = visit.say(
        "{client} was handed the message: {result}.", client=client, result=result.consume_result
    )
    return done(visit, deeds.CONSUME, given, told, link("messages", form.text("message_id")))


def tail(visit: Visit) -> Response:
    query = visit.query()
    topic = query.text("topic", "")
    return visit.show(
        "tail.html",
        section="/messages",
        topic=topic,
        tags=query.text("tags", ""),
        stream=link("api", "v1", "topics", topic, "tail", tags=query.text("tags", "")) if topic else "",
    )


PAGES = [
    get("/messages", find),
    get("/tail", tail),
    get("/messages/{message_id}", show),
    post("/messages/consume", consume),
]
