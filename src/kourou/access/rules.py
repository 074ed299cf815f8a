"""What an account may do: entries about resources, the more exact ones first.

    resource   Topic:orders, Topic:order*, Group:*, Cluster:DefaultCluster, or * for all of them
    actions    what may, or may not, be done with it
    when       from these addresses, by these groups; always, when nothing is said
    decision   allow or deny

An action is allowed when the first tier of entries that has an opinion allows it:

    custom before default  >  a name  >  a prefix, longer ones first  >  a type  >  everything

Within a tier a denial wins. An entry that says `only` has an opinion also when its conditions are not met:
then it denies, so that one such entry lets its groups in and keeps all others out. Nobody is allowed what no
entry speaks of. Retry and dead-letter topics are their group's: no entry speaks of them as topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from kourou.access.addresses import Addresses
from kourou.errors import ConfigError
from kourou.protocol.names import (
    DEAD_LETTER_PREFIX,
    HALF_DONE_TOPIC,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    STAGED_TOPIC,
    TIMER_TOPIC,
)

PUB, SUB, CREATE, UPDATE, DELETE, GET, LIST, ADMIN = 4, 8, 16, 32, 64, 128, 256, 512
"""What can be done. ADMIN is to change accounts and settings: no policy gives it away."""
CHANGE: Final = CREATE | UPDATE | DELETE
LOOK: Final = GET | LIST
ALL: Final = PUB | SUB | CHANGE | LOOK

ACTION_NAMES: Final = {
    "Pub": PUB,
    "Sub": SUB,
    "Create": CREATE,
    "Update": UPDATE,
    "Delete": DELETE,
    "Get": GET,
    "List": LIST,
    "All": ALL,
}

Kind = Literal["Topic", "Group", "Cluster", "Namespace", "Any"]
KINDS: Final[dict[str, Kind]] = {
    "topic": "Topic",
    "group": "Group",
    "cluster": "Cluster",
    "namespace": "Namespace",
    "any": "Any",
}
EVERY: Final = "*"

HIDDEN_TOPICS: Final = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, HALF_DONE_TOPIC, TIMER_TOPIC, STAGED_TOPIC})
"""Where messages lie that are not out yet: delayed, half, timed, staged."""


class Need(NamedTuple):
    """What a request wants to do with a resource; one of `actions` is enough.

    `group` is who does it: empty when a request that sends or reads does not say, None when it does neither.
    """

    kind: Kind
    name: str
    actions: int
    group: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


class Pattern(NamedTuple):
    """Which resources an entry speaks of. An empty name that is a prefix stands for all of them."""

    kind: Kind
    name: str
    is_prefix: bool = False

    def matches(self, need: Need) -> bool:
        if self.kind == "Any":
            return True
        if self.kind != need.kind:
            return False
        return need.name.startswith(self.name) if self.is_prefix else need.name == self.name

    @property
    def rank(self) -> tuple[bool, bool, int]:
        return self.kind == "Any", self.is_prefix, -len(self.name)

    def __str__(self) -> str:
        if self.kind == "Any":
            return EVERY
        return f"{self.kind}:{self.name}{EVERY if self.is_prefix else ''}"


def parse_pattern(text: str) -> Pattern:
    """`Topic:orders`, `Topic:order*`, `Topic:*` or `*`. Raises ConfigError."""
    if text.strip() == EVERY:
        return Pattern("Any", "", True)
    kind, colon, name = text.strip().partition(":")
    known = KINDS.get(kind.strip().lower())
    name = name.strip()
    if known is None or not colon or not name or EVERY in name[:-1]:
        raise ConfigError(
            f"{text!r} is no resource: write Topic:orders, Topic:order*, Topic:*, Group:…, Cluster:… or *"
        )
    return Pattern(known, name.removesuffix(EVERY), name.endswith(EVERY))


def topic_need(topic: str, actions: int, group: str | None = None) -> Need:
    """What it takes to do this with a topic.

    The retry and dead-letter topics of a group are the group's; where messages of all topics lie that are not
    out yet, only an administrator reads.
    """
    if topic in HIDDEN_TOPICS and actions & (PUB | SUB) and not actions & LOOK:
        return Need("Cluster", EVERY, ADMIN)
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if topic.startswith(prefix):
            return Need("Group", topic[len(prefix) :], actions & ~PUB | SUB if actions & PUB else actions)
    return Need("Topic", topic, actions, group)


class Entry(NamedTuple):
    """One thing that is allowed or not."""

    pattern: Pattern
    actions: int
    is_allowed: bool = True
    addresses: Addresses | None = None
    groups: frozenset[str] = frozenset()
    is_only: bool = False

    def holds(self, need: Need, address: str) -> bool:
        """Whether its conditions are met."""
        if self.groups and need.group is not None and need.group not in self.groups:
            return False
        return not self.addresses or address in self.addresses


class Policy:
    """The entries of one account."""

    __slots__ = ("_tiers",)

    def __init__(self, custom: Iterable[Entry], default: Iterable[Entry] = ()) -> None:
        self._tiers = [*_tiers(custom), *_tiers(default)]

    def allows(self, need: Need, address: str) -> bool:
        """Whether one of the actions may be done from this address."""
        actions, bit = need.actions, 1
        while bit <= actions:
            if actions & bit and self._allows_one(need, bit, address):
                return True
            bit <<= 1
        return False

    def _allows_one(self, need: Need, action: int, address: str) -> bool:
        for tier in self._tiers:
            verdict = _verdict(tier, need, action, address)
            if verdict is not None:
                return verdict
        return False


def _tiers(entries: Iterable[Entry]) -> list[Sequence[Entry]]:
    """Entries of the same rank together, the most exact first."""
    by_rank: dict[tuple[bool, bool, int], list[Entry]] = {}
    for entry in entries:
        by_rank.setdefault(entry.pattern.rank, []).append(entry)
    return [by_rank[rank] for rank in sorted(by_rank)]


def _verdict(tier: Sequence[Entry], need: Need, action: int, address: str) -> bool | None:
    verdict: bool | None = None
    is_kept_out = False
    for entry in tier:
        if not entry.actions & action or not entry.pattern.matches(need):
            continue
        if not entry.holds(need, address):
            is_kept_out = is_kept_out or entry.is_only
        elif not entry.is_allowed:
            return False
        else:
            verdict = True
    return False if verdict is None and is_kept_out else verdict
