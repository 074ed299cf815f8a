"""A message to send, and a message as it was received.

Both know a message's parts by RocketMQ's names: a topic, a body of bytes, a tag to filter by, keys to find
it by, and properties, of which tag and keys are two. Neither knows how a message travels or lies on disk:
a `ReceivedMessage` is built over a `Source` that does (`protocol/record.py` has the real one) and asks it
for each part when somebody wants it, because most readers look at the body and at nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Protocol

from kourou.errors import ConfigError

TAGS = "TAGS"
KEYS = "KEYS"
UNIQUE_KEY = "UNIQ_KEY"
WAIT = "WAIT"

TOPIC_CHARACTERS_MAX = 127
INTERNAL_TOPIC_CHARACTERS_MAX = 255  # retry and dead-letter topics carry a group's name, too

_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")
_INTERNAL_PREFIXES = ("%RETRY%", "%DLQ%")
_SEPARATORS = re.compile("[\x01\x02]")


class Message:
    """A message to send.

    `tags` and `keys` end up in `properties` under RocketMQ's names, and may as well be given there.
    Several keys are kept as one text, joined by spaces. Without `wait_stored` a broker answers before the
    message is on its disk and at its replicas, whatever it does with others. Raises ConfigError for what no
    broker would store or no consumer would get back.
    """

    __slots__ = ("body", "flag", "properties", "topic")
    __hash__ = None  # type: ignore[assignment]  # properties may change

    topic: str
    body: bytes
    flag: int
    properties: dict[str, str]

    def __init__(
        self,
        topic: str,
        body: bytes | bytearray | memoryview = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        wait_stored: bool = True,
    ) -> None:
        self.topic = _checked_topic(topic)
        self.body = _checked_body(body)
        self.flag = _checked_flag(flag)
        self.properties = _checked_properties(properties)
        if tags:
            self._set_well_known(TAGS, _checked_text("tags", tags))
        if keys:
            self._set_well_known(KEYS, _checked_text("keys", _joined(keys)))
        if not wait_stored:
            self._set_well_known(WAIT, "false")

    @property
    def wait_stored(self) -> bool:
        """Whether the broker answers only when it is as safe as the broker's settings ask for."""
        return self.properties.get(WAIT, "true") != "false"

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> str | None:
        return self.properties.get(KEYS)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return (
            self.topic == other.topic
            and self.body == other.body
            and self.flag == other.flag
            and self.properties == other.properties
        )

    def __repr__(self) -> str:
        extras = "".join(
            f", {name}={value!r}" for name, value in (("tags", self.tags), ("keys", self.keys)) if value
        )
        others = {name: value for name, value in self.properties.items() if name not in (TAGS, KEYS)}
        if others:
            extras += f", properties={others!r}"
        if self.flag:
            extras += f", flag={self.flag}"
        return f"Message({self.topic!r}, {_shown(self.body)}{extras})"

    def _set_well_known(self, name: str, value: str) -> None:
        given = self.properties.setdefault(name, value)
        if given != value:
            raise ConfigError(f"{name} is given twice, as {value!r} and in properties as {given!r}")


class Source(Protocol):
    """What a received message is read from. Numbers are at hand; the rest is worked out when asked for."""

    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def physical_offset(self) -> int: ...
    @property
    def born_ms(self) -> int: ...
    @property
    def store_ms(self) -> int: ...
    @property
    def reconsume_times(self) -> int: ...
    @property
    def flag(self) -> int: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def size(self) -> int: ...

    def topic_name(self) -> str: ...
    def plain_body(self) -> bytes: ...
    def property_table(self) -> dict[str, str]: ...
    def born_at(self) -> tuple[str, int]: ...
    def stored_at(self) -> tuple[str, int]: ...
    def offset_id(self) -> str: ...


