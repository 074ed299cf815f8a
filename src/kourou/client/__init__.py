"""The client: producers, consumers, and the operations they are made of.

    producer.py pull_consumer.py    what a program uses, blocking and async
    reading.py                      several queues at once, and the place in each
    operations.py                   send, pull, offsets, topics: what to do, not how to wait
    routes.py queue_choice.py       whom to ask, and which queue to take
    presence.py                     telling brokers that we are there
    steps.py drive.py               what an operation may ask for, and who does it: blocking or async

A name is imported on first use. Nothing here imports asyncio before an async form is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kourou.client.operations import SendResult, SendStatus
    from kourou.client.producer import AsyncProducer, Producer
    from kourou.client.pull_consumer import AsyncPullConsumer, PullConsumer

__all__ = [
    "AsyncProducer",
    "AsyncPullConsumer",
    "Producer",
    "PullConsumer",
    "SendResult",
    "SendStatus",
]

_HOMES = {
    "AsyncProducer": "kourou.client.producer",
    "AsyncPullConsumer": "kourou.client.pull_consumer",
    "Producer": "kourou.client.producer",
    "PullConsumer": "kourou.client.pull_consumer",
    "SendResult": "kourou.client.operations",
    "SendStatus": "kourou.client.operations",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kourou.client' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
