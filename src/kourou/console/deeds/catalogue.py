"""All deeds there are."""

from __future__ import annotations

from kourou.console.deeds import access, accounts, brokers, groups, letters, messages, topics, waiting

DEEDS = (
    *topics.DEEDS,
    *groups.DEEDS,
    *messages.DEEDS,
    *letters.DEEDS,
    *waiting.DEEDS,
    *brokers.DEEDS,
    *access.DEEDS,
    *accounts.DEEDS,
)
