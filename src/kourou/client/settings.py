"""What a user says about a client, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kourou.client.finding import find_name_servers
from kourou.errors import ConfigError
from kourou.protocol.names import group_fault, producer_group_fault, topic_fault

SECONDS_MAX = 864_000
"""Ten days: nothing here waits longer, and what the system waits with ends at 24."""

DEFAULT_PRODUCER = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER = "DEFAULT_CONSUMER"
"""Names the original gives to who named no group; as it does, we refuse to be one of everybody's."""


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
    """A group of consumers, to look at or to do something about."""
    return _named_group(group, group_fault)


def checked_consumer_group(group: object) -> str:
    """A group of consumers, to be a member of."""
    return _not_everybody_s(checked_group(group), DEFAULT_CONSUMER)


def checked_producer_group(group: object) -> str:
    """A group of producers; nothing is named after those, so that they may be longer."""
    return _not_everybody_s(_named_group(group, producer_group_fault), DEFAULT_PRODUCER)


def _named_group(group: object, fault_of: Callable[[str], str | None]) -> str:
    if not isinstance(group, str):
        raise ConfigError(f"the group is {group!r}, but must be a name")
    if fault := fault_of(group):
        raise ConfigError(fault)
    return group


def _not_everybody_s(group: str, everybody_s: str) -> str:
    if group == everybody_s:
        raise ConfigError(f"the group is '{group}', which is nobody's in particular; give it a name of yours")
    return group


def checked_topic(topic: object) -> str:
    if not isinstance(topic, str):
        raise ConfigError(f"the topic is {topic!r}, but must be a name")
    if fault := topic_fault(topic):
        raise ConfigError(fault)
    return topic


def check_filter(topic: str, expression: object) -> None:
    """Raises ConfigError for tags, or an SQL expression, that are neither."""
    if not isinstance(expression, str) or not expression.strip():
        raise ConfigError(f"the filter of topic '{topic}' is {expression!r}; leave it out for all messages")


def checked_trace(trace: object) -> None:
    """Whether the message trace is told, or the topic it is told to."""
    if not isinstance(trace, bool):
        checked_topic(trace)


def checked_seconds(what: str, seconds: object) -> float:
    if not isinstance(seconds, int | float) or not 0 < seconds <= SECONDS_MAX:
        raise ConfigError(
            f"{what} is {seconds!r}, but must be a number of seconds above 0, and {SECONDS_MAX} at most"
        )
    return float(seconds)


def checked_hooks(what: str, hooks: object, *methods: str) -> None:
    """Objects with these methods, none of them missing: one that fails is only seen in the log."""
    if isinstance(hooks, str) or not isinstance(hooks, Iterable):
        raise ConfigError(f"{what} is {hooks!r}, but must be a list of objects with {' and '.join(methods)}")
    for hook in hooks:
        if not all(callable(getattr(hook, method, None)) for method in methods):
            raise ConfigError(f"{what} has {hook!r} in it, which has no {' or no '.join(methods)} to call")


def checked_timeout(timeout: object) -> float:
    """Seconds to wait for something that may come; without any left, what is there already."""
    if not isinstance(timeout, int | float) or not timeout <= SECONDS_MAX:
        raise ConfigError(f"timeout is {timeout!r}, but must be a number of seconds, {SECONDS_MAX} at most")
    return float(timeout)


def checked_drain(what: str, seconds: object) -> float:
    if not isinstance(seconds, int | float) or not 0 <= seconds <= SECONDS_MAX:
        raise ConfigError(
            f"{what} is {seconds!r}, but must be a number of seconds from 0 on, and {SECONDS_MAX} at most"
        )
    return float(seconds)


def checked_count(what: str, count: object, least: int = 0) -> int:
    if not isinstance(count, int) or count < least:
        raise ConfigError(f"{what} is {count!r}, but must be a whole number from {least} on")
    return count
