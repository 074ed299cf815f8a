"""A whole cluster in one process: for `kourou start`, and for a test that wants a real broker.

    local_broker.py node.py         name server and broker together, in a thread of their own or on a loop
    pytest_plugin.py published.py   fixtures for the tests of an application, and what they look at

A name is imported on first use: pytest imports the plugin in every project that has Kourou installed, and
shall not pay for a broker there before a test asks for one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kourou.local.local_broker import LocalBroker
    from kourou.local.node import Node

__all__ = ["LocalBroker", "Node"]

_HOMES = {"LocalBroker": "kourou.local.local_broker", "Node": "kourou.local.node"}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kourou.local' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
