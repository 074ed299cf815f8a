"""What a user says about a client, checked before anything is sent."""

from __future__ import annotations

import os
from collections.abc import Iterable

from kourou.errors import ConfigError
from kourou.protocol.names import group_fault, topic_fault
from kourou.remoting.address import parse_address

NAME_SERVER_VARIABLE = "NAMESRV_ADDR"


def name_server_addresses(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """The name servers to ask: those given, else those of the environment variable NAMESRV_ADDR.

    Several are separated by `;` (or given one by one). Raises ConfigError when there are none, or one is
    no address.
    """
    texts = (
        [given or os.environ.get(NAME_SERVER_VARIABLE, "")]
        if given is None or isinstance(given, str)
        else given
    )
    addresses = tuple(
        dict.fromkeys(each.strip() for text in texts for each in text.split(";") if each.strip())
    )
    if not addresses:
        raise ConfigError(
            "no name server is given: pass name_server='host:9876' (on the command line -n host:9876), "
            f"or set the environment variable {NAME_SERVER_VARIABLE}"
        )
    for address in addresses:
        parse_address(address)
    return addresses


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


def checked_seconds(what: str, seconds: object) -> float:
    if not isinstance(seconds, int | float) or not seconds > 0:
        raise ConfigError(f"{what} is {seconds!r}, but must be a number of seconds above 0")
    return float(seconds)


def checked_count(what: str, count: object, least: int = 0) -> int:
    if not isinstance(count, int) or count < least:
        raise ConfigError(f"{what} is {count!r}, but must be a whole number from {least} on")
    return count
