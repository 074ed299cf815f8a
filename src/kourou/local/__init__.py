"""A whole cluster in one process: for `kourou start`, and for a test that wants a real broker."""

from kourou.local.local_broker import LocalBroker
from kourou.local.node import Node

__all__ = ["LocalBroker", "Node"]
