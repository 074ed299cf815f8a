"""`kourou message …`: send messages, watch them come, find those that came."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import click

from kourou.cli.changing import DURATION, MOMENT, SOME_TIME, change_options, ms_of, seconds_of
from kourou.cli.connection import client_access, cluster_at, name_server_option
from kourou.cli.output import Row, as_text, confirmed, format_option, note, show
from kourou.errors import MQError

if TYPE_CHECKING:
    from kourou.client import PullConsumer
    from kourou.message import ReceivedMessage

TOOLS_GROUP = "TOOLS_CONSUMER"
"""The group RocketMQ's own tools read with; every broker knows it, and nobody commits for it."""

SENT_COLUMNS = ("status", "message_id", "broker", "queue_id", "queue_offset")
FOUND_COLUMNS = ("stored_at", "broker", "queue_id", "queue_offset", "message_id", "tags", "keys", "body")
FOUND_WIDE = ("offset_id", "born_at", "born_host", "store_host", "reconsume_times", "size", "properties")
BATCH_MESSAGES = 32
BODY_CHARACTERS_MAX = 60


@click.group()
def message() -> None:
    """Send messages, watch them come, find those that came."""


@message.command()
@click.argument("topic")
@click.argument("body")
@click.option("--tags", help="The tag that consumers filter by.")
@click.option("--keys", help="Keys to find the message by, separated by spaces.")
@click.option("--property", "properties", metavar="NAME=VALUE", multiple=True, help="May be repeated.")
@click.option("--key", help="Messages with one key go to one queue, in order.")
@click.option(
    "--delay",
    metavar="WHEN",
    help="Nobody sees it before: 30s, 5m, 2h; a moment as 2026-01-31T12:00:00; or `level 3`.",
)
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="Send it that often.")
@click.option("--group", default="kourou-cli", show_default=True, help="The producer group.")
@click.option("--timeout", type=SOME_TIME, default=3.0, show_default=True, help="Seconds for each send.")
@name_server_option
@format_option
def send(
    topic: str,
    body: str,
    tags: str | None,
    keys: str | None,
    properties: tuple[str, ...],
    key: str | None,
    delay: str | None,
    count: int,
    group: str,
    timeout: float,
    name_server: str,
    output: str,
) -> None:
    """Send BODY to TOPIC; `-` takes the body from standard input."""
    from kourou.client import Producer
    from kourou.message import Message

    wait = None if delay is None else _delay(delay)
    content = sys.stdin.buffer.read() if body == "-" else body.encode(errors="surrogateescape")
    outgoing = Message(topic, content, tags=tags, keys=keys, properties=dict(map(_property, properties)))
    with Producer(group, name_server, send_timeout=timeout, **client_access()) as producer:
        results = (producer.send(outgoing, key=key, delay=wait) for _ in range(count))
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
        show(rows, SENT_COLUMNS, output, ("offset_id",))


def _delay(text: str) -> Any:
    """Seconds, a moment, or one of the broker's levels."""
    from kourou.client import DelayLevel

    words = text.strip().lower().split()
    if len(words) == 2 and words[0] == "level" and words[1].isdecimal():
        return DelayLevel(int(words[1]))
    try:
        return seconds_of(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no delay: say 30s, 5m, 2h, 2026-01-31T12:00:00 or 'level 3'", param_hint="--delay"
        ) from None


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
@click.option("--timeout", type=DURATION, help="Stop when none came for so many seconds.")
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
    name_server: str,
    output: str,
) -> None:
    """Print the messages of TOPIC as they come, until Ctrl-C."""
    from kourou.admin.messages import described
    from kourou.client import PullConsumer

    begin: Literal["earliest", "latest"] = "earliest" if start == "earliest" else "latest"
    with PullConsumer(
        group or TOOLS_GROUP,
        topic,
        name_server,
        tags=tags,
        start=begin,
        announce=group is not None,
        **client_access(),
    ) as consumer:
        if group is None:
            consumer.seek(begin)
        messages = _received(consumer, count, timeout, commit=group is not None)
        with suppress(KeyboardInterrupt):  # the usual way to end it
            if output in ("table", "wide"):
                for each in messages:
                    click.echo(_line(each))
            else:
                show(map(described, messages), FOUND_COLUMNS, output, FOUND_WIDE)


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


