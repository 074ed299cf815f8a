"""`kourou message …`: send messages, and watch them come."""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import click

from kourou.cli.connection import name_server_option
from kourou.cli.output import Row, as_text, format_option, show
from kourou.errors import MQError

if TYPE_CHECKING:
    from kourou.client import PullConsumer
    from kourou.message import ReceivedMessage

TOOLS_GROUP = "TOOLS_CONSUMER"
"""The group RocketMQ's own tools read with; every broker knows it, and nobody commits for it."""

SENT_COLUMNS = ("status", "message_id", "broker", "queue_id", "queue_offset")
BATCH_MESSAGES = 32


@click.group()
def message() -> None:
    """Send messages, and watch them come."""


@message.command()
@click.argument("topic")
@click.argument("body")
@click.option("--tags", help="The tag that consumers filter by.")
@click.option("--keys", help="Keys to find the message by, separated by spaces.")
@click.option("--property", "properties", metavar="NAME=VALUE", multiple=True, help="May be repeated.")
@click.option("--key", help="Messages with one key go to one queue, in order.")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="Send it that often.")
@click.option("--group", default="kourou-cli", show_default=True, help="The producer group.")
@click.option("--timeout", type=float, default=3.0, show_default=True, help="Seconds for each send.")
@name_server_option
@format_option
def send(
    topic: str,
    body: str,
    tags: str | None,
    keys: str | None,
    properties: tuple[str, ...],
    key: str | None,
    count: int,
    group: str,
    timeout: float,
    name_server: str | None,
    output: str,
) -> None:
    """Send BODY to TOPIC; `-` takes the body from standard input."""
    from kourou.client import Producer
    from kourou.message import Message

    content = sys.stdin.buffer.read() if body == "-" else body.encode(errors="surrogateescape")
    outgoing = Message(topic, content, tags=tags, keys=keys, properties=dict(map(_property, properties)))
    with Producer(group, name_server, send_timeout=timeout) as producer:
        results = (producer.send(outgoing, key=key) for _ in range(count))
        rows = (
            {
                "status": result.status.value,
                "message_id": result.message_id,
                "offset_id": result.offset_id,
                "broker": result.queue.broker_name,
                "queue_id": result.queue.queue_id,
                "queue_offset": result.queue_offset,
            }
            for result in results
        )
        show(rows, SENT_COLUMNS, output)


@message.command()
@click.argument("topic")
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="latest",
    show_default=True,
    help="Where to begin; with --group only where it has not committed yet.",
)
@click.option("--count", type=click.IntRange(1), help="Stop after that many messages.")
@click.option("--timeout", type=float, help="Stop when none came for so many seconds.")
@click.option("--tags", default="*", show_default=True, help="Only these: 'new || paid'.")
@click.option("--group", help="Read on where this group stopped, and commit what was printed.")
@name_server_option
@format_option
def tail(
    topic: str,
    start: str,
    count: int | None,
    timeout: float | None,
    tags: str,
    group: str | None,
    name_server: str | None,
    output: str,
) -> None:
    """Print the messages of TOPIC as they come, until Ctrl-C."""
    from kourou.client import PullConsumer

    begin: Literal["earliest", "latest"] = "earliest" if start == "earliest" else "latest"
    with PullConsumer(
        group or TOOLS_GROUP, topic, name_server, tags=tags, start=begin, announce=group is not None
    ) as consumer:
        if group is None:
            consumer.seek(begin)
        messages = _received(consumer, count, timeout, commit=group is not None)
        with suppress(KeyboardInterrupt):  # the usual way to end it
            if output == "table":
                for each in messages:
                    click.echo(_line(each))
            else:
                show(map(_row, messages), (), output)


def _received(
    consumer: PullConsumer, count: int | None, timeout: float | None, *, commit: bool
) -> Iterator[ReceivedMessage]:
    """Messages, up to `count`; what was printed is committed before more is asked for."""
    received = 0
    while count is None or received < count:
        batch_max = BATCH_MESSAGES if count is None else min(BATCH_MESSAGES, count - received)
        batch = consumer.receive(batch_max, timeout)
        if not batch and count is not None:
            raise MQError(f"{received} of {count} messages came, then none for {timeout:g} s")
        if not batch:
            return
        yield from batch
        received += len(batch)
        if commit:
            consumer.commit()


def _line(received: ReceivedMessage) -> str:
    stored_at = datetime.fromtimestamp(received.stored_at_ms / 1000).strftime("%H:%M:%S.%f")[:-3]
    place = f"{received.broker_name}/{received.queue_id}@{received.queue_offset}"
    tags = f"[{received.tags}] " if received.tags else ""
    return as_text(f"{stored_at}  {place}  {tags}{_body_text(received)}")


def _row(received: ReceivedMessage) -> Row:
    row: dict[str, object] = {
        "topic": received.topic,
        "broker": received.broker_name,
        "queue_id": received.queue_id,
        "queue_offset": received.queue_offset,
        "message_id": received.message_id,
        "offset_id": received.offset_id,
        "born_at": _moment(received.born_at_ms),
        "stored_at": _moment(received.stored_at_ms),
        "tags": received.tags,
        "keys": received.keys,
        "properties": received.properties,
    }
    try:
        row["body"] = received.body.decode()
    except UnicodeDecodeError:
        row["body_base64"] = b64encode(received.body).decode()
    except MQError as error:
        row["body_error"] = str(error)
    return row


def _body_text(received: ReceivedMessage) -> str:
    try:
        return received.body.decode(errors="backslashreplace")
    except MQError as error:  # one body that cannot be inflated must not end the watch
        return f"<unreadable body: {error}>"


def _moment(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--property")
    return name, value
