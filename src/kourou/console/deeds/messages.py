"""Deeds around messages: found, sent to try things out, handed to a member, followed by their trace."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64
from typing import Any

from kourou.admin import groups, messages
from kourou.admin.messages import Search, described
from kourou.console.deeds.deed import Deed, Field, option, typed
from kourou.console.deeds.groups import moment_from
from kourou.console.desk import Desk
from kourou.console.given import Given
from kourou.console.login import Role
from kourou.console.visit import Visit
from kourou.errors import ConfigError
from kourou.message import Message

TOPIC = Field("topic", "The topic.", needed=True)
MESSAGE_ID = Field("message_id", "A unique id or an offset id.", needed=True)
FOUND_MAX = 200
DELAY_SECONDS_MAX = 40 * 86_400


def milliseconds(given: Given, name: str) -> int | None:
    text = given.text(name, "")
    return round(moment_from(text).timestamp() * 1000) if text else None


def search_from(given: Given) -> Search:
    queue_id = given.number("queue_id", -1, least=-1, most=65_535)
    return Search(
        given.text("topic"),
        begin_ms=milliseconds(given, "begin"),
        end_ms=milliseconds(given, "end"),
        count=given.number("count", 50, least=1, most=FOUND_MAX),
        oldest_first=given.yes("oldest_first"),
        broker=given.text("broker", "") or None,
        queue_id=None if queue_id < 0 else queue_id,
        tags=given.text("tags", "*"),
        contains=given.text("contains", "") or None,
    )


def _find(desk: Desk, given: Given, visit: Visit) -> Any:
    if "key" in given:
        found = messages.by_key(desk.connection, given.text("topic"), given.text("key"))
    else:
        found = messages.search(desk.connection, search_from(given))
    return [described(message) for message in found[:FOUND_MAX]]


def _find_command(given: Given) -> str:
    flags = (
        *(("--key", "key"), ("--since", "begin"), ("--until", "end"), ("--contains", "contains")),
        *(("--tags", "tags"), ("--broker", "broker"), ("--queue", "queue_id")),
    )
    return typed(
        *("kourou", "message", "find", given.text("topic", "TOPIC")),
        *[word for flag, name in flags for word in option(flag, given.text(name, ""))],
        *option("--oldest-first", given.yes("oldest_first")),
    )


def _get(desk: Desk, given: Given, visit: Visit) -> Any:
    return described(
        messages.by_id(desk.connection, given.text("message_id"), given.text("topic", "") or None)
    )


def _at(desk: Desk, given: Given, visit: Visit) -> Any:
    return described(
        messages.by_offset(
            desk.connection,
            given.text("topic"),
            given.text("broker"),
            given.number("queue_id", most=65_535),
            given.number("queue_offset"),
        )
    )


def body_from(given: Given) -> bytes:
    """`body` as text, or `body_base64`."""
    if "body_base64" in given:
        try:
            return b64decode(given.text("body_base64"), validate=True)
        except (NotBase64, ValueError):
            raise ConfigError("body_base64 is no base64") from None
    body = given.raw("body")
    if not isinstance(body, str) or not body:
        raise ConfigError("body is missing: give it as a text, or in base64 as body_base64")
    return body.encode()


def _send(desk: Desk, given: Given, visit: Visit) -> Any:
    message = Message(
        given.text("topic"),
        body_from(given),
        tags=given.text("tags", "") or None,
        keys=given.text("keys", "") or None,
        properties=given.table("properties"),
    )
    delay = given.number("delay", 0, most=DELAY_SECONDS_MAX)
    sent = messages.send(
        desk.connection,
        message,
        group=given.text("group", messages.SENDER_GROUP),
        key=given.text("order_key", "") or None,
        delay=delay or None,
    )
    return {
        "status": sent.status.value,
        "message_id": sent.message_id,
        "offset_id": sent.offset_id,
        "broker": sent.queue.broker_name,
        "queue_id": sent.queue.queue_id,
        "queue_offset": sent.queue_offset,
    }


def _send_command(given: Given) -> str:
    body = given.raw("body")
    return typed(
        *("kourou", "message", "send", given.text("topic", "TOPIC")),
        body if isinstance(body, str) and body else "BODY",
        *option("--tags", given.text("tags", "")),
        *option("--keys", given.text("keys", "")),
        *[word for pair in given.table("properties").items() for word in ("--property", "=".join(pair))],
        *option("--key", given.text("order_key", "")),
        *option("--delay", f"{given.text('delay', '')}s" if "delay" in given else ""),
    )


def _consume(desk: Desk, given: Given, visit: Visit) -> Any:
    return groups.consume_directly(
        desk.connection, given.text("group"), given.text("client"), given.text("message_id")
    )


def _trace(desk: Desk, given: Given, visit: Visit) -> Any:
    return messages.trace(desk.connection, given.text("message_id"))


FIND = Deed(
    "message.find",
    "Messages of a topic by key, or by time, place and content",
    Role.VIEWER,
    "GET",
    "/topics/{topic}/messages",
    _find,
    (
        TOPIC,
        Field("key", "A key of the message."),
        Field("begin", "Stored at or after: 2026-11-16T07:47:18, or milliseconds since 1970."),
        Field("end", "Stored at or before."),
        Field("broker", "Only at this broker."),
        Field("queue_id", "Only in this queue.", "integer"),
        Field("tags", "Only with one of these tags: new || paid."),
        Field("contains", "Only bodies with this text in them."),
        Field("oldest_first", "By default the newest come first.", "boolean"),
        Field("count", f"Up to {FOUND_MAX}.", "integer"),
    ),
    command=_find_command,
)
GET = Deed(
    "message.get",
    "One message by its id",
    Role.VIEWER,
    "GET",
    "/messages/{message_id}",
    _get,
    (MESSAGE_ID, Field("topic", "Its topic, which a unique id is looked up in.")),
    command=lambda given: typed(
        *("kourou", "message", "get", given.text("message_id", "ID")),
        *option("--topic", given.text("topic", "")),
    ),
)
AT = Deed(
    "message.at",
    "The message at one place",
    Role.VIEWER,
    "GET",
    "/topics/{topic}/queues/{broker}/{queue_id}/{queue_offset}",
    _at,
    (
        TOPIC,
        Field("broker", "The broker's name.", needed=True),
        Field("queue_id", "The queue.", "integer", needed=True),
        Field("queue_offset", "The place in it.", "integer", needed=True),
    ),
)
SEND = Deed(
    "message.send",
    "Send a message",
    Role.OPERATOR,
    "POST",
    "/topics/{topic}/messages",
    _send,
    (
        TOPIC,
        Field("body", "The body as text.", audited=False),
        Field("body_base64", "Or any bytes, in base64.", audited=False),
        Field("tags", "The tag consumers filter by."),
        Field("keys", "Keys to find it by, separated by spaces."),
        Field("properties", "More of them: an object, or lines of name=value.", "object", audited=False),
        Field("order_key", "Messages with one key go to one queue, in order."),
        Field("delay", "Seconds until it is delivered.", "integer"),
        Field("group", "The producer group."),
    ),
    on="topic",
    command=_send_command,
)
CONSUME = Deed(
    "message.consume",
    "Hand one message to one member now",
    Role.OPERATOR,
    "POST",
    "/groups/{group}/members/{client}/messages/{message_id}",
    _consume,
    (
        Field("group", "The consumer group.", needed=True),
        Field("client", "The member's client id.", needed=True),
        Field("message_id", "An offset id.", needed=True),
    ),
    on="message_id",
    command=lambda given: typed(
        *(
            "kourou",
            "message",
            "consume",
            given.text("message_id", "ID"),
            "--group",
            given.text("group", "GROUP"),
        ),
        *option("--client", given.text("client", "")),
        "--yes",
    ),
)
TRACE = Deed(
    "message.trace",
    "What clients told of a message",
    Role.VIEWER,
    "GET",
    "/traces/{message_id}",
    _trace,
    (MESSAGE_ID,),
    command=lambda given: typed("kourou", "message", "trace", given.text("message_id", "ID")),
)

DEEDS = (FIND, GET, AT, SEND, CONSUME, TRACE)