def _body_text(received: ReceivedMessage) -> str:
    try:
        return received.body.decode(errors="backslashreplace")
    except MQError as error:  # one body that cannot be inflated must not end the watch
        return f"<unreadable body: {error}>"


# ------------------------------------------------------------------------------------------------- finding


@message.command()
@click.argument("message_id", required=False)
@click.option("-t", "--topic", help="Its topic; needed for a unique id, and for a place.")
@click.option(
    "-b", "--broker", metavar="BROKER", help="With --queue and --offset: the message at that place."
)
@click.option("--queue", "queue_id", type=click.IntRange(0), help="See --broker.")
@click.option("--offset", "queue_offset", type=click.IntRange(0), help="See --broker.")
@click.option("--body-only", is_flag=True, help="Print its body and nothing else, byte for byte.")
@name_server_option
@format_option
def get(
    message_id: str | None,
    topic: str | None,
    broker: str | None,
    queue_id: int | None,
    queue_offset: int | None,
    body_only: bool,
    name_server: str,
    output: str,
) -> None:
    """Show one message. By its id (an offset id needs no --topic), or by its place."""
    from kourou.admin import messages

    place = (broker, queue_id, queue_offset)
    if (message_id is None) == (None in place):
        raise click.UsageError("say MESSAGE_ID, or --topic, --broker, --queue and --offset")
    with cluster_at(name_server) as connection:
        if message_id is not None:
            found = messages.by_id(connection, message_id, topic)
        else:
            if topic is None:
                raise click.UsageError("a place is one of a topic: name it with --topic")
            assert broker is not None
            assert queue_id is not None
            assert queue_offset is not None
            found = messages.by_offset(connection, topic, broker, queue_id, queue_offset)
    if body_only:
        sys.stdout.buffer.write(found.body)
        return
    row = messages.described(found)
    if output in ("table", "wide"):
        _show_one(row)
    else:
        show([row], FOUND_COLUMNS, output, FOUND_WIDE)


def _show_one(row: Row) -> None:
    """One message, a field a line."""
    width = max(map(len, row))
    for name, value in row.items():
        if isinstance(value, dict):
            click.echo(name.replace("_", " "))
            for key, each in value.items():
                click.echo(as_text(f"  {key} = {each}"))
        elif value is not None:
            click.echo(f"{name.replace('_', ' '):<{width}}  {as_text(value)}")


@message.command()
@click.argument("topic")
@click.option("--key", help="Messages with this key.")
@click.option("--since", type=MOMENT, help="Stored then or later; 10m is ten minutes ago.")
@click.option("--until", type=MOMENT, help="Stored then or earlier.")
@click.option("--contains", metavar="TEXT", help="Only bodies with this in them.")
@click.option("--tags", default="*", show_default=True, help="Only these: 'new || paid'.")
@click.option("-b", "--broker", metavar="BROKER", help="Only queues of this broker.")
@click.option("--queue", "queue_id", type=click.IntRange(0), help="Only this queue.")
@click.option("--oldest-first", is_flag=True, help="The oldest first, not the newest.")
@click.option("--count", type=click.IntRange(1, 1_000_000), default=64, show_default=True)
@name_server_option
@format_option
def find(
    topic: str,
    key: str | None,
    since: datetime | None,
    until: datetime | None,
    contains: str | None,
    tags: str,
    broker: str | None,
    queue_id: int | None,
    oldest_first: bool,
    count: int,
    name_server: str,
    output: str,
) -> None:
    """Find messages of TOPIC by key, time and content; the newest first."""
    from kourou.admin import messages

    begin_ms, end_ms = ms_of(since), ms_of(until)
    with cluster_at(name_server) as connection:
        if key is not None:
            found = messages.by_key(
                connection,
                topic,
                key,
                count=min(count, messages.KEY_MATCHES_MAX),
                begin_ms=begin_ms or 0,
                end_ms=messages.LATEST_MS if end_ms is None else end_ms,
            )
            found = found if oldest_first else found[::-1]
        else:
            wanted = messages.Search(
                topic,
                begin_ms=begin_ms,
                end_ms=end_ms,
                count=count,
                oldest_first=oldest_first,
                broker=broker,
                queue_id=queue_id,
                tags=tags,
                contains=contains,
            )
            found = messages.search(connection, wanted)
    show([found_row(each, output) for each in found], FOUND_COLUMNS, output, FOUND_WIDE)


