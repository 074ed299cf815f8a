"""Every page, by section."""

from __future__ import annotations

from kourou.console.page import Page
from kourou.console.pages import (
    access,
    brokers,
    connections,
    entry,
    groups,
    interface,
    letters,
    messages,
    overview,
    topics,
    traces,
    users,
    waiting,
)

PAGES: list[Page] = [
    *entry.PAGES,
    *overview.PAGES,
    *brokers.PAGES,
    *topics.PAGES,
    *groups.PAGES,
    *messages.PAGES,
    *letters.PAGES,
    *waiting.PAGES,
    *traces.PAGES,
    *connections.PAGES,
    *access.PAGES,
    *users.PAGES,
    *interface.PAGES,
]
