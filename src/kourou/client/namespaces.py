"""Namespaces: `shop%orders` to the brokers, `orders` to the program that is in `shop`.

Only clients know of them. The system's own topics and groups are never in one; of a retry or dead-letter
topic it is the group inside that is.
"""

from __future__ import annotations

from kourou.protocol.bodies import MessageQueue
from kourou.protocol.names import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUPS,
    is_system_topic,
)

SEPARATOR = "%"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"


def with_namespace(namespace: str | None, name: str) -> str:
    """A topic or group as brokers know it."""
    if not namespace or not name or _is_system(name):
        return name
    prefix, rest = _parted(name)
    return name if rest.startswith(namespace + SEPARATOR) else f"{prefix}{namespace}{SEPARATOR}{rest}"


def without_namespace(namespace: str | None, name: str) -> str:
    """A topic or group as the program knows it."""
    if not namespace:
        return name
    prefix, rest = _parted(name)
    return prefix + rest.removeprefix(namespace + SEPARATOR)


def queue_with_namespace(namespace: str | None, queue: MessageQueue) -> MessageQueue:
    """A queue as brokers know it."""
    return _renamed(queue, with_namespace(namespace, queue.topic)) if namespace else queue


def queue_without_namespace(namespace: str | None, queue: MessageQueue) -> MessageQueue:
    """A queue as the program knows it."""
    return _renamed(queue, without_namespace(namespace, queue.topic)) if namespace else queue


def _renamed(queue: MessageQueue, topic: str) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=queue.broker_name, queue_id=queue.queue_id)


def _parted(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _is_system(name: str) -> bool:
    return is_system_topic(name) or name in SYSTEM_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)
