"""A digest of what a queue holds, to be compared with another queue's.

It covers what a producer gave (body, keys, tags, properties, flag, born time) and the place of each message
among its queue's, and leaves out what a broker adds. The digest of a queue is a sum over its messages, so
parts of a queue may be looked at in any order, by any number of tasks; a message at another place gives
another sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

DIGEST_BYTES: Final = 16
MODULUS: Final = 1 << (8 * DIGEST_BYTES)

ADDED_BY_BROKERS: Final = frozenset(
    {
        *("CLUSTER", "MSG_REGION", "TRACE_ON", "__CRC32#", "INSTANCE_ID", "STORE_TIMESTAMP"),
        *("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "1ST_POP_TIME", "POP_CK"),
    }
)
ASKS_A_BROKER: Final = frozenset(
    {
        *(
            "DELAY",
            "TIMER_DELAY_SEC",
            "TIMER_DELAY_MS",
            "TIMER_DELIVER_MS",
            "TIMER_OUT_MS",
            "TIMER_ROLL_TIMES",
        ),
        *("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_DEL_MS", "TIMER_DEL_UNIQKEY"),
        *("TRAN_MSG", "__STARTDELIVERTIME", "WAIT"),
    }
)
"""Properties that tell a broker what to do with a message; it has been done."""


def given(properties: Mapping[str, str] | Iterable[tuple[str, str]]) -> dict[str, str]:
    """The properties that a producer gave and that are the message's own."""
    return {
        name: value
        for name, value in dict(properties).items()
        if name not in ADDED_BY_BROKERS and name not in ASKS_A_BROKER
    }


def message_digest(
    index: int, body: bytes, properties: Mapping[str, str], flag: int, born_ms: int | None
) -> int:
    """Of one message, `index` messages after the first of its queue."""
    digest = blake2b(
        b"%d|%d|%d|" % (index, flag, -1 if born_ms is None else born_ms), digest_size=DIGEST_BYTES
    )
    for name in sorted(properties):
        digest.update(f"{name}\x01{properties[name]}\x02".encode())
    digest.update(b"|")
    digest.update(body)
    return int.from_bytes(digest.digest(), "big")


def combined(digests: Iterable[int]) -> str:
    """Of a queue, from those of its messages or of its parts."""
    return f"{sum(digests) % MODULUS:032x}"