class ReceivedMessage:
    """A message from a broker.

    Reading `body` may raise ProtocolError: it is inflated on first use, and its bound is checked then.
    """

    __slots__ = ("_body", "_properties", "_source", "_topic", "broker_name")

    def __init__(self, source: Source, broker_name: str = "") -> None:
        self._source = source
        self.broker_name = broker_name
        self._topic: str | None = None
        self._body: bytes | None = None
        self._properties: dict[str, str] | None = None

    @property
    def topic(self) -> str:
        topic = self._topic
        if topic is None:
            topic = self._topic = self._source.topic_name()
        return topic

    def show_as(self, topic: str) -> None:
        """A message that is delivered by way of an internal topic appears under the one it was sent to."""
        self._topic = topic

    @property
    def source(self) -> Source:
        """What it is read from."""
        return self._source

    @property
    def body(self) -> bytes:
        body = self._body
        if body is None:
            body = self._body = self._source.plain_body()
        return body

    @property
    def properties(self) -> dict[str, str]:
        properties = self._properties
        if properties is None:
            properties = self._properties = self._source.property_table()
        return properties

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> str | None:
        """All keys in one text, separated by spaces."""
        return self.properties.get(KEYS)

    @property
    def message_id(self) -> str:
        """The id its producer gave it; the offset id when it gave none."""
        return self.properties.get(UNIQUE_KEY) or self.offset_id

    @property
    def offset_id(self) -> str:
        """The id that names its place: a broker's address and a position in that broker's log."""
        return self._source.offset_id()

    @property
    def queue_id(self) -> int:
        return self._source.queue_id

    @property
    def queue_offset(self) -> int:
        return self._source.queue_offset

    @property
    def physical_offset(self) -> int:
        return self._source.physical_offset

    @property
    def born_at_ms(self) -> int:
        """When the producer made it, by the producer's clock."""
        return self._source.born_ms

    @property
    def stored_at_ms(self) -> int:
        """When the broker stored it, by the broker's clock."""
        return self._source.store_ms

    @property
    def born_host(self) -> tuple[str, int]:
        return self._source.born_at()

    @property
    def store_host(self) -> tuple[str, int]:
        return self._source.stored_at()

    @property
    def reconsume_times(self) -> int:
        """How often it was handed back for another try."""
        return self._source.reconsume_times

    @property
    def flag(self) -> int:
        return self._source.flag

    @property
    def sys_flag(self) -> int:
        return self._source.sys_flag

    @property
    def size(self) -> int:
        """The bytes it takes in the broker's log, everything included."""
        return self._source.size

    def __repr__(self) -> str:
        return (
            f"ReceivedMessage({self.topic!r}, queue_id={self.queue_id}, queue_offset={self.queue_offset}, "
            f"message_id={self.message_id!r})"
        )


def _checked_topic(topic: object) -> str:
    if not isinstance(topic, str):
        raise ConfigError(f"topic is {topic!r}; give its name as a str")
    longest = INTERNAL_TOPIC_CHARACTERS_MAX if topic.startswith(_INTERNAL_PREFIXES) else TOPIC_CHARACTERS_MAX
    if not _TOPIC.fullmatch(topic) or len(topic) > longest:
        raise ConfigError(
            f"topic {topic[:300]!r} cannot exist: a name has 1 to {longest} characters, "
            "each one of a-z A-Z 0-9 _ - % |"
        )
    return topic


def _checked_body(body: object) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    hint = "; encode it: text.encode()" if isinstance(body, str) else ""
    raise ConfigError(f"body is a {type(body).__name__}, and bytes are needed{hint}")


def _checked_flag(flag: object) -> int:
    if not isinstance(flag, int) or not -0x8000_0000 <= flag <= 0x7FFF_FFFF:
        raise ConfigError(f"flag is {flag!r}; it is a signed 32-bit number")
    return flag


def _checked_properties(properties: object) -> dict[str, str]:
    if not properties:
        return {}
    if not isinstance(properties, Mapping):
        raise ConfigError(f"properties is {properties!r}; give texts by name: {{'colour': 'red'}}")
    return {
        _checked_text("property name", name): _checked_text(f"property {name!r}", value)
        for name, value in properties.items()
    }


def _checked_text(what: str, text: object) -> str:
    if not isinstance(text, str):
        raise ConfigError(f"{what} is {text!r}; properties are str, so convert it: str({text!r})")
    if not text:
        raise ConfigError(f"{what} is empty, and would be lost on the way; leave it out")
    if _SEPARATORS.search(text):
        raise ConfigError(f"{what} is {text!r}; U+0001 and U+0002 separate properties and cannot be in one")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{what} is {text!r}, which is not valid Unicode: {error.reason}") from None
    return text


def _joined(keys: str | Iterable[str]) -> str:
    if isinstance(keys, str):
        return keys
    if not isinstance(keys, Iterable):
        raise ConfigError(f"keys is {keys!r}; give a str, or several: convert it: str({keys!r})")
    each = [_checked_text("key", key) for key in keys]
    for key in each:
        if " " in key:
            raise ConfigError(f"key {key!r} has a space in it, and spaces separate keys; replace it")
    return " ".join(each)


def _shown(body: bytes) -> str:
    return repr(body) if len(body) <= 64 else f"<{len(body)} bytes>"
