"""Topic and group names: which are legal, which belong to the system, how one is made from another.

A name becomes a folder, a JSON key and a log line, so it is checked before any of that: letters, digits,
`%`, `|`, `_` and `-` only, which leaves no way to write a path.
"""

from __future__ import annotations

import re
from typing import Final

TOPIC_CHARACTERS_MAX: Final = 127
GROUP_CHARACTERS_MAX: Final = 120
DERIVED_CHARACTERS_MAX: Final = 255
"""Retry and dead-letter topics, whose names are made of a group's and sometimes a topic's."""

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
SYSTEM_PREFIX: Final = "rmq_sys_"

DEFAULT_TOPIC: Final = "TBW102"
"""Its settings are inherited by topics that a send creates."""

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
HALF_DONE_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARDED_HALF_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
STAGED_TOPIC: Final = "rmq_sys_KOUROU_STAGED"
"""Messages that wait for the end of a transaction of many (`broker/sequences.py`), and how these ended."""

NOT_SENDABLE: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        HALF_DONE_TOPIC,
        DISCARDED_HALF_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        TIMER_TOPIC,
        STAGED_TOPIC,
    }
)
"""Topics only a broker itself writes to."""

SYSTEM_TOPICS: Final = NOT_SENDABLE | {DEFAULT_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC, CHECKPOINT_TOPIC}

TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Its offsets are how far a broker has come with its half messages."""

SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)


def topic_fault(topic: str) -> str | None:
    """Why `topic` cannot be a topic's name, or None when it can."""
    if topic in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        return f"topic '{topic}' lacks its group"
    derived = topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    return _fault("topic", topic, DERIVED_CHARACTERS_MAX if derived else TOPIC_CHARACTERS_MAX)


def sent_topic_fault(topic: str) -> str | None:
    """Why a send cannot make `topic`: also a derived name must fit into a record then, as in the original."""
    return topic_fault(topic) or _fault("topic", topic, TOPIC_CHARACTERS_MAX)


def group_fault(group: str) -> str | None:
    """Why `group` cannot be a group's name, or None when it can."""
    return _fault("group", group, GROUP_CHARACTERS_MAX)


def producer_group_fault(group: str) -> str | None:
    """Why `group` cannot be a producer group's name; those are not stored, and clients derive long ones."""
    return _fault("producer group", group, DERIVED_CHARACTERS_MAX)


def server_name_fault(name: str) -> str | None:
    """Why `name` cannot be a broker's or a cluster's, or None when it can."""
    return _fault("name", name, TOPIC_CHARACTERS_MAX)


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def retry_topic(group: str) -> str:
    """Where messages wait that `group` could not process yet."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Where messages end that `group` could not process at all."""
    return DEAD_LETTER_PREFIX + group


def printable(text: str, most: int = 80) -> str:
    """`text` as it may stand in a log line or an answer: bounded, no control characters."""
    shown = text[:most].encode("unicode_escape").decode("ascii")
    return f"{shown}… ({len(text)} characters)" if len(text) > most else shown


def _fault(what: str, name: str, most: int) -> str | None:
    if not name or name.isspace():
        return f"the {what} is blank"
    if len(name) > most:
        return f"{what} '{printable(name)}' is longer than {most} characters"
    if not _LEGAL.fullmatch(name):
        allowed = "a name is of letters a-z A-Z, digits and _ - % |"
        return f"{what} '{printable(name)}' has illegal characters: {allowed}"
    return None