def found_row(found: ReceivedMessage, output: str) -> Row:
    """A message as one row; in a table its body is cut short."""
    from kourou.admin.messages import described

    row = described(found)
    if output in ("table", "wide"):
        body = row.get("body") or row.get("body_base64") or row.get("body_error") or ""
        text = str(body)
        row["body"] = text if len(text) <= BODY_CHARACTERS_MAX else text[: BODY_CHARACTERS_MAX - 1] + "…"
    return row


@message.command()
@click.argument("message_id")
@click.option(
    "--trace-topic", default="RMQ_SYS_TRACE_TOPIC", show_default=True, help="Where clients tell of it."
)
@name_server_option
@format_option
def trace(message_id: str, trace_topic: str, name_server: str, output: str) -> int:
    """Show what clients told of the message with this unique id. Who sent it, who handled it, and when."""
    from kourou.admin import messages
    from kourou.errors import NotFound
    from kourou.protocol.codes import ResponseCode

    with cluster_at(name_server) as connection:
        steps = messages.trace(connection, message_id, trace_topic=trace_topic)
    if not steps:
        raise NotFound(
            ResponseCode.NO_MESSAGE,
            f"nobody told of message {message_id} in '{trace_topic}': tracing is a setting of producers and "
            "consumers, and traces arrive some seconds later",
        )
    rows: list[Row] = [{**asdict(step), "time": messages.moment(step.time_ms)} for step in steps]
    columns = ("time", "kind", "group", "client", "broker", "spent_ms", "is_success", "retry_times", "detail")
    show(rows, columns, output, ("topic", "tags", "keys", "request_id"))
    return 0


@message.command()
@click.argument("offset_id")
@click.option("-g", "--group", required=True, help="The consumer group.")
@click.option("--client", "client_id", help="Which member; else the first.")
@change_options
@name_server_option
@format_option
def consume(
    offset_id: str,
    group: str,
    client_id: str | None,
    dry_run: bool,
    yes: bool,
    name_server: str,
    output: str,
) -> int:
    """Hand a message to a member of a group now. By its offset id; says what became of it."""
    from kourou.admin import groups, messages

    with cluster_at(name_server) as connection:
        found = messages.by_id(connection, offset_id)
        client = client_id or groups.members(connection, group).members[0].client_id
        if dry_run:
            note(f"nothing was done; {client} would get {found.message_id} of '{found.topic}'")
            return 0
        confirmed(f"{client} of group '{group}' handles message {found.message_id} once more.", yes)
        outcome = groups.consume_directly(connection, group, client, offset_id, found.topic)
    row = {
        "client_id": client,
        "message_id": found.message_id,
        "result": outcome.consume_result,
        "spent_ms": outcome.spent_time_mills,
        "remark": outcome.remark or None,
    }
    show([row], ("client_id", "message_id", "result", "spent_ms", "remark"), output)
    return 0 if outcome.consume_result in ("CR_SUCCESS", "CR_COMMIT") else 1


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--property")
    return name, value
