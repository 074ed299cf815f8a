"""Topics made to order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kourou.broker.handlers.groups import changed_attributes
from kourou.broker.handlers.made import Made
from kourou.broker.topics import Topics, check_new_topic
from kourou.errors import Refused
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import CreateTopic
from kourou.protocol.names import printable
from kourou.remoting.answer import Answer


class CreateTopicHandler:
    """UPDATE_AND_CREATE_TOPIC (17). Answered when the name servers know: the route is right at once; and when
    slaves have it: it is still there when one of them takes over."""

    def __init__(self, topics: Topics, made: Made) -> None:
        self._topics = topics
        self._made = made

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(CreateTopic)
        check_new_topic(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            self._topics.born_with,
            header.topic_filter_type,
        )
        known = self._topics.get(header.topic)
        topic = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order or False,
            attributes=changed_topic_attributes(
                {} if known is None else known.attributes, parsed_changes(header.attributes or "")
            ),
        )
        self._topics.save({header.topic: topic})
        self._made.topics(request, answer, f"topic '{header.topic}' is", (header.topic,))


MESSAGE_TYPES: Final = ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")

_ATTRIBUTES: Final[Mapping[str, tuple[str, ...] | None]] = {
    "message.type": MESSAGE_TYPES,
    "queue.type": ("SimpleCQ",),
    "cleanup.policy": ("DELETE",),
    "reserve.time": None,
}
"""What may be said of a topic, and the values that mean something here; None for any number."""


def parsed_changes(text: str) -> dict[str, str]:
    """`+message.type=FIFO,-reserve.time` as changes; raises Refused when it is something else."""
    changes = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if part[0] not in "+-" or bool(equals) != (part[0] == "+"):
            raise _no_attribute(f"attribute change '{printable(part)}' is not +name=value or -name")
        changes[name.strip()] = value.strip()
    return changes


def changed_topic_attributes(before: Mapping[str, str], change: Mapping[str, str]) -> dict[str, str]:
    """As for groups; raises Refused for what a topic cannot have."""
    for name, value in change.items():
        plain = name.lstrip("+-")
        if plain not in _ATTRIBUTES:
            raise _no_attribute(f"topics have no attribute '{printable(plain)}': {', '.join(_ATTRIBUTES)}")
        allowed = _ATTRIBUTES[plain]
        if name.startswith("-"):
            continue
        if allowed is None and not (value.isascii() and value.isdecimal()):
            raise _no_attribute(f"attribute {plain} is '{printable(value)}', but must be a number")
        if allowed is not None and value not in allowed:
            raise _no_attribute(
                f"attribute {plain} is '{printable(value)}', but must be: {', '.join(allowed)}"
            )
    return changed_attributes(before, change)


def _no_attribute(why: str) -> Refused:
    return Refused(ResponseCode.INVALID_PARAMETER, why)
