"""The client: producers, consumers, and the operations they are made of.

    producer.py pull_consumer.py    what a program uses, blocking and async
    transaction_producer.py         the same for messages that wait for a piece of work
    sending.py asking.py transactions.py    a message gets ready; requests and replies; halves and their ends
    push_consumer.py consumer.py    what is fed by its brokers: with handlers, or in a loop
    consuming.py                    the engine under both: which queues are ours (rebalance.py), reading them
                                    (fetching.py), handling what they bring (handling.py workers.py)
    reading.py                      several queues at once, and the place in each
    sends.py operations.py          send; pull, offsets, topics: what to do, not how to wait
    routes.py queue_choice.py       whom to ask, and which queue to take
    presence.py                     telling brokers that we are there
    trace.py telemetry.py           telling others what we do: RocketMQ's message trace, OpenTelemetry
    consume_hooks.py figures.py     who is told of every call of a handler; what administrators are shown
    steps.py drive.py               what an operation may ask for, and who does it: blocking or async

A name is imported on first use. Nothing here imports asyncio before an async form is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kourou.client.app import App
    from kourou.client.asking import reply_to
    from kourou.client.assignment import (
        assign_by_hash,
        assign_by_room,
        assign_evenly,
        assign_fixed,
        assign_in_turn,
        assign_near,
    )
    from kourou.client.consume_hooks import ConsumeAttempt, ConsumeHook
    from kourou.client.consumer import AsyncConsumer, Consumer, Delivery
    from kourou.client.consumer_settings import ConsumerSettings
    from kourou.client.delays import DelayLevel
    from kourou.client.idempotence import (
        Mark,
        Marks,
        MemoryMarks,
        SqliteMarks,
        by_keys,
        by_message_id,
        idempotent,
    )
    from kourou.client.lite_pull_consumer import AsyncLitePullConsumer, LitePullConsumer
    from kourou.client.operations import Pulled
    from kourou.client.outcomes import DeadLetter, RetryLater
    from kourou.client.producer import AsyncProducer, Producer
    from kourou.client.pull_consumer import AsyncPullConsumer, PullConsumer
    from kourou.client.push_consumer import AsyncPushConsumer, PushConsumer
    from kourou.client.sends import SendAttempt, SendHook, SendResult, SendStatus
    from kourou.client.signing import Credentials
    from kourou.client.telemetry import Telemetry
    from kourou.client.trace_context import TraceContext
    from kourou.client.transaction_producer import AsyncTransactionProducer, TransactionProducer
    from kourou.client.transactions import EndTransactionHook, TransactionEnd, TransactionState
    from kourou.remoting.config import ClientTls

__all__ = [
    "App",
    "AsyncConsumer",
    "AsyncLitePullConsumer",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
    "AsyncTransactionProducer",
    "ClientTls",
    "ConsumeAttempt",
    "ConsumeHook",
    "Consumer",
    "ConsumerSettings",
    "Credentials",
    "DeadLetter",
    "DelayLevel",
    "Delivery",
    "EndTransactionHook",
    "LitePullConsumer",
    "Mark",
    "Marks",
    "MemoryMarks",
    "Producer",
    "PullConsumer",
    "Pulled",
    "PushConsumer",
    "RetryLater",
    "SendAttempt",
    "SendHook",
    "SendResult",
    "SendStatus",
    "SqliteMarks",
    "Telemetry",
    "TraceContext",
    "TransactionEnd",
    "TransactionProducer",
    "TransactionState",
    "assign_by_hash",
    "assign_by_room",
    "assign_evenly",
    "assign_fixed",
    "assign_in_turn",
    "assign_near",
    "by_keys",
    "by_message_id",
    "idempotent",
    "reply_to",
]

_HOMES = {
    "App": "kourou.client.app",
    "AsyncConsumer": "kourou.client.consumer",
    "AsyncLitePullConsumer": "kourou.client.lite_pull_consumer",
    "AsyncProducer": "kourou.client.producer",
    "AsyncPullConsumer": "kourou.client.pull_consumer",
    "AsyncPushConsumer": "kourou.client.push_consumer",
    "AsyncTransactionProducer": "kourou.client.transaction_producer",
    "ClientTls": "kourou.remoting.config",
    "ConsumeAttempt": "kourou.client.consume_hooks",
    "ConsumeHook": "kourou.client.consume_hooks",
    "Consumer": "kourou.client.consumer",
    "ConsumerSettings": "kourou.client.consumer_settings",
    "Credentials": "kourou.client.signing",
    "DeadLetter": "kourou.client.outcomes",
    "DelayLevel": "kourou.client.delays",
    "Delivery": "kourou.client.consumer",
    "EndTransactionHook": "kourou.client.transactions",
    "LitePullConsumer": "kourou.client.lite_pull_consumer",
    "Mark": "kourou.client.idempotence",
    "Marks": "kourou.client.idempotence",
    "MemoryMarks": "kourou.client.idempotence",
    "Producer": "kourou.client.producer",
    "PullConsumer": "kourou.client.pull_consumer",
    "Pulled": "kourou.client.operations",
    "PushConsumer": "kourou.client.push_consumer",
    "RetryLater": "kourou.client.outcomes",
    "SendAttempt": "kourou.client.sends",
    "SendHook": "kourou.client.sends",
    "SendResult": "kourou.client.sends",
    "SendStatus": "kourou.client.sends",
    "SqliteMarks": "kourou.client.idempotence",
    "Telemetry": "kourou.client.telemetry",
    "TraceContext": "kourou.client.trace_context",
    "TransactionEnd": "kourou.client.transactions",
    "TransactionProducer": "kourou.client.transaction_producer",
    "TransactionState": "kourou.client.transactions",
    "assign_by_hash": "kourou.client.assignment",
    "assign_by_room": "kourou.client.assignment",
    "assign_evenly": "kourou.client.assignment",
    "assign_fixed": "kourou.client.assignment",
    "assign_in_turn": "kourou.client.assignment",
    "assign_near": "kourou.client.assignment",
    "by_keys": "kourou.client.idempotence",
    "by_message_id": "kourou.client.idempotence",
    "idempotent": "kourou.client.idempotence",
    "reply_to": "kourou.client.asking",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kourou.client' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
