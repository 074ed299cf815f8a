"""Kourou: a message queue that speaks Apache RocketMQ, in Python.

    with kourou.Producer("shop", name_server="localhost:9876") as producer:
        producer.send(kourou.Message("orders", b"one espresso", tags="new"))

Every public name of the library lives here; what is not in `__all__` may change without notice.
A name is imported from its home on first use, so that `import kourou` stays cheap: a Spark worker
or a shell completion pays for the client it asks for, never for the broker.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kourou.client import (
        App,
        AsyncConsumer,
        AsyncLitePullConsumer,
        AsyncProducer,
        AsyncPullConsumer,
        AsyncPushConsumer,
        AsyncTransactionProducer,
        ClientTls,
        ConsumeAttempt,
        ConsumeHook,
        Consumer,
        ConsumerSettings,
        Credentials,
        DeadLetter,
        DelayLevel,
        Delivery,
        LitePullConsumer,
        Mark,
        Marks,
        MemoryMarks,
        Producer,
        PullConsumer,
        Pulled,
        PushConsumer,
        RetryLater,
        SendAttempt,
        SendHook,
        SendResult,
        SendStatus,
        SqliteMarks,
        Telemetry,
        TraceContext,
        TransactionProducer,
        TransactionState,
        by_keys,
        by_message_id,
        idempotent,
        reply_to,
    )
    from kourou.errors import (
        AddressTaken,
        Busy,
        ConfigError,
        ConnectionLost,
        Corrupt,
        DecompressionLimit,
        Denied,
        DiskFault,
        MissingExtra,
        MQError,
        NoMaster,
        NotFound,
        ProtocolError,
        Refused,
        StoreError,
        StoreForeign,
        StoreLocked,
        TimedOut,
        Unreachable,
    )
    from kourou.local import LocalBroker
    from kourou.message import Message, ReceivedMessage
    from kourou.protocol.bodies import MessageQueue

__all__ = [
    "AddressTaken",
    "App",
    "AsyncConsumer",
    "AsyncLitePullConsumer",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
    "AsyncTransactionProducer",
    "Busy",
    "ClientTls",
    "ConfigError",
    "ConnectionLost",
    "ConsumeAttempt",
    "ConsumeHook",
    "Consumer",
    "ConsumerSettings",
    "Corrupt",
    "Credentials",
    "DeadLetter",
    "DecompressionLimit",
    "DelayLevel",
    "Delivery",
    "Denied",
    "DiskFault",
    "LitePullConsumer",
    "LocalBroker",
    "MQError",
    "Mark",
    "Marks",
    "MemoryMarks",
    "Message",
    "MessageQueue",
    "MissingExtra",
    "NoMaster",
    "NotFound",
    "Producer",
    "ProtocolError",
    "PullConsumer",
    "Pulled",
    "PushConsumer",
    "ReceivedMessage",
    "Refused",
    "RetryLater",
    "SendAttempt",
    "SendHook",
    "SendResult",
    "SendStatus",
    "SqliteMarks",
    "StoreError",
    "StoreForeign",
    "StoreLocked",
    "Telemetry",
    "TimedOut",
    "TraceContext",
    "TransactionProducer",
    "TransactionState",
    "Unreachable",
    "__version__",
    "by_keys",
    "by_message_id",
    "idempotent",
    "reply_to",
]

_HOMES = {
    "kourou.client": (
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
        "TransactionProducer",
        "TransactionState",
        "by_keys",
        "by_message_id",
        "idempotent",
        "reply_to",
    ),
    "kourou.errors": (
        "AddressTaken",
        "Busy",
        "ConfigError",
        "ConnectionLost",
        "Corrupt",
        "DecompressionLimit",
        "Denied",
        "DiskFault",
        "MQError",
        "MissingExtra",
        "NoMaster",
        "NotFound",
        "ProtocolError",
        "Refused",
        "StoreError",
        "StoreForeign",
        "StoreLocked",
        "TimedOut",
        "Unreachable",
    ),
    "kourou.local": ("LocalBroker",),
    "kourou.message": ("Message", "ReceivedMessage"),
    "kourou.protocol.bodies": ("MessageQueue",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'kourou' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value  # the next look-up finds it without coming here
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
