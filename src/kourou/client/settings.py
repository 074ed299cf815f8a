"""What a user says about a client, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable

from kourou.client.finding import find_name_servers
from kourou.errors import ConfigError
from kourou.protocol.names import group_fault, topic_fault


def name_server_addresses(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """The name servers to ask, as `finding.py` finds them; for who does not want to use an address server.

    Raises ConfigError when there are none, or one is no address.
    """
    found = find_name_servers(given)
    if not found.addresses:
        raise ConfigError(
            f"the name servers are to be asked for at {found.address_server}, which is not possible here: "
            "pass name_server='host:9876'"
        )
    return found.addresses


def checked_group(group: object) -> str:
    if not isinstance(group, str):
        raise ConfigError(f"the group is {group!r}, but must be a name")
    if fault := group_fault(group):
        raise ConfigError(fault)
    return group


def checked_topic(topic: object) -> str:
    if not isinstance(topic, str):
        raise ConfigError(f"the topic is {topic!r}, but must be a name")
    if fault := topic_fault(topic):
        raise ConfigError(fault)
    return topic


def checked_trace(trace: object) -> None:
    """Whether the message trace is told, or the topic it is told to."""
    if not isinstance(trace, bool):
        checked_topic(trace)


def checked_seconds(what: str, seconds: object) -> float:
    if not isinstance(seconds, int | float) or not seconds > 0:
        raise ConfigError(f"{what} is {seconds!r}, but must be a number of seconds above 0")
    return float(seconds)


def checked_count(what: str, count: object, least: int = 0) -> int:
    if not isinstance(count, int) or count < least:
        raise ConfigError(f"{what} is {count!r}, but must be a whole number from {least} on")
    return count
