"""What was published to a broker: looking at topics from a test, without disturbing anybody's place there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from kourou.client.drive import BlockingDriver
from kourou.client.operations import TopicSettings, create_topic
from kourou.client.pull_consumer import PullConsumer
from kourou.doors.clock import RealClock
from kourou.errors import NotFound
from kourou.message import ReceivedMessage
from kourou.protocol.bodies import MessageQueue

LOOK_AGAIN_SECONDS = 0.01
SHOWN_MESSAGES = 20
SHOWN_BYTES = 100

Body = bytes | str | Callable[[bytes], object]
"""A body, as bytes or as UTF-8 text, or a function that says whether one is the wanted one."""


class Published:
    """The messages at the cluster of one name server."""

    def __init__(self, name_server: str) -> None:
        self._name_server = name_server

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """All messages of a topic that are there right now, in the order they were stored."""
        return _in_order(self._look(topic, {}))

    def assert_published(
        self,
        topic: str,
        body: Body | None = None,
        *,
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | None = None,
        count: int | None = None,
        within: float = 5.0,
    ) -> list[ReceivedMessage]:
        """The messages of `topic` that are as described, in the order they were stored.

        Waits up to `within` seconds for one of them, or for `count`; then there must be no more than that.
        With `count=0` it looks once. Raises AssertionError, with all that is in the topic.
        """
        clock = RealClock()
        deadline = clock.monotonic() + within
        places: dict[MessageQueue, int] = {}
        seen: list[ReceivedMessage] = []
        while True:
            seen += self._look(topic, places)
            found = [message for message in seen if _fits(message, body, tags, keys, properties)]
            if (found and count is None) or (count is not None and len(found) >= count):
                break
            if clock.monotonic() >= deadline:
                break
            threading.Event().wait(LOOK_AGAIN_SECONDS)
        if not found if count is None else len(found) != count:
            wanted = _described(body, tags, keys, properties)
            expected = "at least one message" if count is None else f"{count} message{'s' * (count != 1)}"
            raise AssertionError(
                f"expected {expected} in topic '{topic}'{wanted} within {within:g} s, found {len(found)}.\n"
                f"{_shown(topic, _in_order(seen))}"
            )
        return _in_order(found)

    def _look(self, topic: str, places: dict[MessageQueue, int]) -> list[ReceivedMessage]:
        """What was added since the last look, whose `places` were left; none when there is no such topic."""
        found: list[ReceivedMessage] = []
        try:
            with PullConsumer("kourou-tests", topic, self._name_server, announce=False) as consumer:
                for queue in consumer.queues():
                    offset = places.get(queue)
                    if offset is None:
                        offset = consumer.offset_of(queue, "earliest")
                    end = consumer.offset_of(queue, "latest")
                    while offset < end:
                        pulled = consumer.pull(queue, offset)
                        found += pulled.messages
                        offset = pulled.next_offset
                    places[queue] = offset
        except NotFound:
            return []
        return found


def make_topic(address: str, topic: str, queues: int) -> None:
    """Make a topic at the broker at `address`, so that it can be read before anything was sent to it."""
    driver = BlockingDriver()
    try:
        driver.run(create_topic(address, TopicSettings(topic, queues, queues)))
    finally:
        driver.close()


def _in_order(messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
    return sorted(messages, key=lambda message: (message.broker_name, message.physical_offset))


def _fits(
    message: ReceivedMessage,
    body: Body | None,
    tags: str | None,
    keys: str | None,
    properties: Mapping[str, str] | None,
) -> bool:
    if callable(body):
        fits = bool(body(message.body))
    else:
        wanted = body.encode() if isinstance(body, str) else body
        fits = wanted is None or message.body == wanted
    return (
        fits
        and (tags is None or message.tags == tags)
        and (keys is None or set(keys.split()) <= set((message.keys or "").split()))
        and (properties is None or properties.items() <= message.properties.items())
    )


def _described(
    body: Body | None, tags: str | None, keys: str | None, properties: Mapping[str, str] | None
) -> str:
    given = {"body": body, "tags": tags, "keys": keys, "properties": properties}
    parts = [f"{name}={value!r}" for name, value in given.items() if value is not None]
    return f" with {', '.join(parts)}" if parts else ""


def _shown(topic: str, messages: list[ReceivedMessage]) -> str:
    if not messages:
        return f"There is nothing in topic '{topic}'."
    lines = [f"In topic '{topic}' ({len(messages)}):"]
    for message in messages[:SHOWN_MESSAGES]:
        more = " …" if len(message.body) > SHOWN_BYTES else ""
        lines.append(f"  {message.body[:SHOWN_BYTES]!r}{more} tags={message.tags!r} keys={message.keys!r}")
    if len(messages) > SHOWN_MESSAGES:
        lines.append(f"  … and {len(messages) - SHOWN_MESSAGES} more")
    return "\n".join(lines)
