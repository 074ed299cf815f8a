"""Dead letters: messages a group gave up. Seen, sent again, written to a file, let go.

A dead letter lies in the topic `%DLQ%group` of the broker that had it. It says where it came from: the topic
(`RETRY_TOPIC`, or `DLQ_ORIGIN_TOPIC`), and the id of the message it was first. Sent again, it goes by default
to the group that gave it up and to nobody else, by way of the group's retry topic; `to="topic"` sends it to
its first topic, where every group gets it once more.

A dead letter is sent again under an id made of its place, the same each time: so the key index of the brokers
tells whether it was sent there before, and a handler that is idempotent by message id handles it once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Literal

from kourou.admin import messages, topics
from kourou.admin.connection import Connection
from kourou.client import settings
from kourou.errors import ConfigError, MQError, NotFound
from kourou.message import KEYS, TAGS, UNIQUE_KEY, Message, ReceivedMessage
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message_id import UniqueIds
from kourou.protocol.names import DEAD_LETTER_PREFIX, dead_letter_topic, retry_topic

RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
ORIGIN_ID = "ORIGIN_MESSAGE_ID"
ORIGIN_DLQ_ID = "DLQ_ORIGIN_MESSAGE_ID"
RESENT_FROM = "DLQ_RESENT_FROM"
"""Says of a message that was sent again which dead letter it was: an offset id."""

COUNT_MAX = 1_000_000
ASKED_ABOUT_MAX = 1_000
"""Of so many letters the brokers are asked whether they were sent again before: one request each."""

To = Literal["group", "topic"]

_BROKERS_OWN = frozenset(
    {
        UNIQUE_KEY,
        "MSG_REGION",
        "TRACE_ON",
        "CLUSTER",
        "WAIT",
        "DELAY",
        "REAL_TOPIC",
        "REAL_QID",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "__CRC32#",
        "CONSUME_START_TIME",
        "RECONSUME_TIME",
        "MAX_RECONSUME_TIMES",
        "TIMER_OUT_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "TIMER_ROLL_TIMES",
        "TIMER_DELAY_SEC",
        "TIMER_DELAY_MS",
        "TIMER_DELIVER_MS",
        "TRAN_MSG",
        ORIGIN_TOPIC,
        ORIGIN_DLQ_ID,
        TAGS,
        KEYS,
    }
)
"""What a broker or a client said of the message in its former life; tags and keys are passed on by name."""


@dataclass(frozen=True)
class DeadLetters:
    """The dead letters of one group."""

    group: str
    topic: str
    messages: int
    last_ms: int
    """When the last one came; 0 when there is none."""


@dataclass(frozen=True)
class Resent:
    """One dead letter that was sent again, or would be."""

    dead_letter: str
    """Its offset id."""
    message_id: str
    """What it is known by: the id of the message it was first."""
    topic: str
    """Where it goes."""
    status: str
    error: str | None = None
    sent_before: bool | None = None
    """Whether it had been sent there before; None where nobody was asked."""


def all_groups(connection: Connection) -> list[DeadLetters]:
    """Every group that has a dead-letter topic, empty ones included."""
    listed = [topic.name for topic in topics.all_topics(connection, everything=True) if topic.kind == "dlq"]
    outcomes = connection.each(listed, lambda topic: topics.stats(connection, topic))
    return [
        DeadLetters(
            outcome.of.removeprefix(DEAD_LETTER_PREFIX),
            outcome.of,
            outcome.result.messages,
            max((queue.last_updated_ms for queue in outcome.result.queues), default=0),
        )
        for outcome in outcomes
        if outcome.result is not None
    ]


@dataclass(frozen=True)
class Filter:
    """Which dead letters are meant; what is not said does not matter."""

    ids: frozenset[str] = frozenset()
    """Offset ids, unique ids, or ids of the first message."""
    topic: str | None = None
    key: str | None = None
    tags: str | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    contains: str | None = None

    def takes(self, letter: ReceivedMessage) -> bool:
        if self.ids and not self.ids & {letter.offset_id, letter.message_id, first_id(letter)}:
            return False
        if self.topic is not None and self.topic != first_topic(letter):
            return False
        if self.key is not None and self.key not in (letter.keys or "").split():
            return False
        if self.tags is not None and self.tags != letter.tags:
            return False
        if self.begin_ms is not None and letter.stored_at_ms < self.begin_ms:
            return False
        if self.end_ms is not None and letter.stored_at_ms > self.end_ms:
            return False
        return self.contains is None or self.contains.encode() in letter.body


EVERYTHING = Filter()


def letters(
    connection: Connection, group: str, wanted: Filter = EVERYTHING, count: int = COUNT_MAX
) -> list[ReceivedMessage]:
    """The dead letters of a group, the oldest first. Raises NotFound when it never had one."""
    topic = dead_letter_topic(settings.checked_group(group))
    try:
        found = messages.search(
            connection,
            messages.Search(
                topic,
                begin_ms=wanted.begin_ms,
                end_ms=wanted.end_ms,
                count=COUNT_MAX,
                oldest_first=True,
                looked_at_max=COUNT_MAX,
            ),
        )
    except NotFound as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        raise NotFound(
            error.code, f"group '{group}' has no dead letters: there is no topic '{topic}'"
        ) from None
    return [letter for letter in found if wanted.takes(letter)][:count]


def first_topic(letter: ReceivedMessage) -> str | None:
    """Where it was sent to before anything went wrong."""
    table = letter.properties
    return table.get(RETRY_TOPIC) or table.get(ORIGIN_TOPIC)


def first_id(letter: ReceivedMessage) -> str:
    """The offset id of the message it was first; its own when it does not say."""
    table = letter.properties
    return table.get(ORIGIN_ID) or table.get(ORIGIN_DLQ_ID) or letter.offset_id


def sent_before(
    connection: Connection, group: str, chosen: Collection[ReceivedMessage], to: To = "group"
) -> frozenset[str] | None:
    """The offset ids of those that were sent there before, as far as the brokers still know.

    None when there are too many to ask about (`ASKED_ABOUT_MAX`). What `kourou dlq resend` of an earlier
    release sent, or a message whose time was over, is not found.
    """
    if len(chosen) > ASKED_ABOUT_MAX:
        return None

    def is_there(letter: ReceivedMessage) -> bool:
        target = _target(group, letter, to)
        try:
            return target is not None and bool(messages.by_id(connection, resent_id(letter), target))
        except NotFound:
            return False

    return frozenset(letter.offset_id for letter, was in connection.all(chosen, is_there) if was)


def resend(
    connection: Connection,
    group: str,
    chosen: Iterable[ReceivedMessage],
    *,
    to: To = "group",
    dry_run: bool = False,
    before: frozenset[str] | None = None,
) -> Iterator[Resent]:
    """Send dead letters again, one by one, each told as it is done; one that fails does not stop the rest.

    `before` is what `sent_before` found; it is only passed on to what is told.
    """
    for told in _resend(connection, group, chosen, to, dry_run):
        yield told if before is None else replace(told, sent_before=told.dead_letter in before)


def _resend(
    connection: Connection, group: str, chosen: Iterable[ReceivedMessage], to: To, dry_run: bool
) -> Iterator[Resent]:
    from kourou.client import Producer

    if dry_run:
        for letter in chosen:
            yield Resent(
                letter.offset_id, first_id(letter), _target(group, letter, to) or "", "would be sent"
            )
        return
    with Producer(
        messages.SENDER_GROUP, connection.name_server, access=connection.access, tls=connection.tls
    ) as producer:
        for letter in chosen:
            target = _target(group, letter, to)
            if target is None:
                yield Resent(
                    letter.offset_id, first_id(letter), "", "failed", "it does not say its first topic"
                )
                continue
            try:
                sent = producer.send(again(letter, target))
            except MQError as error:
                yield Resent(letter.offset_id, first_id(letter), target, "failed", str(error))
            else:
                yield Resent(letter.offset_id, first_id(letter), target, sent.status.value)


def _target(group: str, letter: ReceivedMessage, to: To) -> str | None:
    if to not in ("group", "topic"):
        raise ConfigError(f"dead letters go to 'group' or 'topic', not to {to!r}")
    return retry_topic(group) if to == "group" else first_topic(letter)


def again(letter: ReceivedMessage, target: str) -> Message:
    """The message a dead letter becomes: its body and the user's properties, and a word of where it was."""
    kept = {name: value for name, value in letter.properties.items() if name not in _BROKERS_OWN and value}
    kept[RESENT_FROM] = letter.offset_id
    kept[UNIQUE_KEY] = resent_id(letter)
    topic = first_topic(letter)
    if target.startswith("%RETRY%"):
        if topic is not None:
            kept[RETRY_TOPIC] = topic  # consumers see it under this name
    else:
        kept.pop(RETRY_TOPIC, None)
        kept.pop(ORIGIN_ID, None)
    return Message(target, letter.body, tags=letter.tags, keys=letter.keys, properties=kept, flag=letter.flag)


def resent_id(letter: ReceivedMessage) -> str:
    """The unique id a dead letter is sent again with: of a producer that only ever sends this one."""
    digest = blake2b(letter.offset_id.encode(), digest_size=10).digest()
    address, process_id, instance = digest[:4], digest[4:6], digest[6:]
    ids = UniqueIds(address, int.from_bytes(process_id, "big"), int.from_bytes(instance, "big"))
    return ids.next(letter.stored_at_ms)


def purge(connection: Connection, group: str) -> int:
    """Let go of all dead letters of a group; returns how many there were. The topic comes back by itself."""
    topic = dead_letter_topic(settings.checked_group(group))
    count = topics.stats(connection, topic).messages
    topics.delete(connection, topic)
    return count
